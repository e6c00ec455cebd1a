"""Small conversations to summarize, in short notation."""

import json
from typing import Any

from thresher.model import History, Message, Part, Place, Text, ToolCall, ToolChain, ToolResult


def human(text: str) -> Message:
    return Message("user", (Text(text),))


def agent(*parts: Part | str) -> Message:
    return Message("assistant", tuple(Text(one) if isinstance(one, str) else one for one in parts), author="model")


def call(id: str, name: str, arguments: Any) -> ToolCall:
    return ToolCall(id, name, arguments if isinstance(arguments, str) else json.dumps(arguments))


def result(id: str, text: str = "", *, failed: bool = False) -> Message:
    return Message("tool", (ToolResult(id, (Text(text),), is_error=failed),), author="tool")


def step(id: str, name: str, arguments: Any, answer: str = "", *, failed: bool = False) -> list[Message]:
    """Return a call and its result."""
    return [agent(call(id, name, arguments)), result(id, answer, failed=failed)]


def history(*messages: Message | list[Message]) -> History:
    flat = [one for group in messages for one in (group if isinstance(group, list) else [group])]
    return History(tuple(flat))


def everything(of: History) -> list[Place]:
    return [Place(i, j) for i, message in enumerate(of) for j in range(len(message.parts))]


def only_chain(
    name: str, arguments: Any, answer: str | None = "", *, failed: bool = False
) -> tuple[History, ToolChain]:
    """Return a history of one call, answered unless `answer` is None."""
    told = history(agent(call("1", name, arguments)))
    if answer is not None:
        told = history(step("1", name, arguments, answer, failed=failed))
    return told, told.chains[0]
