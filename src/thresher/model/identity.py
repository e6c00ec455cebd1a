"""What a part is, and which one.

A content id is a hash of one canonical form, tagged with the version of that form: the same words give the same
id in every dialect. Pockets, cache marks and the ids that pair calls with results stay outside, so two reads of
one file that returned the same text are the same content. Since a third of real tool results repeat another's
content, an edit aims at an occurrence: the content id and how many equal ones came before.
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
"""The version of the canonical form; a change of form changes the tag."""


class Occurrence(NamedTuple):
    """One of possibly many equal parts."""

    content: str
    ordinal: int


def content_id(part: Part) -> str:
    """The id of what a part says."""
    digest = _blake2b()(digest_size=16)
    for piece in _canonical_strings(part):
        data = piece.encode("utf-8", "surrogatepass")
        digest.update(b"%d:" % len(data))
        digest.update(data)
    return f"{ID_VERSION}:{digest.hexdigest()}"


@cache
def _blake2b() -> "type[blake2b]":
    from hashlib import blake2b  # noqa: PLC0415 - brings OpenSSL along, and most readers never hash

    return blake2b


@cached_per_message
def content_ids(message: Message) -> tuple[str, ...]:
    """The content ids of a message's parts."""
    return tuple([content_id(part) for part in message.parts])


def iterate_occurrences(messages: Iterable[Message]) -> Iterator[Occurrence]:
    """One occurrence for each part of each message, in order."""
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
            yield from ("call", part.name, _canonical_arguments(part.arguments))
        case ToolResult():
            yield from ("result", "error" if part.is_error else "ok")
            for inner in part.content:
                yield from _canonical_strings(inner)
        case Image():
            yield from ("image", part.media_type, part.data, part.url)
        case Summary():
            yield from ("summary", part.text)
        case Unknown():
            yield from ("unknown", part.kind, _canonical_arguments(part.data))
        case _:
            assert_never(part)


def _canonical_arguments(text: str) -> str:
    try:
        return canonical_json(load_json(text))
    except (ValueError, RecursionError):
        return text
