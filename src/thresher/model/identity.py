"""Identify parts by content and by occurrence.

A content id is a hash of the part's canonical form, tagged with the version of that form. Equal content has the same id
in every dialect. Vendor extras, cache breakpoints and call ids are not hashed, so two reads of a file that returned the
same text have equal ids. A third of real tool results repeat another result's content, so an edit targets an
occurrence: the content id and the number of equal parts before it.
"""

from collections.abc import Iterable, Iterator
from functools import cache
from typing import TYPE_CHECKING, NamedTuple, assert_never

from thresher.model.jsontext import canonical_json, load_json
from thresher.model.message import Message
from thresher.model.message_cache import cached_per_message
from thresher.model.parts import Image, Part, Summary, Text, Thinking, ToolCall, ToolResult, Unknown

if TYPE_CHECKING:
    from hashlib import blake2b

ID_VERSION = "t1"
"""Version of the canonical form; changing the form requires a new tag."""


class Occurrence(NamedTuple):
    """One part among equal parts: its content id, and the number of equal parts before it."""

    content: str
    ordinal: int


def content_id(part: Part) -> str:
    """Return the hash of a part's content."""
    return hash_strings(_canonical_strings(part))


def hash_strings(strings: Iterable[str]) -> str:
    """Hash strings to an id. Each length is hashed, too, so that `("ab", "c")` and `("a", "bc")` differ."""
    digest = _blake2b()(digest_size=16)
    for text in strings:
        data = text.encode("utf-8", "surrogatepass")
        digest.update(b"%d:" % len(data))
        digest.update(data)
    return f"{ID_VERSION}:{digest.hexdigest()}"


@cache
def _blake2b() -> "type[blake2b]":
    from hashlib import blake2b  # noqa: PLC0415 - loads OpenSSL, and most readers never hash

    return blake2b


@cached_per_message
def content_ids(message: Message) -> tuple[str, ...]:
    """Return the content ids of a message's parts."""
    return tuple([content_id(part) for part in message.parts])


def iterate_occurrences(messages: Iterable[Message]) -> Iterator[Occurrence]:
    """Yield one occurrence per part of each message, in order."""
    seen: dict[str, int] = {}
    for message in messages:
        for content in content_ids(message):
            ordinal = seen.get(content, 0)
            seen[content] = ordinal + 1
            yield Occurrence(content, ordinal)


def _canonical_strings(part: Part) -> Iterator[str]:
    match part:
        case Text():
            yield from ("text", part.text)
        case Thinking():
            yield from ("thinking", part.text, part.signature)
        case ToolCall():
            yield from ("call", part.name, canonicalize_json(part.arguments))
        case ToolResult():
            yield from ("result", "error" if part.is_error else "ok")
            for inner in part.content:
                yield from _canonical_strings(inner)
        case Image():
            yield from ("image", part.media_type, part.data, part.url)
        case Summary():
            yield from ("summary", part.text)
        case Unknown():
            yield from ("unknown", part.kind, canonicalize_json(part.data))
        case _:
            assert_never(part)


def canonicalize_json(text: str) -> str:
    """Return JSON text in canonical form, and any other text unchanged."""
    try:
        return canonical_json(load_json(text))
    except (ValueError, RecursionError):
        return text
