"""Send one HTTP request with a limit on total time and size.

A socket timeout restarts with every byte, and a DNS lookup has no timeout. So a thread sends the request. The caller
waits for the thread with a timeout, then closes the connection, which also ends the thread. Only http and https are
supported. Proxies come from the environment. No redirect is followed, and no status is treated as an error.
"""

import re
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from email.utils import parsedate_to_datetime
from functools import partial
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection, IncompleteRead
from threading import Event, Thread
from typing import Any, NamedTuple
from urllib.request import HTTPHandler, HTTPSHandler, OpenerDirector, ProxyHandler, Request

CHUNK_BYTES = 65_536
"""Bytes to read at once."""


class HttpRequestError(Exception):
    """The connection failed or timed out."""


class HttpReply(NamedTuple):
    """The reply of a server."""

    status: int
    retry_after: float
    """Seconds that the server asks to wait before a retry; 0 if it does not ask."""
    body: bytes | None
    """Body of the reply; None if it exceeds the limit."""


def send_http_post(url: str, body: bytes, headers: Mapping[str, str], *, timeout: float, max_bytes: int) -> HttpReply:
    """Send a POST request and read the reply within `timeout` seconds; raise `HttpRequestError` on failure."""
    thread = _RequestThread(Request(url, body, dict(headers), method="POST"), timeout, max_bytes)
    try:
        thread.start()
    except RuntimeError as error:  # too many threads, or interpreter shutdown
        raise HttpRequestError(str(error)) from None
    thread.join(timeout)
    reply, failure = thread.reply, thread.failure
    if reply is not None:
        return reply
    thread.abort()
    if failure is None or _is_timeout(failure):
        raise HttpRequestError(f"no complete reply within {timeout:g} seconds")
    raise HttpRequestError(f"{type(failure).__name__}: {failure}")


def _is_timeout(failure: Exception) -> bool:
    return isinstance(failure, TimeoutError) or isinstance(getattr(failure, "reason", None), TimeoutError)


class _RequestThread(Thread):
    """A thread that sends a request and stores the reply or the failure."""

    def __init__(self, request: Request, timeout: float, max_bytes: int) -> None:
        super().__init__(daemon=True)
        self.reply: HttpReply | None = None
        self.failure: Exception | None = None
        self._request = request
        self._timeout = timeout
        self._max_bytes = max_bytes
        self._sockets: list[socket.socket] = []
        self._aborted = Event()

    def run(self) -> None:
        """Send the request; store any failure instead of raising it."""
        try:
            with _opener(self).open(self._request, timeout=self._timeout) as response:
                self.reply = _read_reply(response, self._max_bytes)
        # Closing a socket during a read can raise any of these errors.
        except (OSError, HTTPException, ValueError, AttributeError) as error:
            self.failure = error

    def register_socket(self, connection: socket.socket) -> None:
        """Register a connection, so that `abort` can close it; raise if the caller no longer waits."""
        self._sockets.append(connection)
        if self._aborted.is_set():
            raise TimeoutError

    def abort(self) -> None:
        """Close all connections."""
        self._aborted.set()
        for connection in self._sockets:
            with suppress(OSError):
                # The `shutdown` of a TLS socket would discard its session, which the reading thread still uses.
                socket.socket.shutdown(connection, socket.SHUT_RDWR)


def _opener(thread: _RequestThread) -> OpenerDirector:
    """Return an opener for http and https only; the default one follows redirects and reads local files."""

    class Plain(HTTPConnection):
        def connect(self) -> None:
            super().connect()
            thread.register_socket(self.sock)

    class Secure(HTTPSConnection):
        def connect(self) -> None:
            super().connect()
            thread.register_socket(self.sock)

    class PlainHandler(HTTPHandler):
        def http_open(self, req: Request) -> HTTPResponse:
            return self.do_open(Plain, req)

    class SecureHandler(HTTPSHandler):
        def https_open(self, req: Request) -> HTTPResponse:
            return self.do_open(Secure, req)

    opener = OpenerDirector()
    for handler in (ProxyHandler(), PlainHandler(), SecureHandler()):
        opener.add_handler(handler)
    return opener


def _read_reply(response: Any, max_bytes: int) -> HttpReply:
    body = b"".join(_read_chunks(response, max_bytes))
    retry_after = _parse_retry_after(response.headers.get("Retry-After", ""))
    return HttpReply(response.status, retry_after, body if len(body) <= max_bytes else None)


def _read_chunks(response: Any, max_bytes: int) -> Iterator[bytes]:
    size = 0
    for chunk in iter(partial(response.read, CHUNK_BYTES), b""):
        yield chunk
        size += len(chunk)
        if size > max_bytes:
            return
    if response.length:  # chunked reads do not detect a truncated body
        raise IncompleteRead(b"", response.length)


def _parse_retry_after(value: str) -> float:
    """Parse a `Retry-After` header, a number of seconds or a date, to seconds."""
    if re.fullmatch(r"[0-9]{1,9}", value.strip()):
        return float(value)
    with suppress(ValueError, TypeError, OverflowError):
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    return 0.0
