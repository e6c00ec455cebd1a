"""What a draft owes to the whole history before it is a plan: rules that no single edit can see.

Each fix either takes more away or gives something back; both are counted in the plan like any other edit.
"""

from collections.abc import Iterator
from typing import Literal

from msgspec import structs

from thresher.edits.change import blank, joins, stand_in
from thresher.edits.draft import Draft, Fate, is_signed
from thresher.edits.edit import Edit, Fold, Stub
from thresher.edits.pins import open_loop
from thresher.edits.standin import label_of, pointer
from thresher.model import Image, Message, Part, Place, Summary, Text, Thinking, ToolCall
from thresher.model.memo import per_message
from thresher.store import short_id

ThinkingRule = Literal["free", "strip_after_edit", "append_only", "drop_block"]
"""What an edit means for the signed thinking behind it: nothing; it goes too; no such edit; the API drops it."""
LAW = "legality"
"""The policy that is named for edits which only the rules wanted."""


def settle(draft: Draft, thinking: ThinkingRule = "free") -> Draft:
    """A copy of the draft that keeps every rule."""
    settled = draft.copy()
    if thinking == "append_only":
        _append_only(settled)
    _keep_steps_whole(settled)
    _keep_reasoning(settled)
    if thinking == "strip_after_edit":
        _strip(settled)
    _drop_hollow(settled)
    _open_with_a_user(settled)
    _join(settled)
    return settled


def _append_only(draft: Draft) -> None:
    """Nothing in front of signed thinking may change: the thinking is bound to it."""
    bound = [
        Place(i, j)
        for i, message in enumerate(draft.history.messages)
        for j, part in enumerate(message.parts)
        if is_signed(part)
    ]
    last = bound[-1] if bound else None
    for place in sorted(draft.fates):
        if last is not None and place <= last and place in draft.fates:
            draft.withdraw(place, "append only: signed thinking stands behind it")


def _strip(draft: Draft) -> None:
    if not draft.fates:
        return
    first = min(draft.fates)
    for i in range(first.message, len(draft.history)):
        for place, part in list(draft.rest(i)):
            if place > first and is_signed(part):
                draft.drop(place, LAW, "signed thinking behind an edit is no longer valid")


def _keep_steps_whole(draft: Draft) -> None:
    """Signatures stay with the calls they speak for.

    Gemini signs the first call of a step for all the calls beside it; in an open loop, signed thinking belongs to
    the calls behind it.
    """
    loop = open_loop(draft.history)
    for index in draft.touched():
        parts = draft.message(index).parts
        left = [j for j, part in enumerate(parts) if isinstance(part, ToolCall) and _stays(draft, Place(index, j))]
        for j, part in enumerate(parts) if left else ():
            thinks = index in loop and is_signed(part)
            speaks = _is_signed_call(part) and not _is_signed_call(parts[left[0]])
            if thinks or speaks:
                draft.withdraw(Place(index, j), "a signature stays with the calls it speaks for")


def _stays(draft: Draft, place: Place) -> bool:
    fate = draft.fates.get(place)
    return fate is None or isinstance(fate.part, ToolCall)


def _is_signed_call(part: Part) -> bool:
    fields = part.pocket.fields if isinstance(part, ToolCall) and part.pocket else ""
    return "thoughtSignature" in fields or "thought_signature" in fields


def _keep_reasoning(draft: Draft) -> None:
    """An OpenAI reasoning item and the item behind it stay, or go, together."""
    messages = draft.history.messages
    for index in range(len(messages) - 1, -1, -1):
        message = messages[index]
        if message.role != "assistant" or not _native(message, "openai-responses"):
            continue
        for j, part in enumerate(message.parts):
            if isinstance(part, Thinking):
                _keep_with_next(draft, Place(index, j))


def _keep_with_next(draft: Draft, place: Place) -> None:
    following = place.message + 1
    kept = following < len(draft.history) and _unfolded(draft, following)
    fate = draft.fates.get(place)
    if fate is None and not kept:
        draft.drop(place, LAW, "the item that this reasoning belongs to is gone")
    elif fate is not None and kept and _has_item_id(draft.message(following)):
        draft.withdraw(place, "reasoning stays with the item behind it")


def _unfolded(draft: Draft, index: int) -> bool:
    return any(not isinstance(part, Summary) for _, part in draft.rest(index))


def _has_item_id(message: Message) -> bool:
    pockets = [message.pocket, *(part.pocket for part in message.parts)]
    return any(pocket is not None and '"id"' in pocket.fields for pocket in pockets)


def _open_with_a_user(draft: Draft) -> None:
    """If the opening words of the user would go and an assistant's come first, a pointer to them stays."""
    spoken = [i for i, message in enumerate(draft.history.messages) if message.role != "system"]
    opening = next((i for i in spoken if draft.alive(i)), None)
    if opening is None or draft.message(opening).role == "user" or draft.message(spoken[0]).role != "user":
        return
    parts = draft.message(spoken[0]).parts
    said = [j for j, part in enumerate(parts) if isinstance(part, Text | Image | Summary) and not blank(part)]
    if said:
        _point_to(draft, Place(spoken[0], said[0]))
    else:
        draft.withdraw(Place(spoken[0], 0), "a conversation opens with the user")


def _point_to(draft: Draft, place: Place) -> None:
    history, part = draft.history, draft.history.part(place)
    target = history.occurrence(place)
    text = pointer(short_id(target.content), label_of(history[place.message], part, None), part, 0)
    replaced = stand_in(part, text)
    weight = draft.scale.part(replaced)
    old = draft.fates[place].edit
    if isinstance(old, Fold) or isinstance(part, Summary) or weight >= draft.weights[place.message][place.part]:
        draft.withdraw(place, "a conversation opens with the user")
        return
    draft.withdraw(place, "a conversation opens with the user")
    draft.put(place, Fate(Stub(target, old.policy, old.why, over=old.over, text=text), weight, replaced))


def _drop_hollow(draft: Draft) -> None:
    """What is left of a message must say something: blanks, or what an edit left of it if that is but thinking, go."""
    touched = draft.touched()
    blanks = {index for index, message in enumerate(draft.history.messages) if _is_blank(message)} if touched else ()
    for index in touched.union(blanks):
        rest = list(draft.rest(index))
        if rest and all(blank(part) or isinstance(part, Thinking) for _, part in rest):
            for place, _ in rest:
                draft.drop(place, LAW, "nothing else is left of its message")


@per_message
def _is_blank(message: Message) -> bool:
    return bool(message.parts) and all(map(blank, message.parts))


def _join(draft: Draft) -> None:
    """Weigh what `apply` makes one message of."""
    last: int | None = None
    bridged = False
    for index, message in enumerate(draft.history.messages):
        if not draft.alive(index) and message.parts:
            bridged = True
            continue
        if bridged and last is not None and joins(draft.message(last), message):
            draft.tokens -= draft.scale.overhead
        last, bridged = index, False


def _native(message: Message, dialect: str) -> bool:
    return message.pocket is not None and message.pocket.format == dialect


def edits_of(draft: Draft) -> Iterator[Edit]:
    """The edits of a draft in order of place, with what each saves; a fold once."""
    seen: set[int] = set()
    for place in sorted(draft.fates):
        edit = draft.fates[place].edit
        if isinstance(edit, Fold):
            if id(edit) in seen:
                continue
            seen.add(id(edit))
            places = [draft.history.places[target] for target in edit.targets]
        else:
            places = [place]
        before = sum(draft.weights[one.message][one.part] for one in places)
        after = sum(draft.fates[one].weight for one in places)
        yield structs.replace(edit, before=before, saved=before - after)
