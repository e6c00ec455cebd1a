"""Parse tool definitions into a form that every dialect can represent."""

from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from thresher.dialects.losses import ConversionLosses
from thresher.model import History
from thresher.model.jsontext import load_json

_GEMINI_TYPES = frozenset({"OBJECT", "STRING", "NUMBER", "INTEGER", "BOOLEAN", "ARRAY", "NULL"})


class ToolSpec(Struct, frozen=True):
    """A tool definition that every dialect can represent."""

    name: str
    description: str
    schema: Any


def parse_tool_specs(history: History, losses: ConversionLosses) -> list[ToolSpec]:
    """Parse the tool definitions of any dialect."""
    if not history.tools:
        return []
    return list(_iter_tool_specs(load_json(history.tools), losses))


def _iter_tool_specs(tools: Any, losses: ConversionLosses) -> Iterator[ToolSpec]:
    for tool in tools if isinstance(tools, list) else []:
        if not isinstance(tool, dict):
            continue
        declared = tool.get("functionDeclarations") or tool.get("function_declarations")
        if isinstance(declared, list):
            yield from _iter_tool_specs(declared, losses)
            continue
        spec = tool["function"] if isinstance(tool.get("function"), dict) else tool
        schema = next((spec[k] for k in ("input_schema", "parameters", "parametersJsonSchema") if k in spec), None)
        if isinstance(spec.get("name"), str) and (schema is not None or "description" in spec):
            schema = _lowercase_schema_types(schema) if schema else {"type": "object"}
            yield ToolSpec(spec["name"], str(spec.get("description") or ""), schema)
        else:
            losses.add(f"tool definition `{tool.get('type') or next(iter(tool), '')}`", "removed")


def _lowercase_schema_types(schema: Any) -> Any:
    """Convert Gemini's uppercase type names to JSON Schema's lowercase ones."""
    if isinstance(schema, list):
        return [_lowercase_schema_types(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    plain = {key: _lowercase_schema_types(value) for key, value in schema.items()}
    kind = plain.get("type")
    return plain | {"type": kind.lower()} if isinstance(kind, str) and kind in _GEMINI_TYPES else plain
