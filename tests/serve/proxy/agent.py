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


def anthropic_usage(body: bytes) -> dict[str, int]:
    """A usage in proportion to the request: a token for four bytes, nothing cached."""
    tokens = len(body) // 4
    fields = ("cache_read_input_tokens", "cache_creation_input_tokens")
    return {"input_tokens": tokens, "output_tokens": 7, **dict.fromkeys(fields, 0)}


async def answer_messages(request: web.Request) -> web.StreamResponse:
    """Answer as Anthropic's API does: a stream or an object."""
    body = request[BODY]
    usage = anthropic_usage(body)
    if b'"stream": true' not in body:
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
