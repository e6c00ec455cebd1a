"""Compute fingerprints of messages, to recognize repeated messages."""

import re
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import NamedTuple

from msgspec.structs import replace

from thresher.model import Message, Role, SourceLocation
from thresher.model.parts import Image, Part, Summary, Text, Thinking, ToolCall, ToolResult

SYSTEM_PROMPT_PREFIX_CHARS = 200
"""Number of characters at the start of a system prompt that the fingerprint includes."""
_DIGITS = re.compile(r"\d+")


class MarkedMessage(NamedTuple):
    """An input or output message with its fingerprints."""

    messages: tuple[Message, ...]
    """The message itself, or the messages of an answer that a later input repeats in this form.

    Empty if earlier entries already hold the whole answer.
    """
    role: Role
    fingerprint: int
    """Hash of role and content."""
    text_fingerprint: int
    """Hash of the content only. Two logs of the same message can differ in the role."""


def fingerprint_message(message: Message) -> MarkedMessage:
    """Return a message with its fingerprints."""
    text_fingerprint = hash(
        _DIGITS.sub("", message.text[:SYSTEM_PROMPT_PREFIX_CHARS])
        if message.role == "system"
        else tuple(fingerprint_parts(message.parts))
    )
    return MarkedMessage((message,), message.role, hash((message.role, text_fingerprint)), text_fingerprint)


def fingerprint_parts(parts: Iterable[Part]) -> Iterator[tuple[str, str]]:
    """Yield the identifying fields of a message's parts.

    Thinking is excluded, since some models never receive it again. Ids of results are excluded, since files often omit
    them.
    """
    for part in parts:
        match part:
            case Text() | Summary():
                if text := part.text.strip():
                    yield "text", text
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


def make_summary_message(message: Message, id_: str, location: SourceLocation, time: datetime | None) -> Message:
    """Convert a message that an agent wrote during a compaction to a summary.

    System messages, tool messages and messages without text keep their parts.
    """
    located = replace(message, id=id_, source=location, time=time)
    if message.role not in ("user", "assistant") or not message.text:
        return located
    return replace(located, role="user", parts=(Summary(message.text),), author="harness")
