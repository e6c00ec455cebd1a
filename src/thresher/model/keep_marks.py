"""Marks by which a tool or a message asks to stay: a field `thresher` with `{"keep": true}`.

The field may be part of a tool definition, a message, or a call or result within a message. It is no field of any API,
so a window removes it from the requests that it returns.
"""

from collections.abc import Iterator
from typing import Any

from thresher.model.history import History
from thresher.model.jsontext import load_json, load_json_object
from thresher.model.message import Message
from thresher.model.message_cache import cached_per_message
from thresher.model.parts import VendorExtras
from thresher.model.structure import Place

MARK_FIELD = "thresher"
_QUOTED_FIELD = f'"{MARK_FIELD}"'
_BLOCK_FIELDS = ("content", "parts", "tool_calls")
_DEFINITION_FIELDS = ("functionDeclarations", "function_declarations")


def find_kept_places(history: History) -> set[Place]:
    """Return the marked parts, with both members of each chain; the calls of marked tools are marked, too."""
    kept = {Place(i, j) for i, message in enumerate(history.messages) for j in _marked_parts(message)}
    tools = _find_marked_tools(history.tools)
    if not kept and not tools:
        return kept
    for link in history.links:
        members = [place for place in link.chain[:2] if place is not None]
        if link.call.name in tools or not kept.isdisjoint(members):
            kept.update(members)
    return kept


def has_keep_mark(message: Message) -> bool:
    """Return whether a message or one of its parts is marked."""
    return bool(_marked_parts(message))


def strip_keep_marks(value: Any, field: str) -> Any:
    """Return a request body, or a list of messages, without the marks; `field` is the body's field of messages."""
    if isinstance(value, list):
        return [_strip_row(row) for row in value]
    tools = {"tools": [_strip_tool(tool) for tool in value["tools"]]} if isinstance(value.get("tools"), list) else {}
    return {**value, **tools, field: [_strip_row(row) for row in value[field]]}


@cached_per_message
def _marked_parts(message: Message) -> tuple[int, ...]:
    if _is_marked_extras(message.pocket):
        return tuple(range(len(message.parts)))
    return tuple([j for j, part in enumerate(message.parts) if _is_marked_extras(part.pocket)])


def _is_marked_extras(extras: VendorExtras | None) -> bool:
    return extras is not None and _QUOTED_FIELD in extras.fields and _is_marked(load_json_object(extras.fields))


def _is_marked(fields: Any) -> bool:
    mark = fields.get(MARK_FIELD) if isinstance(fields, dict) else None
    return isinstance(mark, dict) and mark.get("keep") is True


def _find_marked_tools(definitions: str) -> frozenset[str]:
    """Return the names of the marked tools in the JSON text of tool definitions."""
    if _QUOTED_FIELD not in definitions:
        return frozenset()
    return frozenset(_marked_names(load_json(definitions)))


def _marked_names(definitions: Any) -> Iterator[str]:
    for tool in definitions if isinstance(definitions, list) else ():
        if not isinstance(tool, dict):
            continue
        inner = tool.get("function")
        function = inner if isinstance(inner, dict) else tool
        if isinstance(function.get("name"), str) and (_is_marked(tool) or _is_marked(function)):
            yield function["name"]
        for field in _DEFINITION_FIELDS:
            yield from _marked_names(tool.get(field))


def _strip(fields: Any) -> Any:
    if not isinstance(fields, dict) or not isinstance(fields.get(MARK_FIELD), dict):
        return fields
    return {key: value for key, value in fields.items() if key != MARK_FIELD}


def _strip_row(row: Any) -> Any:
    row = _strip(row)
    for field in _BLOCK_FIELDS if isinstance(row, dict) else ():
        if isinstance(row.get(field), list):
            row = {**row, field: [_strip(block) for block in row[field]]}
    return row


def _strip_tool(tool: Any) -> Any:
    tool = _strip(tool)
    if isinstance(tool, dict) and isinstance(tool.get("function"), dict):
        tool = {**tool, "function": _strip(tool["function"])}
    for field in _DEFINITION_FIELDS if isinstance(tool, dict) else ():
        if isinstance(tool.get(field), list):
            tool = {**tool, field: [_strip(definition) for definition in tool[field]]}
    return tool
