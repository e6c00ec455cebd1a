"""The command that resumes a session is safe to paste."""

import shlex

import pytest
from msgspec import structs

from thresher.memory.ingest.redaction import redact
from thresher.memory.records import ArchivedSession
from thresher.memory.search.resume_command import build_resume_command

SESSION = ArchivedSession(key=1, agent="claude-code", id="abc", project="/w", file="/f")


@pytest.mark.parametrize("windows", [False, True])
@pytest.mark.parametrize("field", ["id", "project"])
@pytest.mark.parametrize(
    "value",
    [
        "/w\x1b]0;'\x07'; touch /tmp/owned; '",  # removing the terminal code would also remove a quote
        "/w\ntouch owned",
        "/w\u202etxt.exe",
        "/w\ud800",
        "--help",
        "/w/ghp_" + "a1B2c3D4e5" * 3 + "f6G7h8",  # redaction would change the quoted text
    ],
)
def test_a_value_that_cannot_be_quoted_safely_gets_no_command(value: str, field: str, windows: bool) -> None:
    hostile = structs.replace(SESSION, **{field: value})
    assert build_resume_command(hostile, redact, windows=windows) == ""


def test_values_are_quoted() -> None:
    special = structs.replace(SESSION, project="/w/$(touch owned) 'x'")
    command = build_resume_command(special, redact, windows=False)
    assert shlex.split(command) == ["cd", special.project, "&&", "claude", "--resume", "abc"]


def test_a_windows_shell_gets_double_quotes_and_no_special_characters() -> None:
    spaced = structs.replace(SESSION, project=r"C:\Users\sam\my shop")
    assert build_resume_command(spaced, windows=True) == r'cd "C:\Users\sam\my shop" && claude --resume abc'
    assert build_resume_command(structs.replace(SESSION, project="C:\\a&b"), windows=True) == ""
