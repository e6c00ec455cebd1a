"""The local web application that the proxy and the web page share: bind, host check, token, status, events.

A package adds its own routes with `LocalApp.routes`, its part of the status with `add_status`, and its events with
`events.publish`. Paths under `/thresher/` belong to the application; other paths belong to the package that takes them.
"""

import hmac
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from thresher.errors import OptionError
from thresher.serve.host_names import HostCheck, is_loopback

try:
    from aiohttp import web
    from aiohttp.typedefs import Handler
except ImportError as error:
    raise OptionError(
        "the proxy needs the `aiohttp` package, version 3.12 or newer, which the extra `thresher[serve]` installs: "
        f"{sys.executable} -m pip install 'aiohttp>=3.12'"
    ) from error

from thresher.serve.event_stream import EventStream

OWN_PREFIX = "/thresher/"
TOKEN_HEADER = "X-Thresher-Token"
TOKEN_PATH = "/thresher/token/"
"""Start of a path that carries the token, for clients that can set a base URL but no header."""
MAX_BODY_BYTES = 64 * 1024 * 1024
MAX_HEADER_BYTES = 256 * 1024
"""Maximum size of one header. Some agents send kilobytes of metadata in a header."""
MAX_HEADERS = 512
SHUTDOWN_SECONDS = 3.0
"""Time that open streams get to end when the application stops."""
StatusSource = Callable[[], dict[str, Any]]
CleanUp = Callable[[], Awaitable[None]]


@dataclass(frozen=True, kw_only=True)
class AppOptions:
    """Where the application listens, and who may connect."""

    host: str = "127.0.0.1"
    port: int = 0
    """Port to listen on; 0 for a free one."""
    token: str = ""
    """Token that clients must send; empty for none, which only loopback allows."""
    allowed_hosts: tuple[str, ...] = ()
    """Other names of the server, as `NAME` or `NAME:PORT`."""

    def __post_init__(self) -> None:
        if not self.token and not is_loopback(self.host):
            raise OptionError(f"`{self.host}` is reachable from other machines, so the server needs a token")


class LocalApp:
    """An aiohttp application that answers only the clients that it should."""

    def __init__(self, options: AppOptions) -> None:
        self.options = options
        self.events = EventStream()
        self.port = options.port
        self._hosts = HostCheck(options.host, options.allowed_hosts)
        self._status: dict[str, StatusSource] = {}
        self._clean_ups: list[CleanUp] = []
        self._application = web.Application(middlewares=[self._guard], client_max_size=MAX_BODY_BYTES)
        self._runner: web.AppRunner | None = None
        self.routes.add_get(f"{OWN_PREFIX}status", self._answer_status)
        self.routes.add_get(f"{OWN_PREFIX}events", self.events.answer)
        self.routes.add_route("*", f"{OWN_PREFIX}{{rest:.*}}", _answer_not_found)

    @property
    def routes(self) -> web.UrlDispatcher:
        """Routes of the application."""
        return self._application.router

    @property
    def url(self) -> str:
        """Address of the application, with the token in the path if clients need one."""
        host = f"[{self.options.host}]" if ":" in self.options.host else self.options.host
        token = f"{TOKEN_PATH}{quote(self.options.token, safe='')}" if self.options.token else ""
        return f"http://{host}:{self.port}{token}"

    def add_status(self, name: str, source: StatusSource) -> None:
        """Add a section to `/thresher/status`."""
        self._status[name] = source

    def add_clean_up(self, clean_up: CleanUp) -> None:
        """Add a function to call when the application stops."""
        self._clean_ups.append(clean_up)

    def status(self) -> dict[str, Any]:
        """Return the status of all packages."""
        return {name: source() for name, source in self._status.items()}

    async def start(self) -> None:
        """Listen on the address; raise `OptionError` if that is not possible."""
        self._runner = web.AppRunner(
            self._application,
            handler_cancellation=True,  # otherwise a client that leaves is noticed only at the next write
            auto_decompress=False,
            access_log=None,
            max_line_size=MAX_HEADER_BYTES,
            max_field_size=MAX_HEADER_BYTES,
            max_headers=MAX_HEADERS,
            shutdown_timeout=SHUTDOWN_SECONDS,
        )
        await self._runner.setup()
        site = web.TCPSite(self._runner, self.options.host, self.options.port, reuse_address=True)
        try:
            await site.start()
        except OSError as error:
            await self._runner.cleanup()
            where = f"{self.options.host}:{self.options.port}"
            raise OptionError(f"cannot listen on {where}: {error.strerror or error}; choose another port") from error
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Stop listening, close connections and clean up."""
        self.events.close()
        if self._runner is not None:
            await self._runner.cleanup()
        for clean_up in self._clean_ups:
            await clean_up()

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Answer a request: refuse it, or pass it on."""
        return self._find_refusal(request) or await handler(request)

    def _find_refusal(self, request: web.Request) -> web.Response | None:
        path = request.raw_path
        transport = request.transport
        address, port = transport.get_extra_info("sockname")[:2] if transport is not None else ("", None)
        if not path.startswith("/"):
            return web.Response(status=400, text="This server forwards to a fixed address only.\n")
        if not self._hosts.is_own_host(request.headers.get("Host", ""), address, port):
            advice = "Start it with --allow-host NAME to allow this name."
            return web.Response(status=421, text=f"This server does not answer for this host name. {advice}\n")
        token, path = _split_token(path)
        is_own = path.startswith(OWN_PREFIX)
        origin = request.headers.get("Origin")
        if is_own and origin is not None and not self._hosts.is_own_origin(origin, address, port):
            return web.Response(status=403, text="This server does not answer requests of other web pages.\n")
        given = [token, request.headers.get(TOKEN_HEADER, "")]
        given += [request.headers.get("Authorization", "").removeprefix("Bearer ")] if is_own else []
        if not any(hmac.compare_digest(text.encode(), self.options.token.encode()) for text in given):
            return web.Response(status=401, text=f"This server requires a token: {TOKEN_HEADER}: …\n")
        return None

    async def _answer_status(self, _request: web.Request) -> web.Response:
        return web.json_response(self.status())


async def _answer_not_found(_request: web.Request) -> web.Response:
    return web.Response(status=404, text="There is no such page. `/thresher/status` shows the state of the server.\n")


def get_requested_path(request: web.Request) -> str:
    """Return the raw path and query of a request, without a token."""
    return _split_token(request.raw_path)[1]


def _split_token(path: str) -> tuple[str, str]:
    """Split a path into the token that it carries and the rest."""
    if not path.startswith(TOKEN_PATH):
        return "", path
    token, slash, rest = path.removeprefix(TOKEN_PATH).partition("/")
    return token, slash + rest or "/"
