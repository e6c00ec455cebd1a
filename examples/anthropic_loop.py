"""An agent's loop on Anthropic's Messages API; a window keeps its requests small. See README.md to run it."""

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
MODEL = os.environ.get("ANTHROPIC_MODEL", "claude-sonnet-5")
MOST_CALLS = 100


def ask(base: str, body: Json) -> Any:
    headers = {"x-api-key": os.environ.get("ANTHROPIC_API_KEY", ""), "anthropic-version": "2023-06-01"}
    request = Request(f"{base}/v1/messages", json.dumps(body).encode(), {"content-type": "application/json", **headers})
    try:
        with urlopen(request, timeout=600) as response:
            return json.load(response)
    except HTTPError as error:
        raise SystemExit(f"{error}: {error.read().decode()}") from error


def answer(folder: Path, call: Json) -> Json:
    name, arguments = call["name"], call["input"]
    try:
        text, failed = th.restore(arguments["id"]) if name == "restore" else run_tool(folder, name, arguments), False
    except (LookupError, th.ThresherError) as error:
        text, failed = f"failed: {error}", True
    return {"type": "tool_result", "tool_use_id": call["id"], "content": text, "is_error": failed}


def report(event: WindowEvent) -> None:
    print(f"{event.trigger}: {event.reason}; now {event.tokens_after:,}")


def main(folder: Path) -> None:
    base = os.environ.get("ANTHROPIC_BASE_URL") or FakeModel().url
    window = th.Window(budget=6_000, on_event=report)
    tools = [{"name": tool.name, "description": tool.description, "input_schema": tool.schema} for tool in TOOLS]
    body = {"model": MODEL, "max_tokens": 1024, "system": SYSTEM, "tools": tools}
    messages: list[Json] = [{"role": "user", "content": QUESTION}]
    sent = full = billed = cached = 0
    for _ in range(MOST_CALLS):
        unfitted = {**body, "messages": messages}
        request = window.fit(unfitted)
        response = ask(base, request)
        usage = response["usage"]
        window.observe(usage)
        sent, full = sent + th.count(th.parse(request)), full + th.count(th.parse(unfitted))
        cached += usage["cache_read_input_tokens"]
        billed += usage["cache_read_input_tokens"] + usage["cache_creation_input_tokens"] + usage["input_tokens"]
        # This list keeps everything: the window removes content only from the request.
        messages.append({"role": "assistant", "content": response["content"]})
        calls = [block for block in response["content"] if block["type"] == "tool_use"]
        if not calls:
            break
        messages.append({"role": "user", "content": [answer(folder, call) for call in calls]})
    else:
        raise SystemExit(f"no answer after {MOST_CALLS} calls")
    print(*(block["text"] for block in response["content"] if block["type"] == "text"))
    print(f"sent {sent:,} tokens instead of {full:,}; {cached / billed:.0%} of the input was read from the cache")
    removed = [th.restore(part_id) for event in window.events for part_id in event.removed_ids]
    print(f"removed {len(removed)} parts, and restored all; the longest: {max(removed, key=len, default='')!r:.60}")


if __name__ == "__main__":
    with TemporaryDirectory() as temporary:
        make_project(Path(temporary))
        main(Path(temporary))
