"""Small conversations for replay tests."""

import json
from typing import Any

from thresher.model import History, Message, Part, Text, ToolCall, ToolResult
from thresher.replay import Reference, Trace, find_references, trace_history


def user(text: str) -> list[Message]:
    return [Message("user", (Text(text),))]


def agent(*parts: Part | str) -> list[Message]:
    return [Message("assistant", tuple(Text(one) if isinstance(one, str) else one for one in parts), author="model")]


def call(name: str, id: str = "1", **arguments: Any) -> ToolCall:
    return ToolCall(id, name, json.dumps(arguments))


def result(text: str, id: str = "1") -> list[Message]:
    return [Message("tool", (ToolResult(id, (Text(text),)),), author="tool")]


def did(id: str, name: str, answer: str, **arguments: Any) -> list[Message]:
    """Return a call and its result."""
    return [*agent(call(name, id, **arguments)), *result(answer, id)]


def trace(*groups: list[Message]) -> Trace:
    return trace_history(History(tuple(message for group in groups for message in group)), "small")


def last_needles(of: Trace, kinds: str = "EGIP") -> list[Reference]:
    """Return the references of the last call."""
    return [reference for reference in find_references(of)[-1] if reference.kind in kinds]


def texts(references: list[Reference]) -> list[str]:
    return [reference.text for reference in references]
