"""Gemini's generateContent: contents of parts; tool results are parts of a user content; system stands apart.

Ids are optional here, so calls and responses are paired as the API does it: by id where there is one, else by
name and order. A made-up id is noted and not written. Keys have two spellings; the note `snake` is for one.
"""

from collections.abc import Iterator
from typing import Any

from thresher.formats import dialect
from thresher.formats.dialect import Losses, Pairing, keep_rest, noted, over_rest, rest_of, shape_of
from thresher.formats.wire import Emission, WireFormat
from thresher.model import History, Message, Pocket, Role
from thresher.model.jsontext import dump, load
from thresher.model.parts import (
    Image,
    Part,
    ResultPart,
    Summary,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Unknown,
)

NAME = "gemini"
NATIVE = Pocket(NAME)

_CALLS = ("functionCall", "function_call")
_RESPONSES = ("functionResponse", "function_response")
_INLINE = ("inlineData", "inline_data")
_FILES = ("fileData", "file_data")
_OTHERS = ("executableCode", "executable_code", "codeExecutionResult", "code_execution_result")
_DATA = frozenset({"text", *_CALLS, *_RESPONSES, *_INLINE, *_FILES, *_OTHERS})
"""Keys that say what a part is; it has one of them."""
_ANSWERS = ("output", "result", "content")
"""Keys under which tools put their words, the API's own first."""
_SYSTEM = ("systemInstruction", "system_instruction")


def parse(value: Any) -> History:
    """Contents, or a request body, to a history."""
    rows, rest = dialect.split_body(NAME, value, "contents")
    pairing = Pairing(_given_ids(rows))
    messages = [parse_content(row, pairing) for row in rows]
    for key in [key for key in _SYSTEM if rest and key in rest]:
        system = _parse_system(key, rest[key]) if rest else None
        if rest and system is not None:
            del rest[key]
            messages.insert(0, system)
    return dialect.make_history(NAME, messages, rest)


def _given_ids(rows: list[Any]) -> Iterator[str]:
    for row in rows:
        parts = row.get("parts") if isinstance(row, dict) else None
        for part in parts if isinstance(parts, list) else ():
            for key in (*_CALLS, *_RESPONSES) if isinstance(part, dict) else ():
                if isinstance(part.get(key), dict) and isinstance(part[key].get("id"), str):
                    yield part[key]["id"]


def parse_content(row: Any, pairing: Pairing) -> Message:
    """One content; one not as the API documents it is kept whole. `pairing` knows the calls before it."""
    parts = row.get("parts") if isinstance(row, dict) else None
    if not isinstance(parts, list) or not isinstance(row.get("role"), str | None):
        return dialect.whole_message(NAME, row)
    parsed = tuple([_parse_part(part, pairing) for part in parts])
    role = _model_role(row.get("role"), parsed)
    rest = {key: value for key, value in row.items() if key != "parts"}
    absent = () if "role" in row else ("role",)
    if rest.get("role") == _wire_role(role):
        del rest["role"]
    pocket = Pocket(NAME, dump(rest) if rest else "", absent) if rest or absent else NATIVE
    return Message(role, parsed, author=dialect.author_for(role, parsed), pocket=pocket)


def _model_role(role: Any, parts: tuple[Part, ...]) -> Role:
    if role == "model":
        return "assistant"
    if role == "system":
        return "system"
    return "tool" if parts and all(type(part) is ToolResult for part in parts) else "user"


def _parse_system(key: str, system: Any) -> Message | None:
    if isinstance(system, str):
        pocket = Pocket(NAME, shape=f"{key} string")
        return Message("system", (Text(system),), author="harness", pocket=pocket)
    if not isinstance(system, dict) or not isinstance(system.get("parts"), list):
        return None
    parts = tuple([_parse_part(part, Pairing()) for part in system["parts"]])
    rest = {name: value for name, value in system.items() if name != "parts"}
    pocket = Pocket(NAME, dump(rest) if rest else "", shape=key)
    return Message("system", parts, author="harness", pocket=pocket)


def _parse_part(value: Any, pairing: Pairing) -> Part:
    if isinstance(value, str):
        return Text(value, Pocket(NAME, shape="bare"))
    if not isinstance(value, dict):
        return Unknown(type(value).__name__, dump(value))
    # ADK writes every key and null for those that are not meant.
    keys = [key for key in value if key in _DATA and value[key] is not None]
    part: Part | None = None
    if len(keys) == 1:
        part = _read(keys[0], value, pairing)
    return part if part is not None else Unknown("+".join(keys), dump(value))


def _read(key: str, value: dict[str, Any], pairing: Pairing) -> Part | None:
    inner = value[key]
    if key == "text":
        return _parse_text(value) if isinstance(inner, str) else None
    if not isinstance(inner, dict):
        return None
    if key in _CALLS:
        return _parse_call(key, value, pairing)
    if key in _RESPONSES:
        return _parse_response(key, value, pairing)
    return _parse_media(key, value) if key in _INLINE or key in _FILES else None


def _parse_text(value: dict[str, Any]) -> Text | Thinking | None:
    text = value["text"]
    if len(value) == 1:
        return Text(text)
    if value.get("thought") is not True:
        return keep_rest(Text(text), value, {"text": text}, NAME)
    key = "thought_signature" if "thought_signature" in value else "thoughtSignature"
    signature = value[key] if isinstance(value.get(key), str) else ""
    part = Thinking(text, signature, noted(NAME, "snake" if "_" in key else ""))
    return keep_rest(part, value, _thinking(part), NAME)


def _parse_call(key: str, value: dict[str, Any], pairing: Pairing) -> ToolCall | None:
    inner = value[key]
    name, arguments, given = inner.get("name"), inner.get("args"), inner.get("id")
    if not isinstance(name, str) or not isinstance(arguments, dict | None):
        return None
    given = given if isinstance(given, str) else ""
    notes = ("snake" if "_" in key else "", "" if given else "no-id", "no-args" if arguments is None else "")
    call = ToolCall(given, name, dump(arguments or {}), noted(NAME, *notes))
    kept = keep_rest(call, value, _call(call, Losses()), NAME)
    return kept and ToolCall(pairing.call(name, given), name, call.arguments, kept.pocket)


def _parse_response(key: str, value: dict[str, Any], pairing: Pairing) -> ToolResult | None:
    inner = value[key]
    name, response, given = inner.get("name"), inner.get("response"), inner.get("id")
    media = inner.get("parts")
    if not isinstance(name, str) or not name or not isinstance(media, list | None):
        return None
    if not isinstance(response, dict | None):
        return None
    given = given if isinstance(given, str) else ""
    call_id = pairing.answer(name, given)
    texts, failed, note = _parse_answer(response)
    content: list[ResultPart] = [*texts]
    for item in media or ():
        part = _parse_part(item, Pairing())
        content.append(part if isinstance(part, Image) else Unknown("parts", dump(item)))
    notes = ("snake" if "_" in key else "", "" if call_id == given else "no-id", note)
    result = ToolResult(call_id, tuple(content), failed, name, noted(NAME, *notes))
    return keep_rest(result, value, _response(result, name), NAME)


def _parse_answer(response: dict[str, Any] | None) -> tuple[tuple[Text, ...], bool, str]:
    """The words of a response, whether they tell of a failure, and how they were written."""
    if response is None:
        return (), False, "no-response"
    if len(response) == 1:
        (key, said), *_ = response.items()
        if isinstance(said, str) and (key == "error" or key in _ANSWERS):
            return (Text(said),), key == "error", "" if key in ("error", "output") else key
    return (Text(dump(response)),), response.keys() == {"error"}, "object"


def _parse_media(key: str, value: dict[str, Any]) -> Image | None:
    inner, snake = value[key], "_" in key
    kind = inner.get("mime_type" if snake else "mimeType", "")
    data = inner.get("data" if key in _INLINE else "file_uri" if snake else "fileUri")
    if not isinstance(kind, str) or not isinstance(data, str):
        return None
    pocket = noted(NAME, "snake" if snake else "")
    image = Image(kind, data, pocket=pocket) if key in _INLINE else Image(kind, url=data, pocket=pocket)
    return keep_rest(image, value, _media(image), NAME)


def emit(history: History, body: bool | None) -> Emission:
    """A history to contents, or to a body where it came as one or needs one for its system text and tools."""
    losses = Losses()
    writer = _Writer(dialect.call_names(history), losses)
    system: list[Message] = []
    for message in history:
        native = dialect.is_native(message, NAME)
        shaped = shape_of(message, NAME).startswith(_SYSTEM)
        if shaped or (message.role == "system" and not native and not writer.rows):
            system += [] if dialect.is_empty(message) and not native else [message]
        elif native:
            writer.native(message)
        else:
            writer.foreign(message)
    specs = None if dialect.from_format(history, NAME) else dialect.tool_specs(history, losses)
    if not dialect.wants_body(history, body, losses, system_text=system, tool_definitions=specs):
        return Emission(writer.rows, losses.problems())
    fields = dialect.body_rest(history, NAME, losses)
    for message in system:
        _put_system(message, fields, writer)
    if specs is None and history.tools:
        fields["tools"] = load(history.tools)
    elif specs:
        fields["tools"] = [{"functionDeclarations": [_declaration(spec) for spec in specs]}]
    return Emission({**fields, "contents": writer.rows}, losses.problems())


def _declaration(spec: dialect.ToolSpec) -> dict[str, Any]:
    return {"name": spec.name, "description": spec.description, "parametersJsonSchema": spec.schema}


class _Writer:
    """Contents so far; foreign messages of one role grow together."""

    def __init__(self, names: dict[str, str], losses: Losses) -> None:
        self.rows: list[Any] = []
        self._names = names
        self._losses = losses
        self._merging = False

    def native(self, message: Message) -> None:
        self._merging = False
        if dialect.is_whole(message, NAME):
            self.rows.append(dialect.whole_value(message))
            return
        rest = rest_of(message, NAME)
        row: dict[str, Any] = {"role": _wire_role(message.role), "parts": self.parts(message)}
        unsaid = message.pocket is not None and "role" in message.pocket.absent
        # A role of its own stays only as long as it fits what the message is now.
        if ("role" in rest or unsaid) and _model_role(rest.get("role"), message.parts) == message.role:
            del row["role"]
        self.rows.append(over_rest(row, rest))

    def foreign(self, message: Message) -> None:
        parts = self.parts(message)
        if not parts:
            return
        if message.role == "system":
            self._losses.add("system text in the middle of the conversation", "written as a user message")
        role = _wire_role(message.role)
        if not self._merging or self.rows[-1]["role"] != role:
            self.rows.append({"role": role, "parts": []})
        grown = self.rows[-1]["parts"]
        grown += parts
        grown.sort(key=lambda part: role == "user" and "functionResponse" not in part)
        self._merging = True

    def parts(self, message: Message) -> list[Any]:
        """What a message says, as parts of this API."""
        if dialect.is_native(message, NAME):
            return [self._native(part) for part in message.parts]
        return [written for part in message.parts for written in self._foreign(part)]

    def _native(self, part: Part) -> Any:
        match part:
            case Text() | Summary():
                bare = shape_of(part, NAME) == "bare"
                return part.text if bare else over_rest({"text": part.text}, rest_of(part, NAME))
            case Thinking():
                return _thinking(part)
            case ToolCall():
                return _call(part, self._losses)
            case ToolResult():
                return _response(part, dialect.result_name(part, self._names))
            case Image():
                return _media(part)
            case Unknown():
                return load(part.data)

    def _foreign(self, part: Part) -> list[Any]:
        if isinstance(part, Thinking | Unknown):
            self._losses.foreign(part)
            return []
        if not isinstance(part, ToolResult):
            return [] if isinstance(part, Text | Summary) and not part.text else [self._native(part)]
        for inner in part.content:
            if isinstance(inner, Unknown):
                self._losses.foreign(inner)
        images = [inner for inner in part.content if isinstance(inner, Image)]
        if images:
            self._losses.add("image in a tool result", "written beside the function response")
        texts = tuple([inner for inner in part.content if isinstance(inner, Text)])
        plain = ToolResult(part.call_id, texts, part.is_error)
        return [_response(plain, dialect.result_name(part, self._names)), *map(_media, images)]


def _put_system(message: Message, fields: dict[str, Any], writer: _Writer) -> None:
    key, *form = shape_of(message, NAME).split() or [_SYSTEM[0]]
    parts = writer.parts(message)
    if form and len(parts) == 1 and isinstance(message.parts[0], Text):
        fields[key] = message.parts[0].text
        return
    before = fields[key]["parts"] if isinstance(fields.get(key), dict) and "parts" in fields[key] else []
    fields[key] = over_rest({"parts": [*before, *parts]}, rest_of(message, NAME))


def _thinking(part: Thinking) -> dict[str, Any]:
    value: dict[str, Any] = {"text": part.text, "thought": True}
    if part.signature:
        snake = "snake" in shape_of(part, NAME)
        value["thought_signature" if snake else "thoughtSignature"] = part.signature
    return over_rest(value, rest_of(part, NAME))


def _call(call: ToolCall, losses: Losses) -> dict[str, Any]:
    notes = shape_of(call, NAME).split()
    inner = {"id": call.id, "name": call.name, "args": dialect.arguments_object(call, losses)}
    if "no-id" in notes:
        del inner["id"]
    if "no-args" in notes and not inner["args"]:
        del inner["args"]
    return over_rest({_CALLS["snake" in notes]: inner}, rest_of(call, NAME))


def _response(result: ToolResult, name: str) -> dict[str, Any]:
    notes = shape_of(result, NAME).split()
    inner: dict[str, Any] = {"id": result.call_id, "name": name}
    if "no-id" in notes:
        del inner["id"]
    media = [part for part in result.content if not isinstance(part, Text)]
    if "no-response" not in notes or len(media) < len(result.content):
        answer = dialect.as_object(result.text) if "object" in notes else None
        key = "error" if result.is_error else next((key for key in _ANSWERS if key in notes), "output")
        inner["response"] = {key: result.text} if answer is None else answer
    if media:
        inner["parts"] = [_media(part) if isinstance(part, Image) else load(part.data) for part in media]
    return over_rest({_RESPONSES["snake" in notes]: inner}, rest_of(result, NAME))


def _media(image: Image) -> dict[str, Any]:
    snake = shape_of(image, NAME) == "snake"
    kind = {"mime_type" if snake else "mimeType": image.media_type} if image.media_type else {}
    if image.url:
        value = {_FILES[snake]: kind | {"file_uri" if snake else "fileUri": image.url}}
    else:
        value = {_INLINE[snake]: kind | {"data": image.data}}
    return over_rest(value, rest_of(image, NAME))


def _wire_role(role: Role) -> str:
    return "model" if role == "assistant" else "user"


def sniff(value: Any) -> int:
    """Contents with parts are this API's alone."""
    rows = value.get("contents") if isinstance(value, dict) else value
    if not isinstance(rows, list) or not (rows or isinstance(value, dict)):
        return 0
    roles = ("user", "model", "function", None)
    fits = (isinstance(row, dict) and isinstance(row.get("parts"), list) and row.get("role") in roles for row in rows)
    return 3 if all(fits) else 0


FORMAT = WireFormat(NAME, "Gemini generateContent", parse, emit, sniff, rows="contents")
