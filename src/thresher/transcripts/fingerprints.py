"""Fingerprint messages, so that repeated ones are recognized."""

import re
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import NamedTuple

from msgspec.structs import replace

from thresher.model import Message, Role, SourceLocation
from thresher.model.parts import Image, Part, Summary, Text, Thinking, ToolCall, ToolResult

SYSTEM_PROMPT_PREFIX_CHARS = 200
"""Characters by which a system's prompt is known."""
_DIGITS = re.compile(r"\d+")


class MarkedMessage(NamedTuple):
    """A message as it was given, and what it is known by."""

    messages: tuple[Message, ...]
    """Itself; or what a model answered and was given back as this; none where that stands with the one before."""
    role: Role
    fingerprint: int
    """By role and words."""
    text_fingerprint: int
    """By words alone: a role may be told in another way."""


def fingerprint_message(message: Message) -> MarkedMessage:
    """A message with its marks."""
    words = hash(
        _DIGITS.sub("", message.text[:SYSTEM_PROMPT_PREFIX_CHARS])
        if message.role == "system"
        else tuple(fingerprint_parts(message.parts))
    )
    return MarkedMessage((message,), message.role, hash((message.role, words)), words)


def fingerprint_parts(parts: Iterable[Part]) -> Iterator[tuple[str, str]]:
    """What a message is known by: thinking is not given back to every model, ids of results are often missing."""
    for part in parts:
        match part:
            case Text() | Summary():
                if words := part.text.strip():
                    yield "text", words
            case ToolCall():
                yield "call", part.id or f"{part.name} {part.arguments}"
            case ToolResult():
                yield "result", part.text.strip()
            case Image():
                yield "image", part.data or part.url
            case Thinking():
                pass
            case _:
                yield "other", part.data


def make_summary_message(message: Message, id_: str, place: SourceLocation, time: datetime | None) -> Message:
    """Build the message of a summary that an agent wrote."""
    told = replace(message, id=id_, source=place, time=time)
    if message.role not in ("user", "assistant") or not message.text:
        return told
    return replace(told, role="user", parts=(Summary(message.text),), author="harness")
