"""Decode the records of a Claude Code file.

Nearly all lines contain only blocks of four types with documented fields. The strict decoder reads these lines directly
into structs, which is fast and keeps the exact text of arguments. The lenient decoder reads all other lines. The blocks
of these lines stay plain values.
"""

from collections.abc import Iterator
from typing import Any, cast

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from thresher.transcripts.coerce import text_at, value_at

_NONE = Raw(b"")


class TextBlock(Struct, gc=False, forbid_unknown_fields=True, tag_field="type", tag="text"):
    """A text block."""

    text: str


class ThinkingBlock(Struct, gc=False, forbid_unknown_fields=True, tag_field="type", tag="thinking"):
    """A thinking block with its signature."""

    thinking: str
    signature: str


class CallBlock(Struct, gc=False, forbid_unknown_fields=True, tag_field="type", tag="tool_use"):
    """A tool call with the exact text of its arguments."""

    id: str
    name: str
    input: Raw
    caller: Raw = _NONE


class ResultBlock(Struct, gc=False, forbid_unknown_fields=True, tag_field="type", tag="tool_result"):
    """A tool result whose content is text."""

    tool_use_id: str
    content: str
    is_error: bool | UnsetType = UNSET


ClaudeBlock = TextBlock | ThinkingBlock | CallBlock | ResultBlock


class CacheWriteTiers(Struct, gc=False):
    """Tokens written to the prompt cache, by lifetime of the cache entry."""

    ephemeral_1h_input_tokens: Any = 0


class ClaudeUsage(Struct, gc=False):
    """The usage of one model call."""

    input_tokens: Any = 0
    output_tokens: Any = 0
    cache_read_input_tokens: Any = 0
    cache_creation_input_tokens: Any = 0
    cache_creation: CacheWriteTiers | None = None


class ClaudeMessage(Struct, gc=False):
    """The API message in a record. After lenient decoding, the blocks in its content are plain values."""

    id: Any = None
    model: Any = None
    content: str | list[ClaudeBlock] | UnsetType = UNSET
    usage: ClaudeUsage | None = None


class ClaudeRecord(Struct, gc=False):
    """The fields of a record that the reader uses, with values of any type."""

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
    """The harness's metadata about a result: the sub-agent that returned it, and the file with the full text."""

    agentId: Any = None
    persistedOutputPath: Any = None
    totalDurationMs: Any = None
    totalTokens: Any = None
    totalToolUseCount: Any = None

    @property
    def has_agent_metrics(self) -> bool:
        """True if the result is the report of a sub-agent; no other result has these three figures."""
        return all(type(count) is int for count in (self.totalDurationMs, self.totalTokens, self.totalToolUseCount))


class ProgressMessage(Struct, gc=False):
    """A sub-agent's message in a progress record of its parent."""

    type: Any = None
    uuid: Any = None
    timestamp: Any = None
    message: ClaudeMessage | None = None


class SubagentProgress(Struct, gc=False):
    """The data of a progress record: a sub-agent and its message."""

    agentId: Any = None
    message: ProgressMessage | None = None


class StrictClaudeRecord(ClaudeRecord, gc=False):
    """A record whose nested values match the documented schema."""

    message: ClaudeMessage | None = None
    data: SubagentProgress | None = None
    toolUseResult: ClaudeResultNote | str | list[Any] | bool | None = None


STRICT_DECODER = cast("msgspec.json.Decoder[ClaudeRecord]", msgspec.json.Decoder(StrictClaudeRecord))
LENIENT_DECODER = msgspec.json.Decoder(ClaudeRecord)


def normalize_claude_record(row: ClaudeRecord) -> None:
    """Convert the nested values of a leniently decoded record to the structs of the strict schema."""
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
    """Convert a leniently decoded message to the structs of the strict schema; return None if it is not an object."""
    if not isinstance(message, dict):
        return None
    content, usage = message.get("content"), _struct_from_fields(ClaudeUsage, message.get("usage"))
    if usage is not None:
        usage.cache_creation = _struct_from_fields(CacheWriteTiers, usage.cache_creation)
    content = content if isinstance(content, str | list) else UNSET
    return ClaudeMessage(message.get("id"), message.get("model"), content, usage)


class ClaudeSideRecord(Struct, gc=False):
    """A record outside of the tree: a title, or an operation on the queue of prompts."""

    timestamp: Any = None
    operation: Any = None
    content: Any = None
    summary: Any = None
    leafUuid: Any = None
    customTitle: Any = None
    aiTitle: Any = None
    lastPrompt: Any = None


class ClaudeNode(Struct, frozen=True, gc=False):
    """A record with its location in the file."""

    id: str
    parent: str | None
    row: ClaudeRecord
    line: int
    record: bytes


def is_shown_record(row: ClaudeRecord) -> bool:
    """Return whether the model receives the content of a record."""
    if row.type in ("user", "assistant"):
        return isinstance(row.message, ClaudeMessage)
    attachment = row.attachment if row.type == "attachment" else None
    return isinstance(attachment, dict) and attachment_content(attachment) is not None


def answered_call_id(message: ClaudeMessage | None) -> str:
    """Return the id of the call that a user record answers, or an empty string."""
    if message is None or not isinstance(message.content, list):
        return ""
    for block in message.content:
        if type(block) is ResultBlock:
            return block.tool_use_id
        if isinstance(block, dict) and block.get("type") == "tool_result":
            return text_at(block, "tool_use_id")
    return ""


def plain_result_text(message: ClaudeMessage | None) -> str:
    """Return the text of the result in a user record; empty if the result's content is not a text."""
    for block in message.content if message is not None and type(message.content) is list else ():
        if type(block) is ResultBlock:
            return block.content
        if isinstance(block, dict) and isinstance(block.get("content"), str):
            return cast(str, block["content"])
    return ""


def record_call_ids(message: ClaudeMessage) -> Iterator[str]:
    """Yield the ids of the calls in an assistant record."""
    for block in message.content if isinstance(message.content, list) else ():
        if type(block) is CallBlock:
            yield block.id
        elif isinstance(block, dict) and block.get("type") == "tool_use":
            yield text_at(block, "id")


def record_texts(row: ClaudeRecord) -> Iterator[str]:
    """Yield the text of each block in a record."""
    content = attachment_content(row.attachment) if row.type == "attachment" else row.message and row.message.content
    if isinstance(content, str):
        yield content.strip()
    for block in content if isinstance(content, list) else ():
        text = block.text if type(block) is TextBlock else block.get("text") if isinstance(block, dict) else None
        if isinstance(text, str):
            yield text.strip()


def attachment_content(attachment: dict[str, Any]) -> str | list[Any] | None:
    """Return the content that the model receives from an attachment, or None."""
    match attachment.get("type"):
        case "queued_command":
            value = attachment.get("prompt")
        case "hook_additional_context":
            value = attachment.get("content")
            if isinstance(value, list):
                value = "\n".join(item for item in value if isinstance(item, str))
        case "file":
            value = value_at(attachment, "content", "file", "content")
        case _:
            return None
    return value if isinstance(value, str | list) else None
