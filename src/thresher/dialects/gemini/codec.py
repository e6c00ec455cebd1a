"""Codec of Gemini's generateContent.

A message is a "content" that consists of parts. Tool results are parts of a user content. System text is a separate
field. Ids are optional, so responses are matched to calls as the API does: by id if present, otherwise by name and
order. A generated id has the layout note `no-id` and is not emitted. Keys have two spellings; the layout note `snake`
selects snake_case.
"""

from collections.abc import Iterator
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
    decode_call_arguments,
    find_result_tool_name,
    index_tool_names,
    infer_message_author,
    is_blank_message,
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
from thresher.dialects.pairing import CallIdAssigner
from thresher.dialects.tool_definitions import parse_tool_specs
from thresher.model import History, Message, Role, VendorExtras
from thresher.model.jsontext import dump_json, load_json
from thresher.model.parts import Image, Part, ResultPart, Summary, Text, Thinking, ToolCall, ToolResult, Unknown

NAME = "gemini"
NATIVE_EXTRAS = VendorExtras(NAME)

_CALL_KEYS = ("functionCall", "function_call")
_RESPONSE_KEYS = ("functionResponse", "function_response")
_INLINE_DATA_KEYS = ("inlineData", "inline_data")
_FILE_DATA_KEYS = ("fileData", "file_data")
_CODE_KEYS = ("executableCode", "executable_code", "codeExecutionResult", "code_execution_result")
_PART_KEYS = frozenset({"text", *_CALL_KEYS, *_RESPONSE_KEYS, *_INLINE_DATA_KEYS, *_FILE_DATA_KEYS, *_CODE_KEYS})
"""Keys that determine the type of a part. A valid part has exactly one of them."""
_OUTPUT_KEYS = ("output", "result", "content")
"""Keys under which tools return their output; the first one is documented by the API."""
_SYSTEM_KEYS = ("systemInstruction", "system_instruction")


def parse_gemini(value: Any) -> History:
    """Parse contents, or a request body."""
    rows, rest = split_request_body(NAME, value, "contents")
    pairing = CallIdAssigner(_collect_call_ids(rows))
    messages = [parse_gemini_content(row, pairing) for row in rows]
    for key in [key for key in _SYSTEM_KEYS if rest and key in rest]:
        system = _parse_system(key, rest[key]) if rest else None
        if rest and system is not None:
            del rest[key]
            messages.insert(0, system)
    return make_request_history(NAME, messages, rest)


def _collect_call_ids(rows: list[Any]) -> Iterator[str]:
    for row in rows:
        parts = row.get("parts") if isinstance(row, dict) else None
        for part in parts if isinstance(parts, list) else ():
            for key in (*_CALL_KEYS, *_RESPONSE_KEYS) if isinstance(part, dict) else ():
                if isinstance(part.get(key), dict) and isinstance(part[key].get("id"), str):
                    yield part[key]["id"]


ROLES = frozenset({"user", "model", "function", "system"})


def parse_gemini_content(row: Any, pairing: CallIdAssigner) -> Message:
    """Parse one content; preserve an undocumented one whole. `pairing` holds the earlier calls."""
    parts = row.get("parts") if isinstance(row, dict) else None
    if not isinstance(parts, list) or not isinstance(row.get("role"), str | None):
        return make_opaque_message(NAME, row)
    parsed = tuple([_parse_part(part, pairing) for part in parts])
    role = _history_role(row.get("role"), parsed)
    rest = {key: value for key, value in row.items() if key != "parts"}
    absent = () if "role" in row else ("role",)
    if rest.get("role") == _api_role(role):
        del rest["role"]
    pocket = VendorExtras(NAME, dump_json(rest) if rest else "", absent) if rest or absent else NATIVE_EXTRAS
    author = infer_message_author(role, parsed) if (row.get("role") or "user") in ROLES else "harness"
    return Message(role, parsed, author=author, pocket=pocket)


def _history_role(role: Any, parts: tuple[Part, ...]) -> Role:
    if role == "model":
        return "assistant"
    if role == "system":
        return "system"
    return "tool" if parts and all(type(part) is ToolResult for part in parts) else "user"


def _parse_system(key: str, system: Any) -> Message | None:
    if isinstance(system, str):
        pocket = VendorExtras(NAME, shape=f"{key} string")
        return Message("system", (Text(system),), author="harness", pocket=pocket)
    if not isinstance(system, dict) or not isinstance(system.get("parts"), list):
        return None
    parts = tuple([_parse_part(part, CallIdAssigner()) for part in system["parts"]])
    rest = {name: value for name, value in system.items() if name != "parts"}
    pocket = VendorExtras(NAME, dump_json(rest) if rest else "", shape=key)
    return Message("system", parts, author="harness", pocket=pocket)


def _parse_part(value: Any, pairing: CallIdAssigner) -> Part:
    if isinstance(value, str):
        return Text(value, VendorExtras(NAME, shape="bare"))
    if not isinstance(value, dict):
        return Unknown(type(value).__name__, dump_json(value))
    # ADK writes every key, with null for those that do not apply.
    keys = [key for key in value if key in _PART_KEYS and value[key] is not None]
    part: Part | None = None
    if len(keys) == 1:
        part = _parse_known_part(keys[0], value, pairing)
    return part if part is not None else Unknown("+".join(keys), dump_json(value))


def _parse_known_part(key: str, value: dict[str, Any], pairing: CallIdAssigner) -> Part | None:
    inner = value[key]
    if key == "text":
        return _parse_text(value) if isinstance(inner, str) else None
    if not isinstance(inner, dict):
        return None
    if key in _CALL_KEYS:
        return _parse_call(key, value, pairing)
    if key in _RESPONSE_KEYS:
        return _parse_response(key, value, pairing)
    return _parse_media(key, value) if key in _INLINE_DATA_KEYS or key in _FILE_DATA_KEYS else None


def _parse_text(value: dict[str, Any]) -> Text | Thinking | None:
    text = value["text"]
    if len(value) == 1:
        return Text(text)
    if value.get("thought") is not True:
        return keep_extra_fields(Text(text), value, {"text": text}, NAME)
    key = "thought_signature" if "thought_signature" in value else "thoughtSignature"
    signature = value[key] if isinstance(value.get(key), str) else ""
    part = Thinking(text, signature, make_layout_note(NAME, "snake" if "_" in key else ""))
    return keep_extra_fields(part, value, _emit_thinking(part), NAME)


def _parse_call(key: str, value: dict[str, Any], pairing: CallIdAssigner) -> ToolCall | None:
    inner = value[key]
    name, arguments, given_id = inner.get("name"), inner.get("args"), inner.get("id")
    if not isinstance(name, str) or not isinstance(arguments, dict | None):
        return None
    given_id = given_id if isinstance(given_id, str) else ""
    notes = ("snake" if "_" in key else "", "" if given_id else "no-id", "no-args" if arguments is None else "")
    call = ToolCall(given_id, name, dump_json(arguments or {}), make_layout_note(NAME, *notes))
    with_extras = keep_extra_fields(call, value, _emit_call(call, ConversionLosses()), NAME)
    return with_extras and ToolCall(pairing.assign_call_id(name, given_id), name, call.arguments, with_extras.pocket)


def _parse_response(key: str, value: dict[str, Any], pairing: CallIdAssigner) -> ToolResult | None:
    inner = value[key]
    name, response, given_id = inner.get("name"), inner.get("response"), inner.get("id")
    media = inner.get("parts")
    if not isinstance(name, str) or not name or not isinstance(media, list | None):
        return None
    if not isinstance(response, dict | None):
        return None
    given_id = given_id if isinstance(given_id, str) else ""
    call_id = pairing.match_result(name, given_id)
    texts, failed, note = _parse_output(response)
    content: list[ResultPart] = [*texts]
    for item in media or ():
        part = _parse_part(item, CallIdAssigner())
        content.append(part if isinstance(part, Image) else Unknown("parts", dump_json(item)))
    notes = ("snake" if "_" in key else "", "" if call_id == given_id else "no-id", note)
    result = ToolResult(call_id, tuple(content), failed, name, make_layout_note(NAME, *notes))
    return keep_extra_fields(result, value, _emit_response(result, name), NAME)


def _parse_output(response: dict[str, Any] | None) -> tuple[tuple[Text, ...], bool, str]:
    """Parse a response into its texts, an error flag, and a layout note."""
    if response is None:
        return (), False, "no-response"
    if len(response) == 1:
        (key, text), *_ = response.items()
        if isinstance(text, str) and (key == "error" or key in _OUTPUT_KEYS):
            return (Text(text),), key == "error", "" if key in ("error", "output") else key
    return (Text(dump_json(response)),), response.keys() == {"error"}, "object"


def _parse_media(key: str, value: dict[str, Any]) -> Image | None:
    inner, snake = value[key], "_" in key
    kind = inner.get("mime_type" if snake else "mimeType", "")
    data = inner.get("data" if key in _INLINE_DATA_KEYS else "file_uri" if snake else "fileUri")
    if not isinstance(kind, str) or not isinstance(data, str):
        return None
    pocket = make_layout_note(NAME, "snake" if snake else "")
    image = Image(kind, data, pocket=pocket) if key in _INLINE_DATA_KEYS else Image(kind, url=data, pocket=pocket)
    return keep_extra_fields(image, value, _emit_media(image), NAME)


def emit_gemini(history: History, body: bool | None) -> Emission:
    """Emit contents, or a request body if the history came as one or needs one for its system text and tools."""
    losses = ConversionLosses()
    writer = _ContentWriter(index_tool_names(history), losses)
    system: list[Message] = []
    for message in history:
        native = is_native(message, NAME)
        shaped = get_layout_note(message, NAME).startswith(_SYSTEM_KEYS)
        if shaped or (message.role == "system" and not native and not writer.rows):
            system += [] if is_blank_message(message) and not native else [message]
        elif native:
            writer.add_native(message)
        else:
            writer.add_foreign(message)
    specs = None if is_from_dialect(history, NAME) else parse_tool_specs(history, losses)
    if not should_emit_body(history, body, losses, system_text=system, tool_definitions=specs):
        return Emission(writer.rows, losses.to_problems())
    fields = get_request_fields(history, NAME, losses)
    for message in system:
        _add_system(message, fields, writer)
    if specs is None and history.tools:
        fields["tools"] = load_json(history.tools)
    elif specs:
        tools = [{"name": s.name, "description": s.description, "parametersJsonSchema": s.schema} for s in specs]
        fields["tools"] = [{"functionDeclarations": tools}]
    return Emission({**fields, "contents": writer.rows}, losses.to_problems())


class _ContentWriter:
    """Builder of the contents. Adjacent foreign messages of one role are merged."""

    def __init__(self, names: dict[str, str], losses: ConversionLosses) -> None:
        self.rows: list[Any] = []
        self._names = names
        self._losses = losses
        self._merging = False

    def add_native(self, message: Message) -> None:
        self._merging = False
        if is_opaque_message(message, NAME):
            self.rows.append(load_opaque_value(message))
            return
        rest = get_extra_fields(message, NAME)
        row: dict[str, Any] = {"role": _api_role(message.role), "parts": self.emit_parts(message)}
        had_no_role = message.pocket is not None and "role" in message.pocket.absent
        # Keep an original role only while it matches the message's current role.
        if ("role" in rest or had_no_role) and _history_role(rest.get("role"), message.parts) == message.role:
            del row["role"]
        self.rows.append(merge_extra_fields(row, rest))

    def add_foreign(self, message: Message) -> None:
        parts = self.emit_parts(message)
        if not parts:
            return
        if message.role == "system":
            self._losses.add("system text in the middle of the conversation", "written as a user message")
        role = _api_role(message.role)
        if not self._merging or self.rows[-1]["role"] != role:
            self.rows.append({"role": role, "parts": []})
        row_parts = self.rows[-1]["parts"]
        row_parts += parts
        row_parts.sort(key=lambda part: role == "user" and "functionResponse" not in part)
        self._merging = True

    def emit_parts(self, message: Message) -> list[Any]:
        """Emit the parts of a message."""
        if is_native(message, NAME):
            return [self._emit_native_part(part) for part in message.parts]
        return [written for part in message.parts for written in self._emit_foreign_part(part)]

    def _emit_native_part(self, part: Part) -> Any:
        match part:
            case Text() | Summary():
                bare = get_layout_note(part, NAME) == "bare"
                return part.text if bare else merge_extra_fields({"text": part.text}, get_extra_fields(part, NAME))
            case Thinking():
                return _emit_thinking(part)
            case ToolCall():
                return _emit_call(part, self._losses)
            case ToolResult():
                return _emit_response(part, find_result_tool_name(part, self._names))
            case Image():
                return _emit_media(part)
            case Unknown():
                return load_json(part.data)

    def _emit_foreign_part(self, part: Part) -> list[Any]:
        if isinstance(part, Thinking | Unknown):
            self._losses.add_foreign_part(part)
            return []
        if not isinstance(part, ToolResult):
            return [] if isinstance(part, Text | Summary) and not part.text else [self._emit_native_part(part)]
        for inner in part.content:
            if isinstance(inner, Unknown):
                self._losses.add_foreign_part(inner)
        images = [inner for inner in part.content if isinstance(inner, Image)]
        if images:
            self._losses.add("image in a tool result", "written as a separate part after the function response")
        texts = tuple([inner for inner in part.content if isinstance(inner, Text)])
        plain = ToolResult(part.call_id, texts, part.is_error)
        return [_emit_response(plain, find_result_tool_name(part, self._names)), *map(_emit_media, images)]


def _add_system(message: Message, fields: dict[str, Any], writer: _ContentWriter) -> None:
    key, *is_string = get_layout_note(message, NAME).split() or [_SYSTEM_KEYS[0]]
    parts = writer.emit_parts(message)
    if is_string and len(parts) == 1 and isinstance(message.parts[0], Text):
        fields[key] = message.parts[0].text
        return
    before = fields[key]["parts"] if isinstance(fields.get(key), dict) and "parts" in fields[key] else []
    fields[key] = merge_extra_fields({"parts": [*before, *parts]}, get_extra_fields(message, NAME))


def _emit_thinking(part: Thinking) -> dict[str, Any]:
    value: dict[str, Any] = {"text": part.text, "thought": True}
    if part.signature:
        snake = "snake" in get_layout_note(part, NAME)
        value["thought_signature" if snake else "thoughtSignature"] = part.signature
    return merge_extra_fields(value, get_extra_fields(part, NAME))


def _emit_call(call: ToolCall, losses: ConversionLosses) -> dict[str, Any]:
    notes = get_layout_note(call, NAME).split()
    inner = {"id": call.id, "name": call.name, "args": decode_call_arguments(call, losses)}
    if "no-id" in notes:
        del inner["id"]
    if "no-args" in notes and not inner["args"]:
        del inner["args"]
    return merge_extra_fields({_CALL_KEYS["snake" in notes]: inner}, get_extra_fields(call, NAME))


def _emit_response(result: ToolResult, name: str) -> dict[str, Any]:
    notes = get_layout_note(result, NAME).split()
    inner: dict[str, Any] = {"id": result.call_id, "name": name}
    if "no-id" in notes:
        del inner["id"]
    media = [part for part in result.content if not isinstance(part, Text)]
    if "no-response" not in notes or len(media) < len(result.content):
        answer = parse_json_object(result.text) if "object" in notes else None
        key = "error" if result.is_error else next((key for key in _OUTPUT_KEYS if key in notes), "output")
        inner["response"] = {key: result.text} if answer is None else answer
    if media:
        inner["parts"] = [_emit_media(part) if isinstance(part, Image) else load_json(part.data) for part in media]
    return merge_extra_fields({_RESPONSE_KEYS["snake" in notes]: inner}, get_extra_fields(result, NAME))


def _emit_media(image: Image) -> dict[str, Any]:
    snake = get_layout_note(image, NAME) == "snake"
    kind = {"mime_type" if snake else "mimeType": image.media_type} if image.media_type else {}
    if image.url:
        value = {_FILE_DATA_KEYS[snake]: kind | {"file_uri" if snake else "fileUri": image.url}}
    else:
        value = {_INLINE_DATA_KEYS[snake]: kind | {"data": image.data}}
    return merge_extra_fields(value, get_extra_fields(image, NAME))


def _api_role(role: Role) -> str:
    return "model" if role == "assistant" else "user"


def sniff_gemini(value: Any) -> int:
    """Score how likely a value is in this dialect: only this dialect has contents with parts."""
    rows = value.get("contents") if isinstance(value, dict) else value
    if not isinstance(rows, list) or not (rows or isinstance(value, dict)):
        return 0
    roles = ("user", "model", "function", None)
    fits = (isinstance(row, dict) and isinstance(row.get("parts"), list) and row.get("role") in roles for row in rows)
    return 3 if all(fits) else 0
