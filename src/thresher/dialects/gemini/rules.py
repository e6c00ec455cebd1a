"""Rules of Gemini's generateContent."""

from collections.abc import Iterator

from thresher.dialects.gemini.codec import NAME
from thresher.dialects.gemini.repairs import MODEL_MESSAGES, SIGNATURES
from thresher.dialects.layout import DialectLayout, PlacedPart, RuleFinding
from thresher.dialects.repairs import steps
from thresher.dialects.rules import shared
from thresher.dialects.rules.rule import LegalityRule
from thresher.dialects.rules.tool_rules import finding_at
from thresher.model.parts import Part, ToolResult

_SIGNATURES = ("thoughtSignature", "thought_signature")


def _check_empty_text(layout: DialectLayout) -> Iterator[RuleFinding]:
    """Find empty texts; system text and text with a signature may be empty."""
    for piece in layout.history_index.empty_texts:
        message = layout.messages[piece.place.message]
        may_be_empty = has_thought_signature(piece.part) or message.role == "system"
        if layout.is_native(piece.place.message) and not may_be_empty:
            yield finding_at(piece, "the text is empty")


def check_thought_signature(layout: DialectLayout) -> Iterator[RuleFinding]:
    """Find steps of the current turn whose first call has no signature, if another step has one."""
    first: dict[int, PlacedPart] = {}
    start = _current_turn(layout)
    signed = False
    for number, piece in layout.calls:
        if number >= start:
            first.setdefault(number, piece)
            signed = signed or has_thought_signature(piece.part)
    for piece in first.values() if signed else ():
        if not has_thought_signature(piece.part):
            yield finding_at(piece, "the first call of the step has no thought signature")


def _current_turn(layout: DialectLayout) -> int:
    """Return the index of the last user row without a tool result; 0 if there is none."""
    for number in range(len(layout.rows) - 1, -1, -1):
        row = layout.rows[number]
        if row.role == "user" and not any(isinstance(piece.part, ToolResult) for piece in row.parts):
            return number
    return 0


def has_thought_signature(part: Part) -> bool:
    """Return True if the codec emits a thought signature with a part."""
    pocket = part.pocket
    return pocket is not None and pocket.format == NAME and any(key in pocket.fields for key in _SIGNATURES)


def check_call_after_model(layout: DialectLayout) -> Iterator[RuleFinding]:
    """Find model contents that call a tool directly after another model content."""
    last = 0
    for number, piece in layout.calls:
        row, before = layout.rows[number], layout.rows[number - 1]
        if number != last and row.role == before.role == "assistant" and not before.is_opaque:
            yield finding_at(piece, "the model calls a tool in the second of two consecutive messages")
        last = number


_CONTENT = "https://ai.google.dev/api/generate-content"
_TOOLS = "https://ai.google.dev/gemini-api/docs/function-calling"
_SIGNATURE_PAGE = "https://ai.google.dev/gemini-api/docs/thought-signatures"
_NO_DATA = "required oneof field 'data' must have one initialized field"
_UNEQUAL = "the number of function response parts is not equal to the number of function call parts"
_RESPONSE_TURN = "function response turn must come immediately after a function call turn"
_CALL_TURN = "function call turn must come immediately after a user turn"
_NO_SIGNATURE = "Function call is missing a thought_signature"

RULES = (
    shared.LONE_SURROGATE_IN_OBJECTS,
    shared.ARGUMENTS_JSON,
    shared.MISPLACED_PART.documented_at(_TOOLS, _RESPONSE_TURN),
    shared.ORPHAN_RESULT.documented_at(_TOOLS, _RESPONSE_TURN),
    shared.REPEATED_RESULT.documented_at(_TOOLS, _UNEQUAL),
    shared.UNANSWERED_CALL.documented_at(_TOOLS, _UNEQUAL),
    shared.RESULT_PLACE.documented_at(_TOOLS, _UNEQUAL),
    LegalityRule("empty-text", _check_empty_text, steps.REMOVED_PARTS, _CONTENT, _NO_DATA),
    shared.EMPTY_MESSAGE.documented_at(_CONTENT, "contents.parts must not be empty"),
    LegalityRule("call-after-model", check_call_after_model, MODEL_MESSAGES, _TOOLS, _CALL_TURN),
    shared.known_role_rule("user", "model", "function").documented_at(_CONTENT, "Please use a valid role: user, model"),
    shared.FIRST_ROLE.documented_at(_CONTENT, "a conversation starts with a user turn"),
    LegalityRule("thought-signature", check_thought_signature, SIGNATURES, _SIGNATURE_PAGE, _NO_SIGNATURE),
)
