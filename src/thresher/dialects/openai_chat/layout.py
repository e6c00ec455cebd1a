"""Arrange the rows of a Chat Completions request."""

from thresher.dialects.extras import get_extra_fields, is_opaque_message
from thresher.dialects.layout import DialectLayout, LayoutRow, portable_parts
from thresher.dialects.openai_chat.codec import NAME
from thresher.model import Message
from thresher.model.parts import Image, Part, Thinking, ToolCall, ToolResult


def arrange_chat_rows(view: DialectLayout) -> None:
    """Arrange results in a role of their own, and adjacent foreign assistant messages in one row."""
    grows = False
    for index, message in enumerate(view.messages):
        if view.is_native(index) and _is_one_row(message):
            role = _chat_role(message)
            row = LayoutRow(
                role,
                index,
                view.history_index.parts_by_message[index],
                native=True,
                opaque=is_opaque_message(message, NAME),
            )
            view.rows.append(row)
            _note_legacy(view, row)
            grows = False
            continue
        pieces = portable_parts(view.history_index, index)
        results = [piece for piece in pieces if isinstance(piece.part, ToolResult)]
        others = [piece for piece in pieces if _chat_holds(piece.part, message.role)]
        if results:
            view.rows.append(LayoutRow("tool", index, results))
            grows = False
        if others and grows and message.role == "assistant":
            view.rows[-1].parts = [*view.rows[-1].parts, *others]
        elif others:
            view.rows.append(LayoutRow("user" if message.role == "tool" else message.role, index, others))
            grows = message.role == "assistant"


def _chat_holds(part: Part, role: str) -> bool:
    return not isinstance(part, ToolResult) and not (isinstance(part, Image) and role in ("assistant", "system"))


def _is_one_row(message: Message) -> bool:
    """True if a native message, possibly edited, still fits in its one row."""
    kinds = {type(part) for part in message.parts}
    if message.role == "tool":
        return len(message.parts) == 1 and kinds == {ToolResult}
    return ToolResult not in kinds and (message.role == "assistant" or not kinds & {ToolCall, Thinking})


def _chat_role(message: Message) -> str:
    fields = message.pocket.fields if message.pocket else ""
    old = (
        message.role == "tool" and '"function"' in fields and get_extra_fields(message, NAME).get("role") == "function"
    )
    return "function" if old else message.role


def _note_legacy(view: DialectLayout, row: LayoutRow) -> None:
    for piece in row.parts:
        pocket = piece.part.pocket
        if isinstance(piece.part, ToolCall) and pocket and pocket.format == NAME and pocket.shape == "function_call":
            view.legacy_calls.add(piece.place)
            return
