"""Check that the command of a server entry starts the MCP server, before the entry is written."""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from thresher.serve.mcp_clients import McpClientError

START_SECONDS = 60


def check_server_starts(command: tuple[str, ...], variables: Mapping[str, str]) -> None:
    """Start the server as a client does, without input, so that it ends at once; raise an error if it fails.

    The client starts it from another folder, and often without the variables of this shell. So the check does without
    `PYTHONPATH`, too.
    """
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            cwd=Path.home().anchor,
            env=environment | dict(variables),
            timeout=START_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise _start_error(command, f"it did not end within {START_SECONDS} seconds") from error
    except OSError as error:
        raise _start_error(command, error.strerror or str(error)) from error
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise _start_error(command, lines[-1].removeprefix("thresher: "))


def _start_error(command: tuple[str, ...], reason: str) -> McpClientError:
    return McpClientError(f"the MCP server does not start, so nothing was written: {reason} (`{' '.join(command)}`)")
