"""Where elided parts stay, keyed by their content, so that nothing is ever lost.

In: parts and the members of folds. Out: the same, by id. Imports `model` and `errors`; SQLite only when used.
"""

from thresher.store.base import Found, Store, text_of
from thresher.store.errors import AmbiguousIdError, NotStoredError, StoreError
from thresher.store.home import home
from thresher.store.ids import exact_id, fold_id, short_id
from thresher.store.memory import MemoryStore
from thresher.store.sqlite import SqliteStore, default_store

__all__ = [
    "AmbiguousIdError",
    "Found",
    "MemoryStore",
    "NotStoredError",
    "SqliteStore",
    "Store",
    "StoreError",
    "default_store",
    "exact_id",
    "fold_id",
    "home",
    "short_id",
    "text_of",
]
