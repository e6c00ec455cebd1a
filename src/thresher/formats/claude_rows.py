"""The records of a Claude Code file, as they are decoded.

Nearly every line holds only blocks of four kinds, with just their documented fields. Such a line is decoded straight
into structs, which is fast and keeps the exact text of a call's arguments; any other is decoded loosely, and its blocks
stay plain values.
"""

from collections.abc import Iterator
from typing import Any, cast

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from thresher.formats.loose import text as text_or_empty

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


Block = TextBlock | ThinkingBlock | CallBlock | ResultBlock


class Tiers(Struct, gc=False):
    """Cache writes by how long they live."""

    ephemeral_1h_input_tokens: Any = 0


class Bill(Struct, gc=False):
    """The tokens of one model call."""

    input_tokens: Any = 0
    output_tokens: Any = 0
    cache_read_input_tokens: Any = 0
    cache_creation_input_tokens: Any = 0
    cache_creation: Tiers | None = None


class Wire(Struct, gc=False):
    """The API's message in a record; loosely decoded, its content holds the blocks as plain values."""

    id: Any = None
    model: Any = None
    content: str | list[Block] | UnsetType = UNSET
    usage: Bill | None = None


class Row(Struct, gc=False):
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


class Outcome(Struct, gc=False):
    """What the harness notes beside a result: the sub-agent that gave it, the file that holds all of it."""

    agentId: Any = None
    persistedOutputPath: Any = None


class Echo(Struct, gc=False):
    """A sub-agent's message, as its parent's progress repeats it."""

    type: Any = None
    uuid: Any = None
    timestamp: Any = None
    message: Wire | None = None


class Progress(Struct, gc=False):
    """What a progress record says of a sub-agent."""

    agentId: Any = None
    message: Echo | None = None


class StrictRow(Row, gc=False):
    """A record whose parts are as documented."""

    message: Wire | None = None
    data: Progress | None = None
    toolUseResult: Outcome | str | list[Any] | bool | None = None


STRICT = cast("msgspec.json.Decoder[Row]", msgspec.json.Decoder(StrictRow))
LOOSE = msgspec.json.Decoder(Row)


def tidy(row: Row) -> None:
    """Put a loosely decoded record into the same clothes as a strict one."""
    row.message = wire_of(row.message)
    row.toolUseResult = _pick(Outcome, row.toolUseResult)
    row.data = _pick(Progress, row.data)
    if row.data is not None:
        row.data.message = _pick(Echo, row.data.message)
        if row.data.message is not None:
            row.data.message.message = wire_of(row.data.message.message)


def _pick(kind: type[Struct], value: Any) -> Any:
    return kind(**{k: value[k] for k in kind.__struct_fields__ if k in value}) if isinstance(value, dict) else None


def wire_of(message: Any) -> Wire | None:
    """A loosely decoded message in the same clothes as a strict one."""
    if not isinstance(message, dict):
        return None
    content, bill = message.get("content"), _pick(Bill, message.get("usage"))
    if bill is not None:
        bill.cache_creation = _pick(Tiers, bill.cache_creation)
    return Wire(message.get("id"), message.get("model"), content if isinstance(content, str | list) else UNSET, bill)


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
        return isinstance(row.message, Wire)
    return row.type == "attachment" and isinstance(row.attachment, dict) and attached(row.attachment) is not None


def answered_call(message: Wire | None) -> str:
    """The call that a user record answers, or nothing."""
    if message is None or not isinstance(message.content, list):
        return ""
    for block in message.content:
        if type(block) is ResultBlock:
            return block.tool_use_id
        if isinstance(block, dict) and block.get("type") == "tool_result":
            return text_or_empty(block.get("tool_use_id"))
    return ""


def result_text(message: Wire | None) -> str:
    """The words of the result that a user record carries, where it is a plain one."""
    for block in message.content if message is not None and type(message.content) is list else ():
        if type(block) is ResultBlock:
            return block.content
        if isinstance(block, dict) and isinstance(block.get("content"), str):
            return cast(str, block["content"])
    return ""


def calls_of(message: Wire) -> Iterator[str]:
    """The ids of the calls in an assistant record."""
    for block in message.content if isinstance(message.content, list) else ():
        if type(block) is CallBlock:
            yield block.id
        elif isinstance(block, dict) and block.get("type") == "tool_use":
            yield text_or_empty(block.get("id"))


def texts_of(row: Row) -> Iterator[str]:
    """The words of a record, block by block."""
    content = attached(row.attachment) if row.type == "attachment" else row.message and row.message.content
    if isinstance(content, str):
        yield content.strip()
    for block in content if isinstance(content, list) else ():
        text = block.text if type(block) is TextBlock else block.get("text") if isinstance(block, dict) else None
        if isinstance(text, str):
            yield text.strip()


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
