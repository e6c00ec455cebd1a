"""Cache breakpoints: positions that the API accepts and that hit the cache, without any other change."""

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strategies import ODD, WIRE
from thresher.dialects.anthropic.cache_breakpoints import (
    LOOKBACK_BLOCKS,
    MAX_BREAKPOINTS,
    place_cache_breakpoints,
)
from thresher.dialects.cache_control import CacheBreakpointMode, has_cache_breakpoints, strip_cache_breakpoints

Row = dict[str, Any]

SHORT = {"type": "ephemeral"}
LONG = {"type": "ephemeral", "ttl": "1h"}
ASKED: tuple[CacheBreakpointMode, ...] = ("auto", "place", "leave")
HEADS = ("tools", "system")

DOCUMENT = {"type": "document", "source": {"type": "content", "content": [{"type": "text", "text": "a"}]}}
CALL = {"type": "tool_use", "id": "c1", "name": "Read", "input": {"cache_control": "a word of the model's"}}
RESULT = {"type": "tool_result", "tool_use_id": "c1", "content": "done"}
THINKING = {"type": "thinking", "thinking": "hm", "signature": "s"}


def text(words: str = "a", **more: Any) -> Row:
    return {"type": "text", "text": words, **more}


def row(*blocks: Any, role: str = "user") -> Row:
    return {"role": role, "content": list(blocks)}


def rows_of(*sizes: int) -> list[Row]:
    return [row(*(text(f"{number}.{at}") for at in range(size))) for number, size in enumerate(sizes)]


def marked_blocks(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Row]]:
    """Yield every block with a breakpoint and its path; arguments of calls do not count."""
    if isinstance(value, dict):
        if "cache_control" in value:
            yield path, value
        for key, inner in value.items():
            if key in ("messages", "content", "source", *HEADS):
                yield from marked_blocks(inner, (*path, key))
    elif isinstance(value, list):
        for at, inner in enumerate(value):
            yield from marked_blocks(inner, (*path, at))


def places(value: Any) -> list[tuple[int, int]]:
    """Return the row and block of each breakpoint in messages."""
    rows = value["messages"] if isinstance(value, dict) else value
    return sorted((path[0], path[2]) for path, _ in marked_blocks(rows))


def as_said(value: Any) -> Any:
    """Replace a single text block by a plain string, which means the same to the API."""
    if isinstance(value, dict):
        return {
            key: as_blocks(inner) if key in ("content", "system") else as_said(inner) for key, inner in value.items()
        }
    return [as_said(inner) for inner in value] if isinstance(value, list) else value


def as_blocks(content: Any) -> Any:
    return [text(content)] if isinstance(content, str) else as_said(content)


def takes_a_mark(block: Any) -> bool:
    """Return True if the API documentation allows a breakpoint here, independently of the code under test."""
    return isinstance(block, dict) and (
        (block.get("type") == "text" and isinstance(block.get("text"), str) and bool(block["text"].strip()))
        or block.get("type") in ("image", "document", "search_result", "tool_use", "tool_result")
        or block.get("type") in ("server_tool_use", "web_search_tool_result")
    )


# --- positions -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sizes", "stable", "previous", "expected"),
    [
        ((), 0, 0, []),
        ((2,), 0, 0, [(0, 1)]),
        ((1, 1, 3), 0, 0, [(2, 2)]),
        ((1, 1, 1, 1, 1, 1), 2, 4, [(1, 0), (3, 0), (5, 0)]),
        ((1, 1, 1, 1), 4, 2, [(1, 0), (3, 0)]),
        ((1, 1, 1, 1), 4, 4, [(3, 0)]),
        ((1, 1, 1, 1), -3, 99, [(3, 0)]),
        ((1, 0, 0, 2), 2, 3, [(0, 0), (3, 1)]),
    ],
)
def test_breakpoints_mark_the_end_the_last_request_and_the_edited_part(
    sizes: tuple[int, ...], stable: int, previous: int, expected: list[tuple[int, int]]
) -> None:
    body = {"messages": rows_of(*sizes)}
    assert places(place_cache_breakpoints(body, asked="auto", stable=stable, previous=previous)) == expected


@pytest.mark.parametrize(
    ("added", "expected"),
    [
        ((LOOKBACK_BLOCKS - 1,), []),
        ((LOOKBACK_BLOCKS,), [(1, LOOKBACK_BLOCKS - 2)]),
        ((1,) * LOOKBACK_BLOCKS, [(LOOKBACK_BLOCKS - 1, 0)]),
        ((10, 30), [(2, 8)]),
        ((3, 3, 200), [(3, 12)]),
    ],
)
def test_a_long_addition_gets_a_breakpoint_in_between(added: tuple[int, ...], expected: list[tuple[int, int]]) -> None:
    rows = rows_of(1, *added)
    found = places(place_cache_breakpoints({"messages": rows}, asked="place", previous=1))
    assert found == [(0, 0), *expected, (len(added), added[-1] - 1)]


def test_the_breakpoint_in_between_is_on_an_eligible_block() -> None:
    rows = [row(text()), row(*[text()] * 17, THINKING, text("")), row(*[text()] * 9)]
    assert places(place_cache_breakpoints({"messages": rows}, asked="place", previous=1)) == [(0, 0), (1, 16), (2, 8)]


@pytest.mark.parametrize(
    "block",
    [
        *(THINKING, {"type": "redacted_thinking", "data": "x"}, text(""), text(" \n\t"), {"type": "text"}),
        *({"type": "kind_of_tomorrow"}, {"type": 3}, {}, "bare", None),
    ],
)
def test_an_ineligible_block_leaves_the_breakpoint_to_the_previous_one(block: Any) -> None:
    assert places(place_cache_breakpoints([row(text()), row(text(), block), row(block)], asked="place")) == [(1, 0)]


@pytest.mark.parametrize("block", [text(), {"type": "image", "source": {}}, DOCUMENT, CALL, RESULT])
def test_every_cacheable_block_takes_a_breakpoint(block: Row) -> None:
    assert place_cache_breakpoints([row(text(), block)], asked="place") == [
        row(text(), {**block, "cache_control": SHORT})
    ]


def test_a_plain_string_becomes_a_block_to_carry_a_breakpoint() -> None:
    rows = [{"role": "user", "content": "go", "id": 7}]
    assert place_cache_breakpoints(rows, asked="place") == [
        {"role": "user", "content": [text("go", cache_control=SHORT)], "id": 7}
    ]


def test_a_request_without_eligible_blocks_gets_no_breakpoint() -> None:
    rows = [row(THINKING), {"role": "user", "content": ""}, {"role": "user"}, None]
    assert place_cache_breakpoints(rows, asked="place", stable=2, previous=2) == rows


# --- the prompt before the messages --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        ({}, {}),
        ({"system": "be brief"}, {"system": [text("be brief", cache_control=SHORT)]}),
        ({"system": [text("a"), text("b")]}, {"system": [text("a"), text("b", cache_control=SHORT)]}),
        ({"system": [text("a"), text("")]}, {"system": [text("a", cache_control=SHORT), text("")]}),
        ({"tools": [{"name": "a"}, {"name": "b"}]}, {"tools": [{"name": "a"}, {"name": "b", "cache_control": SHORT}]}),
        (
            {"system": "", "tools": [{"name": "a"}, {"name": "b", "defer_loading": True}]},
            {"system": "", "tools": [{"name": "a", "cache_control": SHORT}, {"name": "b", "defer_loading": True}]},
        ),
        ({"tools": [{"name": "b", "defer_loading": True}]}, {"tools": [{"name": "b", "defer_loading": True}]}),
        (
            {"tools": [{"name": "a"}], "system": "s"},
            {"tools": [{"name": "a"}], "system": [text("s", cache_control=SHORT)]},
        ),
    ],
)
def test_a_breakpoint_is_at_the_end_of_the_system_text_or_else_of_the_tools(head: Row, expected: Row) -> None:
    body = {**head, "messages": rows_of(1)}
    result = place_cache_breakpoints(body, asked="auto")
    assert {key: result[key] for key in result if key != "messages"} == expected


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        ({"system": [text("a", cache_control=LONG), text("b")]}, {}),
        ({"system": [text("a", cache_control=LONG)], "tools": [{"name": "a"}]}, {}),
        ({"tools": [{"name": "a", "cache_control": LONG}, {"name": "b"}]}, {}),
        (
            {"tools": [{"name": "a", "cache_control": LONG}], "system": "s"},
            {"system": [text("s", cache_control=SHORT)]},
        ),
    ],
)
def test_a_prompt_with_the_users_breakpoint_gets_no_other(head: Row, expected: Row) -> None:
    result = place_cache_breakpoints({**head, "messages": rows_of(1)}, asked="place")
    assert {key: result[key] for key in result if key != "messages"} == {**head, **expected}


def test_messages_get_breakpoints_before_the_system_text() -> None:
    body = {"system": "be brief", "messages": rows_of(1, 1, 1, 1 + LOOKBACK_BLOCKS)}
    assert place_cache_breakpoints(body, asked="auto", stable=1, previous=2)["system"] == "be brief"
    assert place_cache_breakpoints(body, asked="auto", stable=2, previous=2)["system"] == [
        text("be brief", cache_control=SHORT)
    ]


@pytest.mark.parametrize("count", range(MAX_BREAKPOINTS + 2))
def test_breakpoints_of_system_and_tools_stay_and_count_towards_the_limit(count: int) -> None:
    tools = [{"name": f"t{number}", "cache_control": LONG} for number in range(count)]
    body = {"tools": tools, "messages": rows_of(1, 1, 1, 1 + LOOKBACK_BLOCKS)}
    result = place_cache_breakpoints(body, asked="place", ttl="1h", stable=1, previous=2)
    assert result["tools"] is tools
    assert len(places(result)) == max(MAX_BREAKPOINTS - count, 0)
    assert places(result)[-1:] == ([(3, LOOKBACK_BLOCKS)] if count < MAX_BREAKPOINTS else [])


# --- breakpoints of the user ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [
        rows_of(1, 1),
        {"messages": rows_of(1, 1), "cache_control": SHORT},
        {"messages": rows_of(1, 1), "system": [text(cache_control=SHORT)]},
        {"messages": rows_of(1, 1), "tools": [{"name": "a", "cache_control": LONG}]},
        {"messages": [row(text(cache_control=SHORT)), row(text())]},
        {"messages": [row({**RESULT, "content": [text(cache_control=SHORT)]}), row(text())]},
        {"messages": [row({**DOCUMENT, "source": {"type": "content", "content": [text(cache_control=SHORT)]}})]},
        {"messages": "no rows"},
        {"model": "claude"},
        None,
    ],
)
def test_auto_changes_nothing_if_the_user_placed_breakpoints_or_gave_a_bare_list(value: Any) -> None:
    assert place_cache_breakpoints(value, asked="auto", stable=1, previous=1) is value


def test_auto_accepts_the_callers_statement_about_breakpoints_in_messages() -> None:
    body = {"messages": rows_of(1, 1)}
    assert place_cache_breakpoints(body, asked="auto", own=True) is body
    assert places(place_cache_breakpoints(body, asked="auto", own=False)) == [(1, 0)]


def test_place_replaces_the_users_breakpoints() -> None:
    theirs = {**RESULT, "content": [text("x", cache_control=LONG)], "cache_control": LONG}
    body = {"cache_control": LONG, "system": "s", "messages": [row(text(cache_control=LONG), theirs), row(text("end"))]}
    assert place_cache_breakpoints(body, asked="place", previous=1) == {
        "system": [text("s", cache_control=SHORT)],
        "messages": [
            row(text(), {**RESULT, "content": [text("x")], "cache_control": SHORT}),
            row(text("end", cache_control=SHORT)),
        ],
    }


def test_a_bare_list_leaves_one_breakpoint_for_the_system_prompt() -> None:
    rows = rows_of(1, 1, 1, 1 + LOOKBACK_BLOCKS)
    assert len(places(place_cache_breakpoints(rows, asked="place", stable=1, previous=2))) == MAX_BREAKPOINTS - 1


@pytest.mark.parametrize(
    ("kept", "ttl", "expected"),
    [
        (None, "5m", SHORT),
        (None, "1h", LONG),
        (LONG, "1h", LONG),
        (LONG, "5m", SHORT),
        (SHORT, "1h", SHORT),
        ({**SHORT, "ttl": "5m"}, "1h", SHORT),
    ],
)
def test_a_longer_lifetime_never_follows_a_shorter_one(kept: Row | None, ttl: Any, expected: Row) -> None:
    head = {} if kept is None else {"tools": [{"name": "a", "cache_control": kept}]}
    result = place_cache_breakpoints({**head, "messages": rows_of(1)}, asked="place", ttl=ttl)
    assert [block["cache_control"] for _, block in marked_blocks(result["messages"])] == [expected]


# --- unchanged content ---------------------------------------------------------------------------------------


def test_only_rows_with_a_breakpoint_are_copied() -> None:
    body = {"messages": rows_of(*[2] * 40)}
    result = place_cache_breakpoints(body, asked="auto", stable=10, previous=35)
    touched = [number for number, one in enumerate(result["messages"]) if one is not body["messages"][number]]
    assert touched == [9, 34, 39]
    assert result["messages"][9]["content"][0] is body["messages"][9]["content"][0]


def test_stripping_returns_values_without_breakpoints_unchanged() -> None:
    for value in (rows_of(1, 2), {"messages": rows_of(1), "system": "s", "tools": [{"name": "a"}]}, [], {}, None):
        assert strip_cache_breakpoints(value) is value
        assert not has_cache_breakpoints(value)


def test_stripping_keeps_rows_without_breakpoints_identical() -> None:
    rows = [row(text()), row(CALL, text(cache_control=SHORT)), row({**DOCUMENT, "cache_control": None})]
    bare = strip_cache_breakpoints(rows)
    assert bare == [row(text()), row(CALL, text()), row(DOCUMENT)]
    assert bare[0] is rows[0]
    assert bare[1]["content"][0] is CALL


# --- laws ----------------------------------------------------------------------------------------------------

counts = st.integers(-1, 9)
wire = st.one_of(WIRE["anthropic"], ODD["anthropic"])


@given(wire, st.sampled_from(ASKED), st.sampled_from(("5m", "1h")), counts, counts)
def test_only_breakpoints_change_and_the_input_stays_unchanged(
    value: Any, asked: CacheBreakpointMode, ttl: Any, stable: int, previous: int
) -> None:
    before = copy.deepcopy(value)
    result = place_cache_breakpoints(value, asked=asked, ttl=ttl, stable=stable, previous=previous)
    assert value == before
    assert as_said(strip_cache_breakpoints(result)) == as_said(strip_cache_breakpoints(value))
    assert not has_cache_breakpoints(strip_cache_breakpoints(result))
    if asked == "leave":
        assert result is value


@given(WIRE["anthropic"], counts, counts)
def test_breakpoints_stay_within_the_limit_and_are_legal(value: Any, stable: int, previous: int) -> None:
    body = value if isinstance(value, dict) else {"messages": value}
    kept = sum(len([*marked_blocks(body.get(key))]) for key in HEADS)
    result = place_cache_breakpoints(body, asked="place", stable=stable, previous=previous)
    assert len([*marked_blocks(result)]) <= max(MAX_BREAKPOINTS, kept)
    assert all(takes_a_mark(block) for _, block in marked_blocks(result["messages"]))
    assert all(len(path) == 3 for path, _ in marked_blocks(result["messages"]))


@given(WIRE["anthropic"], counts, counts)
def test_the_last_eligible_block_has_a_breakpoint(value: Any, stable: int, previous: int) -> None:
    rows = value["messages"] if isinstance(value, dict) else value
    able = [
        (number, at)
        for number, one in enumerate(as_said(rows))
        for at, block in enumerate(one["content"])
        if takes_a_mark(block)
    ]
    result = place_cache_breakpoints({"messages": rows}, asked="place", stable=stable, previous=previous)
    assert places(result)[-1:] == able[-1:]


@given(WIRE["anthropic"], counts, counts, st.sampled_from(("5m", "1h")))
def test_placing_again_moves_our_breakpoints_instead_of_adding_more(
    value: Any, stable: int, previous: int, ttl: Any
) -> None:
    once = place_cache_breakpoints(value, asked="place", ttl=ttl, stable=stable, previous=previous)
    again = place_cache_breakpoints(once, asked="place", ttl=ttl, stable=stable, previous=previous)
    assert json.dumps(as_said(again), sort_keys=True) == json.dumps(as_said(once), sort_keys=True)


class Cache:
    """Simulated provider cache: entries by the number of blocks before their end; a breakpoint looks back 20 blocks."""

    def __init__(self) -> None:
        self.entries: set[int] = set()

    def send(self, body: Row, changed: int) -> int:
        """Return the number of cached blocks if all blocks from `changed` on are different."""
        self.entries = {entry for entry in self.entries if entry <= changed}
        ends: list[int] = []
        passed = 0
        for one in body["messages"]:
            for block in one["content"]:
                passed += 1
                ends += [passed] if "cache_control" in block else []
        read = max((entry for end in ends for entry in self.entries if 0 <= end - entry < 20), default=0)
        self.entries.update(ends)
        return read


@given(st.lists(st.lists(st.integers(1, 60), min_size=1, max_size=3), min_size=2, max_size=6), st.integers(0, 3))
def test_the_cache_serves_the_whole_last_request_after_any_growth(growth: list[list[int]], stable: int) -> None:
    cache = Cache()
    sizes: list[int] = []
    for added in growth:
        previous, cached = len(sizes), sum(sizes)
        sizes = [*sizes, *added]
        body = place_cache_breakpoints({"messages": rows_of(*sizes)}, asked="auto", stable=stable, previous=previous)
        assert cache.send(body, changed=cached) == cached


@given(st.lists(st.integers(1, 2 * LOOKBACK_BLOCKS - 1), min_size=3, max_size=8), st.data())
def test_a_replan_reads_the_cache_up_to_its_first_change(growth: list[int], data: st.DataObject) -> None:
    cache = Cache()
    sizes: list[int] = []
    for added in growth:
        previous, cached = len(sizes), sum(sizes)
        sizes = [*sizes, *[1] * added]
        cache.send(
            place_cache_breakpoints({"messages": rows_of(*sizes)}, asked="auto", stable=1, previous=previous),
            changed=cached,
        )
    changed = data.draw(st.integers(growth[0], len(sizes) - 1))
    body = place_cache_breakpoints({"messages": rows_of(*sizes)}, asked="auto", stable=len(sizes) - 1, previous=changed)
    assert changed - LOOKBACK_BLOCKS < cache.send(body, changed=changed) <= changed
