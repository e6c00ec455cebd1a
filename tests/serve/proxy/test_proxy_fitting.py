"""Requests that grow beyond the budget are fitted, with a stable prefix; everything else stays as it was."""

import asyncio
import gzip
import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from threading import Event
from typing import Any
from urllib.request import Request, urlopen

import pytest

pytest.importorskip("aiohttp")

from agent import BUDGET, MODEL, Client, agent_request, answer_messages, dump
from aiohttp import web
from loopback import PATIENCE, LoopbackUpstream, loopback_upstream, running_proxy

import thresher as th
from thresher.serve.proxy.running import RunningProxy

LONG = 24
"""Turns that exceed the budget."""


@contextmanager
def fitting(answer: Any = answer_messages, **options: Any) -> Iterator[tuple[LoopbackUpstream, RunningProxy, Client]]:
    chosen = {"budget": BUDGET, "fit_timeout": 20.0, **options}
    with loopback_upstream(answer) as upstream, running_proxy(upstream.url, **chosen) as proxy:
        client = Client(proxy.url)
        try:
            yield upstream, proxy, client
        finally:
            client.close()


def test_a_request_that_fits_reaches_the_upstream_byte_for_byte() -> None:
    body = dump(agent_request(3)).replace(b'"max_tokens": 9', b'"max_tokens":  9 , "x": 1.50e1')
    with fitting() as (upstream, _, client):
        assert client.send(body)[0] == 200
        total = client.status()["total"]
    assert upstream.requests[0].body == body
    assert total["unchanged"] == {"fits": 1}


def test_a_long_request_is_fitted_and_keeps_the_bytes_of_unchanged_rows() -> None:
    request = agent_request(LONG)
    with fitting() as (upstream, _, client):
        client.send(request)
    [seen] = upstream.requests
    assert th.count(seen.json["messages"], model=MODEL) <= BUDGET
    assert th.check(seen.json, "anthropic") == ()
    whole, sent = dump(request).decode(), seen.body.decode()
    assert sent.startswith(whole[: whole.index('"messages"')])
    kept = [row for row in seen.json["messages"] if row in request["messages"]]
    assert kept
    assert all(json.dumps(row, indent=1).replace("\n", "\n  ") in sent for row in kept)


def test_the_prefix_stays_the_same_between_replans_and_over_a_restart() -> None:
    bodies: list[bytes] = []
    for turns in (range(1, 30), range(30, 45)):
        with fitting() as (upstream, _, client):
            for turn in turns:
                client.send(agent_request(turn))
            bodies += [seen.body for seen in upstream.requests]
            replans = sum(client.status()["total"]["replans"].values())
    rows = [json.loads(body)["messages"] for body in bodies]
    pairs = enumerate(pairwise(rows))
    breaks = [turn for turn, (before, after) in pairs if after[: len(before)] != before]
    assert 0 < len(breaks) < 10
    assert len(bodies[28]) < len(dump(agent_request(29)))
    assert 28 not in breaks  # the first request after the restart
    assert replans > 0


def test_the_same_request_twice_has_the_same_bytes() -> None:
    with fitting() as (upstream, _, client):
        for _ in range(2):
            client.send(agent_request(LONG))
    first, second = upstream.requests
    assert first.body == second.body


@pytest.mark.parametrize("encoding", ["gzip", "zstd", "identity"])
@pytest.mark.parametrize("turns", [2, LONG])
def test_compressed_requests_are_fitted_or_pass_as_they_are(encoding: str, turns: int) -> None:
    plain = dump(agent_request(turns))
    zstd = pytest.importorskip("backports.zstd") if encoding == "zstd" else None
    body = gzip.compress(plain, mtime=0) if encoding == "gzip" else zstd.compress(plain) if zstd else plain
    with fitting() as (upstream, _, client):
        client.send(body, Content_Encoding=encoding)
    [seen] = upstream.requests
    if turns == 2:
        assert (seen.body, seen.header("content-encoding")) == (body, [encoding])
    else:
        assert (seen.header("content-encoding"), len(seen.body) < len(plain)) == ([], True)
        assert th.check(seen.json, "anthropic") == ()


@pytest.mark.parametrize("body", [b"", b"not json", b"[1]", b'{"messages": 5}', gzip.compress(b"{}", mtime=0)[:-4]])
def test_an_unreadable_body_passes_as_it_is(body: bytes) -> None:
    with fitting() as (upstream, _, client):
        assert client.send(body)[0] == 200
        passed = client.status()["passed_through"]
    assert upstream.requests[0].body == body
    assert passed["unreadable"] == 1


def test_a_header_a_switch_and_observe_leave_requests_unchanged() -> None:
    body = dump(agent_request(LONG))
    with fitting() as (upstream, proxy, client):
        client.send(body, x_thresher="off")
        proxy.set_bypass(on=True)
        client.status()  # the switch is set in the loop before it answers
        client.send(body)
        proxy.set_bypass(on=False)
        status = client.status()
        client.send(body)
    assert status["passed_through"] == {"off": 1, "bypass": 1}
    assert [seen.body == body for seen in upstream.requests] == [True, True, False]


def test_observe_changes_and_stores_nothing_and_prices_everything(tmp_path: Path) -> None:
    with fitting(observe=True) as (upstream, _, client):
        for turn in range(1, LONG):
            client.send(agent_request(turn))
        status = client.status()
    assert all(seen.body == dump(agent_request(turn)) for turn, seen in enumerate(upstream.requests, 1))
    assert status["observe"] is True
    assert status["total"]["unchanged"] == {"observe": LONG - 1}
    assert status["total"]["replans"]
    assert status["total"]["tokens"]["sent"] < status["total"]["tokens"]["original"]
    assert status["total"]["tokens"]["original"] == status["total"]["tokens"]["input"]
    assert status["total"]["cost"]["with_thresher"] < status["total"]["cost"]["without_thresher"]
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_vendors_error_reaches_the_client_unchanged_and_nothing_is_sent_again() -> None:
    for status in (401, 429, 500, 529):

        async def answer(_request: web.Request, status: int = status) -> web.StreamResponse:
            return web.Response(status=status, text="messages.1: no", headers={"Retry-After": "3"})

        with fitting(answer) as (upstream, _, client):
            assert client.send(agent_request(LONG)) == (status, b"messages.1: no")
            assert len(upstream.requests) == 1


def test_nothing_secret_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)

    async def answer(_request: web.Request) -> web.StreamResponse:
        return web.json_response({"error": {"message": "messages.1: tool_use secret-word"}}, status=400)

    with fitting(answer) as (_, _proxy, client):
        client.send(agent_request(LONG), "/v1/messages?key=sk-query", Cookie="sk-cookie")
        client.send(b"{secret-word", "/v1/messages?key=sk-query")
    logged = "\n".join(record.getMessage() + str(record.exc_text or "") for record in caplog.records)
    assert "refused" in logged
    for secret in ("sk-secret", "sk-query", "sk-cookie", "secret-word", "line of module", "m1.py"):
        assert secret not in logged


def test_a_body_over_the_limit_passes_as_it_arrives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("thresher.serve.proxy.request_body.MAX_BODY_BYTES", 10_000)
    body = dump(agent_request(LONG))
    with fitting() as (upstream, _, client):
        assert client.send(body)[0] == 200
        assert client.send(gzip.compress(body, mtime=0), Content_Encoding="gzip")[0] == 200
        passed = client.status()["passed_through"]
    assert upstream.requests[0].body == body
    assert passed == {"too_large": 1, "unreadable": 1}


@pytest.mark.parametrize("turns", [1, LONG])
def test_a_client_that_leaves_cancels_a_fitted_request(turns: int) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(b"data: 1\n\n")
        await asyncio.sleep(PATIENCE)
        return response

    with fitting(answer) as (upstream, proxy, _):
        leaving = Client(proxy.url)
        leaving.send_and_leave(agent_request(turns, stream=True))
        while not upstream.requests:
            proxy.status()
        leaving.close()
        assert upstream.cancelled.wait(PATIENCE)


def test_the_answer_streams_before_its_end() -> None:
    sent = Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(b"data: 1\n\n")
        while not sent.is_set():
            await asyncio.sleep(0.001)
        await response.write(b"data: 2\n\n")
        return response

    with fitting(answer) as (_, proxy, _client):
        request = Request(f"{proxy.url}/v1/messages", data=dump(agent_request(LONG, stream=True)))
        with urlopen(request, timeout=PATIENCE) as stream:
            assert stream.readline() == b"data: 1\n"
            sent.set()
            assert stream.read() == b"\ndata: 2\n\n"
