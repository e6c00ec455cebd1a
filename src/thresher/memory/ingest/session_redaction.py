"""Redact all texts of a session, its names and its folder, and drop vendor fields that contain secrets."""

from itertools import islice, zip_longest
from typing import NamedTuple, assert_never, cast

from msgspec import structs

from thresher.memory.ingest.redaction import redact
from thresher.model import (
    History,
    Image,
    Message,
    Part,
    ResultPart,
    Session,
    Summary,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Unknown,
    VendorExtras,
)


class RedactedSession(NamedTuple):
    """A session before and after redaction."""

    original: Session
    redacted: Session


def redact_session(session: Session, before: RedactedSession | None = None) -> Session:
    """Redact a session, and drop vendor fields that contain secrets.

    Messages that are unchanged since `before` keep their redacted objects, so that cached values stay valid.
    """
    known_pairs = [*zip(before.original.segments, before.redacted.segments, strict=True)] if before else []
    pairs = [*known_pairs, *((History(), History()),) * (len(session.segments) - len(known_pairs))]
    return structs.replace(
        session,
        id=redact(session.id),
        project=redact(session.project),
        git_branch=redact(session.git_branch),
        title=redact(session.title),
        segments=tuple(map(_history, session.segments, pairs)),
        branches=tuple(structs.replace(branch, history=_history(branch.history)) for branch in session.branches),
        children=tuple(map(redact_session, session.children)),
    )


def _history(history: History, before: tuple[History, History] = (History(), History())) -> History:
    tools = history.tools if redact(history.tools) == history.tools else ""
    known_pairs = zip(*before, strict=True)
    pairs = zip_longest(history.messages, islice(known_pairs, len(history)))
    messages = tuple(pair[1] if pair and pair[0] == message else _message(message) for message, pair in pairs)
    return History(messages, tools, _redact_extras(history.pocket))


def _message(message: Message) -> Message:
    parts = tuple(map(_part, message.parts))
    return structs.replace(message, parts=parts, records=(), pocket=_redact_extras(message.pocket))


def _redact_extras(pocket: VendorExtras | None) -> VendorExtras | None:
    """Return vendor fields, or None if they contain a secret, since redacted fields cannot be emitted."""
    return pocket if pocket is None or redact(pocket.fields) == pocket.fields else None


def _part(part: Part) -> Part:
    pocket = _redact_extras(part.pocket)
    match part:
        case Text() | Summary():
            return structs.replace(part, text=redact(part.text), pocket=pocket)
        case Thinking():
            text = redact(part.text)
            # A signature is valid for the original text only.
            return Thinking(text, part.signature if text == part.text else "", pocket)
        case ToolCall():
            return structs.replace(part, name=redact(part.name), arguments=redact(part.arguments), pocket=pocket)
        case ToolResult():
            content = cast("tuple[ResultPart, ...]", tuple(map(_part, part.content)))
            return structs.replace(part, name=redact(part.name), content=content, pocket=pocket)
        case Image():
            return structs.replace(part, url=redact(part.url), pocket=pocket)
        case Unknown():
            data = redact(part.data)
            # A dialect could not decode redacted data, so it becomes a text.
            return structs.replace(part, pocket=pocket) if data == part.data else Text(data)
        case _:
            assert_never(part)
