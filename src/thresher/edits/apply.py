"""Apply a plan to a history. Only this pure function makes a history smaller."""

from collections.abc import Iterator, Sequence

from msgspec import structs

from thresher.dialects.table import get_native_dialect
from thresher.edits.edit import Drop, Edit, Summarize
from thresher.edits.plan import Plan
from thresher.edits.repair_history import repair
from thresher.edits.rewrite import iterate_kept, rewrite_part
from thresher.errors import PlanError
from thresher.model import History, Message, Occurrence, Place


def apply(history: History, plan: Plan) -> History:
    """Return the history with the plan's edits; messages without an edit stay the same objects."""
    if plan.repairs:
        history = repair(history, plan.dialect).history
    chosen = dict(_locate_edits(history, plan))
    edited = {index: _edit_message(history[index], index, chosen) for index in {place.message for place in chosen}}
    messages: list[Message] = []
    for index, merges in iterate_kept(history.messages, {index for index, after in edited.items() if after is None}):
        after = edited.get(index) or history[index]
        if merges:
            messages[-1] = structs.replace(messages[-1], parts=(*messages[-1].parts, *after.parts), records=())
        else:
            messages.append(after)
    return structs.replace(history, messages=tuple(_settle_messages(messages))) if chosen else history


def _settle_messages(messages: Sequence[Message]) -> Sequence[Message]:
    """Let the dialects settle messages whose neighbors are gone."""
    names = {message.pocket.format for message in messages if message.pocket is not None}
    for dialect in map(get_native_dialect, sorted(names)):
        if dialect is not None and dialect.settle_messages is not None:
            messages = dialect.settle_messages(messages)
    return messages


def _locate_edits(history: History, plan: Plan) -> Iterator[tuple[Place, Edit]]:
    """Yield each edit with its place; a summary replaces its first target and drops the others."""
    for edit in plan.edits:
        yield _place(history, edit.target), edit
        if isinstance(edit, Summarize):
            for target in edit.targets[1:]:
                yield _place(history, target), Drop(target, edit.policy, edit.why)


def _place(history: History, target: Occurrence) -> Place:
    place = history.places.get(target)
    if place is None:
        raise PlanError(
            f"this plan is for another history: part {target.content} (occurrence {target.ordinal + 1}) is not in this "
            "one; make a new plan, or apply this one to the history that it was made for"
        )
    return place


def _edit_message(message: Message, index: int, chosen: dict[Place, Edit]) -> Message | None:
    """Return the edited message, or None if no part is left."""
    decisions = ((part, chosen.get(Place(index, j))) for j, part in enumerate(message.parts))
    kept = [part if edit is None else rewrite_part(part, edit) for part, edit in decisions]
    parts = tuple([part for part in kept if part is not None])
    return structs.replace(message, parts=parts, records=()) if parts else None
