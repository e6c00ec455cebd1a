"""The four dialects: lossless round trips, and few losses between dialects."""

import copy
import gzip
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

import thresher as th
from thresher.dialects.anthropic import codec as anthropic
from thresher.dialects.base import Dialect
from thresher.dialects.gemini import codec as gemini
from thresher.dialects.openai_chat import codec as openai_chat
from thresher.dialects.openai_responses import codec as openai_responses
from thresher.dialects.pairing import CallIdAssigner
from thresher.dialects.table import load_dialects
from thresher.errors import FormatError
from thresher.model import History, Image, Message, Part, Summary, Text, Thinking, ToolCall, ToolResult, Unknown
from thresher.model.jsontext import canonical_json

DATA = Path(__file__).parents[2].parent / "shared" / "data"
WIRE: dict[str, Dialect] = {dialect.name: dialect for dialect in load_dialects()}
PNG = "iVBORw0KGgo="
PNG_URL = f"data:image/png;base64,{PNG}"


def says(role: Any, *content: Any, **rest: Any) -> dict[str, Any]:
    return {"role": role, "content": list(content), **rest}


def holds(role: Any, *parts: Any, **rest: Any) -> dict[str, Any]:
    return {"role": role, "parts": list(parts), **rest}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


# One message of each kind, and odd ones from real files and faulty programs.
ROWS: dict[str, list[Any]] = {
    "anthropic": [
        {"role": "user", "content": "hello"},
        {"role": "user", "content": ""},
        says("user"),
        says("user", text("hello"), ts=1),
        says("user", "bare", {"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}),
        says("assistant", {"type": "thinking", "thinking": "hm", "signature": "sig"}),
        says("assistant", {"type": "thinking", "thinking": "hm"}),
        says("assistant", {"type": "redacted_thinking", "data": "sealed"}),
        says("assistant", {"type": "tool_use", "id": "t1", "name": "read", "input": {"a": [1, 2.0]}}),
        says("assistant", {"type": "tool_use", "id": "t1", "name": "read", "input": "{}"}),
        says("assistant", {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}),
        says("user", {"type": "tool_result", "tool_use_id": "t1"}),
        says("user", {"type": "tool_result", "tool_use_id": "t1", "content": "", "is_error": False}),
        says("user", {"type": "tool_result", "tool_use_id": "t1", "content": "no", "is_error": True}),
        says(
            "user",
            {"type": "tool_result", "tool_use_id": "t1", "content": [text("r"), {"type": "x"}]},
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
            {"type": "image", "source": {"type": "url", "url": "https://x.test/a.png"}, "extra": 1},
            {"type": "document", "source": {"type": "file", "file_id": "f"}},
        ),
        {"role": "user", "content": None},
        {"role": 3, "content": "x"},
        {"content": "x"},
        {},
        None,
        "just text",
        7,
    ],
    "openai-chat": [
        {"role": "system", "content": "be brief"},
        {"role": "developer", "content": "be brief", "name": "boss"},
        {"role": "user", "content": "hello"},
        {"role": "user", "content": "hello", "name": "bob"},
        {"role": "user", "content": ""},
        {"role": "user", "content": None},
        says("user"),
        {"role": "user"},
        says("user", text("hello"), cache_control={"type": "ephemeral"}),
        says("user", {"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}, "bare", 3),
        says("user", {"type": "image_url", "image_url": {"url": PNG_URL, "detail": "low"}}),
        says("user", {"type": "image_url", "image_url": {"url": "https://x.test/a.png"}}),
        says("user", {"type": "image_url", "image_url": {"url": "data:application/pdf;base64,QQ=="}}),
        says("user", {"type": "image_url", "image_url": {"url": "data:,plain"}}),
        says("user", {"type": "image_url", "image_url": "https://x.test/a.png"}),
        says("user", {"type": "input_audio", "input_audio": {"data": "QQ==", "format": "wav"}}),
        says("user", {"type": "input_audio", "input_audio": {"data": "QQ==", "format": "mpeg"}}),
        says(
            "user",
            {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,QQ=="}},
            {"type": "file", "file": {"file_id": "file-1"}},
            {"type": "text"},
            {},
        ),
        {"role": "user", "content": {"text": "x"}},
        {"role": "user", "content": 5},
        {"role": "assistant", "content": "hi", "refusal": None, "annotations": [], "audio": None},
        {"role": "assistant", "content": None, "refusal": "I cannot"},
        says("assistant", text("hi"), {"type": "refusal", "refusal": "no"}),
        {"role": "assistant", "content": "", "reasoning_content": "hm", "tool_calls": None, "function_call": None},
        {"role": "assistant", "content": "hi", "reasoning": "hm", "reasoning_details": [{"type": "x"}]},
        {"role": "assistant", "content": "hi", "reasoning": "", "reasoning_content": None, "tool_calls": []},
        {"role": "assistant", "content": "hi", "reasoning": {"odd": 1}},
        {
            "role": "assistant",
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "read", "arguments": '{ "a" : 1 }'}, "index": 0},
                {"id": "c2", "type": "custom", "custom": {"name": "patch", "input": "free *text*"}},
                {"id": "c3", "type": "function", "function": {"name": "f", "arguments": "", "strict": True}},
                {"id": "c4", "type": "function", "function": {"name": "f", "arguments": {"as": "object"}}},
                {"id": None, "function": {"name": "f", "arguments": "not json"}},
                {"id": "c5", "type": "function", "function": {"name": "f"}},
                {"id": "c6", "type": "function"},
                "odd",
                None,
            ],
        },
        {"role": "assistant", "content": None, "tool_calls": {"odd": 1}},
        {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}", "extra": 1}},
        {"role": "assistant", "content": None, "function_call": {"name": "f"}},
        {"role": "assistant", "content": None, "function_call": "f"},
        {"role": "tool", "tool_call_id": "c1", "content": "ok"},
        {"role": "tool", "tool_call_id": "c1", "content": "", "name": "read", "extra": {"returncode": 0}},
        says("tool", text("ok"), tool_call_id="c1", name=""),
        says("tool", {"type": "image_url", "image_url": {"url": PNG_URL}}, tool_call_id="c1"),
        {"role": "tool", "tool_call_id": "c1"},
        {"role": "tool", "tool_call_id": "c1", "content": {"a": 1}},
        {"role": "tool", "content": "no id", "tool_call_id": None},
        {"role": "function", "name": "f", "content": "ok"},
        {"role": "function", "name": "f", "content": None},
        {"role": "exit", "content": "bye", "extra": {"exit_status": "Submitted"}},
        {"role": "user", "content": "x", "tool_calls": [{"id": "c"}], "tool_call_id": "y"},
        {"role": {"value": "user"}, "contents": []},
        {"": 1, "role": "tool", "tool_call_id": "c1", "content": "ok"},
        {},
        None,
        "just text",
        ["x"],
    ],
    "openai-responses": [
        says("user", {"type": "input_text", "text": "hello"}, type="message"),
        {"role": "user", "content": "hello"},
        {"role": "user", "content": "", "id": "m"},
        says("user", type="message"),
        says("developer", {"type": "input_text", "text": "be brief"}, type="message", meta={}),
        {"role": "system", "content": "be brief"},
        says("critic", text("be brief"), "bare", 3, None, {}),
        says(
            "assistant",
            {"type": "output_text", "text": "hi", "annotations": [], "logprobs": []},
            {"type": "input_text", "text": "odd here"},
            {"type": "refusal", "refusal": "no"},
            {"type": "output_text"},
            type="message",
            id="m1",
            status="completed",
        ),
        says(
            "user",
            {"type": "input_image", "image_url": PNG_URL, "detail": "auto"},
            {"type": "input_image", "image_url": "https://x.test/a.png"},
            {"type": "input_image", "file_id": "file-1"},
            {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,QQ=="},
            {"type": "input_file", "filename": "a.pdf", "file_data": "QQ=="},
            {"type": "input_file", "file_url": "https://x.test/a.pdf"},
            {"type": "input_audio", "input_audio": {"data": "QQ==", "format": "mp3"}},
        ),
        {"type": "message", "role": "user", "content": None},
        {"type": "message", "role": 5, "content": "x"},
        {"type": "function_call", "call_id": "c1", "name": "read", "arguments": '{ "a":1}'},
        {"type": "function_call", "id": "fc", "call_id": "c1", "name": "f", "arguments": "", "namespace": "n"},
        {"type": "function_call", "call_id": "c1", "name": "f", "arguments": {"a": 1}},
        {"type": "function_call", "call_id": None, "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "ok"},
        {"type": "function_call_output", "call_id": "c1", "output": "", "id": "o", "status": None},
        {
            "type": "function_call_output",
            "call_id": "c1",
            "output": [
                {"type": "input_text", "text": "ok"},
                {"type": "input_image", "image_url": PNG_URL},
                {"type": "x"},
            ],
        },
        {"type": "function_call_output", "call_id": "c1", "output": []},
        {"type": "function_call_output", "call_id": "c1", "output": {"content": "ok", "success": True}},
        {"type": "function_call_output", "call_id": "c1", "output": None},
        {"type": "function_call_output", "call_id": "c1"},
        {
            "type": "custom_tool_call",
            "call_id": "c2",
            "name": "apply_patch",
            "input": "*** Begin",
            "status": "completed",
        },
        {"type": "custom_tool_call_output", "call_id": "c2", "output": "done"},
        {"type": "local_shell_call", "id": "l", "call_id": "c3", "action": {"type": "exec", "command": ["ls"]}},
        {"type": "local_shell_call", "id": "l", "call_id": None, "action": {"type": "exec", "command": ["ls"]}},
        {"type": "local_shell_call_output", "id": "l", "output": "{}"},
        {"type": "local_shell_call_output", "call_id": "c3", "output": "{}"},
        {"type": "reasoning", "id": "r", "summary": [], "encrypted_content": "sealed", "content": None},
        {
            "type": "reasoning",
            "summary": [{"type": "summary_text", "text": "a"}, {"type": "summary_text", "text": "b"}],
        },
        {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "open"}]},
        {"type": "reasoning", "summary": [3, {"text": 4}], "encrypted_content": None},
        {"type": "reasoning", "summary": "odd"},
        {"type": "reasoning"},
        {"type": "web_search_call", "status": "completed", "action": {"type": "search", "query": "q"}},
        {"type": "tool_search_output", "call_id": "x", "tools": []},
        {"type": "item_reference", "id": "x"},
        {"type": "compaction", "encrypted_content": "sealed"},
        {"type": 5},
        {"type": None, "role": "user", "content": "x"},
        {},
        None,
        "just text",
    ],
    "gemini": [
        holds("user", {"text": "hello"}),
        {"parts": [{"text": "hello"}]},
        holds(None, {"text": "hello", "functionCall": None, "thought": None}),
        holds("user"),
        holds("user", "bare", 3, None, {}, {"text": 5}),
        holds("system", {"text": "be brief"}),
        holds("model", {"text": "hm", "thought": True}),
        holds("model", {"text": "hm", "thought": True, "thoughtSignature": "sig"}),
        holds("model", {"text": "hm", "thought": True, "thought_signature": "sig"}),
        holds("model", {"text": "hi", "thought": False, "thoughtSignature": "sig"}, extra=1),
        holds("model", {"functionCall": {"name": "f", "args": {"a": {"b": [1]}}}, "thoughtSignature": "s"}),
        holds("model", {"functionCall": {"id": "c1", "name": "f", "args": {}}}),
        holds("model", {"functionCall": {"id": "", "name": "f", "args": None}}),
        holds("model", {"function_call": {"name": "f", "args": {}, "will_continue": True}}),
        holds("model", {"functionCall": {"name": "f", "args": "odd"}}, {"functionCall": {"args": {}}}),
        holds("model", {"text": "two", "functionCall": {"name": "f", "args": {}}}),
        holds("user", {"functionResponse": {"id": "c1", "name": "f", "response": {"output": "ok"}}}),
        holds("function", {"functionResponse": {"name": "f", "response": {"error": "no"}}}),
        holds("user", {"functionResponse": {"name": "f", "response": {"error": {"code": 5}}}}),
        holds("user", {"functionResponse": {"name": "f", "response": {"result": "ok"}}}),
        holds("user", {"functionResponse": {"name": "f", "response": {"a": 1, "output": "x"}}}),
        holds("user", {"functionResponse": {"name": "f", "response": {}}}),
        holds("user", {"functionResponse": {"name": "f"}}, {"functionResponse": {"name": ""}}),
        holds("user", {"functionResponse": {"name": "f", "response": "odd"}}),
        holds("user", {"function_response": {"name": "f", "response": {"content": "ok"}}}),
        holds(
            "user",
            {
                "functionResponse": {
                    "name": "f",
                    "response": {"output": "ok"},
                    "parts": [{"inlineData": {"mimeType": "image/png", "data": PNG}}, {"text": "odd"}],
                }
            },
            {"inlineData": {"mimeType": "image/png", "data": PNG, "displayName": "a"}},
            {"inline_data": {"mime_type": "image/png", "data": PNG}},
            {"fileData": {"fileUri": "gs://a/b", "mimeType": "video/mp4"}, "videoMetadata": {"fps": 1}},
            {"file_data": {"file_uri": "gs://a/b"}},
            {"inline_data": {"mimeType": "image/png", "data": PNG}},
            {"inlineData": "odd"},
        ),
        holds("model", {"executableCode": {"language": "PYTHON", "code": "1"}}),
        {"role": "user", "parts": {"text": "odd"}},
        holds(5),
        {"role": "user"},
        {},
        None,
        "just text",
    ],
}

BODIES: dict[str, list[dict[str, Any]]] = {
    "anthropic": [
        {"messages": []},
        {"model": "m", "system": "be brief", "messages": [{"role": "user", "content": "hi"}], "tools": None},
        {"system": [{"type": "text", "text": "be brief", "cache_control": {"type": "ephemeral"}}], "messages": []},
        {"system": 5, "messages": [], "tools": [{"name": "f", "input_schema": {}}], "max_tokens": 1},
    ],
    "openai-chat": [
        {"messages": []},
        {"messages": [{"role": "system", "content": "x"}], "tools": [], "model": "m"},
        {"messages": [None], "tools": None, "functions": [{"name": "f"}]},
    ],
    "openai-responses": [
        {"input": []},
        {"input": "hello"},
        {"input": "", "instructions": ""},
        {"input": [{"role": "system", "content": "x"}], "instructions": "be brief", "tools": [{"type": "web_search"}]},
        {"input": "hello", "instructions": None, "tools": None},
        {"input": [], "instructions": [{"role": "user", "content": "x"}], "reasoning": {"effort": "low"}},
    ],
    "gemini": [
        {"contents": []},
        {"contents": [], "systemInstruction": {"parts": [{"text": "be brief"}]}, "tools": [{"googleSearch": {}}]},
        {"contents": [], "systemInstruction": {"role": "user", "parts": ["a", {"text": "b"}]}, "generationConfig": {}},
        {"contents": [None], "system_instruction": "be brief", "tools": None},
        {"contents": [], "system_instruction": {"parts": []}, "systemInstruction": {"parts": [{"text": "both"}]}},
        {"contents": [], "systemInstruction": 5},
    ],
}

ODD: list[Any] = [
    None, "", "x", 0, True, -1.5, 2**70, [], {}, [None], {"a": 1}, "\ud800", "tool", "assistant", "model",
    [{"type": "text", "text": "t"}], {"name": "f", "arguments": "{}"}, "data:image/png;base64,QQ==", {"output": "x"},
]  # fmt: skip


def assert_same(value: Any, *, name: str) -> None:
    """Parse and emit, and compare as JSON (where `1` is not `true`)."""
    emission = WIRE[name].emit(WIRE[name].parse(value), None)
    assert emission.value == value
    assert canonical_json(emission.value) == canonical_json(value)
    assert emission.losses == ()


CASES = [(name, row) for name, rows in ROWS.items() for row in rows]


@pytest.mark.parametrize(("name", "row"), CASES, ids=[f"{n}-{i}" for i, (n, _) in enumerate(CASES)])
def test_a_row_round_trips(name: str, row: Any) -> None:
    assert_same([row], name=name)
    assert len(WIRE[name].parse([row])) == 1


@pytest.mark.parametrize("name", WIRE)
def test_all_rows_together_round_trip_one_to_one(name: str) -> None:
    assert len(WIRE[name].parse(ROWS[name])) == len(ROWS[name])
    assert_same(ROWS[name], name=name)


@pytest.mark.parametrize("name", WIRE)
def test_bodies_round_trip(name: str) -> None:
    for body in BODIES[name]:
        assert_same(body, name=name)


@pytest.mark.parametrize("name", WIRE)
def test_any_value_in_any_field_round_trips(name: str) -> None:
    for row in ROWS[name]:
        for path in _places(row):
            for odd in ODD:
                assert_same([_with(row, path, odd)], name=name)


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in pairs:
        yield (*path, key)
        yield from _places(inner, (*path, key))


def _with(value: Any, path: tuple[Any, ...], odd: Any) -> Any:
    changed = copy.deepcopy(value)
    place = changed
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = odd
    return changed


@pytest.mark.parametrize("name", WIRE)
def test_other_values_than_lists_of_messages_are_errors(name: str) -> None:
    refused: list[Any] = ["text", None, 5, {"other": []}]
    for value in refused:
        with pytest.raises(FormatError, match=name):
            WIRE[name].parse(value)


# Real conversations.


def _documents(folder: str, prefix: str = "") -> Iterator[Any]:
    for path in sorted((DATA / folder).glob(f"{prefix}*")):
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        decoded = data.decode("utf-8", "replace")
        if ".jsonl" in path.name:
            yield [record for line in decoded.splitlines() if (record := _record(line)) is not None]
        else:
            yield json.loads(decoded)


def _record(line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return None


def _cline() -> Iterator[Any]:
    for document in _documents("cline_roo"):
        yield document["messages"] if isinstance(document, dict) else document


def _mini_swe() -> Iterator[Any]:
    for document in _documents("mini_swe"):
        yield document["messages"]


def _openai_tools() -> Iterator[Any]:
    for document in _documents("openai_tools"):
        for record in document if isinstance(document, list) else [document]:
            for key in ("messages", "raw_messages", "traj"):
                if isinstance(record.get(key), list):
                    yield record[key]
        if isinstance(document, list) and document and "role" in document[0]:
            yield document


def _gemini_contents() -> Iterator[Any]:
    yield from _documents("gemini_contents", "gcli-")
    for document in _documents("gemini_contents", "resp-"):
        yield from ([content] for content in _candidates(document))


def _candidates(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        for candidate in value.get("candidates") or ():
            if "content" in candidate:
                yield candidate["content"]
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _candidates(inner)


def _compression_evals() -> Iterator[Any]:
    for document in _documents("compression_evals"):
        yield document["history"]


def _codex() -> Iterator[Any]:
    for records in _documents("codex"):
        yield [record["payload"] for record in records if record.get("type") == "response_item"]


def _claude_code() -> Iterator[Any]:
    for records in _documents("claude_code"):
        said = (record for record in records if record.get("type") in ("user", "assistant"))
        yield [{key: record["message"].get(key) for key in ("role", "content")} for record in said]


REAL: dict[str, tuple[str, Callable[[], Iterator[Any]], int]] = {
    "cline_roo": ("anthropic", _cline, 7),
    "claude_code": ("anthropic", _claude_code, 109),
    "mini_swe": ("openai-chat", _mini_swe, 60),
    "openai_tools": ("openai-chat", _openai_tools, 300),
    "gemini_contents": ("gemini", _gemini_contents, 100),
    "compression_evals": ("gemini", _compression_evals, 13),
    "codex": ("openai-responses", _codex, 16),
}


@pytest.mark.parametrize("folder", REAL)
def test_real_conversations_round_trip(folder: str) -> None:
    if not (DATA / folder).is_dir():
        pytest.skip(f"no recorded conversations at {DATA / folder}")
    name, conversations, at_least = REAL[folder]
    count = 0
    for conversation in conversations():
        emission = WIRE[name].emit(WIRE[name].parse(conversation), None)
        assert emission.value == conversation
        assert emission.losses == ()
        count += 1
    assert count >= at_least


# Conversion between dialects.

SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}}
RICH: dict[str, dict[str, Any]] = {
    "anthropic": {
        "system": "be brief",
        "messages": [
            says(
                "user",
                text("what is this?"),
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
            ),
            says(
                "assistant",
                {"type": "thinking", "thinking": "two files", "signature": "sig"},
                text("I look."),
                {"type": "tool_use", "id": "c1", "name": "read", "input": {"path": "a"}},
                {"type": "tool_use", "id": "c2", "name": "read", "input": {"path": "b"}},
            ),
            says(
                "user",
                {"type": "tool_result", "tool_use_id": "c2", "content": "no such file", "is_error": True},
                {"type": "tool_result", "tool_use_id": "c1", "content": "alpha"},
            ),
            {"role": "assistant", "content": "A letter."},
        ],
        "tools": [{"name": "read", "description": "Read a file", "input_schema": SCHEMA}],
    },
    "openai-chat": {
        "messages": [
            {"role": "system", "content": "be brief"},
            says("user", text("what is this?"), {"type": "image_url", "image_url": {"url": PNG_URL}}),
            {
                "role": "assistant",
                "reasoning_content": "two files",
                "content": "I look.",
                "tool_calls": [
                    {"id": "c1", "type": "function", "function": {"name": "read", "arguments": '{"path":"a"}'}},
                    {"id": "c2", "type": "function", "function": {"name": "read", "arguments": '{"path":"b"}'}},
                ],
            },
            {"role": "tool", "tool_call_id": "c2", "content": "Error: no such file"},
            {"role": "tool", "tool_call_id": "c1", "content": "alpha"},
            {"role": "assistant", "content": "A letter."},
        ],
        "tools": [
            {"type": "function", "function": {"name": "read", "description": "Read a file", "parameters": SCHEMA}}
        ],
    },
    "openai-responses": {
        "instructions": "be brief",
        "input": [
            says(
                "user",
                {"type": "input_text", "text": "what is this?"},
                {"type": "input_image", "image_url": PNG_URL},
                type="message",
            ),
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "two files"}], "encrypted_content": "e"},
            says("assistant", {"type": "output_text", "text": "I look."}, type="message"),
            {"type": "function_call", "call_id": "c1", "name": "read", "arguments": '{"path":"a"}'},
            {"type": "function_call", "call_id": "c2", "name": "read", "arguments": '{"path":"b"}'},
            {"type": "function_call_output", "call_id": "c2", "output": "Error: no such file"},
            {"type": "function_call_output", "call_id": "c1", "output": "alpha"},
            says("assistant", {"type": "output_text", "text": "A letter."}, type="message"),
        ],
        "tools": [
            {"type": "function", "name": "read", "description": "Read a file", "parameters": SCHEMA, "strict": False}
        ],
    },
    "gemini": {
        "systemInstruction": {"parts": [{"text": "be brief"}]},
        "contents": [
            holds("user", {"text": "what is this?"}, {"inlineData": {"mimeType": "image/png", "data": PNG}}),
            holds(
                "model",
                {"text": "two files", "thought": True},
                {"text": "I look."},
                {"functionCall": {"id": "c1", "name": "read", "args": {"path": "a"}}, "thoughtSignature": "s"},
                {"functionCall": {"id": "c2", "name": "read", "args": {"path": "b"}}},
            ),
            holds(
                "user",
                {"functionResponse": {"id": "c2", "name": "read", "response": {"error": "no such file"}}},
                {"functionResponse": {"id": "c1", "name": "read", "response": {"output": "alpha"}}},
            ),
            holds("model", {"text": "A letter."}),
        ],
        "tools": [
            {"functionDeclarations": [{"name": "read", "description": "Read a file", "parametersJsonSchema": SCHEMA}]}
        ],
    },
}
MARKS_FAILURE = {"anthropic", "gemini"}
PAIRS = [(source, target) for source in WIRE for target in WIRE if source != target]


def _parts(history: History) -> Iterator[Part]:
    for message in history:
        yield from message.parts


def _calls(history: History) -> list[tuple[str, str, Any]]:
    return [(p.id, p.name, json.loads(p.arguments)) for p in _parts(history) if isinstance(p, ToolCall)]


def _results(history: History) -> list[tuple[str, str]]:
    found = [part for part in _parts(history) if isinstance(part, ToolResult)]
    return [(part.call_id, part.text.removeprefix("Error: ")) for part in found]


def _told(history: History) -> list[str]:
    return [message.text for message in history if message.role == "system"]


def _said(history: History) -> list[tuple[str, str]]:
    spoken = [m for m in history if m.role in ("user", "assistant")]
    return [(m.role, part.text) for m in spoken for part in m.parts if isinstance(part, Text)]


def _images(history: History) -> list[tuple[str, str]]:
    return [(part.media_type, part.data) for part in _parts(history) if isinstance(part, Image)]


@pytest.mark.parametrize("name", WIRE)
def test_the_rich_conversation_parses_alike_in_every_dialect(name: str) -> None:
    assert_same(RICH[name], name=name)
    history = WIRE[name].parse(RICH[name])
    assert _calls(history) == [("c1", "read", {"path": "a"}), ("c2", "read", {"path": "b"})]
    assert _results(history) == [("c2", "no such file"), ("c1", "alpha")]
    assert _told(history) == ["be brief"]
    assert _images(history) == [("image/png", PNG)]
    assert [part.text for part in _parts(history) if isinstance(part, Thinking)] == ["two files"]
    assert not history.orphans
    assert all(chain.result for chain in history.chains)


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_a_conversation_converts(source: str, target: str) -> None:
    history = WIRE[source].parse(RICH[source])
    emission = WIRE[target].emit(history, None)
    again = WIRE[target].parse(emission.value)
    for told in (_calls, _results, _told, _said, _images):
        assert told(again) == told(history)
    if {source, target} <= MARKS_FAILURE:
        flags = [[p.is_error for p in _parts(h) if isinstance(p, ToolResult)] for h in (history, again)]
        assert flags == [[True, False], [True, False]]
    assert not any(isinstance(part, Thinking | Unknown) for part in _parts(again))
    assert [loss.what for loss in emission.losses] == ["thinking of another vendor's model"]


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_a_converted_conversation_matches_the_target_dialect(source: str, target: str) -> None:
    emission = WIRE[target].emit(WIRE[source].parse(RICH[source]), None)
    assert emission.value == _as_crossed(RICH[target], target, source)


def _as_crossed(body: dict[str, Any], target: str, source: str) -> dict[str, Any]:
    """The target's own rich conversation, without content that no other dialect can provide."""
    wanted = copy.deepcopy(body)
    failure = ("", "Error: ")[source not in MARKS_FAILURE] + "no such file"
    match target:
        case "anthropic":
            for row in wanted["messages"]:
                content = row["content"]
                row["content"] = [{"type": "text", "text": content}] if isinstance(content, str) else content
            del wanted["messages"][1]["content"][0]
            result = wanted["messages"][2]["content"][0]
            result["content"] = failure
            if source not in MARKS_FAILURE:
                del result["is_error"]
        case "openai-chat":
            del wanted["messages"][2]["reasoning_content"]
        case "openai-responses":
            del wanted["input"][1]
        case "gemini":
            del wanted["contents"][1]["parts"][0]
            del wanted["contents"][1]["parts"][1]["thoughtSignature"]
            if source not in MARKS_FAILURE:
                response = wanted["contents"][2]["parts"][0]["functionResponse"]
                response["response"] = {"output": failure}
    return wanted


def test_anthropic_to_chat_exactly() -> None:
    rows = [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "shot", "input": {}}]},
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "c1",
                    "content": [
                        {"type": "text", "text": "taken"},
                        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
                        {"type": "tool_reference", "tool_name": "x"},
                    ],
                },
                {"type": "text", "text": "and now?"},
            ],
        },
        {"role": "assistant", "content": [{"type": "server_tool_use", "id": "s"}, {"type": "text", "text": "done"}]},
    ]
    emission = openai_chat.emit_openai_chat(anthropic.parse_anthropic(rows), None)
    call = {"id": "c1", "type": "function", "function": {"name": "shot", "arguments": "{}"}}
    assert emission.value == [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "taken"},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "[image of tool result c1]"},
                {"type": "image_url", "image_url": {"url": PNG_URL}},
            ],
        },
        {"role": "user", "content": "and now?"},
        {"role": "assistant", "content": "done"},
    ]
    assert [str(loss) for loss in emission.losses] == [
        "image in a tool result; written as a user message after the results",
        "part `tool_reference` of another format; removed",
        "part `server_tool_use` of another format; removed",
    ]


def test_responses_to_chat_merges_the_items_of_one_turn() -> None:
    items = [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": "I look."},
        {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
        {"type": "custom_tool_call", "call_id": "c2", "name": "patch", "input": "free text"},
        {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_image", "image_url": PNG_URL}]},
        {"type": "custom_tool_call_output", "call_id": "c2", "output": "done"},
        {"role": "assistant", "content": "Once"},
        {"role": "assistant", "content": "more"},
    ]
    value = openai_chat.emit_openai_chat(openai_responses.parse_openai_responses(items), None).value
    assert [row["role"] for row in value] == ["user", "assistant", "tool", "tool", "user", "assistant"]
    assert value[1]["content"] == "I look."
    assert [call["function"]["arguments"] for call in value[1]["tool_calls"]] == ["{}", '{"input":"free text"}']
    assert [row["content"] for row in value[2:4]] == ["[image: see the next user message]", "done"]
    assert value[5]["content"] == [{"type": "text", "text": "Once"}, {"type": "text", "text": "more"}]


def test_an_image_in_a_result_stays_in_it_where_the_target_allows() -> None:
    result = ToolResult("c1", (Text("taken"), Image("image/png", PNG), Unknown("x", "{}")), is_error=True)
    history = History((Message("tool", (result,), author="tool"),))
    assert openai_responses.emit_openai_responses(history, None).value == [
        {
            "type": "function_call_output",
            "call_id": "c1",
            "output": [
                {"type": "input_text", "text": "Error: taken"},
                {"type": "input_image", "image_url": PNG_URL},
            ],
        }
    ]
    assert gemini.emit_gemini(history, None).value == [
        {
            "role": "user",
            "parts": [
                {"functionResponse": {"id": "c1", "name": "tool", "response": {"error": "taken"}}},
                {"inlineData": {"mimeType": "image/png", "data": PNG}},
            ],
        }
    ]


def test_gemini_results_come_first_and_system_text_in_the_middle_is_reported() -> None:
    history = History(
        (
            Message("assistant", (ToolCall("c1", "f", "{}"), ToolCall("c2", "g", "free")), author="model"),
            Message("tool", (ToolResult("c1", (Text("one"),)),), author="tool"),
            Message("system", (Text("mind the step"),), author="harness"),
            Message("tool", (ToolResult("c2", (Text("two"),)),), author="tool"),
        )
    )
    emission = gemini.emit_gemini(history, None)
    assert [[next(iter(part)) for part in row["parts"]] for row in emission.value] == [
        ["functionCall", "functionCall"],
        ["functionResponse", "functionResponse", "text"],
    ]
    assert [loss.what for loss in emission.losses] == [
        "arguments of `g` are not a JSON object",
        "system text in the middle of the conversation",
    ]


@pytest.mark.parametrize("name", WIRE)
def test_a_summary_is_text_and_other_media_are_converted(name: str) -> None:
    media = (Image("application/pdf", "QQ=="), Image("", url="https://x.test/a.png"), Image("audio/wav", "QQ=="))
    history = History((Message("user", (Summary("so far"), *media)),))
    emission = WIRE[name].emit(history, None)
    (message,) = WIRE[name].parse(emission.value)
    assert message.text == "so far"
    found = [part for part in message.parts if isinstance(part, Image)]
    assert [(part.media_type, part.data, part.url) for part in found[:2]] == [
        ("application/pdf", "QQ==", ""),
        ("", "", "https://x.test/a.png"),
    ]


@pytest.mark.parametrize("name", WIRE)
@pytest.mark.parametrize("source", WIRE)
def test_body_or_list_as_requested(name: str, source: str) -> None:
    history = WIRE[source].parse(RICH[source])
    listed = WIRE[name].emit(history, False)
    assert isinstance(listed.value, list)
    kept = "be brief" in canonical_json(listed.value)
    assert kept or any("system text" in loss.what for loss in listed.losses)
    assert isinstance(WIRE[name].emit(WIRE[source].parse([]), True).value, dict)
    assert WIRE[name].emit(WIRE[source].parse([]), None).value == []


def test_gemini_schemas_become_plain_ones() -> None:
    declared = {"name": "f", "parameters": {"type": "OBJECT", "properties": {"type": {"type": "STRING"}}}}
    body = {"contents": [], "tools": [{"function_declarations": [declared]}, {"googleSearch": {}}]}
    emission = openai_responses.emit_openai_responses(gemini.parse_gemini(body), None)
    assert emission.value["tools"][0]["parameters"] == {
        "type": "object",
        "properties": {"type": {"type": "string"}},
    }
    assert [loss.what for loss in emission.losses] == ["tool definition `googleSearch`"]


# Edits.

EDITABLE: dict[str, list[Any]] = {
    "anthropic": [
        {"role": "user", "content": "OLD"},
        says("user", {"type": "text", "text": "OLD", "cache_control": {}}),
        says("user", "OLD"),
        says("assistant", {"type": "thinking", "thinking": "OLD", "signature": "s", "extra": 1}),
        says("assistant", {"type": "tool_use", "id": "c", "name": "f", "input": {"a": "OLD"}}),
        says("user", {"type": "tool_result", "tool_use_id": "c", "content": "OLD", "extra": 1}),
        says("user", {"type": "tool_result", "tool_use_id": "c", "content": [text("OLD")]}),
        says("user", {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "OLD"}}),
    ],
    "openai-chat": [
        {"role": "system", "content": "OLD"},
        {"role": "developer", "content": "OLD"},
        {"role": "exit", "content": "OLD", "extra": {}},
        says("user", {"type": "text", "text": "OLD", "cache_control": {}}),
        says("user", "OLD"),
        says("assistant", {"type": "refusal", "refusal": "OLD"}),
        {"role": "assistant", "content": None, "refusal": "OLD"},
        {"role": "assistant", "content": None, "reasoning_content": "OLD"},
        {"role": "assistant", "content": "", "reasoning": "OLD"},
        {
            "role": "assistant",
            "tool_calls": [
                {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a":"OLD"}'}, "index": 0}
            ],
        },
        {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": {"a": "OLD"}}}]},
        {"role": "assistant", "tool_calls": [{"id": "c", "type": "custom", "custom": {"name": "f", "input": "OLD"}}]},
        {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "OLD", "extra": 1}},
        {"role": "tool", "tool_call_id": "c", "content": "OLD", "name": "f", "extra": 1},
        says("tool", text("OLD"), tool_call_id="c"),
        {"role": "function", "name": "f", "content": "OLD"},
        says("user", {"type": "image_url", "image_url": {"url": "data:image/png;base64,OLD", "detail": "low"}}),
        says("user", {"type": "input_audio", "input_audio": {"data": "OLD", "format": "wav"}}),
        says("user", {"type": "file", "file": {"filename": "a", "file_data": "data:a/b;base64,OLD"}}),
    ],
    "openai-responses": [
        {"role": "user", "content": "OLD"},
        says("developer", {"type": "input_text", "text": "OLD"}, type="message"),
        says("assistant", {"type": "output_text", "text": "OLD", "annotations": []}, type="message", id="m"),
        says("assistant", {"type": "refusal", "refusal": "OLD"}),
        {
            "type": "reasoning",
            "id": "r",
            "summary": [{"type": "summary_text", "text": "OLD"}],
            "encrypted_content": "e",
        },
        {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "OLD"}]},
        {"type": "function_call", "id": "x", "call_id": "c", "name": "f", "arguments": '{"a":"OLD"}'},
        {"type": "custom_tool_call", "call_id": "c", "name": "f", "input": "OLD", "status": "completed"},
        {"type": "local_shell_call", "id": "x", "call_id": "c", "action": {"type": "exec", "command": ["OLD"]}},
        {"type": "function_call_output", "call_id": "c", "output": "OLD", "id": "o"},
        {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "OLD"}]},
        {"type": "function_call_output", "call_id": "c", "output": {"content": "OLD"}},
        {"type": "custom_tool_call_output", "call_id": "c", "output": "OLD"},
        {"type": "local_shell_call_output", "id": "x", "output": "OLD"},
        says("user", {"type": "input_image", "image_url": "data:image/png;base64,OLD", "detail": "low"}),
        says("user", {"type": "input_file", "filename": "a", "file_data": "data:a/b;base64,OLD"}),
        says("user", {"type": "input_audio", "input_audio": {"data": "OLD", "format": "wav"}}),
    ],
    "gemini": [
        holds("user", {"text": "OLD", "thoughtSignature": "s"}),
        {"parts": ["OLD"]},
        holds("model", {"text": "OLD", "thought": True, "thoughtSignature": "s"}),
        holds("model", {"functionCall": {"name": "f", "args": {"a": "OLD"}}, "thoughtSignature": "s"}),
        holds("model", {"function_call": {"id": "c", "name": "f", "args": {"a": "OLD"}}}),
        holds("user", {"functionResponse": {"name": "f", "response": {"output": "OLD"}, "extra": 1}}),
        holds("user", {"functionResponse": {"name": "f", "response": {"error": "OLD"}}}),
        holds("user", {"functionResponse": {"name": "f", "response": {"result": "OLD"}}}),
        holds("function", {"functionResponse": {"name": "f", "response": {"a": "OLD", "b": 1}}}),
        holds("user", {"inlineData": {"mimeType": "image/png", "data": "OLD", "displayName": "a"}}),
        holds("user", {"file_data": {"file_uri": "OLD"}}),
    ],
}
EDITS = [(name, row) for name, rows in EDITABLE.items() for row in rows]


def _edited(part: Part) -> Part:
    match part:
        case Text() | Thinking() | Summary():
            return structs.replace(part, text="NEW")
        case ToolCall():
            return structs.replace(part, arguments='{"a":"NEW"}')
        case ToolResult():
            return structs.replace(part, content=(Text("NEW"),))
        case Image():
            return structs.replace(part, url="NEW") if part.url else structs.replace(part, data="NEW")
        case Unknown():
            raise AssertionError("nothing here is unknown")


@pytest.mark.parametrize(("name", "row"), EDITS, ids=[f"{n}-{i}" for i, (n, _) in enumerate(EDITS)])
def test_an_edit_shows_and_the_replaced_text_does_not(name: str, row: Any) -> None:
    assert_same([row], name=name)
    history = WIRE[name].parse([row])
    (message,) = history
    message = structs.replace(message, parts=tuple(_edited(part) for part in message.parts))
    value = WIRE[name].emit(structs.replace(history, messages=(message,)), None).value
    written = canonical_json(value)
    assert "NEW" in written
    assert "OLD" not in written
    assert written.replace("NEW", "OLD").count("OLD") == canonical_json([row]).count("OLD")
    assert len(value) == 1


@pytest.mark.parametrize("name", WIRE)
def test_a_removed_part_is_gone_and_the_rest_stays(name: str) -> None:
    history = WIRE[name].parse(RICH[name])
    kept = []
    for message in history:
        parts = tuple(part for part in message.parts if not isinstance(part, Thinking))
        kept += [structs.replace(message, parts=parts)] if parts else []
    emission = WIRE[name].emit(structs.replace(history, messages=tuple(kept)), None)
    assert "two files" not in canonical_json(emission.value)
    again = WIRE[name].parse(emission.value)
    for told in (_calls, _results, _told, _said, _images):
        assert told(again) == told(history)


@pytest.mark.parametrize("name", WIRE)
def test_a_placeholder_of_a_call_or_result_can_be_emitted(name: str) -> None:
    """Every message can be emitted in its own dialect after any edit."""
    history = WIRE[name].parse(RICH[name])
    stand_ins: list[Part] = [Text("note"), Summary("sum"), Image("image/png", PNG), Thinking("t"), Unknown("x", "{}")]
    stand_ins += [ToolCall("n", "f", "odd"), ToolResult("n", (Text("r"), Image("", url="u")), is_error=True)]
    for index, message in enumerate(history):
        for part in stand_ins:
            changed = structs.replace(message, parts=(part,))
            messages = (*history.messages[:index], changed, *history.messages[index + 1 :])
            value = WIRE[name].emit(structs.replace(history, messages=messages), None).value
            assert_same(value, name=name)


# Generated ids.


def test_gemini_calls_without_ids_match_by_name_and_order() -> None:
    call, answer = _gemini_call, _gemini_answer
    contents = [
        {"role": "model", "parts": [call("read"), call("read"), call("grep"), call("read", id="read-1")]},
        {"role": "user", "parts": [answer("grep"), answer("read"), answer("read", id="read-1"), answer("read")]},
        {"role": "user", "parts": [answer("read")]},
        {"role": "model", "parts": [call("read")]},
        {"role": "user", "parts": [answer("read", id="read_177_0")]},
    ]
    history = gemini.parse_gemini(contents)
    assert_same(contents, name="gemini")
    ids = [[getattr(p, "id", "") or getattr(p, "call_id", "") for p in message.parts] for message in history]
    assert ids == [
        ["read-2", "read-3", "grep-1", "read-1"],
        ["grep-1", "read-2", "read-1", "read-3"],
        ["read-4"],
        ["read-5"],
        ["read-5"],
    ]
    assert len(history.orphans) == 1
    assert all(chain.result for chain in history.chains)
    crossed = anthropic.emit_anthropic(history, None).value
    assert [block["id"] for block in crossed[0]["content"]] == ids[0]


def _gemini_call(name: str, **given: str) -> dict[str, Any]:
    return {"functionCall": {**given, "name": name, "args": {}}}


def _gemini_answer(name: str, **given: str) -> dict[str, Any]:
    return {"functionResponse": {**given, "name": name, "response": {"output": "x"}}}


def test_legacy_functions_match_by_name_and_order() -> None:
    call = {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}}
    answer = {"role": "function", "name": "f", "content": "ok"}
    rows = [call, answer, call, answer]
    history = openai_chat.parse_openai_chat(rows)
    assert_same(rows, name="openai-chat")
    assert [part.id for part in _parts(history) if isinstance(part, ToolCall)] == ["f-1", "f-2"]
    assert not history.orphans
    assert all(chain.result for chain in history.chains)


def test_generated_ids_are_safe_and_unique() -> None:
    pairing = CallIdAssigner(["a_b-1"])
    assert pairing.assign_call_id("a.b") == "a_b-2"
    assert pairing.assign_call_id("x" * 90) == "x" * 32 + "-1"
    assert pairing.assign_call_id("") == "call-1"
    assert pairing.match_result("nobody") == "nobody-1"
    assert pairing.match_result("") == "a_b-2"


# Roles, authors and detection.


def test_roles_and_authors() -> None:
    def seen(name: str, row: Any) -> tuple[str, str]:
        (message,) = WIRE[name].parse([row])
        return message.role, message.author

    assert seen("openai-chat", {"role": "developer", "content": "x"}) == ("system", "harness")
    assert seen("openai-chat", {"role": "exit", "content": "x"}) == ("user", "harness")
    assert seen("openai-chat", {"role": "user", "content": "x"}) == ("user", "human")
    assert seen("openai-chat", {"role": "tool", "tool_call_id": "c", "content": "x"}) == ("tool", "tool")
    assert seen("openai-responses", {"type": "web_search_call"}) == ("assistant", "model")
    assert seen("openai-responses", {"type": "computer_call_output"}) == ("user", "context")
    assert seen("openai-responses", {"type": "compaction"}) == ("assistant", "context")
    assert seen("openai-responses", {"type": "reasoning", "summary": []}) == ("assistant", "model")
    assert seen("gemini", {"role": "model", "parts": []}) == ("assistant", "model")
    assert seen("gemini", {"parts": [_gemini_answer("f")]}) == ("tool", "tool")


def test_reasoning_is_its_summary_or_else_its_text() -> None:
    pieces = [{"type": "summary_text", "text": "a"}, {"type": "summary_text", "text": "b"}]
    (part,) = openai_responses.parse_openai_responses_item(
        {"type": "reasoning", "summary": pieces, "encrypted_content": "e"}
    ).parts
    assert isinstance(part, Thinking)
    assert (part.text, part.signature) == ("a\n\nb", "e")
    shown = {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "open"}]}
    (part,) = openai_responses.parse_openai_responses_item(shown).parts
    assert isinstance(part, Thinking)
    assert part.text == "open"


@pytest.mark.parametrize("name", WIRE)
def test_a_dialect_detects_its_own_messages(name: str) -> None:
    key = {"openai-responses": "input", "gemini": "contents"}.get(name, "messages")
    for value in (RICH[name], RICH[name][key]):
        found = {other: WIRE[other].sniff(value) for other in WIRE}
        assert found.pop(name) == 3
        assert max(found.values()) < 3


def test_plain_texts_match_any_dialect_weakly() -> None:
    rows = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]
    found = {name: wire.sniff(rows) for name, wire in WIRE.items()}
    assert found == {"anthropic": 1, "openai-chat": 1, "openai-responses": 0, "gemini": 0}
    odd: list[Any] = [None, 5, "text", {}, [5], [[]], [{"role": "user"}, 5], {"messages": 5}]
    for value in odd:
        assert max(wire.sniff(value) for wire in WIRE.values()) <= 1


@pytest.mark.parametrize("target", ["anthropic", "gemini"])
def test_an_empty_system_text_needs_no_body(target: str) -> None:
    history = th.parse([{"role": "system", "content": ""}, {"role": "user", "content": "hi"}], "openai-chat")
    assert isinstance(th.emit(history, target), list)


@pytest.mark.parametrize(
    "fields",
    [
        {"tools": [{"type": "function", "function": {"name": "a"}}]},
        {"response_format": {"type": "json_object"}},
        {"max_completion_tokens": 5},
    ],
)
def test_a_request_with_chat_completions_fields_is_detected(fields: dict[str, Any]) -> None:
    assert th.sniff({"model": "x", "messages": [{"role": "user", "content": "hi"}], **fields}) == "openai-chat"
