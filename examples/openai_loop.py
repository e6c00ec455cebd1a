"""An agent's loop on OpenAI's Chat Completions API; a window keeps its requests small. See README.md to run it."""

import json
import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from fake_model import PROJECT_TOOLS, QUESTION, FakeModel, make_project, run_tool, tool

import thresher as th
from thresher.window import WindowEvent

Json = dict[str, Any]
TOOLS = [*PROJECT_TOOLS, tool("restore", "The text that a placeholder `[thresher t1:… · …]` replaces.", "id")]
SYSTEM = "Answer with the help of the tools, and keep your notes in what you say."
MODEL = os.environ.get("OPENAI_MODEL", "gpt-5.6")
MOST_CALLS = 100


def ask(base: str, body: Json) -> Any:
    headers = {"authorization": f"Bearer {os.environ.get('OPENAI_API_KEY', '')}", "content-type": "application/json"}
    request = Request(f"{base}/chat/completions", json.dumps(body).encode(), headers)
    try:
        with urlopen(request, timeout=600) as response:
            return json.load(response)
    except HTTPError as error:
        raise SystemExit(f"{error}: {error.read().decode()}") from error


def answer(folder: Path, call: Json) -> Json:
    name = call["function"]["name"]
    try:
        arguments = json.loads(call["function"]["arguments"])
        text = th.restore(arguments["id"]) if name == "restore" else run_tool(folder, name, arguments)
    except (LookupError, ValueError, th.ThresherError) as error:
        text = f"failed: {error}"
    return {"role": "tool", "tool_call_id": call["id"], "content": text}


def report(event: WindowEvent) -> None:
    print(f"{event.trigger}: {event.reason}; now {event.tokens_after:,}")


def main(folder: Path) -> None:
    base = os.environ.get("OPENAI_BASE_URL") or f"{FakeModel().url}/v1"
    window = th.Window(budget=6_000, on_event=report)
    functions = [{"name": tool.name, "description": tool.description, "parameters": tool.schema} for tool in TOOLS]
    tools = [{"type": "function", "function": function} for function in functions]
    messages: list[Json] = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": QUESTION}]
    sent = full = billed = cached = 0
    for _ in range(MOST_CALLS):
        unfitted = {"model": MODEL, "tools": tools, "messages": messages}
        request = window.fit(unfitted)
        response = ask(base, request)
        window.observe(response["usage"])
        sent, full = sent + th.count(th.parse(request)), full + th.count(th.parse(unfitted))
        billed += response["usage"]["prompt_tokens"]
        cached += response["usage"]["prompt_tokens_details"]["cached_tokens"]
        message = response["choices"][0]["message"]
        # This list keeps everything: the window removes content only from the request.
        messages.append(message)
        if not message.get("tool_calls"):
            break
        messages += [answer(folder, call) for call in message["tool_calls"]]
    else:
        raise SystemExit(f"no answer after {MOST_CALLS} calls")
    print(message["content"])
    print(f"sent {sent:,} tokens instead of {full:,}; {cached / billed:.0%} of the input was read from the cache")
    removed = [th.restore(part_id) for event in window.events for part_id in event.removed_ids]
    print(f"removed {len(removed)} parts, and restored all; the longest: {max(removed, key=len, default='')!r:.60}")


if __name__ == "__main__":
    with TemporaryDirectory() as temporary:
        make_project(Path(temporary))
        main(Path(temporary))
