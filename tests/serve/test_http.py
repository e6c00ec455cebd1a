"""The server over HTTP, on loopback: who may connect, and how long a request and a session may last."""

import json
import socket
from asyncio import Transport
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPConnection
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

pytest.importorskip("mcp")

import uvicorn
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState

from thresher.errors import OptionError
from thresher.samples import write_samples
from thresher.serve.access_token import TOKEN_FILE, load_access_token
from thresher.serve.mcp_http import HttpServerOptions, build_deadline_protocol, build_http_server
from thresher.serve.mcp_tools import McpTools
from thresher.serve.request_guard import RequestGuard

HEADERS = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
PARAMETERS: dict[str, dict[str, Any]] = {
    "initialize": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    }
}
PATIENCE = 60
"""Seconds after which a test gives up on an answer that a correct server gives at once."""


@contextmanager
def serving(folder: Path, **options: Any) -> Iterator[int]:
    """Run a server in a thread, on a free port of loopback."""
    with socket.create_server(("127.0.0.1", 0), backlog=512) as listener:
        port: int = listener.getsockname()[1]
        tools = McpTools(home=folder / "home", sources=[folder / "samples"], discover=False, environment={})
        server = build_http_server(tools, HttpServerOptions(port=port, **options))
        thread = Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield port
        finally:
            server.should_exit = True
            thread.join(PATIENCE)


def post(port: int, method: str, *, session: str = "", **headers: str) -> tuple[int, str]:
    """Return the status of a request, and the session id that the server gives or the body of an error."""
    connection = HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    try:
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": PARAMETERS.get(method, {})}
        named = {"Mcp-Session-Id": session} if session else {}
        connection.request("POST", "/mcp", json.dumps(message), HEADERS | named | headers)
        answer = connection.getresponse()
        body = answer.read().decode()
        return answer.status, answer.headers.get("mcp-session-id") or body
    finally:
        connection.close()


def test_the_sessions_of_silent_clients_are_freed(tmp_path: Path) -> None:
    """Only 40 sessions may be open at once, so 240 can open only if earlier ones are freed."""
    opened: list[str] = []
    with serving(tmp_path, max_sessions=40, idle_seconds=0.2) as port:
        for _ in range(100_000):
            status, session = post(port, "initialize")
            opened += [session] if status == 200 else []
            if len(opened) == 240:
                break
            assert status in (200, 503)
        assert len(set(opened)) == 240
        assert post(port, "ping", session=opened[0])[0] == 404


def test_an_active_session_stays(tmp_path: Path) -> None:
    with serving(tmp_path) as port:
        _, session = post(port, "initialize")
        assert post(port, "ping", session=session)[0] == 200


STARTS = (
    b"",
    b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nX-Slow: ",
    b"POST /mcp HTTP/1.1\r\nHost: localhost:%d\r\nContent-Type: application/json\r\nContent-Length: 500\r\n\r\n{",
)


def test_connections_that_complete_no_request_are_closed(tmp_path: Path) -> None:
    slow: list[socket.socket] = []
    with serving(tmp_path, request_seconds=2) as port:
        try:
            for number in range(300):
                slow.append(socket.create_connection(("127.0.0.1", port), timeout=PATIENCE))
                slow[-1].sendall(STARTS[number % 3].replace(b"%d", str(port).encode()))
            assert post(port, "initialize")[0] == 200
            for one in slow:  # waits until the server closes the connection
                with suppress(ConnectionResetError):
                    while one.recv(4096):
                        pass
        finally:
            for one in slow:
                one.close()


class RecordingLoop:
    """An event loop that only records the timers that are started."""

    def __init__(self) -> None:
        self.timers: list[RecordedTimer] = []

    def call_later(self, delay: float, callback: Callable[[], None]) -> "RecordedTimer":
        self.timers.append(RecordedTimer(delay, callback))
        return self.timers[-1]


class RecordedTimer:
    """A timer that never fires by itself."""

    def __init__(self, delay: float, callback: Callable[[], None]) -> None:
        self.delay, self.callback, self.is_running = delay, callback, True

    def cancel(self) -> None:
        self.is_running = False


class RecordingTransport(Transport):
    """A connection to nobody."""

    aborted = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:  # noqa: ARG002 - the signature of asyncio
        return default

    def abort(self) -> None:
        self.aborted = True


def test_more_bytes_do_not_extend_the_deadline_of_a_request() -> None:
    async def nothing(_scope: Scope, _receive: Receive, _send: Send) -> None:
        raise AssertionError("the request is not complete")

    config = uvicorn.Config(nothing, ws="none", log_config=None, lifespan="off")
    loop, transport = RecordingLoop(), RecordingTransport()
    connection = build_deadline_protocol(7)(config, ServerState(), {}, loop)  # type: ignore[arg-type]
    connection.connection_made(transport)
    for byte in b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nX-Slow: 1":
        connection.data_received(bytes([byte]))
    (timer,) = loop.timers
    assert (timer.delay, timer.is_running) == (7, True)
    timer.callback()
    assert transport.aborted


def status_for(
    host: str, origin: str = "", *, address: str = "127.0.0.1", bound: str = "127.0.0.1", allowed: tuple[str, ...] = ()
) -> int:
    """Return the status of a request that arrives at an address with this Host header and origin."""
    statuses: list[int] = []

    async def accept(scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG001 - the signature of ASGI
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def receive() -> dict[str, Any]:
        return {"type": "http.request"}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    headers = [(b"host", host.encode()), (b"authorization", b"Bearer sesame")]
    headers += [(b"origin", origin.encode())] if origin else []
    scope = {"type": "http", "method": "POST", "path": "/mcp", "headers": headers, "server": (address, 8765)}
    guard = RequestGuard(accept, host=bound, token="sesame", allowed_hosts=allowed)
    with suppress(StopIteration):
        guard(scope, receive, send).__await__().send(None)
    return statuses[0]


MACHINE = socket.gethostname()
LAN: dict[str, Any] = {"address": "192.0.2.7", "bound": "0.0.0.0"}


@pytest.mark.parametrize("host", ["127.0.0.1:8765", "localhost:8765", "LOCALHOST:8765", "[::1]:8765"])
def test_loopback_answers_for_its_own_names(host: str) -> None:
    assert status_for(host) == 200
    assert status_for(host, f"http://{host}") == 200
    assert status_for(host, bound="0.0.0.0") == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example:8765", "localhost", "localhost:80", "localhost:8765@evil.example", "localhost:8765/x", "", "[::1",
     "127.0.0.1.evil.example:8765", "192.0.2.7:8765", f"{MACHINE}.evil.example:8765", "localhost:port"],
)  # fmt: skip
def test_no_other_name_is_answered_for(host: str) -> None:
    assert status_for(host) == 421
    assert status_for(host, bound="0.0.0.0") == 421


@pytest.mark.parametrize("host", ["192.0.2.7:8765", f"{MACHINE}:8765", f"{MACHINE}.local:8765"])
def test_a_server_on_all_addresses_answers_for_those_of_the_machine(host: str) -> None:
    assert status_for(host, **LAN) == 200
    assert status_for(host, f"http://{host}", **LAN) == 200
    assert status_for("evil.example:8765", **LAN) == 421
    assert status_for("localhost:8765", **LAN) == 421
    assert status_for("192.0.2.8:8765", **LAN) == 421


def test_an_ipv4_connection_to_an_ipv6_server_is_recognized() -> None:
    assert status_for("192.0.2.7:8765", address="::ffff:192.0.2.7", bound="::") == 200
    assert status_for("[2001:db8::7]:8765", address="2001:db8::7", bound="::") == 200


def test_allowed_hosts_are_answered_for_with_their_port_only() -> None:
    for allowed, host, status in (
        ("proxy.example", "proxy.example", 200),
        ("proxy.example", "proxy.example:443", 200),
        ("proxy.example:8443", "proxy.example:8443", 200),
        ("proxy.example:8443", "proxy.example:443", 421),
        ("proxy.example", "evil.example", 421),
    ):
        assert status_for(host, allowed=(allowed,), **LAN) == status
    assert status_for("proxy.example", "https://proxy.example", allowed=("proxy.example",)) == 200
    with pytest.raises(OptionError, match="NAME:PORT"):
        status_for("", allowed=("http://proxy.example",))


@pytest.mark.parametrize(
    "origin",
    ["http://evil.example", "null", "file://", "http://localhost:3000", "https://evil.example:8765", "localhost:8765"],
)
def test_a_web_page_is_refused(origin: str) -> None:
    assert status_for("localhost:8765", origin) == 403


def test_a_server_for_other_machines_needs_a_token() -> None:
    for host in ("0.0.0.0", "::", "192.0.2.7", "example.org"):
        with pytest.raises(OptionError, match="needs a token"):
            HttpServerOptions(host=host)
    assert HttpServerOptions(host="::1").url == "http://[::1]:8765/mcp"


def test_the_token_is_created_once_and_only_the_user_can_read_it(tmp_path: Path) -> None:
    first, second = load_access_token(tmp_path / "home"), load_access_token(tmp_path / "home")
    assert (first.text, first.is_new, second.is_new) == (second.text, True, False)
    assert len(first.text) > 30
    assert first.file.stat().st_mode & 0o777 == 0o600
    first.file.chmod(0o644)
    assert load_access_token(tmp_path / "home").text == first.text
    assert first.file.stat().st_mode & 0o777 == 0o600
    first.file.write_text("")
    with pytest.raises(OptionError, match="delete it"):
        load_access_token(tmp_path / "home")


def test_a_token_file_that_cannot_be_used_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / TOKEN_FILE).mkdir()
    with pytest.raises(OptionError, match="token file"):
        load_access_token(tmp_path)


def test_a_wrong_token_is_refused(tmp_path: Path) -> None:
    write_samples(tmp_path / "samples")
    with serving(tmp_path, token="sesame", allowed_hosts=("proxy.example",)) as port:
        assert post(port, "initialize")[0] == 401
        assert post(port, "initialize", Authorization="Bearer séame")[0] == 401
        assert post(port, "initialize", Authorization="Bearer sesame")[0] == 200
        assert post(port, "initialize", Authorization="Bearer sesame", Host="proxy.example")[0] == 200
        assert post(port, "initialize", Authorization="Bearer sesame", Host="evil.example")[0] == 421
