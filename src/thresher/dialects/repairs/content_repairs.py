"""Repairs of message content: invalid parts, empty messages, part order, roles."""

from collections.abc import Sequence

from msgspec import structs

from thresher.dialects.extras import get_extra_fields
from thresher.dialects.repairs.workspace import MessageDraft, RepairWorkspace, Violation, replace_draft_parts
from thresher.dialects.surrogates import repair_message_encoding, repair_part_encoding
from thresher.model import Message, Place, VendorExtras
from thresher.model.jsontext import dump_json
from thresher.model.parts import Part, Summary, Text, Thinking, ToolCall, ToolResult

EARLIER_CONVERSATION_NOTE = "[earlier conversation not included]"


def repair_surrogates(bench: RepairWorkspace, violations: Sequence[Violation]) -> None:
    """Replace each lone surrogate with U+FFFD."""
    messages: dict[int, Message | None] = {}
    parts: dict[Place, tuple[Part, ...]] = {}
    for one in violations:
        if one.part is None:
            messages[one.message] = repair_message_encoding(bench.drafts[one.message].message)
        else:
            parts[one.place] = (repair_part_encoding(bench.part(one.place)),)
    bench.record_repairs(violations, "half of a surrogate pair replaced with U+FFFD")
    bench.replace_messages(messages)
    bench.replace_parts(parts)


def wrap_arguments(bench: RepairWorkspace, violations: Sequence[Violation]) -> None:
    """Wrap arguments that are not valid JSON as text in the field `input`, as the encoders do with free text."""
    parts: dict[Place, tuple[Part, ...]] = {}
    for one in violations:
        call = bench.part(one.place)
        if isinstance(call, ToolCall):
            parts[one.place] = (structs.replace(call, arguments=dump_json({"input": call.arguments})),)
    bench.record_repairs(violations, "the arguments are preserved as text in the field `input`")
    bench.replace_parts(parts)


def remove_parts(bench: RepairWorkspace, violations: Sequence[Violation]) -> None:
    """Remove parts that the API rejects."""
    for one in {(one.rule, one.message, one.part): one for one in violations}.values():
        bench.record_repair(one.rule, one.message, one.part, f"removed: {one.detail}")
    bench.replace_parts({one.place: () for one in violations})


def remove_messages(bench: RepairWorkspace, violations: Sequence[Violation]) -> None:
    """Remove messages without content; emit an empty result as an empty text."""
    messages: dict[int, Message | None] = {}
    for one in violations:
        message = bench.drafts[one.message].message
        answers = any(isinstance(part, ToolResult) for part in message.parts)
        messages[one.message] = structs.replace(message, pocket=None) if answers else None
    bench.record_repairs(violations, "removed")
    bench.replace_messages(messages)


def move_parts_to_front(bench: RepairWorkspace, violations: Sequence[Violation]) -> None:
    """Move results, or thinking, to the front of their message."""
    bench.record_repairs(violations, "moved to the front of its message")
    for index, rule in {one.message: one.rule for one in violations}.items():
        first = ToolResult if rule == "results-first" else Thinking
        draft = bench.drafts[index]
        pairs = list(zip(draft.message.parts, draft.places, strict=True))
        front = [pair for pair in pairs if isinstance(pair[0], first)]
        back = [pair for pair in pairs if not isinstance(pair[0], first)]
        bench.drafts[index] = replace_draft_parts(draft, [*front, *back])


def insert_opening_message(bench: RepairWorkspace, violations: Sequence[Violation]) -> None:
    """Insert a user message before the model's first message."""
    first = min(one.message for one in violations)
    bench.record_repair("first-role", first, None, "a user message added before it: the user must be first")
    opening = Message("user", (Text(EARLIER_CONVERSATION_NOTE),), author="harness")
    origin = bench.drafts[first].origin
    bench.drafts.insert(first, MessageDraft(opening, origin, (Place(origin, 0),)))


def reset_unknown_role(bench: RepairWorkspace, violations: Sequence[Violation]) -> None:
    """Change a message with an unknown role to its role in the model."""
    messages: dict[int, Message | None] = {}
    for one in violations:
        message = bench.drafts[one.message].message
        fields = {key: value for key, value in get_extra_fields(message, one.dialect).items() if key != "role"}
        pocket = message.pocket or VendorExtras(one.dialect)
        messages[one.message] = structs.replace(
            message, pocket=structs.replace(pocket, fields=dump_json(fields) if fields else "")
        )
    bench.record_repairs(violations, "emitted with its role in the model")
    bench.replace_messages(messages)


def trim_end(bench: RepairWorkspace, violations: Sequence[Violation]) -> None:
    """Remove whitespace from the end of the history."""
    parts: dict[Place, tuple[Part, ...]] = {}
    for one in violations:
        part = bench.part(one.place)
        if isinstance(part, Text | Summary):
            parts[one.place] = (structs.replace(part, text=part.text.rstrip()),)
    bench.record_repairs(violations, "whitespace at the end removed")
    bench.replace_parts(parts)
