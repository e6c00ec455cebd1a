"""What the tests of real clients share: where they are installed, a home of their own, and an end to every process."""

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
"""Seconds that a client may take."""
# Read before `own_home` takes away what starts with our name.
FOLDER = os.environ.get("THRESHER_CLIENTS", "")
NEEDS_CLIENTS = pytest.mark.skipif(not FOLDER, reason="needs clients from npm: `make clients` runs these")
THRESHER = Path(sys.executable).with_name("thresher")
TOOLS = {
    "get_context", "getCurrentConversation", "getCurrentConversationUpto", "search_sessions", "read_session", "recall",
    "restore", "file_history", "changelog",
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
"""What Codex is told of a scripted model."""


def installed(name: str) -> str:
    """The program of a client."""
    return str(Path(FOLDER, "node_modules", ".bin", name).absolute())


def own_environment(home: Path, **more: str) -> dict[str, str]:
    """What a client and the servers that it starts get to see: nothing of whoever runs the tests."""
    home.mkdir(parents=True, exist_ok=True)
    folders = {"HOME": str(home), "TMPDIR": str(home), "CLAUDE_CODE_TMPDIR": str(home)}
    return {"PATH": os.environ["PATH"], **folders, "THRESHER_HOME": str(home / "thresher"), **more}


def behind_proxy(url: str) -> dict[str, str]:
    """All that is not on loopback goes to a proxy, which refuses it."""
    return {"HTTP_PROXY": url, "HTTPS_PROXY": url, "ALL_PROXY": url, "NO_PROXY": "127.0.0.1,localhost"}


@contextmanager
def started(
    command: list[str], environment: dict[str, str], folder: Path, *, talks: bool = False
) -> Iterator[subprocess.Popen[str]]:
    """A program that is gone afterwards, with all that it started; only one that talks has a standard input."""
    pipe, given = subprocess.PIPE, subprocess.PIPE if talks else subprocess.DEVNULL
    with subprocess.Popen(
        command, env=environment, cwd=folder, stdin=given, stdout=pipe, stderr=pipe, text=True, start_new_session=True
    ) as process:
        # Whoever reads from it line by line would wait for ever.
        watch = Timer(LIMIT + 10, _end, [process.pid])
        watch.start()
        try:
            yield process
        finally:
            watch.cancel()
            _end(process.pid)


def _end(group: int) -> None:
    with suppress(ProcessLookupError):  # nobody is left
        os.killpg(group, signal.SIGKILL)


def ran(command: list[str], environment: dict[str, str], folder: Path) -> str:
    """What a program writes that ends well and soon."""
    with started(command, environment, folder) as process:
        written, problems = process.communicate(timeout=LIMIT)
    assert process.returncode == 0, f"{written}\n{problems}"
    return written


def ran_json(command: list[str], environment: dict[str, str], folder: Path) -> dict[str, Any]:
    """The same for one that writes one JSON object, be it after some words."""
    written = ran(command, environment, folder)
    found: dict[str, Any] = json.loads(written[written.index("{") :])
    return found
