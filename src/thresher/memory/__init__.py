"""Past sessions: every one kept, and found again without its echoes.

In: files of any agent. Out: sessions that answer a question, with the messages that do. The archive (SQLite) is the
truth, the index (tantivy) is made from it; `base.Store` is what another store would implement.
"""

from thresher.memory.memory import Memory

__all__ = ["Memory"]
