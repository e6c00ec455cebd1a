"""Codec of OpenAI's Chat Completions: content, calls in a separate field, and one message per tool result.

A row is emitted from its parts, then merged with its preserved fields. If a part sets the same key as a preserved field
(`"content": null`, `"tool_calls": []`), the part wins.
"""

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
from thresher.dialects.openai_chat.rows import (
    collect_chat_call_ids,
    compact_text_content,
    fits_one_row,
)
from thresher.dialects.pairing import CallIdAssigner
from thresher.dialects.tool_definitions import parse_tool_specs
from thresher.model import History, Message, Role, VendorExtras
from thresher.model.jsontext import dump_json, load_json
from thresher.model.parts import Image, Part, ResultPart, Summary, Text, Thinking, ToolCall, ToolResult, Unknown

NAME = "openai-chat"
NATIVE_EXTRAS = VendorExtras(NAME)

_ContentParts = tuple[ResultPart, ...]
_LIST_EXTRAS = VendorExtras(NAME, shape="list")
ROLES: dict[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
}
_SIBLING_FIELDS = {key: VendorExtras(NAME, shape=key) for key in ("reasoning_content", "reasoning", "refusal")}
"""Fields next to the content that hold text of the assistant, with the extras of their parts."""
_MEDIA_TYPES = ("image_url", "input_audio", "file")
_AUDIO = {"audio/mpeg": "mp3", "audio/x-wav": "wav"}


def parse_openai_chat(value: Any) -> History:
    """Parse messages, or a request body."""
    rows, rest = split_request_body(NAME, value, "messages")
    pairing = CallIdAssigner(collect_chat_call_ids(rows))
    return make_request_history(NAME, [parse_openai_chat_message(row, pairing) for row in rows], rest)


def parse_openai_chat_message(row: Any, pairing: CallIdAssigner | None = None) -> Message:
    """Parse one message. `pairing` holds the earlier calls. A message of an undocumented kind is kept unchanged."""
    role = row.get("role") if isinstance(row, dict) else None
    content = parse_openai_chat_content(row.get("content")) if isinstance(role, str) else None
    if content is None:
        return make_opaque_message(NAME, row)
    model_role = ROLES.get(str(role), "user")
    if model_role == "tool":
        return _parse_result(row, content, pairing or CallIdAssigner())
    if model_role == "assistant":
        return _parse_assistant(row, content, pairing or CallIdAssigner()) or make_opaque_message(NAME, row)
    author = infer_message_author(model_role, content) if role in ROLES else "harness"
    return Message(model_role, content, author=author, pocket=_row_extras(row, model_role, set()))


def _parse_result(row: dict[str, Any], content: _ContentParts, pairing: CallIdAssigner) -> Message:
    name = row["name"] if isinstance(row.get("name"), str) else ""
    given_id = row["tool_call_id"] if isinstance(row.get("tool_call_id"), str) else ""
    call_id = pairing.match_result(name, given_id)
    represented = ({"name"} if name else set()) | ({"tool_call_id"} if call_id == given_id else set())
    pocket = _row_extras(row, "tool", represented, "" if call_id == given_id else "no-id")
    return Message("tool", (ToolResult(call_id, content, name=name),), author="tool", pocket=pocket)


def _parse_assistant(row: dict[str, Any], content: _ContentParts, pairing: CallIdAssigner) -> Message | None:
    entries, legacy = row.get("tool_calls"), row.get("function_call")
    if not isinstance(entries, list | None) or not isinstance(legacy, dict | None):
        return None
    calls = [_parse_call(entry, pairing) for entry in entries or ()]
    represented = {key for key in _SIBLING_FIELDS if isinstance(row.get(key), str) and row[key]}
    represented |= {"tool_calls"} if calls else set()
    if legacy is not None:
        calls.append(_parse_function_call(legacy, pairing))
        represented.add("function_call")
    thinking = [
        Thinking(row[k], pocket=_SIBLING_FIELDS[k]) for k in _SIBLING_FIELDS if k in represented and k != "refusal"
    ]
    refusal = [Text(row["refusal"], _SIBLING_FIELDS["refusal"])] if "refusal" in represented else []
    parts = (*thinking, *content, *refusal, *calls)
    return Message("assistant", parts, author="model", pocket=_row_extras(row, "assistant", represented))


def _parse_call(entry: Any, pairing: CallIdAssigner) -> ToolCall | Unknown:
    unknown = Unknown("tool_calls", dump_json(entry), VendorExtras(NAME, shape="call"))
    kind = "custom" if isinstance(entry, dict) and isinstance(entry.get("custom"), dict) else "function"
    inner = entry.get(kind) if isinstance(entry, dict) else None
    name = inner.get("name") if isinstance(inner, dict) else None
    arguments = inner.get("input" if kind == "custom" else "arguments") if isinstance(inner, dict) else None
    if not isinstance(name, str) or not isinstance(arguments, str | dict):
        return unknown
    given_id = entry["id"] if isinstance(entry.get("id"), str) else ""
    notes = ["custom" if kind == "custom" else "", "" if "type" in entry else "untyped"]
    notes += ["" if isinstance(arguments, str) else "object", "" if given_id else "no-id"]
    text = arguments if isinstance(arguments, str) else dump_json(arguments)
    call = ToolCall(given_id, name, text, make_layout_note(NAME, *notes))
    with_extras = keep_extra_fields(call, entry, _emit_call(call, native=True), NAME)
    if with_extras is None:
        return unknown
    return ToolCall(pairing.assign_call_id(name, given_id), name, text, with_extras.pocket)


def _parse_function_call(entry: dict[str, Any], pairing: CallIdAssigner) -> ToolCall | Unknown:
    name, arguments = entry.get("name"), entry.get("arguments")
    if not isinstance(name, str) or not isinstance(arguments, str):
        return Unknown("function_call", dump_json(entry), VendorExtras(NAME, shape="function_call"))
    call = ToolCall(pairing.assign_call_id(name), name, arguments, VendorExtras(NAME, shape="function_call"))
    return keep_extra_fields(call, entry, {"name": name, "arguments": arguments}, NAME) or call


def _row_extras(row: dict[str, Any], role: Role, represented: set[str], note: str = "") -> VendorExtras:
    """Return the fields of a row that its parts do not represent."""
    rest = {key: value for key, value in row.items() if key not in represented}
    if rest["role"] == role:
        del rest["role"]
    content = rest.get("content")
    if content:
        del rest["content"]
    shape = f"{note} list".strip() if content and isinstance(content, list) else note
    absent = () if "content" in row else ("content",)
    if not (rest or absent or note):
        return _LIST_EXTRAS if shape else NATIVE_EXTRAS
    return VendorExtras(NAME, dump_json(rest) if rest else "", absent, shape)


def parse_openai_chat_content(content: Any) -> _ContentParts | None:
    """Parse content: a string, pieces, or null; None for anything else."""
    if isinstance(content, str):
        return (Text(content),) if content else ()
    if isinstance(content, list):
        return tuple([_parse_piece(piece) for piece in content])
    return () if content is None else None


def _parse_piece(piece: Any) -> ResultPart:
    if isinstance(piece, str):
        return Text(piece, VendorExtras(NAME, shape="bare"))
    if not isinstance(piece, dict):
        return Unknown(type(piece).__name__, dump_json(piece))
    kind = piece.get("type")
    part: Text | Image | None = None
    if kind == "text" and isinstance(piece.get("text"), str):
        part = Text(piece["text"])
    elif kind == "refusal" and isinstance(piece.get("refusal"), str):
        part = Text(piece["refusal"], VendorExtras(NAME, shape="refusal-piece"))
    elif kind in _MEDIA_TYPES and isinstance(piece.get(kind), dict):
        part = _parse_media(kind, piece[kind])
    with_extras = None if part is None else keep_extra_fields(part, piece, _emit_piece(part), NAME)
    return with_extras if with_extras is not None else Unknown(str(kind or ""), dump_json(piece))


def _parse_media(kind: str, inner: dict[str, Any]) -> Image | None:
    value = inner.get({"image_url": "url", "file": "file_data"}.get(kind, "data"))
    if not isinstance(value, str):
        return None
    audio = kind == "input_audio"
    image = Image(f"audio/{inner.get('format')}", value) if audio else parse_image_url(value)
    if _media_kind(image) == kind:
        return image
    return Image(image.media_type, image.data, image.url, VendorExtras(NAME, shape=kind))


def emit_openai_chat(history: History, body: bool | None) -> Emission:
    """Emit messages, or a request body if the history came as one or needs one for its tools."""
    losses = ConversionLosses()
    writer = _RowWriter(losses)
    for message in history:
        if is_native(message, NAME) and fits_one_row(message):
            writer.add_native(message)
        else:
            writer.add_foreign(message)
    specs = None if is_from_dialect(history, NAME) else parse_tool_specs(history, losses)
    if not should_emit_body(history, body, losses, tool_definitions=specs):
        return Emission(writer.finish(), losses.to_problems())
    fields = get_request_fields(history, NAME, losses)
    if specs is None and history.tools:
        fields["tools"] = load_json(history.tools)
    elif specs:
        tools = ({"name": s.name, "description": s.description, "parameters": s.schema} for s in specs)
        fields["tools"] = [{"type": "function", "function": tool} for tool in tools]
    return Emission({**fields, "messages": writer.finish()}, losses.to_problems())


class _RowWriter:
    """Builder of the rows. Images in tool results follow in a user row after the last consecutive result."""

    def __init__(self, losses: ConversionLosses) -> None:
        self._losses = losses
        self._rows: list[Any] = []
        self._images: list[Any] = []
        self._open_content: list[Any] | None = None
        """Content of the last row if the next foreign assistant message may extend it, otherwise None."""

    def finish(self) -> list[Any]:
        self._flush_images()
        return self._rows

    def add_native(self, message: Message) -> None:
        if message.role != "tool":
            self._flush_images()
        self._append_row(load_opaque_value(message) if is_opaque_message(message, NAME) else _emit_native(message))

    def add_foreign(self, message: Message) -> None:
        pieces: list[Any] = []
        calls: list[Any] = []
        for part in message.parts:
            match part:
                case ToolResult():
                    self._add_result(part)
                case ToolCall():
                    calls.append(_emit_call(part, native=False))
                case Thinking() | Unknown():
                    self._losses.add_foreign_part(part)
                case Image() if message.role in ("assistant", "system"):
                    self._losses.add(f"image in a message of the {message.role}", "removed")
                case Text() | Summary() | Image():
                    pieces += _emit_foreign_piece(part, self._losses)
        if not (pieces or calls):
            return
        self._flush_images()
        if message.role == "assistant":
            self._add_assistant(pieces, calls)
        else:
            role = "system" if message.role == "system" else "user"
            self._append_row({"role": role, "content": compact_text_content(pieces)})

    def _add_assistant(self, pieces: list[Any], calls: list[Any]) -> None:
        content = [*(self._open_content or ()), *pieces]
        if self._open_content is None:
            self._append_row({"role": "assistant"})
        self._open_content = content
        self._rows[-1]["content"] = compact_text_content(content)
        if calls:
            self._rows[-1].setdefault("tool_calls", []).extend(calls)

    def _add_result(self, result: ToolResult) -> None:
        images = [part for part in result.content if isinstance(part, Image)]
        text = format_error_result(result)
        if images:
            self._losses.add("image in a tool result", "written as a user message after the results")
            self._images.append({"type": "text", "text": f"[image of tool result {result.call_id}]"})
            self._images += [piece for image in images for piece in _emit_foreign_piece(image, self._losses)]
            text = text or "[image: see the next user message]"
        for part in result.content:
            if isinstance(part, Unknown):
                self._losses.add_foreign_part(part)
        self._append_row({"role": "tool", "tool_call_id": result.call_id, "content": text})

    def _flush_images(self) -> None:
        if self._images:
            self._append_row({"role": "user", "content": self._images})
            self._images = []

    def _append_row(self, row: Any) -> None:
        self._rows.append(row)
        self._open_content = None


def _emit_native(message: Message) -> dict[str, Any]:
    rest, notes = get_extra_fields(message, NAME), get_layout_note(message, NAME).split()
    role = rest.get("role")
    known = isinstance(role, str) and ROLES.get(role, "user") == message.role
    row: dict[str, Any] = {"role": role if known else message.role}
    content: tuple[Part, ...] = message.parts
    for result in message.results:
        if "no-id" not in notes:
            row["tool_call_id"] = result.call_id
        if result.name:
            row["name"] = result.name
        # Parsing never sets the error flag, which this API lacks, so an edit has set it.
        others = (part for part in result.content if not isinstance(part, Text))
        content = (Text(format_error_result(result)), *others) if result.is_error else result.content
    if message.role == "assistant":
        content = tuple([part for part in message.parts if not _put_sibling_field(part, row)])
    pieces = [_emit_piece(part) for part in content]
    if pieces:
        row["content"] = pieces if "list" in notes else compact_text_content(pieces)
    elif "content" not in rest and message.pocket and "content" not in message.pocket.absent:
        row["content"] = None if "tool_calls" in row else ""
    return merge_extra_fields(row, rest)


def _put_sibling_field(part: Part, row: dict[str, Any]) -> bool:
    """Store thinking, a call or a refusal in a field of the row; return False for a part that is content."""
    shape = get_layout_note(part, NAME)
    if isinstance(part, Thinking):
        key = shape or "reasoning_content"
        row[key] = f"{row[key]}\n\n{part.text}" if key in row else part.text
    elif shape == "function_call" and shape not in row and isinstance(part, ToolCall):
        row[shape] = merge_extra_fields({"name": part.name, "arguments": part.arguments}, get_extra_fields(part, NAME))
    elif shape == "function_call" and isinstance(part, Unknown):
        row[shape] = load_json(part.data)
    elif isinstance(part, ToolCall):
        row.setdefault("tool_calls", []).append(_emit_call(part, native=True))
    elif shape == "call" and isinstance(part, Unknown):
        row.setdefault("tool_calls", []).append(load_json(part.data))
    elif shape == "refusal" and shape not in row and isinstance(part, Text):
        row[shape] = part.text
    else:
        return False
    return True


def _emit_call(call: ToolCall, *, native: bool) -> dict[str, Any]:
    notes = get_layout_note(call, NAME).split() if native else []
    arguments: Any = call.arguments if native else encode_call_arguments(call)
    if "object" in notes:
        value = parse_json_object(call.arguments)
        arguments = arguments if value is None else value
    kind, key = ("custom", "input") if "custom" in notes else ("function", "arguments")
    entry: dict[str, Any] = {"id": call.id, "type": kind, kind: {"name": call.name, key: arguments}}
    if "no-id" in notes:
        del entry["id"]
    if "untyped" in notes:
        del entry["type"]
    return merge_extra_fields(entry, get_extra_fields(call, NAME)) if native else entry


def _emit_piece(part: Part) -> Any:
    if isinstance(part, Text | Summary):
        shape = get_layout_note(part, NAME)
        if shape == "bare":
            return part.text
        kind = "refusal" if shape == "refusal-piece" else "text"
        return merge_extra_fields({"type": kind, kind: part.text}, get_extra_fields(part, NAME))
    if isinstance(part, Image):
        return merge_extra_fields(_emit_media_piece(part), get_extra_fields(part, NAME))
    return load_json(part.data) if isinstance(part, Unknown) else None


def _emit_foreign_piece(part: Text | Summary | Image, losses: ConversionLosses) -> list[Any]:
    if not isinstance(part, Image):
        return [{"type": "text", "text": part.text}] if part.text else []
    piece = _emit_media_piece(part)
    if piece["type"] == "file":
        if part.url:
            losses.add("document by URL", "its URL is written as text")
            return [{"type": "text", "text": part.url}]
        piece["file"]["filename"] = f"file.{part.media_type.rpartition('/')[2]}"
    return [piece]


def _media_kind(image: Image) -> str:
    if image.media_type.startswith("audio/") and not image.url:
        return "input_audio"
    return "image_url" if image.media_type.startswith("image/") or not image.media_type else "file"


def _emit_media_piece(image: Image) -> dict[str, Any]:
    kind = get_layout_note(image, NAME) or _media_kind(image)
    if kind == "input_audio":
        audio_format = _AUDIO.get(image.media_type, image.media_type.partition("/")[2])
        return {"type": kind, kind: {"data": image.data, "format": audio_format}}
    return {"type": kind, kind: {"file_data" if kind == "file" else "url": format_image_url(image)}}
