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

Marks = Literal["auto", "place", "leave"]
Life = Literal["5m", "1h"]
Place = tuple[int, int]
"""A block: the number of its row, and its own in the row."""

MOST = 4
"""As many marks as a request may have."""

REACH = 20
"""As many positions as a mark looks at. Some hosts take a run of calls for one; here each counts, to be safe."""

_KEY = "cache_control"
_CARRIERS = frozenset(
    (
        *("text", "image", "document", "search_result", "container_upload", "mid_conv_system"),
        *("tool_use", "tool_result", "server_tool_use", "mcp_tool_use", "mcp_tool_result"),
        *("web_search_tool_result", "web_fetch_tool_result", "tool_search_tool_result"),
        *("code_execution_tool_result", "bash_code_execution_tool_result"),
        "text_editor_code_execution_tool_result",
    )
)


def marked(
    value: Any, *, asked: Marks, ttl: Life = "5m", stable: int = 0, previous: int = 0, own: bool | None = None
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
    if asked == "auto" and (not isinstance(value, dict) or _KEY in value or _head_marks(value)):
        return value
    if own is None:
        own = _any_marked(rows)
    if own and asked == "auto":
        return value
    bare = [_bare(row) for row in rows] if own else rows
    places = _places(bare, stable, previous)
    if isinstance(value, dict):
        return _placed_in_body(value, bare, places, ttl)
    return _placed(bare, places[: MOST - 1], ttl)


def without_marks(value: Any) -> Any:
    """The same messages or body without any mark, for comparing; the same object where there is none."""
    if not has_marks(value):
        return value
    if isinstance(value, list):
        return [_bare(row) for row in value]
    body = {key: field for key, field in value.items() if key != _KEY}
    for key in ("tools", "system", "messages"):
        if isinstance(body.get(key), list):
            body[key] = [_bare(item) for item in body[key]]
    return body


def has_marks(value: Any) -> bool:
    """Whether messages, or anything in a body, carry a mark; a null is one: whoever wrote it thought of marks."""
    if isinstance(value, list):
        return _any_marked(value)
    if not isinstance(value, dict):
        return False
    return _KEY in value or any(_any_marked(value.get(key)) for key in ("tools", "system", "messages"))


def _any_marked(items: Any) -> bool:
    return isinstance(items, list) and any(_is_marked(item) for item in items)


def _is_marked(item: Any) -> bool:
    """Whether a row or a block carries a mark, or what lies in it: a result and a document hold blocks too."""
    if not isinstance(item, dict):
        return False
    if _KEY in item:
        return True
    inner = item.get("content")
    if isinstance(inner, list) and any(_is_marked(block) for block in inner):
        return True
    return "source" in item and _is_marked(item["source"])


def _bare(item: Any) -> Any:
    """A row or a block without marks; itself if it has none."""
    if not _is_marked(item):
        return item
    bare = {key: field for key, field in item.items() if key != _KEY}
    if isinstance(bare.get("content"), list):
        bare["content"] = [_bare(block) for block in bare["content"]]
    if "source" in bare:
        bare["source"] = _bare(bare["source"])
    return bare


def _head_marks(body: dict[str, Any]) -> list[Any]:
    """The user's marks on tools and system."""
    lists = (body.get(key) for key in ("tools", "system"))
    items = (item for items in lists if isinstance(items, list) for item in items)
    return [item[_KEY] for item in items if isinstance(item, dict) and _KEY in item]


def _places(rows: list[Any], stable: int, previous: int) -> list[Place]:
    """The blocks to mark, what matters most first: the end, where the last request ended, where the edits end."""
    last = _last_carrier(rows, len(rows))
    before = _last_carrier(rows, previous)
    wanted = (last, before, _last_carrier(rows, stable), _between(rows, before, last))
    return [*dict.fromkeys(place for place in wanted if place is not None)]


def _last_carrier(rows: list[Any], stop: int) -> Place | None:
    for number in range(min(stop, len(rows)) - 1, -1, -1):
        blocks = _blocks(rows[number])
        for position in range(len(blocks) - 1, -1, -1):
            if _carries(blocks[position]):
                return number, position
    return None


def _between(rows: list[Any], before: Place | None, last: Place | None) -> Place | None:
    """The farthest block from which `before` is still seen, if it is not from `last`.

    The next re-plan may change a row between the two, and its marks find this entry where they would find none.
    """
    if before is None:
        return None
    found = None
    for distance, (place, block) in enumerate(_after(rows, before), 1):
        if distance == REACH:
            return found
        if place == last:
            return None
        found = place if _carries(block) else found
    return None


def _after(rows: list[Any], place: Place) -> Iterator[tuple[Place, Any]]:
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


def _carries(block: Any) -> bool:
    kind = block.get("type") if isinstance(block, dict) else None
    if kind != "text":
        return isinstance(kind, str) and kind in _CARRIERS
    text = block.get("text")
    return isinstance(text, str) and text != "" and not text.isspace()


def _placed(rows: list[Any], places: list[Place], life: Life) -> list[Any]:
    """The rows with marks; the others are the same objects."""
    rows = list(rows)
    for number, position in places:
        blocks = list(_blocks(rows[number]))
        blocks[position] = blocks[position] | _mark(life)
        rows[number] = rows[number] | {"content": blocks}
    return rows


def _placed_in_body(body: dict[str, Any], rows: list[Any], places: list[Place], life: Life) -> dict[str, Any]:
    """The body with marked rows, as many as those of tools and system leave room for."""
    kept = _head_marks(body)
    if any(isinstance(mark, dict) and mark.get("ttl") != "1h" for mark in kept):
        life = "5m"
    slots = max(MOST - len(kept), 0)
    body = {key: field for key, field in body.items() if key != _KEY}
    body["messages"] = _placed(rows, places[:slots], life)
    return body if len(places) >= slots else body | _marked_head(body, life)


def _marked_head(body: dict[str, Any], life: Life) -> dict[str, Any]:
    """What ends the part before the messages, marked if its user has not: system, or tools where there is none."""
    system = [{"content": body.get("system")}]
    place = _last_carrier(system, 1)
    if place is not None:
        return {} if _any_marked(system) else {"system": _placed(system, [place], life)[0]["content"]}
    tools = body["tools"] if isinstance(body.get("tools"), list) and not _any_marked(body["tools"]) else []
    for position in range(len(tools) - 1, -1, -1):
        if isinstance(tools[position], dict) and not tools[position].get("defer_loading"):
            return {"tools": [*tools[:position], tools[position] | _mark(life), *tools[position + 1 :]]}
    return {}


def _mark(life: Life) -> dict[str, Any]:
    return {_KEY: {"type": "ephemeral"} if life == "5m" else {"type": "ephemeral", "ttl": life}}


def with_mark_of(row: Any, source: Any) -> Any:
    """A row that was written anew, with the mark that its source has at its end."""
    blocks = _blocks(source)
    mark = blocks[-1].get(_KEY) if blocks and isinstance(blocks[-1], dict) else None
    place = _last_carrier([row], 1)
    if mark is None or place is None or _is_marked(row):
        return row
    own = list(_blocks(row))
    own[place[1]] = own[place[1]] | {_KEY: mark}
    return row | {"content": own}


def can_drop_blocks(value: Any) -> bool:
    """Whether a request can ask the API to drop thinking: a body that says how the model thinks."""
    return isinstance(value, dict) and isinstance(value.get("thinking"), dict)


def dropping_blocks(value: dict[str, Any]) -> dict[str, Any]:
    """A body that asks the API to drop thinking which no longer fits what stands before it."""
    thinking = value["thinking"]
    binding = thinking["block_binding"] if isinstance(thinking.get("block_binding"), dict) else {}
    asked = {**binding, "prefix_mismatch_behavior": "drop_block"}
    return {**value, "thinking": {**thinking, "block_binding": asked}}
