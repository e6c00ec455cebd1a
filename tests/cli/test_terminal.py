"""Nothing in a transcript controls the terminal, whatever command prints it."""

import io
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from thresher.cli import COMMANDS, main
from thresher.cli.common import print_content, print_json
from thresher.render.text import escape_json_controls, strip_control_codes

EVIL = "\x1b[2J\x1b]0;owned\x07\x9b31m\u202egnp\u2066\r\x08[/x][red]:skull:"
"""Codes that clear the screen, set the title and color, reverse the text, return to the start, and rich's markup."""
ID = f"abcd\x1b[2J{'a' * 3}-\u202e[/x]-cccc-dddd-eeeeeeeeee"
"""An id with the length and the dashes of a UUID, which is printed by its first characters."""
DANGEROUS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u206f]")
STYLE = re.compile(r"\x1b\[(?:[0-9;]*)m")
"""Color codes, which rich prints itself."""


def _rows() -> list[dict[str, Any]]:
    path = f"/srv/{EVIL}/a.py"
    call = {"type": "tool_use", "id": f"c{EVIL}", "name": f"Write{EVIL}", "input": {"file_path": path, "content": EVIL}}
    edit = {
        "type": "tool_use",
        "id": "c2",
        "name": "Write",
        "input": {"file_path": path, "content": f"quince {EVIL}\n"},
    }
    results = [{"type": "tool_result", "tool_use_id": id, "content": f"ok {EVIL}"} for id in (call["id"], "c2")]
    turns: list[tuple[str, Any]] = [
        ("user", f"plant the quince {EVIL}"),
        ("assistant", [{"type": "text", "text": f"a quince {EVIL}"}, call, edit]),
        ("user", results),
        ("assistant", [{"type": "text", "text": f"the quince is planted {EVIL}"}]),
    ]
    facts = {"sessionId": ID, "cwd": f"/srv/{EVIL}", "gitBranch": EVIL, "version": EVIL}
    return [
        {
            **facts,
            "type": role,
            "uuid": f"{n}{EVIL}",
            "parentUuid": f"{n - 1}{EVIL}" if n else None,
            "timestamp": f"2026-03-01T00:0{n}:00Z",
            "message": {"role": role, "content": content, "model": f"m{EVIL}", "id": f"x{n}"},
        }
        for n, (role, content) in enumerate(turns)
    ]


@pytest.fixture
def session(tmp_path: Path) -> Path:
    """A session with dangerous text in every field and in its file's name, next to a broken file."""
    folder = tmp_path / "files"
    folder.mkdir()
    name = EVIL.replace("/", "|")
    path = folder / f"s{name}.jsonl"
    title = {"type": "summary", "summary": f"title {EVIL}", "leafUuid": f"3{EVIL}"}
    path.write_text("\n".join(map(json.dumps, [*_rows(), title])) + f"\n{{broken {EVIL}\n")
    (folder / f"broken{name}.jsonl").write_text('{"trajectory": [{"action": "ls", "obser')
    (folder / f"{name}.json").mkdir()
    return path


SERVERS = ("mcp", "proxy", "run")
"""Commands that print no JSON."""
Runner = Callable[..., tuple[str, str]]


@pytest.fixture
def run_main(monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> Runner:
    """Run the program with arguments; return its output and its errors."""

    def run(*arguments: str) -> tuple[str, str]:
        monkeypatch.setattr(sys, "argv", ["thresher", *arguments])
        with pytest.raises(SystemExit):
            main()
        sys.stdout.flush()
        output, errors = capfdbinary.readouterr()
        return output.decode(), errors.decode()

    return run


def _arguments(session: Path, folder: Path) -> dict[str, list[list[str]]]:
    """Return arguments for every command, several times for a command with several outputs."""
    source, file = ["--no-discover", "--source", str(session.parent)], str(session)
    return {
        "demo": [[str(folder / f"demo{EVIL.replace('/', '|')}")]],
        "sessions": [source, ["--problems", *source], [str(session.parent)]],
        "search": [["quince", *source], ["--all", "--field", "paths", "a.py", *source], ["nothing", *source]],
        "recall": [[ID[:4], "quince", *source], ["none" + EVIL, "quince", *source]],
        "show": [
            [file], [file, "--full"], [file, "--around", "1"], [file, "-p", "smart"], ["x" + EVIL],
            [file, "--child", "x"],
        ],
        "files": [[file], [file, "a.py"], [file, "x" + EVIL]],
        "changelog": [[file], [ID[:4], *source]],
        "fit": [[file], [file, "-b", "100"], [file, "--to", "text"], [file, "--to", "anthropic"]],
        "check": [[file], [file, "--dialect", "openai-chat"]],
        "restore": [["t1:0123" + EVIL]],
        "convert": [[file, "--to", "openai-chat"], [file, "--to", "gemini"]],
        "replay": [[file, "--policy", "smart", "--budget", "1k"]],
        "tune": [[file]],
        "install": [["claude-code"]],
        "mcp": [["--help"]],
        "proxy": [["--help"], ["--upstream", EVIL]],
        "run": [["--help"], ["x" + EVIL]],
        "sync": [source],
        "annotate": [["--dry-run", *source]],
        "forget": [[ID[:4], "--dry-run"], ["x" + EVIL], [ID[:4], "--yes"]],
    }  # fmt: skip


@pytest.mark.parametrize("as_json", [False, True], ids=["text", "json"])
@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_prints_a_terminal_code_of_a_transcript(
    command: str, as_json: bool, session: Path, tmp_path: Path, run_main: Runner
) -> None:
    run_main("sync", "--no-discover", "--source", str(session.parent))
    for arguments in _arguments(session, tmp_path)[command]:
        for text in run_main(command, *arguments, *(["--json"] if as_json and command not in SERVERS else [])):
            assert "No such option" not in text, (command, arguments)  # it would print nothing of the session
            assert not DANGEROUS.search(text), (command, arguments, DANGEROUS.findall(text))


@pytest.mark.parametrize("command", ["sessions", "show", "fit", "replay", "files"])
def test_a_terminal_receives_only_our_own_styles(
    command: str, session: Path, tmp_path: Path, run_main: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    for arguments in _arguments(session, tmp_path)[command]:
        output, errors = run_main(command, *arguments)
        assert not DANGEROUS.search(STYLE.sub("", output))
        assert not DANGEROUS.search(errors)


def test_markup_in_a_session_id_is_text(session: Path, run_main: Runner) -> None:
    output, _ = run_main("show", str(session))
    assert "[/x]" in output
    assert "[red]:skull:" in output


def test_json_output_has_the_same_values(capsys: pytest.CaptureFixture[str]) -> None:
    value = {"text": EVIL + "\x7f\U000e0041é漢🌾\u2028"}
    print_json(value)
    printed = capsys.readouterr().out
    assert json.loads(printed) == value
    assert not DANGEROUS.search(printed)


def test_safe_text_keeps_lines_and_tabs() -> None:
    assert strip_control_codes("a\tb\nc é漢🌾") == "a\tb\nc é漢🌾"
    assert strip_control_codes(EVIL) == "31mgnp[/x][red]:skull:"
    assert strip_control_codes("\x1b" * 9 + "[0m" + "\U000e0041\ud83d") == "?"
    assert escape_json_controls('"é\n\x9b\U000e0041"') == '"é\n\\u009b\\udb40\\udc41"'


class Terminal(io.TextIOWrapper):
    """An output stream that is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("stream", [Terminal, io.TextIOWrapper], ids=["terminal", "pipe"])
def test_content_is_unchanged_in_a_pipe_only(stream: type[io.TextIOWrapper], monkeypatch: pytest.MonkeyPatch) -> None:
    buffer = io.BytesIO()
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", stream(buffer, encoding="utf-8"))
        print_content(EVIL)
        sys.stdout.flush()
        printed = buffer.getvalue().decode()
    assert printed == (strip_control_codes(EVIL) if stream is Terminal else EVIL)
