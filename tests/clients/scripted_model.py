"""A model on loopback that plays a story: each request selects a turn of the story and gets it as the answer.

It streams the APIs of the agents: Anthropic's Messages, OpenAI's Responses and Chat Completions, Gemini's
generateContent. A strict model refuses what the real APIs refuse, and bills each request by its cached prefix. All
other connections of a client go through a proxy that also leads here and rejects them.
"""

import gzip
import json
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import Any, NamedTuple

from backports import zstd
from strict_model import (
    AFTER_THINKING,
    Billing,
    Json,
    Usage,
    blocks_of,
    check_chat,
    check_contents,
    check_messages,
    check_responses,
    seal,
    thinking_signature,
    without_breakpoints,
)

NO_COST = Usage(10, 0, 0)


class Call(NamedTuple):
    """A tool call of the model."""

    name: str
    arguments: Json
    id: str = ""


class Turn(NamedTuple):
    """Text and calls of one model turn."""

    text: str
    calls: tuple[Call, ...] = ()
    thinking: str = ""


class Result(NamedTuple):
    """Result of a call, as the client sends it back."""

    tool: str
    text: str
    call_id: str = ""


class ModelRequest(NamedTuple):
    """The parts of a request that stories use."""

    prompts: list[str]
    """Text of the user messages without results."""
    results: list[Result]
    tools: list[str]
    body: Json

    def has_prompt(self, words: str) -> bool:
        """Return True if a user message contains this text."""
        return any(words in prompt for prompt in self.prompts)


Story = Callable[[ModelRequest], Turn]


class ScriptedModel(ThreadingHTTPServer):
    """Serves on a free port until `close`; `requests` holds all of them, and `refusals` what a strict model refused."""

    daemon_threads = True

    def __init__(self, story: Story, *, strict: bool = False) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.story = story
        self.strict = strict
        self.billing = Billing()
        self.refusals: list[str] = []
        self.prefixes: list[list[str]] = []
        """The pieces of each request, as a strict model's cache sees them."""
        self.requests: list[ModelRequest] = []
        self._lock = Lock()
        self._thread = Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """Address of the server."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def close(self) -> None:
        """Stop serving."""
        self.shutdown()
        self.server_close()
        self._thread.join()

    def answer(self, api: "Api", body: Json) -> list[Json] | str:
        """Return the events of the answer to a request, or why the request is refused."""
        with self._lock:
            problems = list(api.check(body)) if self.strict else []
            self.refusals += problems
            if problems:
                return problems[0]
            request = api.read(body)
            self.requests.append(request)
            number = str(len(self.requests))
            usage = NO_COST
            if self.strict:
                pieces, *breakpoints = api.pieces(body)
                self.prefixes.append([json.dumps(without_breakpoints(piece), sort_keys=True) for piece in pieces])
                usage = self.billing.bill(pieces, *breakpoints)
        return list(api.write(self.story(request), number, body, usage))


class _Handler(BaseHTTPRequestHandler):
    server: ScriptedModel

    def do_HEAD(self) -> None:
        self._reply(200, "text/plain", "")

    do_GET = do_HEAD

    def do_POST(self) -> None:
        body = json.loads(self._body())
        verb = self.path.partition("?")[0].rpartition("/")[2].rpartition(":")[2]
        if verb not in APIS:
            self._reply(404, "application/json", "{}")
            return
        api = APIS[verb]
        events = self.server.answer(api, body)
        if isinstance(events, str):
            error = {"type": "error", "error": {"type": "invalid_request_error", "message": events}}
            self._reply(400, "application/json", json.dumps(error))
            return
        text = "".join(_named(event) + f"data: {json.dumps(event)}\n\n" for event in events)
        self._reply(200, "text/event-stream", text + api.end)

    def _body(self) -> bytes:
        """Return the body, unpacked."""
        if self.headers.get("Transfer-Encoding") == "chunked":
            data = b""
            while size := int(self.rfile.readline(), 16):
                data += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        else:
            data = self.rfile.read(int(self.headers["Content-Length"]))
        unpack = {"zstd": zstd.decompress, "gzip": gzip.decompress}.get(self.headers.get("Content-Encoding", ""))
        return unpack(data) if unpack else data

    def _reply(self, status: int, kind: str, text: str) -> None:
        data = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: `requests` keeps them."""


def _named(event: Json) -> str:
    return f"event: {event['type']}\n" if "type" in event else ""


def _text(content: str | list[Json]) -> str:
    return content if isinstance(content, str) else "\n".join(block.get("text", "") for block in content)


def _read_messages(body: Json) -> ModelRequest:
    prompts, results, names = [], [], {}
    for message in body["messages"]:
        content = message["content"]
        for block in [{"type": "text", "text": content}] if isinstance(content, str) else content:
            match block["type"]:
                case "tool_use":
                    names[block["id"]] = block["name"]
                case "tool_result":
                    results.append(Result(names[block["tool_use_id"]], _text(block["content"]), block["tool_use_id"]))
                case "text" if message["role"] == "user":
                    prompts.append(block["text"])
    return ModelRequest(prompts, results, [tool["name"] for tool in body.get("tools", ())], body)


def _cut_messages(body: Json) -> tuple[list[Any], set[int]]:
    """Return the pieces of a request in the order of the cache, and the numbers of those with a breakpoint."""
    system = body.get("system", [])
    pieces: list[Any] = [*body.get("tools", []), *([system] if isinstance(system, str) else system)]
    for message in body["messages"]:
        pieces += [{"role": message["role"], **block} for block in blocks_of(message)]
    return pieces, {at for at, piece in enumerate(pieces) if isinstance(piece, dict) and "cache_control" in piece}


def _write_message(turn: Turn, number: str, body: Json, billed: Usage) -> Iterator[Json]:
    usage = {"input_tokens": billed.fresh, "output_tokens": 5}
    usage |= {"cache_read_input_tokens": billed.read, "cache_creation_input_tokens": billed.written}
    model = "scripted" if billed is NO_COST else body["model"]
    message: Json = {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": model, "content": []}
    yield {"type": "message_start", "message": {**message, "stop_reason": None, "usage": usage}}
    blocks: list[tuple[Json, list[Json]]] = []
    if turn.thinking:
        is_strict = billed is not NO_COST
        signature = thinking_signature(body, len(body["messages"]), turn.thinking) if is_strict else "c2lnbmVk"
        deltas = [{"type": "thinking_delta", "thinking": turn.thinking}]
        deltas.append({"type": "signature_delta", "signature": signature})
        blocks.append(({"type": "thinking", "thinking": "", "signature": ""}, deltas))
    if turn.text or not turn.calls:
        blocks.append(({"type": "text", "text": ""}, [{"type": "text_delta", "text": turn.text}]))
    for place, call in enumerate(turn.calls):
        call_id = f"{call.id}{AFTER_THINKING if turn.thinking else ''}" if call.id else f"toolu_{number}_{place}"
        block = {"type": "tool_use", "id": call_id, "name": call.name, "input": {}}
        blocks.append((block, [{"type": "input_json_delta", "partial_json": json.dumps(call.arguments)}]))
    for index, (block, deltas) in enumerate(blocks):
        yield {"type": "content_block_start", "index": index, "content_block": block}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    reason = "tool_use" if turn.calls else "end_turn"
    yield {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": usage}
    yield {"type": "message_stop"}


def _read_responses(body: Json) -> ModelRequest:
    prompts, results, names = [], [], {}
    for item in body["input"]:
        match item["type"]:
            case "function_call":
                names[item["call_id"]] = _joined(item.get("namespace"), item["name"])
            case "function_call_output":
                results.append(Result(names[item["call_id"]], _text(item["output"]), item["call_id"]))
            case "message" if item["role"] == "user":
                prompts.append(_text(item["content"]))
    tools: list[Json] = body.get("tools") or next(
        (item["tools"] for item in body["input"] if item["type"] == "additional_tools"), []
    )
    return ModelRequest(prompts, results, [name for tool in tools for name in _names(tool)], body)


def _names(tool: Json) -> Iterator[str]:
    """Yield the tools, which a client groups into one namespace per server."""
    if tool["type"] == "namespace":
        yield from (_joined(tool["name"], one["name"]) for one in tool["tools"])
    else:
        yield str(tool.get("name", tool["type"]))


def _joined(namespace: str | None, name: str) -> str:
    return f"{namespace}__{name}" if namespace else name


def _cut_responses(body: Json) -> tuple[list[Any]]:
    return ([body.get("tools"), body.get("instructions"), *body["input"]],)


def _write_response(turn: Turn, number: str, _body: Json, billed: Usage) -> Iterator[Json]:
    content = [{"type": "output_text", "text": turn.text}]
    items: list[Json] = [{"type": "message", "role": "assistant", "id": f"msg_{number}", "content": content}]
    for place, call in enumerate(turn.calls):
        namespace, _, name = call.name.rpartition("__")
        made = {
            "type": "function_call",
            "call_id": call.id or f"call_{number}_{place}",
            "arguments": json.dumps(call.arguments),
        }
        items.append({**made, "name": name, **({"namespace": namespace} if namespace else {})})
    if turn.thinking:
        summary = [{"type": "summary_text", "text": turn.thinking}]
        thought = {"type": "reasoning", "id": f"rs_{number}", "summary": summary, "encrypted_content": seal(summary)}
        items.insert(0, thought)
    yield {"type": "response.created", "response": {"id": f"resp_{number}"}}
    for item in items:
        yield {"type": "response.output_item.done", "item": item}
    usage: Json = {"input_tokens": billed.total, "input_tokens_details": {"cached_tokens": billed.read}}
    usage |= {"output_tokens": 5, "total_tokens": billed.total + 5}
    yield {"type": "response.completed", "response": {"id": f"resp_{number}", "usage": usage}}


def _read_chat(body: Json) -> ModelRequest:
    prompts, results, names = [], [], {}
    for message in body["messages"]:
        for call in message.get("tool_calls") or ():
            names[call["id"]] = call["function"]["name"]
        if message["role"] == "tool":
            call_id = message["tool_call_id"]
            results.append(Result(names[call_id], _text(message["content"]), call_id))
        elif message["role"] == "user":
            prompts.append(_text(message["content"]))
    return ModelRequest(prompts, results, [tool["function"]["name"] for tool in body.get("tools") or ()], body)


def _cut_chat(body: Json) -> tuple[list[Any]]:
    return ([body.get("tools"), *body["messages"]],)


def _write_chat(turn: Turn, number: str, _body: Json, billed: Usage) -> Iterator[Json]:
    base = {"id": f"chatcmpl-{number}", "object": "chat.completion.chunk", "created": 1, "model": "scripted"}
    calls = [
        {
            "index": place,
            "id": call.id or f"call_{number}_{place}",
            "type": "function",
            "function": {"name": call.name, "arguments": json.dumps(call.arguments)},
        }
        for place, call in enumerate(turn.calls)
    ]
    delta = {"role": "assistant", "content": turn.text, **({"tool_calls": calls} if calls else {})}
    yield {**base, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    yield {**base, "choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls" if calls else "stop"}]}
    usage = {"prompt_tokens": billed.total, "completion_tokens": 5, "total_tokens": billed.total + 5}
    yield {**base, "choices": [], "usage": {**usage, "prompt_tokens_details": {"cached_tokens": billed.read}}}


def _read_contents(body: Json) -> ModelRequest:
    prompts, results = [], []
    for content in body["contents"]:
        for part in content["parts"]:
            if "functionResponse" in part:
                answer = part["functionResponse"]
                results.append(Result(answer["name"], json.dumps(answer["response"]), answer.get("id", "")))
            elif content["role"] == "user" and "text" in part:
                prompts.append(part["text"])
    tools = [one["name"] for tool in body.get("tools", ()) for one in tool.get("functionDeclarations", ())]
    return ModelRequest(prompts, results, tools, body)


def _cut_contents(body: Json) -> tuple[list[Any]]:
    return ([body.get("systemInstruction"), body.get("tools"), *body["contents"]],)


def _write_content(turn: Turn, number: str, _body: Json, billed: Usage) -> Iterator[Json]:
    parts: list[Json] = (
        [{"text": f"**Thinking {number}**\n\n{turn.thinking}", "thought": True}] if turn.thinking else []
    )
    parts.append({"text": turn.text})
    for place, call in enumerate(turn.calls):
        made: Json = {"functionCall": {"name": call.name, "args": call.arguments}}
        made["functionCall"] |= {"id": call.id} if call.id else {}
        # Only the first call of a turn is signed.
        parts.append({**made, "thoughtSignature": seal(call.arguments)} if turn.thinking and not place else made)
    candidate = {"content": {"role": "model", "parts": parts}, "finishReason": "STOP", "index": 0}
    usage = {"promptTokenCount": billed.total, "cachedContentTokenCount": billed.read}
    usage |= {"candidatesTokenCount": 5, "totalTokenCount": billed.total + 5}
    yield {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "scripted", "responseId": f"r{number}"}


class Api(NamedTuple):
    """An API: how a request is read, checked and cut for its bill, and how a turn is written."""

    read: Callable[[Json], ModelRequest]
    write: Callable[[Turn, str, Json, Usage], Iterator[Json]]
    check: Callable[[Json], Iterator[str]]
    pieces: Callable[[Json], tuple[Any, ...]]
    end: str = ""


APIS = {
    "messages": Api(_read_messages, _write_message, check_messages, _cut_messages),
    "responses": Api(_read_responses, _write_response, check_responses, _cut_responses),
    "completions": Api(_read_chat, _write_chat, check_chat, _cut_chat, "data: [DONE]\n\n"),
    "streamGenerateContent": Api(_read_contents, _write_content, check_contents, _cut_contents),
}
"""APIs by the last segment of the path."""
