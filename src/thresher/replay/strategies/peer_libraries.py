"""Strategies from other libraries, run unmodified: the two LangChain trimmers that need no model.

LangChain is not a dependency. It is imported when a conversation starts, and a missing package raises an `OptionError`
that names it. The library gets the rows of the conversation as LangChain messages, and the conversation's token counts
through its counter option. Both trimmers edit a copy on every call and keep no state. A message that they return
unchanged is sent as the original row.
"""

import json
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from itertools import chain
from typing import Any

from thresher.errors import OptionError
from thresher.model import Text, ToolCall, ToolResult, part_text
from thresher.replay.conversation import ConversationRow, ReplayConversation, RequestBuilder, RequestPiece
from thresher.replay.residency import ResidencyChecker
from thresher.replay.simulate import Strategy

LIBRARY_MODULES = {"langchain": "langchain", "langchain-core": "langchain_core"}
"""Required modules by package name."""


def find_missing_libraries() -> list[str]:
    """Return the packages that these strategies need and that are not installed."""
    return [package for package, module in LIBRARY_MODULES.items() if find_spec(module) is None]


def langchain_clear_strategy(budget: int) -> Strategy:
    """Run `ClearToolUsesEdit`: above its trigger (the budget; default 100,000) clear all but the newest 3 results."""
    _require_library("langchain")

    def start(conversation: ReplayConversation, _: ResidencyChecker) -> RequestBuilder:
        edit = import_module("langchain.agents.middleware.context_editing").ClearToolUsesEdit(trigger=budget)
        chat = _LangChainMessages(conversation)

        def build_request(_: float | None) -> list[RequestPiece]:
            shown = chat.update_messages()
            edit.apply(shown, count_tokens=chat.count_tokens)
            return chat.pieces(shown)

        return build_request

    return Strategy("langchain-clear", start, budget)


def langchain_trim_strategy(budget: int) -> Strategy:
    """Run `trim_messages` as documented: system messages and the last messages that fit, starting with a human message.

    If none of the last messages that fit is human, as in a long run after one prompt, `trim_messages`
    returns only the system messages, and the request contains no other message.
    """
    _require_library("langchain-core")

    def start(conversation: ReplayConversation, _: ResidencyChecker) -> RequestBuilder:
        trim = import_module("langchain_core.messages.utils").trim_messages
        chat = _LangChainMessages(conversation)

        def build_request(_: float | None) -> list[RequestPiece]:
            kept = trim(
                chat.update_messages(),
                max_tokens=budget,
                token_counter=chat.count_tokens,
                strategy="last",
                start_on="human",
                include_system=True,
            )
            return chat.pieces(kept)

        return build_request

    return Strategy("langchain-trim", start, budget)


def to_chat_message(row: ConversationRow) -> dict[str, Any]:
    """Convert a row to an OpenAI chat message, a format that most libraries accept; omit thinking and images."""
    words = "\n".join(part_text(part) for part in row.parts if isinstance(part, Text | ToolResult))
    message: dict[str, Any] = {"role": row.role, "content": words}
    if row.role == "tool" and isinstance(row.parts[0], ToolResult):
        return message | {"tool_call_id": row.parts[0].call_id}
    calls = [
        {
            "id": call.id,
            "type": "function",
            "function": {"name": call.name, "arguments": _to_json_object(call.arguments)},
        }
        for call in row.parts
        if isinstance(call, ToolCall)
    ]
    return message | ({"tool_calls": calls} if calls else {})


def _to_json_object(arguments: str) -> str:
    """Return arguments as the JSON object that most libraries require; free text becomes the field `input`."""
    try:
        named = isinstance(json.loads(arguments), dict)
    except (ValueError, RecursionError):
        named = False
    return arguments if named else json.dumps({"input": arguments})


def _require_library(package: str) -> None:
    if package in find_missing_libraries():
        raise OptionError(f"this policy needs the package `{package}`. Install it with `pip install {package}`.")


class _LangChainMessages:
    """The rows of a conversation as LangChain messages. The message id is the row number."""

    def __init__(self, conversation: ReplayConversation) -> None:
        self._conversation = conversation
        self._convert = import_module("langchain_core.messages.utils").convert_to_messages
        self._messages: list[Any] = []

    def update_messages(self) -> list[Any]:
        """Return a new list of all messages so far."""
        known = len(self._messages)
        self._messages += self._convert([to_chat_message(row) for row in self._conversation.rows[known:]])
        for number, message in enumerate(self._messages[known:], known):
            message.id = str(number)
        return list(self._messages)

    def count_tokens(self, messages: Sequence[Any]) -> int:
        """Count the tokens of messages; the library gets this function as its counter option."""
        return sum(piece.tokens for message in messages for piece in self._message_pieces(message))

    def pieces(self, messages: Sequence[Any]) -> list[RequestPiece]:
        """Return the pieces to send for these messages."""
        return [*self._conversation.tool_pieces, *chain.from_iterable(map(self._message_pieces, messages))]

    def _message_pieces(self, message: Any) -> tuple[RequestPiece, ...]:
        number = int(message.id)
        row = self._conversation.rows[number]
        return row.pieces if message is self._messages[number] else self._conversation.rewrite_row(row, message.content)
