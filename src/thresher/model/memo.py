"""Remember what was worked out for a message, for as long as the message lives.

A growing history shares its old messages with the one before, so their words are hashed, weighed and looked into
once. Messages are frozen, so what was true of one stays true; the key is the object, since equality would read it all.
"""

from collections.abc import Callable
from functools import update_wrapper
from typing import Generic, TypeVar
from weakref import ref

from thresher.model.message import Message

T = TypeVar("T")


class per_message(Generic[T]):
    """A function of one message that is called once for each."""

    def __init__(self, function: Callable[[Message], T]) -> None:
        """Remember the results of `function`."""
        self._function = function
        self._known: dict[int, tuple[ref[Message], T]] = {}
        update_wrapper(self, function)

    def __call__(self, message: Message) -> T:
        """What is known of the message, or is worked out now."""
        key = id(message)
        known = self._known.get(key)
        if known is not None:
            return known[1]
        value = self._function(message)
        forget = self._known.pop
        self._known[key] = (ref(message, lambda _: forget(key, None)), value)
        return value
