"""Rules on calls and results: each call answered once, where its API looks for the answer, by an id that it takes."""

import re
from collections.abc import Iterator

from thresher.dialects.extras import get_extra_fields
from thresher.edits.rules_view import ANTHROPIC, CHAT, RESPONSES, Finding, Piece, Row, View
from thresher.model import Message, Place
from thresher.model.parts import Image, Part, Summary, Text, Thinking, ToolCall, ToolResult

_ANTHROPIC_ID = re.compile(r"[a-zA-Z0-9_-]+")
LONGEST_ID = {CHAT: 40, RESPONSES: 64}
SHELL = "local_shell"


def _found(piece: Piece, detail: str) -> Finding:
    return Finding(piece.place.message, piece.place.part, detail)


def unanswered_call(view: View) -> Iterator[Finding]:
    """A call without a result; one as of 2023 may stay without."""
    answers, legacy = view.facts.answers, view.legacy
    for _, piece in view.calls:
        if piece.place not in answers and piece.place not in legacy:
            yield _found(piece, f"the call {_named(piece.part)} has no result")


def result_place(view: View) -> Iterator[Finding]:
    """A result that does not stand right behind the message of its call."""
    slots = _slots(view)
    answered, row_of = view.facts.answered, view.row_of
    for number, piece in view.results:
        call = answered.get(piece.place)
        if call is None or call not in row_of or view.rows[number].role in ("assistant", "function"):
            continue
        if slots[number] != row_of[call]:
            yield _found(piece, "the result does not stand in the message right after its call")


def _slots(view: View) -> list[int]:
    """For each row, the row whose calls it may answer: the one before it, or before its run of results."""
    if view.dialect != CHAT:
        return list(range(-1, len(view.rows) - 1))
    slots: list[int] = []
    spoken = -1
    for number, row in enumerate(view.rows):
        slots.append(spoken)
        if row.role not in ("tool", "function"):
            spoken = number
    return slots


def orphan_result(view: View) -> Iterator[Finding]:
    """A result that no call before it asked for."""
    orphans = view.facts.orphans
    for number, piece in view.results if orphans else ():
        if piece.place in orphans and view.rows[number].role != "function":
            yield _found(piece, "the result answers no call before it")


def repeated_result(view: View) -> Iterator[Finding]:
    """A second result for one call."""
    repeats = view.facts.repeats
    for number, piece in view.results if repeats else ():
        if piece.place in repeats and view.rows[number].role != "function":
            yield _found(piece, "the call of this result is answered already")


def results_first(view: View) -> Iterator[Finding]:
    """Other content before a result in one message."""
    for number in dict.fromkeys(number for number, _ in view.results):
        row = view.rows[number]
        seen = row.role != "user"
        for piece in row.pieces if not seen else ():
            if isinstance(piece.part, Text | Summary | Image):
                seen = True
            elif seen and isinstance(piece.part, ToolResult):
                yield _found(piece, "the result stands behind other content of its message")
                break


def misplaced_part(view: View) -> Iterator[Finding]:
    """A call that the model did not make, a result it wrote itself, or either in system text."""
    for _, piece in view.calls:
        role = view.messages[piece.place.message].role
        if role == "system" or (role != "assistant" and view.dialect != RESPONSES):
            yield _found(piece, f"a message of the role `{role}` makes a call")
    for number, piece in view.results:
        holder = view.rows[number].role
        if holder == "system" or (holder == "assistant" and view.dialect != RESPONSES):
            yield _found(piece, f"a message of the role `{holder}` holds a result")
    for index in view.system:
        for piece in view.facts.pieces[index]:
            if isinstance(piece.part, ToolCall | ToolResult):
                yield _found(piece, "system text holds a call or a result")
    for number, piece in view.thinking if view.dialect == ANTHROPIC else ():
        if view.rows[number].role != "assistant":
            yield _found(piece, "thinking in a message that the model did not write")


def missing_id(view: View) -> Iterator[Finding]:
    """A call or a result that is written without an id."""
    for number, piece in view.calls:
        part = piece.part
        if not isinstance(part, ToolCall) or piece.place in view.legacy:
            continue
        if not part.id or _written_without_id(view, view.rows[number], part):
            yield _found(piece, f"the call of `{part.name}` has no id")
    if view.dialect != CHAT:
        return
    for number, piece in view.results:
        row = view.rows[number]
        pocket = view.messages[row.message].pocket
        if not row.native or pocket is None or "no-id" not in pocket.shape.split():
            continue
        call = view.facts.answered.get(piece.place)
        if row.role == "tool" or (call is not None and call not in view.legacy):
            yield _found(piece, "the result does not say the id of its call")


def _written_without_id(view: View, row: Row, call: ToolCall) -> bool:
    pocket = call.pocket
    if pocket is None or pocket.format != view.dialect:
        return False
    if view.dialect == ANTHROPIC:
        return pocket.shape == "nameless"
    return view.dialect == CHAT and row.native and "no-id" in pocket.shape.split()


def repeated_id(view: View) -> Iterator[Finding]:
    """An id that another call has: anywhere (Anthropic), in one message (Chat), while that waits (Responses)."""
    seen: dict[str, tuple[int, Place]] = {}
    for number, piece in view.calls:
        if not isinstance(piece.part, ToolCall) or not piece.part.id or piece.place in view.legacy:
            continue
        before = seen.get(piece.part.id)
        seen[piece.part.id] = (number, piece.place)
        if before is None or (view.dialect == CHAT and before[0] != number):
            continue
        answer = view.facts.answers.get(before[1])
        if view.dialect == RESPONSES and answer is not None and answer < piece.place:
            continue
        yield _found(piece, f"the id `{piece.part.id}` is that of another call")


def id_form(view: View) -> Iterator[Finding]:
    """An id with characters, or of a length, that the API refuses."""
    longest = LONGEST_ID.get(view.dialect)
    for _, piece in view.calls:
        if not isinstance(piece.part, ToolCall) or not piece.part.id or piece.place in view.legacy:
            continue
        call_id = piece.part.id
        if longest is None:
            if not _ANTHROPIC_ID.fullmatch(call_id):
                yield _found(piece, f"the id `{call_id}` has characters other than letters, digits, `_` and `-`")
        elif len(call_id) > longest:
            yield _found(piece, f"the id `{call_id}` is longer than {longest} characters")


def call_after_model(view: View) -> Iterator[Finding]:
    """A model's content that calls, right behind another one of the model's."""
    last = 0
    for number, piece in view.calls:
        row, before = view.rows[number], view.rows[number - 1]
        if number != last and row.role == before.role == "assistant" and not before.opaque:
            yield _found(piece, "the model calls a tool in a second message of its own in a row")
        last = number


def result_kind(view: View) -> Iterator[Finding]:
    """A result of another kind than its call, so that the API does not see the two as a pair."""
    for number, piece in view.results:
        call = view.facts.answered.get(piece.place)
        if call is None or call not in view.row_of:
            continue
        if view.dialect == CHAT:
            if call in view.legacy and view.rows[number].role == "tool":
                yield _found(piece, "a tool's message answers a call that was written as `function_call`")
            continue
        asked = kind_of(view.messages[call.message].parts[call.part], native=view.native(call.message))
        given = kind_of(piece.part, native=view.native(piece.place.message))
        if asked != given:
            yield _found(piece, f"an output of the kind `{given}` answers a call of the kind `{asked}`")


def kind_of(part: Part, *, native: bool) -> str:
    """Which of the Responses API's kinds of tools a call or a result is written for."""
    notes = part.pocket.shape.split() if native and part.pocket and part.pocket.format == RESPONSES else ()
    return "custom" if "custom" in notes else SHELL if SHELL in notes else "function"


def repeated_item(view: View) -> Iterator[Finding]:
    """An item id that an item before it has."""
    seen: set[str] = set()
    for row in view.rows:
        if not row.native or row.opaque:
            continue
        for part, owner in _items(view, row):
            if owner.pocket is None or '"id":' not in owner.pocket.fields:
                continue
            item = get_extra_fields(owner, RESPONSES).get("id")
            if isinstance(item, str) and item in seen:
                yield Finding(row.message, part, f"the item id `{item}` is that of another item")
            elif isinstance(item, str):
                seen.add(item)


def _items(view: View, row: Row) -> Iterator[tuple[int | None, Part | Message]]:
    """The items of a message, each with what holds its fields; what is said together is one item."""
    message = view.messages[row.message]
    said = not row.pieces
    for piece in row.pieces:
        if not isinstance(piece.part, ToolCall | ToolResult | Thinking):
            said = True
            continue
        if said:
            yield None, message
        said = False
        yield piece.place.part, piece.part
    if said:
        yield None, message


def _named(part: Part) -> str:
    return f"`{part.id}` of `{part.name}`" if isinstance(part, ToolCall) else ""
