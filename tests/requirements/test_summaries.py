"""Summaries of tool calls: which calls are summarized, when, and which never are."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from fitted_conversations import (
    Conversation,
    Row,
    arguments,
    fit,
    fit_and_plan,
    has,
    results,
    said,
    text_of,
    tools,
)

import thresher as th
from step_count import count_steps
from thresher.model import History, Place
from thresher.policies.batch_summary import SummarizeBatches
from thresher.store import InMemoryContentStore
from thresher.window import Prices, Thresholds

ASKED = "Which of the two ports should the server use?"


def work(count: int, tool: str = "read_file", *, later: int = 24, talk: Conversation | None = None) -> Conversation:
    """Return a session with a number of calls, and as many short messages after them as `later` says."""
    talk = talk or Conversation().human("Begin.")
    for number in range(count):
        talk.uses(tool, text_of(f"result{number}", 12), path=f"src/file{number}.py")
    return talk.agent("That is all.").chat(later // 2)


def summarize(talk: Conversation | list[Row], policy: Any = "batch-summary", **options: Any) -> list[Row]:
    return fit(talk, policy=policy if isinstance(policy, str) else [policy], **options)


def summaries(messages: list[Row]) -> list[str]:
    return [text for text in said(messages, "assistant") if text.startswith("[thresher")]


# Which calls.


OPERATING = ("read_file", "execute_command", "search_files", "apply_diff", "Read", "Bash", "Grep", "Edit", "lookup")
TALKING = ("task_completion", "ask_question", "converse", "AskUserQuestion", "attempt_completion", "finish")


@pytest.mark.parametrize("tool", OPERATING)
def test_calls_that_operate_are_summarized_with_their_results(tool: str) -> None:
    left = summarize(work(12, tool))
    assert tools(left) == results(left) == []
    assert len(summaries(left)) == 1


@pytest.mark.parametrize("tool", TALKING)
def test_calls_that_talk_to_the_person_or_end_the_task_are_never_summarized(tool: str) -> None:
    talk = Conversation().human("Begin.").uses(tool, "Port 8123, please.", question=ASKED)
    left = summarize(work(12, talk=talk))
    assert tools(left) == [tool]
    assert left[1:3] == talk.messages[1:3]


def test_a_question_of_long_ago_is_still_there_after_fifty_turns() -> None:
    talk = Conversation().human("Start the server.").uses("ask_question", "Port 8123, please.", question=ASKED)
    work(22, talk=talk, later=0).uses("task_completion", "ok", result="The server runs on port 8123.")
    left = summarize(talk.chat(25))
    assert arguments(left) == [{"question": ASKED}, {"result": "The server runs on port 8123."}]
    assert results(left) == ["Port 8123, please.", "ok"]
    assert len(summaries(left)) == 1


@pytest.mark.parametrize("names", [("deploy",), ("DEPLOY",), ("dep*",), ("x", "deploy")])
def test_more_tools_can_be_excluded_by_name(names: tuple[str, ...]) -> None:
    talk = Conversation().human("Begin.").uses("deploy", "deployed").uses("build", "built").agent("Done.")
    left = summarize(work(12, talk=talk), SummarizeBatches(exclude_tools=names))
    assert tools(left) == ["deploy"]


def test_a_list_of_ones_own_replaces_the_default_but_answers_of_a_person_stay() -> None:
    """Questions and reports of completion stay under any list that is not empty: their results are a person's words."""
    talk = Conversation().human("Begin.").uses("converse", "talked").uses("ask_question", "Port 8123, please.")
    left = summarize(work(12, talk=talk), SummarizeBatches(exclude_tools=("deploy",)))
    assert tools(left) == ["ask_question"]


@pytest.mark.parametrize("how", ["option", "environment", "file"])
def test_an_empty_list_excludes_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, how: str) -> None:
    talk = work(12, talk=Conversation().human("Begin.").uses("ask_question", "Port 8123, please.", question=ASKED))
    assert tools(summarize(talk)) == ["ask_question"]
    if how == "environment":
        monkeypatch.setenv("THRESHER_BATCH_SUMMARY_EXCLUDE_TOOLS", "none")
    if how == "file":
        (tmp_path / "thresher.toml").write_text("[policies.batch-summary]\nexclude_tools = []\n")
        monkeypatch.chdir(tmp_path)
    left = summarize(talk, SummarizeBatches(exclude_tools=()) if how == "option" else "batch-summary")
    assert tools(left) == []


def test_an_exclusion_applies_to_every_call_of_the_tool() -> None:
    talk = Conversation().human("Begin.")
    for number in range(4):
        talk.uses("deploy", f"deployed {number}").uses("build", "built")
    left = summarize(work(12, talk=talk), SummarizeBatches(exclude_tools=("deploy",)))
    assert results(left) == [f"deployed {number}" for number in range(4)]


def test_small_calls_can_be_excluded_by_their_size() -> None:
    talk = Conversation().human("Begin.").uses("build", "ok")
    left, plan = fit_and_plan(work(12, talk=talk), policy=[SummarizeBatches(min_tokens=150)])
    assert tools(left) == ["build"]
    assert plan.notes == ("batch-summary excluded 1 call: build 1 (small)",)


KEEP = {"thresher": {"keep": True}}


@pytest.mark.parametrize("where", ["tool", "message", "call", "result", "text", "argument"])
def test_a_tool_a_message_or_a_call_can_mark_itself_to_stay(where: str) -> None:
    mark: dict[str, Any] = {"note": "[keep] the port"} if where == "argument" else {}
    says = "[keep] We need this." if where == "text" else ""
    talk = Conversation().human("Begin.").uses("lookup", text_of("port", 10), says=says, **mark)
    asked, answered = talk.messages[1:3]
    asked |= KEEP if where == "message" else {}
    asked["content"][-1] |= KEEP if where == "call" else {}
    answered["content"][0] |= KEEP if where == "result" else {}
    tool = {"name": "lookup", "input_schema": {"type": "object"}} | (KEEP if where == "tool" else {})
    body = {"tools": [tool], "messages": work(12, talk=talk).messages}
    left = th.fit(body, policy="batch-summary", store=InMemoryContentStore())
    assert tools(left["messages"]) == ["lookup"]
    assert has(left, text_of("port", 10))


@pytest.mark.parametrize(
    "call",
    [
        '<tool>{{"server_name": "local", "tool_name": "{tool}", "arguments": {{"question": "Which port?"}}}}</tool>',
        "<tool><tool_name>{tool}</tool_name><arguments><question>Which port?</question></arguments></tool>",
    ],
    ids=["JSON", "XML"],
)
def test_the_names_of_calls_that_are_written_as_text_are_found(call: str) -> None:
    talk = Conversation().human("Begin.")
    for number in range(12):
        tool = "ask_question" if number == 3 else "read_file"
        talk.agent(call.format(tool=tool)).human(f"Tool '{tool}' result:\n{text_of(f'result{number}', 8)}")
    left = summarize(talk.agent("Done.").chat(12))
    assert [has(left, text_of(f"result{number}", 8)) for number in range(12)] == [n == 3 for n in range(12)]


# When.


def test_the_defaults() -> None:
    policy = SummarizeBatches()
    assert (policy.older_than, policy.min_calls, policy.max_distance) == (20, 10, 40)


@pytest.mark.parametrize(
    ("calls", "later", "summarized"),
    [
        (12, 20, True),  # there are enough old calls
        (6, 44, True),  # there are few, but the oldest is very old
        (5, 22, False),  # neither
        (12, 0, False),  # there are enough calls, but only two are old
        (0, 60, False),
    ],
)
def test_a_batch_waits_for_enough_old_calls_or_for_a_very_old_one(calls: int, later: int, summarized: bool) -> None:
    assert bool(summaries(summarize(work(calls, later=later)))) is summarized


@pytest.mark.parametrize(
    ("name", "value"),
    [("OLDER_THAN", "21"), ("MIN_CALLS", "11"), ("EXCLUDE_TOOLS", "read_file"), ("MIN_TOKENS", "9000")],
)
def test_every_threshold_has_an_environment_variable(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    talk = work(17, later=4)  # ten calls are old enough, none is very old
    assert summaries(summarize(talk))
    monkeypatch.setenv(f"THRESHER_BATCH_SUMMARY_{name}", value)
    assert summarize(talk) == talk.messages


def test_recent_messages_stay_word_for_word() -> None:
    """A result is as old as its call."""
    talk = work(20, later=6)
    left = summarize(talk)
    assert left[-19:] == talk.messages[-19:]
    assert len(left) == 21


def test_excluded_calls_do_not_count_towards_a_batch() -> None:
    questions = Conversation().human("Begin.")
    for number in range(9):
        questions.uses("ask_question", f"Answer {number}.", question=ASKED)
    assert summarize(work(8, talk=questions, later=22)) == questions.messages  # 17 old calls, but 8 to summarize
    assert summaries(summarize(work(10, later=18)))
    only_questions = Conversation().human("Begin.")
    for number in range(60):
        only_questions.uses("ask_question", f"Answer {number}.", question=ASKED)
    assert summarize(only_questions.chat(30)) == only_questions.messages


def test_a_run_that_finds_nothing_to_do_changes_nothing_and_a_second_run_neither() -> None:
    once = summarize(work(12), store=(store := InMemoryContentStore()))
    assert summarize(once, store=store) == once


@pytest.mark.parametrize("lines", [0, 1, 2, 5])
def test_a_summary_always_saves_tokens(lines: int) -> None:
    """A call that is smaller than its summary stays: no run makes a conversation longer."""
    talk = Conversation().human("Begin.").uses("a", text_of("b", lines)).agent("Done.").chat(12)
    messages = th.emit(th.parse(talk.messages), "openai-chat")
    options: dict[str, Any] = {"model": "gpt-5", "dialect": "openai-chat", "store": InMemoryContentStore()}
    left = th.fit(messages, policy=SummarizeBatches(min_calls=1), **options)
    assert left == messages or th.count(left, model="gpt-5") < th.count(messages, model="gpt-5")
    assert (left == messages) is (lines < 2)


@pytest.mark.parametrize("fullness", [0.8, 1.0, 2.0])
def test_a_budget_alone_summarizes_nothing_that_fits(fullness: float) -> None:
    talk = work(30, later=30)
    left = fit(talk, budget=int(th.count(talk.messages) / fullness))
    assert (left == talk.messages) is (fullness <= 1)


# What a summary is.


def test_one_summary_takes_the_place_of_the_first_call_and_all_other_words_stay_in_order() -> None:
    talk = Conversation().human("Begin.").agent("I look at the files first.")
    left = summarize(work(12, talk=talk))
    before, summary, after = said(left, "assistant")[0], said(left, "assistant")[1], said(left, "assistant")[2:]
    assert before == "I look at the files first."
    assert summary.startswith("[thresher")
    assert after == said(talk.messages, "assistant")[1:]
    assert said(left, "user") == said(talk.messages, "user")


def test_words_of_the_agent_between_the_calls_stay() -> None:
    talk = Conversation().human("Begin.")
    for number in range(12):
        talk.uses("read_file", text_of("result", 12), says=f"I read file {number} next.")
    left = summarize(talk.agent("Done.").chat(12))
    assert [text for text in said(left, "assistant") if text.startswith("I read")] == [
        f"I read file {number} next." for number in range(12)
    ]


def test_no_summary_covers_a_prompt_of_the_person() -> None:
    talk = work(6, later=0).human("And the tests?")
    left = summarize(work(6, talk=talk))
    assert said(left, "user") == said(talk.messages, "user")
    places = [number for number, row in enumerate(left) if has(row, "calls summarized")]
    prompt = next(number for number, row in enumerate(left) if row["content"] == "And the tests?")
    assert places[0] < prompt < places[1]


def test_system_text_stays() -> None:
    body = {"system": "Be brief.", "messages": work(12).messages}
    assert th.fit(body, policy="batch-summary", store=InMemoryContentStore())["system"] == "Be brief."


def test_a_summary_says_what_each_call_did_and_what_failed() -> None:
    talk = Conversation().human("Begin.").uses("Bash", f"Exit code 2\n{text_of('log', 10)}", command="make lexer")
    (summary,) = summaries(summarize(work(12, talk=talk)))
    assert [f"file{number}.py" in summary for number in range(12)] == [True] * 12
    (line,) = (line for line in summary.splitlines() if "make lexer" in line)
    assert re.search("fail|exit|error", line, re.IGNORECASE)


def test_every_summarized_call_can_be_restored() -> None:
    store = InMemoryContentStore()
    talk = work(12)
    (summary,) = summaries(summarize(talk, store=store))
    (part_id,) = re.findall(r"t1:[0-9a-f]{16}", summary.splitlines()[0])
    text = th.restore(part_id, store=store)
    assert [result in text for result in results(talk.messages)] == [True] * 12


def test_earlier_summaries_stay_word_for_word_in_later_runs() -> None:
    store, talk, earlier = InMemoryContentStore(), Conversation().human("Begin."), ""
    messages: list[Row] = talk.messages
    for _ in range(3):
        talk = Conversation()
        talk.messages, talk._calls = list(messages), len(messages)
        messages = summarize(work(12, talk=talk), store=store)
        found = summaries(messages)
        assert earlier in found or not earlier
        earlier = found[0]
    assert len(found) == 3
    assert not any("t1:" in summary.partition("\n")[2] for summary in found)  # none summarizes another


def test_thinking_goes_with_the_calls_that_it_led_to() -> None:
    talk = work(12)
    for row in talk.messages:
        if row["role"] == "assistant" and has(row, "tool_use"):
            row["content"].insert(0, {"type": "thinking", "thinking": "Let me read it.", "signature": "c2lnbmVk"})
    left = summarize(talk)
    assert not has(left, "c2lnbmVk")
    assert len(summaries(left)) == 1


def test_summaries_save_at_least_forty_percent_of_a_session_with_mixed_tools() -> None:
    talk = Conversation().human("Begin.").uses("ask_question", "Port 8123, please.", question=ASKED)
    for tool in ("read_file", "execute_command", "search_files", "apply_diff"):
        work(5, tool, talk=talk, later=4)
    talk.uses("task_completion", "ok", result="The server runs on port 8123.").chat(12, lines=8)
    left = summarize(talk)
    assert th.count(left) <= 0.6 * th.count(talk.messages)
    assert tools(left) == ["ask_question", "task_completion"]


@pytest.mark.parametrize(("size", "number"), [(0, 1), (5, 3)])
def test_the_calls_in_one_summary_can_be_limited(size: int, number: int) -> None:
    left = summarize(work(12), SummarizeBatches(max_calls_per_summary=size))
    assert len(summaries(left)) == number


# Reports.


def test_a_plan_names_the_tools_that_were_excluded() -> None:
    talk = Conversation().human("Begin.").uses("deploy", "deployed").uses("ask_question", "Port 8123, please.")
    _, plan = fit_and_plan(work(12, talk=talk), policy=[SummarizeBatches(exclude_tools=("deploy",))])
    assert plan.notes == ("batch-summary excluded 2 calls: ask_question 1, deploy 1",)


def window_events(**options: Any) -> tuple[list[th.WindowEvent], list[Row], Conversation]:
    """Fit a session with a question into a window that replans at once."""
    talk = Conversation().human("Begin.").uses("ask_question", "Port 8123, please.", question=ASKED)
    work(14, talk=talk).human("Go on.")
    eager = Thresholds(keep_calls=1, min_saving=50, patience=0, min_expected_calls=50)
    events: list[th.WindowEvent] = []
    store = InMemoryContentStore()
    window = th.Window(
        "batch-summary", budget=100_000, store=store, thresholds=eager, prices=Prices(minimum=1),
        on_event=events.append, **options,
    )  # fmt: skip
    return events, window.fit(talk.messages, at=0), talk


def test_an_event_tells_what_a_summary_saved_and_which_tools_were_excluded() -> None:
    (event,), request, talk = window_events()
    assert event.edits == {"summarize": 1}
    assert event.tokens_before == th.count(talk.messages)
    assert event.tokens_after == th.count(request)
    assert event.notes == ("batch-summary excluded 1 call: ask_question 1",)


class Writer:
    """A summarizer that returns a fixed text and the number of calls, or fails."""

    name = "writer"

    def __init__(self, text: str) -> None:
        self.text = text

    def __call__(self, history: History, members: Sequence[Place], *, limit: int) -> str:
        if not self.text:
            raise th.SummaryError("the model does not answer")
        calls = sum(isinstance(history.part(place), th.ToolCall) for place in members)
        return f"{self.text} ({calls} calls)"[:limit]


def test_a_model_may_write_the_summary() -> None:
    _, request, _ = window_events(summarizer=Writer("All files use tabs."), summaries="blocking")
    (summary,) = summaries(request)
    assert "All files use tabs. (14 calls)" in summary


def test_a_model_that_fails_does_not_stop_the_agent() -> None:
    """The request goes out with the summary that needs no model, and an event reports the failure."""
    events, request, talk = window_events(summarizer=Writer(""), summaries="blocking")
    assert ["the model does not answer" in event.reason for event in events if event.trigger == "helper"] == [True]
    assert said(request, "user") == said(talk.messages, "user")
    assert th.check(request, "anthropic") == ()


def test_exclusions_cost_no_more_than_a_constant_per_call() -> None:
    def steps(calls: int, tools: tuple[str, ...]) -> int:
        history = th.parse(json.loads(json.dumps(work(calls).messages)))
        policy = SummarizeBatches(exclude_tools=tools)
        return count_steps(lambda: policy.count_excluded(history))

    few, many = (steps(calls, ("deploy", "x*", "read_file")) for calls in (50, 200))
    assert many < 5 * few
