"""A message of a chat, however it is written: for formats that only say that somebody says something.

Each of these is met in the wild under many names: who speaks, what is said, a call of a tool, its result. The tables
here name them. A row is read for itself; `settled` then joins what belongs together: a call to the words before it, a
result to its call.

Some tell calls in Python's own notation: smolagents prints the list of calls as Python shows it, the Berkeley
leaderboard writes each call as source. Both are parsed to a tree, never run, and only constants, lists and the like are
taken from it.
"""

import ast
import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from msgspec import structs

from thresher.formats.dialect import author_for, image_from_url
from thresher.formats.loose import at, count, fields, items, text
from thresher.formats.transcript import chat_usage, timestamp
from thresher.model import Image, Message, Role, Text, Thinking, ToolCall, ToolResult, Unknown, Usage
from thresher.model.jsontext import dump, load
from thresher.model.parts import Part, ResultPart

_WORDS: dict[Role, str] = {
    "user": "user human usermessage humanmessage customer",
    "assistant": "assistant ai gpt model bot chatbot agent assistantmessage aimessage tool-call function_call",
    "tool": "tool function tool-response tool_response tool_result observation toolmessage functionmessage"
    " function_response environment ipython terminal computerterminal computer_terminal",
    "system": "system developer systemmessage",
}
ROLES: dict[str, Role] = {word: role for role, words in _WORDS.items() for word in words.split()}
"""Who speaks, by the word that is used for it, in lower case."""
TERMINALS = ("terminal", "computerterminal", "computer_terminal")
"""Who runs the code in the message before."""
SPEAKER = ("role", "from", "speaker", "source", "sender", "author", "author_role")
CONTENT = ("content", "value", "text", "parts", "contents", "message", "utterance")
TIMES = ("timestamp", "time", "created_at", "createdAt", "date", "create_time")
CALL_IDS = ("call_id", "tool_call_id", "toolCallId", "tool_use_id", "toolUseId")
ARGUMENTS = ("arguments", "args", "input", "parameters", "kwargs", "server_tool_call")
ANSWERS = ("response", "result", "output", "content", "server_tool_call_response", "text")

_NOTE = re.compile(r"(?P<name>[^()]+?) ?\((?P<note>[^()]*)\)")
_KINDS: dict[str, str] = {
    name: kind
    for kind, names in {
        "text": "text input_text output_text textcontent",
        "thinking": "thinking reasoning thought text_reasoning redacted_thinking reasoning_text",
        "call": "tool_call tool_use function_call toolcall functioncall server_tool_call server_tool_use",
        "result": "tool_call_response tool_result function_result function_call_output tool_response toolresult"
        " server_tool_call_response functionresult",
        "image": "image image_url input_image blob uri file audio video",
    }.items()
    for name in names.split()
}


class Speaker(NamedTuple):
    """Who says something."""

    role: Role | None
    """None for a name that is no role."""
    word: str
    """The word for the role, in lower case."""
    name: str
    """The name, where it is more than a role."""
    note: str = ""
    """What is said of it: `Orchestrator (thought)`."""


def speaker(row: dict[str, Any]) -> Speaker:
    """Who says a row."""
    row = unwrapped(row)
    words = (text(row[key]) or text(at(row[key], "value")) for key in SPEAKER if key in row)
    said = next(filter(None, words), "")
    if not said and "content" in row:
        said = text(row.get("type")) or text(row.get("name"))
    found = _NOTE.fullmatch(said)
    bare, note = (found["name"], found["note"]) if found else (said, "")
    word = bare.lower().strip()
    role = ROLES.get(word)
    named = text(row.get("name")) or text(row.get("author_name")) or text(row.get("agent"))
    if role == "user" and ROLES.get(named.lower()) == "tool":
        return Speaker("tool", named.lower(), named)
    if role and not note:
        return Speaker(role, word, named if named.lower() not in ROLES or role == "tool" else "")
    return Speaker(role, word, bare, note)


def unwrapped(row: dict[str, Any]) -> dict[str, Any]:
    """LangChain puts a message in `data`, or in `kwargs` beside the path of its class."""
    path = row.get("id")
    if isinstance(row.get("kwargs"), dict) and isinstance(path, list) and path:
        return {"role": text(path[-1]), **row["kwargs"]} | {"type": ""}
    if isinstance(row.get("data"), dict) and not any(key in row for key in CONTENT):
        return {"role": row.get("type"), **row["data"]}
    return row


def has_content(row: dict[str, Any]) -> bool:
    """Whether something is said in a row."""
    row = unwrapped(row)
    keys = (*CONTENT, "tool_calls", "function_call", "reasoning_content")
    return any(isinstance(row.get(key), str | list | dict) and row[key] for key in keys)


def read_message(row: dict[str, Any], otherwise: Role) -> Message:
    """One row of a list whose rows have roles; one without is by `otherwise`."""
    who = speaker(row)
    return read_row(row, who._replace(role=who.role or otherwise))


def read_row(row: dict[str, Any], who: Speaker) -> Message:
    """One row: its calls and results have the ids they came with, or none."""
    row = unwrapped(row)
    parts = (*_thoughts(row), *_content(row), *_calls(row))
    role = who.role or "assistant"
    if who.note == "thought":
        parts = tuple(Thinking(part.text) if isinstance(part, Text) else part for part in parts)
    elif who.word in ("tool-call", "function_call"):
        parts = tuple(_called(parts))
    elif role == "tool" and not any(isinstance(part, ToolResult) for part in parts):
        parts = (_result_row(row, who, parts),) if parts else ()
    return Message(
        role,
        parts,
        author=author_for(role, parts),
        time=next(filter(None, (timestamp(row[key]) for key in TIMES if key in row)), None),
        model=text(row.get("model")) if role == "assistant" else "",
        usage=_usage(row) if role == "assistant" else None,
    )


def _usage(row: dict[str, Any]) -> Usage | None:
    told = fields(row.get("usage")) or fields(row.get("token_usage"))
    if "input_tokens" in told:
        return Usage(count(told.get("input_tokens")), count(told.get("output_tokens")))
    return chat_usage(told) if told else None


# What is said


def _content(row: dict[str, Any]) -> tuple[Part, ...]:
    said = next((row[key] for key in CONTENT if row.get(key) not in (None, "", [])), None)
    return read_parts(said)


def read_parts(said: Any) -> tuple[Part, ...]:
    """The parts of a text, of a list of pieces, or of one piece."""
    if isinstance(said, str):
        return (Text(said),) if said else ()
    if isinstance(said, dict) and isinstance(said.get("parts"), list):
        said = said["parts"]
    pieces = said if isinstance(said, list) else [said]
    return tuple(part for piece in pieces if piece is not None and (part := _part(piece)) != Text(""))


def _part(piece: Any) -> Part:
    if isinstance(piece, str):
        return Text(piece)
    if not isinstance(piece, dict):
        return Unknown(type(piece).__name__, dump(piece))
    piece = fields(piece.get("toolUse")) or fields(piece.get("toolResult")) or piece  # Bedrock
    kind = text(piece.get("type"))
    match _KINDS.get(kind.lower().replace("-", "_"), _kind_of(piece) if not kind else ""):
        case "text":
            found = _text_of(piece, "text", "content", "value")
            return Text(found) if found is not None else Unknown(kind, dump(piece))
        case "thinking":
            return _thinking(piece)
        case "call":
            return _call(piece) or Unknown(kind, dump(piece))
        case "result":
            return _result(piece)
        case "image":
            return _image(piece) or Unknown(kind, dump(piece))
        case _:
            return Unknown(kind, dump(piece))


def _kind_of(piece: dict[str, Any]) -> str:
    """What a piece is that does not say it."""
    if at(piece, "reasoningContent", "reasoningText"):
        return "thinking"
    if isinstance(piece.get("name"), str) and any(key in piece for key in ARGUMENTS):
        return "call"
    if any(key in piece for key in CALL_IDS) and any(key in piece for key in ANSWERS):
        return "result"
    return "text" if isinstance(piece.get("text"), str) else ""


def _text_of(piece: dict[str, Any], *keys: str) -> str | None:
    return next((piece[key] for key in keys if isinstance(piece.get(key), str)), None)


def _thinking(piece: dict[str, Any]) -> Thinking:
    piece = fields(at(piece, "reasoningContent", "reasoningText")) or piece  # Bedrock
    said = _text_of(piece, "text", "thinking", "reasoning", "content", "summary")
    return Thinking(said or "", _text_of(piece, "signature", "data", "encrypted_content") or "")


def _thoughts(row: dict[str, Any]) -> Iterator[Thinking]:
    """Thinking that stands beside the content."""
    said = next((row[key] for key in ("reasoning_content", "reasoning", "thinking") if text(row.get(key))), None)
    if said:
        yield Thinking(said)


def _image(piece: dict[str, Any]) -> Image | None:
    mime = _text_of(piece, "mime_type", "media_type", "mimeType") or ""
    data = text(piece.get("content")) if piece.get("type") == "blob" else text(piece.get("data"))
    if data:
        return Image(mime, data)
    spots = (piece.get("image_url"), at(piece, "image_url", "url"), piece.get("uri"), piece.get("url"))
    inner = (at(piece, "image", "url"), at(piece, "image", "image", "url"))
    url = next((spot for spot in (*spots, *inner) if isinstance(spot, str) and spot), "")
    found = image_from_url(url) if url else None
    return structs.replace(found, media_type=found.media_type or mime) if found else None


# Calls and results


def _calls(row: dict[str, Any]) -> Iterator[Part]:
    for entry in items(row.get("tool_calls")):
        yield _call(fields(entry)) or Unknown("tool_calls", dump(entry))
    if isinstance(row.get("function_call"), dict):
        yield _call(row["function_call"]) or Unknown("function_call", dump(row["function_call"]))


def _call(entry: dict[str, Any]) -> ToolCall | None:
    entry = fields(entry.get("tool_call")) or entry
    inner = fields(entry.get("function")) or entry
    name = next((found for key in ("name", "toolName", "tool_name", "tool") if (found := text(inner.get(key)))), "")
    given: Any = next((inner[key] for key in ARGUMENTS if inner.get(key) is not None), {})
    arguments = given if isinstance(given, str) else dump(given)
    return ToolCall(_id(entry), name, arguments) if name else None


def _id(entry: dict[str, Any]) -> str:
    """The id of a call; an item of a call or a result may have one of its own beside it."""
    return next((found for key in (*CALL_IDS, "id") if (found := text(entry.get(key)))), "")


def _called(parts: Iterable[Part]) -> Iterator[Part]:
    """A row that is nothing but calls, told as text."""
    for part in parts:
        found = calls_in(part.text) if isinstance(part, Text) else None
        if found is None:
            yield part
            continue
        for entry in found:
            yield _call(fields(entry)) or Unknown("tool_calls", dump(entry))


def _result(piece: dict[str, Any]) -> ToolResult:
    failed = text(piece.get("exception")) or text(piece.get("error"))
    given = next((piece[key] for key in ANSWERS if piece.get(key) is not None), None)
    is_error = bool(failed) or _says_failed(piece)
    if isinstance(given, dict) and given.keys() == {"type", "value"}:  # the AI SDK
        is_error = is_error or text(given["type"]).startswith("error")
        given = given["value"]
    content = read_result(given if given is not None or not failed else failed)
    name = text(piece.get("name")) or text(piece.get("toolName"))
    return ToolResult(_id(piece), content, is_error=is_error, name=name)


def _says_failed(told: dict[str, Any]) -> bool:
    return told.get("is_error") is True or told.get("isError") is True or told.get("status") == "error"


def read_result(given: Any) -> tuple[ResultPart, ...]:
    """What a tool gave: texts and pictures, or any value as JSON."""
    pieces = [fields(piece) for piece in items(given)]
    if isinstance(given, str) or (pieces and all("type" in piece or piece.keys() == {"text"} for piece in pieces)):
        return tuple(part for part in read_parts(given) if isinstance(part, Text | Image | Unknown))
    return () if given is None else (Text(dump(given)),)


_CALL_ID = re.compile(r"Call id: (\S+)\n")
_EXIT = re.compile(r"exitcode: (?!0\b)-?\d")


def _result_row(row: dict[str, Any], who: Speaker, parts: Sequence[Part]) -> ToolResult:
    content = tuple(part for part in parts if isinstance(part, Text | Image | Unknown))
    head = content[0].text if content and isinstance(content[0], Text) else ""
    told = _CALL_ID.match(head)
    failed = head.startswith("Error:", told.end() if told else 0) or _EXIT.match(head) is not None
    given = next((found for key in CALL_IDS if (found := text(row.get(key)))), "") or (told[1] if told else "")
    return ToolResult(given, content, is_error=failed or _says_failed(row), name=who.name)


# Calls in Python's notation

LONGEST = 400_000
"""Characters of a text that is looked at."""
_HEAD = re.compile(r"\s*(?:Calling tools:|Tool calls?:)?\s*")
_REFUSALS = (ValueError, SyntaxError, TypeError, RecursionError, MemoryError)


def calls_in(told: str) -> list[Any] | None:
    """The calls that a text lists, or None where it lists none."""
    body = _HEAD.sub("", told, count=1)
    if len(body) > LONGEST or not body.startswith(("[", "{")):
        return None
    try:
        value = load(body)
    except (ValueError, RecursionError):
        value = _literal(body)
    found = value if isinstance(value, list) else [value]
    return found if found and all(isinstance(entry, dict) for entry in found) else None


def _literal(body: str) -> Any:
    try:
        value = ast.literal_eval(_parsed(body))
        dump(value)  # sets, bytes and numbers of two parts have no place in JSON
    except _REFUSALS:
        return None
    return value


def call_from_source(source: str) -> ToolCall | None:
    """A call such as `grep(file_name='a.txt', pattern='b')`; None where the text is none. It has no id."""
    if len(source) > LONGEST:
        return None
    try:
        node = _parsed(source.strip())
        return ToolCall("", ast.unparse(node.func), _arguments(node)) if isinstance(node, ast.Call) else None
    except _REFUSALS:
        return None


def _parsed(source: str) -> ast.expr:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an unknown escape in a stranger's text is no concern of the reader's
        return ast.parse(source, mode="eval").body


def _arguments(node: ast.Call) -> str:
    named = {keyword.arg: _value(keyword.value) for keyword in node.keywords if keyword.arg}
    placed = [_value(value) for value in node.args]
    return dump(named | ({"args": placed} if placed else {}))


def _value(node: ast.expr) -> Any:
    """A constant; the source of anything else."""
    try:
        value = ast.literal_eval(node)
        dump(value)
    except _REFUSALS:
        return ast.unparse(node)
    return value
