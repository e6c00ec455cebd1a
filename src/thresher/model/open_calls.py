"""Match tool results with calls: the one rule that every package follows.

A result matches by id, never by position. Some models reuse ids (`call_0`, `call_1` in every turn): then a result
answers the latest open call with its id, because every API matches against the previous turn. If one message holds
several open calls with that id, the result answers the first of them.
"""

from typing import Generic, NamedTuple, TypeVar

CallT = TypeVar("CallT")


class _OpenCall(NamedTuple, Generic[CallT]):
    message: int
    call: CallT


class OpenCalls(Generic[CallT]):
    """The calls that no result has answered yet, by id."""

    def __init__(self) -> None:
        """Start without calls."""
        self._calls: dict[str, list[_OpenCall[CallT]]] = {}

    def add(self, call_id: str, message: int, call: CallT) -> None:
        """Add a call of a message."""
        self._calls.setdefault(call_id, []).append(_OpenCall(message, call))

    def answer(self, call_id: str) -> CallT | None:
        """Remove and return the call that a result answers; None if no call with this id is open."""
        waiting = self._calls.get(call_id)
        if not waiting:
            return None
        first = len(waiting) - 1
        while first and waiting[first - 1].message == waiting[-1].message:
            first -= 1
        return waiting.pop(first).call

    def was_called(self, call_id: str) -> bool:
        """Return whether any call, open or answered, has this id."""
        return call_id in self._calls
