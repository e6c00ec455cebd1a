"""Rules on what a message holds: someone speaks first, nothing is empty, thinking stands where it may."""

from collections.abc import Iterator

from thresher.dialects.extras import get_extra_fields
from thresher.edits.layout import ANTHROPIC, CHAT, GEMINI, DialectLayout, LayoutRow, PlacedPart, RuleFinding
from thresher.model import Message
from thresher.model.parts import Part, Summary, Text, Thinking, ToolCall, ToolResult, Unknown

_SIGNATURES = ("thoughtSignature", "thought_signature")


def _finding_at(piece: PlacedPart, detail: str) -> RuleFinding:
    return RuleFinding(piece.place.message, piece.place.part, detail)


def check_first_role(view: DialectLayout) -> Iterator[RuleFinding]:
    """A conversation that the model opens."""
    if view.rows and view.rows[0].role == "assistant" and not view.rows[0].is_opaque:
        yield RuleFinding(view.rows[0].message, None, "the first message is the model's")


def check_empty_text(view: DialectLayout) -> Iterator[RuleFinding]:
    """A text without a character."""
    for piece in view.history_index.empty_texts:
        index = piece.place.message
        if view.is_native(index) and not _may_be_empty(view, piece):
            yield _finding_at(piece, "the text is empty")


def _may_be_empty(view: DialectLayout, piece: PlacedPart) -> bool:
    message = view.messages[piece.place.message]
    apart = message.pocket is not None and message.pocket.shape.startswith("system")
    if view.dialect == GEMINI:
        return apart or has_thought_signature(piece.part)
    return _is_written_as_string(message) and (not apart or len(view.system_messages) == 1)


def _is_written_as_string(message: Message) -> bool:
    """Whether Anthropic's writer says the content in one string."""
    part = message.parts[0] if len(message.parts) == 1 else None
    listed = message.pocket is not None and message.pocket.shape in ("list", "system-list")
    return isinstance(part, Text) and part.pocket is None and not listed


def check_blank_message(view: DialectLayout) -> Iterator[RuleFinding]:
    """A message whose texts are nothing but space."""
    if not view.history_index.blank_texts:
        return
    spoken: dict[int, bool] = {}
    rows = {piece.place.message: row for row in view.rows for piece in row.parts}
    for piece in view.history_index.blank_texts:
        row = rows.get(piece.place.message)
        if row is None:
            continue
        if row.message not in spoken:
            spoken[row.message] = any(_has_visible_text(one.part) for one in row.parts)
        if not spoken[row.message]:
            yield _finding_at(piece, "the message says nothing but space")


def _has_visible_text(part: Part) -> bool:
    return isinstance(part, Text | Summary) and bool(part.text) and not part.text.isspace()


def check_empty_message(view: DialectLayout) -> Iterator[RuleFinding]:
    """A message without content."""
    last = view.rows[-1] if view.rows else None
    for row in view.rows:
        if not row.is_native or row.is_opaque:
            continue
        if view.dialect == CHAT:
            empty = _has_null_content(row, view.messages[row.message])
        else:
            empty = not row.parts or (view.dialect == ANTHROPIC and _is_empty_string(view.messages[row.message]))
            # Anthropic lets the last message be empty where it is the model's: it is to be gone on with.
            empty = empty and not (view.dialect == ANTHROPIC and row is last and row.role == "assistant")
        if empty:
            yield RuleFinding(row.message, None, "the message is empty")


def _is_empty_string(message: Message) -> bool:
    return _is_written_as_string(message) and not message.text


def _has_null_content(row: LayoutRow, message: Message) -> bool:
    """Whether Chat Completions' writer says `null`, or nothing, where only calls may do without content."""
    pocket = message.pocket
    if pocket is None or ("content" not in pocket.absent and '"content":null' not in pocket.fields):
        return False
    if any(_is_content(piece.part) for piece in row.parts):
        return False
    rest = get_extra_fields(message, CHAT)
    return rest.get("content") is None and not rest.get("audio")


def _is_content(part: Part) -> bool:
    """Whether a part makes a row more than its thinking."""
    return bool(part.content) or part.is_error if isinstance(part, ToolResult) else not isinstance(part, Thinking)


API_ROLES = {
    ANTHROPIC: ("user", "assistant"),
    CHAT: ("system", "developer", "user", "assistant", "tool", "function"),
    GEMINI: ("user", "model", "function"),
}


def check_unknown_role(view: DialectLayout) -> Iterator[RuleFinding]:
    """A message in a role that the API does not have, as a harness may record it."""
    for row in view.rows:
        if row.is_native and not row.is_opaque:
            role = get_extra_fields(view.messages[row.message], view.dialect).get("role")
            if role is not None and role not in API_ROLES[view.dialect]:
                yield RuleFinding(
                    row.message, None, f"the role {role!r} is not one of {', '.join(API_ROLES[view.dialect])}"
                )


def check_trailing_space(view: DialectLayout) -> Iterator[RuleFinding]:
    """A last message of the model's, to be gone on with, that ends in space."""
    row = view.rows[-1] if view.rows else None
    if row is None or row.role != "assistant" or not row.parts:
        return
    part = row.parts[-1].part
    if isinstance(part, Text | Summary) and part.text[-1:].isspace():
        yield _finding_at(row.parts[-1], "the last message, the model's, ends in space")


def check_unsigned_thinking(view: DialectLayout) -> Iterator[RuleFinding]:
    """Thinking without its vendor's proof."""
    for _, piece in view.thinking:
        if isinstance(piece.part, Thinking) and not piece.part.signature:
            yield _finding_at(piece, "the thinking has no signature")


def check_thinking_last(view: DialectLayout) -> Iterator[RuleFinding]:
    """Thinking that nothing follows in its message."""
    for number in dict.fromkeys(number for number, _ in view.thinking):
        row = view.rows[number]
        for piece in reversed(row.parts):
            if not isinstance(piece.part, Thinking):
                break
            yield _finding_at(piece, "the message ends in thinking")


def check_thinking_first(view: DialectLayout) -> Iterator[RuleFinding]:
    """Thinking behind other content, in a loop of calls that the model has not ended."""
    if not view.rows or not any(isinstance(piece.part, ToolResult) for piece in view.rows[-1].parts):
        return
    thought = dict(reversed(view.thinking))
    for number in range(len(view.rows) - 1, -1, -1):
        row = view.rows[number]
        if row.role == "user" and not any(isinstance(piece.part, ToolResult) for piece in row.parts):
            return
        if number in thought and row.role == "assistant" and not isinstance(row.parts[0].part, Thinking | Unknown):
            yield _finding_at(thought[number], "thinking stands behind other content in an open loop of calls")


def check_lone_reasoning(view: DialectLayout) -> Iterator[RuleFinding]:
    """Reasoning without the item that it led to."""
    waiting: list[PlacedPart] = []
    for row in view.rows:
        for piece in row.parts or (None,):
            part = piece.part if piece else None
            if piece is not None and isinstance(part, Thinking):
                waiting.append(piece)
                continue
            if isinstance(part, ToolResult) or not (row.role == "assistant" or isinstance(part, ToolCall)):
                yield from _lone_reasoning_findings(waiting)
            waiting.clear()
    yield from _lone_reasoning_findings(waiting)


def _lone_reasoning_findings(waiting: list[PlacedPart]) -> list[RuleFinding]:
    return [_finding_at(piece, "no item of the model's follows the reasoning") for piece in waiting]


def check_thought_signature(view: DialectLayout) -> Iterator[RuleFinding]:
    """A step of the current turn without a signature, where another step has one."""
    first: dict[int, PlacedPart] = {}
    start = _current_turn(view)
    signed = False
    for number, piece in view.calls:
        if number >= start:
            first.setdefault(number, piece)
            signed = signed or has_thought_signature(piece.part)
    for piece in first.values() if signed else ():
        if not has_thought_signature(piece.part):
            yield _finding_at(piece, "the first call of the step has no thought signature")


def _current_turn(view: DialectLayout) -> int:
    """The row after the last one in which a person speaks."""
    for number in range(len(view.rows) - 1, -1, -1):
        row = view.rows[number]
        if row.role == "user" and not any(isinstance(piece.part, ToolResult) for piece in row.parts):
            return number
    return 0


def has_thought_signature(part: Part) -> bool:
    """Whether Gemini's writer puts a thought signature beside a part."""
    pocket = part.pocket
    return pocket is not None and pocket.format == GEMINI and any(key in pocket.fields for key in _SIGNATURES)
