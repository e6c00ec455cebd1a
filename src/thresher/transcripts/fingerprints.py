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
    """The original messages that the fingerprints identify: usually one.

    A later input can repeat an answer in another form. The entries of this form have the fingerprints of the later
    messages, and this field has the messages of the original answer. It is empty if the entries before this one already
    have all messages of the answer.
    """
    role: Role
    fingerprint: int
    """Hash of role and content."""
    text_fingerprint: int
    """Hash of the content only, since two logs of the same message can have different roles."""


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

    Thinking is excluded, since some harnesses do not send it again. Ids of results are excluded, since many files have
    no such ids.
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
    """Turn a message that a compaction added into a summary with the given id, location and time.

    System messages, tool messages and messages without text keep their parts.
    """
    located = replace(message, id=id_, source=location, time=time)
    if message.role not in ("user", "assistant") or not message.text:
        return located
    return replace(located, role="user", parts=(Summary(message.text),), author="harness")
