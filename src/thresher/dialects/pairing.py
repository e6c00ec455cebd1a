"""Assign ids to tool calls that have none."""

import re
from collections import deque
from collections.abc import Iterable

_UNSAFE_ID_CHARS = re.compile(r"[^A-Za-z0-9_-]")


class CallIdAssigner:
    """Generator of ids for calls without one: deterministic, unique, and built from the tool's name."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        """Reserve the ids in `taken`."""
        self._taken = set(taken)
        self._counts: dict[str, int] = {}
        self._open: dict[int, str] = {}
        self._open_queues: dict[tuple[str, str, bool], deque[int]] = {}
        """Queues of open calls, oldest first: by id, by name, and for any name. They may contain answered calls."""
        self._call_count = 0

    def assign_call_id(self, name: str, given_id: str = "") -> str:
        """Return the given id of a call, or a new one."""
        call_id = given_id or self._make_id(name)
        self._taken.add(call_id)
        self._call_count += 1
        self._open[self._call_count] = call_id
        has_id = bool(given_id)
        for key in (("id", call_id, True), ("name", name, has_id), ("name", "", has_id)):
            self._open_queues.setdefault(key, deque()).append(self._call_count)
        return call_id

    def _find_oldest_open(self, *keys: tuple[str, str, bool]) -> int | None:
        heads = []
        for queue in filter(None, map(self._open_queues.get, keys)):
            while queue and queue[0] not in self._open:
                queue.popleft()
            heads += [queue[0]] if queue else []
        return min(heads, default=None)

    def match_result(self, name: str, given_id: str = "") -> str:
        """Return the id of the call that a result answers.

        A call with the result's own id comes first, then the oldest open call with the result's name. If the result has
        an id, that call must have none (Gemini CLI gives ids only to responses). An empty name matches any call. If no
        call matches, the method returns the result's id or a new one.
        """
        call_number = self._find_oldest_open(("id", given_id, True)) if given_id else None
        if call_number is None:
            call_number = self._find_oldest_open(("name", name, False), *([] if given_id else [("name", name, True)]))
        if call_number is not None:
            return self._open.pop(call_number)
        call_id = given_id or self._make_id(name)
        self._taken.add(call_id)
        return call_id

    def _make_id(self, name: str) -> str:
        """Build an id of at most 40 letters, digits, `_` and `-`, as OpenAI and Anthropic require."""
        stem = _UNSAFE_ID_CHARS.sub("_", name)[:32] or "call"
        while True:
            self._counts[stem] = count = self._counts.get(stem, 0) + 1
            if f"{stem}-{count}" not in self._taken:
                return f"{stem}-{count}"
