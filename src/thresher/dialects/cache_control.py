"""Cache breakpoints in messages: the `cache_control` field, which Anthropic defined and other APIs accept.

Breakpoints are not part of a message's identity. Only rows whose breakpoints change are copied.
"""

from typing import Any, Literal

CacheBreakpointMode = Literal["auto", "place", "leave"]
CacheTtl = Literal["5m", "1h"]
BlockPosition = tuple[int, int]
"""Position of a block: index of its row, and index in the row."""
CACHE_CONTROL = "cache_control"
_MARKABLE_BLOCK_TYPES = frozenset({
    "text", "image", "document", "search_result", "container_upload", "mid_conv_system", "tool_use", "tool_result",
    "server_tool_use", "mcp_tool_use", "mcp_tool_result", "web_search_tool_result", "web_fetch_tool_result",
    "tool_search_tool_result", "code_execution_tool_result", "bash_code_execution_tool_result",
    "text_editor_code_execution_tool_result",
})  # fmt: skip


def strip_cache_breakpoints(value: Any) -> Any:
    """Return messages or a body without breakpoints, for comparison; the same object if it has none."""
    if not has_cache_breakpoints(value):
        return value
    if isinstance(value, list):
        return [strip_item(row) for row in value]
    body = {key: field for key, field in value.items() if key != CACHE_CONTROL}
    for key in ("tools", "system", "messages"):
        if isinstance(body.get(key), list):
            body[key] = [strip_item(item) for item in body[key]]
    return body


def has_cache_breakpoints(value: Any) -> bool:
    """Return True if messages or a body contain a breakpoint. A `cache_control` of null counts as one."""
    if isinstance(value, list):
        return any_has_breakpoint(value)
    if not isinstance(value, dict):
        return False
    return CACHE_CONTROL in value or any(any_has_breakpoint(value.get(key)) for key in ("tools", "system", "messages"))


def any_has_breakpoint(items: Any) -> bool:
    """Return True if any row or block has a breakpoint."""
    return isinstance(items, list) and any(_has_breakpoint(item) for item in items)


def _has_breakpoint(item: Any) -> bool:
    """Return True if a row or block, or a block nested in a result or document, has a breakpoint."""
    if not isinstance(item, dict):
        return False
    if CACHE_CONTROL in item:
        return True
    inner = item.get("content")
    if isinstance(inner, list) and any(_has_breakpoint(block) for block in inner):
        return True
    return "source" in item and _has_breakpoint(item["source"])


def strip_item(item: Any) -> Any:
    """Return a row or block without breakpoints; the same object if it has none."""
    if not _has_breakpoint(item):
        return item
    bare = {key: field for key, field in item.items() if key != CACHE_CONTROL}
    if isinstance(bare.get("content"), list):
        bare["content"] = [strip_item(block) for block in bare["content"]]
    if "source" in bare:
        bare["source"] = strip_item(bare["source"])
    return bare


def find_last_markable(rows: list[Any], stop: int) -> BlockPosition | None:
    """Return the last block before row `stop` that accepts a breakpoint."""
    for number in range(min(stop, len(rows)) - 1, -1, -1):
        blocks = list_blocks(rows[number])
        for position in range(len(blocks) - 1, -1, -1):
            if is_markable(blocks[position]):
                return number, position
    return None


def list_blocks(row: Any) -> list[Any]:
    """Return the blocks of a row; the API treats a plain string as one text block. A row without a role has none."""
    is_message = isinstance(row, dict) and isinstance(row.get("role"), str)
    content = row.get("content") if is_message else None
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return content if isinstance(content, list) else []


def is_markable(block: Any) -> bool:
    """Return True if a block accepts a breakpoint."""
    kind = block.get("type") if isinstance(block, dict) else None
    if kind != "text":
        return isinstance(kind, str) and kind in _MARKABLE_BLOCK_TYPES
    text = block.get("text")
    return isinstance(text, str) and text != "" and not text.isspace()


def copy_cache_breakpoint(row: Any, source: Any) -> Any:
    """Copy the breakpoint at the end of `source` to `row`, which replaces `source`."""
    blocks = list_blocks(source)
    cache_control = blocks[-1].get(CACHE_CONTROL) if blocks and isinstance(blocks[-1], dict) else None
    position = find_last_markable([row], 1)
    if cache_control is None or position is None or _has_breakpoint(row):
        return row
    row_blocks = list(list_blocks(row))
    row_blocks[position[1]] = row_blocks[position[1]] | {CACHE_CONTROL: cache_control}
    return row | {"content": row_blocks}
