"""`files` and `changelog`, for people and for programs."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from thresher.cli import cli
from thresher.errors import OptionError, ThresherError

ID = "00000000-0000-0000-0000-000000000007"


def row(number: int, role: str, content: Any) -> str:
    message = {"role": role, "content": content} | ({"id": f"msg_{number}"} if role != "user" else {})
    facts = {"type": role, "uuid": str(number), "parentUuid": str(number - 1) if number else None, "sessionId": ID}
    return json.dumps(facts | {"timestamp": f"2026-03-01T09:{number:02}:00.000Z", "cwd": "/w", "message": message})


def call(number: int, name: str, **arguments: Any) -> str:
    words = {"type": "text", "text": f"Step {number}."}
    return row(number, "assistant", [words, {"type": "tool_use", "id": f"c{number}", "name": name, "input": arguments}])


def answer(number: int, text: str) -> str:
    return row(number, "user", [{"type": "tool_result", "tool_use_id": f"c{number - 1}", "content": text}])


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Write a file with one session, on a machine without other sessions."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("THRESHER_HOME", str(tmp_path / "thresher"))
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "PI_CODING_AGENT_DIR", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    rows = [
        row(0, "user", "Do it."),
        call(1, "Write", file_path="/w/config.py", content="a = 1\n"),
        answer(2, "File created successfully at: /w/config.py"),
        call(3, "Edit", file_path="/w/config.py", old_string="1", new_string="2"),
        answer(4, "The file /w/config.py has been updated."),
        call(5, "Bash", command="sed -i s/2/3/ config.py"),
        answer(6, ""),
    ]
    file = tmp_path / f"{ID}.jsonl"
    file.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return str(file)


def run(*arguments: str) -> Result:
    result = CliRunner().invoke(cli, arguments)
    if isinstance(result.exception, Exception) and not isinstance(result.exception, ThresherError):
        raise result.exception
    return result


def test_table_shows_activity_and_knowledge(session: str) -> None:
    result = run("files", session)
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "turns  reads  edits  writes  final text  file",
        "  1-3             2       1  uncertain   config.py",
        "1 file: final text known for 0, uncertain for 1",
    ]
    (value,) = json.loads(run("files", session, "--json").stdout)["files"]
    assert value == {
        "path": "/w/config.py", "reads": 0, "edits": 2, "writes": 1, "first_turn": 1, "last_turn": 3,
        "deleted": False, "exact": False,
    }  # fmt: skip


def test_history_of_one_file(session: str) -> None:
    lines = run("files", session, "config.py").stdout.splitlines()
    assert lines[0] == "config.py"
    assert lines[1].split() == ["turn", "1", "write", "+1", "−0", "Step", "1.", "#1"]
    assert lines[-1] == "  - turn 3: an edit with unknown text"
    value = json.loads(run("files", session, "config.py", "--json").stdout)
    assert [event["operation"] for event in value["events"]] == ["write", "edit", "edit"]
    assert "text" not in value


def test_text_after_a_turn_and_its_gaps(session: str) -> None:
    known = run("files", session, "config.py", "--at", "2")
    assert (known.exit_code, known.stdout, known.stderr) == (0, "a = 2\n", "")
    unsure = run("files", session, "config.py", "--at", "3")
    assert (unsure.exit_code, unsure.stdout) == (1, "a = 2\n")
    assert "turn 3" in unsure.stderr
    value = json.loads(run("files", session, "config.py", "--at", "1", "--json").stdout)
    assert value == {"schema": 1, "path": "/w/config.py", "turn": 1, "text": "a = 1\n", "exact": True, "gaps": []}


def test_session_changes_as_a_diff(session: str) -> None:
    result = run("files", session, "config.py", "--diff", "--at", "2")
    assert (result.exit_code, result.stdout) == (0, "--- /dev/null\n+++ b/config.py\n@@ -0,0 +1 @@\n+a = 2\n")
    every = run("files", session, "--diff", "--json")
    assert every.exit_code == 1
    assert [one["exact"] for one in json.loads(every.stdout)["files"]] == [False]


@pytest.mark.parametrize(
    "arguments",
    [("--at", "2"), ("config.py", "--at", "99"), ("nothing.py",)],
)
def test_wrong_use_is_an_error(session: str, arguments: tuple[str, ...]) -> None:
    assert isinstance(run("files", session, *arguments).exception, OptionError)


def test_changelog_of_a_file(session: str) -> None:
    result = run("changelog", session)
    assert result.exit_code == 0
    assert result.stdout.splitlines()[2:] == [
        "## `config.py`",
        "",
        "- wrote: Step 1. (2026-03-01, turn 1, +1 −0)",
        "- edited: Step 3. (2026-03-01, turn 2, +1 −1)",
        "- edited: Step 5. (2026-03-01, turn 3)",
    ]


def test_changelog_of_a_project_comes_from_the_archive(session: str) -> None:
    where = ("--no-discover", "--source", session)
    value = json.loads(run("changelog", "--project", "/w", "--since", "2026-02-01", "--json", *where).stdout)
    assert [(one["path"], len(one["entries"])) for one in value["files"]] == [("config.py", 3)]
    assert run("changelog", "--project", "elsewhere", *where).exit_code == 1
    assert json.loads(run("changelog", "--since", "2026-03-02", "--json", *where).stdout)["files"] == []


@pytest.mark.parametrize("arguments", [(), ("x", "--project", "y")])
def test_changelog_needs_exactly_one_source(session: str, arguments: tuple[str, ...]) -> None:
    assert session
    assert isinstance(run("changelog", *arguments).exception, OptionError)
