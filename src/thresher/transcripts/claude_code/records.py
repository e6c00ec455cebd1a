"""The records of a Claude Code file, as they are decoded.

Nearly every line holds only blocks of four kinds, with just their documented fields. Such a line is decoded straight
into structs, which is fast and keeps the exact text of a call's arguments; any other is decoded loosely, and its blocks
stay plain values.
"""

from collections.abc import Iterator
from typing import Any, cast

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from thresher.transcripts.coerce import text_at

_NONE = Raw(b"")


class TextBlock(Struct, gc=False, forbid_unknown_fields=True, tag_field="type", tag="text"):
    """Words."""

    text: str


class ThinkingBlock(Struct, gc=False, forbid_unknown_fields=True, tag_field="type", tag="thinking"):
    """Signed thinking."""

    thinking: str
    signature: str


class CallBlock(Struct, gc=False, forbid_unknown_fields=True, tag_field="type", tag="tool_use"):
    """A call, its arguments as they stand."""

    id: str
    name: str
    input: Raw
    caller: Raw = _NONE


class ResultBlock(Struct, gc=False, forbid_unknown_fields=True, tag_field="type", tag="tool_result"):
    """A plain result."""

    tool_use_id: str
    content: str
    is_error: bool | UnsetType = UNSET


ClaudeBlock = TextBlock | ThinkingBlock | CallBlock | ResultBlock


class CacheWriteTiers(Struct, gc=False):
    """Cache writes by how long they live."""

    ephemeral_1h_input_tokens: Any = 0


class ClaudeUsage(Struct, gc=False):
    """The tokens of one model call."""

    input_tokens: Any = 0
    output_tokens: Any = 0
    cache_read_input_tokens: Any = 0
    cache_creation_input_tokens: Any = 0
    cache_creation: CacheWriteTiers | None = None


class ClaudeMessage(Struct, gc=False):
    """The API's message in a record; loosely decoded, its content holds the blocks as plain values."""

    id: Any = None
    model: Any = None
    content: str | list[ClaudeBlock] | UnsetType = UNSET
    usage: ClaudeUsage | None = None


class ClaudeRecord(Struct, gc=False):
    """The fields of a record that are looked at; anything may stand in them."""

    type: Any = None
    uuid: Any = None
    parentUuid: Any = UNSET
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
    data: Any = None
    toolUseResult: Any = None


class ClaudeResultNote(Struct, gc=False):
    """What the harness notes beside a result: the sub-agent that gave it, the file that holds all of it."""

    agentId: Any = None
    persistedOutputPath: Any = None


class ProgressMessage(Struct, gc=False):
    """A sub-agent's message, as its parent's progress repeats it."""

    type: Any = None
    uuid: Any = None
    timestamp: Any = None
    message: ClaudeMessage | None = None


class SubagentProgress(Struct, gc=False):
    """What a progress record says of a sub-agent."""

    agentId: Any = None
    message: ProgressMessage | None = None


class StrictClaudeRecord(ClaudeRecord, gc=False):
    """A record whose parts are as documented."""

    message: ClaudeMessage | None = None
    data: SubagentProgress | None = None
    toolUseResult: ClaudeResultNote | str | list[Any] | bool | None = None


STRICT_DECODER = cast("msgspec.json.Decoder[ClaudeRecord]", msgspec.json.Decoder(StrictClaudeRecord))
LENIENT_DECODER = msgspec.json.Decoder(ClaudeRecord)


def normalize_claude_record(row: ClaudeRecord) -> None:
    """Put a loosely decoded record into the same clothes as a strict one."""
    row.message = normalize_claude_message(row.message)
    row.toolUseResult = _struct_from_fields(ClaudeResultNote, row.toolUseResult)
    row.data = _struct_from_fields(SubagentProgress, row.data)
    if row.data is not None:
        row.data.message = _struct_from_fields(ProgressMessage, row.data.message)
        if row.data.message is not None:
            row.data.message.message = normalize_claude_message(row.data.message.message)


def _struct_from_fields(kind: type[Struct], value: Any) -> Any:
    return kind(**{k: value[k] for k in kind.__struct_fields__ if k in value}) if isinstance(value, dict) else None


def normalize_claude_message(message: Any) -> ClaudeMessage | None:
    """A loosely decoded message in the same clothes as a strict one."""
    if not isinstance(message, dict):
        return None
    content, bill = message.get("content"), _struct_from_fields(ClaudeUsage, message.get("usage"))
    if bill is not None:
        bill.cache_creation = _struct_from_fields(CacheWriteTiers, bill.cache_creation)
    content = content if isinstance(content, str | list) else UNSET
    return ClaudeMessage(message.get("id"), message.get("model"), content, bill)


class ClaudeSideRecord(Struct, gc=False):
    """A record beside the tree: a title, the queue of prompts."""

    timestamp: Any = None
    operation: Any = None
    content: Any = None
    summary: Any = None
    leafUuid: Any = None
    customTitle: Any = None
    aiTitle: Any = None
    lastPrompt: Any = None


class ClaudeNode(Struct, frozen=True, gc=False):
    """A record with its place in the file."""

    id: str
    parent: str | None
    row: ClaudeRecord
    line: int
    record: bytes


def is_shown_record(row: ClaudeRecord) -> bool:
    """Whether a record puts something before the model."""
    if row.type in ("user", "assistant"):
        return isinstance(row.message, ClaudeMessage)
    return (
        row.type == "attachment" and isinstance(row.attachment, dict) and attachment_content(row.attachment) is not None
    )


def answered_call_id(message: ClaudeMessage | None) -> str:
    """The call that a user record answers, or nothing."""
    if message is None or not isinstance(message.content, list):
        return ""
    for block in message.content:
        if type(block) is ResultBlock:
            return block.tool_use_id
        if isinstance(block, dict) and block.get("type") == "tool_result":
            return text_at(block, "tool_use_id")
    return ""


def plain_result_text(message: ClaudeMessage | None) -> str:
    """The words of the result that a user record carries, where it is a plain one."""
    for block in message.content if message is not None and type(message.content) is list else ():
        if type(block) is ResultBlock:
            return block.content
        if isinstance(block, dict) and isinstance(block.get("content"), str):
            return cast(str, block["content"])
    return ""


def record_call_ids(message: ClaudeMessage) -> Iterator[str]:
    """The ids of the calls in an assistant record."""
    for block in message.content if isinstance(message.content, list) else ():
        if type(block) is CallBlock:
            yield block.id
        elif isinstance(block, dict) and block.get("type") == "tool_use":
            yield text_at(block, "id")


def record_texts(row: ClaudeRecord) -> Iterator[str]:
    """The words of a record, block by block."""
    content = attachment_content(row.attachment) if row.type == "attachment" else row.message and row.message.content
    if isinstance(content, str):
        yield content.strip()
    for block in content if isinstance(content, list) else ():
        text = block.text if type(block) is TextBlock else block.get("text") if isinstance(block, dict) else None
        if isinstance(text, str):
            yield text.strip()


def attachment_content(attachment: dict[str, Any]) -> str | list[Any] | None:
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
