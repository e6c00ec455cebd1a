"""Close a draft: enforce the rules that concern the whole history, not a single edit.

Each fix either drops another part or withdraws an edit. The plan counts both.
"""

from collections.abc import Iterator
from typing import Literal

from msgspec import structs

from thresher.dialects.table import get_native_dialect
from thresher.edits.draft import PlanDraft
from thresher.edits.draft_state import PartDecision
from thresher.edits.edit import Edit, Replace, Summarize
from thresher.edits.pins import find_open_loop
from thresher.edits.placeholder import describe_part, format_placeholder
from thresher.edits.rewrite import is_blank_text, iterate_kept, replace_with_placeholder
from thresher.model import Image, Message, Part, Place, Summary, Text, Thinking, ToolCall
from thresher.model.message_cache import cached_per_message
from thresher.store import short_id

ThinkingRule = Literal["free", "strip_after_edit", "append_only", "drop_block"]
"""Effect of an edit on the signed thinking that follows it.

`free`: no effect. `strip_after_edit`: the plan drops the thinking. `append_only`: the edit is refused. `drop_block`:
the API drops the thinking.
"""
LEGALITY_POLICY = "legality"
"""Policy name of edits that only the rules require."""
OPENING_RULE = "a conversation opens with the user"
MESSAGE_RULE = "a conversation has a message"


def close_draft(draft: PlanDraft, thinking: ThinkingRule = "free", *, force: bool = False) -> PlanDraft:
    """Return a copy of the draft that satisfies every rule.

    With `strip_after_edit`, the signed thinking of an open tool loop and everything before it stay unchanged. With
    `force`, edits are allowed there, and the thinking after them is dropped. Use `force` as the last resort.
    """
    settled = draft.copy()
    if thinking == "append_only":
        _protect_signed_thinking(settled, range(len(draft.history)))
    elif thinking == "strip_after_edit" and not force:
        _protect_signed_thinking(settled, find_open_loop(draft.history))
    _keep_steps_whole(settled)
    _keep_reasoning(settled)
    if thinking == "strip_after_edit":
        _strip_stale_thinking(settled)
    _drop_empty_messages(settled)
    _keep_some_message(settled)
    _keep_user_opening(settled)
    _discount_merged_messages(settled)
    return settled


def _protect_signed_thinking(draft: PlanDraft, messages: range) -> None:
    """Withdraw edits up to the last signed thinking of these messages, because its signature covers them."""
    parts = ((Place(i, j), part) for i in messages for j, part in enumerate(draft.history[i].parts))
    last = max((place for place, part in parts if _is_signed_thinking(part)), default=None)
    for place in sorted(draft.decisions.keys() - draft.held_places):
        if last is not None and place <= last and place in draft.decisions:
            draft.withdraw(place, "signed thinking behind it is bound to it", wholly=False)


def _strip_stale_thinking(draft: PlanDraft) -> None:
    first = min(draft.decisions.keys() - draft.held_places, default=None)
    if first is None:
        return
    for i in range(first.message, len(draft.history)):
        for place, part in list(draft.remaining_parts(i)):
            if place > first and _is_signed_thinking(part):
                draft.drop(place, LEGALITY_POLICY, "signed thinking behind an edit is no longer valid")


def _is_signed_thinking(part: Part) -> bool:
    """Return whether a part is thinking with a signature."""
    return isinstance(part, Thinking) and bool(part.signature)


def _keep_steps_whole(draft: PlanDraft) -> None:
    """Keep signatures with the calls that they cover.

    Gemini signs the first call of a step for all parallel calls; in an open loop, signed thinking belongs to the
    calls after it.
    """
    loop = find_open_loop(draft.history)
    before = -1
    while before != len(draft.decisions):  # a withdrawal may restore calls of another step
        before = len(draft.decisions)
        for index in draft.edited_messages():
            _keep_step_whole(draft, index, index in loop)


def _keep_step_whole(draft: PlanDraft, index: int, is_open: bool) -> None:
    parts = draft.history[index].parts
    kept = [part for j, part in enumerate(parts) if isinstance(part, ToolCall) and _keeps_call(draft, Place(index, j))]
    for j, part in enumerate(parts) if kept else ():
        place = Place(index, j)
        is_bound = is_open and _is_signed_thinking(part) and place not in draft.held_places
        signs_step = _is_signed_call(part) and not _is_signed_call(kept[0])
        if is_bound or signs_step:
            draft.withdraw(place, "a signature stays with the calls that it covers", wholly=signs_step)


def _keeps_call(draft: PlanDraft, place: Place) -> bool:
    decision = draft.decisions.get(place)
    return decision is None or isinstance(decision.part, ToolCall)


def _is_signed_call(part: Part) -> bool:
    fields = part.pocket.fields if isinstance(part, ToolCall) and part.pocket else ""
    return "thoughtSignature" in fields or "thought_signature" in fields


def _keep_reasoning(draft: PlanDraft) -> None:
    """Keep or drop an OpenAI reasoning item together with the item after it."""
    places = list(_find_reasoning(draft))
    bound = [place for place in places if _has_item_id(draft, place.message + 1)]
    before = -1
    while before != len(draft.decisions):  # a withdrawal may restore the item of another reasoning part
        before = len(draft.decisions)
        for place in bound:
            if place in draft.decisions and _has_content_left(draft, place.message + 1):
                draft.withdraw(place, "reasoning stays with the item after it")
    for place in reversed(places):
        if place not in draft.decisions and not _has_content_left(draft, place.message + 1):
            draft.drop(place, LEGALITY_POLICY, "the item after this reasoning is removed")


def _find_reasoning(draft: PlanDraft) -> Iterator[Place]:
    for index, message in enumerate(draft.history.messages):
        if message.role == "assistant" and _needs_next_item(message):
            yield from (Place(index, j) for j, part in enumerate(message.parts) if isinstance(part, Thinking))


def _has_content_left(draft: PlanDraft, index: int) -> bool:
    """Return whether a message keeps any part other than a summary."""
    return index < len(draft.history) and any(not isinstance(part, Summary) for _, part in draft.remaining_parts(index))


def _has_item_id(draft: PlanDraft, index: int) -> bool:
    message = draft.history[index] if index < len(draft.history) else Message("user")
    pockets = [message.pocket, *(part.pocket for part in message.parts)]
    return any(pocket is not None and '"id"' in pocket.fields for pocket in pockets)


def _keep_some_message(draft: PlanDraft) -> None:
    """Keep the last text as a placeholder if no message besides system text would be left: no API accepts that."""
    spoken = [i for i, message in enumerate(draft.history.messages) if message.role != "system"]
    places = [Place(i, j) for i in reversed(spoken) for j in range(len(draft.history[i].parts))]
    if not places or any(draft.has_parts_left(i) for i in spoken):
        return
    last = next((place for place in places if _has_content(draft.history.part(place))), None)
    if last is not None:
        _replace_by_placeholder(draft, last, MESSAGE_RULE)
    else:
        draft.withdraw(places[0], MESSAGE_RULE)


def _keep_user_opening(draft: PlanDraft) -> None:
    """Replace the user's opening text by a placeholder if an assistant message would come first without it."""
    spoken = [i for i, message in enumerate(draft.history.messages) if message.role != "system"]
    opening = next((i for i in spoken if draft.has_parts_left(i)), None)
    if opening is None or draft.history[opening].role == "user" or draft.history[spoken[0]].role != "user":
        return
    users = [i for i in spoken if i < opening and draft.history[i].role == "user"]
    places = [Place(i, j) for i in users for j in range(len(draft.history[i].parts))]
    first = next((place for place in places if _has_content(draft.history.part(place))), None)
    if first is not None:
        _replace_by_placeholder(draft, first, OPENING_RULE)
    elif places:
        draft.withdraw(places[0], OPENING_RULE)


def _has_content(part: Part) -> bool:
    return isinstance(part, Text | Image | Summary) and not is_blank_text(part)


def _replace_by_placeholder(draft: PlanDraft, place: Place, rule: str) -> None:
    """Replace a dropped part by a placeholder, or withdraw its edit if a placeholder is not smaller."""
    history, part = draft.history, draft.history.part(place)
    target = history.occurrence(place)
    text = format_placeholder(short_id(target.content), describe_part(history[place.message], part, None), part, 0)
    replaced = replace_with_placeholder(part, text)
    weight = draft.token_weights.part(replaced)
    old = draft.decisions[place].edit
    draft.withdraw(place, rule)
    is_useful = weight < draft.original_weight(place) and place not in draft.placeholders
    if is_useful and not isinstance(old, Summarize) and not isinstance(part, Summary):
        edit = Replace(target, old.policy, old.why, over=old.over, text=text)
        draft.set_decision(place, PartDecision(edit, weight, replaced))


def _drop_empty_messages(draft: PlanDraft) -> None:
    """Drop blank messages without content next to them, and edited messages if only blank text or thinking is left."""
    touched = draft.edited_messages()
    messages = enumerate(draft.history.messages) if touched else ()
    blanks = {index for index, message in messages if _is_blank(message) and not _has_speaking_neighbor(draft, index)}
    for index in touched | blanks:
        rest = list(draft.remaining_parts(index))
        if rest and all(is_blank_text(part) or isinstance(part, Thinking) for _, part in rest):
            for place, _ in rest:
                draft.drop(place, LEGALITY_POLICY, "the rest of its message is removed")


@cached_per_message
def _is_blank(message: Message) -> bool:
    """Return whether a message has blank text, and no other parts except thinking."""
    parts = message.parts
    return any(map(is_blank_text, parts)) and all(is_blank_text(part) or isinstance(part, Thinking) for part in parts)


def _has_speaking_neighbor(draft: PlanDraft, index: int) -> bool:
    """Return whether an adjacent message, which an API merges with this one, has content."""
    is_assistant = draft.history[index].role == "assistant"
    for step in (-1, 1):
        near = index + step
        while 0 <= near < len(draft.history) and (draft.history[near].role == "assistant") == is_assistant:
            rest = (part for _, part in draft.remaining_parts(near))
            if any(not is_blank_text(part) and not isinstance(part, Thinking) for part in rest):
                return True
            near += step
    return False


def _discount_merged_messages(draft: PlanDraft) -> None:
    """Subtract the overhead of messages that `apply` merges."""
    gone = {index for index in draft.edited_messages() if not draft.has_parts_left(index)}
    merged = sum(merges for _, merges in iterate_kept(draft.history.messages, gone)) if gone else 0
    draft.tokens -= merged * draft.token_weights.message_overhead


def _needs_next_item(message: Message) -> bool:
    native = get_native_dialect(message.pocket.format) if message.pocket is not None else None
    return native is not None and native.reasoning_needs_next_item


def collect_edits(draft: PlanDraft) -> Iterator[Edit]:
    """Yield the edits of a draft in order of place, each with the tokens that it saves.

    The first edit of a message that becomes empty also saves the message's overhead.
    """
    seen: set[int] = set()
    framed: set[int] = set()
    for place in sorted(draft.decisions):
        edit = draft.decisions[place].edit
        if isinstance(edit, Summarize):
            if id(edit) in seen:
                continue
            seen.add(id(edit))
            places = [draft.history.places[target] for target in edit.targets]
        else:
            places = [place]
        before = sum(map(draft.original_weight, places))
        after = sum(map(draft.current_weight, places))
        emptied = {one.message for one in places if not draft.has_parts_left(one.message)} - framed
        framed |= emptied
        frames = len(emptied) * draft.token_weights.message_overhead
        yield structs.replace(edit, before=before + frames, saved=before + frames - after)
