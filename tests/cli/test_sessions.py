"""`thresher sessions`: which sessions are listed, in which order, and from where."""

import json
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from command_line import run, run_in_terminal, run_json
from fixture_files import FIXTURES, ready
from thresher.cli import sources
from thresher.model import Session
from thresher.transcripts import read_all

NEWEST = datetime.now(UTC).replace(microsecond=0)


def write_session(folder: Path, number: int, *, age: int = 0, project: str = "/home/me/shop") -> Path:
    """Write a Claude Code session whose last message is `age` days old."""
    time = (NEWEST - timedelta(days=age)).isoformat()
    facts = {"sessionId": f"{number:08d}-0000-4000-8000-000000000000", "cwd": project, "version": "2.0.0"}
    user = {"type": "user", "uuid": "u", "parentUuid": None, "timestamp": time, **facts}
    model = {"type": "assistant", "uuid": "a", "parentUuid": "u", "timestamp": time, **facts}
    rows = [
        user | {"message": {"role": "user", "content": f"Please repair the checkout, case {number}."}},
        model | {"message": {"role": "assistant", "content": [{"type": "text", "text": "Done."}]}},
    ]
    path = folder / f"{facts['sessionId']}.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "sessions"
    place.mkdir()
    for number in range(4):
        write_session(place, number, age=10 * (4 - number), project=f"/home/me/{'shop' if number else 'bank'}")
    return place


def listed(*arguments: str) -> list[int]:
    return [int(row["id"][:8]) for row in run_json("sessions", *arguments)["sessions"]]


def test_the_session_with_the_latest_message_comes_first(folder: Path) -> None:
    write_session(folder, 9, age=15)
    assert listed(str(folder)) == [3, 9, 2, 1, 0]


def test_conditions_and_a_limit_select_sessions(folder: Path) -> None:
    assert listed(str(folder), "--project", "SHOP") == [3, 2, 1]
    assert listed(str(folder), "--since", "25d") == [3, 2]
    assert listed(str(folder), "--limit", "2") == [3, 2]
    assert listed(str(folder), "--agent", "claude-code", "--limit", "1") == [3]
    assert "3 of 4 sessions" in run("sessions", str(folder), "--limit", "3").output


def test_no_match_exits_with_1_and_says_so(folder: Path) -> None:
    result = run("sessions", str(folder), "--agent", "codex")
    assert (result.exit_code, "None of 4 sessions matches" in result.output) == (1, True)
    empty = folder / "empty"
    empty.mkdir()
    result = run("sessions", str(empty))
    assert (result.exit_code, f"No sessions found in `{empty}`." in result.output) == (1, True)


@pytest.mark.parametrize("columns", ["80", "120"])
def test_project_time_and_title_are_visible_on_every_terminal(
    folder: Path, columns: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    write_session(folder, 5, project="/home/me/a/very/long/path/of/folders/to/the/shop")
    lines = run("sessions", str(folder)).output.splitlines()
    assert max(map(len, lines)) <= int(columns)
    row = next(line for line in lines if line.startswith("00000005"))
    assert f"{NEWEST.astimezone():%Y-%m-%d %H:%M}" in row
    assert "/the/shop" in row
    assert "Please repair the checkout" in row


def test_files_of_unknown_format_are_counted_and_listed_on_request(folder: Path) -> None:
    (folder / "notes.txt").write_text("milk")
    result = run("sessions", str(folder))
    assert (result.exit_code, "1 file of unknown format; `--problems` lists them." in result.output) == (0, True)
    assert f"{folder / 'notes.txt'}: unknown format" in run("sessions", str(folder), "--problems").output


def note_read_files(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that receives the name of each file that a command reads."""
    read: list[str] = []

    def note_and_read(path: Path, **options: Any) -> list[Session]:
        read.append(path.name)
        return read_all(path, **options)

    monkeypatch.setattr(sources, "read_all", note_and_read)
    return read


def test_a_lookup_by_id_reads_only_files_that_may_have_the_session(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, path in enumerate(sorted(folder.iterdir())):
        path.rename(folder / f"renamed-{number}.jsonl")
    run("sync", "--no-discover", "--source", str(folder))
    read = note_read_files(monkeypatch)
    assert run_json("show", "00000002", "--no-discover", "--source", str(folder))["id"].startswith("00000002")
    assert set(read) == {"renamed-2.jsonl"}
    read.clear()
    assert "(4 files searched)" in str(run("show", "0000000x", "--no-discover", "--source", str(folder)).exception)
    assert read == []
    new = write_session(folder, 7).rename(folder / "renamed-7.jsonl")
    assert run("show", "00000007", "--no-discover", "--source", str(folder)).exit_code == 0
    assert set(read) == {new.name}


def test_unchanged_files_are_not_read_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "notes.txt").write_text("milk")
    before = [run("sessions", str(folder), *options).output for options in ((), ("--json",), ("--problems",))]
    assert run("sync", "--no-discover", "--source", str(folder)).exit_code == 0
    read = note_read_files(monkeypatch)
    after = [run("sessions", str(folder), *options).output for options in ((), ("--json",), ("--problems",))]
    assert after == before
    assert read == []
    changed = write_session(folder, 2)
    new = write_session(folder, 7, age=1)
    assert listed(str(folder)) == [2, 7, 3, 1, 0]
    assert sorted(read) == sorted([changed.name, new.name])


def test_forgotten_and_deleted_files_are_as_on_disk(folder: Path) -> None:
    run("sync", "--no-discover", "--source", str(folder))
    run("forget", "00000003", "--yes")
    (folder / "00000002-0000-4000-8000-000000000000.jsonl").unlink()
    assert listed(str(folder)) == [3, 1, 0]


def test_a_forgotten_session_of_a_database_is_still_listed(tmp_path: Path) -> None:
    file = str(ready(FIXTURES / "opencode.store.sql", tmp_path))
    arguments = ("sessions", "--no-discover", "--source", file)
    before = run(*arguments, "--json").output
    run("sync", "--no-discover", "--source", file)
    run("forget", "ses_s3NEWER", "--yes")
    assert run(*arguments, "--json").output == before
    assert run("show", "ses_s3", "--no-discover", "--source", file).exit_code == 0


SESSION_FILES = sorted(path for path in FIXTURES.iterdir() if path.is_file() and ".golden." not in path.name)


@pytest.mark.parametrize("path", SESSION_FILES, ids=lambda path: path.name)
def test_the_archive_lists_what_the_file_lists(path: Path, tmp_path: Path) -> None:
    file = str(ready(path, tmp_path))
    arguments = ("sessions", "--no-discover", "--source", file, "--subagents", "--json")
    before = run(*arguments).output
    run("sync", "--no-discover", "--source", file)
    assert run(*arguments).output == before


@pytest.mark.parametrize("command", ["sessions", "show"])
def test_a_terminal_shows_the_output_in_a_pager(command: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = folder if command == "sessions" else next(folder.iterdir())
    shown = run_in_terminal(command, str(place), pager=f"{sys.executable} -c 'print(len(input()) > 0, \"paged\")'")
    assert shown == "True paged\n"  # a pager that ends early is no error
    assert "checkout" in run_in_terminal(command, str(place), pager="no-such-pager")
    monkeypatch.setenv("CLAUDECODE", "1")
    assert "checkout" in run_in_terminal(command, str(place), pager="false")
