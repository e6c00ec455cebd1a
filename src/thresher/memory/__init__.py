"""Past sessions: every one kept, and found again without its echoes.

In: files of any agent. Out: sessions that answer a question, with the messages that do. The archive (SQLite) is the
truth, the index (tantivy) is made from it; `base.Store` is what another store would implement.
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
