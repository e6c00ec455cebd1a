"""A dialect: an API's message format and everything that depends on it."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from msgspec import Struct

from thresher.dialects.http_api import HttpApi
from thresher.dialects.layout import ArrangeRows, arrange_by_role
from thresher.model import History, Message, Problem
from thresher.model.message import Usage

if TYPE_CHECKING:
    from thresher.dialects.rules.rule import LegalityRule


class Emission(Struct, frozen=True):
    """Output of a dialect, and the content that the dialect cannot represent."""

    value: Any
    losses: tuple[Problem, ...] = ()


class TokenFrame(NamedTuple):
    """Tokens that an API adds to the text of each message, call and result: roles, tags, ids."""

    message: int = 4
    call: int = 12
    result: int = 10
    tools: int = 0
    """Tokens that tools add once to a request."""
    factor: float = 1.0
    """Ratio of this API's tokens to o200k tokens, used if no model is named."""


class Dialect(Struct, frozen=True):
    """One API's message format.

    `name`, `title`, `parse`, `emit` and `sniff` are required. The defaults of the other fields fit an API whose
    messages have roles and blocks.
    """

    name: str
    title: str
    parse: Callable[[Any], History]
    emit: Callable[[History, bool | None], Emission]
    sniff: Callable[[Any], int]
    """Function that scores a value for this dialect: 0 no match, 1 possible, 2 likely, 3 certain."""
    messages_field: str = "messages"
    """Field of a request body that holds the messages, one row each."""
    kind: Literal["wire"] = "wire"
    arrange: ArrangeRows = arrange_by_role
    """Function that arranges a history in the rows that `emit` would produce, without encoding them."""
    roles: frozenset[str] = frozenset()
    """Roles that `parse` knows. Another role is read as `user` and reported; empty: roles are not checked."""
    rules: "tuple[LegalityRule, ...]" = ()
    """Requirements of the API, each with its repair."""
    vendor: str = ""
    """Vendor in the model catalog whose models use this dialect; empty if several vendors share it."""
    model_name_part: str = ""
    """Substring of the vendor's model names, for models that the catalog lacks."""
    prompt_fields: frozenset[str] = frozenset({"system", "tools"})
    """Fields of a body that precede the messages in the prompt."""
    server_history_fields: tuple[str, ...] = ()
    """Fields of a body that refer to a history on the server."""
    takes_text: bool = False
    """True if a plain string or a single object can replace the list of messages."""
    read_usage: Callable[[Mapping[str, Any]], Usage | None] | None = None
    """Function that parses the usage object of a response, and returns None for an object of another dialect."""
    place_cache_breakpoints: Callable[..., Any] | None = None
    """Function that adds cache breakpoints; None if the API caches automatically."""
    request_thinking_drop: Callable[[Any], dict[str, Any] | None] | None = None
    """Function that makes the API drop thinking that an edit invalidated; None if the API cannot."""
    settle_messages: Callable[[Sequence[Message]], Sequence[Message]] | None = None
    """Function that moves or re-roles system messages whose neighbors an edit removed; None if the API takes them
    anywhere."""
    http_api: HttpApi | None = None
    """Addresses, paths and errors over HTTP; None if the proxy cannot serve this dialect."""
    token_frame: TokenFrame | None = None
    """Token overhead, measured on recorded usage; None means that the smallest known overhead is used."""
    links_steps: bool = False
    """True if a rule compares steps of a turn that are not adjacent."""
    has_item_ids: bool = False
    """True if messages and parts have item ids, which must be unique in a request."""
    reasoning_needs_next_item: bool = False
    """True if the API rejects reasoning without the item that followed it."""
    merges_same_role: bool = False
    """True if adjacent messages of one role must be merged after an edit."""
    one_result_per_message: bool = False
    """True if each tool result is a message of its own."""
