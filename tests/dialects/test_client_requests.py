"""Requests of today's clients: legal as they are, complete after any edit, unchanged where nothing changes."""

from typing import Any

import pytest
from client_requests import claude_code_request, claude_code_rows, codex_request, text, title_request

import thresher as th
from thresher.store import InMemoryContentStore
from thresher.window import Ledger

NEEDED = ("additional_tools", "compaction", "sealed_plan_2027")


def window(**options: Any) -> th.Window:
    return th.Window(store=InMemoryContentStore(), ledger=Ledger(), **options)


@pytest.mark.parametrize("request_", [claude_code_request(3), title_request(), codex_request(3)])
def test_a_request_with_room_is_returned_as_the_same_object(request_: dict[str, Any]) -> None:
    kept = window(budget=100_000)
    assert kept.fit(request_) is request_
    assert kept.events == []


def test_system_rows_inside_the_messages_are_legal() -> None:
    assert th.check(claude_code_rows(2), "anthropic") == ()


@pytest.mark.parametrize(
    "rows",
    [
        [{"role": "system", "content": "first"}, {"role": "user", "content": "hi"}],
        [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "a"}, {"role": "system", "content": "s"}],
        [{"role": "user", "content": "hi"}, {"role": "system", "content": "s"}, {"role": "user", "content": "go"}],
        [{"role": "user", "content": "hi"}, {"role": "system", "content": "s"}, {"role": "system", "content": "t"}],
    ],
)
def test_a_system_row_elsewhere_breaks_a_rule_and_becomes_the_users(rows: list[dict[str, Any]]) -> None:
    assert [found.rule for found in th.check(rows, "anthropic")] == ["system-place"]
    repaired = th.emit(th.repair(rows, "anthropic").history, "anthropic")
    assert th.check(repaired, "anthropic") == ()
    assert [row["content"] for row in repaired] == [row["content"] for row in rows]


def test_a_system_row_may_follow_the_use_of_a_servers_tool() -> None:
    search = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}}
    rows = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": [text("so"), search]},
        {"role": "system", "content": "s"},
    ]
    assert th.check(rows, "anthropic") == ()


@pytest.mark.parametrize("policy", ["auto", "mask", "sliding-window", "batch-summary", "tools"])
def test_system_rows_keep_their_text_and_a_legal_place_after_edits(policy: str) -> None:
    request = claude_code_request(20)
    fitted = th.fit(request, policy=policy, budget=3_000, dialect="anthropic", store=InMemoryContentStore())
    assert fitted != request
    assert th.check(fitted, "anthropic") == ()
    words = [row["content"][0]["text"] for row in request["messages"] if row["role"] == "system"]
    blocks = [block for row in fitted["messages"] if isinstance(row["content"], list) for block in row["content"]]
    assert [block["text"] for block in blocks if block.get("text") in words] == words


def test_codex_keeps_its_tools_and_unknown_items_under_pressure() -> None:
    request = codex_request(30)
    fitted = window(budget=4_000).fit(request)
    assert len(fitted["input"]) <= len(request["input"])
    assert fitted != request
    items = [item for item in request["input"] if item["type"] in NEEDED]
    assert [item for item in fitted["input"] if item["type"] in NEEDED] == items


def test_a_one_shot_request_gets_no_cache_breakpoints() -> None:
    request = title_request()
    assert "cache_control" not in str(window().fit(request))
    chat = {**request, "tools": [{"name": "Read", "input_schema": {"type": "object"}}]}
    assert "cache_control" in str(window().fit(chat))


def test_a_changed_request_keeps_the_order_of_its_fields_and_its_other_rows() -> None:
    request = claude_code_request(20)
    fitted = window(budget=6_000, policy="mask").fit(request)
    assert list(fitted) == list(request)
    unchanged = [row for row in fitted["messages"] if any(row is old for old in request["messages"])]
    assert 0 < len(unchanged) < len(fitted["messages"])
