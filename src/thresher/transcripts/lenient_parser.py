"""A message of a chat, however it is written: for formats that only say that somebody says something.

Each of these is met in the wild under many names: who speaks, what is said, a call of a tool, its result. The tables
here name them. A row is read for itself; `pairing` then joins what belongs together: a call to the words before it, a
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

from msgspec.structs import replace

from thresher.dialects.content import infer_message_author, parse_image_url
from thresher.model import Message, Role, Usage
from thresher.model.jsontext import dump_json, load_json
from thresher.model.parts import Image, Part, ResultPart, Text, Thinking, ToolCall, ToolResult, Unknown
from thresher.transcripts.base import parse_openai_chat_usage, parse_time
from thresher.transcripts.coerce import (
    as_dict,
    as_list,
    as_text,
    count_at,
    dict_at,
    first_text,
    list_at,
    text_at,
    value_at,
)
from thresher.transcripts.content import json_text, result_content, text_parts

_ROLE_WORDS: dict[Role, str] = {
    "user": "user human usermessage humanmessage customer",
    "assistant": "assistant ai gpt model bot chatbot agent assistantmessage aimessage tool-call function_call",
    "tool": "tool function tool-response tool_response tool_result observation toolmessage functionmessage"
    " function_response environment ipython terminal computerterminal computer_terminal",
    "system": "system developer systemmessage",
}
ROLES_BY_WORD: dict[str, Role] = {word: role for role, words in _ROLE_WORDS.items() for word in words.split()}
"""Who speaks, by the word that is used for it, in lower case."""
TERMINAL_WORDS = ("terminal", "computerterminal", "computer_terminal")
"""Who runs the code in the message before."""
SPEAKER_KEYS = ("role", "from", "speaker", "source", "sender", "author", "author_role")
CONTENT_KEYS = ("content", "value", "text", "parts", "contents", "message", "utterance")
TIME_KEYS = ("timestamp", "time", "created_at", "createdAt", "date", "create_time")
CALL_ID_KEYS = ("call_id", "tool_call_id", "toolCallId", "tool_use_id", "toolUseId")
ARGUMENT_KEYS = ("arguments", "args", "input", "parameters", "kwargs", "server_tool_call")
RESULT_KEYS = ("response", "result", "output", "content", "server_tool_call_response", "text")

_NAME_WITH_NOTE = re.compile(r"(?P<name>[^()]+?) ?\((?P<note>[^()]*)\)")
_PART_KINDS_BY_NAME: dict[str, str] = {
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


def parse_speaker(row: dict[str, Any]) -> Speaker:
    """Who says a row."""
    row = unwrap_langchain_message(row)
    words = (as_text(row[key]) or text_at(row[key], "value") for key in SPEAKER_KEYS if key in row)
    said = next(filter(None, words), "")
    if not said and "content" in row:
        said = first_text(row, "type", "name")
    found = _NAME_WITH_NOTE.fullmatch(said)
    bare, note = (found["name"], found["note"]) if found else (said, "")
    word = bare.lower().strip()
    role = ROLES_BY_WORD.get(word)
    named = first_text(row, "name", "author_name", "agent")
    if role == "user" and ROLES_BY_WORD.get(named.lower()) == "tool":
        return Speaker("tool", named.lower(), named)
    if role and not note:
        return Speaker(role, word, named if named.lower() not in ROLES_BY_WORD or role == "tool" else "")
    return Speaker(role, word, bare, note)


def unwrap_langchain_message(row: dict[str, Any]) -> dict[str, Any]:
    """LangChain puts a message in `data`, or in `kwargs` beside the path of its class."""
    path = row.get("id")
    if isinstance(row.get("kwargs"), dict) and isinstance(path, list) and path:
        return {"role": as_text(path[-1]), **row["kwargs"]} | {"type": ""}
    if isinstance(row.get("data"), dict) and not any(key in row for key in CONTENT_KEYS):
        return {"role": row.get("type"), **row["data"]}
    return row


def has_message_content(row: dict[str, Any]) -> bool:
    """Whether something is said in a row."""
    row = unwrap_langchain_message(row)
    keys = (*CONTENT_KEYS, "tool_calls", "function_call", "reasoning_content")
    return any(isinstance(row.get(key), str | list | dict) and row[key] for key in keys)


def parse_lenient_message(row: dict[str, Any], otherwise: Role) -> Message:
    """One row of a list whose rows have roles; one without is by `otherwise`."""
    who = parse_speaker(row)
    return parse_lenient_row(row, who._replace(role=who.role or otherwise))


def parse_lenient_row(row: dict[str, Any], who: Speaker) -> Message:
    """One row: its calls and results have the ids they came with, or none."""
    row = unwrap_langchain_message(row)
    parts = (*_parse_sibling_thinking(row), *_parse_content(row), *_parse_calls(row))
    role = who.role or "assistant"
    if who.note == "thought":
        parts = tuple(Thinking(part.text) if isinstance(part, Text) else part for part in parts)
    elif who.word in ("tool-call", "function_call"):
        parts = tuple(_expand_text_calls(parts))
    elif role == "tool" and not any(isinstance(part, ToolResult) for part in parts):
        parts = (_parse_result_row(row, who, parts),) if parts else ()
    return Message(
        role,
        parts,
        author=infer_message_author(role, parts),
        time=next(filter(None, (parse_time(row[key]) for key in TIME_KEYS if key in row)), None),
        model=text_at(row, "model") if role == "assistant" else "",
        usage=_parse_usage(row) if role == "assistant" else None,
    )


def _parse_usage(row: dict[str, Any]) -> Usage | None:
    told = dict_at(row, "usage") or dict_at(row, "token_usage")
    if "input_tokens" in told:
        return Usage(count_at(told, "input_tokens"), count_at(told, "output_tokens"))
    return parse_openai_chat_usage(told) if told else None


# What is said


def _parse_content(row: dict[str, Any]) -> tuple[Part, ...]:
    said = next((row[key] for key in CONTENT_KEYS if row.get(key) not in (None, "", [])), None)
    return parse_lenient_parts(said)


def parse_lenient_parts(said: Any) -> tuple[Part, ...]:
    """The parts of a text, of a list of pieces, or of one piece."""
    if isinstance(said, str):
        return text_parts(said)
    if isinstance(said, dict) and isinstance(said.get("parts"), list):
        said = said["parts"]
    pieces = said if isinstance(said, list) else [said]
    return tuple(part for piece in pieces if piece is not None and (part := _parse_part(piece)) != Text(""))


def _parse_part(piece: Any) -> Part:
    if isinstance(piece, str):
        return Text(piece)
    if not isinstance(piece, dict):
        return Unknown(type(piece).__name__, dump_json(piece))
    piece = dict_at(piece, "toolUse") or dict_at(piece, "toolResult") or piece  # Bedrock
    kind = text_at(piece, "type")
    match _PART_KINDS_BY_NAME.get(kind.lower().replace("-", "_"), _infer_part_kind(piece) if not kind else ""):
        case "text":
            found = _first_text(piece, "text", "content", "value")
            return Text(found) if found is not None else Unknown(kind, dump_json(piece))
        case "thinking":
            return _parse_thinking(piece)
        case "call":
            return _parse_call(piece) or Unknown(kind, dump_json(piece))
        case "result":
            return _parse_result_part(piece)
        case "image":
            return _parse_image(piece) or Unknown(kind, dump_json(piece))
        case _:
            return Unknown(kind, dump_json(piece))


def _infer_part_kind(piece: dict[str, Any]) -> str:
    """What a piece is that does not say it."""
    if value_at(piece, "reasoningContent", "reasoningText"):
        return "thinking"
    if isinstance(piece.get("name"), str) and any(key in piece for key in ARGUMENT_KEYS):
        return "call"
    if any(key in piece for key in CALL_ID_KEYS) and any(key in piece for key in RESULT_KEYS):
        return "result"
    return "text" if isinstance(piece.get("text"), str) else ""


def _first_text(piece: dict[str, Any], *keys: str) -> str | None:
    return next((piece[key] for key in keys if isinstance(piece.get(key), str)), None)


def _parse_thinking(piece: dict[str, Any]) -> Thinking:
    piece = dict_at(piece, "reasoningContent", "reasoningText") or piece  # Bedrock
    said = _first_text(piece, "text", "thinking", "reasoning", "content", "summary")
    return Thinking(said or "", _first_text(piece, "signature", "data", "encrypted_content") or "")


def _parse_sibling_thinking(row: dict[str, Any]) -> Iterator[Thinking]:
    """Thinking that stands beside the content."""
    said = next((row[key] for key in ("reasoning_content", "reasoning", "thinking") if text_at(row, key)), None)
    if said:
        yield Thinking(said)


def _parse_image(piece: dict[str, Any]) -> Image | None:
    mime = _first_text(piece, "mime_type", "media_type", "mimeType") or ""
    data = text_at(piece, "content") if piece.get("type") == "blob" else text_at(piece, "data")
    if data:
        return Image(mime, data)
    spots = (piece.get("image_url"), value_at(piece, "image_url", "url"), piece.get("uri"), piece.get("url"))
    inner = (value_at(piece, "image", "url"), value_at(piece, "image", "image", "url"))
    url = next((spot for spot in (*spots, *inner) if isinstance(spot, str) and spot), "")
    found = parse_image_url(url) if url else None
    return replace(found, media_type=found.media_type or mime) if found else None


# Calls and results


def _parse_calls(row: dict[str, Any]) -> Iterator[Part]:
    for entry in list_at(row, "tool_calls"):
        yield _parse_call(as_dict(entry)) or Unknown("tool_calls", dump_json(entry))
    if isinstance(row.get("function_call"), dict):
        yield _parse_call(row["function_call"]) or Unknown("function_call", dump_json(row["function_call"]))


def _parse_call(entry: dict[str, Any]) -> ToolCall | None:
    entry = dict_at(entry, "tool_call") or entry
    inner = dict_at(entry, "function") or entry
    name = next((found for key in ("name", "toolName", "tool_name", "tool") if (found := text_at(inner, key))), "")
    given: Any = next((inner[key] for key in ARGUMENT_KEYS if inner.get(key) is not None), {})
    return ToolCall(_find_call_id(entry), name, json_text(given)) if name else None


def _find_call_id(entry: dict[str, Any]) -> str:
    """The id of a call; an item of a call or a result may have one of its own beside it."""
    return next((found for key in (*CALL_ID_KEYS, "id") if (found := text_at(entry, key))), "")


def _expand_text_calls(parts: Iterable[Part]) -> Iterator[Part]:
    """A row that is nothing but calls, told as text."""
    for part in parts:
        found = parse_calls_as_text(part.text) if isinstance(part, Text) else None
        if found is None:
            yield part
            continue
        for entry in found:
            yield _parse_call(as_dict(entry)) or Unknown("tool_calls", dump_json(entry))


def _parse_result_part(piece: dict[str, Any]) -> ToolResult:
    failed = first_text(piece, "exception", "error")
    given = next((piece[key] for key in RESULT_KEYS if piece.get(key) is not None), None)
    is_error = bool(failed) or _is_failed(piece)
    if isinstance(given, dict) and given.keys() == {"type", "value"}:  # the AI SDK
        is_error = is_error or as_text(given["type"]).startswith("error")
        given = given["value"]
    content = parse_lenient_result(given if given is not None or not failed else failed)
    name = first_text(piece, "name", "toolName")
    return ToolResult(_find_call_id(piece), content, is_error=is_error, name=name)


def _is_failed(told: dict[str, Any]) -> bool:
    return told.get("is_error") is True or told.get("isError") is True or told.get("status") == "error"


def parse_lenient_result(given: Any) -> tuple[ResultPart, ...]:
    """What a tool gave: texts and pictures, or any value as JSON."""
    pieces = [as_dict(piece) for piece in as_list(given)]
    if isinstance(given, str) or (pieces and all("type" in piece or piece.keys() == {"text"} for piece in pieces)):
        return result_content(parse_lenient_parts(given))
    return () if given is None else (Text(dump_json(given)),)


_CALL_ID_LINE = re.compile(r"Call id: (\S+)\n")
_NONZERO_EXIT = re.compile(r"exitcode: (?!0\b)-?\d")


def _parse_result_row(row: dict[str, Any], who: Speaker, parts: Sequence[Part]) -> ToolResult:
    content = result_content(parts)
    head = content[0].text if content and isinstance(content[0], Text) else ""
    told = _CALL_ID_LINE.match(head)
    failed = head.startswith("Error:", told.end() if told else 0) or _NONZERO_EXIT.match(head) is not None
    given = next((found for key in CALL_ID_KEYS if (found := text_at(row, key))), "") or (told[1] if told else "")
    return ToolResult(given, content, is_error=failed or _is_failed(row), name=who.name)


# Calls in Python's notation

MAX_PARSED_CHARS = 400_000
"""Characters of a text that is looked at."""
_CALLS_HEADING = re.compile(r"\s*(?:Calling tools:|Tool calls?:)?\s*")
_PARSE_ERRORS = (ValueError, SyntaxError, TypeError, RecursionError, MemoryError)


def parse_calls_as_text(told: str) -> list[Any] | None:
    """The calls that a text lists, or None where it lists none."""
    body = _CALLS_HEADING.sub("", told, count=1)
    if len(body) > MAX_PARSED_CHARS or not body.startswith(("[", "{")):
        return None
    try:
        value = load_json(body)
    except (ValueError, RecursionError):
        value = _parse_python_literal(body)
    found = value if isinstance(value, list) else [value]
    return found if found and all(isinstance(entry, dict) for entry in found) else None


def _parse_python_literal(body: str) -> Any:
    try:
        value = ast.literal_eval(_parse_python_expression(body))
        dump_json(value)  # sets, bytes and numbers of two parts have no place in JSON
    except _PARSE_ERRORS:
        return None
    return value


def parse_python_call(source: str) -> ToolCall | None:
    """A call such as `grep(file_name='a.txt', pattern='b')`; None where the text is none. It has no id."""
    if len(source) > MAX_PARSED_CHARS:
        return None
    try:
        node = _parse_python_expression(source.strip())
        if isinstance(node, ast.Call):
            return ToolCall("", ast.unparse(node.func), _encode_python_arguments(node))
    except _PARSE_ERRORS:
        pass
    return None


def _parse_python_expression(source: str) -> ast.expr:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an unknown escape in a stranger's text is no concern of the reader's
        return ast.parse(source, mode="eval").body


def _encode_python_arguments(node: ast.Call) -> str:
    named = {keyword.arg: _constant_or_source(keyword.value) for keyword in node.keywords if keyword.arg}
    placed = [_constant_or_source(value) for value in node.args]
    return dump_json(named | ({"args": placed} if placed else {}))


def _constant_or_source(node: ast.expr) -> Any:
    """A constant; the source of anything else."""
    try:
        value = ast.literal_eval(node)
        dump_json(value)
    except _PARSE_ERRORS:
        return ast.unparse(node)
    return value
