"""Checks of each HTTP request before the MCP server sees it: host name, origin, token.

A web page can make its own name point to this machine (DNS rebinding). Its requests then reach the server under that
name. So a request must name the server by a name that only the server has: the local address of the connection,
`localhost` on loopback, the machine's own name elsewhere, or a name that the user allows.
"""

import hmac
import socket
from collections.abc import Sequence
from ipaddress import ip_address
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse

from thresher.errors import OptionError

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")
_DEFAULT_PORTS = {"http": 80, "https": 443}


class Authority(NamedTuple):
    """A host and a port, as a URL or a Host header names them; `port` is None if it does not."""

    host: str
    port: int | None


def parse_authority(text: str) -> Authority | None:
    """Parse `host`, `host:port` or `[::1]:port`; return None for anything else."""
    try:
        parts = urlsplit(f"//{text}")
        host, port = parts.hostname, parts.port
    except ValueError:
        return None
    if parts.netloc != text or "@" in text or not host:
        return None
    return Authority(host.rstrip("."), port)


def is_loopback(host: str) -> bool:
    """Return True if only this machine can reach the address."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def parse_allowed_hosts(names: Sequence[str]) -> frozenset[Authority]:
    """Parse the hosts that the user allows; one without a port is allowed with every port."""
    parsed = {name: parse_authority(name) for name in names}
    for name, authority in parsed.items():
        if authority is None:
            raise OptionError(f"an allowed host must be a name or `NAME:PORT`, got `{name}`")
    return frozenset(filter(None, parsed.values()))


class RequestGuard:
    """Wrapper of a web application that rejects requests to other hosts, from web pages, or without the token."""

    def __init__(self, app: "ASGIApp", *, host: str, token: str, allowed_hosts: Sequence[str] = ()) -> None:
        self._app, self._host = app, host.lower()
        self._expected = f"Bearer {token}".encode() if token else b""
        self._allowed = parse_allowed_hosts(allowed_hosts)
        machine = socket.gethostname().lower()
        self._machine_names = {machine, f"{machine}.local"} - {"", ".local", "localhost"}

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        """Answer a request: refuse it, or pass it on."""
        refusal = self._find_refusal(scope) if scope["type"] == "http" else None
        await (refusal or self._app)(scope, receive, send)

    def _find_refusal(self, scope: "Scope") -> PlainTextResponse | None:
        headers = Headers(scope=scope)
        if not self._is_own(headers.get("host", ""), "http", scope):
            advice = "Start it with --allow-host NAME to allow this name."
            return PlainTextResponse(f"This server does not answer for this host name. {advice}\n", status_code=421)
        scheme, _, origin = headers.get("origin", "").partition("://")
        if "origin" in headers and not (scheme in _DEFAULT_PORTS and self._is_own(origin, scheme, scope)):
            return PlainTextResponse("This server does not answer requests of other web pages.\n", status_code=403)
        given = headers.get("authorization", "").encode("latin-1")
        if self._expected and not hmac.compare_digest(given, self._expected):
            return PlainTextResponse("This server requires a token: Authorization: Bearer …\n", status_code=401)
        return None

    def _is_own(self, text: str, scheme: str, scope: "Scope") -> bool:
        """Return True if a Host header or an origin names this server."""
        authority = parse_authority(text)
        if authority is None:
            return False
        if self._allowed & {authority, Authority(authority.host, None)}:
            return True
        address, port = scope.get("server") or ("", None)
        return (authority.port or _DEFAULT_PORTS[scheme]) == port and authority.host in self._own_names(address)

    def _own_names(self, address: str) -> set[str]:
        """Return the names of the server on a connection to this local address."""
        local = _normalize_address(address)
        return {self._host, local, *(LOOPBACK_NAMES if is_loopback(local) else self._machine_names)}


def _normalize_address(address: str) -> str:
    """Return an address as URLs write it: an IPv4 address that arrived over IPv6 is IPv4."""
    try:
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    return str(getattr(parsed, "ipv4_mapped", None) or parsed)
