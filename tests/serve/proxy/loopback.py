"""A model's API on loopback, for tests of the proxy: it records requests, and answers as a test says."""

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Event, Thread
from typing import Any

from aiohttp import web

from thresher.serve.app import AppOptions
from thresher.serve.proxy.options import ProxyOptions
from thresher.serve.proxy.running import RunningProxy, start_proxy

PATIENCE = 30
BODY = web.RequestKey("body", bytes)
"""Seconds after which a test gives up on what a correct proxy does at once."""
Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass
class Received:
    """A request that reached the upstream."""

    method: str
    path: str
    headers: list[tuple[str, str]]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    def header(self, name: str) -> list[str]:
        return [value for key, value in self.headers if key.lower() == name.lower()]


async def answer_hello(_request: web.Request) -> web.StreamResponse:
    return web.json_response({"hello": "world"})


@dataclass
class LoopbackUpstream:
    """An HTTP server in a thread."""

    answer: Answer = answer_hello
    requests: list[Received] = field(default_factory=list)
    cancelled: Event = field(default_factory=Event)
    """Set when a client left before its answer was complete."""
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        headers = [(name.decode(), value.decode()) for name, value in request.raw_headers]
        body = await request.content.read()
        request[BODY] = body
        self.requests.append(Received(request.method, request.raw_path, headers, body))
        try:
            return await self.answer(request)  # type: ignore[arg-type]
        except (asyncio.CancelledError, ConnectionError):
            self.cancelled.set()
            raise

    def run(self, loop: asyncio.AbstractEventLoop, ready: Event) -> None:
        async def start() -> web.ServerRunner:
            server = web.Server(
                self._handle, handler_cancellation=True, auto_decompress=False, max_field_size=2**20, access_log=None
            )
            runner = web.ServerRunner(server, shutdown_timeout=0.1)
            await runner.setup()
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            self.port = runner.addresses[0][1]
            return runner

        runner = loop.run_until_complete(start())
        ready.set()
        loop.run_forever()
        loop.run_until_complete(runner.cleanup())
        loop.close()


@contextmanager
def loopback_upstream(answer: Answer = answer_hello) -> Iterator[LoopbackUpstream]:
    upstream = LoopbackUpstream(answer)
    loop, ready = asyncio.new_event_loop(), Event()
    thread = Thread(target=upstream.run, args=(loop, ready), daemon=True)
    thread.start()
    assert ready.wait(PATIENCE)
    try:
        yield upstream
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(PATIENCE)


@contextmanager
def running_proxy(upstream: str, *, app: AppOptions | None = None, **options: Any) -> Iterator[RunningProxy]:
    proxy = start_proxy(ProxyOptions(app=app or AppOptions(), upstreams={"": upstream}, **options))
    try:
        yield proxy
    finally:
        proxy.stop()


def port_of(url: str) -> int:
    return int(url.split(":")[2].split("/", maxsplit=1)[0])


def send_raw(port: int, data: bytes, *, until_closed: bool = True) -> bytes:
    """Send bytes over a socket and return all bytes of the answer."""
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as connection:
        connection.sendall(data)
        received = b""
        while chunk := connection.recv(65536):
            received += chunk
            if not until_closed:
                break
        return received
