"""Rules of Anthropic's Messages API."""

from collections.abc import Iterator
from functools import partial

from thresher.dialects.anthropic.codec import NAME, SYSTEM_ROLE
from thresher.dialects.anthropic.system_rows import find_misplaced_rows
from thresher.dialects.layout import DialectLayout, LayoutRow, RuleFinding
from thresher.dialects.repairs import steps
from thresher.dialects.rules import shared
from thresher.dialects.rules.rule import LegalityRule
from thresher.dialects.rules.tool_rules import check_misplaced_part, check_missing_id, finding_at
from thresher.model import Message
from thresher.model.parts import Text, Thinking, ToolCall, ToolResult, Unknown


def _check_misplaced_part(layout: DialectLayout) -> Iterator[RuleFinding]:
    """Find calls, results and thinking in messages of the wrong role."""
    yield from check_misplaced_part(layout)
    for number, piece in layout.thinking:
        if layout.rows[number].role != "assistant":
            yield finding_at(piece, "the message holds thinking but is not the model's")


def _has_written_id(row: LayoutRow, call: ToolCall) -> bool:  # noqa: ARG001 - the encoder depends only on the call
    return call.pocket is None or call.pocket.format != NAME or call.pocket.shape != "nameless"


def _check_empty_text(layout: DialectLayout) -> Iterator[RuleFinding]:
    """Find empty text blocks; content that is emitted as one string may be empty."""
    for piece in layout.history_index.empty_texts:
        message = layout.messages[piece.place.message]
        apart = message.pocket is not None and message.pocket.shape.startswith("system")
        may_be_empty = _is_written_as_string(message) and (not apart or len(layout.system_messages) == 1)
        if layout.is_native(piece.place.message) and not may_be_empty:
            yield finding_at(piece, "the text is empty")


def _check_empty_message(layout: DialectLayout) -> Iterator[RuleFinding]:
    """Find messages without content; an assistant message at the end may be empty, because the reply continues it."""
    last = layout.rows[-1] if layout.rows else None
    for row in layout.rows:
        if not row.is_native or row.is_opaque or (row is last and row.role == "assistant"):
            continue
        message = layout.messages[row.message]
        if not row.parts or (_is_written_as_string(message) and not message.text):
            yield RuleFinding(row.message, None, "the message is empty")


def _is_written_as_string(message: Message) -> bool:
    """Return True if the codec emits the content as one string."""
    part = message.parts[0] if len(message.parts) == 1 else None
    listed = message.pocket is not None and message.pocket.shape in ("list", "system-list")
    return isinstance(part, Text) and part.pocket is None and not listed


def _check_system_place(layout: DialectLayout) -> Iterator[RuleFinding]:
    """Find system rows that do not follow a message of the user, or that the model does not answer."""
    apart = set(layout.system_messages)
    rows = [index for index in range(len(layout.messages)) if index not in apart]
    for number, detail in find_misplaced_rows([layout.messages[index] for index in rows]):
        yield RuleFinding(rows[number], None, detail)


def check_unsigned_thinking(layout: DialectLayout) -> Iterator[RuleFinding]:
    """Find thinking without its vendor's signature."""
    for _, piece in layout.thinking:
        if isinstance(piece.part, Thinking) and not piece.part.signature:
            yield finding_at(piece, "the thinking has no signature")


def check_thinking_last(layout: DialectLayout) -> Iterator[RuleFinding]:
    """Find thinking at the end of its message."""
    for number in dict.fromkeys(number for number, _ in layout.thinking):
        row = layout.rows[number]
        for piece in reversed(row.parts):
            if not isinstance(piece.part, Thinking):
                break
            yield finding_at(piece, "the message ends with thinking")


def check_thinking_first(layout: DialectLayout) -> Iterator[RuleFinding]:
    """Find thinking after other content in the messages of an open tool loop, which ends with a tool result."""
    if not layout.rows or not any(isinstance(piece.part, ToolResult) for piece in layout.rows[-1].parts):
        return
    thought = dict(reversed(layout.thinking))
    for number in range(len(layout.rows) - 1, -1, -1):
        row = layout.rows[number]
        if row.role == "user" and not any(isinstance(piece.part, ToolResult) for piece in row.parts):
            return
        if number in thought and row.role == "assistant" and not isinstance(row.parts[0].part, Thinking | Unknown):
            yield finding_at(thought[number], "thinking follows other content in an open loop of tool calls")


_DOCS = "https://platform.claude.com/docs/en"
_MESSAGES = f"{_DOCS}/api/messages"
_TOOLS = f"{_DOCS}/agents-and-tools/tool-use/handle-tool-calls"
_PARALLEL = f"{_DOCS}/agents-and-tools/tool-use/parallel-tool-use"
_THINKING = f"{_DOCS}/build-with-claude/extended-thinking"
_SYSTEM = f"{_DOCS}/build-with-claude/mid-conversation-system-messages"
_SYSTEM_MISPLACED = "messages: role `system` must follow a user message and precede an assistant message"
_NO_RESULT = "`tool_use` ids were found without `tool_result` blocks immediately after"
_NO_CALL = "unexpected `tool_use_id` found in `tool_result` blocks"
_WRONG_ROLE = "`tool_use` and `tool_result` in the wrong role"
_NO_ID = "tool_use.id: Field required"
_NO_SIGNATURE = "thinking.signature: Field required"
_ENDS_IN_THINKING = "The final block in an assistant message cannot be `thinking`"
_EMPTY_BLOCK = "text content blocks must be non-empty"
_EMPTY_CONTENT = "all messages must have non-empty content"
_THINKING_EXPECTED = "Expected `thinking` or `redacted_thinking`"
_has_id = partial(check_missing_id, has_written_id=_has_written_id)

RULES = (
    shared.LONE_SURROGATE_IN_OBJECTS,
    shared.ARGUMENTS_JSON,
    LegalityRule("misplaced-part", _check_misplaced_part, steps.MISPLACED_PARTS, _TOOLS, _WRONG_ROLE),
    shared.ORPHAN_RESULT.documented_at(_TOOLS, _NO_CALL),
    shared.REPEATED_RESULT.documented_at(_TOOLS, "each `tool_use` must have a single result"),
    shared.UNANSWERED_CALL.documented_at(_TOOLS, _NO_RESULT),
    shared.RESULT_PLACE.documented_at(_PARALLEL, _NO_RESULT),
    LegalityRule("missing-id", _has_id, steps.CALL_IDS, _TOOLS, _NO_ID),
    shared.repeated_id_rule("history").documented_at(_TOOLS, "`tool_use` ids must be unique"),
    shared.ID_CHARACTERS.documented_at(_MESSAGES, "tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'"),
    LegalityRule("unsigned-thinking", check_unsigned_thinking, steps.REMOVED_PARTS, _THINKING, _NO_SIGNATURE),
    LegalityRule("thinking-last", check_thinking_last, steps.REMOVED_PARTS, _THINKING, _ENDS_IN_THINKING),
    LegalityRule("empty-text", _check_empty_text, steps.REMOVED_PARTS, _MESSAGES, _EMPTY_BLOCK),
    shared.BLANK_MESSAGE.documented_at(_MESSAGES, "text content blocks must contain non-whitespace text"),
    LegalityRule("empty-message", _check_empty_message, steps.EMPTY_MESSAGES, _MESSAGES, _EMPTY_CONTENT),
    shared.RESULTS_FIRST.documented_at(_TOOLS, _NO_RESULT),
    LegalityRule("thinking-first", check_thinking_first, steps.PART_ORDER, _THINKING, _THINKING_EXPECTED),
    shared.known_role_rule("user", "assistant", SYSTEM_ROLE).documented_at(_MESSAGES, "messages: Unexpected role"),
    LegalityRule("system-place", _check_system_place, steps.ROLES, _SYSTEM, _SYSTEM_MISPLACED),
    shared.FIRST_ROLE.documented_at(_MESSAGES, 'first message must use the "user" role'),
    shared.TRAILING_SPACE.documented_at(_MESSAGES, "final assistant content cannot end with trailing whitespace"),
)
