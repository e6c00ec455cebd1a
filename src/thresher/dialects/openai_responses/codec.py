"""Codec of OpenAI's Responses API: a flat list of items; calls, results and reasoning are separate items.

One item is one message. The extra fields of a call, a result or reasoning are stored with the part, and those of a
message item with the message. Items that are not parsed (searches, references, compactions) are preserved whole, in
order.
"""

from collections.abc import Callable, Sequence
from typing import Any

from thresher.dialects.base import Emission
from thresher.dialects.body import (
    get_request_fields,
    is_from_dialect,
    make_request_history,
    should_emit_body,
    split_request_body,
)
from thresher.dialects.content import (
    decode_json_or_text,
    encode_call_arguments,
    format_error_result,
    format_image_url,
    infer_message_author,
    parse_image_url,
    parse_json_object,
)
from thresher.dialects.extras import (
    get_extra_fields,
    get_layout_note,
    is_native,
    is_opaque_message,
    keep_extra_fields,
    load_opaque_value,
    make_layout_note,
    make_opaque_message,
    merge_extra_fields,
)
from thresher.dialects.losses import ConversionLosses
from thresher.dialects.openai_responses.items import is_convertible_to_items, join_reasoning_text
from thresher.dialects.tool_definitions import ToolSpec, parse_tool_specs
from thresher.model import History, Message, Role, VendorExtras
from thresher.model.jsontext import dump_json, load_json
from thresher.model.parts import Image, Part, ResultPart, Summary, Text, Thinking, ToolCall, ToolResult, Unknown

NAME = "openai-responses"
NATIVE_EXTRAS = VendorExtras(NAME)

_WHOLE = VendorExtras(NAME, shape="whole")
_SHELL = "local_shell"
_TOOL_DEFINITION_ITEMS = ("additional_tools", "mcp_list_tools")
"""Items that define tools inside the input."""
_SERVER_TOOL_ITEMS = (
    "code_interpreter_call", "file_search_call", "image_generation_call", "mcp_call", "web_search_call",
)  # fmt: skip
"""Items of tools that the server runs. Each is complete, so that an edit may remove it."""
_ROLES: dict[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
}
_TEXT_TYPES = ("input_text", "output_text", "text", "refusal")
ROLES = frozenset(_ROLES)
_MEDIA_FIELDS = {"input_image": "image_url", "input_audio": "input_audio", "input_file": "file_data"}


def parse_openai_responses(value: Any) -> History:
    """Parse items, or a request body."""
    if isinstance(value, dict) and isinstance(value.get("input"), str):
        texts = (Text(value["input"]),)
        author = infer_message_author("user", texts)
        messages = [Message("user", texts, author=author, pocket=VendorExtras(NAME, shape="input untyped string"))]
        rest: dict[str, Any] | None = {key: item for key, item in value.items() if key != "input"}
    else:
        rows, rest = split_request_body(NAME, value, "input")
        messages = [parse_openai_responses_item(row) for row in rows]
    if rest is not None and isinstance(rest.get("instructions"), str):
        instructions = (Text(rest.pop("instructions")),)
        pocket = VendorExtras(NAME, shape="instructions")
        messages.insert(0, Message("system", instructions, author="harness", pocket=pocket))
    return make_request_history(NAME, messages, rest)


def parse_openai_responses_item(item: Any) -> Message:
    """Parse one item; preserve an unknown or invalid one whole."""
    if not isinstance(item, dict):
        return make_opaque_message(NAME, item)
    kind = item.get("type", "message")
    if kind == "message":
        return _parse_message(item) or make_opaque_message(NAME, item)
    if not isinstance(kind, str):
        return make_opaque_message(NAME, item)
    parser = _PARSERS.get(kind)
    part = parser(item) if parser is not None else None
    if part is None:
        return _parse_unknown_item(kind, item)
    if isinstance(part, ToolResult):
        return Message("tool", (part,), author="tool", pocket=NATIVE_EXTRAS)
    return Message("assistant", (part,), author="model", pocket=NATIVE_EXTRAS)


def _parse_unknown_item(kind: str, item: dict[str, Any]) -> Message:
    """Preserve an item whole. An item of unknown meaning declares context, so that no edit removes it."""
    part = (Unknown(kind, dump_json(item)),)
    if kind in _TOOL_DEFINITION_ITEMS:
        return Message("system", part, author="harness", pocket=_WHOLE)
    if kind.endswith("_output"):
        return Message("user", part, author="context", pocket=_WHOLE)
    return Message("assistant", part, author="model" if kind in _SERVER_TOOL_ITEMS else "context", pocket=_WHOLE)


def _parse_message(item: dict[str, Any]) -> Message | None:
    role, content = item.get("role"), item.get("content")
    if not isinstance(role, str) or not isinstance(content, str | list):
        return None
    model_role = _ROLES.get(role, "user")
    spoken = model_role == "assistant"
    is_string = isinstance(content, str)
    parts = (Text(content),) if isinstance(content, str) else parse_openai_responses_content(content, spoken=spoken)
    author = infer_message_author(model_role, parts) if role in _ROLES else "harness"
    rest = {key: value for key, value in item.items() if key not in ("type", "content")}
    if role == model_role:
        del rest["role"]
    pocket = make_layout_note(NAME, "" if "type" in item else "untyped", "string" if is_string else "") or NATIVE_EXTRAS
    if rest:
        pocket = VendorExtras(NAME, dump_json(rest), shape=pocket.shape)
    return Message(model_role, parts, author=author, pocket=pocket)


def parse_openai_responses_content(content: list[Any], *, spoken: bool = False) -> tuple[ResultPart, ...]:
    """Parse the pieces of a message or of a tool's output; `spoken` is True if the model wrote them."""
    return tuple([_parse_piece(piece, spoken) for piece in content])


def _parse_piece(piece: Any, spoken: bool) -> ResultPart:
    kind = piece.get("type") if isinstance(piece, dict) else type(piece).__name__
    part: Text | Image | None = None
    if not isinstance(piece, dict):
        part = None
    elif kind in _TEXT_TYPES:
        text = piece.get("refusal" if kind == "refusal" else "text")
        default = "output_text" if spoken else "input_text"
        part = Text(text, make_layout_note(NAME, "" if kind == default else kind)) if isinstance(text, str) else None
    elif isinstance(kind, str) and kind in _MEDIA_FIELDS:
        part = _parse_media(kind, piece)
    with_extras = None if part is None else keep_extra_fields(part, piece, _emit_piece(part, spoken), NAME)
    return with_extras if with_extras is not None else Unknown(str(kind or ""), dump_json(piece))


def _parse_media(kind: str, piece: dict[str, Any]) -> Image | None:
    value = piece.get(_MEDIA_FIELDS[kind])
    if isinstance(value, dict) and kind == "input_audio" and isinstance(value.get("data"), str):
        return Image(f"audio/{value.get('format')}", value["data"])
    if kind == "input_file" and value is None and isinstance(piece.get("file_url"), str):
        return Image("application/pdf", url=piece["file_url"])
    if not isinstance(value, str):
        return None
    image = parse_image_url(value)
    pocket = make_layout_note(NAME, "" if _media_kind(image) == kind else kind)
    return Image(image.media_type, image.data, image.url, pocket)


def _parse_call(item: dict[str, Any]) -> ToolCall | None:
    custom = item["type"] == "custom_tool_call"
    call_id, name, text = item.get("call_id"), item.get("name"), item.get("input" if custom else "arguments")
    if not isinstance(call_id, str) or not isinstance(name, str) or not isinstance(text, str):
        return None
    call = ToolCall(call_id, name, text, VendorExtras(NAME, shape="custom") if custom else None)
    return keep_extra_fields(call, item, _emit_call(call, native=True), NAME)


def _parse_shell(item: dict[str, Any]) -> ToolCall | None:
    key = "call_id" if isinstance(item.get("call_id"), str) else "id"
    if not isinstance(item.get(key), str) or not isinstance(item.get("action"), dict):
        return None
    pocket = make_layout_note(NAME, _SHELL, "" if key == "call_id" else "by-id")
    call = ToolCall(item[key], _SHELL, dump_json(item["action"]), pocket)
    return keep_extra_fields(call, item, _emit_call(call, native=True), NAME)


def _parse_result(item: dict[str, Any]) -> ToolResult | None:
    kind = item["type"].removesuffix("_output")
    key = "id" if kind == f"{_SHELL}_call" and not isinstance(item.get("call_id"), str) else "call_id"
    if not isinstance(item.get(key), str) or "output" not in item:
        return None
    output = item["output"]
    form = "" if isinstance(output, str) else "list" if isinstance(output, list) else "object"
    content: tuple[ResultPart, ...] = (Text(output if form == "" else dump_json(output)),)
    if form == "list":
        content = parse_openai_responses_content(output)
    tool = {"custom_tool_call": "custom", f"{_SHELL}_call": _SHELL}.get(kind, "")
    result = ToolResult(item[key], content, pocket=make_layout_note(NAME, tool, form, "by-id" if key == "id" else ""))
    return keep_extra_fields(result, item, _emit_result(result, ConversionLosses(), native=True), NAME)


def _parse_reasoning(item: dict[str, Any]) -> Thinking | None:
    if not isinstance(item.get("summary"), list | None) or not isinstance(item.get("content"), list | None):
        return None
    signature = item["encrypted_content"] if isinstance(item.get("encrypted_content"), str) else ""
    represented = {"type"} | ({"encrypted_content"} if signature else set())
    rest = {key: value for key, value in item.items() if key not in represented}
    return Thinking(join_reasoning_text(rest), signature, VendorExtras(NAME, dump_json(rest)) if rest else None)


_PARSERS: dict[str, Callable[[dict[str, Any]], ToolCall | ToolResult | Thinking | None]] = {
    "function_call": _parse_call,
    "function_call_output": _parse_result,
    "reasoning": _parse_reasoning,
    "custom_tool_call": _parse_call,
    "custom_tool_call_output": _parse_result,
    "local_shell_call": _parse_shell,
    "local_shell_call_output": _parse_result,
}


def emit_openai_responses(history: History, body: bool | None) -> Emission:
    """Emit items, or a request body if the history came as one or needs one for its tools."""
    losses = ConversionLosses()
    specs = None if is_from_dialect(history, NAME) else parse_tool_specs(history, losses)
    as_body = should_emit_body(history, body, losses, tool_definitions=specs)
    instructions: list[str] = []
    rows: list[Any] = []
    for message in history:
        leading = message.role == "system" and not rows and not is_native(message, NAME)
        if as_body and (leading or get_layout_note(message, NAME) == "instructions"):
            instructions.append(message.text)
        else:
            rows += _emit_items(message, losses)
    if not as_body:
        return Emission(rows, losses.to_problems())
    fields = get_request_fields(history, NAME, losses)
    if instructions:
        fields["instructions"] = "\n\n".join(instructions)
    if specs is None and history.tools:
        fields["tools"] = load_json(history.tools)
    elif specs:
        fields["tools"] = [_emit_tool(spec) for spec in specs]
    return Emission({**fields, "input": _emit_input(history, rows)}, losses.to_problems())


def _emit_tool(spec: ToolSpec) -> dict[str, Any]:
    """Emit a tool definition with `strict` off, which is on by default: few schemas of other APIs meet its rules."""
    tool = {"type": "function", "name": spec.name, "description": spec.description}
    return {**tool, "parameters": spec.schema, "strict": False}


def _emit_input(history: History, rows: list[Any]) -> Any:
    """Return the items, or a string if the input was parsed from one."""
    last = history[-1] if len(history) else None
    if len(rows) == 1 and last is not None and get_layout_note(last, NAME).startswith("input "):
        content = rows[0].get("content")
        return content if isinstance(content, str) else rows
    return rows


def _emit_items(message: Message, losses: ConversionLosses) -> list[Any]:
    """Emit a message as items in order: one for each run of text, call, result and reasoning."""
    if is_opaque_message(message, NAME):
        return [load_opaque_value(message)]
    native = is_native(message, NAME)
    items: list[Any] = []
    pieces: list[Part] = []
    for part in message.parts:
        if isinstance(part, Text | Summary | Image | Unknown):
            pieces += [part] if native or is_convertible_to_items(part, message.role, losses) else []
            continue
        items += [_emit_message(message, pieces, native=native)] if pieces else []
        pieces = []
        if isinstance(part, ToolCall):
            items.append(_emit_call(part, native=native))
        elif isinstance(part, ToolResult):
            items.append(_emit_result(part, losses, native=native))
        elif native:
            items.append(_emit_reasoning(part))
        else:
            losses.add_foreign_part(part)
    empty = native and not message.parts
    return [*items, _emit_message(message, pieces, native=native)] if pieces or empty else items


def _emit_message(message: Message, parts: list[Part], *, native: bool) -> dict[str, Any]:
    rest, notes = get_extra_fields(message, NAME), get_layout_note(message, NAME).split()
    role = rest.get("role")
    if not isinstance(role, str) or _ROLES.get(role, "user") != message.role:
        role = "user" if message.role == "tool" else message.role
    row: dict[str, Any] = {} if "untyped" in notes else {"type": "message"}
    texts = [part.text for part in parts if isinstance(part, Text | Summary)]
    content: Any = "".join(texts)
    if "string" not in notes or not len(texts) == len(parts) < 2:
        content = _emit_pieces(parts, native=native, spoken=message.role == "assistant")
    return merge_extra_fields({**row, "role": role, "content": content}, rest)


def _emit_call(call: ToolCall, *, native: bool) -> dict[str, Any]:
    notes = get_layout_note(call, NAME).split()
    key = "id" if "by-id" in notes else "call_id"
    item: dict[str, Any]
    if not native or not notes:
        arguments = call.arguments if native else encode_call_arguments(call)
        item = {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": arguments}
    elif "custom" in notes:
        item = {"type": "custom_tool_call", "call_id": call.id, "name": call.name, "input": call.arguments}
    else:
        action = parse_json_object(call.arguments)
        exec_action = {"type": "exec", "command": [call.arguments]}
        item = {"type": f"{_SHELL}_call", key: call.id, "action": exec_action if action is None else action}
    return merge_extra_fields(item, get_extra_fields(call, NAME)) if native else item


def _emit_result(result: ToolResult, losses: ConversionLosses, *, native: bool) -> dict[str, Any]:
    notes = get_layout_note(result, NAME).split() if native else []
    kind = "custom_tool_call" if "custom" in notes else f"{_SHELL}_call" if _SHELL in notes else "function_call"
    item: dict[str, Any] = {"type": f"{kind}_output", "id" if "by-id" in notes else "call_id": result.call_id}
    item["output"] = _emit_output(result, notes, losses, native=native)
    return merge_extra_fields(item, get_extra_fields(result, NAME)) if native else item


def _emit_output(result: ToolResult, notes: list[str], losses: ConversionLosses, *, native: bool) -> Any:
    text = format_error_result(result)
    if "object" in notes:
        return decode_json_or_text(text)
    if "list" in notes and not result.is_error:
        return _emit_pieces(result.content, native=native)
    others: list[Part] = []
    for part in result.content:
        if isinstance(part, Unknown) and not native:
            losses.add_foreign_part(part)
        elif not isinstance(part, Text):
            others.append(part)
    texts = [Text(text)] if text else []
    return _emit_pieces([*texts, *others], native=native) if others else text


def _emit_reasoning(part: Thinking) -> dict[str, Any]:
    """Emit reasoning with the original lists if they match the text, otherwise with a new summary."""
    rest = get_extra_fields(part, NAME)
    if join_reasoning_text(rest) != part.text:
        rest.pop("content", None)
        rest["summary"] = [{"type": "summary_text", "text": part.text}] if part.text else []
    item = {"type": "reasoning"} | ({"encrypted_content": part.signature} if part.signature else {})
    return merge_extra_fields(item, rest)


def _emit_pieces(parts: Sequence[Part], *, native: bool, spoken: bool = False) -> list[Any]:
    pieces = [_emit_piece(part, spoken) for part in parts]
    for piece, part in zip(pieces, parts, strict=True) if not native else ():
        if isinstance(part, Image) and "file_data" in piece:
            piece["filename"] = f"file.{part.media_type.rpartition('/')[2]}"
    return pieces


def _emit_piece(part: Part, spoken: bool) -> Any:
    if isinstance(part, Text | Summary):
        kind = get_layout_note(part, NAME) or ("output_text" if spoken else "input_text")
        key = "refusal" if kind == "refusal" else "text"
        return merge_extra_fields({"type": kind, key: part.text}, get_extra_fields(part, NAME))
    if isinstance(part, Image):
        return merge_extra_fields(_emit_media_piece(part), get_extra_fields(part, NAME))
    return load_json(part.data) if isinstance(part, Unknown) else None


def _media_kind(image: Image) -> str:
    if image.media_type.startswith("audio/") and not image.url:
        return "input_audio"
    return "input_image" if image.media_type.startswith("image/") or not image.media_type else "input_file"


def _emit_media_piece(image: Image) -> dict[str, Any]:
    kind = get_layout_note(image, NAME) or _media_kind(image)
    if kind == "input_audio":
        audio_format = image.media_type.partition("/")[2].replace("mpeg", "mp3").removeprefix("x-")
        return {"type": kind, kind: {"data": image.data, "format": audio_format}}
    key = "file_url" if kind == "input_file" and image.url else _MEDIA_FIELDS[kind]
    return {"type": kind, key: format_image_url(image)}


def sniff_openai_responses(value: Any) -> int:
    """Score how likely a value is in this dialect: a body with `input`, an item type or a piece type proves it."""
    if isinstance(value, dict):
        return 3 if isinstance(value.get("input"), str | list) and "messages" not in value else 0
    if not isinstance(value, list) or not all(isinstance(row, dict) for row in value):
        return 0
    kinds = {row["type"] for row in value if isinstance(row.get("type"), str)}
    if kinds & _PARSERS.keys():
        return 3
    contents = (row["content"] for row in value if "role" in row and isinstance(row.get("content"), list))
    pieces = {str(piece.get("type")) for content in contents for piece in content if isinstance(piece, dict)}
    if pieces & {"input_text", "output_text", "input_image", "input_file"}:
        return 3
    return 2 if kinds == {"message"} else 0
