"""The `intent` field: added to the schemas of every dialect, and removed from the arguments."""

import copy
import json
from typing import Any

import pytest

from thresher.errors import FormatError
from thresher.policies.intent import INTENT_DESCRIPTION, INTENT_FIELD, with_intent, without_intent

PLAIN = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
STRICT = PLAIN | {"additionalProperties": False}
UPPER = {"type": "OBJECT", "properties": {"path": {"type": "STRING"}}, "required": ["path"]}

OPTIONAL = {"type": "string", "description": INTENT_DESCRIPTION}
NULLABLE = {"type": ["string", "null"], "description": INTENT_DESCRIPTION}

Tool = dict[str, Any]
TOOLS: dict[str, tuple[Tool, tuple[str | int, ...], Tool, bool]] = {
    "anthropic": ({"name": "Edit", "input_schema": PLAIN}, ("input_schema",), OPTIONAL, False),
    "anthropic, closed": ({"name": "Edit", "input_schema": STRICT}, ("input_schema",), OPTIONAL, False),
    "mcp": ({"name": "edit_file", "inputSchema": PLAIN}, ("inputSchema",), OPTIONAL, False),
    "chat": (
        {"type": "function", "function": {"name": "edit_file", "parameters": STRICT}},
        ("function", "parameters"),
        OPTIONAL,
        False,
    ),
    "chat, strict": (
        {"type": "function", "function": {"name": "edit_file", "strict": True, "parameters": STRICT}},
        ("function", "parameters"),
        NULLABLE,
        True,
    ),
    "responses": ({"type": "function", "name": "apply_patch", "parameters": PLAIN}, ("parameters",), OPTIONAL, False),
    "responses, strict by default": (
        {"type": "function", "name": "apply_patch", "parameters": STRICT},
        ("parameters",),
        NULLABLE,
        True,
    ),
    "responses, not strict": (
        {"type": "function", "name": "apply_patch", "parameters": STRICT, "strict": False},
        ("parameters",),
        OPTIONAL,
        False,
    ),
    "gemini": (
        {"functionDeclarations": [{"name": "write_file", "parameters": UPPER}]},
        ("functionDeclarations", 0, "parameters"),
        {"type": "STRING", "description": INTENT_DESCRIPTION},
        False,
    ),
    "gemini, json schema": (
        {"function_declarations": [{"name": "replace", "parametersJsonSchema": PLAIN}]},
        ("function_declarations", 0, "parametersJsonSchema"),
        OPTIONAL,
        False,
    ),
}


def at(tool: Any, way: tuple[str | int, ...]) -> Any:
    for step in way:
        tool = tool[step]
    return tool


@pytest.mark.parametrize("name", TOOLS)
def test_an_edit_tool_gets_an_intent_field(name: str) -> None:
    tool, way, field, required = TOOLS[name]
    before = copy.deepcopy(tool)
    (changed,) = with_intent([tool])
    assert tool == before, "what was given stays as it was"
    schema = at(changed, way)
    assert schema["properties"] == at(tool, way)["properties"] | {INTENT_FIELD: field}
    assert schema["required"] == (["path", INTENT_FIELD] if required else ["path"])
    assert with_intent([changed]) == [changed], "once is enough"
    assert json.loads(with_intent(json.dumps([tool]))) == [changed]


OTHERS: dict[str, Any] = {
    "reads": {"name": "Read", "input_schema": PLAIN},
    "commands": {"type": "function", "function": {"name": "bash", "parameters": PLAIN}},
    "has one": {"name": "Edit", "input_schema": {"type": "object", "properties": {INTENT_FIELD: {"type": "integer"}}}},
    "no schema": {"type": "text_editor_20250728", "name": "str_replace_based_edit_tool"},
    "free text": {"type": "custom", "name": "apply_patch", "format": {"type": "grammar"}},
    "a choice of schemas": {"name": "Edit", "input_schema": {"anyOf": [PLAIN]}},
    "no tool": {"googleSearch": {}},
    "no name": {"name": None, "input_schema": PLAIN},
    "nothing": None,
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_definitions_are_unchanged(name: str) -> None:
    assert with_intent([OTHERS[name]]) == [OTHERS[name]]
    text = json.dumps([OTHERS[name]], indent=1)
    assert with_intent(text) == text


def test_other_tools_are_selected_by_name() -> None:
    tool = {"name": "mcp__notes__Change", "input_schema": PLAIN}
    assert with_intent([tool]) == [tool]
    (changed,) = with_intent([tool], tools=["MCP__notes__change"])
    assert INTENT_FIELD in changed["input_schema"]["properties"]


def test_a_single_definition_may_be_given() -> None:
    assert INTENT_FIELD in with_intent({"name": "Edit", "input_schema": PLAIN})["input_schema"]["properties"]


def test_the_copy_shares_no_objects_with_the_input() -> None:
    given = [{"name": "Read", "input_schema": {"properties": {}}}]
    with_intent(given)[0]["input_schema"]["properties"]["x"] = 1
    assert given == [{"name": "Read", "input_schema": {"properties": {}}}]


def test_invalid_json_is_rejected() -> None:
    with pytest.raises(FormatError, match="tool definitions"):
        with_intent("[{")


ARGUMENTS: list[tuple[Any, Any]] = [
    ({"path": "a", INTENT_FIELD: "why"}, {"path": "a"}),
    ({"path": "a"}, {"path": "a"}),
    ('{"path": "a", "intent": null}', '{"path":"a"}'),
    ('{"path":  "a"}', '{"path":  "a"}'),
    ('["intent"]', '["intent"]'),
    ("*** Begin Patch", "*** Begin Patch"),
    ("", ""),
]


@pytest.mark.parametrize(("given", "left"), ARGUMENTS)
def test_the_field_is_removed_for_the_tool(given: Any, left: Any) -> None:
    assert without_intent(given) == left
