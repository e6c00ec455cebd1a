"""SWE-agent runs: commands as text, retried steps, attempts, and damage."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import recordings
import thresher as th
from thresher.model import Text, Thinking, ToolCall, Unknown
from thresher.model.tool_calls import describe_tool_call
from thresher.transcripts.swe_agent.actions import is_refused_observation, parse_swe_agent_command

Json = dict[str, Any]


def said(thought: str, action: str = "", **fields: Any) -> Json:
    return {"role": "assistant", "content": thought, "thought": thought, "action": action, "agent": "main"} | fields


def told(content: Any, **fields: Any) -> Json:
    return {"role": "user", "content": content, "agent": "main"} | fields


def step(thought: str, action: str, observation: str = "", **fields: Any) -> Json:
    return {"action": action, "observation": observation, "response": thought, "thought": thought, "state": {}} | fields


def read(folder: Path, name: str = "calc-1.traj", **document: Any) -> th.Session:
    path = folder / name
    path.write_text(json.dumps(document))
    assert th.sniff(path) == "swe-agent"
    session = th.read(path)
    assert isinstance(session, th.Session)
    return session


@pytest.mark.parametrize(
    ("action", "name", "arguments"),
    [
        ("open src/a.py\n", "open", {"path": "src/a.py", "line_number": 1}),
        ('open "src/a b.py" 40', "open", {"path": "src/a b.py", "line_number": 40}),
        ("goto 12", "goto", {"line_number": 12}),
        ("scroll_down", "scroll_down", {}),
        ("create new.py", "create", {"path": "new.py"}),
        ("search_file 'def half' a.py", "search_file", {"search_term": "def half", "file": "a.py"}),
        ("find_file a.py src", "find_file", {"file_name": "a.py", "dir": "src"}),
        ("submit", "submit", {}),
        ("exit_cost", "exit_cost", {}),
        (
            "edit 2:3\nx = 1\ny = 2\nend_of_edit\n",
            "edit",
            {"path": "/w/a.py", "start": 2, "end": 3, "text": "x = 1\ny = 2"},
        ),
        ("edit 2:3\nend_of_edit", "edit", {"path": "/w/a.py", "start": 2, "end": 3, "text": ""}),
        ("edit\nx = 1\nend_of_edit", "edit", {"path": "/w/a.py", "text": "x = 1"}),
        ("edit 2:2 b.py\nx", "edit", {"path": "/w/a.py", "start": 2, "end": 2, "rest": "b.py", "text": "x"}),
        ("edit 'a\nb' 'c'", "edit", {"path": "/w/a.py", "search": "a\nb", "replace": "c"}),
        ("insert 'x = 1' 4", "insert", {"path": "/w/a.py", "text": "x = 1", "insert_line": 4}),
        (
            "str_replace_editor view /w/a.py --view_range 1 -1",
            "str_replace_editor",
            {"command": "view", "path": "/w/a.py", "view_range": [1, -1]},
        ),
        (
            "str_replace_editor insert /w/a.py --new_str 'x' --insert_line 3",
            "str_replace_editor",
            {"command": "insert", "path": "/w/a.py", "new_str": "x", "insert_line": 3},
        ),
        ("search_file half a.py | head", "bash", {"command": "search_file half a.py | head"}),
        ("open it's", "bash", {"command": "open it's"}),
        ("open a.py far", "bash", {"command": "open a.py far"}),
        ("ls -l", "bash", {"command": "ls -l"}),
    ],
)
def test_a_command_is_a_call(action: str, name: str, arguments: Json) -> None:
    assert parse_swe_agent_command(action, "/w/a.py") == (name, arguments)


def test_a_call_has_a_kind_and_a_path() -> None:
    def use(action: str) -> tuple[str, str, str]:
        name, arguments = parse_swe_agent_command(action, "/w/a.py")
        found = describe_tool_call(ToolCall("1", name, json.dumps(arguments)))
        return found.category, found.operation, found.path

    assert use("open b.py") == ("file_read", "read", "b.py")
    assert use("create b.py") == ("file_edit", "write", "b.py")
    assert use("edit 1:1\nx\nend_of_edit") == ("file_edit", "edit", "/w/a.py")
    assert use("search_file x b.py") == ("file_read", "search", "b.py")
    assert use("str_replace_editor view b.py") == ("file_read", "read", "b.py")


@pytest.mark.parametrize(
    ("name", "observation", "refused"),
    [
        ("edit", "Your proposed edit has introduced new syntax error(s).", True),
        ("edit", "OBSERVATION:\nYour edit was not applied (file not modified): …", True),
        ("edit", "Usage: edit <start_line>:<end_line>", True),
        ("open", "File b.py not found", True),
        ("bash", "EXECUTION TIMED OUT", True),
        ("bash", "Traceback (most recent call last):", False),
        ("bash", "Usage: grep [OPTION]", False),
        ("edit", "File updated. Your proposed edit has introduced", False),
    ],
)
def test_refused_actions_are_detected(name: str, observation: str, refused: bool) -> None:
    assert is_refused_observation(name, observation) is refused


def test_an_edit_changes_the_open_file(tmp_path: Path) -> None:
    """The step names the open file, also as JSON text. Without a step, the last line of the output does."""
    edit = "edit 1:1\nx\nend_of_edit"
    session = read(
        tmp_path,
        history=[
            told("Go."),
            said("a", "open a.py"),
            told("…\n(Open file: /w/a.py)\n(Current directory: /w)\nbash-$"),
            said("b", edit.replace("x", "y")),
            told("done"),
            said("c", edit),
        ],
        trajectory=[step("c", edit, state='{"open_file": "/w/c.py", "working_dir": "/w"}')],
    )
    paths = [describe_tool_call(call).path for message in session.history for call in message.calls]
    assert paths == ["a.py", "/w/a.py", "/w/c.py"]
    assert session.project == "/w"


def test_a_run_without_a_history_is_read_from_its_steps(tmp_path: Path) -> None:
    asked = [{"role": "system", "content": "S"}, told("Fix it.")]
    steps = [step("Look.", "ls", "a.py", query=asked), step("Done.", "submit", "diff")]
    session = read(tmp_path, trajectory=steps)
    assert [one.role for one in session.history] == ["system", "user", "assistant", "tool", "assistant", "tool"]
    assert session.title == "Fix it."
    assert session.history.orphans == ()


def test_attempts_that_were_not_chosen_are_branches(tmp_path: Path) -> None:
    attempts = [{"history": [told("Go."), said(f"Try {n}.", "ls"), told("a")], "trajectory": []} for n in range(3)]
    document: Json = {"attempts": attempts, **attempts[1], "info": {"best_attempt_idx": 1}}
    chosen = read(tmp_path, **document)
    assert [one.text for one in chosen.history if one.role == "assistant"] == ["Try 1."]
    assert [branch.history[1].text for branch in chosen.branches] == ["Try 0.", "Try 2."]
    still_going = read(
        tmp_path, attempts=[one | {"trajectory": [step(f"Try {n}.", "ls")]} for n, one in enumerate(attempts)]
    )
    assert [one.text for one in still_going.history if one.role == "assistant"] == ["Try 2."]
    assert len(read(tmp_path, attempts=attempts).branches) == 2
    ids = [one.id for one in still_going.messages(branches=True)]
    assert len(ids) == len(set(ids)) == 9


def test_duplicate_call_ids_become_unique(tmp_path: Path) -> None:
    def calls(*ids: Any) -> list[Json]:
        return [{"id": id_, "function": {"name": "bash", "arguments": "{}"}} for id_ in ids]

    def answer(id_: str, content: str) -> Json:
        return {"role": "tool", "content": content, "tool_call_ids": [id_], "agent": "main"}

    history = [
        told("Go."),
        said("a", "ls", tool_calls=calls("x")),
        answer("x", "one"),
        said("b", "ls", tool_calls=calls("x", None)),
        answer("x", "two"),
        answer("", "three"),
    ]
    session = read(tmp_path, history=history)
    assert [call.id for one in session.history for call in one.calls] == ["x", "call-4-1", "call-4-2"]
    assert [result.call_id for one in session.history for result in one.results] == ["x", "call-4-1", "call-4-2"]


def test_thinking_is_in_blocks_or_in_the_step(tmp_path: Path) -> None:
    blocks = [{"type": "thinking", "thinking": "Hm.", "signature": "s"}, {"type": "redacted_thinking", "data": "d"}, 3]
    session = read(
        tmp_path,
        history=[said("a", "ls", thinking_blocks=blocks), told("x"), said("b", "ls")],
        trajectory=[step("a", "ls"), step("b", "ls", reasoning_content="So.")],
    )
    found = [part for one in session.history for part in one.parts if isinstance(part, Thinking)]
    assert found == [Thinking("Hm.", "s"), Thinking("", "d"), Thinking("So.")]


def test_rows_that_are_not_messages_are_reported_and_the_rest_is_read(tmp_path: Path) -> None:
    odd = {"role": "oracle", "content": {"a": 1}}
    session = read(tmp_path, history=[None, 3, odd, said("a", "ls"), told("Late.")], info=[], trajectory=7)
    assert [problem.line for problem in session.problems] == [1, 2]
    assert session.history[0].parts == (Unknown("oracle", '{"a":1}'),)
    assert session.history[1].parts[0] == Text("a")
    assert session.records == {"?": 2, "oracle": 1, "assistant": 1, "user": 1}


def test_a_document_without_a_run_is_a_clear_error(tmp_path: Path) -> None:
    path = tmp_path / "e.traj"
    path.write_text('{"info": {}}')
    assert th.sniff(path) is None
    with pytest.raises(th.ThresherError, match="SWE-agent"):
        th.read(path, format="swe-agent")


@pytest.mark.parametrize(
    "document",
    [
        {"history": [{"role": "assistant", "content": "Hi.", "name": "Critic"}]},
        {"trajectory": [{"action": "run", "args": {"command": "ls"}}]},
        {"messages": [{"role": "user", "content": "Hi."}], "trajectory_format": "mini-swe-agent-1"},
        [{"role": "assistant", "agent": "a", "thought": "b", "action": "c"}],
    ],
)
def test_other_documents_are_not_detected_as_runs(tmp_path: Path, document: Any) -> None:
    path = tmp_path / "d.json"
    path.write_text(json.dumps(document))
    assert th.sniff(path) != "swe-agent"


READ_ELSEWHERE = {"cs35-018": 1, "cs35-046": 1, "cs35-028": -2, "cs35-036": -8}
"""Difference in the number of reads. The index does not count `sed -n 1,9p` or a file without a suffix (`CHANGES`), but
it counts a command that an edit writes to a script (`cat conf.py`), and `cat <<EOF > file`."""
WRITTEN_ELSEWHERE = {"cs35-012": -5, "cs35-028": -3, "cs35-038": -1, "cs35-043": -1, "demo-013": -1}
"""Difference in the number of edits, without `create`. The index counts files that a shell command writes, and `create`
as a tool call but not as text."""


def test_recordings_have_the_counts_of_the_index(shared_data: Path) -> None:
    """All 82 files have exactly the messages and calls of the index, including demonstrations.

    Repeated edits are not compared: the index assigns all edits of a run to one file, since the command names none.
    Here each edit has the path of the open file.
    """
    kinds: Counter[str] = Counter()
    for row, (session,) in recordings.indexed(shared_data, "swe_agent"):
        name = Path(row["file"]).name.partition(".")[0]
        assert session.agent == "swe-agent"
        assert session.problems == ()
        messages = [message for segment in session.segments for message in segment]
        calls = [call for message in messages for call in message.calls]
        assert (len(messages), len(calls)) == (row["msgs"], row["calls"])
        assert session.history.orphans == ()
        uses = [describe_tool_call(call) for call in calls]
        reads = [use.path for use in uses if use.operation == "read" and use.path]
        edits = [call for call, use in zip(calls, uses, strict=True) if use.category == "file_edit"]
        assert len(reads) - row["reads"] == READ_ELSEWHERE.get(name, 0)
        if name not in READ_ELSEWHERE:
            assert len(reads) - len(set(reads)) == row["repeat_reads"]
        changed = sum(call.name != "create" for call in edits)
        assert changed - row["edits"] == WRITTEN_ELSEWHERE.get(name, 0)
        kinds.update(call.name for call in edits)
        kinds["taken back"] += len(session.branches)
        assert session.title
    assert kinds == {"edit": 1408, "create": 221, "insert": 2, "taken back": 1}
