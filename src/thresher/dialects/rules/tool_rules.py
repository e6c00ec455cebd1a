"""Checks of tool calls and results: one result per call, at the right position, with a valid id."""

import re
from collections.abc import Callable, Iterator
from typing import Literal

from thresher.dialects.layout import DialectLayout, LayoutRow, PlacedPart, RuleFinding
from thresher.model import Place
from thresher.model.parts import Image, Summary, Text, ToolCall, ToolResult

_PLAIN_ID = re.compile(r"[a-zA-Z0-9_-]+")


def finding_at(piece: PlacedPart, detail: str) -> RuleFinding:
    """Return a finding for a part."""
    return RuleFinding(piece.place.message, piece.place.part, detail)


def check_unanswered_call(layout: DialectLayout) -> Iterator[RuleFinding]:
    """Find calls without a result, except legacy `function_call`s, which need none."""
    for _, call, piece in _current_calls(layout):
        if piece.place not in layout.history_index.result_by_call:
            yield finding_at(piece, f"the call `{call.id}` of `{call.name}` has no result")


def check_result_place(layout: DialectLayout) -> Iterator[RuleFinding]:
    """Find results that do not directly follow the message of their call."""
    slots = _answerable_rows(layout)
    answered, row_of = layout.history_index.call_by_result, layout.row_by_place
    for number, piece in layout.results:
        call = answered.get(piece.place)
        if call is None or call not in row_of or layout.rows[number].role in ("assistant", "function"):
            continue
        if slots[number] != row_of[call]:
            yield finding_at(piece, "the result is not in the message directly after its call")


def check_orphan_result(layout: DialectLayout) -> Iterator[RuleFinding]:
    """Find results that match no earlier call."""
    orphans = layout.history_index.orphan_results
    for number, piece in layout.results if orphans else ():
        if piece.place in orphans and layout.rows[number].role != "function":
            yield finding_at(piece, "the result matches no earlier call")


def check_repeated_result(layout: DialectLayout) -> Iterator[RuleFinding]:
    """Find second results for the same call."""
    repeats = layout.history_index.repeated_results
    for number, piece in layout.results if repeats else ():
        if piece.place in repeats and layout.rows[number].role != "function":
            yield finding_at(piece, "the call of this result already has a result")


def check_results_first(layout: DialectLayout) -> Iterator[RuleFinding]:
    """Find results after other content of their message."""
    for number in dict.fromkeys(number for number, _ in layout.results):
        row = layout.rows[number]
        seen = row.role != "user"
        for piece in row.parts if not seen else ():
            if isinstance(piece.part, Text | Summary | Image):
                seen = True
            elif seen and isinstance(piece.part, ToolResult):
                yield finding_at(piece, "the result follows other content of its message")
                break


def _answerable_rows(layout: DialectLayout) -> list[int]:
    """Return for each row the index of the row that its results may answer; -1 if there is none.

    This is the last earlier row whose role is neither `tool` nor `function`.
    """
    slots: list[int] = []
    last_message = -1
    for number, row in enumerate(layout.rows):
        slots.append(last_message)
        if row.role not in ("tool", "function"):
            last_message = number
    return slots


def check_misplaced_part(layout: DialectLayout, *, any_role: bool = False) -> Iterator[RuleFinding]:
    """Find calls outside the model's messages, results inside them, and calls or results in system text.

    With `any_role`, only system text is checked: the API accepts items of any role.
    """
    for _, piece in layout.calls:
        role = layout.messages[piece.place.message].role
        if role == "system" or (role != "assistant" and not any_role):
            yield finding_at(piece, f"a message of role `{role}` makes a call")
    for number, piece in layout.results:
        holder = layout.rows[number].role
        if holder == "system" or (holder == "assistant" and not any_role):
            yield finding_at(piece, f"a message of role `{holder}` holds a result")
    for index in layout.system_messages:
        for piece in layout.history_index.parts_by_message[index]:
            if isinstance(piece.part, ToolCall | ToolResult):
                yield finding_at(piece, "system text contains a call or a result")


def _has_written_id(row: LayoutRow, call: ToolCall) -> bool:  # noqa: ARG001 - a dialect's own check needs both
    return True


def check_missing_id(
    layout: DialectLayout, *, has_written_id: Callable[[LayoutRow, ToolCall], bool] = _has_written_id
) -> Iterator[RuleFinding]:
    """Find calls that are emitted without an id."""
    for number, call, piece in _current_calls(layout):
        if not call.id or not has_written_id(layout.rows[number], call):
            yield finding_at(piece, f"the call of `{call.name}` has no id")


def _current_calls(layout: DialectLayout) -> Iterator[tuple[int, ToolCall, PlacedPart]]:
    """Yield the calls that are not legacy `function_call`s."""
    for number, piece in layout.calls:
        if isinstance(piece.part, ToolCall) and piece.place not in layout.legacy_calls:
            yield number, piece.part, piece


def check_repeated_id(
    layout: DialectLayout, *, within: Literal["history", "row", "open calls"]
) -> Iterator[RuleFinding]:
    """Find ids that repeat in the scope where the API requires them to be unique."""
    seen: dict[str, tuple[int, Place]] = {}
    for number, call, piece in _current_calls(layout):
        if not call.id:
            continue
        before = seen.get(call.id)
        seen[call.id] = (number, piece.place)
        if before is None or (within == "row" and before[0] != number):
            continue
        answer = layout.history_index.result_by_call.get(before[1])
        if within == "open calls" and answer is not None and answer < piece.place:
            continue
        yield finding_at(piece, f"another call has the id `{call.id}`")


def check_id_form(layout: DialectLayout, *, longest: int) -> Iterator[RuleFinding]:
    """Find ids that exceed the API's maximum length."""
    for _, call, piece in _current_calls(layout):
        if len(call.id) > longest:
            yield finding_at(piece, f"the id `{call.id}` is longer than {longest} characters")


def check_id_characters(layout: DialectLayout) -> Iterator[RuleFinding]:
    """Find ids with characters other than letters, digits, `_` and `-`."""
    for _, call, piece in _current_calls(layout):
        if call.id and not _PLAIN_ID.fullmatch(call.id):
            yield finding_at(piece, f"the id `{call.id}` has characters other than letters, digits, `_` and `-`")
