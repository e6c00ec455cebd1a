"""OpenAI Chat Completions: content, calls beside it, and a message of its own for each tool result.

A row is written as its parts say, over the pocket's rest. So the rest may hold a key of the model's own only
while that says nothing (`"content": null`, `"tool_calls": []`): once a part speaks for it, the part is right.
"""

from collections.abc import Iterator
from typing import Any

from thresher.formats import dialect
from thresher.formats.dialect import Losses, Pairing, keep_rest, over_rest, rest_of, shape_of
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

NAME = "openai-chat"
NATIVE = Pocket(NAME)

_Content = tuple[ResultPart, ...]
_LIST = Pocket(NAME, shape="list")
_ROLES: dict[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
}
_FIELDS = {key: Pocket(NAME, shape=key) for key in ("reasoning_content", "reasoning", "refusal")}
"""Words of the assistant that stand beside the content."""
_MEDIA = ("image_url", "input_audio", "file")
_AUDIO = {"audio/mpeg": "mp3", "audio/x-wav": "wav"}


def parse(value: Any) -> History:
    """Messages, or a request body, to a history."""
    rows, rest = dialect.split_body(NAME, value, "messages")
    pairing = Pairing(_given_ids(rows))
    return dialect.make_history(NAME, [parse_message(row, pairing) for row in rows], rest)


def _given_ids(rows: list[Any]) -> Iterator[str]:
    for row in rows:
        calls = row.get("tool_calls") if isinstance(row, dict) else None
        for call in calls if isinstance(calls, list) else ():
            if isinstance(call, dict) and isinstance(call.get("id"), str):
                yield call["id"]


def parse_message(row: Any, pairing: Pairing | None = None) -> Message:
    """One message; one not as the API documents it is kept whole. `pairing` knows the calls before it."""
    role = row.get("role") if isinstance(row, dict) else None
    content = parse_content(row.get("content")) if isinstance(role, str) else None
    if content is None:
        return dialect.whole_message(NAME, row)
    model_role = _ROLES.get(str(role), "user")
    if model_role == "tool":
        return _parse_result(row, content, pairing or Pairing())
    if model_role == "assistant":
        return _parse_assistant(row, content, pairing or Pairing()) or dialect.whole_message(NAME, row)
    author = dialect.author_for(model_role, content) if role in _ROLES else "harness"
    return Message(model_role, content, author=author, pocket=_row_pocket(row, model_role, set()))


def _parse_result(row: dict[str, Any], content: _Content, pairing: Pairing) -> Message:
    name = row["name"] if isinstance(row.get("name"), str) else ""
    given = row["tool_call_id"] if isinstance(row.get("tool_call_id"), str) else ""
    call_id = pairing.answer(name, given)
    said = ({"name"} if name else set()) | ({"tool_call_id"} if call_id == given else set())
    pocket = _row_pocket(row, "tool", said, "" if call_id == given else "no-id")
    return Message("tool", (ToolResult(call_id, content, name=name),), author="tool", pocket=pocket)


def _parse_assistant(row: dict[str, Any], content: _Content, pairing: Pairing) -> Message | None:
    entries, legacy = row.get("tool_calls"), row.get("function_call")
    if not isinstance(entries, list | None) or not isinstance(legacy, dict | None):
        return None
    calls = [_parse_call(entry, pairing) for entry in entries or ()]
    said = {key for key in _FIELDS if isinstance(row.get(key), str) and row[key]}
    said |= {"tool_calls"} if calls else set()
    if legacy is not None:
        calls.append(_parse_legacy(legacy, pairing))
        said.add("function_call")
    thinking = [Thinking(row[k], pocket=_FIELDS[k]) for k in _FIELDS if k in said and k != "refusal"]
    refusal = [Text(row["refusal"], _FIELDS["refusal"])] if "refusal" in said else []
    parts = (*thinking, *content, *refusal, *calls)
    return Message("assistant", parts, author="model", pocket=_row_pocket(row, "assistant", said))


def _parse_call(entry: Any, pairing: Pairing) -> ToolCall | Unknown:
    unknown = Unknown("tool_calls", dump(entry), Pocket(NAME, shape="call"))
    kind = "custom" if isinstance(entry, dict) and isinstance(entry.get("custom"), dict) else "function"
    inner = entry.get(kind) if isinstance(entry, dict) else None
    name = inner.get("name") if isinstance(inner, dict) else None
    arguments = inner.get("input" if kind == "custom" else "arguments") if isinstance(inner, dict) else None
    if not isinstance(name, str) or not isinstance(arguments, str | dict):
        return unknown
    given = entry["id"] if isinstance(entry.get("id"), str) else ""
    notes = ["custom" if kind == "custom" else "", "" if "type" in entry else "untyped"]
    notes += ["" if isinstance(arguments, str) else "object", "" if given else "no-id"]
    text = arguments if isinstance(arguments, str) else dump(arguments)
    call = ToolCall(given, name, text, dialect.noted(NAME, *notes))
    kept = keep_rest(call, entry, _call(call, native=True), NAME)
    return unknown if kept is None else ToolCall(pairing.call(name, given), name, text, kept.pocket)


def _parse_legacy(entry: dict[str, Any], pairing: Pairing) -> ToolCall | Unknown:
    name, arguments = entry.get("name"), entry.get("arguments")
    if not isinstance(name, str) or not isinstance(arguments, str):
        return Unknown("function_call", dump(entry), Pocket(NAME, shape="function_call"))
    call = ToolCall(pairing.call(name), name, arguments, Pocket(NAME, shape="function_call"))
    return keep_rest(call, entry, {"name": name, "arguments": arguments}, NAME) or call


def _row_pocket(row: dict[str, Any], role: Role, said: set[str], note: str = "") -> Pocket:
    """What a row has beside what its parts say."""
    rest = {key: value for key, value in row.items() if key not in said}
    if rest["role"] == role:
        del rest["role"]
    content = rest.get("content")
    if content:
        del rest["content"]
    shape = f"{note} list".strip() if content and isinstance(content, list) else note
    absent = () if "content" in row else ("content",)
    if not (rest or absent or note):
        return _LIST if shape else NATIVE
    return Pocket(NAME, dump(rest) if rest else "", absent, shape)


def parse_content(content: Any) -> _Content | None:
    """Content as the API takes it: a string, pieces, or nothing; None for anything else."""
    if isinstance(content, str):
        return (Text(content),) if content else ()
    if isinstance(content, list):
        return tuple([_parse_piece(piece) for piece in content])
    return () if content is None else None


def _parse_piece(piece: Any) -> ResultPart:
    if isinstance(piece, str):
        return Text(piece, Pocket(NAME, shape="bare"))
    if not isinstance(piece, dict):
        return Unknown(type(piece).__name__, dump(piece))
    kind = piece.get("type")
    part: Text | Image | None = None
    if kind == "text" and isinstance(piece.get("text"), str):
        part = Text(piece["text"])
    elif kind == "refusal" and isinstance(piece.get("refusal"), str):
        part = Text(piece["refusal"], Pocket(NAME, shape="refusal-piece"))
    elif kind in _MEDIA and isinstance(piece.get(kind), dict):
        part = _parse_media(kind, piece[kind])
    kept = None if part is None else keep_rest(part, piece, _piece(part), NAME)
    return kept if kept is not None else Unknown(str(kind or ""), dump(piece))


def _parse_media(kind: str, inner: dict[str, Any]) -> Image | None:
    value = inner.get({"image_url": "url", "file": "file_data"}.get(kind, "data"))
    if not isinstance(value, str):
        return None
    audio = kind == "input_audio"
    image = Image(f"audio/{inner.get('format')}", value) if audio else dialect.image_from_url(value)
    if _media_kind(image) == kind:
        return image
    return Image(image.media_type, image.data, image.url, Pocket(NAME, shape=kind))


def emit(history: History, body: bool | None) -> Emission:
    """A history to messages, or to a body where it came as one or needs one for its tools."""
    losses = Losses()
    writer = _Writer(losses)
    for message in history:
        if dialect.is_native(message, NAME) and _fits(message):
            writer.native(message)
        else:
            writer.foreign(message)
    specs = None if dialect.from_format(history, NAME) else dialect.tool_specs(history, losses)
    if not dialect.wants_body(history, body, losses, tool_definitions=specs):
        return Emission(writer.done(), losses.problems())
    fields = dialect.body_rest(history, NAME, losses)
    if specs is None and history.tools:
        fields["tools"] = load(history.tools)
    elif specs:
        tools = ({"name": s.name, "description": s.description, "parameters": s.schema} for s in specs)
        fields["tools"] = [{"type": "function", "function": tool} for tool in tools]
    return Emission({**fields, "messages": writer.done()}, losses.problems())


def _fits(message: Message) -> bool:
    """Whether the message, edited perhaps, can still be the one row it was."""
    kinds = {type(part) for part in message.parts}
    if message.role == "tool":
        return len(message.parts) == 1 and kinds == {ToolResult}
    return ToolResult not in kinds and (message.role == "assistant" or not kinds & {ToolCall, Thinking})


class _Writer:
    """Rows so far; images of tool results wait until the run of results is over."""

    def __init__(self, losses: Losses) -> None:
        self._losses = losses
        self._rows: list[Any] = []
        self._images: list[Any] = []
        self._said: list[Any] | None = None
        """The content of the assistant's row that may still grow."""

    def done(self) -> list[Any]:
        self._settle()
        return self._rows

    def native(self, message: Message) -> None:
        if message.role != "tool":
            self._settle()
        self._add(dialect.whole_value(message) if dialect.is_whole(message, NAME) else _emit_native(message))

    def foreign(self, message: Message) -> None:
        pieces: list[Any] = []
        calls: list[Any] = []
        for part in message.parts:
            match part:
                case ToolResult():
                    self._result(part)
                case ToolCall():
                    calls.append(_call(part, native=False))
                case Thinking() | Unknown():
                    self._losses.foreign(part)
                case Image() if message.role in ("assistant", "system"):
                    self._losses.add(f"image in a message of the {message.role}", "left out")
                case Text() | Summary() | Image():
                    pieces += _foreign_piece(part, self._losses)
        if not (pieces or calls):
            return
        self._settle()
        if message.role == "assistant":
            self._assistant(pieces, calls)
        else:
            role = "system" if message.role == "system" else "user"
            self._add({"role": role, "content": _string_or_list(pieces)})

    def _assistant(self, pieces: list[Any], calls: list[Any]) -> None:
        said = [*(self._said or ()), *pieces]
        if self._said is None:
            self._add({"role": "assistant"})
        self._said = said
        self._rows[-1]["content"] = _string_or_list(said)
        if calls:
            self._rows[-1].setdefault("tool_calls", []).extend(calls)

    def _result(self, result: ToolResult) -> None:
        images = [part for part in result.content if isinstance(part, Image)]
        text = dialect.error_text(result)
        if images:
            self._losses.add("image in a tool result", "written as a user message after the results")
            self._images.append({"type": "text", "text": f"[image of tool result {result.call_id}]"})
            self._images += [piece for image in images for piece in _foreign_piece(image, self._losses)]
            text = text or "[image: see the next user message]"
        for part in result.content:
            if isinstance(part, Unknown):
                self._losses.foreign(part)
        self._add({"role": "tool", "tool_call_id": result.call_id, "content": text})

    def _settle(self) -> None:
        if self._images:
            self._add({"role": "user", "content": self._images})
            self._images = []

    def _add(self, row: Any) -> None:
        self._rows.append(row)
        self._said = None


def _emit_native(message: Message) -> dict[str, Any]:
    rest, notes = rest_of(message, NAME), shape_of(message, NAME).split()
    role = rest.get("role")
    known = isinstance(role, str) and _ROLES.get(role, "user") == message.role
    row: dict[str, Any] = {"role": role if known else message.role}
    content: tuple[Part, ...] = message.parts
    for result in message.results:
        if "no-id" not in notes:
            row["tool_call_id"] = result.call_id
        if result.name:
            row["name"] = result.name
        # This API has no mark for failure, so a marked result was made by an edit.
        others = (part for part in result.content if not isinstance(part, Text))
        content = (Text(dialect.error_text(result)), *others) if result.is_error else result.content
    if message.role == "assistant":
        content = tuple([part for part in message.parts if not _put_beside(part, row)])
    pieces = [_piece(part) for part in content]
    if pieces:
        row["content"] = pieces if "list" in notes else _string_or_list(pieces)
    elif "content" not in rest and message.pocket and "content" not in message.pocket.absent:
        row["content"] = None if "tool_calls" in row else ""
    return over_rest(row, rest)


def _put_beside(part: Part, row: dict[str, Any]) -> bool:
    """Give thinking, calls and a refusal their place in the row; False for what is content."""
    shape = shape_of(part, NAME)
    if isinstance(part, Thinking):
        key = shape or "reasoning_content"
        row[key] = f"{row[key]}\n\n{part.text}" if key in row else part.text
    elif shape == "function_call" and shape not in row and isinstance(part, ToolCall):
        row[shape] = over_rest({"name": part.name, "arguments": part.arguments}, rest_of(part, NAME))
    elif shape == "function_call" and isinstance(part, Unknown):
        row[shape] = load(part.data)
    elif isinstance(part, ToolCall):
        row.setdefault("tool_calls", []).append(_call(part, native=True))
    elif shape == "call" and isinstance(part, Unknown):
        row.setdefault("tool_calls", []).append(load(part.data))
    elif shape == "refusal" and shape not in row and isinstance(part, Text):
        row[shape] = part.text
    else:
        return False
    return True


def _call(call: ToolCall, *, native: bool) -> dict[str, Any]:
    notes = shape_of(call, NAME).split() if native else []
    arguments: Any = call.arguments if native else dialect.arguments_text(call)
    if "object" in notes:
        value = dialect.as_object(call.arguments)
        arguments = arguments if value is None else value
    kind, key = ("custom", "input") if "custom" in notes else ("function", "arguments")
    entry: dict[str, Any] = {"id": call.id, "type": kind, kind: {"name": call.name, key: arguments}}
    if "no-id" in notes:
        del entry["id"]
    if "untyped" in notes:
        del entry["type"]
    return over_rest(entry, rest_of(call, NAME)) if native else entry


def _piece(part: Part) -> Any:
    if isinstance(part, Text | Summary):
        shape = shape_of(part, NAME)
        if shape == "bare":
            return part.text
        kind = "refusal" if shape == "refusal-piece" else "text"
        return over_rest({"type": kind, kind: part.text}, rest_of(part, NAME))
    if isinstance(part, Image):
        return over_rest(_media_piece(part), rest_of(part, NAME))
    return load(part.data) if isinstance(part, Unknown) else None


def _foreign_piece(part: Text | Summary | Image, losses: Losses) -> list[Any]:
    if not isinstance(part, Image):
        return [{"type": "text", "text": part.text}] if part.text else []
    piece = _media_piece(part)
    if piece["type"] == "file":
        if part.url:
            losses.add("document by its address", "its address is written as text")
            return [{"type": "text", "text": part.url}]
        piece["file"]["filename"] = f"file.{part.media_type.rpartition('/')[2]}"
    return [piece]


def _media_kind(image: Image) -> str:
    if image.media_type.startswith("audio/") and not image.url:
        return "input_audio"
    return "image_url" if image.media_type.startswith("image/") or not image.media_type else "file"


def _media_piece(image: Image) -> dict[str, Any]:
    kind = shape_of(image, NAME) or _media_kind(image)
    if kind == "input_audio":
        form = _AUDIO.get(image.media_type, image.media_type.partition("/")[2])
        return {"type": kind, kind: {"data": image.data, "format": form}}
    return {"type": kind, kind: {"file_data" if kind == "file" else "url": dialect.image_url(image)}}


def _string_or_list(pieces: list[Any]) -> Any:
    """One plain text as a string, as most write it; nothing as null."""
    if len(pieces) == 1 and isinstance(pieces[0], dict) and pieces[0].keys() == {"type", "text"}:
        return pieces[0]["text"]
    return list(pieces) or None


def sniff(value: Any) -> int:
    """Calls beside the content, results in a role of their own, or system text among the messages."""
    rows = value.get("messages") if isinstance(value, dict) else value
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
        return 0
    if any(not isinstance(row.get("role"), str) or "parts" in row or "type" in row for row in rows):
        return 0
    told = any(row["role"] in ("tool", "system", "developer", "function") for row in rows)
    if told or any(isinstance(row.get("tool_calls"), list) for row in rows):
        return 3
    return 1 if all(isinstance(row.get("content"), str | None) for row in rows) else 0


FORMAT = WireFormat(NAME, "OpenAI Chat Completions", parse, emit, sniff)
