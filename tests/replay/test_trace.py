"""Which call sees which text, and in what form."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from msgspec import structs
from small_traces import agent, call, did, result, trace, user

import thresher as th
from thresher.model import History, Image, Message, Session, Summary, Text, Thinking, ToolCall
from thresher.replay import list_request_texts, trace_history, trace_session
from thresher.replay.trace import argument_values, strip_line_numbers
from thresher.samples import write_samples


def test_call_sees_the_text_before_it_and_the_next_call_its_output() -> None:
    of = trace(user("go"), did("1", "Read", "text", path="a"), agent("so"), user("on"), agent("end"))
    assert [call.stop for call in of.calls] == [1, 3, 5]
    assert [(block.kind, block.visible) for block in of.blocks] == [
        ("U", 0), ("C", 1), ("R", 1), ("A", 2), ("U", 2), ("A", 3),
    ]  # fmt: skip


def test_every_request_consists_of_its_visible_blocks() -> None:
    of = trace(user("go"), did("1", "Read", "x", path="a"), did("2", "Bash", "y", command="b"), agent("end"))
    for number, one in enumerate(of.calls):
        seen = [block.text for block in of.blocks if block.visible <= number]
        assert list_request_texts(of.history.messages[: one.stop]) == seen


def test_call_time_is_the_time_of_the_response() -> None:
    time = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    timed = [structs.replace(message, time=time) for message in agent("one")]
    assert [one.time for one in trace(user("a"), timed, user("b"), agent("two")).calls] == [time.timestamp(), None]


def test_thinking_images_and_blank_text_in_blocks() -> None:
    of = trace(user(" \n"), agent(Thinking("hm"), Image("image/png", "AAAA"), "so"), agent(Thinking("", "c2ln")))
    assert [(block.kind, block.text) for block in of.blocks] == [("K", "hm"), ("A", "so")]


def test_harness_text_in_an_assistant_message_is_no_call() -> None:
    error = [Message("assistant", (Text("API Error: overloaded"),), author="harness")]
    of = trace(user("go"), error, user("again"), agent("done"))
    assert len(of.calls) == 1
    assert [block.kind for block in of.blocks] == ["U", "U", "U", "A"]


def test_text_carried_over_a_compaction_is_visible_to_all_calls() -> None:
    carried = [structs.replace(message, carried=True) for message in did("1", "Read", "text", path="a")]
    summary = [Message("user", (Summary("Earlier: all of it."),), author="harness")]
    of = trace(summary, carried, user("go"), agent("done"))
    assert len(of.calls) == 1
    assert [(block.kind, block.visible) for block in of.blocks] == [("U", 0), ("C", 0), ("R", 0), ("U", 0), ("A", 1)]


def test_each_segment_and_sub_agent_with_calls_has_a_trace() -> None:
    spoken, silent = (History(tuple(messages)) for messages in ([*user("a"), *agent("b")], user("c")))
    child = Session("x", "inner", "f.jsonl", segments=(spoken,))
    session = Session("x", "outer", "/home/f.jsonl", segments=(spoken, silent, spoken), children=(child,))
    assert [one.name for one in trace_session(session)] == ["f.jsonl#outer/1", "f.jsonl#outer/3", "f.jsonl#inner/1"]


@pytest.mark.parametrize(
    ("text", "without"),
    [
        ("     1→package main\n     2→\n    10→\tfunc()", "package main\n\n\tfunc()"),
        ("   7→one line", "one line"),
        ("     1\timport os\n     2\t\n     3\tos.walk()", "import os\n\nos.walk()"),
        ("12\t3\ta.go\n7\t0\tb.go", "12\t3\ta.go\n7\t0\tb.go"),
        ("see 5→6 here", "see 5→6 here"),
        ("before\n8\tx\n9\ty\nafter", "before\nx\ny\nafter"),
        ("1: import os\n2: \n3: os.walk()", "import os\n\nos.walk()"),
        ("00007| one\n00008| two", "one\ntwo"),
        ("4: found here\n19: and here", "4: found here\n19: and here"),
        ("99999999999999999999\ta", "99999999999999999999\ta"),
    ],
)
def test_line_numbers_of_tools_are_removed_and_those_of_tables_kept(text: str, without: str) -> None:
    assert strip_line_numbers(text) == without
    assert [block.text for block in trace(agent(call("Read")), result(text)).blocks if block.kind == "R"] == [without]


@pytest.mark.parametrize(
    ("arguments", "values"),
    [
        ('{"a": "x\\ny", "b": [{"c": "\\u00e9"}, 4711], "d": true, "e": null}', ["x\ny", "é", "4711"]),
        ("*** Begin Patch\n", ["*** Begin Patch\n"]),
        ("{}", []),
        ('{"a": ', ['{"a": ']),
        ("[" * 100_000, ["[" * 100_000]),
    ],
)
def test_argument_values_have_no_escapes(arguments: str, values: list[str]) -> None:
    assert argument_values(arguments) == values
    of = trace_history(History(tuple(agent(ToolCall("1", "Tool", arguments)))))
    assert of.blocks[0].text == "\n".join(["Tool", *values])


def test_samples_of_all_agents_have_traces(tmp_path: Path) -> None:
    for file in write_samples(tmp_path):
        if file.name.startswith("agent-") or not file.name.endswith((".jsonl", ".traj.json", ".zst")):
            continue
        for session in th.read_all(file):
            found = trace_session(session)
            assert found
            for one in found:
                shown = [block.visible for block in one.blocks]
                assert shown == sorted(shown)
                assert max(shown) <= len(one.calls)
