"""Light tools: only the newest answers of each stay."""

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


def test_the_newest_of_each_tool_stays() -> None:
    history = told(ls("/a"), call("glob"), ls("/b"), call("focus"), ls("/c"), call("Glob"), call("focus"))
    assert gone(history, KeepLatestOnly()) == [0, 1, 2, 3]


def test_a_pointer_says_where_the_newer_one_is() -> None:
    _, smaller = closed(told(ls("/a"), ls("/b"), ls("/c")), KeepLatestOnly())
    assert [text[-22:] for text in results(smaller)[:2]] == ["· newer one at turn 3]"] * 2
    assert results(smaller)[2] == body("listed")


@pytest.mark.parametrize("name", ["Read", "Grep", "Bash", "Edit", "WebSearch", "TodoWrite"])
def test_other_tools_do_not_age(name: str) -> None:
    assert list(KeepLatestOnly()(told(call(name), call(name)))) == []


@pytest.mark.parametrize("keep", [0, 1, 2, 5])
def test_as_many_stay_as_asked(keep: int) -> None:
    assert gone(told(*[ls()] * 4), KeepLatestOnly(keep=keep)) == list(range(max(4 - keep, 0)))


def test_a_failed_answer_does_not_take_the_place_of_a_good_one() -> None:
    assert gone(told(ls(is_error=True), ls("/a"), ls("/b"), ls(is_error=True)), KeepLatestOnly()) == [0, 1]


def test_dropped_call_and_all() -> None:
    plan, smaller = closed(told(ls("/a"), ls("/b")), KeepLatestOnly(action="drop"))
    assert len(plan.edits) == 2
    assert [json.loads(link.call.arguments) for link in smaller.links] == [{"path": "/b"}]


def test_the_latest_plan_is_the_plan() -> None:
    todo, added = Did("TodoWrite", {"todos": [body("todo")]}), Did("TaskCreate", {"subject": body("task")})
    history = told(todo, added, todo, added, todo)
    assert gone(history, KeepLatestOnly(categories=("plan",), action="drop")) == [0, 2], (
        "each new task adds to the plan"
    )
    assert gone(history, KeepLatestOnly(tools=("TaskCreate",), action="drop")) == [1]


def test_tools_are_named_by_glob_whatever_the_case() -> None:
    history = told(call("mcp__db__Query"), ls(), ls(), call("mcp__db__Query"))
    assert gone(history, KeepLatestOnly(tools=("MCP__*",))) == [0]


@pytest.mark.parametrize("options", [{"keep": -1}, {"action": "hide"}, {"tools": "ls"}, {"categories": ("lists",)}])
def test_senseless_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match="policy `latest-only`"):
        KeepLatestOnly(**options)


@given(histories, st.sampled_from(("replace", "drop")))
def test_any_history_can_be_tried(history: History, do: Any) -> None:
    closed(history, KeepLatestOnly(tools=("*",), action=do))
