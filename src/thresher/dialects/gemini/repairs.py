"""Repairs specific to Gemini."""

from collections.abc import Iterator, Sequence

from msgspec import structs

from thresher.dialects.extras import get_extra_fields, get_layout_note
from thresher.dialects.gemini.codec import NAME
from thresher.dialects.layout import DialectLayout, HistoryIndex, arrange_by_role, is_portable_part
from thresher.dialects.repairs.steps import RepairStep
from thresher.dialects.repairs.workspace import (
    MessageDraft,
    RepairWorkspace,
    Violation,
    pair_parts,
    replace_draft_parts,
)
from thresher.model import VendorExtras
from thresher.model.jsontext import dump_json
from thresher.model.parts import Part

SKIP_SIGNATURE_VALIDATION = "skip_thought_signature_validator"
"""Signature that Google documents for calls by another model, because they have no signature of their own."""


def merge_model_messages(workspace: RepairWorkspace, violations: Sequence[Violation]) -> None:
    """Merge consecutive messages of the model, up to the last one that calls a tool."""
    runs = list(_runs(workspace, {violation.message for violation in violations}))
    merged = {run[-1]: _merge_drafts([workspace.drafts[index] for index in run]) for run in runs}
    for run in runs:
        for index in run:
            workspace.record_repair("call-after-model", index, None, "merged with the model's adjacent messages")
    removed = {index for run in runs for index in run[:-1]}
    workspace.drafts = [merged.get(i, draft) for i, draft in enumerate(workspace.drafts) if i not in removed]


def _runs(workspace: RepairWorkspace, calling: set[int]) -> Iterator[list[int]]:
    """Yield the message indexes of each run of model rows, up to the last row that violates the rule."""
    run: list[int] = []
    end = 0
    for row in DialectLayout(HistoryIndex(workspace.history), NAME, arrange_by_role).rows:
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
    """Merge drafts into one Gemini message, without parts that only another vendor accepts."""
    extras = next(draft.message.pocket for draft in drafts if _is_gemini(draft))
    pairs = [
        (part, place)
        for draft in drafts
        for part, place in pair_parts(draft)
        if _is_gemini(draft) or is_portable_part(part)
    ]
    last = drafts[-1]._replace(message=structs.replace(drafts[-1].message, pocket=extras))
    return replace_draft_parts(last, pairs)


def _is_gemini(draft: MessageDraft) -> bool:
    return draft.message.pocket is not None and draft.message.pocket.format == NAME


def mark_unsigned_calls(workspace: RepairWorkspace, violations: Sequence[Violation]) -> None:
    """Give calls without a signature the value that Google documents for this case."""
    workspace.repair_parts(violations, "marked as a call without a signature", _mark_unsigned)


def _mark_unsigned(call: Part) -> Part:
    fields = {**get_extra_fields(call, NAME), "thoughtSignature": SKIP_SIGNATURE_VALIDATION}
    return structs.replace(call, pocket=VendorExtras(NAME, dump_json(fields), shape=get_layout_note(call, NAME)))


MODEL_MESSAGES = RepairStep(120, merge_model_messages)
SIGNATURES = RepairStep(160, mark_unsigned_calls)
