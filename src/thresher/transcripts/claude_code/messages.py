"""Build messages from the records of a Claude Code file.

Claude Code writes one line per content block of an API message. Lines with the same `message.id` become one message at
the position of the first line. Each line has the usage up to that line, so the reader uses the largest usage. Results
of parallel calls are on separate lines. They become one message, as in the API request.
"""

from collections.abc import Sequence
from typing import Any

from msgspec import UNSET, Struct, UnsetType, structs

from thresher.dialects.anthropic.codec import NATIVE_EXTRAS, infer_anthropic_role, parse_anthropic_block
from thresher.dialects.content import infer_message_author
from thresher.model import Author, Message, Role, SourceLocation, Usage
from thresher.model.parts import Part, Summary, Text, Thinking, ToolCall, ToolResult, VendorExtras
from thresher.transcripts.base import parse_time
from thresher.transcripts.claude_code.records import (
    LENIENT_DECODER,
    CallBlock,
    ClaudeBlock,
    ClaudeMessage,
    ClaudeNode,
    ClaudeRecord,
    ClaudeResultNote,
    ClaudeUsage,
    ResultBlock,
    TextBlock,
    ThinkingBlock,
    attachment_content,
    normalize_claude_message,
)
from thresher.transcripts.coerce import as_count, as_text
from thresher.transcripts.source import SourceFile

AGENT_TOOL_NAME = "Task"
_NOT_ERROR_EXTRAS = VendorExtras(NATIVE_EXTRAS.format, '{"is_error":false}')


class _MessageDraft(Struct, frozen=True, gc=False):
    """A message under construction, with the content of the lines that already belong to it."""

    first_node: ClaudeNode
    api_message: ClaudeMessage
    parts: list[Part]
    records: list[bytes]
    usages: list[ClaudeUsage]


def resolve_message_id(node: ClaudeNode) -> str:
    """Return the id of the message that a record belongs to: the API's id of an answer, else the id of the record."""
    return (as_text(node.row.message.id) if node.row.type == "assistant" else "") or node.id


def build_claude_messages(nodes: Sequence[ClaudeNode], source: SourceFile) -> tuple[Message, ...]:
    """Convert records to messages, and merge the records of the same message. Keep the order."""
    drafts: list[_MessageDraft] = []
    by_id: dict[str, _MessageDraft] = {}
    calls: set[str] = set()
    for node in nodes:
        wire, parts = _parse_node(node, source)
        calls.update(part.id for part in parts if type(part) is ToolCall)
        if isinstance(node.row.toolUseResult, ClaudeResultNote) and node.row.toolUseResult.has_agent_metrics:
            parts = [_name_agent_report(part, calls) for part in parts]
        key = wire.id if node.row.type == "assistant" else None
        draft = by_id.get(key) if type(key) is str else None
        if draft is None and drafts and _has_only_results(parts) and _has_only_results(drafts[-1].parts):
            draft = drafts[-1]
        if draft is None:
            draft = _MessageDraft(node, wire, parts, [node.record], [])
            drafts.append(draft)
            if type(key) is str:
                by_id[key] = draft
        else:
            draft.parts.extend(parts)
            draft.records.append(node.record)
        if wire.usage is not None:
            draft.usages.append(wire.usage)
    file = source.file
    return tuple([_build_message(draft, file) for draft in drafts])


def _name_agent_report(part: Part, calls: set[str]) -> Part:
    """Name the tool in the report of a sub-agent whose call is not in the transcript."""
    if not isinstance(part, ToolResult) or part.call_id in calls:
        return part
    return structs.replace(part, name=AGENT_TOOL_NAME)


def _has_only_results(parts: list[Part]) -> bool:
    return bool(parts) and all(type(part) is ToolResult for part in parts)


def _parse_node(node: ClaudeNode, source: SourceFile) -> tuple[ClaudeMessage, list[Part]]:
    row = node.row
    wire: ClaudeMessage = row.message
    if row.type == "attachment":
        wire = ClaudeMessage(content=attachment_content(row.attachment) or UNSET)
    try:
        return wire, _convert_content(wire.content)
    except RecursionError:
        source.report("a record is nested too deeply", "removed its content", node.line)
    except UnicodeDecodeError:  # decoding a record does not validate raw arguments
        for text in source.repair_line(node.line, node.record):
            if repaired := normalize_claude_message(LENIENT_DECODER.decode(text).message):
                return repaired, _convert_content(repaired.content)
    return wire, []


def _convert_content(content: str | list[ClaudeBlock] | UnsetType) -> list[Part]:
    if type(content) is str:
        return [Text(content)]
    return [_convert_block(block) for block in content] if type(content) is list else []


def _convert_block(block: Any) -> Part:
    kind = type(block)
    if kind is TextBlock:
        return Text(block.text)
    if kind is CallBlock:
        caller = str(block.caller, "utf-8")
        pocket = VendorExtras(NATIVE_EXTRAS.format, f'{{"caller":{caller}}}') if caller else None
        return ToolCall(block.id, block.name, str(block.input, "utf-8"), pocket)
    if kind is ResultBlock:
        pocket = _NOT_ERROR_EXTRAS if block.is_error is False else None
        return ToolResult(block.tool_use_id, (Text(block.content),), block.is_error is True, pocket=pocket)
    if kind is ThinkingBlock:
        return Thinking(block.thinking, block.signature)
    return parse_anthropic_block(block)


def _build_message(draft: _MessageDraft, file: str) -> Message:
    node, row, model = draft.first_node, draft.first_node.row, draft.api_message.model
    parts = tuple(draft.parts)
    if row.isCompactSummary:
        parts = tuple(Summary(part.text) if isinstance(part, Text) else part for part in parts)
    role = infer_anthropic_role("assistant" if row.type == "assistant" else "user", parts)
    return Message(
        role=role,
        parts=parts,
        author=_determine_author(row, role, parts),
        id=resolve_message_id(node),
        time=parse_time(row.timestamp),
        model=model if isinstance(model, str) and model != "<synthetic>" else "",
        usage=_largest_usage(draft.usages),
        source=SourceLocation(file, node.line),
        records=tuple(draft.records),
        pocket=NATIVE_EXTRAS,
    )


def _determine_author(row: ClaudeRecord, role: Role, parts: tuple[Part, ...]) -> Author:
    if row.type == "assistant":
        synthetic = row.isApiErrorMessage or row.message.model == "<synthetic>"
        return "harness" if synthetic else "model"
    if role == "user" and (row.isMeta or row.isCompactSummary or row.promptSource == "system"):
        return "harness"
    if row.type == "attachment" and row.attachment.get("type") != "queued_command":
        return "harness"
    author = infer_message_author(role, parts)
    return "model" if row.isSidechain and author == "human" else author


def _largest_usage(usages: list[ClaudeUsage]) -> Usage | None:
    """Return the usage with the most output tokens. Each line of a message has the usage up to that line."""
    if not usages:
        return None
    usage = usages[0] if len(usages) == 1 else max(usages, key=lambda usage: as_count(usage.output_tokens))
    return Usage(
        input=as_count(usage.input_tokens),
        output=as_count(usage.output_tokens),
        cache_read=as_count(usage.cache_read_input_tokens),
        cache_write=as_count(usage.cache_creation_input_tokens),
        cache_write_1h=as_count(usage.cache_creation.ephemeral_1h_input_tokens) if usage.cache_creation else 0,
    )
