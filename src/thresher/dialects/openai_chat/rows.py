"""Detect Chat Completions, list its call ids, and choose the form of its rows."""

from collections.abc import Iterator
from typing import Any

from thresher.model import Message
from thresher.model.parts import Thinking, ToolCall, ToolResult


def collect_chat_call_ids(rows: list[Any]) -> Iterator[str]:
    """Yield the ids of all tool calls."""
    for row in rows:
        calls = row.get("tool_calls") if isinstance(row, dict) else None
        for call in calls if isinstance(calls, list) else ():
            if isinstance(call, dict) and isinstance(call.get("id"), str):
                yield call["id"]


def fits_one_row(message: Message) -> bool:
    """Return True if one row can hold the message, even after an edit."""
    kinds = {type(part) for part in message.parts}
    if message.role == "tool":
        return len(message.parts) == 1 and kinds == {ToolResult}
    return ToolResult not in kinds and (message.role == "assistant" or not kinds & {ToolCall, Thinking})


def compact_text_content(pieces: list[Any]) -> Any:
    """Return a single text as a string, no content as null, anything else as a list."""
    if len(pieces) == 1 and isinstance(pieces[0], dict) and pieces[0].keys() == {"type", "text"}:
        return pieces[0]["text"]
    return list(pieces) or None


def sniff_openai_chat(value: Any) -> int:
    """Score how likely a value is in this dialect: tool calls, tool messages or system messages prove it."""
    rows = value.get("messages") if isinstance(value, dict) else value
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
        return 0
    if any(not isinstance(row.get("role"), str) or "parts" in row or "type" in row for row in rows):
        return 0
    has_special_role = any(row["role"] in ("tool", "system", "developer", "function") for row in rows)
    if has_special_role or any(isinstance(row.get("tool_calls"), list) for row in rows):
        return 3
    return 1 if all(isinstance(row.get("content"), str | None) for row in rows) else 0
