"""Count the tokens of parts, messages and histories for one model.

A part's tokens depend only on its content, not on its neighbors or ids, so they are cached by content id: a growing
history costs only its new parts. Text tokens are scaled by `factor` (Claude counts more tokens than o200k) and rounded
up. Roles, tags and ids add a small constant each. Arguments are counted in canonical form, so equal content has equal
tokens.

Thinking counts as its signature or its visible text, whichever is larger. Newer models show a summary, but
vendors bill the whole thinking, which the signature carries in encrypted form. Thinking is never counted twice.
"""

from functools import cache
from typing import assert_never
from weakref import ref

from thresher.dialects.base import TokenFrame
from thresher.dialects.intake import Messages, read_history
from thresher.dialects.table import find_vendor_dialect, get_native_dialect
from thresher.model import History, Message
from thresher.model.identity import canonicalize_json, content_id, content_ids
from thresher.model.jsontext import load_json
from thresher.model.parts import Image, Part, Summary, Text, Thinking, ToolCall, ToolResult, Unknown
from thresher.tokens.counter import TokenCounter
from thresher.tokens.counter import get_counter as counter_named
from thresher.tokens.media import media_tokens
from thresher.tokens.model_catalog import find_model

SIGNATURE_HEADER_LENGTH = 240
"""Characters of a signature's header."""
SIGNATURE_CHARACTERS_PER_TOKEN = 5.4
"""Characters per token of encrypted thinking, fitted to recorded usage and signatures of Claude."""
MAX_CACHED_WEIGHTS = 500_000
"""Number of cached counts before the cache is cleared; about 80 MB."""


class TokenWeights:
    """Counts tokens with one counter for one family of models, and caches the counts."""

    __slots__ = ("_frame", "_message_cache", "_thousandths", "_weight_cache", "counter", "factor", "media", "vendor")

    def __init__(self, counter: TokenCounter, *, factor: float = 1.0, vendor: str = "", media: str = "") -> None:
        self.counter = counter
        self.factor = factor
        self.vendor = vendor
        self.media = media or vendor
        # An integer, so that ten tokens times a factor of 1.1 are exactly eleven.
        self._thousandths = round(factor * 1000)
        self._frame = _vendor_frame(vendor)
        self._weight_cache: dict[str, int] = {}
        self._message_cache: dict[int, tuple[ref[Message], tuple[int, ...], int]] = {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TokenWeights) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        return (
            f"TokenWeights({self.counter.name!r}, factor={self.factor}, vendor={self.vendor!r}, media={self.media!r})"
        )

    def _key(self) -> tuple[str, int, str, str]:
        return self.counter.name, self._thousandths, self.vendor, self.media

    @property
    def name(self) -> str:
        """Short name of the counter and factor."""
        return self.counter.name if self.factor == 1 else f"{self.counter.name} × {self.factor:g}"

    @property
    def message_overhead(self) -> int:
        """Tokens around each message."""
        return self._frame.message

    def text(self, text: str) -> int:
        """Return the tokens of a text."""
        return self._apply_factor(self.counter(text))

    def part(self, part: Part) -> int:
        """Return the tokens of a part."""
        return self._cached_weight(content_id(part), part)

    def parts(self, message: Message) -> tuple[int, ...]:
        """Return the tokens of each part of a message."""
        known = self._message_cache.get(id(message))
        return known[1] if known is not None else self._weigh_message(message)[1]

    def message(self, message: Message) -> int:
        """Return the tokens of a message, including its overhead."""
        known = self._message_cache.get(id(message))
        return known[2] if known is not None else self._weigh_message(message)[2]

    def tools(self, text: str) -> int:
        """Return the tokens of the tool definitions, including the vendor's fixed overhead for tools."""
        return self.text(text) + self._frame.tools if text else 0

    def history(self, history: History) -> int:
        """Return the tokens of a whole prompt."""
        return self.tools(history.tools) + sum(map(self.message, history.messages))

    def _weigh_message(self, message: Message) -> tuple[ref[Message], tuple[int, ...], int]:
        key = id(message)
        ids = content_ids(message)
        weights = tuple([self._cached_weight(content, part) for content, part in zip(ids, message.parts, strict=True)])
        cache = self._message_cache
        entry = (ref(message, lambda _: cache.pop(key, None)), weights, self._frame.message + sum(weights))
        cache[key] = entry
        return entry

    def _cached_weight(self, content: str, part: Part) -> int:
        weight = self._weight_cache.get(content)
        if weight is None:
            if len(self._weight_cache) >= MAX_CACHED_WEIGHTS:
                self._weight_cache.clear()
            weight = self._weight_cache[content] = self._weigh_part(part)
        return weight

    def _weigh_part(self, part: Part) -> int:
        match part:
            case Text() | Summary():
                return self.text(part.text)
            case Thinking():
                hidden = (len(part.signature) - SIGNATURE_HEADER_LENGTH) / SIGNATURE_CHARACTERS_PER_TOKEN
                return self._apply_factor(max(self.counter(part.text), round(hidden)))
            case ToolCall():
                return self._frame.call + self._apply_factor(
                    self.counter(part.name) + self.counter(canonicalize_json(part.arguments))
                )
            case ToolResult():
                text_tokens = sum(
                    self.counter(_countable_text(item)) for item in part.content if not isinstance(item, Image)
                )
                media_total = sum(media_tokens(item, self.media) for item in part.content if isinstance(item, Image))
                return self._frame.result + self._apply_factor(text_tokens) + media_total
            case Image():
                return media_tokens(part, self.media)
            case Unknown():
                return self.text(canonicalize_json(part.data))
            case _:
                assert_never(part)

    def _apply_factor(self, tokens: int) -> int:
        return -(-tokens * self._thousandths // 1000)


def _countable_text(item: Text | Unknown) -> str:
    return item.text if isinstance(item, Text) else canonicalize_json(item.data)


def default_token_weights(model: str = "", counter: str = "auto") -> TokenWeights:
    """Return the cached weights of a model in the catalog; for an unknown model, the weights of o200k."""
    return _cached_token_weights(model, counter)


@cache
def _cached_token_weights(model: str, counter: str) -> TokenWeights:
    known = find_model(model) if model else None
    if known is None:
        return TokenWeights(counter_named(counter))
    return TokenWeights(counter_named(counter), factor=known.factor, vendor=known.vendor, media=known.media)


def token_weights_for(history: History, *, model: str = "", counter: str = "auto") -> TokenWeights:
    """Return the weights for `model`, else for the model that the history names, else for the history's dialect."""
    name = model or find_model_name(history)
    if name and find_model(name) is not None:
        return default_token_weights(name, counter)
    pockets = (history.pocket, *(message.pocket for message in history.messages))
    dialect = next((pocket.format for pocket in pockets if pocket is not None), "")
    return _dialect_token_weights(dialect, counter)


@cache
def _dialect_token_weights(dialect: str, counter: str) -> TokenWeights:
    native = get_native_dialect(dialect)
    if native is None or native.token_frame is None:
        return default_token_weights("", counter)
    return TokenWeights(counter_named(counter), factor=native.token_frame.factor, vendor=native.vendor)


def _vendor_frame(vendor: str) -> TokenFrame:
    """Return the token overhead of a vendor's models; for an unknown vendor, the default overhead."""
    frame = find_vendor_dialect(vendor).token_frame if vendor else None
    return TokenFrame() if frame is None else frame


def find_model_name(history: History) -> str:
    """Return the model that the history was recorded with, or an empty string."""
    pocket = history.pocket
    if pocket is not None and '"model"' in pocket.fields:
        named = load_json(pocket.fields).get("model")
        if isinstance(named, str):
            return named
    return next((message.model for message in reversed(history.messages) if message.model), "")


def count(messages: Messages, *, model: str = "", counter: str = "auto") -> int:
    """Count the tokens of a conversation and its tool definitions; `model` overrides the conversation's own model."""
    history = read_history(messages)
    return token_weights_for(history, model=model, counter=counter).history(history)


def estimate_part_tokens(part: Part) -> int:
    """Estimate the tokens of a part, without the exact tokenizer."""
    return default_token_weights(counter="estimate").part(part)
