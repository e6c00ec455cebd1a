"""What a draft owes to the whole history before it is a plan: rules that no single edit can see.

Each fix either takes more away or gives something back; both are counted in the plan like any other edit.
"""

from collections.abc import Iterator
from typing import Literal

from msgspec import structs

from thresher.dialects.table import get_native_dialect
from thresher.edits.draft import PartDecision, PlanDraft, is_signed_thinking
from thresher.edits.edit import Edit, Replace, Summarize
from thresher.edits.pins import find_open_loop
from thresher.edits.placeholder import describe_part, format_placeholder
from thresher.edits.rewrite import is_blank_text, iterate_kept, replace_with_placeholder
from thresher.model import Image, Message, Part, Place, Summary, Text, Thinking, ToolCall
from thresher.model.message_cache import cached_per_message
from thresher.store import short_id

ThinkingRule = Literal["free", "strip_after_edit", "append_only", "drop_block"]
"""What an edit means for the signed thinking behind it: nothing; it goes too; no such edit; the API drops it."""
LEGALITY_POLICY = "legality"
"""The policy that is named for edits which only the rules wanted."""


def close_draft(draft: PlanDraft, thinking: ThinkingRule = "free", *, force: bool = False) -> PlanDraft:
    """A copy of the draft that keeps every rule.

    Where edits take the thinking behind them along, an open loop is left alone, with all that stands before it,
    unless a budget can be met in no other way (`force`).
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
    _keep_user_opening(settled)
    _discount_merged_messages(settled)
    return settled


def _protect_signed_thinking(draft: PlanDraft, messages: range) -> None:
    """Nothing in front of signed thinking of these messages may change: the thinking is bound to it."""
    parts = ((Place(i, j), part) for i in messages for j, part in enumerate(draft.message(i).parts))
    last = max((place for place, part in parts if is_signed_thinking(part)), default=None)
    for place in sorted(draft.decisions.keys() - draft.held_places):
        if last is not None and place <= last and place in draft.decisions:
            draft.withdraw(place, "signed thinking behind it is bound to it", wholly=False)


def _strip_stale_thinking(draft: PlanDraft) -> None:
    first = min(draft.decisions.keys() - draft.held_places, default=None)
    if first is None:
        return
    for i in range(first.message, len(draft.history)):
        for place, part in list(draft.remaining_parts(i)):
            if place > first and is_signed_thinking(part):
                draft.drop(place, LEGALITY_POLICY, "signed thinking behind an edit is no longer valid")


def _keep_steps_whole(draft: PlanDraft) -> None:
    """Signatures stay with the calls they speak for.

    Gemini signs the first call of a step for all the calls beside it; in an open loop, signed thinking belongs to
    the calls behind it.
    """
    loop = find_open_loop(draft.history)
    before = -1
    while before != len(draft.decisions):  # what is given back may bring another step's calls back with it
        before = len(draft.decisions)
        for index in draft.edited_messages():
            _keep_step_whole(draft, index, index in loop)


def _keep_step_whole(draft: PlanDraft, index: int, is_open: bool) -> None:
    parts = draft.message(index).parts
    left = [j for j, part in enumerate(parts) if isinstance(part, ToolCall) and _keeps_call(draft, Place(index, j))]
    for j, part in enumerate(parts) if left else ():
        thinks = is_open and is_signed_thinking(part) and Place(index, j) not in draft.held_places
        speaks = _is_signed_call(part) and not _is_signed_call(parts[left[0]])
        if thinks or speaks:
            draft.withdraw(Place(index, j), "a signature stays with the calls it speaks for", wholly=speaks)


def _keeps_call(draft: PlanDraft, place: Place) -> bool:
    fate = draft.decisions.get(place)
    return fate is None or isinstance(fate.part, ToolCall)


def _is_signed_call(part: Part) -> bool:
    fields = part.pocket.fields if isinstance(part, ToolCall) and part.pocket else ""
    return "thoughtSignature" in fields or "thought_signature" in fields


def _keep_reasoning(draft: PlanDraft) -> None:
    """An OpenAI reasoning item and the item behind it stay, or go, together."""
    places = [place for place, part in _reasoning(draft) if isinstance(part, Thinking)]
    asked = [place for place in places if _has_item_id(draft, place.message + 1)]
    before = -1
    while before != len(draft.decisions):  # what is given back may bring another's item back with it
        before = len(draft.decisions)
        for place in asked:
            if place in draft.decisions and _has_content_left(draft, place.message + 1):
                draft.withdraw(place, "reasoning stays with the item behind it")
    for place in reversed(places):
        if place not in draft.decisions and not _has_content_left(draft, place.message + 1):
            draft.drop(place, LEGALITY_POLICY, "the item that this reasoning belongs to is gone")


def _reasoning(draft: PlanDraft) -> Iterator[tuple[Place, Part]]:
    for index, message in enumerate(draft.history.messages):
        if message.role == "assistant" and _needs_next_item(message):
            yield from ((Place(index, j), part) for j, part in enumerate(message.parts))


def _has_content_left(draft: PlanDraft, index: int) -> bool:
    """Whether something of a message is there, other than a summary in its place."""
    return index < len(draft.history) and any(not isinstance(part, Summary) for _, part in draft.remaining_parts(index))


def _has_item_id(draft: PlanDraft, index: int) -> bool:
    message = draft.message(index) if index < len(draft.history) else Message("user")
    pockets = [message.pocket, *(part.pocket for part in message.parts)]
    return any(pocket is not None and '"id"' in pocket.fields for pocket in pockets)


def _keep_user_opening(draft: PlanDraft) -> None:
    """If the opening words of the user would go and an assistant's come first, a pointer to them stays."""
    spoken = [i for i, message in enumerate(draft.history.messages) if message.role != "system"]
    opening = next((i for i in spoken if draft.has_parts_left(i)), None)
    if opening is None or draft.message(opening).role == "user" or draft.message(spoken[0]).role != "user":
        return
    gone = [Place(i, j) for i in spoken if i < opening for j in range(len(draft.message(i).parts))]
    users = [place for place in gone if draft.message(place.message).role == "user"]
    said = [place for place in users if _has_content(draft.history.part(place))]
    if said:
        _replace_opening(draft, said[0])
    elif users:
        draft.withdraw(users[0], "a conversation opens with the user")


def _has_content(part: Part) -> bool:
    return isinstance(part, Text | Image | Summary) and not is_blank_text(part)


def _replace_opening(draft: PlanDraft, place: Place) -> None:
    history, part = draft.history, draft.history.part(place)
    target = history.occurrence(place)
    text = format_placeholder(short_id(target.content), describe_part(history[place.message], part, None), part, 0)
    replaced = replace_with_placeholder(part, text)
    weight = draft.token_weights.part(replaced)
    old = draft.decisions[place].edit
    if (
        isinstance(old, Summarize)
        or isinstance(part, Summary)
        or weight >= draft.part_weights[place.message][place.part]
    ):
        draft.withdraw(place, "a conversation opens with the user")
        return
    draft.withdraw(place, "a conversation opens with the user")
    draft.set_decision(
        place, PartDecision(Replace(target, old.policy, old.why, over=old.over, text=text), weight, replaced)
    )


def _drop_empty_messages(draft: PlanDraft) -> None:
    """What is left of a message must say something: blanks, or what an edit left of it if that is but thinking, go."""
    touched = draft.edited_messages()
    messages = enumerate(draft.history.messages) if touched else ()
    blanks = {index for index, message in messages if _is_blank(message) and not _has_speaking_neighbor(draft, index)}
    for index in touched | blanks:
        rest = list(draft.remaining_parts(index))
        if rest and all(is_blank_text(part) or isinstance(part, Thinking) for _, part in rest):
            for place, _ in rest:
                draft.drop(place, LEGALITY_POLICY, "nothing else is left of its message")


@cached_per_message
def _is_blank(message: Message) -> bool:
    """Whether nothing but blanks would be sent of a message, thinking of others aside."""
    parts = message.parts
    return any(map(is_blank_text, parts)) and all(is_blank_text(part) or isinstance(part, Thinking) for part in parts)


def _has_speaking_neighbor(draft: PlanDraft, index: int) -> bool:
    """Whether a neighbour that is sent as one with this message says something."""
    speaks = draft.message(index).role == "assistant"
    for step in (-1, 1):
        near = index + step
        while 0 <= near < len(draft.history) and (draft.message(near).role == "assistant") == speaks:
            if any(
                not is_blank_text(part) and not isinstance(part, Thinking) for _, part in draft.remaining_parts(near)
            ):
                return True
            near += step
    return False


def _discount_merged_messages(draft: PlanDraft) -> None:
    """Weigh what `apply` makes one message of."""
    gone = {index for index in draft.edited_messages() if not draft.has_parts_left(index)}
    merged = sum(merges for _, merges in iterate_kept(draft.history.messages, gone)) if gone else 0
    draft.tokens -= merged * draft.token_weights.message_overhead


def _needs_next_item(message: Message) -> bool:
    native = get_native_dialect(message.pocket.format) if message.pocket is not None else None
    return native is not None and native.reasoning_needs_next_item


def collect_edits(draft: PlanDraft) -> Iterator[Edit]:
    """The edits of a draft in order of place, with what each saves; a fold once.

    The first edit in a message of which nothing is left saves the message's frame, too.
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
        before = sum(draft.part_weights[one.message][one.part] for one in places)
        after = sum(draft.decisions[one].weight for one in places)
        emptied = {one.message for one in places if not draft.has_parts_left(one.message)} - framed
        framed |= emptied
        frames = len(emptied) * draft.token_weights.message_overhead
        yield structs.replace(edit, before=before + frames, saved=before + frames - after)
