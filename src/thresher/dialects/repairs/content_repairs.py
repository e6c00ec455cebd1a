"""Repairs of message content: invalid parts, empty messages, part order, roles."""

from collections.abc import Sequence

from msgspec import structs

from thresher.dialects.extras import get_extra_fields
from thresher.dialects.repairs.workspace import (
    MessageDraft,
    RepairWorkspace,
    Violation,
    pair_parts,
    replace_draft_parts,
)
from thresher.dialects.surrogates import repair_message_encoding, repair_part_encoding
from thresher.model import Message, Place, VendorExtras
from thresher.model.jsontext import dump_json
from thresher.model.parts import Part, Summary, Text, Thinking, ToolCall, ToolResult

EARLIER_CONVERSATION_NOTE = "[earlier conversation not included]"


def repair_surrogates(workspace: RepairWorkspace, violations: Sequence[Violation]) -> None:
    """Replace each lone surrogate with U+FFFD."""
    messages: dict[int, Message | None] = {}
    parts: dict[Place, tuple[Part, ...]] = {}
    for violation in violations:
        if violation.part is None:
            messages[violation.message] = repair_message_encoding(workspace.drafts[violation.message].message)
        else:
            parts[violation.place] = (repair_part_encoding(workspace.part(violation.place)),)
    workspace.record_repairs(violations, "half of a surrogate pair replaced with U+FFFD")
    workspace.replace_messages(messages)
    workspace.replace_parts(parts)


def wrap_arguments(workspace: RepairWorkspace, violations: Sequence[Violation]) -> None:
    """Replace arguments that are not valid JSON by an object that holds them as text in the field `input`."""

    def wrap(call: Part) -> Part | None:
        if not isinstance(call, ToolCall):
            return None
        return structs.replace(call, arguments=dump_json({"input": call.arguments}))

    workspace.repair_parts(violations, "the arguments are preserved as text in the field `input`", wrap)


def remove_parts(workspace: RepairWorkspace, violations: Sequence[Violation]) -> None:
    """Remove parts that the API rejects."""
    unique = {(violation.rule, violation.place): violation for violation in violations}
    for violation in unique.values():
        workspace.record_repair(violation.rule, violation.message, violation.part, f"removed: {violation.detail}")
    workspace.replace_parts({violation.place: () for violation in violations})


def remove_messages(workspace: RepairWorkspace, violations: Sequence[Violation]) -> None:
    """Remove messages without content, but keep one with an empty result and emit its content as an empty string."""
    messages: dict[int, Message | None] = {}
    for violation in violations:
        message = workspace.drafts[violation.message].message
        answers = any(isinstance(part, ToolResult) for part in message.parts)
        messages[violation.message] = structs.replace(message, pocket=None) if answers else None
    workspace.record_repairs(violations, "removed")
    workspace.replace_messages(messages)


def move_parts_to_front(workspace: RepairWorkspace, violations: Sequence[Violation]) -> None:
    """Move results, or thinking, to the front of their message."""
    workspace.record_repairs(violations, "moved to the front of its message")
    for index, rule in {violation.message: violation.rule for violation in violations}.items():
        first = ToolResult if rule == "results-first" else Thinking
        draft = workspace.drafts[index]
        pairs = sorted(pair_parts(draft), key=lambda pair: not isinstance(pair[0], first))
        workspace.drafts[index] = replace_draft_parts(draft, pairs)


def insert_opening_message(workspace: RepairWorkspace, violations: Sequence[Violation]) -> None:
    """Insert a user message before the first message, which is the model's."""
    first = min(violation.message for violation in violations)
    workspace.record_repair("first-role", first, None, "a user message added before it: the user must be first")
    opening = Message("user", (Text(EARLIER_CONVERSATION_NOTE),), author="harness")
    origin = workspace.drafts[first].origin
    workspace.drafts.insert(first, MessageDraft(opening, origin, (Place(origin, 0),)))


def reset_unknown_role(workspace: RepairWorkspace, violations: Sequence[Violation]) -> None:
    """Remove an unknown role from a message, so that the codec emits the message with its inferred role."""
    messages: dict[int, Message | None] = {}
    for violation in violations:
        message = workspace.drafts[violation.message].message
        fields = {key: value for key, value in get_extra_fields(message, violation.dialect).items() if key != "role"}
        pocket = message.pocket or VendorExtras(violation.dialect)
        pocket = structs.replace(pocket, fields=dump_json(fields) if fields else "")
        messages[violation.message] = structs.replace(message, pocket=pocket)
    workspace.record_repairs(violations, "the unknown role replaced by the inferred one")
    workspace.replace_messages(messages)


def trim_end(workspace: RepairWorkspace, violations: Sequence[Violation]) -> None:
    """Remove whitespace from the end of the history."""

    def trim(part: Part) -> Part | None:
        return structs.replace(part, text=part.text.rstrip()) if isinstance(part, Text | Summary) else None

    workspace.repair_parts(violations, "whitespace at the end removed", trim)
