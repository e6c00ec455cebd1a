"""Run commands in this process, for the tests of the command line."""

import json
import os
import re
import subprocess
import sys
from typing import Any

import pytest
from click.testing import CliRunner, Result

from thresher.cli import cli
from thresher.errors import ThresherError


def run(*arguments: str) -> Result:
    """Run a command. Its own errors are in the result; any other exception is raised."""
    result = CliRunner().invoke(cli, arguments)
    if isinstance(result.exception, Exception) and not isinstance(result.exception, ThresherError):
        raise result.exception
    return result


def run_json(*arguments: str) -> Any:
    """Run a command that has to succeed, and parse its `--json` output."""
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def run_in_terminal(*arguments: str, lines: int = 24, columns: int = 80, pager: str = "cat") -> str:
    """Run a command in a terminal, and return its output without styles."""
    pty = pytest.importorskip("pty", reason="needs a Unix terminal")
    leader, follower = pty.openpty()
    size = {"LINES": str(lines), "COLUMNS": str(columns)}
    environment = os.environ | size | {"PAGER": pager, "TERM": "xterm"}
    command = [sys.executable, "-m", "thresher.cli", *arguments]
    process = subprocess.Popen(command, stdin=follower, stdout=follower, stderr=follower, env=environment)
    os.close(follower)
    chunks = []
    while chunk := _read_terminal(leader):
        chunks.append(chunk)
    os.close(leader)
    assert process.wait() == 0
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", b"".join(chunks).decode()).replace("\r", "")


def _read_terminal(leader: int) -> bytes:
    try:
        return os.read(leader, 65536)
    except OSError:  # the program has closed the terminal
        return b""
