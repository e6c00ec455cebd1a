"""Assign ids to tool calls that have none."""

import re
from collections import deque
from collections.abc import Iterable

_UNSAFE_ID_CHARS = re.compile(r"[^A-Za-z0-9_-]")


class CallIdAssigner:
    """Assigns deterministic, unique ids, built from the tool's name, to calls without one."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        """Reserve the ids in `taken`."""
        self._taken = set(taken)
        self._counts: dict[str, int] = {}
        self._open: dict[int, str] = {}
        self._open_queues: dict[tuple[str, str, bool], deque[int]] = {}
        """Open calls in order, by id, by name, and all. Answered calls are removed when they reach the front."""
        self._call_count = 0

    def assign_call_id(self, name: str, given: str = "") -> str:
        """Return the given id of a call, or a new one."""
        call_id = given or self._make_id(name)
        self._taken.add(call_id)
        self._call_count += 1
        self._open[self._call_count] = call_id
        own = bool(given)
        for line in (("id", call_id, True), ("name", name, own), ("name", "", own)):
            self._open_queues.setdefault(line, deque()).append(self._call_count)
        return call_id

    def _find_oldest_open(self, *lines: tuple[str, str, bool]) -> int | None:
        heads = []
        for line in filter(None, map(self._open_queues.get, lines)):
            while line and line[0] not in self._open:
                line.popleft()
            heads += [line[0]] if line else []
        return min(heads, default=None)

    def match_result(self, name: str, given: str = "") -> str:
        """Return the id of the call that a result answers.

        Matches the result's own id first. Otherwise it matches the oldest open call of that name, which must have had
        no id itself if the result has one (Gemini CLI gives ids only to responses). Without a match, returns a new id.
        """
        found = self._find_oldest_open(("id", given, True)) if given else None
        if found is None:
            found = self._find_oldest_open(("name", name, False), *([] if given else [("name", name, True)]))
        if found is not None:
            return self._open.pop(found)
        call_id = given or self._make_id(name)
        self._taken.add(call_id)
        return call_id

    def _make_id(self, name: str) -> str:
        """Build an id that is valid in every dialect: Anthropic allows letters, digits, `_` and `-`, OpenAI 40
        characters.
        """
        stem = _UNSAFE_ID_CHARS.sub("_", name)[:32] or "call"
        while True:
            self._counts[stem] = count = self._counts.get(stem, 0) + 1
            if f"{stem}-{count}" not in self._taken:
                return f"{stem}-{count}"
