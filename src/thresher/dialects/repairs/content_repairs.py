"""Repairs of what messages hold: what cannot be sent goes, what stands wrong moves, who must speak first does."""

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
    """U+FFFD stands for each half of a pair."""
    messages: dict[int, Message | None] = {}
    parts: dict[Place, tuple[Part, ...]] = {}
    for one in violations:
        if one.part is None:
            messages[one.message] = repair_message_encoding(bench.drafts[one.message].message)
        else:
            parts[one.place] = (repair_part_encoding(bench.part(one.place)),)
    bench.record_repairs(violations, "U+FFFD put for half a surrogate pair")
    bench.replace_messages(messages)
    bench.replace_parts(parts)


def wrap_arguments(bench: RepairWorkspace, violations: Sequence[Violation]) -> None:
    """Arguments that are no JSON become the text of one field, as the writers do with free text."""
    parts: dict[Place, tuple[Part, ...]] = {}
    for one in violations:
        call = bench.part(one.place)
        if isinstance(call, ToolCall):
            parts[one.place] = (structs.replace(call, arguments=dump_json({"input": call.arguments})),)
    bench.record_repairs(violations, "the arguments are kept as text in the field `input`")
    bench.replace_parts(parts)


def remove_parts(bench: RepairWorkspace, violations: Sequence[Violation]) -> None:
    """Parts that nobody may send are left out."""
    for one in {(one.rule, one.message, one.part): one for one in violations}.values():
        bench.record_repair(one.rule, one.message, one.part, f"left out: {one.detail}")
    bench.replace_parts({one.place: () for one in violations})


def remove_messages(bench: RepairWorkspace, violations: Sequence[Violation]) -> None:
    """Messages without content are left out; a result without any is written as an empty text."""
    messages: dict[int, Message | None] = {}
    for one in violations:
        message = bench.drafts[one.message].message
        answers = any(isinstance(part, ToolResult) for part in message.parts)
        messages[one.message] = structs.replace(message, pocket=None) if answers else None
    bench.record_repairs(violations, "left out")
    bench.replace_messages(messages)


def move_parts_to_front(bench: RepairWorkspace, violations: Sequence[Violation]) -> None:
    """Results come first in their message, and so does thinking."""
    bench.record_repairs(violations, "moved to the front of its message")
    for index, rule in {one.message: one.rule for one in violations}.items():
        first = ToolResult if rule == "results-first" else Thinking
        draft = bench.drafts[index]
        pairs = list(zip(draft.message.parts, draft.places, strict=True))
        front = [pair for pair in pairs if isinstance(pair[0], first)]
        back = [pair for pair in pairs if not isinstance(pair[0], first)]
        bench.drafts[index] = replace_draft_parts(draft, [*front, *back])


def insert_opening_message(bench: RepairWorkspace, violations: Sequence[Violation]) -> None:
    """A line of the user's side stands before the model's first message."""
    first = min(one.message for one in violations)
    bench.record_repair("first-role", first, None, "a line put before it: the user speaks first")
    opening = Message("user", (Text(EARLIER_CONVERSATION_NOTE),), author="harness")
    origin = bench.drafts[first].origin
    bench.drafts.insert(first, MessageDraft(opening, origin, (Place(origin, 0),)))


def reset_unknown_role(bench: RepairWorkspace, violations: Sequence[Violation]) -> None:
    """A message in a role that is not known is the user's."""
    messages: dict[int, Message | None] = {}
    for one in violations:
        message = bench.drafts[one.message].message
        fields = {key: value for key, value in get_extra_fields(message, one.dialect).items() if key != "role"}
        pocket = message.pocket or VendorExtras(one.dialect)
        messages[one.message] = structs.replace(
            message, pocket=structs.replace(pocket, fields=dump_json(fields) if fields else "")
        )
    bench.record_repairs(violations, "sent in the role that it has for the model")
    bench.replace_messages(messages)


def trim_end(bench: RepairWorkspace, violations: Sequence[Violation]) -> None:
    """Space at the very end goes."""
    parts: dict[Place, tuple[Part, ...]] = {}
    for one in violations:
        part = bench.part(one.place)
        if isinstance(part, Text | Summary):
            parts[one.place] = (structs.replace(part, text=part.text.rstrip()),)
    bench.record_repairs(violations, "space at the end left out")
    bench.replace_parts(parts)
