"""Where Anthropic's Messages API shall write a cached prefix, and look for one: its `cache_control` marks.

A mark writes one entry, the hash of all that stands before it, and reads the nearest entry that an earlier request
wrote. What the API holds a request to, and so what is kept here:

- four marks in all, over tools, system and messages;
- a mark looks at twenty positions, its own among them, so a request that adds twenty blocks finds nothing with one
  mark at its end. Hence a second one where the request before ended;
- none on thinking, on an empty text or on a tool whose definition is deferred: each is an error that fails the request.
  So a kind of block that is not known to take a mark gets none;
- a longer life stands before a shorter one, or the request fails.

A prefix below the model's smallest is not cached, and nobody is told: a mark there does no harm.

Marks are outside the identity of a message. A row is copied only where a mark comes or goes, and all other rows stay
the same objects, so a request costs no more for having a long past.
"""

from collections.abc import Iterator
from typing import Any, Literal

CacheBreakpointMode = Literal["auto", "place", "leave"]
CacheTtl = Literal["5m", "1h"]
BlockPosition = tuple[int, int]
"""A block: the number of its row, and its own in the row."""

MAX_BREAKPOINTS = 4
"""As many marks as a request may have."""

LOOKBACK_BLOCKS = 20
"""As many positions as a mark looks at. Some hosts take a run of calls for one; here each counts, to be safe."""

_CACHE_CONTROL = "cache_control"
_MARKABLE_BLOCK_TYPES = frozenset(
    (
        *("text", "image", "document", "search_result", "container_upload", "mid_conv_system"),
        *("tool_use", "tool_result", "server_tool_use", "mcp_tool_use", "mcp_tool_result"),
        *("web_search_tool_result", "web_fetch_tool_result", "tool_search_tool_result"),
        *("code_execution_tool_result", "bash_code_execution_tool_result"),
        "text_editor_code_execution_tool_result",
    )
)


def place_cache_breakpoints(
    value: Any,
    *,
    asked: CacheBreakpointMode,
    ttl: CacheTtl = "5m",
    stable: int = 0,
    previous: int = 0,
    own: bool | None = None,
) -> Any:
    """Messages, or a request body, with marks where they pay; what was given is never changed.

    `stable` rows at the start stay as they are until the next re-plan, `previous` ones are as in the last request.
    `own` says whether the messages carry marks of the user's, for a caller who knows; else they are looked through.

    "auto" marks a body whose user has not marked anything, and nothing else: what is sent beside a bare list cannot
    be seen. "place" takes the user's marks away from the messages, the automatic one of the body among them, and
    keeps those of system and tools; a bare list gets one mark less, so that its system prompt can have one.
    """
    rows = value.get("messages") if isinstance(value, dict) else value
    if asked == "leave" or not isinstance(rows, list):
        return value
    if asked == "auto" and (not isinstance(value, dict) or _CACHE_CONTROL in value or _find_prompt_breakpoints(value)):
        return value
    if own is None:
        own = _any_has_breakpoint(rows)
    if own and asked == "auto":
        return value
    bare = [_strip_item(row) for row in rows] if own else rows
    places = _choose_positions(bare, stable, previous)
    if isinstance(value, dict):
        return _add_breakpoints_to_body(value, bare, places, ttl)
    return _add_breakpoints(bare, places[: MAX_BREAKPOINTS - 1], ttl)


def strip_cache_breakpoints(value: Any) -> Any:
    """The same messages or body without any mark, for comparing; the same object where there is none."""
    if not has_cache_breakpoints(value):
        return value
    if isinstance(value, list):
        return [_strip_item(row) for row in value]
    body = {key: field for key, field in value.items() if key != _CACHE_CONTROL}
    for key in ("tools", "system", "messages"):
        if isinstance(body.get(key), list):
            body[key] = [_strip_item(item) for item in body[key]]
    return body


def has_cache_breakpoints(value: Any) -> bool:
    """Whether messages, or anything in a body, carry a mark; a null is one: whoever wrote it thought of marks."""
    if isinstance(value, list):
        return _any_has_breakpoint(value)
    if not isinstance(value, dict):
        return False
    return _CACHE_CONTROL in value or any(
        _any_has_breakpoint(value.get(key)) for key in ("tools", "system", "messages")
    )


def _any_has_breakpoint(items: Any) -> bool:
    return isinstance(items, list) and any(_has_breakpoint(item) for item in items)


def _has_breakpoint(item: Any) -> bool:
    """Whether a row or a block carries a mark, or what lies in it: a result and a document hold blocks too."""
    if not isinstance(item, dict):
        return False
    if _CACHE_CONTROL in item:
        return True
    inner = item.get("content")
    if isinstance(inner, list) and any(_has_breakpoint(block) for block in inner):
        return True
    return "source" in item and _has_breakpoint(item["source"])


def _strip_item(item: Any) -> Any:
    """A row or a block without marks; itself if it has none."""
    if not _has_breakpoint(item):
        return item
    bare = {key: field for key, field in item.items() if key != _CACHE_CONTROL}
    if isinstance(bare.get("content"), list):
        bare["content"] = [_strip_item(block) for block in bare["content"]]
    if "source" in bare:
        bare["source"] = _strip_item(bare["source"])
    return bare


def _find_prompt_breakpoints(body: dict[str, Any]) -> list[Any]:
    """The user's marks on tools and system."""
    lists = (body.get(key) for key in ("tools", "system"))
    items = (item for items in lists if isinstance(items, list) for item in items)
    return [item[_CACHE_CONTROL] for item in items if isinstance(item, dict) and _CACHE_CONTROL in item]


def _choose_positions(rows: list[Any], stable: int, previous: int) -> list[BlockPosition]:
    """The blocks to mark, what matters most first: the end, where the last request ended, where the edits end."""
    last = _find_last_markable(rows, len(rows))
    before = _find_last_markable(rows, previous)
    wanted = (last, before, _find_last_markable(rows, stable), _find_intermediate(rows, before, last))
    return [*dict.fromkeys(place for place in wanted if place is not None)]


def _find_last_markable(rows: list[Any], stop: int) -> BlockPosition | None:
    for number in range(min(stop, len(rows)) - 1, -1, -1):
        blocks = _blocks(rows[number])
        for position in range(len(blocks) - 1, -1, -1):
            if _is_markable(blocks[position]):
                return number, position
    return None


def _find_intermediate(
    rows: list[Any], before: BlockPosition | None, last: BlockPosition | None
) -> BlockPosition | None:
    """The farthest block from which `before` is still seen, if it is not from `last`.

    The next re-plan may change a row between the two, and its marks find this entry where they would find none.
    """
    if before is None:
        return None
    found = None
    for distance, (place, block) in enumerate(_blocks_after(rows, before), 1):
        if distance == LOOKBACK_BLOCKS:
            return found
        if place == last:
            return None
        found = place if _is_markable(block) else found
    return None


def _blocks_after(rows: list[Any], place: BlockPosition) -> Iterator[tuple[BlockPosition, Any]]:
    row, position = place
    first = position + 1
    for number in range(row, len(rows)):
        blocks = _blocks(rows[number])
        for at in range(first, len(blocks)):
            yield (number, at), blocks[at]
        first = 0


def _blocks(row: Any) -> list[Any]:
    """The blocks of a row; a plain string is one text block to the API."""
    content = row.get("content") if isinstance(row, dict) else None
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return content if isinstance(content, list) else []


def _is_markable(block: Any) -> bool:
    kind = block.get("type") if isinstance(block, dict) else None
    if kind != "text":
        return isinstance(kind, str) and kind in _MARKABLE_BLOCK_TYPES
    text = block.get("text")
    return isinstance(text, str) and text != "" and not text.isspace()


def _add_breakpoints(rows: list[Any], places: list[BlockPosition], life: CacheTtl) -> list[Any]:
    """The rows with marks; the others are the same objects."""
    rows = list(rows)
    for number, position in places:
        blocks = list(_blocks(rows[number]))
        blocks[position] = blocks[position] | _cache_control_field(life)
        rows[number] = rows[number] | {"content": blocks}
    return rows


def _add_breakpoints_to_body(
    body: dict[str, Any], rows: list[Any], places: list[BlockPosition], life: CacheTtl
) -> dict[str, Any]:
    """The body with marked rows, as many as those of tools and system leave room for."""
    kept = _find_prompt_breakpoints(body)
    if any(isinstance(mark, dict) and mark.get("ttl") != "1h" for mark in kept):
        life = "5m"
    slots = max(MAX_BREAKPOINTS - len(kept), 0)
    body = {key: field for key, field in body.items() if key != _CACHE_CONTROL}
    body["messages"] = _add_breakpoints(rows, places[:slots], life)
    return body if len(places) >= slots else body | _add_prompt_breakpoint(body, life)


def _add_prompt_breakpoint(body: dict[str, Any], life: CacheTtl) -> dict[str, Any]:
    """What ends the part before the messages, marked if its user has not: system, or tools where there is none."""
    system = [{"content": body.get("system")}]
    place = _find_last_markable(system, 1)
    if place is not None:
        return {} if _any_has_breakpoint(system) else {"system": _add_breakpoints(system, [place], life)[0]["content"]}
    tools = body["tools"] if isinstance(body.get("tools"), list) and not _any_has_breakpoint(body["tools"]) else []
    for position in range(len(tools) - 1, -1, -1):
        if isinstance(tools[position], dict) and not tools[position].get("defer_loading"):
            return {"tools": [*tools[:position], tools[position] | _cache_control_field(life), *tools[position + 1 :]]}
    return {}


def _cache_control_field(life: CacheTtl) -> dict[str, Any]:
    return {_CACHE_CONTROL: {"type": "ephemeral"} if life == "5m" else {"type": "ephemeral", "ttl": life}}


def copy_cache_breakpoint(row: Any, source: Any) -> Any:
    """A row that was written anew, with the mark that its source has at its end."""
    blocks = _blocks(source)
    mark = blocks[-1].get(_CACHE_CONTROL) if blocks and isinstance(blocks[-1], dict) else None
    place = _find_last_markable([row], 1)
    if mark is None or place is None or _has_breakpoint(row):
        return row
    own = list(_blocks(row))
    own[place[1]] = own[place[1]] | {_CACHE_CONTROL: mark}
    return row | {"content": own}


def can_request_thinking_drop(value: Any) -> bool:
    """Whether a request can ask the API to drop thinking: a body that says how the model thinks."""
    return isinstance(value, dict) and isinstance(value.get("thinking"), dict)


def request_thinking_drop(value: dict[str, Any]) -> dict[str, Any]:
    """A body that asks the API to drop thinking which no longer fits what stands before it."""
    thinking = value["thinking"]
    binding = thinking["block_binding"] if isinstance(thinking.get("block_binding"), dict) else {}
    asked = {**binding, "prefix_mismatch_behavior": "drop_block"}
    return {**value, "thinking": {**thinking, "block_binding": asked}}
