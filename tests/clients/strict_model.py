"""The rules of the real APIs, and their bills: what a scripted model refuses, and what a request costs.

These rules are written from the vendors' documentation and know nothing of Thresher. Tokens are those of OpenAI's
vocabulary o200k.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any, NamedTuple

from splintr import AnyTokenizer, Tokenizer

Json = dict[str, Any]
BOUND_MODELS = ("claude-sonnet-5", "claude-opus-5", "claude-haiku-5", "claude-fable-5")
"""Models whose thinking blocks are valid only after exactly the same content."""
AFTER_THINKING = "_t"
"""End of the ids of calls that came with a thinking block."""
UNSIGNED = "skip_thought_signature_validator"
"""What Gemini's API accepts in place of a signature."""
MAX_BREAKPOINTS = 4


@cache
def count_tokens(text: str) -> int:
    """Return the number of tokens of a text."""
    return len(_tokenizer().encode(text))


@cache
def _tokenizer() -> AnyTokenizer:
    return Tokenizer.from_pretrained("o200k_base")


class Usage(NamedTuple):
    """Tokens of a request as billed."""

    fresh: int
    read: int
    written: int

    @property
    def total(self) -> int:
        return self.fresh + self.read + self.written


def seal(*values: Any) -> str:
    """Return a signature of values, which only the model can compute."""
    text = json.dumps(["a secret of the model", *values], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def without_breakpoints(value: Any) -> Any:
    """Return a value without its cache breakpoints: they may move from request to request."""
    if isinstance(value, dict):
        return {key: without_breakpoints(item) for key, item in value.items() if key != "cache_control"}
    return [without_breakpoints(item) for item in value] if isinstance(value, list) else value


def blocks_of(message: Json) -> list[Json]:
    """Return the content of a message as blocks."""
    content = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def prefix_of(body: Json, row: int) -> list[Any]:
    """Return everything before an assistant row of a Messages request."""
    rows = [(message["role"], blocks_of(message)) for message in body["messages"][:row]]
    return list(without_breakpoints([body.get("system"), body.get("tools"), rows]))


def thinking_signature(body: Json, row: int, thinking: str) -> str:
    """Return the signature of a thinking block in a row of a Messages request."""
    is_bound = body["model"].startswith(BOUND_MODELS)
    return seal(thinking, prefix_of(body, row) if is_bound else None)


def check_messages(body: Json) -> Iterator[str]:
    """Yield what the Messages API refuses in a request."""
    rows = body["messages"]
    if not rows or rows[0]["role"] != "user":
        yield "messages: first message must use the user role"
    if sum(_count_breakpoints(body[key]) for key in ("system", "tools", "messages") if key in body) > MAX_BREAKPOINTS:
        yield "A maximum of 4 blocks with cache_control may be provided."
    answered = True
    for at, row in enumerate(rows):
        blocks = blocks_of(row)
        if not blocks and not (at == len(rows) - 1 and row["role"] == "assistant"):
            yield f"messages.{at}: all messages must have non-empty content"
        if any(block["type"] == "text" and not block["text"].strip() for block in blocks):
            yield f"messages.{at}: text content blocks must contain non-whitespace text"
        if row["role"] == "system" and (at == 0 or rows[at - 1]["role"] != "user"):
            yield f"messages.{at}: a system message must follow a user message"
        before = next((rows[index] for index in range(at - 1, -1, -1) if rows[index]["role"] != "system"), None)
        calls = [block["id"] for block in blocks_of(before) if block["type"] == "tool_use"] if before else []
        results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        if row["role"] == "user":
            answered = Counter(results) == Counter(calls if before and before["role"] == "assistant" else [])
            if not answered:
                yield f"messages.{at}: tool_use ids {calls} and tool_result ids {results} do not match"
        elif results:
            yield f"messages.{at}: tool_result blocks can only be in user messages"
        if row["role"] == "assistant":
            yield from _check_assistant(body, at, blocks)
    last = blocks_of(rows[-1]) if rows else []
    if any(block["type"] == "tool_use" for block in last):
        yield "messages: tool_use ids were found without tool_result blocks"


def _check_assistant(body: Json, at: int, blocks: list[Json]) -> Iterator[str]:
    for block in blocks:
        if block["type"] != "thinking":
            continue
        if block["signature"] != thinking_signature(body, at, block["thinking"]):
            yield f"messages.{at}: Invalid `signature` in `thinking` block"
        if "cache_control" in block:
            yield f"messages.{at}: thinking blocks cannot have cache_control"
    loop_starts = max(
        (index for index, row in enumerate(body["messages"]) if row["role"] == "user" and not _has_results(row)),
        default=0,
    )
    is_thinking = body.get("thinking", {}).get("type") in ("enabled", "adaptive")
    calls = [block["id"] for block in blocks if block["type"] == "tool_use"]
    had_thinking = any(call.endswith(AFTER_THINKING) for call in calls)
    if at > loop_starts and is_thinking and had_thinking and blocks[0]["type"] != "thinking":
        yield f"messages.{at}: Expected `thinking`, but found `{blocks[0]['type']}`"


def _has_results(row: Json) -> bool:
    return any(block["type"] == "tool_result" for block in blocks_of(row))


def _count_breakpoints(value: Any) -> int:
    if isinstance(value, dict):
        return ("cache_control" in value) + sum(_count_breakpoints(item) for item in value.values())
    return sum(map(_count_breakpoints, value)) if isinstance(value, list) else 0


def check_responses(body: Json) -> Iterator[str]:
    """Yield what the Responses API refuses in a request."""
    items = body["input"]
    calls = [item["call_id"] for item in items if item["type"] in ("function_call", "custom_tool_call")]
    outputs = [item["call_id"] for item in items if item["type"] in ("function_call_output", "custom_tool_call_output")]
    for call in calls:
        if call not in outputs:
            yield f"No tool output found for function call {call}."
    for output in outputs:
        if output not in calls:
            yield f"No tool call found for function call output with call_id {output}."
    if len(set(outputs)) < len(outputs) or len(set(calls)) < len(calls):
        yield "Duplicate call_id."
    for at, item in enumerate(items):
        if item["type"] == "reasoning" and (at + 1 == len(items) or items[at + 1].get("role") == "user"):
            yield f"Item '{item.get('id')}' of type 'reasoning' was provided without its required following item."
        if item["type"] == "reasoning" and item.get("encrypted_content") != seal(item["summary"]):
            yield "The encrypted content could not be verified."
        if item["type"] == "message" and not item["content"]:
            yield f"input[{at}]: empty content"


def check_chat(body: Json) -> Iterator[str]:
    """Yield what the Chat Completions API refuses in a request."""
    waiting: list[str] = []
    for at, message in enumerate(body["messages"]):
        if message["role"] == "tool":
            if message["tool_call_id"] not in waiting:
                yield f"messages[{at}]: a tool message must follow a message with its tool_calls"
            else:
                waiting.remove(message["tool_call_id"])
            continue
        if waiting:
            yield f"messages[{at}]: tool_call_ids {waiting} did not have response messages"
        if message.get("tool_calls") == []:
            yield f"messages[{at}]: tool_calls is too short"
        waiting = [call["id"] for call in message.get("tool_calls") or ()]
    if waiting:
        yield f"tool_call_ids {waiting} did not have response messages"


def check_contents(body: Json) -> Iterator[str]:
    """Yield what Gemini's API refuses in a request."""
    rows = body["contents"]
    if not rows or rows[0].get("role", "user") != "user":
        yield "contents: the first turn must be of the user"
    for at, row in enumerate(rows):
        if not row.get("parts"):
            yield f"contents[{at}]: parts must not be empty"
        calls = _functions(row.get("parts", ()), "functionCall")
        answers = _functions(rows[at + 1]["parts"] if at + 1 < len(rows) else [], "functionResponse")
        # Gemini CLI 0.61.0 repeats every response in a session that it resumes.
        if calls not in (answers, list(dict.fromkeys(answers))):
            yield f"contents[{at}]: the number of function response parts must equal the number of function calls"
    for part in (part for row in rows for part in row.get("parts", ())):
        signature = part.get("thoughtSignature", UNSIGNED)
        if signature not in (UNSIGNED, seal(part.get("functionCall", {}).get("args"))):
            yield "Thought signature is not valid."


def _functions(parts: Iterable[Json], kind: str) -> list[tuple[str, str]]:
    return [(part[kind]["name"], part[kind].get("id", "")) for part in parts if kind in part]


class Billing:
    """Bills requests by their longest prefix that an earlier request has written to the cache."""

    def __init__(self) -> None:
        self._cached: set[str] = set()
        self.usages: list[Usage] = []

    def bill(self, pieces: Iterable[Any], breakpoints: set[int] | None = None) -> Usage:
        """Bill a request as pieces; `breakpoints` are the numbers of those that end a cached prefix, None for all."""
        digest, sizes, digests = "", [], []
        for piece in pieces:
            text = json.dumps(without_breakpoints(piece), sort_keys=True)
            digest = hashlib.sha256((digest + text).encode()).hexdigest()
            sizes.append(count_tokens(text))
            digests.append(digest)
        found = max((at + 1 for at, text in enumerate(digests) if text in self._cached), default=0)
        ends = range(len(digests)) if breakpoints is None else sorted(breakpoints)
        end = max([at + 1 for at in ends], default=0)
        # A look-up goes back from a breakpoint, so each prefix before the last one is found later.
        self._cached.update(digests[:end])
        read, end = (found, max(end, found)) if end else (0, 0)
        usage = Usage(sum(sizes[end:]), sum(sizes[:read]), sum(sizes[read:end]))
        self.usages.append(usage)
        return usage
