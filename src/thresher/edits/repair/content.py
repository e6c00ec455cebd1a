"""Repairs of what messages hold: what cannot be sent goes, what stands wrong moves, who must speak first does."""

from collections.abc import Callable, Iterator, Sequence

from msgspec import structs

from thresher.dialects.extras import get_extra_fields
from thresher.edits.layout import GEMINI, DialectLayout, HistoryIndex
from thresher.edits.legality import Violation
from thresher.edits.repair.workspace import MessageDraft, RepairWorkspace, replace_draft_parts
from thresher.edits.rules_encoding import repair_message_encoding, repair_part_encoding
from thresher.model import Message, Place, VendorExtras
from thresher.model.jsontext import dump_json
from thresher.model.parts import Part, Summary, Text, Thinking, ToolCall, ToolResult, Unknown

EARLIER_CONVERSATION_NOTE = "[earlier conversation not included]"
SKIP_SIGNATURE_VALIDATION = "skip_thought_signature_validator"
"""What Google documents for a call that comes from elsewhere and so has no signature."""


def _place(one: Violation) -> Place:
    return Place(one.message, -1 if one.part is None else one.part)


def repair_surrogates(bench: RepairWorkspace, violations: Sequence[Violation]) -> None:
    """U+FFFD stands for each half of a pair."""
    messages: dict[int, Message | None] = {}
    parts: dict[Place, tuple[Part, ...]] = {}
    for one in violations:
        if one.part is None:
            messages[one.message] = repair_message_encoding(bench.drafts[one.message].message)
        else:
            parts[_place(one)] = (repair_part_encoding(bench.part(_place(one))),)
    bench.record_repairs(violations, "U+FFFD put for half a surrogate pair")
    bench.replace_messages(messages)
    bench.replace_parts(parts)


def wrap_arguments(bench: RepairWorkspace, violations: Sequence[Violation]) -> None:
    """Arguments that are no JSON become the text of one field, as the writers do with free text."""
    parts: dict[Place, tuple[Part, ...]] = {}
    for one in violations:
        call = bench.part(_place(one))
        if isinstance(call, ToolCall):
            parts[_place(one)] = (structs.replace(call, arguments=dump_json({"input": call.arguments})),)
    bench.record_repairs(violations, "the arguments are kept as text in the field `input`")
    bench.replace_parts(parts)


def remove_parts(bench: RepairWorkspace, violations: Sequence[Violation]) -> None:
    """Parts that nobody may send are left out."""
    for one in {(one.rule, one.message, one.part): one for one in violations}.values():
        bench.record_repair(one.rule, one.message, one.part, f"left out: {one.detail}")
    bench.replace_parts({_place(one): () for one in violations})


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


def merge_model_messages(bench: RepairWorkspace, violations: Sequence[Violation]) -> None:
    """Messages of the model's that stand in a row become one, up to the last of them that calls."""
    runs = list(_runs(bench, {one.message for one in violations}))
    joined = {run[-1]: _merge_drafts([bench.drafts[index] for index in run]) for run in runs}
    for run in runs:
        for index in run:
            bench.record_repair("call-after-model", index, None, "joined with the model's messages beside it")
    gone = {index for run in runs for index in run[:-1]}
    bench.drafts = [joined.get(i, draft) for i, draft in enumerate(bench.drafts) if i not in gone]


def _runs(bench: RepairWorkspace, calling: set[int]) -> Iterator[list[int]]:
    """For each run of the model's rows in which one calls too late, its messages up to the last such row."""
    run: list[int] = []
    end = 0
    for row in DialectLayout(HistoryIndex(bench.history), GEMINI).rows:
        if row.role != "assistant" or row.is_opaque:
            if end:
                yield run[:end]
            run, end = [], 0
            continue
        members = list(dict.fromkeys(piece.place.message for piece in row.parts)) or [row.message]
        run += members
        end = len(run) if not calling.isdisjoint(members) else end
    if end:
        yield run[:end]


def _merge_drafts(drafts: list[MessageDraft]) -> MessageDraft:
    """One message of Gemini's, without what only another vendor takes back."""
    home = next(draft.message.pocket for draft in drafts if _is_gemini(draft))
    pairs = [
        (part, place)
        for draft in drafts
        for part, place in zip(draft.message.parts, draft.places, strict=True)
        if _is_gemini(draft) or not (isinstance(part, Thinking | Unknown) or _is_empty(part))
    ]
    last = drafts[-1]._replace(message=structs.replace(drafts[-1].message, pocket=home))
    return replace_draft_parts(last, pairs)


def _is_gemini(draft: MessageDraft) -> bool:
    return draft.message.pocket is not None and draft.message.pocket.format == GEMINI


def _is_empty(part: Part) -> bool:
    return isinstance(part, Text | Summary) and not part.text


def insert_opening_message(bench: RepairWorkspace, violations: Sequence[Violation]) -> None:
    """A line of the user's side stands before the model's first message."""
    first = min(one.message for one in violations)
    bench.record_repair("first-role", first, None, "a line put before it: the user speaks first")
    opening = Message("user", (Text(EARLIER_CONVERSATION_NOTE),), author="harness")
    origin = bench.drafts[first].origin
    bench.drafts.insert(first, MessageDraft(opening, origin, (Place(origin, 0),)))


def mark_unsigned_calls(bench: RepairWorkspace, violations: Sequence[Violation]) -> None:
    """A call without a signature says so, in the word that the vendor has for it."""
    parts: dict[Place, tuple[Part, ...]] = {}
    for one in violations:
        call = bench.part(_place(one))
        shape = call.pocket.shape if call.pocket and call.pocket.format == GEMINI else ""
        fields = {**get_extra_fields(call, GEMINI), "thoughtSignature": SKIP_SIGNATURE_VALIDATION}
        parts[_place(one)] = (structs.replace(call, pocket=VendorExtras(GEMINI, dump_json(fields), shape=shape)),)
    bench.record_repairs(violations, "marked as a call without a signature")
    bench.replace_parts(parts)


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
        part = bench.part(_place(one))
        if isinstance(part, Text | Summary):
            parts[_place(one)] = (structs.replace(part, text=part.text.rstrip()),)
    bench.record_repairs(violations, "space at the end left out")
    bench.replace_parts(parts)


RepairFunction = Callable[[RepairWorkspace, Sequence[Violation]], None]
