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


def settle(draft: Draft, thinking: ThinkingRule = "free", *, force: bool = False) -> Draft:
    """A copy of the draft that keeps every rule.

    Where edits take the thinking behind them along, an open loop is left alone, with all that stands before it,
    unless a budget can be met in no other way (`force`).
    """
    settled = draft.copy()
    if thinking == "append_only":
        _append_only(settled, range(len(draft.history)))
    elif thinking == "strip_after_edit" and not force:
        _append_only(settled, open_loop(draft.history))
    _keep_steps_whole(settled)
    _keep_reasoning(settled)
    if thinking == "strip_after_edit":
        _strip(settled)
    _drop_hollow(settled)
    _open_with_a_user(settled)
    _join(settled)
    return settled


def _append_only(draft: Draft, messages: range) -> None:
    """Nothing in front of signed thinking of these messages may change: the thinking is bound to it."""
    parts = ((Place(i, j), part) for i in messages for j, part in enumerate(draft.message(i).parts))
    last = max((place for place, part in parts if is_signed(part)), default=None)
    for place in sorted(draft.fates.keys() - draft.held):
        if last is not None and place <= last and place in draft.fates:
            draft.withdraw(place, "signed thinking behind it is bound to it", wholly=False)


def _strip(draft: Draft) -> None:
    first = min(draft.fates.keys() - draft.held, default=None)
    if first is None:
        return
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
    before = -1
    while before != len(draft.fates):  # what is given back may bring another step's calls back with it
        before = len(draft.fates)
        for index in draft.touched():
            _keep_step_whole(draft, index, index in loop)


def _keep_step_whole(draft: Draft, index: int, is_open: bool) -> None:
    parts = draft.message(index).parts
    left = [j for j, part in enumerate(parts) if isinstance(part, ToolCall) and _stays(draft, Place(index, j))]
    for j, part in enumerate(parts) if left else ():
        thinks = is_open and is_signed(part) and Place(index, j) not in draft.held
        speaks = _is_signed_call(part) and not _is_signed_call(parts[left[0]])
        if thinks or speaks:
            draft.withdraw(Place(index, j), "a signature stays with the calls it speaks for", wholly=speaks)


def _stays(draft: Draft, place: Place) -> bool:
    fate = draft.fates.get(place)
    return fate is None or isinstance(fate.part, ToolCall)


def _is_signed_call(part: Part) -> bool:
    fields = part.pocket.fields if isinstance(part, ToolCall) and part.pocket else ""
    return "thoughtSignature" in fields or "thought_signature" in fields


def _keep_reasoning(draft: Draft) -> None:
    """An OpenAI reasoning item and the item behind it stay, or go, together."""
    places = [place for place, part in _reasoning(draft) if isinstance(part, Thinking)]
    asked = [place for place in places if _has_item_id(draft, place.message + 1)]
    before = -1
    while before != len(draft.fates):  # what is given back may bring another's item back with it
        before = len(draft.fates)
        for place in asked:
            if place in draft.fates and _stands(draft, place.message + 1):
                draft.withdraw(place, "reasoning stays with the item behind it")
    for place in reversed(places):
        if place not in draft.fates and not _stands(draft, place.message + 1):
            draft.drop(place, LAW, "the item that this reasoning belongs to is gone")


def _reasoning(draft: Draft) -> Iterator[tuple[Place, Part]]:
    for index, message in enumerate(draft.history.messages):
        if message.role == "assistant" and _native(message, "openai-responses"):
            yield from ((Place(index, j), part) for j, part in enumerate(message.parts))


def _stands(draft: Draft, index: int) -> bool:
    """Whether something of a message is there, other than a summary in its place."""
    return index < len(draft.history) and any(not isinstance(part, Summary) for _, part in draft.rest(index))


def _has_item_id(draft: Draft, index: int) -> bool:
    message = draft.message(index) if index < len(draft.history) else Message("user")
    pockets = [message.pocket, *(part.pocket for part in message.parts)]
    return any(pocket is not None and '"id"' in pocket.fields for pocket in pockets)


def _open_with_a_user(draft: Draft) -> None:
    """If the opening words of the user would go and an assistant's come first, a pointer to them stays."""
    spoken = [i for i, message in enumerate(draft.history.messages) if message.role != "system"]
    opening = next((i for i in spoken if draft.alive(i)), None)
    if opening is None or draft.message(opening).role == "user" or draft.message(spoken[0]).role != "user":
        return
    gone = [Place(i, j) for i in spoken if i < opening for j in range(len(draft.message(i).parts))]
    users = [place for place in gone if draft.message(place.message).role == "user"]
    said = [place for place in users if _says(draft.history.part(place))]
    if said:
        _point_to(draft, said[0])
    elif users:
        draft.withdraw(users[0], "a conversation opens with the user")


def _says(part: Part) -> bool:
    return isinstance(part, Text | Image | Summary) and not blank(part)


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
    messages = enumerate(draft.history.messages) if touched else ()
    blanks = {index for index, message in messages if _is_blank(message) and not _has_company(draft, index)}
    for index in touched | blanks:
        rest = list(draft.rest(index))
        if rest and all(blank(part) or isinstance(part, Thinking) for _, part in rest):
            for place, _ in rest:
                draft.drop(place, LAW, "nothing else is left of its message")


@per_message
def _is_blank(message: Message) -> bool:
    """Whether nothing but blanks would be sent of a message, thinking of others aside."""
    parts = message.parts
    return any(map(blank, parts)) and all(blank(part) or isinstance(part, Thinking) for part in parts)


def _has_company(draft: Draft, index: int) -> bool:
    """Whether a neighbour that is sent as one with this message says something."""
    speaks = draft.message(index).role == "assistant"
    for step in (-1, 1):
        near = index + step
        while 0 <= near < len(draft.history) and (draft.message(near).role == "assistant") == speaks:
            if any(not blank(part) and not isinstance(part, Thinking) for _, part in draft.rest(near)):
                return True
            near += step
    return False


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
    """The edits of a draft in order of place, with what each saves; a fold once.

    The first edit in a message of which nothing is left saves the message's frame, too.
    """
    seen: set[int] = set()
    framed: set[int] = set()
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
        emptied = {one.message for one in places if not draft.alive(one.message)} - framed
        framed |= emptied
        frames = len(emptied) * draft.scale.overhead
        yield structs.replace(edit, before=before + frames, saved=before + frames - after)
