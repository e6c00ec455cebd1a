"""A wire format's row in the table, and what writing in one gives."""

from collections.abc import Callable
from typing import Any, Literal

from msgspec import Struct

from thresher.model import History, Problem


class Emission(Struct, frozen=True):
    """A history in a wire format, and what that format could not hold."""

    value: Any
    losses: tuple[Problem, ...] = ()


class Dialect(Struct, frozen=True):
    """One wire API's way of writing a conversation."""

    name: str
    title: str
    parse: Callable[[Any], History]
    emit: Callable[[History, bool | None], Emission]
    sniff: Callable[[Any], int]
    """How sure it is that a value is in this format: 0 no, 1 could be, 2 likely, 3 certain."""
    messages_field: str = "messages"
    """The field of a request body that holds the messages, one row each."""
    kind: Literal["wire"] = "wire"
