"""A line of another format among the first lines does not change how a file is read, or it is reported."""

import json
from pathlib import Path

import pytest

import thresher as th
from fixture_files import FIXTURES
from thresher.errors import ReadError
from thresher.transcripts.source import HEAD_LINES

LINE_BASED = sorted(path for path in FIXTURES.glob("*.jsonl") if path.stem.partition(".")[0] == path.stem)
PLAIN = [
    {"role": "user", "content": "A plain question."},
    {"role": "assistant", "content": "A plain answer."},
    {"role": "user", "content": [{"type": "text", "text": "More."}]},
] * 5


def _files() -> dict[str, list[str]]:
    files = {path.stem: path.read_text(encoding="utf-8").splitlines() for path in LINE_BASED}
    return files | {"messages": [json.dumps(row) for row in PLAIN]}


def _texts(path: Path) -> list[str]:
    return [message.text for session in th.read_all(path) for message in session.messages(branches=True)]


@pytest.mark.parametrize("name", [*(path.stem for path in LINE_BASED), "messages"])
def test_one_foreign_line_loses_no_message_silently(name: str, tmp_path: Path) -> None:
    files = _files()
    path = tmp_path / "s.jsonl"
    path.write_text("\n".join(files[name]))
    own = _texts(path)
    for other, rows in files.items():
        for row in {json.dumps(sorted(json.loads(row))): row for row in rows}.values() if other != name else ():
            for place in range(min(HEAD_LINES, len(files[name]))):
                path.write_text("\n".join([*files[name][:place], row, *files[name][place:]]))
                try:
                    sessions = th.read_all(path)
                except ReadError:
                    continue  # reported
                lost = set(own) - set(_texts(path))
                is_reported = any(session.problems for session in sessions)
                assert not lost or is_reported, (other, place, row[:200], sessions[0].agent)


def test_the_majority_of_lines_decides(tmp_path: Path) -> None:
    files = _files()
    path = tmp_path / "s.jsonl"
    path.write_text("\n".join([*files["claude-code"][:3], *files["codex"]]))
    session = th.read(path)
    assert session.agent == "codex"
    assert "3 of the first lines are records of `claude-code`" in [problem.what for problem in session.problems]


def test_a_plain_message_before_the_records_of_an_agent_does_not_hide_them(tmp_path: Path) -> None:
    rows = _files()["pi"]
    path = tmp_path / "s.jsonl"
    path.write_text("\n".join([json.dumps(PLAIN[0]), *rows]))
    session = th.read(path)
    assert session.agent == "pi"
    assert len(session.history) == len(th.read(FIXTURES / "pi.jsonl").history)
