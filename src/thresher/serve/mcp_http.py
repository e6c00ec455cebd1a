"""The MCP server over HTTP: who may connect, and how long a request and a session may last.

The server of the SDK waits for a client as long as the client likes. So a connection is closed if a request is not
complete in time, and a session is freed if its client is silent for some time. A client that comes back starts a new
session.
"""

from asyncio import Transport
from asyncio.events import TimerHandle
from dataclasses import dataclass

import h11
import uvicorn
from mcp.server.transport_security import TransportSecuritySettings
from uvicorn.protocols.http.h11_impl import H11Protocol

from thresher.errors import OptionError
from thresher.serve.host_names import is_loopback
from thresher.serve.mcp import build_mcp_server
from thresher.serve.mcp_tools import McpTools
from thresher.serve.request_guard import RequestGuard

IDLE_SECONDS = 600.0
"""Default time after which a session without requests is freed."""
SHUTDOWN_SECONDS = 3
"""Time that open streams get to end when the server stops."""


@dataclass(frozen=True, kw_only=True)
class HttpServerOptions:
    """Options of the HTTP server."""

    host: str = "127.0.0.1"
    port: int = 8765
    token: str = ""
    """Token that clients must send; empty for none, which only loopback allows."""
    allowed_hosts: tuple[str, ...] = ()
    """Other names of the server, as `NAME` or `NAME:PORT`."""
    idle_seconds: float = IDLE_SECONDS
    request_seconds: float = 30.0
    """Maximum time from the start of a request, or of a connection, to the last byte of the request."""
    max_sessions: int = 1_000
    """Maximum number of open sessions."""

    def __post_init__(self) -> None:
        if not self.token and not is_loopback(self.host):
            raise OptionError(f"`{self.host}` is reachable from other machines, so the server needs a token")

    @property
    def url(self) -> str:
        """Address of the server."""
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}/mcp"


def build_http_server(tools: McpTools, options: HttpServerOptions) -> uvicorn.Server:
    """Build the server; `run` starts it."""
    app = build_mcp_server(tools).streamable_http_app(
        session_idle_timeout=options.idle_seconds,
        max_sessions=options.max_sessions,
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),  # the guard does it
    )
    guard = RequestGuard(app, host=options.host, token=options.token, allowed_hosts=options.allowed_hosts)
    config = uvicorn.Config(
        guard,
        host=options.host,
        port=options.port,
        http=build_deadline_protocol(options.request_seconds),
        ws="none",
        log_level="warning",
        timeout_graceful_shutdown=SHUTDOWN_SECONDS,
    )
    return uvicorn.Server(config)


def serve_mcp_http(tools: McpTools, options: HttpServerOptions) -> None:
    """Serve over HTTP until the process is stopped."""
    try:
        build_http_server(tools, options).run()
    finally:
        tools.close()


def build_deadline_protocol(request_seconds: float) -> type[H11Protocol]:
    """Return uvicorn's protocol with a deadline for each request; uvicorn itself has none."""

    class DeadlineProtocol(H11Protocol):
        """A connection that is closed if the client does not complete a request in time."""

        _deadline: TimerHandle | None = None

        def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._update_deadline()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self._update_deadline()

        def connection_lost(self, exc: Exception | None) -> None:
            self._cancel_deadline()
            super().connection_lost(exc)

        def _update_deadline(self) -> None:
            """Start the deadline unless it runs; cancel it when the request is complete."""
            if self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
                self._cancel_deadline()
            elif self._deadline is None:
                self._deadline = self.loop.call_later(request_seconds, self.transport.abort)

        def _cancel_deadline(self) -> None:
            if self._deadline is not None:
                self._deadline.cancel()
                self._deadline = None

    return DeadlineProtocol
