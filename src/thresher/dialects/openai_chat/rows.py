"""Recognize and shape the rows of Chat Completions."""

from collections.abc import Iterator
from typing import Any

from thresher.model import Message
from thresher.model.parts import Thinking, ToolCall, ToolResult


def collect_chat_call_ids(rows: list[Any]) -> Iterator[str]:
    """Collect the ids of all tool calls."""
    for row in rows:
        calls = row.get("tool_calls") if isinstance(row, dict) else None
        for call in calls if isinstance(calls, list) else ():
            if isinstance(call, dict) and isinstance(call.get("id"), str):
                yield call["id"]


def fits_one_row(message: Message) -> bool:
    """Whether the message, edited perhaps, can still be the one row it was."""
    kinds = {type(part) for part in message.parts}
    if message.role == "tool":
        return len(message.parts) == 1 and kinds == {ToolResult}
    return ToolResult not in kinds and (message.role == "assistant" or not kinds & {ToolCall, Thinking})


def compact_text_content(pieces: list[Any]) -> Any:
    """One plain text as a string, as most write it; nothing as null."""
    if len(pieces) == 1 and isinstance(pieces[0], dict) and pieces[0].keys() == {"type", "text"}:
        return pieces[0]["text"]
    return list(pieces) or None


def sniff_openai_chat(value: Any) -> int:
    """Calls beside the content, results in a role of their own, or system text among the messages."""
    rows = value.get("messages") if isinstance(value, dict) else value
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
        return 0
    if any(not isinstance(row.get("role"), str) or "parts" in row or "type" in row for row in rows):
        return 0
    told = any(row["role"] in ("tool", "system", "developer", "function") for row in rows)
    if told or any(isinstance(row.get("tool_calls"), list) for row in rows):
        return 3
    return 1 if all(isinstance(row.get("content"), str | None) for row in rows) else 0
