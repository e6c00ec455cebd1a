"""Ways that others ship as a library, run as they come: LangChain's two that need no model.

LangChain is no dependency: it is imported when a conversation starts, and whoever asks for one of these ways without
it is told what to install. A library gets the rows of a feed as its own messages, and the feed's weights through its
option for a counter; both edit a copy on every call and keep none of it. A message that comes out as it went in is
sent as the row that it was.
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
"""What must be there, by the name that it is installed by."""


def find_missing_libraries() -> list[str]:
    """The packages that these ways need and that are not installed."""
    return [package for package, module in LIBRARY_MODULES.items() if find_spec(module) is None]


def langchain_clear_strategy(budget: int) -> Strategy:
    """`ClearToolUsesEdit`: over its trigger (100,000; the budget) all results but the newest 3 are cleared."""
    _require_library("langchain")

    def start(feed: ReplayConversation, _: ResidencyChecker) -> RequestBuilder:
        edit = import_module("langchain.agents.middleware.context_editing").ClearToolUsesEdit(trigger=budget)
        chat = _LangChainMessages(feed)

        def ask(_: float | None) -> list[RequestPiece]:
            shown = chat.update_messages()
            edit.apply(shown, count_tokens=chat.count_tokens)
            return chat.pieces(shown)

        return ask

    return Strategy("langchain-clear", start, budget)


def langchain_trim_strategy(budget: int) -> Strategy:
    """`trim_messages`, as its page says: the last messages that fit (the budget), from a human's on, and the system's.

    Where no human's message is among the last ones that fit, as in a long run after one prompt, it returns nothing but
    the system's: then that is what is sent.
    """
    _require_library("langchain-core")

    def start(feed: ReplayConversation, _: ResidencyChecker) -> RequestBuilder:
        trim = import_module("langchain_core.messages.utils").trim_messages
        chat = _LangChainMessages(feed)

        def ask(_: float | None) -> list[RequestPiece]:
            kept = trim(
                chat.update_messages(),
                max_tokens=budget,
                token_counter=chat.count_tokens,
                strategy="last",
                start_on="human",
                include_system=True,
            )
            return chat.pieces(kept)

        return ask

    return Strategy("langchain-trim", start, budget)


def to_chat_message(row: ConversationRow) -> dict[str, Any]:
    """A row as OpenAI's chat message, which most libraries read; thinking and pictures are no part of it."""
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
    """Arguments as the JSON object that most insist on: free text is its only field."""
    try:
        named = isinstance(json.loads(arguments), dict)
    except (ValueError, RecursionError):
        named = False
    return arguments if named else json.dumps({"input": arguments})


def _require_library(package: str) -> None:
    if package in find_missing_libraries():
        raise OptionError(f"this way runs {package}, which is not installed: pip install {package}")


class _LangChainMessages:
    """The rows of a feed as LangChain's messages; each knows its row by its id."""

    def __init__(self, feed: ReplayConversation) -> None:
        self._conversation = feed
        self._convert = import_module("langchain_core.messages.utils").convert_to_messages
        self._messages: list[Any] = []

    def update_messages(self) -> list[Any]:
        """All that has come, in a list of its own."""
        known = len(self._messages)
        self._messages += self._convert([to_chat_message(row) for row in self._conversation.rows[known:]])
        for number, message in enumerate(self._messages[known:], known):
            message.id = str(number)
        return list(self._messages)

    def count_tokens(self, messages: Sequence[Any]) -> int:
        """What some messages weigh, as the library asks for it."""
        return sum(piece.tokens for message in messages for piece in self._message_pieces(message))

    def pieces(self, messages: Sequence[Any]) -> list[RequestPiece]:
        """What is sent where the library sends these."""
        return [*self._conversation.tool_pieces, *chain.from_iterable(map(self._message_pieces, messages))]

    def _message_pieces(self, message: Any) -> tuple[RequestPiece, ...]:
        number = int(message.id)
        row = self._conversation.rows[number]
        return row.pieces if message is self._messages[number] else self._conversation.rewrite_row(row, message.content)
