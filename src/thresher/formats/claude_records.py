"""The records of a Claude Code file as they are decoded, and the messages that are made of them.

One API message is spread over several lines, one a content block: they are joined by `message.id`, at the place
of the first. Its usage is repeated on each and grows: the largest is the bill.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from msgspec import Raw, Struct

from thresher.formats.anthropic import NATIVE, message_role, parse_content
from thresher.formats.dialect import author_for
from thresher.formats.source import SourceFile
from thresher.formats.transcript import text_or_empty, timestamp
from thresher.model import Author, Message, Role, Source, Summary, Text, Usage
from thresher.model.parts import Part

_NONE = Raw(b"")


class Row(Struct, gc=False):
    """The fields of a record that are looked at; anything may stand in them."""

    type: Any = None
    uuid: Any = None
    parentUuid: Any = msgspec.UNSET
    logicalParentUuid: Any = None
    isSidechain: Any = False
    isMeta: Any = False
    isCompactSummary: Any = False
    isApiErrorMessage: Any = False
    teamName: Any = None
    agentId: Any = None
    timestamp: Any = None
    message: Any = None
    subtype: Any = None
    attachment: Any = None
    promptSource: Any = None
    sessionId: Any = None
    cwd: Any = None
    gitBranch: Any = None
    version: Any = None
    forkedFrom: Any = None
    parentToolUseID: Any = None
    data: Raw = _NONE
    toolUseResult: Raw = _NONE


class Note(Struct, gc=False):
    """A record beside the tree: a title, the queue of prompts."""

    timestamp: Any = None
    operation: Any = None
    content: Any = None
    summary: Any = None
    leafUuid: Any = None
    customTitle: Any = None
    aiTitle: Any = None
    lastPrompt: Any = None


class Node(Struct, frozen=True, gc=False):
    """A record with its place in the file."""

    id: str
    parent: str | None
    row: Row
    line: int
    record: bytes


def speaks(row: Row) -> bool:
    """Whether a record puts something before the model."""
    if row.type in ("user", "assistant"):
        return isinstance(row.message, dict)
    return row.type == "attachment" and isinstance(row.attachment, dict) and attached(row.attachment) is not None


def answered_call(message: Any) -> str:
    """The call that a user record answers, or nothing."""
    content = message.get("content") if isinstance(message, dict) else None
    for block in content if isinstance(content, list) else ():
        if isinstance(block, dict) and block.get("type") == "tool_result":
            return text_or_empty(block.get("tool_use_id"))
    return ""


def calls_of(message: Any) -> Iterator[str]:
    """The ids of the calls in an assistant record."""
    content = message.get("content")
    for block in content if isinstance(content, list) else ():
        if isinstance(block, dict) and block.get("type") == "tool_use" and isinstance(block.get("id"), str):
            yield block["id"]


def texts_of(row: Row) -> Iterator[str]:
    """The words of a record, block by block."""
    content = row.message.get("content") if isinstance(row.message, dict) else None
    if row.type == "attachment":
        content = attached(row.attachment)
    if isinstance(content, str):
        yield content.strip()
    elif isinstance(content, list):
        yield from (b["text"].strip() for b in content if isinstance(b, dict) and isinstance(b.get("text"), str))


def attached(attachment: dict[str, Any]) -> str | list[Any] | None:
    """What an attachment puts before the model, if it is one that does."""
    match attachment.get("type"):
        case "queued_command":
            value = attachment.get("prompt")
        case "hook_additional_context":
            value = attachment.get("content")
            if isinstance(value, list):
                value = "\n".join(item for item in value if isinstance(item, str))
        case "file":
            inner = attachment.get("content")
            file = inner.get("file") if isinstance(inner, dict) else None
            value = file.get("content") if isinstance(file, dict) else None
        case _:
            return None
    return value if isinstance(value, str | list) else None


class _Draft(Struct, frozen=True):
    """One message while its lines are gathered."""

    first: Node
    wire: dict[str, Any]
    parts: list[Part]
    records: list[bytes]
    bills: list[Any]


def message_id(node: Node) -> str:
    """The id of the message that a record belongs to: the API's own where it has one."""
    return (text_or_empty(node.row.message.get("id")) if node.row.type == "assistant" else "") or node.id


def messages_of(nodes: Sequence[Node], source: SourceFile) -> tuple[Message, ...]:
    """Records in order to messages."""
    drafts: list[_Draft] = []
    by_id: dict[str, _Draft] = {}
    for node in nodes:
        row = node.row
        wire = {"content": attached(row.attachment)} if row.type == "attachment" else row.message
        content, key = wire.get("content"), wire.get("id") if row.type == "assistant" else None
        try:
            parts = parse_content(content) if isinstance(content, str | list) else ()
        except RecursionError:
            source.problem("a record is nested too deep to follow", "its content is left out", node.line)
            parts = ()
        draft = by_id.get(key) if type(key) is str else None
        if draft is None:
            draft = _Draft(node, wire, [*parts], [node.record], [wire.get("usage")])
            drafts.append(draft)
            if type(key) is str:
                by_id[key] = draft
        else:
            draft.parts.extend(parts)
            draft.records.append(node.record)
            draft.bills.append(wire.get("usage"))
    file = str(source.path)
    return tuple([_message(draft, file) for draft in drafts])


def _message(draft: _Draft, file: str) -> Message:
    node, row = draft.first, draft.first.row
    parts = tuple(draft.parts)
    if row.isCompactSummary:
        parts = tuple(Summary(part.text) if isinstance(part, Text) else part for part in parts)
    role = message_role("assistant" if row.type == "assistant" else "user", parts)
    model = draft.wire.get("model")
    return Message(
        role=role,
        parts=parts,
        author=_author(row, role, parts),
        id=message_id(node),
        time=timestamp(row.timestamp),
        model=model if isinstance(model, str) and model != "<synthetic>" else "",
        usage=_usage(draft.bills),
        source=Source(file, node.line),
        records=tuple(draft.records),
        pocket=NATIVE,
    )


def _author(row: Row, role: Role, parts: tuple[Part, ...]) -> Author:
    if row.type == "assistant":
        synthetic = row.isApiErrorMessage or row.message.get("model") == "<synthetic>"
        return "harness" if synthetic else "model"
    if role == "user" and (row.isMeta or row.isCompactSummary or row.promptSource == "system"):
        return "harness"
    if row.type == "attachment" and row.attachment.get("type") != "queued_command":
        return "harness"
    author = author_for(role, parts)
    return "model" if row.isSidechain and author == "human" else author


def _usage(bills: list[Any]) -> Usage | None:
    """The bill is repeated on every line of a message, and grows: the largest is the last word."""
    known = [bill for bill in bills if type(bill) is dict]
    if not known:
        return None
    bill = known[0] if len(known) == 1 else max(known, key=lambda bill: _count(bill, "output_tokens"))
    return Usage(
        input=_count(bill, "input_tokens"),
        output=_count(bill, "output_tokens"),
        cache_read=_count(bill, "cache_read_input_tokens"),
        cache_write=_count(bill, "cache_creation_input_tokens"),
        cache_write_1h=_count(bill.get("cache_creation"), "ephemeral_1h_input_tokens"),
    )


def _count(bill: Any, key: str) -> int:
    value = bill.get(key) if type(bill) is dict else None
    return value if type(value) is int else 0
