"""Cache breakpoints of Anthropic's Messages API: its `cache_control` fields.

A breakpoint writes one cache entry, keyed by the hash of the prefix that ends there, and reads the nearest entry that
an earlier request wrote. This module follows the API's limits:

- A request has at most four breakpoints across tools, system and messages.
- A breakpoint searches twenty positions for an entry, its own included. So if a request adds twenty blocks, a
  breakpoint at its end gets no cache hit. A second breakpoint marks the end of the previous request.
- A breakpoint on thinking, on an empty text or on a deferred tool fails the request. A block type that is not known to
  accept breakpoints gets none.
- Longer TTLs must precede shorter ones, or the request fails.

If a prefix is shorter than the model's minimum, the API does not cache it and does not report that. A breakpoint there
does no harm.

Breakpoints are not part of a message's identity. Only rows whose breakpoints change are copied, so the cost of a
request does not grow with the length of its history.
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
"""Maximum number of breakpoints per request."""

LOOKBACK_BLOCKS = 20
"""Number of positions before a breakpoint at which the API looks for a cached prefix.

Some hosts count a run of calls as one position; here each call counts.
"""


def place_cache_breakpoints(
    value: Any,
    *,
    asked: CacheBreakpointMode,
    ttl: CacheTtl = "5m",
    stable: int = 0,
    previous: int = 0,
    own: bool | None = None,
) -> Any:
    """Return the messages or request body with breakpoints where they reduce the cost; the argument is never modified.

    `stable` is the number of leading rows that stay unchanged until the next replan, `previous` the number of leading
    rows that are the same as in the last request. `own` is True if the messages contain the user's breakpoints; None
    searches the messages for them.

    "auto" adds breakpoints only to a request body that has none of the user's. It leaves a bare list unchanged, because
    the tools and the system prompt of the request are unknown. "place" removes the user's breakpoints from the
    messages, and the `cache_control` field of the body. It keeps the breakpoints on system and tools. A bare list gets
    one breakpoint less than the maximum, which leaves one for the system prompt. "leave" changes nothing.
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
    stripped = [strip_item(row) for row in rows] if own else rows
    positions = _choose_positions(stripped, stable, previous)
    if isinstance(value, dict):
        return _add_breakpoints_to_body(value, stripped, positions, ttl)
    return _add_breakpoints(stripped, positions[: MAX_BREAKPOINTS - 1], ttl)


def _find_prompt_breakpoints(body: dict[str, Any]) -> list[Any]:
    """Return the user's breakpoints on tools and system."""
    lists = (body.get(key) for key in ("tools", "system"))
    items = (item for items in lists if isinstance(items, list) for item in items)
    return [item[CACHE_CONTROL] for item in items if isinstance(item, dict) and CACHE_CONTROL in item]


def _choose_positions(rows: list[Any], stable: int, previous: int) -> list[BlockPosition]:
    """Choose positions by priority: the end, the end of the last request, the end of the stable prefix."""
    last = find_last_markable(rows, len(rows))
    previous_end = find_last_markable(rows, previous)
    wanted = (last, previous_end, find_last_markable(rows, stable), _find_intermediate(rows, previous_end, last))
    return [*dict.fromkeys(position for position in wanted if position is not None)]


def _find_intermediate(
    rows: list[Any], before: BlockPosition | None, last: BlockPosition | None
) -> BlockPosition | None:
    """Return the farthest block whose lookback reaches `before`; None if the lookback of `last` reaches it, too.

    If the next replan changes a row between this block and `last`, later breakpoints can still read this block's entry.
    """
    if before is None:
        return None
    farthest = None
    for distance, (position, block) in enumerate(_blocks_after(rows, before), 1):
        if distance == LOOKBACK_BLOCKS:
            return farthest
        if position == last:
            return None
        farthest = position if is_markable(block) else farthest
    return None


def _blocks_after(rows: list[Any], start: BlockPosition) -> Iterator[tuple[BlockPosition, Any]]:
    row_number, block_index = start
    first = block_index + 1
    for row_index in range(row_number, len(rows)):
        blocks = list_blocks(rows[row_index])
        for index in range(first, len(blocks)):
            yield (row_index, index), blocks[index]
        first = 0


def _add_breakpoints(rows: list[Any], positions: list[BlockPosition], ttl: CacheTtl) -> list[Any]:
    """Add breakpoints to copies of the rows at these positions; other rows are the same objects."""
    rows = list(rows)
    for number, position in positions:
        blocks = list(list_blocks(rows[number]))
        blocks[position] = blocks[position] | _cache_control_field(ttl)
        rows[number] = rows[number] | {"content": blocks}
    return rows


def _add_breakpoints_to_body(
    body: dict[str, Any], rows: list[Any], positions: list[BlockPosition], ttl: CacheTtl
) -> dict[str, Any]:
    """Add breakpoints to the messages of a body, up to the maximum minus those on tools and system."""
    kept = _find_prompt_breakpoints(body)
    if any(isinstance(mark, dict) and mark.get("ttl") != "1h" for mark in kept):
        ttl = "5m"
    slots = max(MAX_BREAKPOINTS - len(kept), 0)
    body = {key: field for key, field in body.items() if key != CACHE_CONTROL}
    body["messages"] = _add_breakpoints(rows, positions[:slots], ttl)
    return body if len(positions) >= slots else body | _add_prompt_breakpoint(body, ttl)


def _add_prompt_breakpoint(body: dict[str, Any], ttl: CacheTtl) -> dict[str, Any]:
    """Add a breakpoint at the end of the system prompt, or of the tools if that is empty, unless it has one."""
    system = [{"role": "system", "content": body.get("system")}]
    last_block = find_last_markable(system, 1)
    if last_block is not None:
        if any_has_breakpoint(system):
            return {}
        return {"system": _add_breakpoints(system, [last_block], ttl)[0]["content"]}
    tools = body["tools"] if isinstance(body.get("tools"), list) and not any_has_breakpoint(body["tools"]) else []
    for position in range(len(tools) - 1, -1, -1):
        if isinstance(tools[position], dict) and not tools[position].get("defer_loading"):
            return {"tools": [*tools[:position], tools[position] | _cache_control_field(ttl), *tools[position + 1 :]]}
    return {}


def _cache_control_field(ttl: CacheTtl) -> dict[str, Any]:
    return {CACHE_CONTROL: {"type": "ephemeral"} if ttl == "5m" else {"type": "ephemeral", "ttl": ttl}}


def request_thinking_drop(value: Any) -> dict[str, Any] | None:
    """Return a body that makes the API drop thinking after a changed prefix; None if thinking is not enabled."""
    if not isinstance(value, dict) or not isinstance(value.get("thinking"), dict):
        return None
    thinking = value["thinking"]
    binding = thinking["block_binding"] if isinstance(thinking.get("block_binding"), dict) else {}
    new_binding = {**binding, "prefix_mismatch_behavior": "drop_block"}
    return {**value, "thinking": {**thinking, "block_binding": new_binding}}
