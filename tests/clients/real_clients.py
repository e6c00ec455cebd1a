"""Shared by the tests of real clients: where they are installed, a separate home, and termination of all processes."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Timer
from typing import Any

import pytest

LIMIT = 60
"""Timeout of a client, in seconds."""
# Read before `own_home` removes all variables of Thresher.
FOLDER = os.environ.get("THRESHER_CLIENTS", "")
NEEDS_CLIENTS = pytest.mark.skipif(not FOLDER, reason="needs clients from npm: `make clients` runs these")
THRESHER = Path(sys.executable).with_name("thresher")
TOOLS = {
    "get_context", "search_sessions", "read_session", "recall", "restore", "file_history", "changelog",
}  # fmt: skip


CODEX = """
model = "scripted"
model_provider = "scripted"
check_for_update_on_startup = false
analytics.enabled = false

[model_providers.scripted]
name = "scripted"
base_url = "{url}/v1"
wire_api = "responses"
env_key = "SCRIPTED_KEY"
"""
"""Settings that connect Codex to a scripted model."""


def installed(name: str) -> str:
    """Return the program of a client."""
    return str(Path(FOLDER, "node_modules", ".bin", name).absolute())


def own_environment(home: Path, **more: str) -> dict[str, str]:
    """Return the environment of a client and its servers, without anything of the user who runs the tests."""
    home.mkdir(parents=True, exist_ok=True)
    folders = {"HOME": str(home), "TMPDIR": str(home), "CLAUDE_CODE_TMPDIR": str(home)}
    return {"PATH": os.environ["PATH"], **folders, "THRESHER_HOME": str(home / "thresher"), **more}


def behind_proxy(url: str) -> dict[str, str]:
    """Return variables that send everything outside loopback to a proxy, which rejects it."""
    return {"HTTP_PROXY": url, "HTTPS_PROXY": url, "ALL_PROXY": url, "NO_PROXY": "127.0.0.1,localhost"}


@contextmanager
def started(
    command: list[str], environment: dict[str, str], folder: Path, *, talks: bool = False
) -> Iterator[subprocess.Popen[str]]:
    """Run a program and end it with all its child processes; only an interactive one has a standard input."""
    pipe, given = subprocess.PIPE, subprocess.PIPE if talks else subprocess.DEVNULL
    with subprocess.Popen(
        command, env=environment, cwd=folder, stdin=given, stdout=pipe, stderr=pipe, text=True, start_new_session=True
    ) as process:
        # A client that reads lines from it would wait forever.
        watch = Timer(LIMIT + 10, _end, [process.pid])
        watch.start()
        try:
            yield process
        finally:
            watch.cancel()
            _end(process.pid)


def _end(group: int) -> None:
    with suppress(ProcessLookupError):  # no process is left
        os.killpg(group, signal.SIGKILL)


def ran(command: list[str], environment: dict[str, str], folder: Path) -> str:
    """Return the output of a program that must succeed in time."""
    with started(command, environment, folder) as process:
        written, problems = process.communicate(timeout=LIMIT)
    assert process.returncode == 0, f"{written}\n{problems}"
    return written


def ran_json(command: list[str], environment: dict[str, str], folder: Path) -> dict[str, Any]:
    """Return the JSON object that a program prints, perhaps after other text."""
    written = ran(command, environment, folder)
    found: dict[str, Any] = json.loads(written[written.index("{") :])
    return found
