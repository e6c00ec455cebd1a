"""A model server on loopback with scripted behavior: answer, refuse, stall, send slowly, disconnect, send garbage."""

import json
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from types import TracebackType
from typing import Any, NamedTuple, Self


class Asked(NamedTuple):
    """A received request."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]

    @property
    def text(self) -> str:
        """The prompt."""
        return str(self.body["messages"][-1]["content"])


class _Handler(BaseHTTPRequestHandler):
    server: "_Http"

    def do_POST(self) -> None:
        owner = self.server.owner
        body = self.rfile.read(int(self.headers["Content-Length"]))
        owner.asked.append(Asked(self.path, {k.lower(): v for k, v in self.headers.items()}, json.loads(body)))
        number = min(len(owner.asked), len(owner.deeds)) - 1
        owner.deeds[number](self)

    def do_GET(self) -> None:
        raise AssertionError("nothing is ever fetched")

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def reply(
        self, status: int, body: bytes, *, length: int | None = None, headers: Mapping[str, str] | None = None
    ) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        self.wfile.write(body)

    def drip(self, piece: bytes) -> None:
        """Send the same bytes repeatedly until the client disconnects."""
        while not self.server.owner.over.wait(0.02):
            self.wfile.write(piece)
            self.wfile.flush()


Deed = Callable[[_Handler], None]


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    owner: "ModelServer"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore disconnects, which many tests provoke."""


class ModelServer:
    """Handles each request with the next scripted behavior, repeats the last one, and records requests."""

    def __init__(self, *deeds: Deed) -> None:
        self.deeds = deeds
        self.asked: list[Asked] = []
        self.over = Event()
        self._http = _Http(("127.0.0.1", 0), _Handler)
        self._http.owner = self
        self._thread = Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01})

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self._http.server_address[1]}"

    @property
    def url(self) -> str:
        return f"http://{self.host}/v1"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.over.set()
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()


def shaped(path: str, text: Any, end: str) -> dict[str, Any]:
    """Return an answer in the format of the path's API."""
    if path.endswith("/messages"):
        return {"type": "message", "content": [{"type": "text", "text": text}], "stop_reason": end}
    return {"choices": [{"message": {"role": "assistant", "content": text}, "finish_reason": end}]}


def says(text: Any, end: str = "stop") -> Deed:
    return lambda handler: handler.reply(200, json.dumps(shaped(handler.path, text, end)).encode())


def sends(status: int, body: Any = None, **headers: str) -> Deed:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return lambda handler: handler.reply(status, data, headers=headers)


def stalls(handler: _Handler) -> None:
    handler.server.owner.over.wait(30)


def drips_its_body(handler: _Handler) -> None:
    handler.reply(200, b"", length=1_000_000)
    handler.drip(b" ")


def drips_its_headers(handler: _Handler) -> None:
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
    handler.drip(b"x")


def breaks_off(handler: _Handler) -> None:
    body = json.dumps(shaped(handler.path, "## Goal\nall is well", "stop")).encode()
    handler.reply(200, body, length=len(body) + 100)


def breaks_off_in_a_chunk(handler: _Handler) -> None:
    handler.wfile.write(b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\n{"choices": [')


def hangs_up(handler: _Handler) -> None:
    handler.close_connection = True


def quotes_the_key_as_its_status(handler: _Handler) -> None:
    sent = handler.headers.get("Authorization") or handler.headers.get("x-api-key") or ""
    handler.wfile.write(b"NONSENSE " + sent.encode() + b"\r\n\r\n")


def quotes_the_key(status: int) -> Deed:
    def deed(handler: _Handler) -> None:
        sent = handler.headers.get("Authorization") or handler.headers.get("x-api-key") or ""
        handler.reply(status, json.dumps({"error": {"message": f"what is {sent} for?"}}).encode())

    return deed
