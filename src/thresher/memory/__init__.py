"""Past sessions: every one kept, and found again without its echoes.

In: files of any agent. Out: sessions that answer a question, with the messages that do. The archive (SQLite, or
whatever implements `archive.protocol.Archive`) holds everything; the index (tantivy) is derived from it.
"""

from thresher.memory.memory import Memory
from thresher.memory.records import ArchivedSession, SyncReport
from thresher.memory.results import Excerpt, RecallResult, SearchHit, SearchResults, SessionHit
from thresher.memory.search.query import Query

__all__ = [
    "ArchivedSession",
    "Excerpt",
    "Memory",
    "Query",
    "RecallResult",
    "SearchHit",
    "SearchResults",
    "SessionHit",
    "SyncReport",
]
