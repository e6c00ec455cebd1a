"""A store that lasts as long as the program: for tests, and for those who want nothing written."""

from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping, Sequence

from thresher.model.identity import content_id
from thresher.model.parts import Part
from thresher.store.base import NO_SUMMARIES, StoredContent, read_stored_text, require_unique
from thresher.store.ids import exact_id, parse_part_id
from thresher.store.part_codec import strip_vendor_extras


class InMemoryContentStore:
    """A store in memory."""

    def __init__(self) -> None:
        self._contents: dict[str, StoredContent] = {}
        self._aliases: dict[str, str] = {}
        self._ids: list[str] = []
        """All ids, aliases too, sorted: so the beginning of one finds it."""

    def put(self, parts: Iterable[Part], folds: Mapping[str, Sequence[str]] = NO_SUMMARIES) -> None:
        """Keep these parts, and what folds stand for."""
        for part in parts:
            id, alias = exact_id(part), content_id(part)
            self._put_if_new(id, strip_vendor_extras(part))
            if alias != id and alias not in self._aliases:
                self._aliases[alias] = id
                insort(self._ids, alias)
        for id, members in folds.items():
            self._put_if_new(id, tuple(members))

    def get(self, id: str) -> StoredContent | None:
        """What has this id, or begins with it."""
        target = require_unique(self._targets(id), id)
        return None if target is None else self._contents[target]

    def has(self, ids: Iterable[str]) -> set[str]:
        """Those of the ids that are here."""
        return {id for id in ids if self._targets(id)}

    def text(self, id: str) -> str:
        """The text that this id stands for."""
        return read_stored_text(self, id)

    def _put_if_new(self, id: str, thing: StoredContent) -> None:
        if id not in self._contents:
            self._contents[id] = thing
            insort(self._ids, id)

    def _targets(self, id: str) -> set[str]:
        start = parse_part_id(id)
        targets: set[str] = set()
        if start is None:
            return targets
        place = bisect_left(self._ids, start)
        while place < len(self._ids) and self._ids[place].startswith(start):
            targets.add(self._aliases.get(self._ids[place], self._ids[place]))
            place += 1
        return targets
