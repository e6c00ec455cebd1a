"""From the records of a Claude Code file to messages.

One API message is spread over several lines, one a content block: they are joined by `message.id`, at the place
of the first. Its usage is repeated on each and grows: the largest is the bill. The results of parallel calls, a line
each, are one message too: that is how the API gets them.
"""

from collections.abc import Sequence
from typing import Any

from msgspec import UNSET, Struct, UnsetType

from thresher.formats.anthropic import NATIVE, message_role, parse_block
from thresher.formats.claude_rows import (
    LOOSE,
    Bill,
    Block,
    CallBlock,
    Node,
    ResultBlock,
    Row,
    TextBlock,
    ThinkingBlock,
    Wire,
    attached,
    wire_of,
)
from thresher.formats.dialect import author_for
from thresher.formats.loose import text as text_or_empty
from thresher.formats.source import SourceFile
from thresher.formats.transcript import timestamp
from thresher.model import (
    Author,
    Message,
    Pocket,
    Role,
    Source,
    Summary,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Usage,
)
from thresher.model.parts import Part

_NOT_FAILED = Pocket(NATIVE.format, '{"is_error":false}')


class _Draft(Struct, frozen=True, gc=False):
    """One message while its lines are gathered."""

    first: Node
    wire: Wire
    parts: list[Part]
    records: list[bytes]
    bills: list[Bill]


def message_id(node: Node) -> str:
    """The id of the message that a record belongs to: the API's own where it has one."""
    return (text_or_empty(node.row.message.id) if node.row.type == "assistant" else "") or node.id


def messages_of(nodes: Sequence[Node], source: SourceFile) -> tuple[Message, ...]:
    """Records in order to messages."""
    drafts: list[_Draft] = []
    by_id: dict[str, _Draft] = {}
    for node in nodes:
        wire, parts = _said(node, source)
        key = wire.id if node.row.type == "assistant" else None
        draft = by_id.get(key) if type(key) is str else None
        if draft is None and drafts and _only_results(parts) and _only_results(drafts[-1].parts):
            draft = drafts[-1]
        if draft is None:
            draft = _Draft(node, wire, parts, [node.record], [])
            drafts.append(draft)
            if type(key) is str:
                by_id[key] = draft
        else:
            draft.parts.extend(parts)
            draft.records.append(node.record)
        if wire.usage is not None:
            draft.bills.append(wire.usage)
    file = str(source.path)
    return tuple([_message(draft, file) for draft in drafts])


def _only_results(parts: list[Part]) -> bool:
    return bool(parts) and all(type(part) is ToolResult for part in parts)


def _said(node: Node, source: SourceFile) -> tuple[Wire, list[Part]]:
    row = node.row
    wire: Wire
    wire = Wire(content=attached(row.attachment) or UNSET) if row.type == "attachment" else row.message
    try:
        return wire, _parts(wire.content)
    except RecursionError:
        source.problem("a record is nested too deep to follow", "its content is left out", node.line)
    except UnicodeDecodeError:  # in the text of arguments, which is not looked at before it is taken
        for text in source.mend(node.line, node.record):
            if mended := wire_of(LOOSE.decode(text).message):
                return mended, _parts(mended.content)
    return wire, []


def _parts(content: str | list[Block] | UnsetType) -> list[Part]:
    if type(content) is str:
        return [Text(content)]
    return [_part(block) for block in content] if type(content) is list else []


def _part(block: Any) -> Part:
    kind = type(block)
    if kind is TextBlock:
        return Text(block.text)
    if kind is CallBlock:
        caller = str(block.caller, "utf-8")
        pocket = Pocket(NATIVE.format, f'{{"caller":{caller}}}') if caller else None
        return ToolCall(block.id, block.name, str(block.input, "utf-8"), pocket)
    if kind is ResultBlock:
        pocket = _NOT_FAILED if block.is_error is False else None
        return ToolResult(block.tool_use_id, (Text(block.content),), block.is_error is True, pocket=pocket)
    if kind is ThinkingBlock:
        return Thinking(block.thinking, block.signature)
    return parse_block(block)


def _message(draft: _Draft, file: str) -> Message:
    node, row, model = draft.first, draft.first.row, draft.wire.model
    parts = tuple(draft.parts)
    if row.isCompactSummary:
        parts = tuple(Summary(part.text) if isinstance(part, Text) else part for part in parts)
    role = message_role("assistant" if row.type == "assistant" else "user", parts)
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
        synthetic = row.isApiErrorMessage or row.message.model == "<synthetic>"
        return "harness" if synthetic else "model"
    if role == "user" and (row.isMeta or row.isCompactSummary or row.promptSource == "system"):
        return "harness"
    if row.type == "attachment" and row.attachment.get("type") != "queued_command":
        return "harness"
    author = author_for(role, parts)
    return "model" if row.isSidechain and author == "human" else author


def _usage(bills: list[Bill]) -> Usage | None:
    """The bill is repeated on every line of a message, and grows: the largest is the last word."""
    if not bills:
        return None
    bill = bills[0] if len(bills) == 1 else max(bills, key=lambda bill: _count(bill.output_tokens))
    return Usage(
        input=_count(bill.input_tokens),
        output=_count(bill.output_tokens),
        cache_read=_count(bill.cache_read_input_tokens),
        cache_write=_count(bill.cache_creation_input_tokens),
        cache_write_1h=_count(bill.cache_creation.ephemeral_1h_input_tokens) if bill.cache_creation else 0,
    )


def _count(value: Any) -> int:
    return value if type(value) is int else 0
