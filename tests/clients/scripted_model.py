"""A model on loopback that plays a story: each request selects a turn of the story and gets it as the answer.

It streams the APIs of the agents: Anthropic's Messages, OpenAI's Responses, Gemini's generateContent. All other
connections of a client go through a proxy that also leads here and rejects them.
"""

import json
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import Any, NamedTuple

Json = dict[str, Any]


class Call(NamedTuple):
    """A tool call of the model."""

    name: str
    arguments: Json


class Turn(NamedTuple):
    """Text and calls of one model turn."""

    text: str
    calls: tuple[Call, ...] = ()
    thinking: str = ""


class Result(NamedTuple):
    """Result of a call, as the client sends it back."""

    tool: str
    text: str


class ModelRequest(NamedTuple):
    """The parts of a request that stories use."""

    prompts: list[str]
    """Text of the user messages without results."""
    results: list[Result]
    tools: list[str]

    def has_prompt(self, words: str) -> bool:
        """Return True if a user message contains this text."""
        return any(words in prompt for prompt in self.prompts)


Story = Callable[[ModelRequest], Turn]


class ScriptedModel(ThreadingHTTPServer):
    """Serves on a free port until `close`; `requests` holds all of them."""

    daemon_threads = True

    def __init__(self, story: Story) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.story = story
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

    def turn(self, request: ModelRequest) -> tuple[Turn, str]:
        """Return the turn of the story for a request, and a number for unique ids."""
        with self._lock:
            self.requests.append(request)
            number = str(len(self.requests))
        return self.story(request), number


class _Handler(BaseHTTPRequestHandler):
    server: ScriptedModel

    def do_HEAD(self) -> None:
        self._reply(200, "text/plain", "")

    do_GET = do_HEAD

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        verb = self.path.partition("?")[0].rpartition("/")[2].rpartition(":")[2]
        if verb not in DIALECTS:
            self._reply(404, "application/json", "{}")
            return
        read, write = DIALECTS[verb]
        turn, number = self.server.turn(read(body))
        events = (_named(event) + f"data: {json.dumps(event)}\n\n" for event in write(turn, number))
        self._reply(200, "text/event-stream", "".join(events))

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
                    results.append(Result(names[block["tool_use_id"]], _text(block["content"])))
                case "text" if message["role"] == "user":
                    prompts.append(block["text"])
    return ModelRequest(prompts, results, [tool["name"] for tool in body.get("tools", ())])


def _write_message(turn: Turn, number: str) -> Iterator[Json]:
    usage = {"input_tokens": 10, "output_tokens": 5}
    message = {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": "scripted", "content": []}
    yield {"type": "message_start", "message": {**message, "stop_reason": None, "usage": usage}}
    blocks: list[tuple[Json, Json]] = [
        ({"type": "text", "text": ""}, {"type": "text_delta", "text": turn.text}),
    ]
    if turn.thinking:
        thought = {"type": "thinking", "thinking": "", "signature": "c2lnbmVk"}
        blocks.insert(0, (thought, {"type": "thinking_delta", "thinking": turn.thinking}))
    for place, call in enumerate(turn.calls):
        block = {"type": "tool_use", "id": f"toolu_{number}_{place}", "name": call.name, "input": {}}
        blocks.append((block, {"type": "input_json_delta", "partial_json": json.dumps(call.arguments)}))
    for index, (block, delta) in enumerate(blocks):
        yield {"type": "content_block_start", "index": index, "content_block": block}
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
                results.append(Result(names[item["call_id"]], _text(item["output"])))
            case "message" if item["role"] == "user":
                prompts.append(_text(item["content"]))
    return ModelRequest(prompts, results, [name for tool in body["tools"] for name in _names(tool)])


def _names(tool: Json) -> Iterator[str]:
    """Yield the tools, which a client groups into one namespace per server."""
    if tool["type"] == "namespace":
        yield from (_joined(tool["name"], one["name"]) for one in tool["tools"])
    else:
        yield str(tool.get("name", tool["type"]))


def _joined(namespace: str | None, name: str) -> str:
    return f"{namespace}__{name}" if namespace else name


def _write_response(turn: Turn, number: str) -> Iterator[Json]:
    content = [{"type": "output_text", "text": turn.text}]
    items: list[Json] = [{"type": "message", "role": "assistant", "id": f"msg_{number}", "content": content}]
    for place, call in enumerate(turn.calls):
        namespace, _, name = call.name.rpartition("__")
        made = {"type": "function_call", "call_id": f"call_{number}_{place}", "arguments": json.dumps(call.arguments)}
        items.append({**made, "name": name, **({"namespace": namespace} if namespace else {})})
    if turn.thinking:
        summary = [{"type": "summary_text", "text": turn.thinking}]
        items.insert(
            0, {"type": "reasoning", "id": f"rs_{number}", "summary": summary, "encrypted_content": "c2VhbGVk"}
        )
    yield {"type": "response.created", "response": {"id": f"resp_{number}"}}
    for item in items:
        yield {"type": "response.output_item.done", "item": item}
    usage = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}
    yield {"type": "response.completed", "response": {"id": f"resp_{number}", "usage": usage}}


def _read_contents(body: Json) -> ModelRequest:
    prompts, results = [], []
    for content in body["contents"]:
        for part in content["parts"]:
            if "functionResponse" in part:
                answer = part["functionResponse"]
                results.append(Result(answer["name"], json.dumps(answer["response"])))
            elif content["role"] == "user" and "text" in part:
                prompts.append(part["text"])
    tools = [one["name"] for tool in body.get("tools", ()) for one in tool.get("functionDeclarations", ())]
    return ModelRequest(prompts, results, tools)


def _write_content(turn: Turn, number: str) -> Iterator[Json]:
    parts: list[Json] = (
        [{"text": f"**Thinking {number}**\n\n{turn.thinking}", "thought": True}] if turn.thinking else []
    )
    parts.append({"text": turn.text})
    parts += [{"functionCall": {"name": call.name, "args": call.arguments}} for call in turn.calls]
    candidate = {"content": {"role": "model", "parts": parts}, "finishReason": "STOP", "index": 0}
    usage = {"promptTokenCount": 10, "candidatesTokenCount": 5, "totalTokenCount": 15}
    yield {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "scripted", "responseId": f"r{number}"}


DIALECTS: dict[str, tuple[Callable[[Json], ModelRequest], Callable[[Turn, str], Iterator[Json]]]] = {
    "messages": (_read_messages, _write_message),
    "responses": (_read_responses, _write_response),
    "streamGenerateContent": (_read_contents, _write_content),
}
"""Answer by the last segment of the path."""
