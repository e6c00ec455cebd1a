"""Fingerprint messages to recognize repeated ones."""

import re
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import NamedTuple

from msgspec.structs import replace

from thresher.model import Message, Role, SourceLocation
from thresher.model.parts import Image, Part, Summary, Text, Thinking, ToolCall, ToolResult

SYSTEM_PROMPT_PREFIX_CHARS = 200
"""Characters of a system prompt that its fingerprint includes."""
_DIGITS = re.compile(r"\d+")


class MarkedMessage(NamedTuple):
    """An input or output message with its fingerprints."""

    messages: tuple[Message, ...]
    """The message itself; or the part of a model's answer that a later input repeats as this message.

    Empty if an earlier message already holds the whole answer.
    """
    role: Role
    fingerprint: int
    """Hash of role and content."""
    text_fingerprint: int
    """Hash of the content only, since the role of the same message can differ."""


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

    Thinking is excluded, since some models never receive it again. So are ids of results, which are often missing.
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
    """Return a message that an agent wrote during a compaction; its text becomes a summary."""
    located = replace(message, id=id_, source=location, time=time)
    if message.role not in ("user", "assistant") or not message.text:
        return located
    return replace(located, role="user", parts=(Summary(message.text),), author="harness")
