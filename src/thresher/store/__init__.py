"""Content store: keeps removed content by id, so that every edit can be undone.

A store contains parts and the member ids of summaries. `sqlite3` is imported only when needed.
"""

from typing import TYPE_CHECKING

from thresher.deprecation import ForwardedNames
from thresher.store.base import ContentStore, StoredContent, get_restorable_text
from thresher.store.errors import AmbiguousIdError, NotStoredError, StoreError
from thresher.store.home import get_data_folder
from thresher.store.ids import compute_summary_id, exact_id, short_id
from thresher.store.in_memory import InMemoryContentStore
from thresher.store.sqlite import SqliteContentStore, default_content_store

__all__ = [
    "AmbiguousIdError",
    "ContentStore",
    "InMemoryContentStore",
    "NotStoredError",
    "SqliteContentStore",
    "StoreError",
    "StoredContent",
    "compute_summary_id",
    "default_content_store",
    "exact_id",
    "get_data_folder",
    "get_restorable_text",
    "short_id",
]

if not TYPE_CHECKING:  # hides the old names from type checkers
    __getattr__ = ForwardedNames(
        __name__,
        {
            "Found": "thresher.store:StoredContent",
            "MemoryStore": "thresher.store:InMemoryContentStore",
            "SqliteStore": "thresher.store:SqliteContentStore",
            "Store": "thresher.store:ContentStore",
            "default_store": "thresher.store:default_content_store",
            "fold_id": "thresher.store:compute_summary_id",
            "text_of": "thresher.store:get_restorable_text",
        },
    )
