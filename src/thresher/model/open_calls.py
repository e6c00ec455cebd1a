"""Pair tool calls with results: the one rule that every package follows.

By id, never by position. Where an id repeats (some models count `call_0`, `call_1` again in every turn), a result
answers the latest open call of its id, as every API looks at the turn before it; where one message holds several open
calls of that id, it answers the first of them.
"""

from typing import Generic, NamedTuple, TypeVar

CallT = TypeVar("CallT")


class _OpenCall(NamedTuple, Generic[CallT]):
    message: int
    call: CallT


class OpenCalls(Generic[CallT]):
    """Calls that wait for a result, by id."""

    def __init__(self) -> None:
        """Start with none."""
        self._calls: dict[str, list[_OpenCall[CallT]]] = {}

    def add(self, call_id: str, message: int, call: CallT) -> None:
        """Add a call of a message."""
        self._calls.setdefault(call_id, []).append(_OpenCall(message, call))

    def answer(self, call_id: str) -> CallT | None:
        """Take the call that a result with this id answers; None if no call of that id is open."""
        waiting = self._calls.get(call_id)
        if not waiting:
            return None
        first = len(waiting) - 1
        while first and waiting[first - 1].message == waiting[-1].message:
            first -= 1
        return waiting.pop(first).call

    def was_called(self, call_id: str) -> bool:
        """Whether any call, open or answered, has this id."""
        return call_id in self._calls
