"""Codec of Anthropic's Messages API.

Content consists of blocks. Tool results are blocks of a user message. System text is a separate field.
"""

from collections.abc import Callable
from typing import Any

from thresher.dialects.base import Emission
from thresher.dialects.body import (
    get_request_fields,
    is_from_dialect,
    is_openai_chat_body,
    make_request_history,
    should_emit_body,
    split_request_body,
)
from thresher.dialects.content import decode_call_arguments, infer_message_author, is_blank_message
from thresher.dialects.extras import (
    get_extra_fields,
    get_layout_note,
    is_native,
    is_opaque_message,
    keep_extra_fields,
    load_opaque_value,
    make_opaque_message,
    merge_extra_fields,
)
from thresher.dialects.losses import ConversionLosses
from thresher.dialects.tool_definitions import parse_tool_specs
from thresher.model import History, Message, Role, VendorExtras
from thresher.model.jsontext import dump_json, load_json
from thresher.model.parts import Image, Part, ResultPart, Summary, Text, Thinking, ToolCall, ToolResult, Unknown

NAME = "anthropic"
SYSTEM_ROLE = "system"
"""Role of system text inside the messages, which newer models accept."""
NATIVE_EXTRAS = VendorExtras(NAME)

_SYSTEM_EXTRAS = VendorExtras(NAME, shape="system")
_BARE_EXTRAS = VendorExtras(NAME, shape="bare")
_REDACTED_EXTRAS = VendorExtras(NAME, shape="redacted")
_UNSIGNED_EXTRAS = VendorExtras(NAME, shape="unsigned")
_NAMELESS_EXTRAS = VendorExtras(NAME, shape="nameless")
_LIST_EXTRAS = VendorExtras(NAME, shape="list")
_ABSENT_EXTRAS = VendorExtras(NAME, shape="absent")


def parse_anthropic(value: Any) -> History:
    """Parse messages, or a request body."""
    rows, rest = split_request_body(NAME, value, "messages")
    messages = [parse_anthropic_message(row) for row in rows]
    if rest is not None and isinstance(rest.get("system"), str | list):
        messages.insert(0, _parse_system(rest.pop("system")))
    return make_request_history(NAME, messages, rest)


ROLES = frozenset({"user", "assistant", "system"})


def parse_anthropic_message(row: Any) -> Message:
    """Parse one message; preserve an undocumented one whole."""
    content = row.get("content") if isinstance(row, dict) else None
    if not isinstance(content, str | list) or not isinstance(row.get("role"), str):
        return make_opaque_message(NAME, row)
    parts = parse_anthropic_content(content)
    role = infer_anthropic_role(row["role"], parts)
    shape = "list" if isinstance(content, list) and _as_string(parts) is not None else ""
    expected = {"content": content, "role": _api_role(role)}
    rest = {key: value for key, value in row.items() if key not in expected or expected[key] != value}
    pocket = VendorExtras(NAME, dump_json(rest) if rest else "", shape=shape) if rest or shape else NATIVE_EXTRAS
    author = infer_message_author(role, parts) if row["role"] in ROLES else "harness"
    return Message(role, parts, author=author, pocket=pocket)


def infer_anthropic_role(role: str, parts: tuple[Part, ...]) -> Role:
    """Map an API role to a `Role`; a user message that holds only results gets the role `tool`."""
    if role == "assistant":
        return "assistant"
    if role == "system":
        return "system"
    return "tool" if parts and all(type(part) is ToolResult for part in parts) else "user"


def parse_anthropic_content(content: str | list[Any]) -> tuple[Part, ...]:
    """Parse content: a string or blocks."""
    if isinstance(content, str):
        return (Text(content),)
    return tuple([parse_anthropic_block(block) for block in content])


def parse_anthropic_block(block: Any) -> Part:
    """Parse one content block; preserve an unknown or invalid one whole."""
    if type(block) is not dict:
        return Text(block, _BARE_EXTRAS) if isinstance(block, str) else Unknown(type(block).__name__, dump_json(block))
    kind = block.get("type")
    parser = _PARSERS.get(kind) if type(kind) is str else None
    part = parser(block) if parser else None
    return part if part is not None else _keep_unparsed_block(block)


def _keep_unparsed_block(block: dict[str, Any]) -> Unknown:
    """Preserve a block whole, except for its breakpoint, which moves between requests and is not content."""
    kind = str(block.get("type") or "")
    if "cache_control" not in block:
        return Unknown(kind, dump_json(block))
    rest = {key: value for key, value in block.items() if key != "cache_control"}
    return Unknown(kind, dump_json(rest), VendorExtras(NAME, dump_json({"cache_control": block["cache_control"]})))


def _parse_text(block: dict[str, Any]) -> Text | None:
    text = block.get("text")
    if not isinstance(text, str):
        return None
    part = Text(text)
    return part if len(block) == 2 else keep_extra_fields(part, block, _text_block(part), NAME)


def _parse_thinking(block: dict[str, Any]) -> Thinking | None:
    if block["type"] == "redacted_thinking":
        data = block.get("data")
        part = Thinking("", data, _REDACTED_EXTRAS) if isinstance(data, str) else None
    else:
        text, signature = block.get("thinking"), block.get("signature", "")
        if not isinstance(text, str) or not isinstance(signature, str):
            return None
        part = Thinking(text, signature, None if "signature" in block else _UNSIGNED_EXTRAS)
    return keep_extra_fields(part, block, _thinking_block(part), NAME) if part else None


def _parse_call(block: dict[str, Any]) -> ToolCall | None:
    call_id, name, arguments = block.get("id", ""), block.get("name"), block.get("input")
    if not isinstance(call_id, str) or not isinstance(name, str) or not isinstance(arguments, dict):
        return None
    part = ToolCall(call_id, name, dump_json(arguments), None if "id" in block else _NAMELESS_EXTRAS)
    if len(block) == 4 and "id" in block:
        return part
    return keep_extra_fields(part, block, _call_block(part, arguments), NAME)


def _parse_result(block: dict[str, Any]) -> ToolResult | None:
    """Parse a result. Content or a flag of another type, such as null, is preserved: the call still has its result."""
    call_id, content, failed = block.get("tool_use_id"), block.get("content"), block.get("is_error") is True
    if not isinstance(call_id, str):
        return None
    if isinstance(content, str):
        part = ToolResult(call_id, (Text(content),), failed)
        if len(block) == 3:
            return part
    elif isinstance(content, list):
        inner = tuple([_parse_result_block(item) for item in content])
        part = ToolResult(call_id, inner, failed, pocket=_LIST_EXTRAS if _as_string(inner) is not None else None)
    else:
        part = ToolResult(call_id, (), failed, pocket=_ABSENT_EXTRAS)
    return keep_extra_fields(part, block, _result_block(part, content), NAME)


def _parse_result_block(item: Any) -> ResultPart:
    part = parse_anthropic_block(item)
    return part if isinstance(part, Text | Image | Unknown) else _keep_unparsed_block(item)


def _parse_media(block: dict[str, Any]) -> Image | None:
    source = block.get("source")
    if not isinstance(source, dict):
        return None
    image = Image()
    if source.get("type") == "base64" and isinstance(source.get("data"), str):
        image = Image(str(source.get("media_type") or ""), source["data"])
    elif source.get("type") == "url" and isinstance(source.get("url"), str):
        image = Image("application/pdf" if block["type"] == "document" else "", url=source["url"])
    return keep_extra_fields(image, block, _media_block(image), NAME)


_PARSERS: dict[str, Callable[[dict[str, Any]], Part | None]] = {
    "text": _parse_text,
    "tool_use": _parse_call,
    "tool_result": _parse_result,
    "thinking": _parse_thinking,
    "redacted_thinking": _parse_thinking,
    "image": _parse_media,
    "document": _parse_media,
}


def _parse_system(system: str | list[Any]) -> Message:
    parts = parse_anthropic_content(system)
    pocket = VendorExtras(NAME, shape="system-list") if isinstance(system, list) else _SYSTEM_EXTRAS
    return Message("system", parts, author="harness", pocket=pocket)


def emit_anthropic(history: History, body: bool | None) -> Emission:
    """Emit messages, or a request body if the history came as one or needs one for its system text and tools."""
    losses = ConversionLosses()
    system: list[Message] = []
    rows: list[Any] = []
    merging = False
    for message in history:
        native = is_native(message, NAME)
        if message.role == "system" and (not (rows or native) or get_layout_note(message, NAME).startswith("system")):
            system += [] if is_blank_message(message) and not native else [message]
        elif native:
            rows.append(_emit_native(message, losses))
            merging = False
        else:
            merging = _emit_foreign(rows, message, losses, merging=merging)
    specs = None if is_from_dialect(history, NAME) else parse_tool_specs(history, losses)
    if not should_emit_body(history, body, losses, system_text=system, tool_definitions=specs):
        return Emission(rows, losses.to_problems())
    fields = get_request_fields(history, NAME, losses)
    if system:
        fields["system"] = _emit_system(system, losses)
    if history.tools:
        tools = ({"name": s.name, "description": s.description, "input_schema": s.schema} for s in specs or ())
        fields["tools"] = load_json(history.tools) if specs is None else list(tools)
    return Emission({**fields, "messages": rows}, losses.to_problems())


def _emit_system(system: list[Message], losses: ConversionLosses) -> Any:
    if len(system) == 1 and get_layout_note(system[0], NAME) != "system-list":
        text = _as_string(system[0].parts)
        if text is not None:
            return text
    return [block for message in system for block in _emit_blocks(message, losses)]


def _emit_native(message: Message, losses: ConversionLosses) -> Any:
    if is_opaque_message(message, NAME):
        return load_opaque_value(message)
    text = _as_string(message.parts) if get_layout_note(message, NAME) != "list" else None
    content = _emit_blocks(message, losses) if text is None else text
    rest = get_extra_fields(message, NAME)
    return {"role": rest.pop("role", _api_role(message.role)), "content": content, **rest}


def _emit_foreign(rows: list[Any], message: Message, losses: ConversionLosses, *, merging: bool) -> bool:
    """Append a foreign message, or merge it with the last row; return True if the next one may be merged."""
    blocks = _emit_blocks(message, losses)
    if message.role == "system" and blocks:
        losses.add("system text in the middle of the conversation", "written as a user message")
    if not blocks:
        return merging
    role = _api_role(message.role)
    if merging and rows[-1]["role"] == role:
        rows[-1]["content"] += blocks
        rows[-1]["content"].sort(key=lambda block: role == "user" and block["type"] != "tool_result")
    else:
        rows.append({"role": role, "content": blocks})
    return True


def _emit_blocks(message: Message, losses: ConversionLosses) -> list[Any]:
    native = is_native(message, NAME)
    return [block for part in message.parts if (block := _emit_block(part, native, losses)) is not None or native]


def _emit_block(part: Part, native: bool, losses: ConversionLosses) -> Any:
    match part:
        case Text() | Summary():
            if native and get_layout_note(part, NAME) == "bare":
                return part.text
            block = _text_block(part) if native or part.text else None
        case Thinking():
            if not native:
                losses.add_foreign_part(part)
            block = _thinking_block(part) if native else None
        case ToolCall():
            block = _call_block(part, decode_call_arguments(part, losses))
        case ToolResult():
            block = _result_block(part, _result_content(part, native, losses))
        case Image():
            block = _media_block(part)
        case Unknown():
            if native:
                whole = load_json(part.data)
                return merge_extra_fields(whole, get_extra_fields(part, NAME)) if isinstance(whole, dict) else whole
            losses.add_foreign_part(part)
            block = None
    return block and merge_extra_fields(block, get_extra_fields(part, NAME))


def _text_block(part: Text | Summary) -> dict[str, Any]:
    return {"type": "text", "text": part.text}


def _thinking_block(part: Thinking) -> dict[str, Any]:
    if get_layout_note(part, NAME) == "redacted":
        return {"type": "redacted_thinking", "data": part.signature}
    signature = {} if get_layout_note(part, NAME) == "unsigned" else {"signature": part.signature}
    return {"type": "thinking", "thinking": part.text} | signature


def _call_block(part: ToolCall, arguments: dict[str, Any]) -> dict[str, Any]:
    named = {} if get_layout_note(part, NAME) == "nameless" else {"id": part.id}
    return {"type": "tool_use"} | named | {"name": part.name, "input": arguments}


def _result_block(part: ToolResult, content: Any) -> dict[str, Any]:
    block: dict[str, Any] = {"type": "tool_result", "tool_use_id": part.call_id}
    if part.content or get_layout_note(part, NAME) != "absent":
        block["content"] = content
    return block | {"is_error": True} if part.is_error else block


def _result_content(part: ToolResult, native: bool, losses: ConversionLosses) -> Any:
    text = _as_string(part.content) if get_layout_note(part, NAME) != "list" else None
    if text is not None:
        return text
    return [block for item in part.content if (block := _emit_block(item, native, losses)) is not None or native]


def _media_block(part: Image) -> dict[str, Any]:
    kind = "document" if part.media_type == "application/pdf" or part.media_type.startswith("text/") else "image"
    if part.url:
        return {"type": kind, "source": {"type": "url", "url": part.url}}
    return {"type": kind, "source": {"type": "base64", "media_type": part.media_type, "data": part.data}}


def _as_string(parts: tuple[Part, ...]) -> str | None:
    """Return the text of the parts if a plain string can represent them."""
    if len(parts) == 1 and isinstance(parts[0], Text) and parts[0].pocket is None:
        return parts[0].text
    return None


def _api_role(role: Role) -> str:
    return "assistant" if role == "assistant" else "user"


def sniff_anthropic(value: Any) -> int:
    """Score how likely a value is in this dialect: some block types prove it; plain strings are weak evidence."""
    rows = value.get("messages") if isinstance(value, dict) else value
    if (
        is_openai_chat_body(value)
        or not isinstance(rows, list)
        or not all(isinstance(row, dict) and "role" in row for row in rows[:50])
    ):
        return 0
    if isinstance(value, dict) and ("system" in value or "anthropic_version" in value):
        return 3
    certain = {"tool_use", "tool_result", "thinking", "redacted_thinking", "server_tool_use"}
    likely = shared = False
    for row in rows:
        if row.get("role") not in ("user", "assistant", SYSTEM_ROLE):
            return 0
        if row["role"] == SYSTEM_ROLE:  # only newer models accept it, and other APIs have it, too
            shared = True
            continue
        content = row.get("content")
        if isinstance(content, list):
            kinds = {str(block.get("type")) for block in content if isinstance(block, dict)}
            if kinds & certain:
                return 3
            likely = likely or row["role"] == "assistant"
    if shared:
        return 0
    return 2 if likely else 1 if rows and all("content" in row for row in rows) else 0
