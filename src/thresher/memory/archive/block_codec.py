"""A session as rows of bytes and back: its messages in blocks, and beside them the shape that joins them again.

Messages lie in one row: all segments one after the other, what a compaction repeats too, then the ways that were
taken back from. The lines that a message was made of stay out: they are the same words once more. Bodies are
MessagePack; one with half a character in it, which MessagePack cannot hold, is JSON.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from itertools import islice
from typing import Any

import msgspec
from msgspec import Struct, structs

from thresher.memory.records import ArchivedSession
from thresher.model import AbandonedBranch, History, Message, Problem, Session
from thresher.model.parts import VendorExtras, part_text
from thresher.transcripts.source import import_zstd

_encode = msgspec.msgpack.Encoder().encode
_decode: Callable[[bytes], list[Message]] = msgspec.msgpack.Decoder(list[Message]).decode
_decode_raw: Callable[[bytes], list[msgspec.Raw]] = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode
_decode_one: Callable[[bytes | msgspec.Raw], Message] = msgspec.msgpack.Decoder(Message).decode
_JSON_ARRAY = b"["


class HistoryLayout(Struct, frozen=True, omit_defaults=True):
    """A history without its messages."""

    count: int
    tools: str = ""
    pocket: VendorExtras | None = None
    after: str = ""


class SessionLayout(Struct, frozen=True, omit_defaults=True):
    """What a session is beside its messages and its facts."""

    segments: tuple[HistoryLayout, ...] = ()
    branches: tuple[HistoryLayout, ...] = ()
    problems: tuple[Problem, ...] = ()
    spilled: dict[str, str] = {}
    records: dict[str, int] = {}


def flatten_messages(session: Session) -> list[Message]:
    """All messages in the order they are kept in."""
    histories = [*session.segments, *(branch.history for branch in session.branches)]
    bare = structs.replace
    return [bare(message, records=()) if message.records else message for history in histories for message in history]


def text_size(messages: Iterable[Message]) -> int:
    """Characters that were said, thought, asked of tools and given back."""
    return sum(len(part_text(part)) for message in messages for part in message.parts)


def encode_messages(messages: Sequence[Message]) -> bytes:
    """The bytes of some messages, not compressed yet."""
    return _encode_value(messages)


def decode_messages(data: bytes) -> list[Message]:
    """The messages of compressed bytes."""
    body = expand(data)
    if body.startswith(_JSON_ARRAY):
        return msgspec.convert(_load_json(body), list[Message])
    return _decode(body)


def decode_messages_lazily(data: bytes) -> Sequence[msgspec.Raw | Message]:
    """The messages of compressed bytes, without making them where that can wait: `decode_message` does."""
    body = expand(data)
    return decode_messages(data) if body.startswith(_JSON_ARRAY) else _decode_raw(body)


def decode_message(found: msgspec.Raw | Message) -> Message:
    """A message that `decode_messages_lazily` gave."""
    return found if isinstance(found, Message) else _decode_one(found)


def compress(body: bytes) -> bytes:
    """Smaller bytes."""
    return bytes(_zstd().compress(body))


def expand(data: bytes) -> bytes:
    """The bytes again."""
    return bytes(_zstd().decompress(data))


def encode_layout(session: Session) -> bytes:
    """What joins the messages again, as compressed bytes."""
    shape = SessionLayout(
        segments=tuple(HistoryLayout(len(history), history.tools, history.pocket) for history in session.segments),
        branches=tuple(
            HistoryLayout(len(branch.history), branch.history.tools, branch.history.pocket, branch.after_message_id)
            for branch in session.branches
        ),
        problems=session.problems,
        spilled=session.spilled,
        records=session.records,
    )
    return compress(_encode_value(shape))


def rebuild_session(
    facts: ArchivedSession, shape: bytes, messages: Iterable[Message], children: Iterable[Session]
) -> Session:
    """The session as it was read, all but the lines of its messages."""
    frames = _decode_layout(expand(shape))
    rest = iter(messages)
    segments = tuple(_history(frame, rest) for frame in frames.segments)
    return Session(
        agent=facts.agent,
        id=facts.id,
        file=facts.file,
        segments=segments,
        branches=tuple(AbandonedBranch(_history(frame, rest), frame.after) for frame in frames.branches),
        children=tuple(children),
        problems=frames.problems,
        spilled=frames.spilled,
        compactions=facts.compactions,
        records=frames.records,
        project=facts.project,
        git_branch=facts.branch,
        title=facts.title,
        version=facts.version,
        parent=facts.parent,
        call_id=facts.call,
        started=facts.started,
        ended=facts.ended,
    )


def _history(frame: HistoryLayout, messages: Iterable[Message]) -> History:
    return History(tuple(islice(messages, frame.count)), frame.tools, frame.pocket)


def _decode_layout(body: bytes) -> SessionLayout:
    if body.startswith(b"{"):
        return msgspec.convert(_load_json(body), SessionLayout)
    return msgspec.msgpack.decode(body, type=SessionLayout)


def _encode_value(value: Any) -> bytes:
    try:
        return _encode(value)
    except UnicodeEncodeError:
        return json.dumps(msgspec.to_builtins(value), ensure_ascii=False).encode("utf-8", "surrogatepass")


def _load_json(body: bytes) -> Any:
    return json.loads(body.decode("utf-8", "surrogatepass"))


@cache
def _zstd() -> Any:
    return import_zstd()
