"""Keep the prompt cache of idle conversations warm, within a hard limit on the dollars that this costs.

Shortly before the cache of a conversation expires, its latest request is sent again, byte for byte, and the connection
is closed as soon as the answer begins. The vendor bills a cache read, and the cache lives on. Without this, a user who
returns after a break pays for a new cache.

Each conversation keeps its latest request and its headers in memory for this, with the API key. It is off by default.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, NamedTuple

from aiohttp import ClientError
from multidict import CIMultiDict

from thresher.model.message import Usage
from thresher.serve.proxy.upstream import Upstream
from thresher.serve.proxy.usage_reader import UsageReader
from thresher.tokens import find_model

MARGIN_SECONDS = 30.0
"""Time before the cache expires at which a request is sent again."""
MAX_PINGS = 6
"""Maximum number of repetitions after one request. More cost about as much as a new cache."""
MIN_TOKENS = 5_000
"""Smaller caches are not worth a request."""
PING_SECONDS = 60.0
log = logging.getLogger("thresher.proxy")


class SentTurn(NamedTuple):
    """A request that was answered, to send again."""

    url: str
    headers: CIMultiDict[str]
    data: bytes
    model: str
    usage: Usage
    on_refresh: Callable[[], Any]
    """Called after the cache was refreshed."""


class KeepWarm:
    """The idle conversations of a proxy, and what keeping their caches warm has cost."""

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self.cost = 0.0
        self.pings = 0
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as JSON values."""
        return {"limit": self._limit, "cost": round(self.cost, 6), "requests": self.pings}

    def cancel(self, key: str) -> None:
        """Stop the repetitions of a conversation, because it has a new request."""
        task = self._tasks.pop(key, None)
        if task is not None:
            task.cancel()

    def close(self) -> None:
        """Stop all repetitions."""
        for key in list(self._tasks):
            self.cancel(key)

    def watch(self, key: str, client: Upstream, turn: SentTurn) -> None:
        """Repeat a request while its conversation is idle, if its cache is worth it."""
        self.cancel(key)
        info = find_model(turn.model) if turn.model else None
        is_cached = turn.usage.cache_read + turn.usage.cache_write >= MIN_TOKENS
        if not self._limit or info is None or not is_cached:
            return
        life = 3600 if turn.usage.cache_write_1h else info.cache_ttl
        price = info.price.cache_read * turn.usage.context / 1_000_000
        task = asyncio.ensure_future(self._repeat(client, turn, max(0.0, life - MARGIN_SECONDS), price))
        self._tasks[key] = task
        task.add_done_callback(lambda done: self._forget(key, done))

    def _forget(self, key: str, done: "asyncio.Task[None]") -> None:
        if self._tasks.get(key) is done:
            del self._tasks[key]

    async def _repeat(self, client: Upstream, turn: SentTurn, seconds: float, price: float) -> None:
        for _ in range(MAX_PINGS):
            await asyncio.sleep(seconds)
            if self.cost + price > self._limit:
                return
            self.cost += price  # before the request, so that parallel ones cannot exceed the limit
            self.pings += 1
            try:
                async with asyncio.timeout(PING_SECONDS):
                    is_warm = await _refresh(client, turn)
            except (ClientError, TimeoutError, OSError) as error:
                log.warning("a cache could not be kept warm: %s", type(error).__name__)
                return
            if not is_warm:
                return
            turn.on_refresh()


async def _refresh(client: Upstream, turn: SentTurn) -> bool:
    """Send a request again until its answer begins; return True if the vendor read the cache."""
    async with client.send("POST", turn.url, turn.headers, turn.data) as answer:
        if answer.status != 200:
            return False
        reader = UsageReader(answer.headers.get("Content-Type", ""), answer.headers.get("Content-Encoding", ""))
        async for chunk in answer.content.iter_any():
            reader.feed(chunk)
            usage = reader.current()
            if usage is not None:
                return usage.cache_read > 0
    return False
