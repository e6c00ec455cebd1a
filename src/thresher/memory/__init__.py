"""Archive and search past sessions of every agent.

The archive (SQLite, or another implementation of `archive.protocol.Archive`) stores all messages of each session. The
full-text index (tantivy) is derived from the archive. By default, a search skips text that memory tools printed.
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
