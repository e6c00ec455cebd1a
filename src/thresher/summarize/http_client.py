"""One HTTP request, bounded in time and size.

A socket's own time-out starts anew with every byte, and looking up a name has none. So the work is done in a thread
that is waited for only so long; then its connection is shut, which ends it too. Nothing but http and https is
spoken, proxies are those of the environment, and no status is followed or treated as an error here.
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
"""Bytes read at a time."""


class HttpRequestError(Exception):
    """The connection failed, or the time was over."""


class HttpReply(NamedTuple):
    """What a server sent."""

    status: int
    retry_after: float
    """Seconds that it asks to be left alone for."""
    body: bytes | None
    """None: more than may be read."""


def send_http_post(address: str, body: bytes, headers: Mapping[str, str], *, seconds: float, largest: int) -> HttpReply:
    """Send a body and read the reply, all within so many seconds; raises `HttpRequestError`."""
    work = _RequestThread(Request(address, body, dict(headers), method="POST"), seconds, largest)
    try:
        work.start()
    except RuntimeError as error:  # too many threads, or the interpreter is about to end
        raise HttpRequestError(str(error)) from None
    work.join(seconds)
    reply, failure = work.reply, work.failure
    if reply is not None:
        return reply
    work.abort()
    if failure is None or _is_timeout(failure):
        raise HttpRequestError(f"nothing whole came within {seconds:g} seconds")
    raise HttpRequestError(f"{type(failure).__name__}: {failure}")


def _is_timeout(failure: Exception) -> bool:
    return isinstance(failure, TimeoutError) or isinstance(getattr(failure, "reason", None), TimeoutError)


class _RequestThread(Thread):
    """The request under way, and what has become of it."""

    def __init__(self, request: Request, seconds: float, largest: int) -> None:
        super().__init__(daemon=True)
        self.reply: HttpReply | None = None
        self.failure: Exception | None = None
        self._request = request
        self._seconds = seconds
        self._largest = largest
        self._sockets: list[socket.socket] = []
        self._aborted = Event()

    def run(self) -> None:
        """Do it; whatever goes wrong is told, not raised."""
        try:
            with _opener(self).open(self._request, timeout=self._seconds) as response:
                self.reply = _read_reply(response, self._largest)
        # A socket that is shut while it is read fails in any of these ways.
        except (OSError, HTTPException, ValueError, AttributeError) as error:
            self.failure = error

    def register_socket(self, connection: socket.socket) -> None:
        """Note a connection; if nobody waits any longer, nothing is sent over it."""
        self._sockets.append(connection)
        if self._aborted.is_set():
            raise TimeoutError

    def abort(self) -> None:
        """Shut what is open."""
        self._aborted.set()
        for one in self._sockets:
            with suppress(OSError):
                # Not the method of a TLS socket, which forgets its session first: the reader still needs it to fail.
                socket.socket.shutdown(one, socket.SHUT_RDWR)


def _opener(work: _RequestThread) -> OpenerDirector:
    """What opens http and https and no more: the usual one follows redirects and reads local files."""

    class Plain(HTTPConnection):
        def connect(self) -> None:
            super().connect()
            work.register_socket(self.sock)

    class Secure(HTTPSConnection):
        def connect(self) -> None:
            super().connect()
            work.register_socket(self.sock)

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


def _read_reply(response: Any, largest: int) -> HttpReply:
    body = b"".join(_read_chunks(response, largest))
    wait = _parse_retry_after(response.headers.get("Retry-After", ""))
    return HttpReply(response.status, wait, body if len(body) <= largest else None)


def _read_chunks(response: Any, largest: int) -> Iterator[bytes]:
    size = 0
    for piece in iter(partial(response.read, CHUNK_BYTES), b""):
        yield piece
        size += len(piece)
        if size > largest:
            return
    if response.length:  # a body that ends too early is not told apart from a whole one when it is read in pieces
        raise IncompleteRead(b"", response.length)


def _parse_retry_after(told: str) -> float:
    """How long a `Retry-After` asks to wait: it is a number of seconds, or a date."""
    if re.fullmatch(r"[0-9]{1,9}", told.strip()):
        return float(told)
    with suppress(ValueError, TypeError, OverflowError):
        return max(0.0, parsedate_to_datetime(told).timestamp() - time.time())
    return 0.0
