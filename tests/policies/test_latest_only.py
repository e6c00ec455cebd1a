"""The policy `latest-only`: only the latest results of listings, plans and similar tools stay."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tool_chains import Did, body, closed, results, told, touched

from strategies import histories
from thresher.errors import OptionError
from thresher.model import History
from thresher.policies.latest_only import KeepLatestOnly


def ls(path: str = "/", *, is_error: bool = False) -> Did:
    return Did("LS", {"path": path}, body("listed"), is_error)


def call(name: str) -> Did:
    return Did(name, {"path": "/"}, body(name))


def gone(history: History, policy: KeepLatestOnly) -> list[int]:
    return touched(history, closed(history, policy)[0].edits)


def test_the_latest_result_of_each_tool_stays() -> None:
    history = told(ls("/a"), call("glob"), ls("/b"), call("focus"), ls("/c"), call("Glob"), call("focus"))
    assert gone(history, KeepLatestOnly()) == [0, 1, 2, 3]


def test_a_placeholder_names_the_turn_of_the_newer_result() -> None:
    _, smaller = closed(told(ls("/a"), ls("/b"), ls("/c")), KeepLatestOnly())
    assert [text[-22:] for text in results(smaller)[:2]] == ["· newer one at turn 3]"] * 2
    assert results(smaller)[2] == body("listed")


@pytest.mark.parametrize("name", ["Read", "Grep", "Bash", "Edit", "WebSearch", "TodoWrite"])
def test_other_tools_are_unchanged(name: str) -> None:
    assert list(KeepLatestOnly()(told(call(name), call(name)))) == []


@pytest.mark.parametrize("keep", [0, 1, 2, 5])
def test_the_option_keep_sets_the_number(keep: int) -> None:
    assert gone(told(*[ls()] * 4), KeepLatestOnly(keep=keep)) == list(range(max(4 - keep, 0)))


def test_a_failed_call_does_not_replace_a_successful_one() -> None:
    assert gone(told(ls(is_error=True), ls("/a"), ls("/b"), ls(is_error=True)), KeepLatestOnly()) == [0, 1]


def test_drop_removes_call_and_result() -> None:
    plan, smaller = closed(told(ls("/a"), ls("/b")), KeepLatestOnly(action="drop"))
    assert len(plan.edits) == 2
    assert [json.loads(link.call.arguments) for link in smaller.links] == [{"path": "/b"}]


def test_only_the_latest_plan_stays() -> None:
    todo, added = Did("TodoWrite", {"todos": [body("todo")]}), Did("TaskCreate", {"subject": body("task")})
    history = told(todo, added, todo, added, todo)
    assert gone(history, KeepLatestOnly(categories=("plan",), action="drop")) == [0, 2], (
        "each new task adds to the plan"
    )
    assert gone(history, KeepLatestOnly(tools=("TaskCreate",), action="drop")) == [1]


def test_globs_ignore_case() -> None:
    history = told(call("mcp__db__Query"), ls(), ls(), call("mcp__db__Query"))
    assert gone(history, KeepLatestOnly(tools=("MCP__*",))) == [0]


@pytest.mark.parametrize("options", [{"keep": -1}, {"action": "hide"}, {"tools": "ls"}, {"categories": ("lists",)}])
def test_invalid_options_are_rejected(options: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match="policy `latest-only`"):
        KeepLatestOnly(**options)


@given(histories, st.sampled_from(("replace", "drop")))
def test_any_history_is_accepted(history: History, do: Any) -> None:
    closed(history, KeepLatestOnly(tools=("*",), action=do))
