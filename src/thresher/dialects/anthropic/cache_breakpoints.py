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
from typing import Any

from thresher.dialects.cache_control import (
    CACHE_CONTROL,
    BlockPosition,
    CacheBreakpointMode,
    CacheTtl,
    any_has_breakpoint,
    find_last_markable,
    is_markable,
    list_blocks,
    strip_item,
)

MAX_BREAKPOINTS = 4
"""As many marks as a request may have."""

LOOKBACK_BLOCKS = 20
"""As many positions as a mark looks at. Some hosts take a run of calls for one; here each counts, to be safe."""


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
    if asked == "auto" and (not isinstance(value, dict) or CACHE_CONTROL in value or _find_prompt_breakpoints(value)):
        return value
    if own is None:
        own = any_has_breakpoint(rows)
    if own and asked == "auto":
        return value
    bare = [strip_item(row) for row in rows] if own else rows
    places = _choose_positions(bare, stable, previous)
    if isinstance(value, dict):
        return _add_breakpoints_to_body(value, bare, places, ttl)
    return _add_breakpoints(bare, places[: MAX_BREAKPOINTS - 1], ttl)


def _find_prompt_breakpoints(body: dict[str, Any]) -> list[Any]:
    """The user's marks on tools and system."""
    lists = (body.get(key) for key in ("tools", "system"))
    items = (item for items in lists if isinstance(items, list) for item in items)
    return [item[CACHE_CONTROL] for item in items if isinstance(item, dict) and CACHE_CONTROL in item]


def _choose_positions(rows: list[Any], stable: int, previous: int) -> list[BlockPosition]:
    """The blocks to mark, what matters most first: the end, where the last request ended, where the edits end."""
    last = find_last_markable(rows, len(rows))
    before = find_last_markable(rows, previous)
    wanted = (last, before, find_last_markable(rows, stable), _find_intermediate(rows, before, last))
    return [*dict.fromkeys(place for place in wanted if place is not None)]


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
        found = place if is_markable(block) else found
    return None


def _blocks_after(rows: list[Any], place: BlockPosition) -> Iterator[tuple[BlockPosition, Any]]:
    row, position = place
    first = position + 1
    for number in range(row, len(rows)):
        blocks = list_blocks(rows[number])
        for at in range(first, len(blocks)):
            yield (number, at), blocks[at]
        first = 0


def _add_breakpoints(rows: list[Any], places: list[BlockPosition], life: CacheTtl) -> list[Any]:
    """The rows with marks; the others are the same objects."""
    rows = list(rows)
    for number, position in places:
        blocks = list(list_blocks(rows[number]))
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
    body = {key: field for key, field in body.items() if key != CACHE_CONTROL}
    body["messages"] = _add_breakpoints(rows, places[:slots], life)
    return body if len(places) >= slots else body | _add_prompt_breakpoint(body, life)


def _add_prompt_breakpoint(body: dict[str, Any], life: CacheTtl) -> dict[str, Any]:
    """What ends the part before the messages, marked if its user has not: system, or tools where there is none."""
    system = [{"content": body.get("system")}]
    place = find_last_markable(system, 1)
    if place is not None:
        return {} if any_has_breakpoint(system) else {"system": _add_breakpoints(system, [place], life)[0]["content"]}
    tools = body["tools"] if isinstance(body.get("tools"), list) and not any_has_breakpoint(body["tools"]) else []
    for position in range(len(tools) - 1, -1, -1):
        if isinstance(tools[position], dict) and not tools[position].get("defer_loading"):
            return {"tools": [*tools[:position], tools[position] | _cache_control_field(life), *tools[position + 1 :]]}
    return {}


def _cache_control_field(life: CacheTtl) -> dict[str, Any]:
    return {CACHE_CONTROL: {"type": "ephemeral"} if life == "5m" else {"type": "ephemeral", "ttl": life}}


def request_thinking_drop(value: Any) -> dict[str, Any] | None:
    """Return a body that asks the API to drop thinking whose prefix has changed; None if it has no place for that."""
    if not isinstance(value, dict) or not isinstance(value.get("thinking"), dict):
        return None
    thinking = value["thinking"]
    binding = thinking["block_binding"] if isinstance(thinking.get("block_binding"), dict) else {}
    asked = {**binding, "prefix_mismatch_behavior": "drop_block"}
    return {**value, "thinking": {**thinking, "block_binding": asked}}
