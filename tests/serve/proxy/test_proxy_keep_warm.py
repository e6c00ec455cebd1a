"""Idle caches are kept warm only if the user wants it, and only within the limit."""

import asyncio

import pytest

pytest.importorskip("aiohttp")

from agent import MODEL, CachingModel, Client, agent_request, answer_messages
from loopback import LoopbackUpstream, loopback_upstream, running_proxy
from test_proxy_fitting import fitting

from thresher.model.message import Usage
from thresher.serve.proxy.keep_warm import MAX_PINGS, KeepWarm, SentTurn
from thresher.tokens import find_model


@pytest.fixture
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the cache expire at once."""
    monkeypatch.setattr("thresher.serve.proxy.keep_warm.MARGIN_SECONDS", 3600.0)
    monkeypatch.setattr("thresher.serve.proxy.keep_warm.MIN_TOKENS", 100)


def wait_for_requests(upstream: LoopbackUpstream, client: Client, count: int) -> None:
    for _ in range(20_000):
        client.status()
        if len(upstream.requests) >= count:
            return
    raise AssertionError("the requests did not arrive")


@pytest.mark.usefixtures("no_waiting")
def test_the_same_bytes_are_sent_again_until_the_maximum() -> None:
    with fitting(CachingModel().answer, keep_warm=1.0) as (upstream, _, client):
        client.send(agent_request(3, stream=True))
        wait_for_requests(upstream, client, 1 + MAX_PINGS)
        status = client.status()
        client.send(agent_request(3, stream=True), x_thresher="off")
    assert len({seen.body for seen in upstream.requests}) == 1
    assert [seen.header("authorization") for seen in upstream.requests] == [["Bearer sk-secret"]] * (MAX_PINGS + 2)
    assert status["keep_warm"]["requests"] == MAX_PINGS
    assert 0 < status["keep_warm"]["cost"] < 1.0
    assert status["total"]["requests"] == 1


@pytest.mark.usefixtures("no_waiting")
def test_the_limit_is_never_exceeded() -> None:
    model = find_model(MODEL)
    assert model is not None
    tokens = len(str(agent_request(3))) // 4
    limit = model.price.cache_read * tokens * 2.9 / 1_000_000
    with fitting(CachingModel().answer, keep_warm=limit) as (upstream, _, client):
        client.send(agent_request(3, stream=True))
        wait_for_requests(upstream, client, 3)
        client.send(agent_request(1))
        status = client.status()
    assert status["keep_warm"]["cost"] <= limit
    assert status["keep_warm"]["requests"] <= 3


@pytest.mark.usefixtures("no_waiting")
def test_it_is_off_by_default_and_stops_where_the_cache_does_not_serve() -> None:
    with loopback_upstream(CachingModel().answer) as upstream, running_proxy(upstream.url) as proxy:
        client = Client(proxy.url)
        client.send(agent_request(3, stream=True))
        assert client.status()["keep_warm"] == {"limit": 0.0, "cost": 0.0, "requests": 0}
        client.close()
    with fitting(answer_messages, keep_warm=1.0) as (upstream, _, client):
        client.send(agent_request(3, stream=True))  # this model caches nothing
        assert client.status()["keep_warm"]["requests"] == 0


def test_a_new_request_stops_the_repetitions() -> None:
    async def watch_and_cancel() -> tuple[bool, bool]:
        keep = KeepWarm(1.0)
        turn = SentTurn("http://127.0.0.1:1", None, b"", MODEL, Usage(cache_read=90_000), print)  # type: ignore[arg-type]
        keep.watch("key", None, turn)  # type: ignore[arg-type]
        task = keep._tasks["key"]
        keep.cancel("key")
        await asyncio.wait([task])
        return task.cancelled(), not keep._tasks

    assert asyncio.run(watch_and_cancel()) == (True, True)
