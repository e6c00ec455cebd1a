"""Sessions in the shapes of today's clients: legal at each request, with a stable prefix and the client's own marks."""

import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("aiohttp")
sys.path.append(str(Path(__file__).parents[2] / "dialects"))

from agent import CachingModel
from client_requests import claude_code_request, codex_request, title_request
from test_proxy_fitting import fitting

import thresher as th
from thresher.dialects.cache_control import has_cache_breakpoints, strip_cache_breakpoints

TURNS = 30
CLAUDE = {"X-Claude-Code-Session-Id": "s-1", "x-app": "cli", "anthropic-beta": "a,b"}
CODEX = {"thread-id": "t-1", "x-codex-window-id": "t-1:1", "x-codex-turn-metadata": '{"request_kind":"turn"}'}


def count_breaks(rows: list[list[Any]]) -> int:
    bare = [strip_cache_breakpoints(one) for one in rows]
    return sum(after[: len(before)] != before for before, after in pairwise(bare))


def test_a_session_of_claude_code_with_titles_and_a_sub_agent() -> None:
    with fitting(CachingModel().answer, budget=8_000) as (upstream, _, client):
        client.send(title_request(), **CLAUDE)
        for turn in range(1, TURNS):
            client.send(claude_code_request(turn), **CLAUDE)
            client.send(claude_code_request(turn % 5 + 1), **{**CLAUDE, "x-claude-code-agent-id": "a-1"})
        status = client.status()
    bodies = [seen.json for seen in upstream.requests]
    main = bodies[1::2]
    assert bodies[0] == title_request()
    assert all(th.check(body, "anthropic") == () for body in bodies)
    assert "repair" not in status["total"]["replans"]
    replans = sum(one["replans"].get(name, 0) for one in status["conversations"] for name in one["replans"])
    assert 0 < count_breaks([body["messages"] for body in main]) <= replans
    assert all(has_cache_breakpoints(body["messages"][-1:]) for body in bodies[1:])
    assert all(len(body["tools"]) == 2 and body["output_config"] for body in bodies[1:])
    assert status["conversation_count"] == 2
    assert status["total"]["fallbacks"] == {}


def test_a_session_of_codex_keeps_its_tools_in_every_request() -> None:
    with fitting(CachingModel().answer, budget=8_000) as (upstream, _, client):
        for turn in range(1, TURNS):
            client.send(codex_request(turn), "/v1/responses", **CODEX)
        [conversation] = client.status()["conversations"]
    bodies = [seen.json for seen in upstream.requests]
    assert all(th.check(body, "openai-responses") == () for body in bodies)
    assert all(body["input"][0] == codex_request(1)["input"][0] for body in bodies)
    assert len(bodies[-1]["input"]) < len(codex_request(TURNS - 1)["input"]) or "[thresher" in str(bodies[-1])
    assert 0 < count_breaks([body["input"] for body in bodies]) <= sum(conversation["replans"].values())
    assert conversation["opening"] == "thresher restore ID"
