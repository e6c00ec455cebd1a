"""Rules of Chat Completions."""

from collections.abc import Iterator

from thresher.dialects.extras import get_extra_fields
from thresher.dialects.layout import DialectLayout, LayoutRow, RuleFinding
from thresher.dialects.openai_chat.codec import NAME
from thresher.dialects.repairs import steps
from thresher.dialects.rules import shared
from thresher.dialects.rules.rule import LegalityRule
from thresher.dialects.rules.tool_rules import check_missing_id, finding_at
from thresher.model import Message
from thresher.model.parts import Part, Thinking, ToolCall, ToolResult


def _check_missing_id(layout: DialectLayout) -> Iterator[RuleFinding]:
    """Find calls and results that are emitted without an id."""
    yield from check_missing_id(layout, has_written_id=_has_written_id)
    for number, piece in layout.results:
        row = layout.rows[number]
        pocket = layout.messages[row.message].pocket
        if not row.is_native or pocket is None or "no-id" not in pocket.shape.split():
            continue
        call = layout.history_index.call_by_result.get(piece.place)
        if row.role == "tool" or (call is not None and call not in layout.legacy_calls):
            yield finding_at(piece, "the result does not have the id of its call")


def _has_written_id(row: LayoutRow, call: ToolCall) -> bool:
    pocket = call.pocket
    return pocket is None or pocket.format != NAME or not row.is_native or "no-id" not in pocket.shape.split()


def _check_result_kind(layout: DialectLayout) -> Iterator[RuleFinding]:
    """Find tool messages that answer a legacy `function_call`: the API does not match them with it."""
    for number, piece in layout.results:
        call = layout.history_index.call_by_result.get(piece.place)
        if call in layout.row_by_place and call in layout.legacy_calls and layout.rows[number].role == "tool":
            yield finding_at(piece, "a tool message answers a call in the field `function_call`")


def _check_empty_message(layout: DialectLayout) -> Iterator[RuleFinding]:
    """Find messages without content."""
    for row in layout.rows:
        if row.is_native and not row.is_opaque and _has_null_content(row, layout.messages[row.message]):
            yield RuleFinding(row.message, None, "the message is empty")


def _check_empty_calls(layout: DialectLayout) -> Iterator[RuleFinding]:
    """Find messages with an empty list of calls."""
    for row in layout.rows:
        if not row.is_native or row.is_opaque or any(isinstance(piece.part, ToolCall) for piece in row.parts):
            continue
        message = layout.messages[row.message]
        is_possible = message.pocket is not None and '"tool_calls":[]' in message.pocket.fields
        if is_possible and get_extra_fields(message, NAME).get("tool_calls") == []:
            yield RuleFinding(row.message, None, "the list of calls is empty")


def _has_null_content(row: LayoutRow, message: Message) -> bool:
    """Return True if the codec emits null or no content in a row that requires content."""
    pocket = message.pocket
    if pocket is None or ("content" not in pocket.absent and '"content":null' not in pocket.fields):
        return False
    if any(_is_content(piece.part) for piece in row.parts):
        return False
    rest = get_extra_fields(message, NAME)
    return rest.get("content") is None and not rest.get("audio")


def _is_content(part: Part) -> bool:
    """Return True if a part is neither thinking nor an empty result without an error flag."""
    return bool(part.content) or part.is_error if isinstance(part, ToolResult) else not isinstance(part, Thinking)


_OPENAI = "https://platform.openai.com/docs"
_TOOLS = f"{_OPENAI}/guides/function-calling"
_CHAT = f"{_OPENAI}/api-reference/chat/create"
_NO_TOOL_CALLS = "messages with role 'tool' must be a response to a preceding message with 'tool_calls'"
_NO_TOOL_MESSAGE = "An assistant message with 'tool_calls' must be followed by tool messages responding to each id"
_NULL_CONTENT = "Invalid value for 'content': expected a string, got null"
_NO_CALLS = "Invalid 'tool_calls': empty array. Expected an array with minimum length 1"
_TOO_LONG = "string too long. Expected a string with maximum length 40"
_API_ROLES = ("system", "developer", "user", "assistant", "tool", "function")

RULES = (
    shared.LONE_SURROGATE,
    shared.MISPLACED_PART.documented_at(_CHAT, _NO_TOOL_CALLS),
    shared.ORPHAN_RESULT.documented_at(_TOOLS, _NO_TOOL_CALLS),
    shared.REPEATED_RESULT.documented_at(_TOOLS, _NO_TOOL_CALLS),
    shared.UNANSWERED_CALL.documented_at(_TOOLS, _NO_TOOL_MESSAGE),
    shared.RESULT_PLACE.documented_at(_TOOLS, _NO_TOOL_MESSAGE),
    LegalityRule("result-kind", _check_result_kind, steps.RESULT_KINDS, _CHAT, _NO_TOOL_CALLS),
    LegalityRule("missing-id", _check_missing_id, steps.CALL_IDS, _CHAT, "Missing required parameter: 'tool_call_id'"),
    shared.repeated_id_rule("row").documented_at(_TOOLS, "two calls with one id: no clear match"),
    shared.id_length_rule(40).documented_at(_CHAT, _TOO_LONG),
    LegalityRule("empty-calls", _check_empty_calls, steps.EMPTY_CALLS, _CHAT, _NO_CALLS),
    LegalityRule("empty-message", _check_empty_message, steps.EMPTY_MESSAGES, _CHAT, _NULL_CONTENT),
    shared.known_role_rule(*_API_ROLES).documented_at(_CHAT, "Invalid value for 'role': supported values are"),
)
