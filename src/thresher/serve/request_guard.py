"""Checks of each HTTP request before the MCP server sees it: host name, origin, token."""

import hmac
from collections.abc import Sequence
from typing import TYPE_CHECKING

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse

from thresher.serve.host_names import HostCheck

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send


class RequestGuard:
    """Wrapper of a web application that rejects requests to other hosts, from web pages, or without the token."""

    def __init__(self, app: "ASGIApp", *, host: str, token: str, allowed_hosts: Sequence[str] = ()) -> None:
        self._app, self._hosts = app, HostCheck(host, allowed_hosts)
        self._expected = f"Bearer {token}".encode() if token else b""

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        """Answer a request: refuse it, or pass it on."""
        refusal = self._find_refusal(scope) if scope["type"] == "http" else None
        await (refusal or self._app)(scope, receive, send)

    def _find_refusal(self, scope: "Scope") -> PlainTextResponse | None:
        headers = Headers(scope=scope)
        address, port = scope.get("server") or ("", None)
        if not self._hosts.is_own_host(headers.get("host", ""), address, port):
            advice = "Start it with --allow-host NAME to allow this name."
            return PlainTextResponse(f"This server does not answer for this host name. {advice}\n", status_code=421)
        if "origin" in headers and not self._hosts.is_own_origin(headers["origin"], address, port):
            return PlainTextResponse("This server does not answer requests of other web pages.\n", status_code=403)
        given = headers.get("authorization", "").encode("latin-1")
        if self._expected and not hmac.compare_digest(given, self._expected):
            return PlainTextResponse("This server requires a token: Authorization: Bearer …\n", status_code=401)
        return None
