"""Arrange the rows of a Chat Completions request."""

from thresher.dialects.extras import get_extra_fields, is_opaque_message
from thresher.dialects.layout import DialectLayout, LayoutRow, portable_parts
from thresher.dialects.openai_chat.codec import NAME
from thresher.dialects.openai_chat.rows import fits_one_row
from thresher.model import Message
from thresher.model.parts import Image, Part, ToolCall, ToolResult


def arrange_chat_rows(layout: DialectLayout) -> None:
    """Arrange results in rows with the role `tool`, and adjacent foreign assistant messages in one row."""
    can_merge = False
    for index, message in enumerate(layout.messages):
        if layout.is_native(index) and fits_one_row(message):
            pieces, opaque = layout.history_index.parts_by_message[index], is_opaque_message(message, NAME)
            row = LayoutRow(_chat_role(message), index, pieces, native=True, opaque=opaque)
            layout.rows.append(row)
            _note_legacy(layout, row)
            can_merge = False
            continue
        pieces = portable_parts(layout.history_index, index)
        results = [piece for piece in pieces if isinstance(piece.part, ToolResult)]
        others = [piece for piece in pieces if _chat_holds(piece.part, message.role)]
        if results:
            layout.rows.append(LayoutRow("tool", index, results))
            can_merge = False
        if others and can_merge and message.role == "assistant":
            layout.rows[-1].parts = [*layout.rows[-1].parts, *others]
        elif others:
            layout.rows.append(LayoutRow("user" if message.role == "tool" else message.role, index, others))
            can_merge = message.role == "assistant"


def _chat_holds(part: Part, role: str) -> bool:
    return not isinstance(part, ToolResult) and not (isinstance(part, Image) and role in ("assistant", "system"))


def _chat_role(message: Message) -> str:
    fields = message.pocket.fields if message.pocket else ""
    is_function = (
        message.role == "tool" and '"function"' in fields and get_extra_fields(message, NAME).get("role") == "function"
    )
    return "function" if is_function else message.role


def _note_legacy(layout: DialectLayout, row: LayoutRow) -> None:
    for piece in row.parts:
        pocket = piece.part.pocket
        if isinstance(piece.part, ToolCall) and pocket and pocket.format == NAME and pocket.shape == "function_call":
            layout.legacy_calls.add(piece.place)
            return
