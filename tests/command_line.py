"""Run commands in this process, for the tests of the command line."""

import json
from typing import Any

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
