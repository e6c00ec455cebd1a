"""Tests of the `openhands` format: evaluation outputs, event folders, branches and malformed files."""

import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import recordings
import thresher as th
from thresher.model import Image, Summary, Text, Thinking, ToolResult, Usage
from thresher.model.tool_calls import describe_tool_call
from thresher.transcripts import discover
from thresher.transcripts.openhands.reader import FORMAT

Json = dict[str, Any]


def action(id_: int, name: str, source: str = "agent", **fields: Any) -> Json:
    args = fields.pop("args", {})
    return (
        {"id": id_, "timestamp": f"2026-01-02T09:00:{id_ % 60:02}", "source": source, "action": name}
        | fields
        | {"args": args}
    )


def observed(id_: int, name: str, cause: int | None, content: str = "", **fields: Any) -> Json:
    found = {"id": id_, "source": "agent", "observation": name, "content": content, "extras": {}} | fields
    return found if cause is None else found | {"cause": cause}


def asked(id_: int, content: str, source: str = "user", **args: Any) -> Json:
    return action(id_, "message", source, args={"content": content} | args)


def ran(id_: int, command: str = "ls", **fields: Any) -> Json:
    return action(id_, "run", args={"command": command, "thought": "", "hidden": False}, **fields)


def event(id_: str, kind: str, source: str = "agent", **fields: Any) -> Json:
    return {"id": id_, "timestamp": "2026-08-02T09:00:00", "source": source, "kind": kind} | fields


def words(text: str) -> list[Json]:
    return [{"type": "text", "text": text, "cache_prompt": False}]


def said(id_: str, text: str, source: str = "user", **fields: Any) -> Json:
    role = "assistant" if source == "agent" else "user"
    return event(id_, "MessageEvent", source, llm_message={"role": role, "content": words(text)}, **fields)


def called(id_: str, response: str = "", tool: str = "terminal", **fields: Any) -> Json:
    call = {"id": f"call-of-{id_}", "name": tool, "arguments": json.dumps(fields.pop("args", {"command": "ls"}))}
    default: Json = {"tool_name": tool, "tool_call_id": call["id"], "tool_call": call, "llm_response_id": response}
    return event(id_, "ActionEvent", thought=fields.pop("thought", []), **default | fields)


def gave(id_: str, of: str, text: str = "done", **observation: Any) -> Json:
    full = {"content": words(text), "is_error": False} | observation
    return event(id_, "ObservationEvent", "environment", tool_call_id=f"call-of-{of}", action_id=of, observation=full)


def read(folder: Path, document: Any, name: str = "export.json") -> th.Session:
    path = folder / name
    path.write_text(json.dumps(document))
    assert th.sniff(path) == "openhands"
    session = th.read(path)
    assert isinstance(session, th.Session)
    return session


def store(folder: Path, events: list[Any], **state: Any) -> Path:
    """Write a conversation of the SDK to a folder."""
    (folder / "events").mkdir(parents=True)
    base = {"id": "conv-1", "agent": {"llm": {"model": "m"}}, "workspace": {"working_dir": "/w"}} | state
    (folder / "base_state.json").write_text(json.dumps(base))
    for number, one in enumerate(events):
        name = one["id"] if isinstance(one, dict) else "odd"
        (folder / "events" / f"event-{number:05}-{name}.json").write_text(
            one if isinstance(one, str) else json.dumps(one)
        )
    return folder / "base_state.json"


def shape(session: th.Session) -> list[tuple[str, str]]:
    return [(one.role, one.text) for one in session.history]


def results(session: th.Session) -> Iterator[ToolResult]:
    return (result for one in session.messages() for result in one.results)


def problem_texts(session: th.Session) -> list[str]:
    return [problem.what for problem in session.problems]


# Until 0.62


def test_each_line_of_an_evaluation_is_a_session(tmp_path: Path) -> None:
    rows = [
        {
            "instance_id": "repo-1",
            "history": [asked(1, "Fix <pr_description>\nhalf is wrong\n</pr_description>"), ran(2)],
        },
        {"question_id": 7, "history": [[asked(1, "Say hi."), {"observation": "null", "content": ""}]]},
        {"instance_id": "repo-3", "history": []},
    ]
    path = tmp_path / "output.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows) + '{"torn": [')
    assert th.sniff(path) == "openhands"
    first, second = th.read_all(path)
    assert (first.id, first.title, len(first.history)) == ("repo-1", "half is wrong", 2)
    assert (second.id, shape(second)) == ("output-2", [("user", "Say hi.")])
    assert [one.source.line for one in second.history if one.source] == [2]
    assert [(problem.line, problem.done) for problem in first.problems] == [(3, "skipped"), (4, "skipped")]
    assert second.problems == ()


def test_a_repeated_task_is_a_separate_session(tmp_path: Path) -> None:
    path = tmp_path / "output.jsonl"
    row = {"instance_id": "repo-1", "history": [asked(1, "Fix it."), ran(2)]}
    path.write_text(json.dumps(row) + "\n" + json.dumps(row) + "\n")
    assert [one.id for one in th.read_all(path)] == ["repo-1", "repo-1-2"]


def test_a_document_with_a_history_or_a_trajectory_is_one_session(tmp_path: Path) -> None:
    for key in ("history", "trajectory"):
        session = read(tmp_path, {key: [asked(1, "Hi."), asked(2, "Hello.", "agent")], "instance_id": "a"})
        assert shape(session) == [("user", "Hi."), ("assistant", "Hello.")]
        assert [one.source.line for one in session.history if one.source] == [1, 2]


def test_lines_can_be_events(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in (said("a", "Hi."), {"kind": "Hologram"}, called("b"))))
    assert th.sniff(path) == "openhands"
    [session] = th.read_all(path)
    assert (session.id, session.records) == ("run", {"MessageEvent": 1, "Hologram": 1, "ActionEvent": 1})


def test_the_oldest_events_are_flat_and_have_no_ids(tmp_path: Path) -> None:
    flat = [
        {"action": "message", "content": "Add a licence.", "wait_for_response": False},
        {"action": "run", "command": "touch LICENSE", "thought": "I create it.", "is_confirmed": "confirmed"},
        {"observation": "run", "content": "", "command": "touch LICENSE", "exit_code": 0, "command_id": -1},
        {"action": "run_ipython", "code": "1/0", "thought": "", "kernel_init_code": "from agentskills import *"},
        {"observation": "run_ipython", "content": "ZeroDivisionError", "code": "1/0"},
        {"action": "message", "content": "Which one?", "wait_for_response": True},
        {"action": "finish", "outputs": {}, "thought": "Done."},
    ]
    session = read(tmp_path, {"history": flat})
    assert [one.role for one in session.history] == ["user", *["assistant", "tool"] * 2, "assistant", "assistant"]
    calls = [(call.name, call.arguments) for one in session.history for call in one.calls]
    assert calls == [
        ("run", '{"command":"touch LICENSE"}'),
        ("run_ipython", '{"code":"1/0"}'),
        ("finish", '{"outputs":{}}'),
    ]
    assert session.history[1].text == "I create it."
    assert session.history.orphans == ()


def test_calls_of_one_response_are_one_message_with_one_usage(tmp_path: Path) -> None:
    def made(id_: str) -> Json:
        calls = [{"id": n, "function": {"name": "execute_bash", "arguments": f'{{"command": "{n}"}}'}} for n in "ab"]
        message = {"content": "Both.", "tool_calls": calls, "thinking_blocks": [{"thinking": "Hm.", "signature": "s"}]}
        response = {"id": "r", "model": "m", "choices": [{"message": message}], "usage": {"prompt_tokens": 9}}
        return {"function_name": "execute_bash", "tool_call_id": id_, "model_response": response}

    session = read(
        tmp_path,
        [
            asked(1, "Go."),
            ran(2, tool_call_metadata=made("a")),
            observed(3, "run", 2, "one", tool_call_metadata=made("a")),
            asked(4, "Wait!"),
            ran(5, tool_call_metadata=made("b")),
            observed(6, "run", 5, "two"),
        ],
    )
    assert [one.role for one in session.history] == ["user", "assistant", "tool", "tool", "user"]
    answer = session.history[1]
    assert answer.parts[:2] == (Thinking("Hm.", "s"), Text("Both."))
    assert [call.arguments for call in answer.calls] == ['{"command": "a"}', '{"command": "b"}']
    assert (answer.model, answer.usage) == ("m", Usage(9))
    assert [(result.call_id, result.text) for result in results(session)] == [("a", "one"), ("b", "two")]


def test_usage_can_be_stored_outside_the_events(tmp_path: Path) -> None:
    usage = {
        "response_id": "r",
        "prompt_tokens": 100,
        "completion_tokens": 7,
        "cache_read_tokens": 60,
        "cache_write_tokens": 30,
    }
    response = {"tool_call_id": "a", "function_name": "f", "model_response": {"id": "r"}}
    row = {"history": [asked(1, "Go."), ran(2, tool_call_metadata=response)], "metrics": {"token_usages": [usage, 3]}}
    session = read(tmp_path, row | {"metadata": {"llm_config": {"model": "given"}}})
    assert (session.history[1].usage, session.history[1].model) == (Usage(10, 7, 60, 30), "given")


def test_a_users_command_is_not_a_call(tmp_path: Path) -> None:
    session = read(
        tmp_path,
        [
            action(1, "run", "user", args={"command": "make"}),
            observed(2, "run", 1, "built", extras={"metadata": {"exit_code": 0}}),
            observed(3, "error", None, "The model is not there."),
            asked(4, "Please continue working on the task on whatever approach you think is suitable.\nGo."),
            asked(5, "Careful.", "environment"),
        ],
    )
    assert [(one.author, one.text) for one in session.history][:3] == [
        ("human", "$ make"),
        ("tool", "built"),
        ("harness", "The model is not there."),
    ]
    assert [one.author for one in session.history][3:] == ["harness", "harness"]


@pytest.mark.parametrize(("code", "failed"), [(0, False), (1, True), (-1, False), (None, False)])
def test_a_running_command_has_not_failed(tmp_path: Path, code: int | None, failed: bool) -> None:
    extras = {"metadata": {"exit_code": code, "prefix": "[", "suffix": "]"}}
    session = read(tmp_path, [asked(0, "Go."), ran(1), observed(2, "run", 1, "out", extras=extras)])
    [result] = results(session)
    assert (result.text, result.is_error) == ("[out]", failed)


def test_forgotten_events_are_missing_from_the_next_segment(tmp_path: Path) -> None:
    session = read(
        tmp_path,
        [
            asked(0, "Go."),
            ran(1),
            observed(2, "run", 1, "a"),
            ran(3),
            action(4, "condensation", args={"forgotten_event_ids": [1, 2], "summary": "First.", "summary_offset": 1}),
            observed(5, "run", 3, "b"),
            ran(6),
            action(
                7,
                "condensation",
                args={"forgotten_events_start_id": 3, "forgotten_events_end_id": 5, "summary": "Second."},
            ),
            action(8, "condensation", args={"forgotten_event_ids": [99], "summary": None}),
            observed(9, "run", 6, "c"),
        ],
    )
    assert session.compactions == 2
    kinds = [[(one.role, one.carried) for one in segment] for segment in session.segments]
    assert kinds[0] == [("user", False), ("assistant", False), ("tool", False), ("assistant", False)]
    assert kinds[1] == [("user", True), ("user", False), ("assistant", True), ("tool", False), ("assistant", False)]
    assert kinds[2] == [("user", True), ("user", False), ("assistant", True), ("tool", False)]
    assert [one.parts for one in session.history][1] == (Summary("Second."),)
    assert len(list(session.messages())) == 9
    assert all(segment.orphans == () for segment in session.segments)


def test_delegates_of_delegates_are_children_of_children(tmp_path: Path) -> None:
    def delegates(id_: int) -> Json:
        return action(id_, "delegate", args={"agent": "B", "inputs": {"task": f"Task {id_}."}})

    session = read(
        tmp_path,
        [
            asked(0, "Go."),
            delegates(1),
            asked(2, "TASK: Task 1."),
            delegates(3),
            ran(4),
            observed(5, "run", 4, "deep"),
            observed(6, "delegate", 3, "six"),
            observed(7, "delegate", 1, "seven"),
            delegates(8),
        ],
    )
    [child] = session.children
    [inner] = child.children
    assert (child.parent, child.call_id, child.history[0].author) == (session.id, "call-1", "model")
    assert (inner.parent, inner.call_id, shape(inner)[0]) == (child.id, "call-3", ("user", "Task 3."))
    assert [result.text for one in (session, child, inner) for result in results(one)] == ["seven", "six", "deep"]
    assert len({session.id, child.id, inner.id}) == 3


def test_the_nesting_of_delegates_is_limited(tmp_path: Path) -> None:
    depth = 2_000
    opened = [action(n, "delegate", args={"inputs": {"task": "x"}}) for n in range(depth)]
    closed = [observed(depth + n, "delegate", depth - n - 1, "y") for n in range(depth)]
    session = read(tmp_path, [*opened, *closed])
    assert len(session.children) == 1


def test_a_folder_of_numbered_events_is_one_session(tmp_path: Path) -> None:
    folder = tmp_path / "sessions" / "abc" / "events"
    folder.mkdir(parents=True)
    metadata = {"conversation_id": "abc", "title": "Halves", "selected_branch": "main"}
    (folder.parent / "metadata.json").write_text(json.dumps(metadata))
    for one in (asked(0, "Go."), ran(1), observed(2, "run", 1, "x"), asked(10, "More."), asked(9, "And?")):
        (folder / f"{one['id']}.json").write_text(json.dumps(one))
    (folder / "3.json").write_text('{"id": 3, "acti')
    assert [th.sniff(folder / name) for name in ("0.json", "1.json", "3.json")] == ["openhands", None, None]
    [session] = th.read_all(folder / "0.json")
    assert (session.id, session.title, session.git_branch) == ("abc", "Halves", "main")
    assert shape(session)[-2:] == [("user", "And?"), ("user", "More.")]
    assert [one.source.file for one in session.history if one.source][1] == str(folder / "1.json")
    assert [(problem.file, problem.line) for problem in session.problems] == [(str(folder / "3.json"), 1)]
    assert {str(folder), str(folder.parent / "metadata.json"), str(folder / "10.json")} <= set(session.files)
    assert session.file not in session.files


# Since 1.0


def test_a_conversation_is_a_folder(tmp_path: Path) -> None:
    stats = {
        "usage_to_metrics": {
            "agent": {"token_usages": [{"response_id": "r1", "prompt_tokens": 50, "completion_tokens": 5}]}
        }
    }
    path = store(
        tmp_path / "c1",
        [
            said("a", "Go."),
            called("b", "r1"),
            gave("c", "b"),
            "{torn",
            said("d", "Done.", "agent", llm_response_id="r2"),
        ],
        stats=stats,
    )
    assert th.sniff(path) == "openhands"
    [session] = th.read_all(path)
    assert (session.id, session.project, session.title) == ("conv-1", "/w", "Go.")
    assert [one.usage for one in session.history] == [None, Usage(50, 5), None, None]
    assert [one.model for one in session.history] == ["", "m", "", "m"]
    assert [one.source.line for one in session.history if one.source] == [1, 1, 1, 1]
    assert len(session.files) == 5
    assert problem_texts(session) == ["an event is too large, damaged or not a JSON object"]


def test_sub_agents_have_their_own_folders(tmp_path: Path) -> None:
    path = store(
        tmp_path / "c1",
        [
            said("a", "Go."),
            called("b", tool="task", args={"prompt": "Count."}),
            called("c", tool="delegate", args={"command": "delegate", "tasks": {"x": "List. "}}),
        ],
    )
    store(tmp_path / "c1" / "subagents" / "s1", [said("a", "List."), said("b", "One.", "agent")], id="sub-1")
    store(tmp_path / "c1" / "subagents" / "s2", [said("a", "Count.")], id="sub-2")
    store(tmp_path / "c1" / "subagents" / "s3", [said("a", "Unasked.")], id="sub-3")
    [session] = th.read_all(path)
    found = [(child.id, child.parent, child.call_id) for child in session.children]
    assert found == [("sub-1", "conv-1", "call-of-c"), ("sub-2", "conv-1", "call-of-b"), ("sub-3", "conv-1", "")]
    assert {child.history[0].author for child in session.children} == {"model"}


def test_a_sub_agents_user_messages_have_a_model_as_author(tmp_path: Path) -> None:
    path = store(tmp_path / "c1", [said("a", "Go.")])
    events = [
        said("a", "Count.", parent_id="__root__"),
        said("b", "One.", "agent", parent_id="a"),
        said("c", "Once more.", parent_id="b"),
        said("d", "Or list.", parent_id="b"),
    ]
    store(tmp_path / "c1" / "subagents" / "s1", events, id="sub-1", leaf_event_id="d")
    [session] = th.read_all(path)
    [child] = session.children
    assert {one.author for one in child.messages(branches=True)} == {"model"}
    assert len(child.branches) == 1


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes with names")
def test_unreadable_event_files_are_reported(tmp_path: Path) -> None:
    path = store(tmp_path / "c1", [said("a", "Go.")])
    os.mkfifo(tmp_path / "c1" / "events" / "event-00001-x.json")
    [session] = th.read_all(path)
    assert (len(session.history), len(session.problems)) == (1, 1)


def test_calls_and_results_of_the_first_releases_are_read(tmp_path: Path) -> None:
    call = {"id": "t", "type": "function", "function": {"name": "execute_bash", "arguments": '{"command":"ls"}'}}
    old_call: Json = {"tool_name": "execute_bash", "tool_call_id": "t", "tool_call": call, "thought": words("Look.")}
    observation = {"output": "a.py", "error": "warned", "command": "ls", "exit_code": 0}
    session = read(
        tmp_path,
        [
            event("a", "ActionEvent", **old_call),
            event("b", "ObservationEvent", "environment", tool_call_id="t", observation=observation),
            event("c", "ActionEvent", tool_name="think", action={"thought": "Hm.", "kind": "ThinkAction"}),
        ],
    )
    assert [(call.id, call.name, call.arguments) for one in session.history for call in one.calls] == [
        ("t", "execute_bash", '{"command":"ls"}'),
        ("call-c", "think", '{"thought":"Hm."}'),
    ]
    assert [(result.text, result.is_error) for result in results(session)] == [("a.py\nwarned", True)]


def test_only_the_path_to_the_head_is_active(tmp_path: Path) -> None:
    events = [
        said("a", "Go."),
        said("b", "One.", "agent", parent_id="a"),
        said("c", "Two.", "agent", parent_id="a"),
        event("d", "ConversationStateUpdateEvent", "environment", parent_id="c"),
        said("e", "Anew.", parent_id="__root__"),
    ]
    heads = {"b": ["Go.", "One."], "c": ["Go.", "Two."], "": ["Anew."], "gone": ["Anew."]}
    for number, (head, texts) in enumerate(heads.items()):
        [session] = th.read_all(store(tmp_path / f"c{number}", events, leaf_event_id=head))
        assert [one.text for one in session.history] == texts
        assert len(list(session.messages(branches=True))) == 4
    [empty] = th.read_all(store(tmp_path / "empty", events, head_is_empty=True))
    assert (len(empty.history), len(empty.branches)) == (0, 2)


def test_a_missing_parent_is_reported(tmp_path: Path) -> None:
    session = read(
        tmp_path, [said("a", "Go."), said("b", "On.", parent_id="gone"), said("c", "And on.", parent_id="b")]
    )
    assert [one.text for one in session.history] == ["Go.", "On.", "And on."]
    assert problem_texts(session) == ["an event's parent `gone` does not exist"]


def test_a_cycle_of_parents_is_cut(tmp_path: Path) -> None:
    session = read(
        tmp_path, [said("a", "1", parent_id="c"), said("b", "2", parent_id="a"), said("c", "3", parent_id="b")]
    )
    assert sorted(one.text for one in session.messages(branches=True)) == ["1", "2", "3"]
    assert "the parents of events form a cycle" in problem_texts(session)


def test_many_cycles_of_parents_are_cut(tmp_path: Path) -> None:
    events = [said(f"{n}", "x", parent_id=f"{n ^ 1}") for n in range(10_000)]
    session = read(tmp_path, events)
    assert len(list(session.messages(branches=True))) == len(events)


def test_many_calls_of_one_response_are_answered(tmp_path: Path) -> None:
    numbers = [f"{n}" for n in range(5_000)]
    session = read(tmp_path, [*(called(n, "r") for n in numbers), *(gave(f"g{n}", n) for n in numbers)])
    assert (len(list(session.history[0].calls)), len(list(results(session)))) == (5_000, 5_000)
    assert session.history.orphans == ()


def test_the_number_of_condensations_is_limited(tmp_path: Path) -> None:
    forgets = {"forgotten_event_ids": [-1], "summary": ""}
    many = [ran(n) for n in range(5_000)]
    session = read(tmp_path, [*many, *(action(5_000 + n, "condensation", args=forgets) for n in range(5_000))])
    assert problem_texts(session) == ["the session has too many condensations"]
    assert len(session.history) == 5_000


def test_a_condensation_of_the_sdk_lists_event_ids(tmp_path: Path) -> None:
    session = read(
        tmp_path,
        [
            said("a", "Go."),
            called("b", "r1"),
            gave("c", "b"),
            said("d", "More."),
            event(
                "e", "Condensation", "environment", forgotten_event_ids=["b", "c"], summary="Listed.", summary_offset=1
            ),
            said("f", "Done.", "agent"),
        ],
    )
    assert [(one.text, one.carried) for one in session.history] == [
        ("Go.", True),
        ("Listed.", False),
        ("More.", True),
        ("Done.", False),
    ]


def test_events_with_the_same_id_get_unique_ids(tmp_path: Path) -> None:
    session = read(
        tmp_path, [said("a", "One."), said("a", "Two."), called("a"), called("b"), said("event-6", "x"), said("a", "y")]
    )
    ids = [one.id for one in session.history]
    assert ids == ["a", "event-2", "event-3", "b", "event-6", "event-6-"]
    calls = [called("a"), called("b") | {"tool_call_id": "call-of-a"}, gave("c", "a", "1"), gave("d", "b", "2")]
    again = read(tmp_path, [said("z", "Go."), *calls])
    assert [(result.call_id, result.text) for result in results(again)] == [("call-of-a", "1"), ("call-b", "2")]


def test_images_and_encrypted_thinking_are_read(tmp_path: Path) -> None:
    content = [*words("See:"), {"type": "image", "image_urls": ["data:image/png;base64,aGk=", 5]}, {"type": "sound"}]
    item = {"summary": ["So."], "encrypted_content": "secret"}
    session = read(
        tmp_path,
        [
            event("a", "MessageEvent", "user", llm_message={"role": "user", "content": content}),
            called("b", thought=words("Yes."), responses_reasoning_item=item),
        ],
    )
    assert session.history[0].parts[1] == Image("image/png", "aGk=")
    assert session.history[1].parts[:2] == (Thinking("So.", "secret"), Text("Yes."))


def test_malformed_events_are_reported_and_the_rest_is_read(tmp_path: Path) -> None:
    session = read(tmp_path, [asked(1, "Hi."), None, [], {}, {"kind": 5, "id": "x"}, {"action": "hologram", "args": 3}])
    assert [problem.line for problem in session.problems] == [2, 3]
    assert session.records == {"action message": 1, "?": 2, "action hologram": 1}
    assert [one.role for one in session.history] == ["user", "assistant"]


@pytest.mark.parametrize(
    "value",
    [
        [{"action": "buy", "content": "milk"}],
        [{"role": "user", "content": "Hi.", "action": "message"}],
        {"history": [{"role": "user", "content": "Hi."}]},
        {"trajectory": [{"action": "run", "observation": "x", "thought": "y"}]},
        [{"kind": "Event", "source": "a"}],
        {"agent": {}, "workspace": {}, "id": "1"},
    ],
)
def test_other_documents_are_not_detected_as_openhands(tmp_path: Path, value: Any) -> None:
    path = tmp_path / "d.json"
    path.write_text(json.dumps(value))
    assert th.sniff(path) != "openhands"


def test_a_document_without_events_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "e.json"
    path.write_text('{"instance_id": "a"}')
    with pytest.raises(th.ThresherError, match="OpenHands"):
        th.read(path, format="openhands")


def test_homes_depend_on_the_environment(tmp_path: Path) -> None:
    old = tmp_path / ".openhands-state" / "sessions" / "s" / "events"
    old.mkdir(parents=True)
    (old / "0.json").write_text(json.dumps(asked(0, "Go.")))
    new = store(tmp_path / ".openhands" / "conversations" / "c", [said("a", "Go.")])
    store(new.parent / "subagents" / "d", [said("a", "Go.")])
    found = discover(environment={}, home=tmp_path, formats=["openhands"])
    assert [one.path for one in found] == [new, old / "0.json"]
    environment = {"OPENHANDS_PERSISTENCE_DIR": "/p", "FILE_STORE_PATH": "/f"}
    folders = [str(home.folder) for home in FORMAT.homes(environment, tmp_path)]
    assert folders[:2] == ["/p/conversations", "/f/sessions"]
    environment["OPENHANDS_CONVERSATIONS_DIR"] = "/c"
    assert str(FORMAT.homes(environment, tmp_path)[0].folder) == "/c"


NOT_SHOWN = {"action recall", "observation recall", "observation null"}
RECALLED = {"oh-001": 1}
"""In the first of its three sessions, a recall adds knowledge, which is visible."""
READ_ELSEWHERE = {"oh-003": 1}
"""`cat LICENSE`: the index does not count files without a suffix."""
WRITTEN_ELSEWHERE = {"oh-001": -1}
"""The index counts `sed -i` as an edit; here it is a shell command."""
FAILED = {"oh-001": 17}
"""The index counts two harness errors, which answer no call, and not the 19 failed commands."""


def test_recordings_match_their_index(shared_data: Path) -> None:
    """Compare sessions and calls with the index, which counts every event as a message, visible or not.

    In `oh-002` to `oh-004`, every second event is an empty observation.
    """
    for row, sessions in recordings.indexed(shared_data, "openhands"):
        name = Path(row["file"]).name.partition(".")[0]
        messages = [message for session in sessions for message in session.messages()]
        calls = [call for message in messages for call in message.calls]
        records = sum((Counter(session.records) for session in sessions), Counter())
        assert {session.agent for session in sessions} == {"openhands"}
        assert (len(sessions), len(calls)) == (row["sessions"], row["calls"])
        assert records.total() == row["msgs"]
        hidden = sum(records[kind] for kind in NOT_SHOWN) - RECALLED.get(name, 0)
        assert len(messages) == row["msgs"] - hidden
        uses = [describe_tool_call(call) for call in calls]
        reads = sum(use.operation == "read" and bool(use.path) for use in uses)
        edits = sum(use.category == "file_edit" for use in uses)
        assert reads - row["reads"] == READ_ELSEWHERE.get(name, 0)
        assert edits - row["edits"] == WRITTEN_ELSEWHERE.get(name, 0)
        failed = sum(result.is_error for message in messages for result in message.results)
        assert failed - row["errors"] == FAILED.get(name, 0)
        assert [problem for session in sessions for problem in session.problems] == []
        assert all(session.history.orphans == () for session in sessions)
