"""A content store in memory, for tests and for callers that write nothing to disk."""

from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping, Sequence

from thresher.model.identity import content_id
from thresher.model.parts import Part
from thresher.store.base import NO_SUMMARIES, StoredContent, read_stored_text, require_unique
from thresher.store.ids import exact_id, parse_part_id
from thresher.store.part_codec import strip_vendor_extras


class InMemoryContentStore:
    """A content store in memory."""

    def __init__(self) -> None:
        self._contents: dict[str, StoredContent] = {}
        self._aliases: dict[str, str] = {}
        self._ids: list[str] = []
        """All ids and aliases, sorted, for prefix lookups."""

    def put(self, parts: Iterable[Part], folds: Mapping[str, Sequence[str]] = NO_SUMMARIES) -> None:
        """Store parts and the members of summaries."""
        for part in parts:
            id, alias = exact_id(part), content_id(part)
            self._put_if_new(id, strip_vendor_extras(part))
            if alias != id and alias not in self._aliases:
                self._aliases[alias] = id
                insort(self._ids, alias)
        for id, members in folds.items():
            self._put_if_new(id, tuple(members))

    def get(self, id: str) -> StoredContent | None:
        """Return the content whose id equals or starts with this id."""
        target = require_unique(self._targets(id), id)
        return None if target is None else self._contents[target]

    def has(self, ids: Iterable[str]) -> set[str]:
        """Return the given ids that match stored content."""
        return {id for id in ids if self._targets(id)}

    def text(self, id: str) -> str:
        """Return the stored text with this id."""
        return read_stored_text(self, id)

    def _put_if_new(self, id: str, content: StoredContent) -> None:
        if id not in self._contents:
            self._contents[id] = content
            insort(self._ids, id)

    def _targets(self, id: str) -> set[str]:
        prefix = parse_part_id(id)
        targets: set[str] = set()
        if prefix is None:
            return targets
        index = bisect_left(self._ids, prefix)
        while index < len(self._ids) and self._ids[index].startswith(prefix):
            targets.add(self._aliases.get(self._ids[index], self._ids[index]))
            index += 1
        return targets
