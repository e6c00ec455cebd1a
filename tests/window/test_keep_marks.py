"""Tools and messages that mark themselves stay, and a window's events name the tools that were excluded."""

import json
from typing import Any

import pytest

import thresher as th
from thresher.errors import BudgetError
from thresher.policies.batch_summary import SummarizeBatches
from thresher.store import InMemoryContentStore
from thresher.window import Prices, Thresholds, Window

KEEP = {"thresher": {"keep": True}}
LOSE = {"thresher": {"keep": False}}
WORDS = " ".join(f"word{n}" for n in range(300))
EAGER = Thresholds(keep_calls=1, min_saving=50, patience=0, min_expected_calls=50)


def anthropic(marked: str, mark: dict[str, Any] = KEEP) -> dict[str, Any]:
    """Return a body with ten calls; `marked` says which part of call 3 or of the tool `ledger` has the mark."""
    definition = {"name": "ledger", "input_schema": {"type": "object"}} | (mark if marked == "tool" else {})
    messages: list[dict[str, Any]] = [{"role": "user", "content": "go"}]
    for n in range(10):
        name = "ledger" if n == 3 else "Bash"
        call = {"type": "tool_use", "id": f"c{n}", "name": name, "input": {"thresher": {"keep": True}, "n": n}}
        result = {"type": "tool_result", "tool_use_id": f"c{n}", "content": f"{n} {WORDS}"}
        rows = [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
        if n == 3:
            call |= mark if marked == "call" else {}
            result |= mark if marked == "result" else {}
            rows[1] |= mark if marked == "message" else {}
        messages += rows
    messages += [{"role": "assistant", "content": "done"}, {"role": "user", "content": "next"}]
    return {"tools": [definition, {"name": "Bash", "input_schema": {"type": "object"}}], "messages": messages}


def openai_chat(marked: str, mark: dict[str, Any] = KEEP) -> dict[str, Any]:
    definition = {
        "type": "function",
        "function": {"name": "ledger", "parameters": {}} | (mark if marked == "tool" else {}),
    }
    rows: list[dict[str, Any]] = [{"role": "user", "content": "go"}]
    for n in range(10):
        name = "ledger" if n == 3 else "Bash"
        call = {"id": f"c{n}", "type": "function", "function": {"name": name, "arguments": json.dumps({"n": n})}}
        result = {"role": "tool", "tool_call_id": f"c{n}", "content": f"{n} {WORDS}"}
        if n == 3:
            call |= mark if marked == "call" else {}
            result |= mark if marked in ("result", "message") else {}
        rows += [{"role": "assistant", "content": None, "tool_calls": [call]}, result]
    rows += [{"role": "assistant", "content": "done"}, {"role": "user", "content": "next"}]
    return {"model": "gpt-5", "tools": [definition], "messages": rows}


MAKERS = {"anthropic": anthropic, "openai-chat": openai_chat}


def is_whole(body: dict[str, Any]) -> bool:
    return f"3 {WORDS}" in json.dumps(body["messages"])


@pytest.mark.parametrize("dialect", MAKERS)
@pytest.mark.parametrize("marked", ["tool", "message", "call", "result"])
@pytest.mark.parametrize("policy", ["auto", "mask", "decay", "aggressive", SummarizeBatches(older_than=0, min_calls=1)])
def test_marked_calls_stay_whole_under_every_policy(dialect: str, marked: str, policy: th.PolicyLike) -> None:
    body = MAKERS[dialect](marked)
    budget = th.count(body) // 3
    after = th.fit(body, policy=policy, budget=budget)
    assert is_whole(after)
    assert th.count(after) <= budget
    assert not is_whole(th.fit(MAKERS[dialect](""), policy=policy, budget=budget // 2))
    assert not is_whole(th.fit(MAKERS[dialect](marked, LOSE), policy=policy, budget=budget // 2))


def test_the_error_about_a_budget_names_marked_content() -> None:
    with pytest.raises(BudgetError, match="marked to stay"):
        th.fit(anthropic("tool"), budget=300)


def test_marked_calls_do_not_start_a_batch() -> None:
    policy = SummarizeBatches(older_than=0, min_calls=10, max_distance=1_000)
    assert th.plan(anthropic("tool"), policy=policy).edits == ()
    assert th.plan(anthropic("tool"), policy=policy).notes == ("batch-summary excluded 1 call: ledger 1 (marked)",)
    assert th.plan(anthropic(""), policy=policy).edits


@pytest.mark.parametrize("dialect", MAKERS)
@pytest.mark.parametrize("marked", ["tool", "message", "call", "result"])
@pytest.mark.parametrize("budget", [100_000, 2_600])
def test_a_window_sends_no_marks(dialect: str, marked: str, budget: int) -> None:
    body = MAKERS[dialect](marked)
    window = Window(budget=budget, store=InMemoryContentStore(), thresholds=EAGER, prices=Prices(minimum=1))
    before = json.dumps(body)
    sent = window.fit(body, at=0)
    assert is_whole(sent)
    assert json.dumps(body) == before
    without_inputs = json.dumps([sent["tools"], sent["messages"]]).replace('{"thresher": {"keep": true}, "n"', "")
    assert '"thresher"' not in without_inputs
    if dialect == "anthropic" and budget == 100_000:
        assert '{"thresher": {"keep": true}, "n": 9}' in json.dumps(sent), "a field of a tool's input is no mark"
    assert window.fit(body, at=1) == sent


def test_the_event_of_a_replan_names_the_excluded_tools() -> None:
    policy = SummarizeBatches(older_than=0, min_calls=1, exclude_tools=("ledger",))
    window = Window(policy, budget=100_000, store=InMemoryContentStore(), thresholds=EAGER, prices=Prices(minimum=1))
    window.fit(anthropic(""), at=0)
    (event,) = window.events
    assert event.notes == ("batch-summary excluded 1 call: ledger 1",)


def test_the_event_names_tools_that_the_escalation_to_a_budget_excluded() -> None:
    window = Window(budget=2_000, store=InMemoryContentStore(), thresholds=EAGER, prices=Prices(minimum=1))
    window.fit(json.loads(json.dumps(anthropic("tool")).replace("word", "thing")), at=0)
    assert [note for event in window.events for note in event.notes if "ledger 1 (marked)" in note]
