"""Encode sessions as compressed blocks of messages plus a layout, and decode them.

The messages form one sequence: all segments in order, including messages that a compaction repeats, then the
abandoned branches. Raw transcript records are dropped, since they duplicate the messages. Blocks are MessagePack; a
block with an unpaired surrogate, which MessagePack cannot encode, is JSON.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from itertools import islice
from typing import Any

import msgspec
from msgspec import Struct, structs

from thresher.memory.records import MESSAGES_PER_BLOCK, ArchivedSession
from thresher.model import AbandonedBranch, History, Message, Problem, Session
from thresher.model.parts import VendorExtras, part_text
from thresher.transcripts.source import import_zstd

_encode = msgspec.msgpack.Encoder().encode
_decode: Callable[[bytes], list[Message]] = msgspec.msgpack.Decoder(list[Message]).decode
_decode_raw: Callable[[bytes], list[msgspec.Raw]] = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode
_decode_one: Callable[[bytes | msgspec.Raw], Message] = msgspec.msgpack.Decoder(Message).decode
_JSON_ARRAY = b"["
DAMAGED_MESSAGE = Message("user", (), author="harness")
"""Replacement for each message of a damaged block."""


class HistoryLayout(Struct, frozen=True, omit_defaults=True):
    """A history without its messages."""

    count: int
    tools: str = ""
    pocket: VendorExtras | None = None
    after: str = ""


class SessionLayout(Struct, frozen=True, omit_defaults=True):
    """Session fields other than messages and archive columns."""

    segments: tuple[HistoryLayout, ...] = ()
    branches: tuple[HistoryLayout, ...] = ()
    problems: tuple[Problem, ...] = ()
    spilled: dict[str, str] = {}
    records: dict[str, int] = {}


def flatten_messages(session: Session) -> list[Message]:
    """Return all messages in storage order, without their raw records."""
    histories = [*session.segments, *(branch.history for branch in session.branches)]
    bare = structs.replace
    return [bare(message, records=()) if message.records else message for history in histories for message in history]


def text_size(messages: Iterable[Message]) -> int:
    """Return the number of characters in all parts."""
    return sum(len(part_text(part)) for message in messages for part in message.parts)


def decode_messages(data: bytes) -> list[Message]:
    """Decompress and decode a block of messages; a damaged block is read as damaged messages."""
    try:
        body = expand(data)
        return msgspec.convert(_load_json(body), list[Message]) if body.startswith(_JSON_ARRAY) else _decode(body)
    except damage_errors():
        return [DAMAGED_MESSAGE] * MESSAGES_PER_BLOCK


def decode_messages_lazily(data: bytes) -> Sequence[msgspec.Raw | Message]:
    """Split a block into messages that `decode_message` decodes one by one; a JSON block is decoded at once."""
    try:
        body = expand(data)
        return decode_messages(data) if body.startswith(_JSON_ARRAY) else _decode_raw(body)
    except damage_errors():
        return [DAMAGED_MESSAGE] * MESSAGES_PER_BLOCK


def decode_message(item: msgspec.Raw | Message) -> Message:
    """Decode an item of `decode_messages_lazily`."""
    try:
        return item if isinstance(item, Message) else _decode_one(item)
    except damage_errors():
        return DAMAGED_MESSAGE


def is_damaged(message: Message) -> bool:
    """Return whether a message could not be read from the archive."""
    return message is DAMAGED_MESSAGE


@cache
def damage_errors() -> tuple[type[Exception], ...]:
    """Return the exception types that damaged data causes."""
    return (_zstd().ZstdError, ValueError, TypeError, RecursionError, MemoryError)


def compress(body: bytes) -> bytes:
    """Compress bytes with Zstandard, with a checksum that `expand` verifies."""
    zstd = _zstd()
    return bytes(zstd.compress(body, options={zstd.CompressionParameter.checksum_flag: 1}))


def expand(data: bytes) -> bytes:
    """Decompress bytes with Zstandard."""
    return bytes(_zstd().decompress(data))


def encode_layout(session: Session) -> bytes:
    """Encode and compress a session's layout."""
    layout = SessionLayout(
        segments=tuple(HistoryLayout(len(history), history.tools, history.pocket) for history in session.segments),
        branches=tuple(
            HistoryLayout(len(branch.history), branch.history.tools, branch.history.pocket, branch.after_message_id)
            for branch in session.branches
        ),
        problems=session.problems,
        spilled=session.spilled,
        records=session.records,
    )
    return compress(encode_value(layout))


def rebuild_session(
    facts: ArchivedSession, encoded_layout: bytes, messages: Iterable[Message], children: Iterable[Session]
) -> Session:
    """Rebuild a session from archive fields, layout, messages and sub-agents; the result has no raw records."""
    messages = [*messages]
    problems = _find_damage(facts, messages)
    try:
        layout = _decode_layout(expand(encoded_layout))
    except damage_errors():
        layout = SessionLayout(segments=(HistoryLayout(len(messages)),))
        problems.append(Problem("the session's layout is damaged in the archive", "read as one segment", facts.file))
    remaining = iter(messages)
    segments = tuple(_history(segment, remaining) for segment in layout.segments)
    return Session(
        agent=facts.agent,
        id=facts.id,
        file=facts.file,
        segments=segments,
        branches=tuple(AbandonedBranch(_history(branch, remaining), branch.after) for branch in layout.branches),
        children=tuple(children),
        problems=(*layout.problems, *problems),
        spilled=layout.spilled,
        compactions=facts.compactions,
        records=layout.records,
        project=facts.project,
        git_branch=facts.branch,
        title=facts.title,
        version=facts.version,
        parent=facts.parent,
        call_id=facts.call,
        started=facts.started,
        ended=facts.ended,
    )


def decode_problems(encoded_layout: bytes) -> tuple[Problem, ...]:
    """Return the problems in an encoded layout; none if it is damaged."""
    try:
        return _decode_layout(expand(encoded_layout)).problems
    except damage_errors():
        return ()


def _find_damage(facts: ArchivedSession, messages: Sequence[Message]) -> list[Problem]:
    damaged = [at for at, message in enumerate(messages[: facts.messages]) if is_damaged(message)]
    if not damaged:
        return []
    what = f"{len(damaged)} messages from number {damaged[0]} on are damaged in the archive"
    return [Problem(what, "left empty; the session's file may still have them", facts.file)]


def _history(layout: HistoryLayout, messages: Iterable[Message]) -> History:
    return History(tuple(islice(messages, layout.count)), layout.tools, layout.pocket)


def _decode_layout(body: bytes) -> SessionLayout:
    if body.startswith(b"{"):
        return msgspec.convert(_load_json(body), SessionLayout)
    return msgspec.msgpack.decode(body, type=SessionLayout)


def encode_value(value: Any) -> bytes:
    """Encode a value without compression: as MessagePack, or as JSON if it contains an unpaired surrogate."""
    try:
        return _encode(value)
    except UnicodeEncodeError:
        return json.dumps(msgspec.to_builtins(value), ensure_ascii=False).encode("utf-8", "surrogatepass")


def _load_json(body: bytes) -> Any:
    return json.loads(body.decode("utf-8", "surrogatepass"))


@cache
def _zstd() -> Any:
    return import_zstd()
