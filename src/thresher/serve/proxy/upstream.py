"""The HTTP client of the proxy: one request to a fixed upstream, without redirects, cookies or retries."""

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from aiohttp import ClientResponse, ClientSession, ClientTimeout, DummyCookieJar, TCPConnector
from multidict import CIMultiDict
from yarl import URL

from thresher.serve.app import MAX_HEADER_BYTES, MAX_HEADERS
from thresher.serve.host_names import is_loopback

POOL_SECONDS = 15.0
"""Time that an idle connection stays open. Vendors close theirs later, so a request seldom meets a closed one."""
KEEPALIVE_SECONDS = 30
"""Time after which the system checks a silent connection. Otherwise a dead network looks like a thinking model."""
AUTO_HEADERS = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")
"""Headers that aiohttp would add to a request without them."""


class Upstream:
    """The connections to the upstreams."""

    def __init__(self, *, connect_seconds: float, silence_seconds: float) -> None:
        timeout = ClientTimeout(total=None, sock_connect=connect_seconds, sock_read=silence_seconds)
        self._session = ClientSession(
            connector=TCPConnector(limit=0, keepalive_timeout=POOL_SECONDS, socket_factory=_open_socket),
            timeout=timeout,
            cookie_jar=DummyCookieJar(),
            auto_decompress=False,
            skip_auto_headers=AUTO_HEADERS,
            max_line_size=MAX_HEADER_BYTES,
            max_field_size=MAX_HEADER_BYTES,
            max_headers=MAX_HEADERS,
        )

    @asynccontextmanager
    async def send(self, method: str, url: str, headers: CIMultiDict[str], body: Any) -> AsyncIterator[ClientResponse]:
        """Send a request; leaving the context before the end of the answer closes the connection."""
        response = await self._session.request(
            method,
            URL(url, encoded=True),
            headers=headers,
            data=body,
            allow_redirects=False,
            proxy=find_system_proxy(url),
        )
        try:
            yield response
        finally:
            # After a complete answer the connection is already back in the pool, and this closes nothing.
            response.close()

    async def close(self) -> None:
        """Close all connections."""
        await self._session.close()


def find_system_proxy(url: str) -> str | None:
    """Return the proxy that the system's settings name for a URL, none for this machine. `.netrc` is never read."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    proxy = getproxies().get(parts.scheme)
    return proxy if proxy and not is_loopback(host) and not proxy_bypass(host) else None


def _open_socket(address: Any) -> socket.socket:
    family, kind, protocol, *_ = address
    opened = socket.socket(family, kind, protocol)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_KEEPIDLE"):
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_SECONDS)
    opened.setblocking(False)
    return opened
