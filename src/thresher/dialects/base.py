"""A dialect: an API's message format with everything that is specific to it."""

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

from msgspec import Struct

from thresher.dialects.layout import ArrangeRows, arrange_by_role
from thresher.dialects.rules.rule import LegalityRule
from thresher.model import History, Problem
from thresher.model.message import Usage


class Emission(Struct, frozen=True):
    """A history in a dialect, and what that dialect could not hold."""

    value: Any
    losses: tuple[Problem, ...] = ()


class TokenFrame(NamedTuple):
    """Tokens around the texts that no text shows: roles, tags, ids."""

    message: int = 4
    call: int = 12
    result: int = 10
    tools: int = 0
    """Added once where any tool is offered."""
    factor: float = 1.0
    """The vendor's tokens for each token of o200k, where no model is named."""


class Dialect(Struct, frozen=True):
    """One API's way of writing a conversation.

    `name`, `title`, `parse`, `emit` and `sniff` make a codec; all other fields have a default that suits an API of
    messages with roles and blocks.
    """

    name: str
    title: str
    parse: Callable[[Any], History]
    emit: Callable[[History, bool | None], Emission]
    sniff: Callable[[Any], int]
    """Certainty that a value is in this dialect: 0 no, 1 possibly, 2 likely, 3 certainly."""
    messages_field: str = "messages"
    """The field of a request body that holds the messages, one row each."""
    kind: Literal["wire"] = "wire"
    arrange: ArrangeRows = arrange_by_role
    """Arrange a history in the rows that the codec writes, without writing them."""
    rules: tuple[LegalityRule, ...] = ()
    """What the API requires, each with its repair."""
    vendor: str = ""
    """The only vendor whose models speak it, as in the model catalog; empty: many do."""
    model_name_part: str = ""
    """In the names of the vendor's models, for those that the catalog does not know."""
    prompt_fields: frozenset[str] = frozenset({"system", "tools"})
    """Fields of a body that come before the messages in the prompt."""
    server_history_fields: tuple[str, ...] = ()
    """Fields of a body that name a history on the server."""
    takes_text: bool = False
    """Whether a plain text, or one object, may be in the place of the messages."""
    read_usage: Callable[[Mapping[str, Any]], Usage | None] | None = None
    """Read the usage object of a response; None if it is another dialect's."""
    place_cache_breakpoints: Callable[..., Any] | None = None
    """Mark where the API shall cache a prefix; None: it caches by itself."""
    request_thinking_drop: Callable[[Any], dict[str, Any] | None] | None = None
    """Ask the API to drop thinking that an edit made invalid; None: it cannot."""
    token_frame: TokenFrame | None = None
    """Measured on recorded usage; None: the smallest known."""
    links_steps: bool = False
    """Whether a rule ties a step to others than its neighbors."""
    has_item_ids: bool = False
    """Whether messages and parts have ids of their own, each unique."""
    reasoning_needs_next_item: bool = False
    """Whether reasoning is refused without the item behind it."""
    merges_same_role: bool = False
    """Whether two messages of one role must be one when nothing is left between them."""
    one_result_per_message: bool = False
