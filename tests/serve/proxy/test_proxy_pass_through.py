"""Everything that the proxy does not fit passes through unchanged, both ways."""

import asyncio
import gzip
import json
import socket
from http.client import HTTPConnection
from urllib.request import Request, urlopen

import pytest

pytest.importorskip("aiohttp")

from aiohttp import web
from loopback import PATIENCE, LoopbackUpstream, loopback_upstream, port_of, running_proxy, send_raw

from thresher.errors import OptionError
from thresher.serve.app import AppOptions
from thresher.serve.proxy.options import ProxyOptions, parse_upstreams


def get(url: str, **headers: str) -> tuple[int, bytes]:
    with urlopen(Request(url, headers=headers), timeout=PATIENCE) as answer:
        return answer.status, answer.read()


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND"])
@pytest.mark.parametrize("path", ["/v1/models?limit=2", "/v1/x%2Fy//z/?q=%20&q=+", "/"])
def test_any_method_path_and_body_reach_the_upstream_unchanged(method: str, path: str) -> None:
    body = b'{"a" : 1,\n "b":2.50 }' if method != "GET" else b""
    with loopback_upstream() as upstream, running_proxy(upstream.url) as proxy:
        connection = HTTPConnection("127.0.0.1", port_of(proxy.url), timeout=PATIENCE)
        connection.request(method, path, body)
        assert json.loads(connection.getresponse().read()) == {"hello": "world"}
        connection.close()
    [seen] = upstream.requests
    assert (seen.method, seen.path, seen.body) == (method, path, body)


def test_headers_keep_their_order_repetitions_and_case_except_those_of_a_connection() -> None:
    lines = [
        "X-Stainless-Retry-Count: 0", "anthropic-beta: a", "anthropic-beta: b", "X-App: cli",
        "Connection: close, X-Hop", "X-Hop: 1",
        "Authorization: Bearer secret", "Keep-Alive: 5", "x-thresher-session: s1", "TE: trailers",
    ]  # fmt: skip
    with loopback_upstream() as upstream, running_proxy(upstream.url) as proxy:
        port = port_of(proxy.url)
        head = "\r\n".join(["GET /v1/models HTTP/1.1", f"Host: 127.0.0.1:{port}", *lines, "", ""])
        assert send_raw(port, head.encode()).startswith(b"HTTP/1.1 200")
    [seen] = upstream.requests
    assert [f"{name}: {value}" for name, value in seen.headers if name.lower() != "host"] == [
        *lines[:4],
        "Authorization: Bearer secret",
    ]
    assert seen.header("host") == [f"127.0.0.1:{upstream.port}"]


def test_an_answer_keeps_its_status_reason_headers_and_compressed_bytes() -> None:
    packed = gzip.compress(b'{"error": "later"}')

    async def answer(_request: web.Request) -> web.StreamResponse:
        headers = {"Content-Encoding": "gzip", "Retry-After": "7", "X-Request-Id": "r1"}
        return web.Response(status=429, reason="Slow Down", body=packed, headers=headers)

    with loopback_upstream(answer) as upstream, running_proxy(upstream.url) as proxy:
        port = port_of(proxy.url)
        request = f"GET /v1/models HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n"
        head, _, body = send_raw(port, request.encode()).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 429 Slow Down")
    assert b"Retry-After: 7" in head
    assert b"X-Request-Id: r1" in head
    assert body == packed


def test_a_redirect_is_passed_on_and_not_followed() -> None:
    async def answer(_request: web.Request) -> web.StreamResponse:
        return web.Response(status=307, headers={"Location": "http://127.0.0.1:1/elsewhere"})

    with loopback_upstream(answer) as upstream, running_proxy(upstream.url) as proxy:
        connection = HTTPConnection("127.0.0.1", port_of(proxy.url), timeout=PATIENCE)
        connection.request("POST", "/v1/files", b"x")
        answered = connection.getresponse()
        assert (answered.status, answered.headers["Location"]) == (307, "http://127.0.0.1:1/elsewhere")
        connection.close()
    assert len(upstream.requests) == 1


def test_a_stream_arrives_chunk_by_chunk() -> None:
    """The upstream sends its second chunk only after the client has read the first."""
    second = asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        if request.path == "/go":
            second.set()
            return web.Response()
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(b"data: 1\n\n")
        await second.wait()
        await response.write(b"data: 2\n\n")
        return response

    with (
        loopback_upstream(answer) as upstream,
        running_proxy(upstream.url) as proxy,
        urlopen(Request(f"{proxy.url}/v1/stream"), timeout=PATIENCE) as stream,
    ):
        assert stream.headers["X-Accel-Buffering"] == "no"
        assert stream.readline() == b"data: 1\n"
        get(f"{proxy.url}/go")
        assert stream.read() == b"\ndata: 2\n\n"


def test_a_websocket_upgrade_is_refused_with_426() -> None:
    with loopback_upstream() as upstream, running_proxy(upstream.url) as proxy:
        port = port_of(proxy.url)
        lines = ["GET /v1/responses HTTP/1.1", f"Host: 127.0.0.1:{port}", "Connection: Upgrade", "Upgrade: websocket"]
        key = ["Sec-WebSocket-Key: x3JJHMbDL1EzLkh9GBhXDw==", "Sec-WebSocket-Version: 13"]
        answer = send_raw(port, "\r\n".join([*lines, *key, "", ""]).encode(), until_closed=False)
        assert answer.startswith(b"HTTP/1.1 426")
        assert upstream.requests == []


@pytest.mark.parametrize("silent", ["before the headers", "after a chunk"])
def test_a_client_that_leaves_cancels_the_request_to_the_upstream(silent: str) -> None:
    started = asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        if silent == "after a chunk":
            await response.prepare(request)
            await response.write(b"data: 1\n\n")
        started.set()
        await asyncio.sleep(PATIENCE)
        return response

    with loopback_upstream(answer) as upstream, running_proxy(upstream.url) as proxy:
        port = port_of(proxy.url)
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as connection:
            connection.sendall(f"GET /v1/stream HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
            if silent == "after a chunk":
                connection.recv(100)
            else:
                _wait_for_request(upstream)
        assert upstream.cancelled.wait(PATIENCE)


def _wait_for_request(upstream: LoopbackUpstream) -> None:
    for _ in range(PATIENCE * 1000):
        if upstream.requests:
            return
        asyncio.run(asyncio.sleep(0.001))
    raise AssertionError("no request arrived")


def test_an_answer_that_breaks_off_breaks_off_for_the_client_as_well() -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"data: 1\n\n")
        assert request.transport is not None
        request.transport.abort()
        return response

    with loopback_upstream(answer) as upstream, running_proxy(upstream.url) as proxy:
        port = port_of(proxy.url)
        try:
            received = send_raw(port, f"GET /v1/stream HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
        except ConnectionResetError:
            return
        assert not received.endswith(b"0\r\n\r\n")  # no end of the chunks: the client notices


@pytest.mark.parametrize(
    ("path", "pick"),
    [
        ("/v1/messages", lambda error: (error["type"], error["error"]["type"])),
        ("/v1/chat/completions", lambda error: (error["error"]["type"], error["error"]["param"])),
        ("/v1beta/models/gemini-3:generateContent", lambda error: (error["error"]["code"], error["error"]["status"])),
    ],
)
def test_an_unreachable_upstream_is_a_502_in_the_form_of_the_vendor(path: str, pick: object) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with running_proxy(f"http://127.0.0.1:{port}") as proxy:
        connection = HTTPConnection("127.0.0.1", port_of(proxy.url), timeout=PATIENCE)
        connection.request("POST", path, b"{}")
        answer = connection.getresponse()
        error = json.loads(answer.read())
        connection.close()
    assert (answer.status, answer.headers["X-Thresher-Error"]) == (502, "proxy")
    expected = {"error": ("error", "api_error"), "server_error": ("server_error", None), 502: (502, "UNAVAILABLE")}
    assert pick(error) in expected.values()  # type: ignore[operator]


def test_a_large_upload_and_long_headers_pass_through() -> None:
    body, value = b"x" * (70 * 2**20), "v" * 60_000
    with loopback_upstream() as upstream, running_proxy(upstream.url) as proxy:
        request = Request(f"{proxy.url}/v1/files", data=body, headers={"X-Codex-Turn-Metadata": value})
        with urlopen(request, timeout=PATIENCE) as answer:
            assert answer.status == 200
    [seen] = upstream.requests
    assert seen.header("x-codex-turn-metadata") == [value]
    assert len(seen.body) == len(body)


@pytest.mark.parametrize(
    ("request_line", "host", "status"),
    [
        ("GET /v1/models HTTP/1.1", "evil.example", 421),
        ("GET /thresher/status HTTP/1.1", "evil.example", 421),
        ("GET http://evil.example/v1/models HTTP/1.1", "127.0.0.1:{port}", 400),
        ("GET /thresher/nothing HTTP/1.1", "127.0.0.1:{port}", 404),
    ],
)
def test_the_proxy_is_no_open_relay(request_line: str, host: str, status: int) -> None:
    with loopback_upstream() as upstream, running_proxy(upstream.url) as proxy:
        port = port_of(proxy.url)
        text = f"{request_line}\r\nHost: {host.format(port=port)}\r\nConnection: close\r\n\r\n"
        assert send_raw(port, text.encode()).startswith(f"HTTP/1.1 {status}".encode())
        assert upstream.requests == []


def test_a_web_page_of_another_origin_cannot_read_the_status() -> None:
    with loopback_upstream() as upstream, running_proxy(upstream.url) as proxy:
        connection = HTTPConnection("127.0.0.1", port_of(proxy.url), timeout=PATIENCE)
        connection.request("GET", "/thresher/status", headers={"Origin": "https://evil.example"})
        assert connection.getresponse().status == 403
        connection.close()


def test_other_machines_need_a_token_in_a_header_or_in_the_path() -> None:
    with pytest.raises(OptionError, match="needs a token"):
        AppOptions(host="0.0.0.0")
    options = AppOptions(host="0.0.0.0", token="sesame", allowed_hosts=("127.0.0.1",))
    with loopback_upstream() as upstream, running_proxy(upstream.url, app=options) as proxy:
        bare = f"http://127.0.0.1:{port_of(proxy.url)}"
        connection = HTTPConnection("127.0.0.1", port_of(proxy.url), timeout=PATIENCE)
        for path in ("/v1/models", "/thresher/status", "/thresher/token/wrong/v1/models"):
            connection.request("GET", path)
            answer = connection.getresponse()
            answer.read()
            assert answer.status == 401
        connection.close()
        assert get(f"{bare}/v1/models", **{"X-Thresher-Token": "sesame"})[0] == 200
        assert get(f"{bare}/thresher/token/sesame/v1/models")[0] == 200
        assert get(f"{bare}/thresher/status", Authorization="Bearer sesame")[0] == 200
    assert [(seen.path, seen.header("x-thresher-token")) for seen in upstream.requests] == [("/v1/models", [])] * 2


def test_the_status_and_the_events_are_served() -> None:
    with loopback_upstream() as upstream, running_proxy(upstream.url) as proxy:
        get(f"{proxy.url}/v1/models")
        status = json.loads(get(f"{proxy.url}/thresher/status")[1])
        assert status["proxy"]["requests"] == 1
        assert status == proxy.status()


def test_each_api_can_have_its_own_upstream() -> None:
    with loopback_upstream() as first, loopback_upstream() as second:
        named = parse_upstreams((first.url, f"gemini={second.url}/base/"))
        assert named == {"": first.url, "gemini": f"{second.url}/base/"}


@pytest.mark.parametrize("value", ["ftp://x", "https://user:pass@x", "nothing", "other=https://x", "https://x?a=b"])
def test_an_upstream_that_is_no_address_is_refused(value: str) -> None:
    with pytest.raises(OptionError):
        ProxyOptions(upstreams=parse_upstreams((value,)))
