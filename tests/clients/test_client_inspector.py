"""The server, called by the command line of the MCP Inspector: tools, answers and errors over both transports."""

import socket
import time
from pathlib import Path
from typing import Any

import pytest
from real_clients import LIMIT, NEEDS_CLIENTS, THRESHER, TOOLS, installed, own_environment, ran_json, started

from thresher.samples import write_samples

pytestmark = NEEDS_CLIENTS
SHOP = "e923391d"
QUESTION = "why were half pennies lost at the reduced rate?"


@pytest.fixture
def serve(tmp_path: Path) -> list[str]:
    """Return the command that serves the sample sessions."""
    samples = tmp_path / "samples"
    write_samples(samples)
    return [str(THRESHER), "mcp", "--no-discover", "--source", str(samples), "--project", "/home/sam/shop"]


def _asked(folder: Path, server: list[str], tool: str = "", **arguments: str) -> dict[str, Any]:
    """Return the output of the Inspector for a call, or for the list of tools."""
    call = ["--method", "tools/call", "--tool-name", tool] if tool else ["--method", "tools/list"]
    call += [word for name, value in arguments.items() for word in ("--tool-arg", f"{name}={value}")]
    return ran_json([installed("mcp-inspector"), "--cli", *server, *call], own_environment(folder / "home"), folder)


def _text(found: dict[str, Any]) -> str:
    (block,) = found["content"]
    assert block["type"] == "text"
    return str(block["text"])


def test_it_lists_the_tools(serve: list[str], tmp_path: Path) -> None:
    tools = _asked(tmp_path, serve)["tools"]
    assert {tool["name"] for tool in tools} == TOOLS
    assert all(tool["description"] and tool["annotations"]["readOnlyHint"] for tool in tools)


def test_answers_are_right_over_stdio(serve: list[str], tmp_path: Path) -> None:
    found = _asked(tmp_path, serve, "search_sessions", query=QUESTION)
    assert not found.get("isError")
    assert f"\n{SHOP} | /home/sam/shop | " in _text(found)

    context = _text(_asked(tmp_path, serve, "get_context", session=SHOP, max_tokens="3000"))
    assert context.startswith(f'<thresher-recall sessions="{SHOP}-')
    assert "Receipts were a penny off at the reduced rate." in context

    refused = _asked(tmp_path, serve, "get_context", session="nosuchsession")
    assert refused["isError"]
    assert "nosuchsession" in _text(refused)


def test_answers_are_right_over_http(serve: list[str], tmp_path: Path) -> None:
    port = _free_port()
    command = [*serve, "--http", "--port", str(port), "--token", "sesame"]
    with started(command, own_environment(tmp_path / "server-home"), tmp_path):
        _await(port)
        server = [f"http://127.0.0.1:{port}/mcp", "--transport", "http", "--header", "Authorization: Bearer sesame"]
        assert {tool["name"] for tool in _asked(tmp_path, server)["tools"]} == TOOLS
        assert f"\n{SHOP} | " in _text(_asked(tmp_path, server, "search_sessions", query=QUESTION))


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


def _await(port: int) -> None:
    for _ in range(LIMIT * 10):
        with socket.socket() as one:
            if one.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    pytest.fail(f"nothing listens on {port}")
