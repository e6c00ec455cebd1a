"""A stream of server-sent events: what the proxy does, for a page or a terminal that follows it."""

import asyncio
from collections import deque
from contextlib import suppress
from typing import Any

from aiohttp import web

from thresher.model.jsontext import dump_json

KEPT_EVENTS = 200
"""Number of past events that a new subscriber receives."""
QUEUED_EVENTS = 1_000
"""Maximum number of events that wait for a slow subscriber; older ones are skipped."""
PING_SECONDS = 15.0


class EventStream:
    """Published events, and the clients that follow them. Events are published in the loop of the application."""

    def __init__(self) -> None:
        self._number = 0
        self._past: deque[bytes] = deque(maxlen=KEPT_EVENTS)
        self._subscribers: set[asyncio.Queue[bytes | None]] = set()

    def publish(self, kind: str, data: dict[str, Any]) -> None:
        """Send an event to all subscribers."""
        self._number += 1
        event = f"id: {self._number}\nevent: {kind}\ndata: {dump_json(data)}\n\n".encode()
        self._past.append(event)
        for queue in self._subscribers:
            _put_latest(queue, event)

    def close(self) -> None:
        """End the streams of all subscribers."""
        for queue in self._subscribers:
            _put_latest(queue, None)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Stream past and future events until the client leaves."""
        headers = {"Content-Type": "text/event-stream", "Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        response = web.StreamResponse(headers=headers)
        await response.prepare(request)
        queue: asyncio.Queue[bytes | None] = asyncio.Queue(QUEUED_EVENTS)
        past = b"".join(self._past)
        self._subscribers.add(queue)
        try:
            await response.write(past or b": no events yet\n\n")
            with suppress(ConnectionError):
                await _send_events(response, queue)
        finally:
            self._subscribers.discard(queue)
        return response


async def _send_events(response: web.StreamResponse, queue: asyncio.Queue[bytes | None]) -> None:
    while True:
        try:
            event = await asyncio.wait_for(queue.get(), PING_SECONDS)
        except TimeoutError:
            event = b": ping\n\n"
        if event is None:
            return
        await response.write(event)


def _put_latest(queue: asyncio.Queue[bytes | None], event: bytes | None) -> None:
    if queue.full():
        queue.get_nowait()
    queue.put_nowait(event)
