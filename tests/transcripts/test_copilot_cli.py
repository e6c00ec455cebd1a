"""Tests of the `copilot-cli` format: parallel tools, authors, sub-agents and compactions."""

import json
from pathlib import Path
from typing import Any

import pytest

import recordings
import thresher as th
from thresher.model import Image, Summary, Text, Thinking, ToolCall, ToolResult, Unknown
from thresher.model.harness_text import extract_human_text

Json = dict[str, Any]
START: Json = {"sessionId": "s-1", "copilotVersion": "1.0.68", "context": {"cwd": "/work/a", "branch": "main"}}


def event(kind: str, _agent: str = "", _id: str = "", /, **data: Any) -> Json:
    row: Json = {"type": kind, "data": data, "timestamp": "2026-04-07T14:00:00Z", "parentId": None}
    return row | ({"agentId": _agent} if _agent else {}) | ({"id": _id} if _id else {})


def asks(*ids: str, said: str = "", _agent: str = "", **more: Any) -> Json:
    wanted = [{"toolCallId": id_, "name": "bash", "arguments": {"command": id_}} for id_ in ids]
    return event("assistant.message", _agent, content=said, toolRequests=wanted, **more)


def gives(id_: str, said: str = "done", _agent: str = "", **more: Any) -> Json:
    return event("tool.execution_complete", _agent, toolCallId=id_, success=True, result={"content": said}, **more)


def types(text: str, _agent: str = "", **more: Any) -> Json:
    return event("user.message", _agent, content=text, **more)


def read(folder: Path, *rows: Json, name: str = "events.jsonl", **start: Any) -> th.Session:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    begin = event("session.start", **(START | start))
    path.write_text("".join(json.dumps(row) + "\n" for row in (begin, *rows)))
    assert th.sniff(path) == "copilot-cli"
    session = th.read(path)
    assert isinstance(session, th.Session)
    return session


def texts_of(session: th.Session) -> list[str]:
    """Return a short form of each message: its text, its calls or the calls it answers."""
    return [
        message.text
        or " ".join([*(call.id for call in message.calls), *(f"={one.call_id}" for one in message.results)])
        for message in session.history
    ]


def test_results_directly_follow_their_calls(tmp_path: Path) -> None:
    session = read(
        tmp_path, types("Go."), asks("a", "b"), gives("b"), types("Wait."), gives("a"), asks(said="Done."), gives("z")
    )
    assert texts_of(session) == ["Go.", "a b", "=a", "=b", "Wait.", "Done.", "=z"]
    assert [one.role for one in session.history][2:4] == ["tool", "tool"]


def test_failed_results_are_errors(tmp_path: Path) -> None:
    failed = event("tool.execution_complete", toolCallId="b", success=False, error={"message": "no such file"})
    exited = gives("c", "broken") | {}
    exited["data"]["result"]["contents"] = [{"type": "shell_exit", "exitCode": 2, "shellId": "1"}]
    session = read(tmp_path, asks("a", "b", "c"), gives("a"), failed, exited)
    found = [result for message in session.history for result in message.results]
    assert [(one.text, one.is_error) for one in found] == [("done", False), ("no such file", True), ("broken", True)]


def test_the_text_sent_to_the_model_includes_the_typed_text(tmp_path: Path) -> None:
    shown = "<current_datetime>now</current_datetime>\n\nGo.\n\n<system_reminder>\nBe kind.\n</system_reminder>"
    session = read(
        tmp_path, types("Go.", transformedContent=shown), types("Look.", transformedContent="Something else.")
    )
    assert [one.author for one in session.history] == ["human", "human"]
    assert [extract_human_text(one.text) for one in session.history] == ["Go.", "Look."]
    assert session.history[0].text == shown
    assert session.title == "Go."


@pytest.mark.parametrize(
    ("data", "author"),
    [
        ({}, "human"),
        ({"source": "user"}, "human"),
        ({"source": "immediate-prompt"}, "human"),
        ({"source": "skill-pdf"}, "harness"),
        ({"source": "instruction-discovery"}, "harness"),
        ({"source": "thinking-exhausted-continuation"}, "harness"),
        ({"source": "agent-3"}, "model"),
        ({"isAutopilotContinuation": True}, "harness"),
    ],
)
def test_the_author_of_a_user_message(data: Json, author: str, tmp_path: Path) -> None:
    assert read(tmp_path, types("Go on.", **data)).history[0].author == author


def test_only_the_last_system_prompt_is_kept(tmp_path: Path) -> None:
    def prompt(text: str) -> Json:
        return event("system.message", role="system", content=text)

    session = read(tmp_path, prompt("Be kind."), types("One."), prompt("Be kind."), types("Two."))
    assert (texts_of(session), session.problems) == (["Be kind.", "One.", "Two."], ())
    changed = read(tmp_path, prompt("Be kind."), types("One."), prompt("Be brief."), types("Two."))
    assert texts_of(changed) == ["Be brief.", "One.", "Two."]
    assert "changed 1 times" in changed.problems[0].what


def test_thinking_and_usage_belong_to_their_message(tmp_path: Path) -> None:
    session = read(
        tmp_path,
        event("assistant.reasoning", content="Hm."),
        asks(said="One.", outputTokens=7),
        asks(said="Two.", reasoningOpaque="c2ln"),
        asks(said="Three.", encryptedContent="ZW5j", reasoningText="Ah."),
    )
    thoughts = [part for one in session.history for part in one.parts if isinstance(part, Thinking)]
    assert thoughts == [Thinking("Hm."), Thinking("", "c2ln"), Thinking("Ah.", "ZW5j")]
    assert [one.usage.output if one.usage else None for one in session.history] == [7, None, None]


def test_a_response_in_pieces_is_one_message(tmp_path: Path) -> None:
    pieces = [asks(said="One.", apiCallId="r", outputTokens=9), asks("a", said="Two.", apiCallId="r", outputTokens=9)]
    session = read(tmp_path, types("Go."), *pieces, gives("a"), asks(said="Three.", apiCallId="q"))
    assert texts_of(session) == ["Go.", "One.\nTwo.", "=a", "Three."]
    assert sum(one.usage.output for one in session.history if one.usage) == 9


def test_a_call_that_starts_between_two_pieces_does_not_split_the_response(tmp_path: Path) -> None:
    starts = event("tool.execution_start", toolCallId="a", toolName="bash", arguments={"command": "a"})
    pieces = [asks(said="One.", apiCallId="r"), starts, asks("a", said="Two.", apiCallId="r")]
    session = read(tmp_path, types("Go."), *pieces, gives("a"))
    assert texts_of(session) == ["Go.", "One.\nTwo.", "=a"]
    assert [call.id for call in session.history[1].calls] == ["a"]
    nothing = [types("Go."), asks(apiCallId="r"), starts, asks("a", said="Two.", apiCallId="r")]
    assert texts_of(read(tmp_path, *nothing)) == ["Go.", "Two."]


def test_the_model_can_change(tmp_path: Path) -> None:
    change = event("session.model_change", newModel="big")
    session = read(
        tmp_path, asks(said="One."), change, asks(said="Two."), asks(said="Three.", model="own"), selectedModel="small"
    )
    assert [one.model for one in session.history] == ["small", "big", "own"]


def test_a_users_command_has_the_harness_as_author(tmp_path: Path) -> None:
    own = event("tool.user_requested", toolCallId="u", toolName="bash", arguments={"command": "ls"})
    started = event("tool.execution_start", toolCallId="u", toolName="bash", arguments={"command": "ls"})
    session = read(tmp_path, own, started, gives("u"))
    assert [(one.role, one.author) for one in session.history] == [("assistant", "harness"), ("tool", "tool")]


def test_a_call_that_starts_before_its_request_is_one_call(tmp_path: Path) -> None:
    def starts(id_: str) -> Json:
        return event("tool.execution_start", toolCallId=id_, toolName="bash", arguments={"command": id_})

    session = read(tmp_path, starts("a"), gives("a"), asks("a"), starts("b"), gives("b"))
    assert texts_of(session) == ["a", "=a", "b", "=b"]
    assert session.history.orphans == ()


def test_images_are_found_by_asset_id(tmp_path: Path) -> None:
    asset = event("session.binary_asset", assetId="sha256:1", mimeType="image/png", data="aGk=")
    attached = [
        {"type": "blob", "mimeType": "image/gif", "data": "Z2lm"},
        {"type": "file", "path": "/work/a/b.txt", "displayName": "b.txt"},
        {"type": "blob", "mimeType": "image/png", "assetId": "sha256:2"},
    ]
    seen = gives("a", "a picture")
    seen["data"]["result"]["binaryResultsForLlm"] = [{"type": "image", "assetId": "sha256:1", "mimeType": "image/png"}]
    session = read(tmp_path, asset, types("Look.", attachments=attached), asks("a"), seen)
    assert [type(part) for part in session.history[0].parts] == [Text, Image, Unknown]
    result = next(session.history[2].results)
    assert result.content == (Text("a picture"), Image("image/png", "aGk="))


def test_a_notice_that_is_repeated_for_the_model_is_read_once(tmp_path: Path) -> None:
    notice = "<system_notification>\nThe build is done.\n</system_notification>"
    shown = event("system.notification", content=notice, kind={"type": "shell_completed"})
    repeated = types(notice, source="system")
    assert [one.author for one in read(tmp_path, shown, repeated, asks(said="Good.")).history] == ["harness", "model"]
    assert [one.author for one in read(tmp_path, shown, asks(said="Good.")).history] == ["harness", "model"]


# --- compactions and rewinds -----------------------------------------------------------------------------------------


def test_messages_during_a_compaction_stay_in_the_context(tmp_path: Path) -> None:
    session = read(
        tmp_path,
        event("system.message", role="system", content="Be kind."),
        types("One."),
        event("session.compaction_start"),
        asks("a"),
        event("session.compaction_complete", success=True, summaryContent="One was said."),
        gives("a"),
        types("Two."),
    )
    assert texts_of(session) == ["Be kind.", "One was said.", "a", "=a", "Two."]
    assert [one.carried for one in session.history] == [True, False, True, True, False]
    assert isinstance(session.history[1].parts[0], Summary)
    assert [one.text for one in session.messages() if one.text] == ["Be kind.", "One.", "One was said.", "Two."]
    assert session.compactions == 1


def test_a_failed_or_empty_compaction_starts_no_segment(tmp_path: Path) -> None:
    failed = event("session.compaction_complete", success=False, error="no answer")
    silent = event("session.compaction_complete", success=True)
    session = read(tmp_path, types("One."), failed, silent, types("Two."))
    assert (texts_of(session), session.compactions) == (["One.", "Two."], 0)
    assert [problem.line for problem in session.problems] == [4]


def test_clearing_the_context_starts_a_segment(tmp_path: Path) -> None:
    session = read(tmp_path, types("One."), event("session.context_cleared", messagesCleared=1), types("Two."))
    assert (texts_of(session), len(session.segments), session.compactions) == (["Two."], 2, 0)


def test_a_rewind_event_is_applied(tmp_path: Path) -> None:
    back = event("session.snapshot_rewind", upToEventId="turn", eventsRemoved=3)
    rows = [
        types("One."),
        event("assistant.turn_start", "", "turn", turnId="0"),
        asks("a"),
        gives("a"),
        back,
        types("Two."),
    ]
    session = read(tmp_path, *rows, back | {"data": {"upToEventId": "gone"}})
    assert texts_of(session) == ["One.", "Two."]
    assert [len(branch.history) for branch in session.branches] == [2]
    assert "does not exist" in session.problems[0].what


# --- sub-agents ------------------------------------------------------------------------------------------------------


def test_sub_agents_are_found_by_id_or_in_older_files_by_call(tmp_path: Path) -> None:
    started = event("subagent.started", "x", toolCallId="t1", agentName="explore", agentDisplayName="Look around")
    older = event("subagent.started", toolCallId="t2", agentName="task", agentDisplayName="Do it")
    session = read(
        tmp_path,
        types("Go."),
        asks("t1", "t2"),
        started,
        types("Look.", "x"),
        asks("a", _agent="x", parentToolCallId="t1"),
        gives("a", _agent="x"),
        older,
        asks("b", said="Doing.", parentToolCallId="t2"),
        gives("b", parentToolCallId="t2"),
        event("subagent.started", "y", toolCallId="b", agentName="deep", agentDisplayName="Deep", parentId="x"),
        asks(said="Deeper.", _agent="y"),
        gives("t1"),
        gives("t2"),
    )
    assert texts_of(session) == ["Go.", "t1 t2", "=t1", "=t2"]
    found = [(child.id, child.call_id, child.parent, child.title) for child in session.children]
    assert found == [("x", "t1", "s-1", "Look around"), ("t2", "t2", "s-1", "Do it"), ("y", "b", "x", "Deep")]
    assert [texts_of(child) for child in session.children] == [["Look.", "a", "=a"], ["Doing.", "=b"], ["Deeper."]]
    assert session.children[0].history[0].author == "model"


# --- malformed files and discovery -----------------------------------------------------------------------------------


def test_repeated_lines_are_read_once_and_repeated_ids_get_unique_ids(tmp_path: Path) -> None:
    first = event("user.message", "", "same", content="One.")
    other = event("user.message", "", "same", content="Two.")
    session = read(tmp_path, first, first, other, types("Three."), event("hologram.shown"))
    assert texts_of(session) == ["One.", "Two.", "Three."]
    assert [one.id for one in session.history] == ["same", "same-4", "5"]
    assert session.records == {"session.start": 1, "user.message": 3, "repeated": 1, "hologram.shown": 1}


def test_values_of_the_wrong_type_are_ignored(tmp_path: Path) -> None:
    odd = [event("assistant.message", content=3, toolRequests=[None, {"name": 5}]), event("tool.execution_complete")]
    session = read(tmp_path, {"type": 3, "data": [1]}, *odd, types("Hi."))
    calls = [call for message in session.history for call in message.calls]
    assert [call.name for call in calls] == ["", ""]
    assert texts_of(session)[-1] == "Hi."


@pytest.mark.parametrize(("name", "id_"), [("f00d/events.jsonl", "f00d"), ("cafe.jsonl", "cafe")])
def test_a_session_without_an_id_is_named_after_its_file(name: str, id_: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(types("Hi.")) + "\n")
    session = th.read(path)
    assert isinstance(session, th.Session)
    assert (session.agent, session.id) == ("copilot-cli", id_)


def test_sessions_are_discovered_in_copilots_folders(tmp_path: Path) -> None:
    def found(**environment: str) -> list[str]:
        all_ = th.discover(environment=environment, home=tmp_path, formats=["copilot-cli"])
        return sorted(str(one.path.relative_to(tmp_path)) for one in all_)

    for root in (".copilot", "own", "state/.copilot"):
        read(tmp_path / root / "session-state" / "s-1")
    read(tmp_path / ".copilot" / "history-session-state", name="old.jsonl")
    usual = [".copilot/history-session-state/old.jsonl", ".copilot/session-state/s-1/events.jsonl"]
    assert found() == usual
    assert found(COPILOT_HOME=str(tmp_path / "own")) == ["own/session-state/s-1/events.jsonl"]
    assert found(XDG_STATE_HOME=str(tmp_path / "state")) == [*usual, "state/.copilot/session-state/s-1/events.jsonl"]


@pytest.mark.parametrize("row", [{"type": "user.message", "content": "Hi."}, {"type": "session", "cwd": "/w"}])
def test_other_rows_are_not_claimed(row: Json, tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text(json.dumps(row) + "\n" + json.dumps(row) + "\n")
    assert th.sniff(tmp_path / "x.jsonl") != "copilot-cli"


def test_the_recordings_agree_with_their_counts(shared_data: Path) -> None:
    """Compare with the index, which counts empty answers but no system prompts."""
    found = [*recordings.indexed(shared_data, "copilot_cli")]
    assert len(found) == 4
    for expected, sessions in found:
        [session] = sessions
        parts = [part for message in session.messages() for part in message.parts]
        kinds = ("user.message", "assistant.message", "tool.execution_complete")
        assert sum(session.records.get(kind, 0) for kind in kinds) == expected["msgs"], expected["file"]
        assert sum(isinstance(part, ToolCall) for part in parts) == expected["calls"]
        assert sum(isinstance(part, Thinking) for part in parts) == expected["thinking"]
        assert sum(isinstance(part, ToolResult) and part.is_error for part in parts) == expected["errors"]
        assert (session.version,) == tuple(expected["versions"])
        assert session.history.orphans == ()
        assert session.problems == ()
