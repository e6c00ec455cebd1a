"""Parse chat messages of any layout, for formats that require only a speaker and content.

Files use many names for speakers, content, tool calls and results. The tables in this module list these names. A row
is a message as the file encodes it. Each row is parsed on its own. `pairing` then merges calls into the text before
them and pairs results with calls.

Some files have calls in Python syntax. smolagents prints a list of calls as a Python literal. The Berkeley Function
Calling Leaderboard writes each call as Python source. The parser builds a syntax tree and evaluates only literals. It
never runs the code.
"""

import ast
import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from thresher.dialects.content import infer_message_author, parse_image_url
from thresher.model import Message, Role
from thresher.model.jsontext import dump_json, load_json
from thresher.model.parts import Image, Part, ResultPart, Text, Thinking, ToolCall, ToolResult, Unknown
from thresher.transcripts.base import parse_chat_usage, parse_time
from thresher.transcripts.coerce import as_dict, as_list, as_text, dict_at, first_text, list_at, text_at, value_at
from thresher.transcripts.content import json_text, result_content, text_parts

_ROLE_WORDS: dict[Role, str] = {
    "user": "user human usermessage humanmessage customer",
    "assistant": "assistant ai gpt model bot chatbot agent assistantmessage aimessage tool-call function_call",
    "tool": "tool function tool-response tool_response tool_result observation toolmessage functionmessage"
    " function_response environment ipython terminal computerterminal computer_terminal",
    "system": "system developer systemmessage",
}
ROLES_BY_WORD: dict[str, Role] = {word: role for role, words in _ROLE_WORDS.items() for word in words.split()}
"""Role for each lowercase word that files use for a speaker."""
TERMINAL_WORDS = ("terminal", "computerterminal", "computer_terminal")
"""Words for a speaker that runs the code in the previous message."""
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
    """The speaker of a row."""

    role: Role | None
    """Role of the speaker; None if the label is not a known word for a role."""
    word: str
    """Label of the speaker in lowercase: a word for a role, or a name."""
    name: str
    """Name of the speaker; empty if the row has only a word for a role."""
    note: str = ""
    """Text in parentheses after the name: `thought` in `Orchestrator (thought)`."""


def parse_speaker(row: dict[str, Any]) -> Speaker:
    """Return the speaker of a row."""
    row = unwrap_langchain_message(row)
    labels = (as_text(row[key]) or text_at(row[key], "value") for key in SPEAKER_KEYS if key in row)
    label = next(filter(None, labels), "")
    if not label and "content" in row:
        label = first_text(row, "type", "name")
    match = _NAME_WITH_NOTE.fullmatch(label)
    bare, note = (match["name"], match["note"]) if match else (label, "")
    word = bare.lower().strip()
    role = ROLES_BY_WORD.get(word)
    name = first_text(row, "name", "author_name", "agent")
    if role == "user" and ROLES_BY_WORD.get(name.lower()) == "tool":
        return Speaker("tool", name.lower(), name)
    if role and not note:
        return Speaker(role, word, name if name.lower() not in ROLES_BY_WORD or role == "tool" else "")
    return Speaker(role, word, bare, note)


def unwrap_langchain_message(row: dict[str, Any]) -> dict[str, Any]:
    """Return the message inside a LangChain wrapper, or the row itself.

    LangChain wraps a message in `data`, or in `kwargs` next to an `id` with the path of the message's class.
    """
    path = row.get("id")
    if isinstance(row.get("kwargs"), dict) and isinstance(path, list) and path:
        return {"role": as_text(path[-1]), **row["kwargs"]} | {"type": ""}
    if isinstance(row.get("data"), dict) and not any(key in row for key in CONTENT_KEYS):
        return {"role": row.get("type"), **row["data"]}
    return row


def has_message_content(row: dict[str, Any]) -> bool:
    """Return whether a row has any content."""
    row = unwrap_langchain_message(row)
    keys = (*CONTENT_KEYS, "tool_calls", "function_call", "reasoning_content")
    return any(isinstance(row.get(key), str | list | dict) and row[key] for key in keys)


def parse_lenient_message(row: dict[str, Any], default_role: Role) -> Message:
    """Parse a row. A row without a known role gets `default_role`."""
    who = parse_speaker(row)
    return parse_lenient_row(row, who._replace(role=who.role or default_role))


def parse_lenient_row(row: dict[str, Any], who: Speaker) -> Message:
    """Parse a row with a known speaker. Calls and results keep the ids in the row; a missing id stays empty."""
    row = unwrap_langchain_message(row)
    parts = (*_parse_sibling_thinking(row), *_parse_content(row), *_parse_calls(row))
    role = who.role or "assistant"
    if who.note == "thought":
        parts = tuple(Thinking(part.text) if isinstance(part, Text) else part for part in parts)
    elif who.word in ("tool-call", "function_call"):
        parts = tuple(_expand_text_calls(parts))
    elif role == "tool" and not any(isinstance(part, ToolResult) for part in parts):
        parts = (_parse_result_row(row, who, parts),) if parts else ()
    usage = dict_at(row, "usage") or dict_at(row, "token_usage")
    return Message(
        role,
        parts,
        author=infer_message_author(role, parts),
        time=next(filter(None, (parse_time(row[key]) for key in TIME_KEYS if key in row)), None),
        model=text_at(row, "model") if role == "assistant" else "",
        usage=parse_chat_usage(usage) if role == "assistant" and usage else None,
    )


# Content


def _parse_content(row: dict[str, Any]) -> tuple[Part, ...]:
    return parse_lenient_parts(next((row[key] for key in CONTENT_KEYS if row.get(key) not in (None, "", [])), None))


def parse_lenient_parts(content: Any) -> tuple[Part, ...]:
    """Parse a text, a list of pieces, or one piece."""
    if isinstance(content, str):
        return text_parts(content)
    if isinstance(content, dict) and isinstance(content.get("parts"), list):
        content = content["parts"]
    pieces = content if isinstance(content, list) else [content]
    return tuple(part for piece in pieces if piece is not None and (part := _parse_part(piece)) != Text(""))


def _parse_part(piece: Any) -> Part:
    if isinstance(piece, str):
        return Text(piece)
    if not isinstance(piece, dict):
        return Unknown(type(piece).__name__, dump_json(piece))
    piece = dict_at(piece, "toolUse") or dict_at(piece, "toolResult") or piece  # Bedrock
    kind = text_at(piece, "type")
    part: Part | None = None
    match _PART_KINDS_BY_NAME.get(kind.lower().replace("-", "_"), _infer_part_kind(piece) if not kind else ""):
        case "text":
            text = _first_string(piece, "text", "content", "value")
            part = None if text is None else Text(text)
        case "thinking":
            part = _parse_thinking(piece)
        case "call":
            part = _parse_call(piece)
        case "result":
            part = _parse_result_part(piece)
        case "image":
            part = _parse_image(piece)
    return Unknown(kind, dump_json(piece)) if part is None else part


def _infer_part_kind(piece: dict[str, Any]) -> str:
    """Return the kind of a piece without a type."""
    if value_at(piece, "reasoningContent", "reasoningText"):
        return "thinking"
    if isinstance(piece.get("name"), str) and any(key in piece for key in ARGUMENT_KEYS):
        return "call"
    if any(key in piece for key in CALL_ID_KEYS) and any(key in piece for key in RESULT_KEYS):
        return "result"
    return "text" if isinstance(piece.get("text"), str) else ""


def _first_string(piece: dict[str, Any], *keys: str) -> str | None:
    """Return the first string under one of the keys, even if it is empty; None if no key has a string."""
    return next((piece[key] for key in keys if isinstance(piece.get(key), str)), None)


def _parse_thinking(piece: dict[str, Any]) -> Thinking:
    piece = dict_at(piece, "reasoningContent", "reasoningText") or piece  # Bedrock
    text = _first_string(piece, "text", "thinking", "reasoning", "content", "summary")
    return Thinking(text or "", _first_string(piece, "signature", "data", "encrypted_content") or "")


def _parse_sibling_thinking(row: dict[str, Any]) -> Iterator[Thinking]:
    """Yield thinking in a field next to the content."""
    if text := first_text(row, "reasoning_content", "reasoning", "thinking"):
        yield Thinking(text)


def _parse_image(piece: dict[str, Any]) -> Image | None:
    mime = _first_string(piece, "mime_type", "media_type", "mimeType") or ""
    data = text_at(piece, "content") if piece.get("type") == "blob" else text_at(piece, "data")
    if data:
        return Image(mime, data)
    urls = (piece.get("image_url"), value_at(piece, "image_url", "url"), piece.get("uri"), piece.get("url"))
    inner_urls = (value_at(piece, "image", "url"), value_at(piece, "image", "image", "url"))
    url = next((url for url in (*urls, *inner_urls) if isinstance(url, str) and url), "")
    image = parse_image_url(url) if url else None
    return replace(image, media_type=image.media_type or mime) if image else None


# Calls and results


def _parse_calls(row: dict[str, Any]) -> Iterator[Part]:
    for entry in list_at(row, "tool_calls"):
        yield _parse_call(as_dict(entry)) or Unknown("tool_calls", dump_json(entry))
    if isinstance(row.get("function_call"), dict):
        yield _parse_call(row["function_call"]) or Unknown("function_call", dump_json(row["function_call"]))


def _parse_call(entry: dict[str, Any]) -> ToolCall | None:
    entry = dict_at(entry, "tool_call") or entry
    inner = dict_at(entry, "function") or entry
    name = first_text(inner, "name", "toolName", "tool_name", "tool")
    arguments: Any = next((inner[key] for key in ARGUMENT_KEYS if inner.get(key) is not None), {})
    return ToolCall(_find_call_id(entry), name, json_text(arguments)) if name else None


def _find_call_id(entry: dict[str, Any]) -> str:
    """Return the call id of a call or a result. A field for the call id takes precedence over the field `id`."""
    return first_text(entry, *CALL_ID_KEYS, "id")


def _expand_text_calls(parts: Iterable[Part]) -> Iterator[Part]:
    """Replace each text that lists calls by these calls, and yield all other parts unchanged."""
    for part in parts:
        calls = parse_calls_as_text(part.text) if isinstance(part, Text) else None
        if calls is None:
            yield part
        else:
            yield from _parse_calls({"tool_calls": calls})


def _parse_result_part(piece: dict[str, Any]) -> ToolResult:
    failure = first_text(piece, "exception", "error")
    output = next((piece[key] for key in RESULT_KEYS if piece.get(key) is not None), None)
    is_error = bool(failure) or _is_failed(piece)
    if isinstance(output, dict) and output.keys() == {"type", "value"}:  # the AI SDK
        is_error = is_error or as_text(output["type"]).startswith("error")
        output = output["value"]
    content = parse_lenient_result(output if output is not None or not failure else failure)
    return ToolResult(_find_call_id(piece), content, is_error=is_error, name=first_text(piece, "name", "toolName"))


def _is_failed(row: dict[str, Any]) -> bool:
    return row.get("is_error") is True or row.get("isError") is True or row.get("status") == "error"


def parse_lenient_result(output: Any) -> tuple[ResultPart, ...]:
    """Parse the output of a tool: text and typed pieces become parts, any other value becomes JSON text."""
    pieces = [as_dict(piece) for piece in as_list(output)]
    if isinstance(output, str) or (pieces and all("type" in piece or piece.keys() == {"text"} for piece in pieces)):
        return result_content(parse_lenient_parts(output))
    return () if output is None else (Text(dump_json(output)),)


_CALL_ID_LINE = re.compile(r"Call id: (\S+)\n")
_NONZERO_EXIT = re.compile(r"exitcode: (?!0\b)-?\d")


def _parse_result_row(row: dict[str, Any], who: Speaker, parts: Sequence[Part]) -> ToolResult:
    content = result_content(parts)
    head = content[0].text if content and isinstance(content[0], Text) else ""
    id_line = _CALL_ID_LINE.match(head)
    failed = head.startswith("Error:", id_line.end() if id_line else 0) or _NONZERO_EXIT.match(head) is not None
    call_id = first_text(row, *CALL_ID_KEYS) or (id_line[1] if id_line else "")
    return ToolResult(call_id, content, is_error=failed or _is_failed(row), name=who.name)


# Calls in Python syntax

MAX_PARSED_CHARS = 400_000
"""Maximum number of characters in a text that the parser tries to read as calls."""
_CALLS_HEADING = re.compile(r"\s*(?:Calling tools:|Tool calls?:)?\s*")
_PARSE_ERRORS = (ValueError, SyntaxError, TypeError, RecursionError, MemoryError)


def parse_calls_as_text(text: str) -> list[Any] | None:
    """Parse a text that lists calls as JSON or as a Python literal; return None for any other text."""
    body = _CALLS_HEADING.sub("", text, count=1)
    if len(body) > MAX_PARSED_CHARS or not body.startswith(("[", "{")):
        return None
    try:
        value = load_json(body)
    except (ValueError, RecursionError):
        value = _parse_python_literal(body)
    entries = value if isinstance(value, list) else [value]
    return entries if entries and all(isinstance(entry, dict) for entry in entries) else None


def _parse_python_literal(source: str) -> Any:
    try:
        return _evaluate_literal(_parse_python_expression(source))
    except _PARSE_ERRORS:
        return None


def _evaluate_literal(node: ast.expr) -> Any:
    value = ast.literal_eval(node)
    dump_json(value)  # raises for a value that JSON cannot encode, such as a complex number
    return value


def parse_python_call(source: str) -> ToolCall | None:
    """Parse a call such as `grep(file_name='a.txt', pattern='b')`. Its id is empty. Return None for any other text."""
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
        warnings.simplefilter("ignore")  # the text can contain invalid escapes
        return ast.parse(source, mode="eval").body


def _encode_python_arguments(node: ast.Call) -> str:
    named = {keyword.arg: _literal_or_source(keyword.value) for keyword in node.keywords if keyword.arg}
    positional = [_literal_or_source(value) for value in node.args]
    return dump_json(named | ({"args": positional} if positional else {}))


def _literal_or_source(node: ast.expr) -> Any:
    """Return the value of a literal, or the source code of any other expression."""
    try:
        return _evaluate_literal(node)
    except _PARSE_ERRORS:
        return ast.unparse(node)
