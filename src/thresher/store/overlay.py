"""A content store that reads from another one and writes to memory only, for callers that must not change a disk."""

from collections.abc import Iterable, Mapping, Sequence
from threading import Lock

from thresher.model.parts import Part
from thresher.store.base import NO_SUMMARIES, ContentStore, StoredContent, read_stored_text
from thresher.store.in_memory import InMemoryContentStore

MAX_PUTS = 200
"""Number of writes after which the older half of the memory is released."""


class OverlayContentStore:
    """New content in memory, and older content from another store."""

    def __init__(self, base: ContentStore) -> None:
        self._base = base
        self._layers = [InMemoryContentStore()]
        self._puts = 0
        self._lock = Lock()

    def put(self, parts: Iterable[Part], folds: Mapping[str, Sequence[str]] = NO_SUMMARIES) -> None:
        """Keep parts and the members of summaries in memory."""
        with self._lock:
            self._puts += 1
            if self._puts % MAX_PUTS == 0:
                self._layers = [InMemoryContentStore(), self._layers[0]]
            self._layers[0].put(parts, folds)

    def get(self, id: str) -> StoredContent | None:
        """Return the content whose id equals or starts with this id."""
        found = (store.get(id) for store in (*self._layers, self._base))
        return next((content for content in found if content is not None), None)

    def has(self, ids: Iterable[str]) -> set[str]:
        """Return the given ids that match content in memory or in the other store."""
        wanted = set(ids)
        return set().union(*(store.has(wanted) for store in (*self._layers, self._base)))

    def text(self, id: str) -> str:
        """Return the text with this id."""
        return read_stored_text(self, id)
