"""Rules of the Responses API."""

from collections.abc import Iterator
from functools import partial

from thresher.dialects.extras import get_extra_fields
from thresher.dialects.layout import DialectLayout, LayoutRow, PlacedPart, RuleFinding
from thresher.dialects.openai_responses.codec import NAME, ROLES
from thresher.dialects.openai_responses.repairs import ITEM_IDS, RESULT_KINDS, get_tool_kind
from thresher.dialects.repairs import steps
from thresher.dialects.rules import shared
from thresher.dialects.rules.rule import LegalityRule
from thresher.dialects.rules.tool_rules import check_misplaced_part, finding_at
from thresher.model import Message
from thresher.model.parts import Part, Thinking, ToolCall, ToolResult


def _check_result_kind(layout: DialectLayout) -> Iterator[RuleFinding]:
    """Find results whose kind differs from the kind of their call: the API does not match these."""
    for _, piece in layout.results:
        call = layout.history_index.call_by_result.get(piece.place)
        if call is None or call not in layout.row_by_place:
            continue
        call_kind = get_tool_kind(layout.messages[call.message].parts[call.part], native=layout.is_native(call.message))
        result_kind = get_tool_kind(piece.part, native=layout.is_native(piece.place.message))
        if call_kind != result_kind:
            yield finding_at(piece, f"an output of kind `{result_kind}` answers a call of kind `{call_kind}`")


def check_lone_reasoning(layout: DialectLayout) -> Iterator[RuleFinding]:
    """Find reasoning that no item of the model follows."""
    waiting: list[PlacedPart] = []
    for row in layout.rows:
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
    return [finding_at(piece, "the reasoning has no following item of the model") for piece in waiting]


def check_repeated_item(layout: DialectLayout) -> Iterator[RuleFinding]:
    """Find items whose id repeats an earlier one."""
    seen: set[str] = set()
    for row in layout.rows:
        if not row.is_native or row.is_opaque:
            continue
        for part, owner in _items(layout, row):
            if owner.pocket is None or '"id":' not in owner.pocket.fields:
                continue
            item_id = get_extra_fields(owner, NAME).get("id")
            if isinstance(item_id, str) and item_id in seen:
                yield RuleFinding(row.message, part, f"another item has the id `{item_id}`")
            elif isinstance(item_id, str):
                seen.add(item_id)


def _items(layout: DialectLayout, row: LayoutRow) -> Iterator[tuple[int | None, Part | Message]]:
    """Yield for each item of a message its part index, None for a run of text, and the object with its extra fields."""
    message = layout.messages[row.message]
    has_text = not row.parts
    for piece in row.parts:
        if not isinstance(piece.part, ToolCall | ToolResult | Thinking):
            has_text = True
            continue
        if has_text:
            yield None, message
        has_text = False
        yield piece.place.part, piece.part
    if has_text:
        yield None, message


_OPENAI = "https://platform.openai.com/docs"
_TOOLS = f"{_OPENAI}/guides/function-calling"
_RESPONSES = f"{_OPENAI}/api-reference/responses/create"
_REASONING = f"{_OPENAI}/guides/reasoning"
_CALLS_LOST = "`instructions` is text: calls in it are lost"
_NO_OUTPUT = "No tool output found for function call"
_NO_CUSTOM_OUTPUT = "No tool output found for custom tool call"
_NO_FUNCTION_CALL = "No tool call found for function call output"
_TOO_LONG = "string too long. Expected a string with maximum length 64"
_NO_ITEM = "reasoning was provided without its required following item"

RULES = (
    shared.LONE_SURROGATE,
    LegalityRule(
        "misplaced-part",
        partial(check_misplaced_part, any_role=True),
        steps.MISPLACED_PARTS,
        _RESPONSES,
        _CALLS_LOST,
    ),
    shared.ORPHAN_RESULT.documented_at(_TOOLS, _NO_FUNCTION_CALL),
    shared.REPEATED_RESULT.documented_at(_TOOLS, "one output for each call"),
    shared.UNANSWERED_CALL.documented_at(_TOOLS, _NO_OUTPUT),
    shared.known_role_rule(*ROLES).documented_at(_RESPONSES, "Invalid value for 'role': supported values are"),
    LegalityRule("result-kind", _check_result_kind, RESULT_KINDS, _RESPONSES, _NO_CUSTOM_OUTPUT),
    shared.MISSING_ID.documented_at(_RESPONSES, "Missing required parameter: 'call_id'"),
    shared.repeated_id_rule("open calls").documented_at(_TOOLS, "two open calls with one id: no clear match"),
    shared.id_length_rule(64).documented_at(_RESPONSES, _TOO_LONG),
    LegalityRule("lone-reasoning", check_lone_reasoning, steps.LONE_PARTS, _REASONING, _NO_ITEM),
    LegalityRule("repeated-item", check_repeated_item, ITEM_IDS, _RESPONSES, "Duplicate item found with id"),
)
