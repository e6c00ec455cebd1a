"""Cache a computed value per message, for the lifetime of the message.

A history that grows keeps its old message objects, so each message is hashed, counted and parsed once.
Messages are frozen, so a cached value stays valid. The key is the object's identity, because comparing two messages
by value would read all their parts.
"""

from collections.abc import Callable
from functools import update_wrapper
from typing import Generic, TypeVar
from weakref import KeyedRef

from thresher.model.message import Message

T = TypeVar("T")


class cached_per_message(Generic[T]):
    """Decorator that caches a function of one message, so that the function runs once per message."""

    def __init__(self, function: Callable[[Message], T]) -> None:
        """Cache the results of `function`."""
        self._function = function
        self._cache: dict[int, tuple[KeyedRef[int, Message], T]] = {}
        update_wrapper(self, function)

    def __call__(self, message: Message) -> T:
        """Return the cached value, or compute it."""
        cached = self._cache.get(id(message))
        if cached is not None:
            return cached[1]
        value = self._function(message)
        self._cache[id(message)] = (KeyedRef(message, self._evict, id(message)), value)
        return value

    def _evict(self, reference: "KeyedRef[int, Message]") -> None:
        self._cache.pop(reference.key, None)
