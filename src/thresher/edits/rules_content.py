"""Rules on what a message holds: someone speaks first, nothing is empty, thinking stands where it may."""

from collections.abc import Iterator

from thresher.dialects.extras import get_extra_fields
from thresher.edits.rules_view import ANTHROPIC, CHAT, GEMINI, Finding, Piece, Row, View
from thresher.model import Message
from thresher.model.parts import Part, Summary, Text, Thinking, ToolCall, ToolResult, Unknown

_SIGNATURES = ("thoughtSignature", "thought_signature")


def _found(piece: Piece, detail: str) -> Finding:
    return Finding(piece.place.message, piece.place.part, detail)


def first_role(view: View) -> Iterator[Finding]:
    """A conversation that the model opens."""
    if view.rows and view.rows[0].role == "assistant" and not view.rows[0].opaque:
        yield Finding(view.rows[0].message, None, "the first message is the model's")


def empty_text(view: View) -> Iterator[Finding]:
    """A text without a character."""
    for piece in view.facts.empty:
        index = piece.place.message
        if view.native(index) and not _may_be_empty(view, piece):
            yield _found(piece, "the text is empty")


def _may_be_empty(view: View, piece: Piece) -> bool:
    message = view.messages[piece.place.message]
    apart = message.pocket is not None and message.pocket.shape.startswith("system")
    if view.dialect == GEMINI:
        return apart or is_signed(piece.part)
    return _as_string(message) and (not apart or len(view.system) == 1)


def _as_string(message: Message) -> bool:
    """Whether Anthropic's writer says the content in one string."""
    part = message.parts[0] if len(message.parts) == 1 else None
    listed = message.pocket is not None and message.pocket.shape in ("list", "system-list")
    return isinstance(part, Text) and part.pocket is None and not listed


def blank_message(view: View) -> Iterator[Finding]:
    """A message whose texts are nothing but space."""
    if not view.facts.blank:
        return
    spoken: dict[int, bool] = {}
    rows = {piece.place.message: row for row in view.rows for piece in row.pieces}
    for piece in view.facts.blank:
        row = rows.get(piece.place.message)
        if row is None:
            continue
        if row.message not in spoken:
            spoken[row.message] = any(_speaks(one.part) for one in row.pieces)
        if not spoken[row.message]:
            yield _found(piece, "the message says nothing but space")


def _speaks(part: Part) -> bool:
    return isinstance(part, Text | Summary) and bool(part.text) and not part.text.isspace()


def empty_message(view: View) -> Iterator[Finding]:
    """A message without content."""
    last = view.rows[-1] if view.rows else None
    for row in view.rows:
        if not row.native or row.opaque:
            continue
        if view.dialect == CHAT:
            empty = _is_null(row, view.messages[row.message])
        else:
            empty = not row.pieces or (view.dialect == ANTHROPIC and _is_empty_string(view.messages[row.message]))
            # Anthropic lets the last message be empty where it is the model's: it is to be gone on with.
            empty = empty and not (view.dialect == ANTHROPIC and row is last and row.role == "assistant")
        if empty:
            yield Finding(row.message, None, "the message is empty")


def _is_empty_string(message: Message) -> bool:
    return _as_string(message) and not message.text


def _is_null(row: Row, message: Message) -> bool:
    """Whether Chat Completions' writer says `null`, or nothing, where only calls may do without content."""
    pocket = message.pocket
    if pocket is None or ("content" not in pocket.absent and '"content":null' not in pocket.fields):
        return False
    if any(_is_content(piece.part) for piece in row.pieces):
        return False
    rest = get_extra_fields(message, CHAT)
    return rest.get("content") is None and not rest.get("audio")


def _is_content(part: Part) -> bool:
    """Whether a part makes a row more than its thinking."""
    return bool(part.content) or part.is_error if isinstance(part, ToolResult) else not isinstance(part, Thinking)


ROLES = {
    ANTHROPIC: ("user", "assistant"),
    CHAT: ("system", "developer", "user", "assistant", "tool", "function"),
    GEMINI: ("user", "model", "function"),
}


def unknown_role(view: View) -> Iterator[Finding]:
    """A message in a role that the API does not have, as a harness may record it."""
    for row in view.rows:
        if row.native and not row.opaque:
            role = get_extra_fields(view.messages[row.message], view.dialect).get("role")
            if role is not None and role not in ROLES[view.dialect]:
                yield Finding(row.message, None, f"the role {role!r} is not one of {', '.join(ROLES[view.dialect])}")


def trailing_space(view: View) -> Iterator[Finding]:
    """A last message of the model's, to be gone on with, that ends in space."""
    row = view.rows[-1] if view.rows else None
    if row is None or row.role != "assistant" or not row.pieces:
        return
    part = row.pieces[-1].part
    if isinstance(part, Text | Summary) and part.text[-1:].isspace():
        yield _found(row.pieces[-1], "the last message, the model's, ends in space")


def unsigned_thinking(view: View) -> Iterator[Finding]:
    """Thinking without its vendor's proof."""
    for _, piece in view.thinking:
        if isinstance(piece.part, Thinking) and not piece.part.signature:
            yield _found(piece, "the thinking has no signature")


def thinking_last(view: View) -> Iterator[Finding]:
    """Thinking that nothing follows in its message."""
    for number in dict.fromkeys(number for number, _ in view.thinking):
        row = view.rows[number]
        for piece in reversed(row.pieces):
            if not isinstance(piece.part, Thinking):
                break
            yield _found(piece, "the message ends in thinking")


def thinking_first(view: View) -> Iterator[Finding]:
    """Thinking behind other content, in a loop of calls that the model has not ended."""
    if not view.rows or not any(isinstance(piece.part, ToolResult) for piece in view.rows[-1].pieces):
        return
    thought = dict(reversed(view.thinking))
    for number in range(len(view.rows) - 1, -1, -1):
        row = view.rows[number]
        if row.role == "user" and not any(isinstance(piece.part, ToolResult) for piece in row.pieces):
            return
        if number in thought and row.role == "assistant" and not isinstance(row.pieces[0].part, Thinking | Unknown):
            yield _found(thought[number], "thinking stands behind other content in an open loop of calls")


def lone_reasoning(view: View) -> Iterator[Finding]:
    """Reasoning without the item that it led to."""
    waiting: list[Piece] = []
    for row in view.rows:
        for piece in row.pieces or (None,):
            part = piece.part if piece else None
            if piece is not None and isinstance(part, Thinking):
                waiting.append(piece)
                continue
            if isinstance(part, ToolResult) or not (row.role == "assistant" or isinstance(part, ToolCall)):
                yield from _lone(waiting)
            waiting.clear()
    yield from _lone(waiting)


def _lone(waiting: list[Piece]) -> list[Finding]:
    return [_found(piece, "no item of the model's follows the reasoning") for piece in waiting]


def thought_signature(view: View) -> Iterator[Finding]:
    """A step of the current turn without a signature, where another step has one."""
    first: dict[int, Piece] = {}
    start = _current_turn(view)
    signed = False
    for number, piece in view.calls:
        if number >= start:
            first.setdefault(number, piece)
            signed = signed or is_signed(piece.part)
    for piece in first.values() if signed else ():
        if not is_signed(piece.part):
            yield _found(piece, "the first call of the step has no thought signature")


def _current_turn(view: View) -> int:
    """The row after the last one in which a person speaks."""
    for number in range(len(view.rows) - 1, -1, -1):
        row = view.rows[number]
        if row.role == "user" and not any(isinstance(piece.part, ToolResult) for piece in row.pieces):
            return number
    return 0


def is_signed(part: Part) -> bool:
    """Whether Gemini's writer puts a thought signature beside a part."""
    pocket = part.pocket
    return pocket is not None and pocket.format == GEMINI and any(key in pocket.fields for key in _SIGNATURES)
