"""Answer the requests of an agent's plug-in: one JSON object per line on standard input, and one on standard output.

The plug-in starts one process for each process of the agent and keeps it, because a new Python for each model call
would add a third of a second to each, and an answer takes a few milliseconds. The pipes need no port and no token, and
the process ends with the agent. A plug-in that calls it rarely, such as that of Claude Code at a compaction, writes one
line and closes the input.

A request has an `id` and a `kind`:

- `body`: the `body` of a request to a model, in the dialect of pi's name `api`, and the `session`. The answer has the
  `body` to send;
- `opencode`: the messages of opencode before a model call, as `rows`. The answer has `rows`: each is the index of a
  message to keep, or a new message;
- `compact`: the rows of Claude Code at a compaction, as `rows`, and the names of its `tools`. The answer has `rows`
  likewise;
- `usage`: the tokens of the answer to the latest request of the `session`, which calibrate its window;
- `refused`: the model's API refused the latest request of the `session`, which then passes through.

An answer without `body` and `rows` changes nothing. It has a `problem` if Thresher failed: nothing here may break a
session, so the agent's own request is sent.
"""

import asyncio
import sys
from collections.abc import Callable
from functools import partial
from typing import Any, BinaryIO

from msgspec import convert

from thresher.dialects.request_bytes import RequestBody, parse_request_body
from thresher.dialects.table import find_dialect
from thresher.model.jsontext import dump_json, load_json, load_json_object
from thresher.model.message import Usage
from thresher.serve.hook.agent_rows import FittedRows, RowAnswer
from thresher.serve.hook.claude_code_rows import compact_claude_code_rows
from thresher.serve.hook.opencode_rows import OpencodeRows
from thresher.serve.proxy.conversations import SESSION_HEADER, identify
from thresher.serve.proxy.fit_options import FitOptions
from thresher.serve.proxy.fit_service import FitService, PreparedRequest
from thresher.serve.proxy.fitted_conversation import FittedConversation

DIALECTS = {
    "anthropic-messages": "anthropic",
    "openai-completions": "openai-chat",
    "openai-responses": "openai-responses",
    "openai-codex-responses": "openai-responses",
    "azure-openai-responses": "openai-responses",
    "google-generative-ai": "gemini",
}
"""Dialects by pi's names of the APIs."""
Request = dict[str, Any]
Answer = dict[str, Any]


class FitHook:
    """Fits requests with a window for each conversation, exactly as the proxy does."""

    def __init__(self, options: FitOptions) -> None:
        self._options = options
        self._service = FitService(options)
        self._latest: dict[str, PreparedRequest] = {}
        """Latest request of each session."""

    def close(self) -> None:
        """Stop the threads."""
        self._service.close()

    async def answer(self, line: bytes) -> Answer:
        """Return the answer to a line."""
        request = load_json_object(line.decode("utf-8", "replace"))
        answer: Answer = {"id": request.get("id")}
        try:
            answer |= await self._answer(request)
        except Exception as error:  # noqa: BLE001 - no failure of Thresher may break a session
            answer["problem"] = f"{type(error).__name__}: {error}"
        return answer

    async def _answer(self, request: Request) -> Answer:
        match request.get("kind"):
            case "body":
                return await self._fit_body(request)
            case "opencode":
                return await self._fit_opencode(request)
            case "compact":
                compact = partial(compact_claude_code_rows, request["rows"], request.get("tools") or [], self._options)
                return (await asyncio.to_thread(compact)).to_dict()
            case "usage" | "refused":
                latest = self._latest.get(request.get("session", ""))
                if latest is not None and latest.conversation is not None:
                    await self._record(latest, latest.conversation, request)
                return {}
        return {"problem": f"unknown kind `{request.get('kind')}`"}

    async def _record(self, latest: PreparedRequest, conversation: FittedConversation, request: Request) -> None:
        """Record how the model's API answered."""
        if request["kind"] == "refused":
            await self._service.record_refusal(conversation, str(request.get("status") or "refused"))
        elif latest.figures is not None and not self._options.observe:
            await self._service.observe_usage(conversation, convert(request["usage"], Usage))

    async def _fit_body(self, request: Request) -> Answer:
        dialect = DIALECTS.get(request.get("api", ""))
        if dialect is None:
            return {}
        fitted, problem = await self._fit(dialect, request.get("session", ""), request["body"])
        return ({"problem": problem} if problem else {}) | ({"body": fitted} if fitted is not None else {})

    async def _fit_opencode(self, request: Request) -> Answer:
        rows = OpencodeRows(request["rows"])
        body = rows.build_body()
        fitted, problem = await self._fit("anthropic", rows.session, body)
        answer = RowAnswer(rows.restore(FittedRows(body["messages"], fitted["messages"])) if fitted else None, problem)
        return answer.to_dict()

    async def _fit(self, dialect: str, session: str, body: Request) -> tuple[Request | None, str]:
        """Return the fitted body, or None to change nothing, and the reason for a fallback."""
        field = find_dialect(dialect).messages_field
        parsed = parse_request_body(dump_json(body).encode(), field)
        if parsed is None:
            return None, f"the request has no list `{field}`"
        return await self._fit_parsed(dialect, session, parsed)

    async def _fit_parsed(self, dialect: str, session: str, body: RequestBody) -> tuple[Request | None, str]:
        headers = {SESSION_HEADER: session} if session else {}
        identity = identify(dialect, "generate", "", headers, body.value)
        prepared = await self._service.prepare(identity, dialect, body)
        self._latest[session] = prepared
        fitted = load_json(prepared.data) if prepared.data is not None else None
        return fitted, f"a plan was not used: {prepared.fallback}" if prepared.fallback else ""


def run_fit_hook(
    options: FitOptions, lines: BinaryIO | None = None, write: Callable[[str], None] | None = None
) -> None:
    """Answer requests until the input ends."""
    asyncio.run(_serve(FitHook(options), lines or sys.stdin.buffer, write or _write_line))


async def _serve(hook: FitHook, lines: BinaryIO, write: Callable[[str], None]) -> None:
    tasks: set[asyncio.Task[None]] = set()

    async def reply(line: bytes) -> None:
        write(dump_json(await hook.answer(line)))

    try:
        while line := await asyncio.to_thread(lines.readline):
            task = asyncio.create_task(reply(line))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        await asyncio.gather(*tasks)
    finally:
        hook.close()


def _write_line(text: str) -> None:
    sys.stdout.buffer.write(text.encode() + b"\n")
    sys.stdout.buffer.flush()
