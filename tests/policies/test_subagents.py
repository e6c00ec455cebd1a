"""The policy `subagents`: finished sub-agents are removed with their messages; running ones stay."""

import json
from pathlib import Path

import pytest
from hypothesis import given

import thresher as th
from strategies import histories
from thresher.edits import apply, build_plan, find_verified_placeholders
from thresher.model import History, Message, Text, ToolCall, ToolResult
from thresher.policies.subagents import DropSubagents
from thresher.tokens import default_token_weights

SCALE = default_token_weights(counter="estimate")
ANSWER = "I looked at every file.\n" * 40 + "agentId: a930d5c (for resuming)\n<usage>total_tokens: 79312</usage>"
NOTHING = "API Error: 500\nagentId: a668c02 (for resuming)\n<usage>total_tokens: 0\ntool_uses: 0</usage>"
LAUNCHED = "Async agent launched successfully.\nagentId: a2ffcc6 (internal ID)\nThe agent works in the background."
NOTICE = (
    "<task-notification>\n<task-id>a2ffcc6</task-id>\n<tool-use-id>toolu_9</tool-use-id>\n"
    "<status>completed</status>\n<result>All is well.</result>\n</task-notification>"
)
TASK = {"description": "look around", "prompt": "Look at every file and tell what you see. " * 20}


def chain(call_id: str, name: str, arguments: dict[str, object], text: str, *, is_error: bool = False) -> list[Message]:
    return [
        Message("assistant", (ToolCall(call_id, name, json.dumps(arguments)),), author="model"),
        Message("tool", (ToolResult(call_id, (Text(text),), is_error),), author="tool"),
    ]


def notice(text: str) -> Message:
    return Message("user", (Text(text),), author="harness")


def talk(*middle: Message) -> History:
    first, last = Message("user", (Text("go"),)), Message("user", (Text("thanks"),))
    return History((first, *middle, Message("assistant", (Text("done"),), author="model"), last))


def after(policy: DropSubagents, history: History) -> History:
    return apply(history, build_plan(history, policy(history), SCALE))


def calls(history: History) -> list[str]:
    return [call.id for message in history for call in message.calls]


BASH = chain("b1", "Bash", {"command": "ls"}, "a.py")


@pytest.mark.parametrize("name", ["Task", "Agent", "spawn_agent", "task"])
@pytest.mark.parametrize(
    ("text", "is_error"),
    [
        (ANSWER, False),
        (NOTHING, False),
        ("[Request interrupted by user]", True),
        ("", False),
        ("The agent failed", True),
    ],
)
def test_every_finished_sub_agent_is_removed(name: str, text: str, is_error: bool) -> None:
    history = talk(*chain("t1", name, dict(TASK), text, is_error=is_error), *BASH)
    assert calls(after(DropSubagents(), history)) == ["b1"]


def test_text_and_other_calls_beside_a_sub_agent_stay() -> None:
    both = (Text("two things"), ToolCall("t1", "Task", json.dumps(TASK)), ToolCall("b1", "Bash", '{"command": "ls"}'))
    answers = (ToolResult("b1", (Text("a.py"),)), ToolResult("t1", (Text(ANSWER),)))
    smaller = after(
        DropSubagents(), talk(Message("assistant", both, author="model"), Message("tool", answers, author="tool"))
    )
    assert smaller[1].parts == (both[0], both[2])
    assert smaller[2].parts == (answers[0],)


def test_an_unanswered_sub_agent_is_removed() -> None:
    lonely = chain("t1", "Task", dict(TASK), "")[:1]
    assert calls(after(DropSubagents(), talk(*lonely, *BASH))) == ["b1"]


def test_plan_tasks_are_not_sub_agents() -> None:
    history = talk(*chain("p1", "TaskCreate", {"subject": "write tests"}, "Task #1 created"))
    assert list(DropSubagents()(history)) == []


def test_an_open_sub_agent_stays() -> None:
    history = History((Message("user", (Text("go"),)), *chain("t1", "Task", dict(TASK), ANSWER)))
    assert list(DropSubagents()(history)) == []


POLL = chain("o1", "TaskOutput", {"task_id": "a2ffcc6", "block": True}, "<status>completed</status>\nAll is well.")
WAIT = chain("o2", "TaskOutput", {"task_id": "a2ffcc6"}, "<status>running</status>")
PEEK = chain("r1", "Read", {"file_path": "/tmp/tasks/a2ffcc6.output"}, "All is")
OTHER = chain("o3", "TaskOutput", {"task_id": "b7edd99"}, "<status>completed</status>")
START = chain("toolu_9", "Task", {**TASK, "run_in_background": True}, LAUNCHED)


def test_a_background_agent_is_removed_with_its_messages() -> None:
    history = talk(*START, *WAIT, *PEEK, *BASH, *OTHER, notice(NOTICE), *POLL)
    smaller = after(DropSubagents(), history)
    assert calls(smaller) == ["b1", "o3"]
    assert "a2ffcc6" not in str([message.parts for message in smaller])


def test_a_background_agent_that_has_not_reported_stays() -> None:
    history = talk(*START, *WAIT, *PEEK, *BASH)
    assert list(DropSubagents()(history)) == []


@pytest.mark.parametrize("report", [POLL, [notice(NOTICE)]])
def test_any_kind_of_report_counts(report: list[Message]) -> None:
    assert calls(after(DropSubagents(), talk(*START, *report, *BASH))) == ["b1"]


def test_codex_agents_are_identified_by_their_id() -> None:
    agent = "019ab-7c3f-42"
    history = talk(
        *chain("c1", "spawn_agent", {"message": "look"}, json.dumps({"agent_id": agent})),
        *chain(
            "c2", "wait", {"ids": [agent]}, json.dumps({"status": {agent: {"completed": "ok"}}, "timed_out": False})
        ),
        notice(f'<subagent_notification>\n{{"agent_id": "{agent}", "status": "done"}}\n</subagent_notification>'),
        *BASH,
    )
    smaller = after(DropSubagents(), history)
    assert calls(smaller) == ["b1"]
    assert agent not in str([message.parts for message in smaller])


def test_human_text_next_to_a_notification_stays() -> None:
    mixed = Message("user", (Text(f"{NOTICE}\nand what about a2ffcc6?"),))
    smaller = after(DropSubagents(), talk(*START, mixed))
    assert "\nand what about a2ffcc6?" in [message.text for message in smaller]


def test_calls_stay_with_calls_off() -> None:
    history = talk(*chain("t1", "Task", dict(TASK), ANSWER), *START, notice(NOTICE))
    smaller = after(DropSubagents(calls=False), history)
    assert calls(smaller) == ["t1", "toolu_9"]
    assert next(smaller[1].calls) == next(history[1].calls)
    assert next(smaller[2].results).text.startswith("[thresher ")
    assert "task-notification" not in str([message.parts for message in smaller])


def test_results_stay_with_responses_off() -> None:
    history = talk(*chain("t1", "Task", dict(TASK), ANSWER), notice(NOTICE))
    smaller = after(DropSubagents(responses=False), history)
    assert "removed" in json.loads(next(smaller[1].calls).arguments)
    assert next(smaller[2].results).text == ANSWER
    assert smaller[3].text == NOTICE


def test_without_calls_and_responses_nothing_changes() -> None:
    history = talk(*chain("t1", "Task", dict(TASK), ANSWER))
    assert list(DropSubagents(calls=False, responses=False)(history)) == []


@pytest.mark.parametrize(
    ("text", "is_error", "left"),
    [
        (NOTHING, False, ["t1"]),
        ("no", True, ["t1"]),
        ("[Request interrupted by user]", False, ["t1"]),
        (ANSWER, False, []),
    ],
)
def test_failed_sub_agents_stay_on_request(text: str, is_error: bool, left: list[str]) -> None:
    history = talk(*chain("t1", "Task", dict(TASK), text, is_error=is_error))
    assert calls(after(DropSubagents(keep_failed=True), history)) == left


POLICIES = (
    DropSubagents(),
    DropSubagents(calls=False),
    DropSubagents(responses=False),
    DropSubagents(keep_failed=True),
)


@given(histories)
def test_a_second_run_changes_nothing(history: History) -> None:
    for policy in POLICIES:
        once = after(policy, history)
        stand_ins = find_verified_placeholders(once, set)
        assert apply(once, build_plan(once, policy(once), SCALE, placeholders=stand_ins)) == once


METRICS = {"totalDurationMs": 22310, "totalTokens": 34580, "totalToolUseCount": 2, "usage": {"input_tokens": 8}}


@pytest.mark.parametrize(
    ("note", "is_removed"),
    [
        (METRICS, True),
        (METRICS | {"totalTokens": 0, "totalToolUseCount": 0}, True),  # interrupted
        ({"totalDurationMs": 22310}, False),
        ("Read a.py", False),
    ],
)
def test_a_report_without_its_call_is_recognized_by_its_metrics(tmp_path: Path, note: object, is_removed: bool) -> None:
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": ANSWER}
    rows: list[dict[str, object]] = [
        {"type": "user", "message": {"role": "user", "content": "go on"}},
        {"type": "user", "message": {"role": "user", "content": [result]}, "toolUseResult": note},
        {"type": "assistant", "message": {"role": "assistant", "id": "m", "content": [{"type": "text", "text": "ok"}]}},
        {"type": "user", "message": {"role": "user", "content": "and now?"}},
    ]
    ids = {"sessionId": "11111111-1111-4111-8111-111111111111", "timestamp": "2025-08-01T10:00:00Z", "cwd": "/p"}
    lines = [json.dumps(row | ids | {"uuid": f"u{n}", "parentUuid": f"u{n - 1}"}) for n, row in enumerate(rows, 1)]
    file = tmp_path / "11111111-1111-4111-8111-111111111111.jsonl"
    file.write_text("\n".join(lines), "utf-8")
    history = th.read(file).history
    for policy, gone in (
        ("minimal", is_removed),
        (DropSubagents(), is_removed),
        (DropSubagents(responses=False), False),
    ):
        fitted = th.fit(history, policy=policy)
        assert any("looked at every file" in str(message) for message in fitted) is not gone
        assert [message.text for message in fitted if message.author == "human"] == ["go on", "and now?"]
