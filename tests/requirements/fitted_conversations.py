"""Build conversations, and look at what is left of them."""

import json
from collections.abc import Iterable
from typing import Any, Self

import thresher as th
from thresher.store import InMemoryContentStore

Row = dict[str, Any]


def text_of(word: str, lines: int = 40) -> str:
    """Return a text whose lines all differ in words, so that nothing takes it for repetition."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    names = [letters[line % 26] + letters[line // 26 % 26] + letters[line % 7] for line in range(lines)]
    return "\n".join(f"{word} {name} says {name * 6} about the {name}{word} of the day" for name in names)


class Conversation:
    """A conversation in Anthropic's message format. Every method adds to it and returns it."""

    def __init__(self) -> None:
        self.messages: list[Row] = []
        self._calls = 0

    def human(self, text: str) -> Self:
        return self._add("user", text)

    def agent(self, text: str) -> Self:
        return self._add("assistant", text)

    def thinks(self, thought: str, text: str) -> Self:
        """Add a message of the agent with its thinking."""
        thinking = {"type": "thinking", "thinking": thought, "signature": "c2lnbmVk"}
        return self._add("assistant", [thinking, {"type": "text", "text": text}])

    def uses(self, tool: str, answer: str | None, /, *, says: str = "", failed: bool = False, **arguments: Any) -> Self:
        """Add a call with its result; without a result, the call stays open."""
        self._calls += 1
        call = {"type": "tool_use", "id": f"call{self._calls}", "name": tool, "input": arguments}
        self._add("assistant", [{"type": "text", "text": says}, call] if says else [call])
        if answer is None:
            return self
        result = {"type": "tool_result", "tool_use_id": f"call{self._calls}", "content": answer}
        return self._add("user", [result | ({"is_error": True} if failed else {})])

    def uses_in_parallel(self, *calls: tuple[str, Row, str], order: Iterable[int] | None = None) -> Self:
        """Add several calls of one message, and their results in the given order."""
        ids = [f"call{self._calls + n}" for n in range(1, len(calls) + 1)]
        self._calls += len(calls)
        uses = zip(ids, calls, strict=True)
        self._add("assistant", [{"type": "tool_use", "id": i, "name": c[0], "input": c[1]} for i, c in uses])
        answers = [{"type": "tool_result", "tool_use_id": i, "content": c[2]} for i, c in zip(ids, calls, strict=True)]
        return self._add("user", [answers[n] for n in order or range(len(answers))])

    def chat(self, turns: int, word: str = "topic", *, lines: int = 0) -> Self:
        """Add exchanges without tools, whose answers have a number of lines."""
        for turn in range(turns):
            more = f": {text_of(f'{word}{turn}', lines)}" if lines else ""
            self.human(f"{word} question {turn}").agent(f"{word} answer {turn}{more}")
        return self

    def _add(self, role: str, content: Any) -> Self:
        self.messages.append({"role": role, "content": content})
        return self


def fit(conversation: Conversation | list[Row], **options: Any) -> list[Row]:
    """Fit the messages of a conversation, by default with no policy but what the options add."""
    return fit_and_plan(conversation, **options)[0]


def fit_and_plan(conversation: Conversation | list[Row], **options: Any) -> tuple[list[Row], th.Plan]:
    """Fit the messages of a conversation; return the plan, too. Check that the result is legal."""
    messages = conversation.messages if isinstance(conversation, Conversation) else conversation
    plans: list[th.Plan] = []
    policy = options.pop("policy", None if "budget" in options else "none")
    store = options.pop("store", None) or InMemoryContentStore()
    fitted: list[Row] = th.fit(messages, policy=policy, store=store, report=plans.append, **options)
    assert th.check(fitted, "anthropic") == ()
    return fitted, plans[0]


def has(messages: Any, text: str) -> bool:
    """Return whether a text is anywhere in the messages, in words, arguments or results."""
    return json.dumps(text)[1:-1] in json.dumps(messages)


def tools(messages: list[Row]) -> list[str]:
    """Return the names of the called tools, in order."""
    return [block["name"] for block in _blocks(messages) if block.get("type") == "tool_use"]


def arguments(messages: list[Row]) -> list[Row]:
    """Return the arguments of all calls, in order."""
    return [block["input"] for block in _blocks(messages) if block.get("type") == "tool_use"]


def results(messages: list[Row]) -> list[Any]:
    """Return the contents of all results, in order."""
    return [block["content"] for block in _blocks(messages) if block.get("type") == "tool_result"]


def said(messages: list[Row], role: str) -> list[str]:
    """Return the texts of one role, in order."""
    return [block["text"] for block in _blocks(messages, role) if block.get("type") == "text"]


def _blocks(messages: list[Row], role: str = "") -> list[Row]:
    found: list[Row] = []
    for row in messages:
        if not role or row["role"] == role:
            content = row["content"]
            found += content if isinstance(content, list) else [{"type": "text", "text": content}]
    return found
