"""Checks of message content: first role, empty content, known roles."""

from collections.abc import Iterator

from thresher.dialects.extras import get_extra_fields
from thresher.dialects.layout import DialectLayout, RuleFinding
from thresher.dialects.rules.tool_rules import finding_at
from thresher.model.parts import Part, Summary, Text


def check_first_role(layout: DialectLayout) -> Iterator[RuleFinding]:
    """Find a conversation that starts with the model."""
    if layout.rows and layout.rows[0].role == "assistant" and not layout.rows[0].is_opaque:
        yield RuleFinding(layout.rows[0].message, None, "the first message is the model's")


def check_blank_message(layout: DialectLayout) -> Iterator[RuleFinding]:
    """Find messages whose texts contain only whitespace."""
    if not layout.history_index.blank_texts:
        return
    has_text: dict[int, bool] = {}
    rows = {piece.place.message: row for row in layout.rows for piece in row.parts}
    for piece in layout.history_index.blank_texts:
        row = rows.get(piece.place.message)
        if row is None:
            continue
        if row.message not in has_text:
            has_text[row.message] = any(_has_visible_text(other.part) for other in row.parts)
        if not has_text[row.message]:
            yield finding_at(piece, "the message contains only whitespace")


def _has_visible_text(part: Part) -> bool:
    return isinstance(part, Text | Summary) and bool(part.text) and not part.text.isspace()


def check_trailing_space(layout: DialectLayout) -> Iterator[RuleFinding]:
    """Find whitespace at the end of the history if the last message is the model's, which the reply would continue."""
    row = layout.rows[-1] if layout.rows else None
    if row is None or row.role != "assistant" or not row.parts:
        return
    part = row.parts[-1].part
    if isinstance(part, Text | Summary) and part.text[-1:].isspace():
        yield finding_at(row.parts[-1], "the last message is the model's and ends with whitespace")


def check_empty_message(layout: DialectLayout) -> Iterator[RuleFinding]:
    """Find messages without parts."""
    for row in layout.rows:
        if row.is_native and not row.is_opaque and not row.parts:
            yield RuleFinding(row.message, None, "the message is empty")


def check_unknown_role(layout: DialectLayout, *, roles: tuple[str, ...]) -> Iterator[RuleFinding]:
    """Find messages with a role that the API does not accept, such as a role that a harness invented."""
    for row in layout.rows:
        if row.is_native and not row.is_opaque:
            role = get_extra_fields(layout.messages[row.message], layout.dialect).get("role")
            if role is not None and role not in roles:
                yield RuleFinding(row.message, None, f"the role must be one of {', '.join(roles)}; got {role!r}")
