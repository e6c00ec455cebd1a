"""Shared by both loops, so that they run offline: a project, its tools, and a model on loopback.

The model serves Anthropic's Messages and OpenAI's Chat Completions and plays an agent that knows only its context. It
lists the files of the project, reads each one, searches for its importers, and keeps running totals in its own
messages. If content it needs was removed from its history, it requests it by the id of the placeholder.

Like the real APIs it rejects calls without results, results without calls, wrong roles and empty text. Its usage also
follows theirs: a token is four characters, and the prefix shared with an earlier request is read from a cache.
"""

import json
import os
import re
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import groupby
from pathlib import Path
from threading import Lock, Thread
from typing import Any, NamedTuple

Json = dict[str, Any]

QUESTION = "Each module here has a CAPACITY. What do those that another one imports add up to? Read every file."

# --- the project and its tools -----------------------------------------------------------------------------------

GOODS = [
    *("anvil", "barley", "candle", "drum", "easel", "flint", "glue", "hinge", "inkwell", "jug", "kettle", "ladder"),
    *("mortar", "needle", "oar", "pulley", "quill", "rope", "saddle", "twine", "urn", "vice", "wheel", "yarn"),
]
CHORES = ["count and list again", "turn, dust and look after", "lift down and weigh", "label in ink", "sell or lend"]
TIMES = [
    "when a new crate comes in from the harbour",
    "on the first morning of every month",
    "before the doors are opened to the public",
    "as soon as the roof above it lets the rain through",
    "whenever a customer has asked for it twice in one week",
    "if nobody has come to fetch it by the evening",
]


class Tool(NamedTuple):
    """Description of a tool for the model."""

    name: str
    description: str
    schema: Json


def tool(name: str, description: str, *arguments: str) -> Tool:
    """Define a tool whose arguments are required strings."""
    properties = {argument: {"type": "string"} for argument in arguments}
    return Tool(name, description, {"type": "object", "properties": properties, "required": [*arguments]})


PROJECT_TOOLS = [
    tool("list_files", "All files of the project, with their sizes."),
    tool("read_file", "The text of a file.", "path"),
    tool("search_files", "The lines of all files that contain a text.", "text"),
]


def make_project(folder: Path) -> None:
    """Write a small project into a folder: a warehouse with one module per product."""
    (folder / "README.md").write_text("# A warehouse\n\nOne module for each of the goods: its room, and its rules.\n")
    for number, name in enumerate(GOODS):
        others = sorted({GOODS[number * 5 % 17], GOODS[(number * 3 + 4) % 19]} - {name})
        lines = [f'"""What to do about each {name}."""', "", *(f"import {other}" for other in others), ""]
        lines += [f"CAPACITY = {number * 37 % 90 + 10}", "", "RULES = ["]
        lines += [f'    "{CHORES[row % 5]} the {name} {TIMES[(row + number) % 6]}",' for row in range(20)]
        (folder / f"{name}.py").write_text("\n".join([*lines, "]", ""]))


def run_tool(folder: Path, name: str, arguments: dict[str, str]) -> str:
    """Run a tool on the project; files are found by name, so no path can leave the folder."""
    files = {path.name: path.read_text() for path in sorted(folder.iterdir())}
    match name:
        case "list_files":
            return "\n".join(f"{file} {len(text)} characters" for file, text in files.items())
        case "read_file":
            return files[arguments["path"]]
        case "search_files":
            lines = [f"{file}: {line}" for file, text in files.items() for line in text.splitlines()]
            return "\n".join(line for line in lines if arguments["text"] in line) or "nothing found"
    raise LookupError(f"there is no tool {name!r}")


# --- the agent ---------------------------------------------------------------------------------------------------


class Call(NamedTuple):
    """A tool call."""

    name: str
    arguments: dict[str, str]


class Step(NamedTuple):
    """One earlier model message: its text, its calls, and their results."""

    text: str
    calls: dict[str, Call]
    results: dict[str, str]


NOTE = re.compile(r"Up to (\S+): (\d+)")
HOLDS = re.compile(r"(\S+) has (\d+)")
CAPACITY = re.compile(r"^CAPACITY = (\d+)", re.MULTILINE)
LISTED = re.compile(r"^(\S+\.py) \d+ characters$", re.MULTILINE)
PLACEHOLDER = re.compile(r"\[thresher (t1:[0-9a-f]{16}) · ([^\]]+)\]")


def next_step(steps: list[Step]) -> tuple[str, list[Call]]:
    """Return the next text and calls of the agent, derived only from its context."""
    if not steps:
        return "Up to README.md: 0.", [Call("list_files", {}), Call("read_file", {"path": "README.md"})]
    last = steps[-1]
    done, total = NOTE.findall(last.text)[-1]
    for key, call in last.calls.items():
        if call.name == "read_file" and (found := CAPACITY.search(last.results[key])):
            path = call.arguments["path"]
            search = Call("search_files", {"text": f"import {path.removesuffix('.py')}"})
            return f"{path} has {found[1]}. Up to {done}: {total}.", [search]
        if call.name == "search_files":
            done, capacity = HOLDS.findall(last.text)[-1]
            total = int(total) + (int(capacity) if call.arguments["text"] in last.results[key] else 0)
    note = f"Up to {done}: {total}."
    if not (listed := _listed(steps)):
        return f"Which file is next? {note}", [_restore_call(steps, "list_files") or Call("list_files", {})]
    if ahead := [path for path in listed if path > done]:
        return note, [Call("read_file", {"path": ahead[0]})]
    looks_back = any(call.name == "restore" for call in last.calls.values())
    if not looks_back and (restore := _restore_call(steps)):
        return f"One look back before I answer. {note}", [restore]
    return f"The modules that others import have a capacity of {total}.", []


def _listed(steps: list[Step]) -> list[str]:
    """Return the modules of the project if a list of them is still in the context."""
    return sorted({path for step in steps for result in step.results.values() for path in LISTED.findall(result)})


def _restore_call(steps: list[Step], tool: str = "") -> Call | None:
    """Return the newest call that restores removed content of a tool, if its placeholder is in the context."""
    texts = [text for step in steps for text in (step.text, *step.results.values())]
    found = [part_id for text in texts for part_id, label in PLACEHOLDER.findall(text) if label.startswith(tool)]
    return Call("restore", {"id": found[-1]}) if found else None


# --- validation of requests --------------------------------------------------------------------------------------


class RejectedRequest(Exception):
    """A request that the real API would reject, too."""


def _require(holds: object, message: str) -> None:
    if not holds:
        raise RejectedRequest(message)


def _text(content: str | list[Json] | None, where: str) -> str:
    """Return the text of a message or a result, which both APIs accept as a string or as blocks."""
    texts = [content] if isinstance(content, str) else [block["text"] for block in content or ()]
    _require(texts and all(text.strip() for text in texts), f"{where}: text must not be empty")
    return "\n".join(texts)


def anthropic_steps(body: Json) -> list[Step]:
    """Validate a request to Anthropic's Messages API and return its steps."""
    _require(body["model"] and body["max_tokens"] and body["messages"], "model, max_tokens and messages are required")
    _require(json.dumps(body).count('"cache_control":') <= 4, "at most 4 blocks may have cache_control")
    steps: list[Step] = []
    # Like the API, merge consecutive messages of one role.
    for number, (role, rows) in enumerate(groupby(body["messages"], key=lambda row: row["role"])):
        where = f"messages.{number}"
        _require(role == ("assistant" if number % 2 else "user"), f"{where}: unexpected role {role!r}")
        blocks = [block for row in rows for block in _blocks(row["content"], where)]
        kinds = {kind: [block for block in blocks if block["type"] == kind] for kind in KINDS[role]}
        _require(len(blocks) == sum(map(len, kinds.values())), f"{where}: blocks that a {role} message cannot have")
        texts = "\n".join(block["text"] for block in kinds["text"])
        if role == "assistant":
            calls = [(block["id"], Call(block["name"], block["input"])) for block in kinds["tool_use"]]
            _add_step(steps, texts, calls, where)
            continue
        results = kinds["tool_result"]
        _require(results == blocks[: len(results)], f"{where}: tool_result blocks come first")
        for block in results:
            _add_result(steps, block["tool_use_id"], _text(block["content"], where), where)
        _require_answers(steps, where)
    _require(role == "user", "messages: the last one must be the user's")
    return steps


KINDS = {"user": ("text", "tool_result"), "assistant": ("text", "tool_use")}


def _blocks(content: str | list[Json], where: str) -> list[Json]:
    """Return the content of a message as non-empty blocks."""
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    _require(blocks, f"{where}: content must not be empty")
    for block in blocks:
        if block["type"] == "text":
            _text(block["text"], where)
    return blocks


def chat_steps(body: Json) -> list[Step]:
    """Validate a request to OpenAI's Chat Completions API and return its steps."""
    _require(body["model"] and body["messages"], "model and messages are required")
    steps: list[Step] = []
    for number, row in enumerate(body["messages"]):
        where, role, content = f"messages[{number}]", row["role"], row.get("content")
        _require(role in ("system", "user", "assistant", "tool"), f"{where}: unexpected role {role!r}")
        if role == "tool":
            _add_result(steps, row["tool_call_id"], _text(content, where), where)
            continue
        _require_answers(steps, where)
        functions = [(call["id"], call["function"]) for call in row.get("tool_calls") or ()]
        text = "" if functions and content is None else _text(content, where)
        if role == "assistant":
            calls = [(key, Call(one["name"], json.loads(one["arguments"]))) for key, one in functions]
            _add_step(steps, text, calls, where)
    _require_answers(steps, "messages")
    return steps


def _add_step(steps: list[Step], text: str, calls: list[tuple[str, Call]], where: str) -> None:
    ids = [key for step in steps for key in step.calls] + [key for key, _ in calls]
    _require(len(ids) == len(set(ids)), f"{where}: the ids of calls must be unique")
    steps.append(Step(text, dict(calls), {}))


def _add_result(steps: list[Step], key: str, text: str, where: str) -> None:
    """Add a result, which must belong to a call of the latest model message and be its only one."""
    is_open = bool(steps) and key in steps[-1].calls and key not in steps[-1].results
    _require(is_open, f"{where}: a result for {key!r}, which is no open call")
    steps[-1].results[key] = text


def _require_answers(steps: list[Step], where: str) -> None:
    missing = steps[-1].calls.keys() - steps[-1].results.keys() if steps else ()
    _require(not missing, f"{where}: calls without results: {sorted(missing)}")


# --- usage -------------------------------------------------------------------------------------------------------


class Cache:
    """Hashes of the prefixes of earlier requests: up to each breakpoint, or of every block if there are none."""

    MINIMUM = 1024
    REACH = 20

    def __init__(self) -> None:
        self._known: set[str] = set()

    def usage(self, blocks: list[Json], *, marked: bool) -> tuple[int, int, int]:
        """Return the tokens of a request that are read from the cache, written to it, and neither."""
        sizes, hashes, ends = [0], [""], [0]
        for number, block in enumerate(blocks, 1):
            text = json.dumps({key: value for key, value in block.items() if key != "cache_control"})
            sizes.append(sizes[-1] + (len(text) + 3) // 4)
            hashes.append(sha256((hashes[-1] + text).encode()).hexdigest())
            if not marked or "cache_control" in block:
                ends.append(number)
        seen = (place for end in ends for place in range(max(end - self.REACH, 0) + 1, end + 1))
        read = max((sizes[place] for place in seen if hashes[place] in self._known), default=0)
        self._known.update(hashes[end] for end in ends if sizes[end] >= self.MINIMUM)
        written = sizes[ends[-1]] - read if sizes[ends[-1]] >= self.MINIMUM else 0
        return read, written, sizes[-1] - read - written


def anthropic_blocks(body: Json) -> list[Json]:
    """Return the blocks that Anthropic's cache hashes, in order: tools, system, the blocks of each message."""
    system = body.get("system") or []
    blocks = [*body.get("tools", []), *([{"text": system}] if isinstance(system, str) else system)]
    for row in body["messages"]:
        content = row["content"]
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
        blocks += [{"role": row["role"], **part} for part in parts]
    return blocks


# --- the server --------------------------------------------------------------------------------------------------


class _Handler(BaseHTTPRequestHandler):
    server: "FakeModel"

    def do_POST(self) -> None:
        """Answer like the API of the path."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        answers = {"/v1/messages": self.server.message, "/v1/chat/completions": self.server.completion}
        try:
            _require(self.path in answers, f"no such path: {self.path}")
            with self.server.lock:
                self.server.requests.append(body)
                self._reply(200, answers[self.path](body))
        except (RejectedRequest, LookupError, TypeError, ValueError) as error:
            self.server.rejections.append(f"{type(error).__name__}: {error}")
            self._reply(400, {"type": "error", "error": {"type": "invalid_request_error", "message": str(error)}})

    def _reply(self, status: int, value: Json) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: the loop prints its own progress."""


class FakeModel(ThreadingHTTPServer):
    """The model, which serves on a free port until the process ends or calls `close`."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.lock = Lock()
        self.requests: list[Json] = []
        """All requests."""
        self.rejections: list[str] = []
        """Reasons of rejected requests."""
        self.usages: list[tuple[int, int, int]] = []
        """For each accepted request: tokens read from the cache, written to it, and neither."""
        self._cache = Cache()
        # Otherwise a configured proxy would also get the loopback requests.
        os.environ["no_proxy"] = ",".join(filter(None, (os.environ.get("no_proxy"), "127.0.0.1")))
        Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    @property
    def url(self) -> str:
        """Address of the server."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def close(self) -> None:
        """Stop serving."""
        self.shutdown()
        self.server_close()

    def message(self, body: Json) -> Json:
        """Return a response of Anthropic's API."""
        text, calls = next_step(anthropic_steps(body))
        read, written, rest = self._count_usage(anthropic_blocks(body), marked=True)
        content: list[Json] = [{"type": "text", "text": text}]
        for number, call in enumerate(calls):
            block = {"type": "tool_use", "id": f"toolu_{len(self.usages)}_{number}"}
            content.append({**block, "name": call.name, "input": call.arguments})
        return {
            "id": f"msg_{len(self.usages)}",
            "type": "message",
            "role": "assistant",
            "model": body["model"],
            "content": content,
            "stop_reason": "tool_use" if calls else "end_turn",
            "usage": {
                "input_tokens": rest,
                "cache_read_input_tokens": read,
                "cache_creation_input_tokens": written,
                "output_tokens": len(json.dumps(content)) // 4,
            },
        }

    def completion(self, body: Json) -> Json:
        """Return a response of OpenAI's API."""
        text, calls = next_step(chat_steps(body))
        read, written, rest = self._count_usage([*body.get("tools", []), *body["messages"]], marked=False)
        message: Json = {"role": "assistant", "content": text}
        for number, call in enumerate(calls):
            function = {"name": call.name, "arguments": json.dumps(call.arguments)}
            made = {"id": f"call_{len(self.usages)}_{number}", "type": "function", "function": function}
            message.setdefault("tool_calls", []).append(made)
        sent, answered = read + written + rest, len(json.dumps(message)) // 4
        return {
            "id": f"chatcmpl-{len(self.usages)}",
            "object": "chat.completion",
            "model": body["model"],
            "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop"}],
            "usage": {
                "prompt_tokens": sent,
                "completion_tokens": answered,
                "total_tokens": sent + answered,
                "prompt_tokens_details": {"cached_tokens": read // 128 * 128},
            },
        }

    def _count_usage(self, blocks: list[Json], *, marked: bool) -> tuple[int, int, int]:
        self.usages.append(self._cache.usage(blocks, marked=marked))
        return self.usages[-1]
