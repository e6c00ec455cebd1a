"""Add an `intent` field to the schema of every edit tool, so that the model states the reason for each edit.

Lists of old edits and changelogs use this reason from the call's arguments. The tool never receives it:
`without_intent` removes the field before the call runs.
"""

from collections.abc import Iterable
from copy import deepcopy
from typing import Any, TypeVar, cast

from thresher.errors import FormatError
from thresher.model.jsontext import dump_json, load_json
from thresher.model.tool_catalog import find_tool_kind

INTENT_FIELD = "intent"
INTENT_DESCRIPTION = "Why this change is made, in a few words."

Definitions = TypeVar("Definitions", str, list[Any], dict[str, Any])
Arguments = TypeVar("Arguments", str, dict[str, Any])

_LIST_KEYS = ("functionDeclarations", "function_declarations", "tools")
_SCHEMA_KEYS = ("input_schema", "inputSchema", "parameters", "parametersJsonSchema", "parameters_json_schema")


def with_intent(definitions: Definitions, /, *, tools: Iterable[str] = ()) -> Definitions:
    """Return a copy of tool definitions of any dialect, with an `intent` field in edit tools and `tools`."""
    names = frozenset(name.lower() for name in tools)
    if not isinstance(definitions, str):
        return cast(Definitions, _add_intent(deepcopy(definitions), names))
    try:
        value = load_json(definitions)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"tool definitions must be a list or its JSON text; invalid JSON: {error}") from None
    changed = _add_intent(value, names)
    return definitions if changed == value else dump_json(changed)


def without_intent(arguments: Arguments) -> Arguments:
    """Return a call's arguments without the `intent` field, to pass to the tool."""
    if isinstance(arguments, dict):
        return {key: value for key, value in arguments.items() if key != INTENT_FIELD}
    try:
        fields = load_json(arguments)
    except (ValueError, RecursionError):
        return arguments
    if not isinstance(fields, dict) or INTENT_FIELD not in fields:
        return arguments
    return dump_json(without_intent(fields))


def _add_intent(value: Any, names: frozenset[str]) -> Any:
    """Add the `intent` field to a definition or a list of definitions, with or without a wrapper object."""
    if isinstance(value, list):
        return [_add_intent(one, names) for one in value]
    if not isinstance(value, dict):
        return value
    if isinstance(value.get("function"), dict):
        function = value["function"]
        return value | {"function": _add_intent_to_tool(function, names, strict=function.get("strict") is True)}
    if "name" in value and not any(isinstance(value.get(key), list) for key in _LIST_KEYS):
        return _add_intent_to_tool(value, names, strict=_is_strict(value))
    return value | {key: _add_intent(value[key], names) for key in _LIST_KEYS if isinstance(value.get(key), list)}


def _is_strict(tool: dict[str, Any]) -> bool:
    """Return whether OpenAI's strict mode, which requires all properties, is set or is the default for this schema."""
    schema = tool.get("parameters")
    if tool.get("type") != "function" or not isinstance(schema, dict) or tool.get("strict") is False:
        return False
    required = set(map(str, schema.get("required") or ()))
    closed = schema.get("additionalProperties") is False and required == set(schema.get("properties") or ())
    return tool.get("strict") is True or closed


def _add_intent_to_tool(tool: dict[str, Any], names: frozenset[str], *, strict: bool) -> dict[str, Any]:
    name = tool.get("name")
    if not isinstance(name, str) or not (name.lower() in names or find_tool_kind(name).category == "file_edit"):
        return tool
    schemas = (key for key in _SCHEMA_KEYS if isinstance(tool.get(key), dict))
    return tool | {key: _add_intent_to_schema(tool[key], strict=strict) for key in schemas}


def _add_intent_to_schema(schema: dict[str, Any], *, strict: bool) -> dict[str, Any]:
    properties = schema.get("properties", {} if "type" in schema else None)
    if not isinstance(properties, dict) or INTENT_FIELD in properties:
        return schema
    kind: str | list[str] = "STRING" if schema.get("type") == "OBJECT" else "string"
    if strict:
        kind = ["string", "null"]
    changed = schema | {"properties": properties | {INTENT_FIELD: {"type": kind, "description": INTENT_DESCRIPTION}}}
    if strict:
        changed["required"] = [*(schema.get("required") or ()), INTENT_FIELD]
    return changed
