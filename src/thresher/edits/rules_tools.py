"""Rules on calls and results: each call answered once, where its API looks for the answer, by an id that it takes."""

import re
from collections.abc import Iterator

from thresher.dialects.extras import get_extra_fields
from thresher.edits.layout import ANTHROPIC, CHAT, RESPONSES, DialectLayout, LayoutRow, PlacedPart, RuleFinding
from thresher.model import Message, Place
from thresher.model.parts import Image, Part, Summary, Text, Thinking, ToolCall, ToolResult

_ANTHROPIC_ID = re.compile(r"[a-zA-Z0-9_-]+")
LONGEST_ID = {CHAT: 40, RESPONSES: 64}
SHELL = "local_shell"


def _finding_at(piece: PlacedPart, detail: str) -> RuleFinding:
    return RuleFinding(piece.place.message, piece.place.part, detail)


def check_unanswered_call(view: DialectLayout) -> Iterator[RuleFinding]:
    """A call without a result; one as of 2023 may stay without."""
    answers, legacy = view.history_index.result_by_call, view.legacy_calls
    for _, piece in view.calls:
        if piece.place not in answers and piece.place not in legacy:
            yield _finding_at(piece, f"the call {_describe_call(piece.part)} has no result")


def check_result_place(view: DialectLayout) -> Iterator[RuleFinding]:
    """A result that does not stand right behind the message of its call."""
    slots = _answerable_rows(view)
    answered, row_of = view.history_index.call_by_result, view.row_by_place
    for number, piece in view.results:
        call = answered.get(piece.place)
        if call is None or call not in row_of or view.rows[number].role in ("assistant", "function"):
            continue
        if slots[number] != row_of[call]:
            yield _finding_at(piece, "the result does not stand in the message right after its call")


def _answerable_rows(view: DialectLayout) -> list[int]:
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


def check_orphan_result(view: DialectLayout) -> Iterator[RuleFinding]:
    """A result that no call before it asked for."""
    orphans = view.history_index.orphan_results
    for number, piece in view.results if orphans else ():
        if piece.place in orphans and view.rows[number].role != "function":
            yield _finding_at(piece, "the result answers no call before it")


def check_repeated_result(view: DialectLayout) -> Iterator[RuleFinding]:
    """A second result for one call."""
    repeats = view.history_index.repeated_results
    for number, piece in view.results if repeats else ():
        if piece.place in repeats and view.rows[number].role != "function":
            yield _finding_at(piece, "the call of this result is answered already")


def check_results_first(view: DialectLayout) -> Iterator[RuleFinding]:
    """Other content before a result in one message."""
    for number in dict.fromkeys(number for number, _ in view.results):
        row = view.rows[number]
        seen = row.role != "user"
        for piece in row.parts if not seen else ():
            if isinstance(piece.part, Text | Summary | Image):
                seen = True
            elif seen and isinstance(piece.part, ToolResult):
                yield _finding_at(piece, "the result stands behind other content of its message")
                break


def check_misplaced_part(view: DialectLayout) -> Iterator[RuleFinding]:
    """A call that the model did not make, a result it wrote itself, or either in system text."""
    for _, piece in view.calls:
        role = view.messages[piece.place.message].role
        if role == "system" or (role != "assistant" and view.dialect != RESPONSES):
            yield _finding_at(piece, f"a message of the role `{role}` makes a call")
    for number, piece in view.results:
        holder = view.rows[number].role
        if holder == "system" or (holder == "assistant" and view.dialect != RESPONSES):
            yield _finding_at(piece, f"a message of the role `{holder}` holds a result")
    for index in view.system_messages:
        for piece in view.history_index.parts_by_message[index]:
            if isinstance(piece.part, ToolCall | ToolResult):
                yield _finding_at(piece, "system text holds a call or a result")
    for number, piece in view.thinking if view.dialect == ANTHROPIC else ():
        if view.rows[number].role != "assistant":
            yield _finding_at(piece, "thinking in a message that the model did not write")


def check_missing_id(view: DialectLayout) -> Iterator[RuleFinding]:
    """A call or a result that is written without an id."""
    for number, piece in view.calls:
        part = piece.part
        if not isinstance(part, ToolCall) or piece.place in view.legacy_calls:
            continue
        if not part.id or _written_without_id(view, view.rows[number], part):
            yield _finding_at(piece, f"the call of `{part.name}` has no id")
    if view.dialect != CHAT:
        return
    for number, piece in view.results:
        row = view.rows[number]
        pocket = view.messages[row.message].pocket
        if not row.is_native or pocket is None or "no-id" not in pocket.shape.split():
            continue
        call = view.history_index.call_by_result.get(piece.place)
        if row.role == "tool" or (call is not None and call not in view.legacy_calls):
            yield _finding_at(piece, "the result does not say the id of its call")


def _written_without_id(view: DialectLayout, row: LayoutRow, call: ToolCall) -> bool:
    pocket = call.pocket
    if pocket is None or pocket.format != view.dialect:
        return False
    if view.dialect == ANTHROPIC:
        return pocket.shape == "nameless"
    return view.dialect == CHAT and row.is_native and "no-id" in pocket.shape.split()


def check_repeated_id(view: DialectLayout) -> Iterator[RuleFinding]:
    """An id that another call has: anywhere (Anthropic), in one message (Chat), while that waits (Responses)."""
    seen: dict[str, tuple[int, Place]] = {}
    for number, piece in view.calls:
        if not isinstance(piece.part, ToolCall) or not piece.part.id or piece.place in view.legacy_calls:
            continue
        before = seen.get(piece.part.id)
        seen[piece.part.id] = (number, piece.place)
        if before is None or (view.dialect == CHAT and before[0] != number):
            continue
        answer = view.history_index.result_by_call.get(before[1])
        if view.dialect == RESPONSES and answer is not None and answer < piece.place:
            continue
        yield _finding_at(piece, f"the id `{piece.part.id}` is that of another call")


def check_id_form(view: DialectLayout) -> Iterator[RuleFinding]:
    """An id with characters, or of a length, that the API refuses."""
    longest = LONGEST_ID.get(view.dialect)
    for _, piece in view.calls:
        if not isinstance(piece.part, ToolCall) or not piece.part.id or piece.place in view.legacy_calls:
            continue
        call_id = piece.part.id
        if longest is None:
            if not _ANTHROPIC_ID.fullmatch(call_id):
                yield _finding_at(piece, f"the id `{call_id}` has characters other than letters, digits, `_` and `-`")
        elif len(call_id) > longest:
            yield _finding_at(piece, f"the id `{call_id}` is longer than {longest} characters")


def check_call_after_model(view: DialectLayout) -> Iterator[RuleFinding]:
    """A model's content that calls, right behind another one of the model's."""
    last = 0
    for number, piece in view.calls:
        row, before = view.rows[number], view.rows[number - 1]
        if number != last and row.role == before.role == "assistant" and not before.is_opaque:
            yield _finding_at(piece, "the model calls a tool in a second message of its own in a row")
        last = number


def check_result_kind(view: DialectLayout) -> Iterator[RuleFinding]:
    """A result of another kind than its call, so that the API does not see the two as a pair."""
    for number, piece in view.results:
        call = view.history_index.call_by_result.get(piece.place)
        if call is None or call not in view.row_by_place:
            continue
        if view.dialect == CHAT:
            if call in view.legacy_calls and view.rows[number].role == "tool":
                yield _finding_at(piece, "a tool's message answers a call that was written as `function_call`")
            continue
        asked = responses_tool_kind(view.messages[call.message].parts[call.part], native=view.is_native(call.message))
        given = responses_tool_kind(piece.part, native=view.is_native(piece.place.message))
        if asked != given:
            yield _finding_at(piece, f"an output of the kind `{given}` answers a call of the kind `{asked}`")


def responses_tool_kind(part: Part, *, native: bool) -> str:
    """Which of the Responses API's kinds of tools a call or a result is written for."""
    notes = part.pocket.shape.split() if native and part.pocket and part.pocket.format == RESPONSES else ()
    return "custom" if "custom" in notes else SHELL if SHELL in notes else "function"


def check_repeated_item(view: DialectLayout) -> Iterator[RuleFinding]:
    """An item id that an item before it has."""
    seen: set[str] = set()
    for row in view.rows:
        if not row.is_native or row.is_opaque:
            continue
        for part, owner in _items(view, row):
            if owner.pocket is None or '"id":' not in owner.pocket.fields:
                continue
            item = get_extra_fields(owner, RESPONSES).get("id")
            if isinstance(item, str) and item in seen:
                yield RuleFinding(row.message, part, f"the item id `{item}` is that of another item")
            elif isinstance(item, str):
                seen.add(item)


def _items(view: DialectLayout, row: LayoutRow) -> Iterator[tuple[int | None, Part | Message]]:
    """The items of a message, each with what holds its fields; what is said together is one item."""
    message = view.messages[row.message]
    said = not row.parts
    for piece in row.parts:
        if not isinstance(piece.part, ToolCall | ToolResult | Thinking):
            said = True
            continue
        if said:
            yield None, message
        said = False
        yield piece.place.part, piece.part
    if said:
        yield None, message


def _describe_call(part: Part) -> str:
    return f"`{part.id}` of `{part.name}`" if isinstance(part, ToolCall) else ""
