"""Past sessions: every one kept, and found again without its echoes.

In: files of any agent. Out: sessions that answer a question, with the messages that do. The archive (SQLite, or
whatever implements `archive.protocol.Archive`) holds everything; the index (tantivy) is derived from it.
"""

from thresher.memory.memory import Memory

__all__ = ["Memory"]
