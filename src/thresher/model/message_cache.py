"""Remember what was worked out for a message, for as long as it lives.

A growing history shares its old messages with the one before, so their words are hashed, weighed and looked into
once. Messages are frozen, so what was true of one stays true; the key is the object, since equality would read it all.
"""

from collections.abc import Callable
from functools import update_wrapper
from typing import Generic, TypeVar
from weakref import KeyedRef

from thresher.model.message import Message

T = TypeVar("T")


class cached_per_message(Generic[T]):
    """A function of one message that is called once for each."""

    def __init__(self, function: Callable[[Message], T]) -> None:
        """Remember the results of `function`."""
        self._function = function
        self._cache: dict[int, tuple[KeyedRef[int, Message], T]] = {}
        update_wrapper(self, function)

    def __call__(self, message: Message) -> T:
        """What is known of the message, or is worked out now."""
        known = self._cache.get(id(message))
        if known is not None:
            return known[1]
        value = self._function(message)
        self._cache[id(message)] = (KeyedRef(message, self._evict, id(message)), value)
        return value

    def _evict(self, gone: "KeyedRef[int, Message]") -> None:
        self._cache.pop(gone.key, None)
