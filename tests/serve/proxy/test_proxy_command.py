"""The status of a running proxy, as the command prints it."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("aiohttp")

from agent import agent_request
from click.testing import CliRunner
from loopback import port_of
from test_proxy_fitting import LONG, fitting

from thresher.cli.proxy import proxy_command
from thresher.errors import OptionError
from thresher.serve.app import AppOptions
from thresher.serve.proxy.options import ProxyOptions
from thresher.serve.proxy.status_client import fetch_status

COUNTS = {"unchanged", "fallbacks", "refusals", "replans", "problems", "passed_through", "edits", "inconclusive"}
COUNTS |= {"thresher_misses", "other_misses"}
"""Keys whose content is counts by reason."""


def test_the_status_of_a_running_proxy_is_printed_as_text_and_json() -> None:
    with fitting() as (_, proxy, client):
        for turn in (1, LONG):
            client.send(agent_request(turn))
        arguments = ["--status", "--port", str(port_of(proxy.url))]
        text = CliRunner().invoke(proxy_command, arguments).output
        value = json.loads(CliRunner().invoke(proxy_command, [*arguments, "--json"]).output)
        status = proxy.status()["proxy"]
    assert value.pop("schema") == 1
    assert value == status
    assert "requests       2, 1 changed, 1 conversation" in text
    assert "fallbacks      none" in text
    assert "without Thresher (estimate)" in text
    assert "claude-sonnet-4-5" in text


def collect_keys(value: Any) -> set[str]:
    """Return the keys of a status, those of counts aside."""
    if isinstance(value, list):
        return set().union(*map(collect_keys, value))
    if not isinstance(value, dict):
        return set()
    return set(value).union(*(collect_keys(inner) for key, inner in value.items() if key not in COUNTS))


def test_the_page_of_json_keys_lists_those_of_the_status() -> None:
    page = (Path(__file__).parents[3] / "docs" / "reference" / "json.md").read_text(encoding="utf-8")
    block = page.split("## thresher proxy")[1].split("```")[1]
    with fitting() as (_, proxy, client):
        client.send(agent_request(LONG))
        client.send(agent_request(LONG))
        status = proxy.status()["proxy"]
    assert collect_keys(status) | {"schema"} | COUNTS == set(re.findall(r"\w+", block))


def test_the_status_of_a_proxy_with_a_token_needs_it() -> None:
    with fitting(app=AppOptions(token="sesame")) as (_, proxy, _client):
        port = port_of(proxy.url)
        assert fetch_status("127.0.0.1", port, "sesame")["requests"] == 0
        with pytest.raises(OptionError, match="no proxy answers"):
            fetch_status("127.0.0.1", port)


@pytest.mark.parametrize("wrong", [{"policy": "nothing"}, {"budget": 0}, {"budget": "many"}, {"fit_timeout": 0}])
def test_wrong_options_are_errors_at_the_start(wrong: dict[str, object]) -> None:
    with pytest.raises(OptionError):
        ProxyOptions(**wrong)  # type: ignore[arg-type]


@pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="the system has no such signal")
def test_a_signal_switches_the_proxy_off_and_on() -> None:
    command = [sys.executable, "-m", "thresher.cli", "proxy", "--port", "0", "--observe"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ, "NO_COLOR": "1"}) as process:
        assert process.stderr is not None
        found = re.search(r":(\d+) \(changes no request\)", process.stderr.readline())
        assert found is not None
        port = int(found[1])
        for expected in ("requests pass through unchanged", "requests are fitted again"):
            process.send_signal(signal.SIGUSR1)
            assert expected in process.stderr.readline()
            assert fetch_status("127.0.0.1", port)["bypass"] == (expected == "requests pass through unchanged")
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == 0
