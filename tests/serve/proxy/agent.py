"""An agent for tests of the proxy: it grows a conversation, sends it, and reads the answer."""

import json
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from aiohttp import web
from loopback import BODY, PATIENCE, port_of

MODEL = "claude-sonnet-4-5"
BUDGET = 6_000
MESSAGES = "/v1/messages?beta=true"
SESSION = {"X-Claude-Code-Session-Id": "s-1", "Authorization": "Bearer sk-secret"}


def message_rows(turns: int, size: int = 100) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = [{"role": "user", "content": "Read all modules."}]
    for turn in range(turns):
        call = {"type": "tool_use", "id": f"t{turn}", "name": "Read", "input": {"file_path": f"m{turn}.py"}}
        output = f"line of module {turn}\n" * size
        result = {"type": "tool_result", "tool_use_id": f"t{turn}", "content": output}
        rows += [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
    return rows


def agent_request(turns: int, *, tools: tuple[str, ...] = ("Read", "Bash"), **fields: Any) -> dict[str, Any]:
    named = [{"name": name, "input_schema": {"type": "object"}} for name in tools]
    request = {"model": MODEL, "max_tokens": 9, "system": "Be brief.", "tools": named, "messages": message_rows(turns)}
    return {**request, **fields}


def dump(request: dict[str, Any]) -> bytes:
    """Return bytes in a form that no encoder of the project writes."""
    return json.dumps(request, indent=1, ensure_ascii=True).encode()


class Client:
    """Sends requests to a proxy over one connection."""

    def __init__(self, url: str, **headers: str) -> None:
        self._connection = HTTPConnection("127.0.0.1", port_of(url), timeout=PATIENCE)
        self._headers = headers

    def send(self, body: bytes | dict[str, Any], path: str = MESSAGES, **headers: str) -> tuple[int, bytes]:
        data = body if isinstance(body, bytes) else dump(body)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self._connection.request("POST", path, data, {**SESSION, **self._headers, **named})
        answer = self._connection.getresponse()
        return answer.status, answer.read()

    def status(self) -> dict[str, Any]:
        self._connection.request("GET", "/thresher/status")
        status: dict[str, Any] = json.loads(self._connection.getresponse().read())["proxy"]
        return status

    def send_and_leave(self, request: dict[str, Any]) -> None:
        """Send a request, and close the connection without an answer."""
        self._connection.request("POST", MESSAGES, dump(request), {**SESSION, **self._headers})

    def close(self) -> None:
        self._connection.close()


def text_of(body: bytes) -> str:
    return json.dumps(json.loads(body)["messages"])


class CachingModel:
    """A model that answers as Anthropic's API does and bills by prefix: a token for four bytes."""

    def __init__(self) -> None:
        self._last: dict[str, bytes] = {}

    def bill(self, body: bytes) -> dict[str, int]:
        """Return the usage of a request: its longest common prefix with the last one of its session is cached."""
        key = str(json.loads(body).get("system"))
        cached = count_common_prefix(self._last.get(key, b""), body) // 4
        self._last[key] = body
        usage = {"input_tokens": 0, "output_tokens": 7, "cache_read_input_tokens": cached}
        return {**usage, "cache_creation_input_tokens": len(body) // 4 - cached}

    async def answer(self, request: web.Request) -> web.StreamResponse:
        return await answer_with_usage(request, self.bill(request[BODY]))


def count_common_prefix(first: bytes, second: bytes) -> int:
    """Return the length of the common prefix, by bisection."""
    low, high = 0, min(len(first), len(second))
    while low < high:
        middle = (low + high + 1) // 2
        if first[low:middle] == second[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def anthropic_usage(body: bytes) -> dict[str, int]:
    """A usage in proportion to the request: a token for four bytes, nothing cached."""
    tokens = len(body) // 4
    fields = ("cache_read_input_tokens", "cache_creation_input_tokens")
    return {"input_tokens": tokens, "output_tokens": 7, **dict.fromkeys(fields, 0)}


async def answer_messages(request: web.Request) -> web.StreamResponse:
    """Answer as Anthropic's API does: a stream or an object."""
    return await answer_with_usage(request, anthropic_usage(request[BODY]))


async def answer_with_usage(request: web.Request, usage: dict[str, int]) -> web.StreamResponse:
    if b'"stream": true' not in request[BODY]:
        return web.json_response({"type": "message", "content": [], "usage": usage})
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    start = {"type": "message_start", "message": {"usage": {**usage, "output_tokens": 1}}}
    end = {"type": "message_delta", "delta": {}, "usage": {"output_tokens": 7}}
    for event in (start, {"type": "ping"}, end):
        await response.write(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())
    return response


def list_ledgers(home: Path) -> list[Path]:
    return sorted((home / "proxy").glob("*.sqlite3"))
