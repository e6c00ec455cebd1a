"""A store that lasts as long as the program: for tests, and for those who want nothing written."""

from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping, Sequence

from thresher.model.identity import content_id
from thresher.model.parts import Part
from thresher.store.base import NO_FOLDS, Found, the_only, told
from thresher.store.coding import bare
from thresher.store.ids import exact_id, sought


class MemoryStore:
    """A store in memory."""

    def __init__(self) -> None:
        self._things: dict[str, Found] = {}
        self._aliases: dict[str, str] = {}
        self._ids: list[str] = []
        """All ids, aliases too, sorted: so the beginning of one finds it."""

    def put(self, parts: Iterable[Part], folds: Mapping[str, Sequence[str]] = NO_FOLDS) -> None:
        """Keep these parts, and what folds stand for."""
        for part in parts:
            id, alias = exact_id(part), content_id(part)
            self._keep(id, bare(part))
            if alias != id and alias not in self._aliases:
                self._aliases[alias] = id
                insort(self._ids, alias)
        for id, members in folds.items():
            self._keep(id, tuple(members))

    def get(self, id: str) -> Found | None:
        """What has this id, or begins with it."""
        target = the_only(self._targets(id), id)
        return None if target is None else self._things[target]

    def has(self, ids: Iterable[str]) -> set[str]:
        """Those of the ids that are here."""
        return {id for id in ids if self._targets(id)}

    def text(self, id: str) -> str:
        """The text that this id stands for."""
        return told(self, id)

    def _keep(self, id: str, thing: Found) -> None:
        if id not in self._things:
            self._things[id] = thing
            insort(self._ids, id)

    def _targets(self, id: str) -> set[str]:
        start = sought(id)
        targets: set[str] = set()
        if start is None:
            return targets
        place = bisect_left(self._ids, start)
        while place < len(self._ids) and self._ids[place].startswith(start):
            targets.add(self._aliases.get(self._ids[place], self._ids[place]))
            place += 1
        return targets
