"""Edits on their way into a plan: each is taken or refused as the laws have it, and the weight is known at any time.

A draft grows edit by edit, so that a search for a budget can stop as soon as the history fits. What depends on the
whole (what comes first, thinking behind an edit, messages that only think) is settled in `settle`.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple, assert_never

from msgspec import structs

from thresher.edits.change import blank, changed, cut_part, stand_in
from thresher.edits.cutting import joined, within
from thresher.edits.edit import Cut, Drop, Edit, Fold, Gap, Pin, Stub, targets_of
from thresher.edits.pins import allows, pins
from thresher.edits.standin import label_of, pointer, summary
from thresher.model import (
    History,
    Image,
    Message,
    Occurrence,
    Part,
    Place,
    Summary,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Unknown,
)
from thresher.model.memo import per_message
from thresher.model.parts import part_text
from thresher.store import exact_id, fold_id, short_id
from thresher.tokens import Scale

STRENGTH = {Cut: 1, Stub: 2, Fold: 3, Drop: 4}
"""Where two edits want one part, the stronger has it."""


class Fate(NamedTuple):
    """What becomes of a part: the edit, what it weighs then, and what is left of it (nothing, if it goes)."""

    edit: Edit
    weight: int
    part: Part | None


class Draft:
    """A plan in the making."""

    def __init__(self, history: History, scale: Scale, *, believed: frozenset[Place] = frozenset()) -> None:
        self.history = history
        self.scale = scale
        self.fates: dict[Place, Fate] = {}
        self.refused: Counter[tuple[str, str]] = Counter()
        self.weights = [scale.parts(message) for message in history.messages]
        self.before = scale.history(history)
        self.tokens = self.before
        self.pins = pins(history, believed)
        self._believed = believed
        self._partner = dict(_partners(history))
        self.held: set[Place] = set()
        """Places of edits that an earlier plan made: what came after it was said to the edited history."""
        self._resumed: dict[Place, Fate] = {}
        """What those edits made of their parts: a later edit that is given back gives way to it."""
        self._asked: dict[Occurrence, set[Place]] = {}
        """Of a fold, by its first part: what else was to be dropped."""
        self._left = [len(message.parts) for message in history.messages]

    def add(self, edit: Edit) -> bool:
        """Take an edit, with all that it brings along; False if it may not be, or saves nothing."""
        reason = self._take(edit)
        if reason:
            self.refused[edit.policy, reason] += 1
        return not reason

    def add_all(self, edits: Iterable[Edit]) -> None:
        """Take what may be taken of many."""
        for edit in edits:
            self.add(edit)

    def resume(self, edits: Iterable[Edit], *, held: bool = True) -> None:
        """Take edits of an earlier plan, byte for byte, where the history still has all that they speak of.

        They are `held` if what came after was said to the edited history; else they are new to it.
        """
        for edit in edits:
            targets = targets_of(edit)
            places = [self.history.places[target] for target in targets if target in self.history.places]
            whole = places if isinstance(edit, Stub | Cut) else [p for one in places for p in self._with_partner(one)]
            torn = isinstance(edit, Fold) and not set(whole) <= set(places)
            taken = not self.fates.keys().isdisjoint(places)
            if len(places) < len(targets) or torn or taken or self._forbids(edit, tuple(whole)):
                self.refused[edit.policy, "no longer possible"] += 1
                continue
            for place in places:
                first = place == places[0]
                part = changed(self.history.part(place), edit) if first or not isinstance(edit, Fold) else None
                self._set(place, edit, 0 if part is None else self.scale.part(part), part)
                self.held.add(place)
        self._take_partners_along()
        if held:
            self._resumed = {place: self.fates[place] for place in self.held}
        else:
            self.held = set(self._resumed)

    def _take_partners_along(self) -> None:
        """A call whose result is another one by now, or the reverse, goes with what it was paired with."""
        for place, fate in list(self.fates.items()):
            partner = self._partner.get(place)
            other = None if partner is None else self.fates.get(partner)
            if isinstance(fate.edit, Drop) and partner is not None and (other is None or other.part is not None):
                self._set(partner, structs.replace(fate.edit, target=self.history.occurrence(partner)), 0, None)
                self.held.add(partner)

    def _take(self, edit: Edit) -> str:
        """Why not, or nothing."""
        if isinstance(edit, Fold):
            return self._fold(edit)
        place = self.history.places.get(edit.target)
        if place is None:
            return "no such part"
        match edit:
            case Drop():
                return self._drop(edit, place)
            case Stub():
                return self._stub(edit, place)
            case Cut():
                return self._cut(edit, place)
            case _:
                assert_never(edit)

    def _drop(self, edit: Drop, place: Place) -> str:
        places = self._with_partner(place)
        reason = self._forbids(edit, places)
        if reason:
            return reason
        free = [one for one in places if not self._is_folded(one) or self._unfolds(one, edit)]
        for one in free:
            self._set(one, structs.replace(edit, target=self.history.occurrence(one)), 0, None)
        return "" if free else "folded already"

    def _is_folded(self, place: Place) -> bool:
        fate = self.fates.get(place)
        return fate is not None and isinstance(fate.edit, Fold)

    def _unfolds(self, place: Place, edit: Drop) -> bool:
        """Note that a part of a fold is to go; when all of them are, so does their summary."""
        fold = self.fates[place].edit
        asked = self._asked.setdefault(fold.target, set())
        asked.add(place)
        if not isinstance(fold, Fold) or len(asked) < len(fold.targets):
            return False
        for target in fold.targets:
            one = self.history.places[target]
            self._set(one, structs.replace(edit, target=target), 0, None)
        return True

    def _stub(self, edit: Stub, place: Place) -> str:
        part = self.history.part(place)
        if not isinstance(part, ToolResult | ToolCall | Text | Image):
            return "nothing can stand in for it"
        reason = self._unfit(edit, place)
        if reason:
            return reason
        known = _stand_ins(self.history[place.message])
        key = (place.part, self.history.turn(place.message), edit.note, edit.text)
        if key not in known:
            text = edit.text or self._pointer(edit, place, part)
            known[key] = text, stand_in(part, text)
        text, replaced = known[key]
        return self._replace(Stub(edit.target, edit.policy, edit.why, edit.note, edit.over, text), place, replaced)

    def _pointer(self, edit: Stub, place: Place, part: Part) -> str:
        message = self.history[place.message]
        partner = self._partner.get(place)
        call = self.history.part(partner) if isinstance(part, ToolResult) and partner else None
        label = label_of(message, part, call if isinstance(call, ToolCall) else None)
        return pointer(short_id(self._exact(place)), label, part, self.history.turn(place.message), edit.note)

    def _cut(self, edit: Cut, place: Place) -> str:
        part = self.history.part(place)
        if not isinstance(part, ToolResult | ToolCall | Text):
            return "it cannot be cut"
        reason = self._unfit(edit, place)
        if reason:
            return reason
        edit = structs.replace(edit, gaps=joined(within(edit.gaps, len(part_text(part)))))
        fate = self.fates.get(place)
        if fate is not None and isinstance(fate.edit, Cut):
            edit = structs.replace(fate.edit, gaps=joined((*fate.edit.gaps, *edit.gaps)), over=edit.over)
        known = _cuts(self.history[place.message])
        key = (place.part, edit.gaps)
        if key not in known:
            known[key] = cut_part(part, edit.gaps, short_id(self._exact(place)))
        changed = known[key]
        if changed is None:
            return "a cut would break its JSON"
        if isinstance(part, Text) and blank(changed):
            self._set(place, edit, 0, None)
            return ""
        return self._replace(edit, place, changed)

    def _unfit(self, edit: Stub | Cut, place: Place) -> str:
        if place in self._believed:
            return "stands in already"
        fate = self.fates.get(place)
        if fate is not None and STRENGTH[type(fate.edit)] >= STRENGTH[type(edit)] + isinstance(edit, Cut):
            return "another edit has it"
        return self._forbids(edit, (place,))

    def _replace(self, edit: Stub | Cut, place: Place, part: Part) -> str:
        known = _weights(self.history[place.message])
        key = (self.scale, id(part))
        if key not in known:
            known[key] = self.scale.part(part), part
        weight = known[key][0]
        if weight >= self._weight_now(place):
            return "too small to be worth it"
        self._set(place, edit, weight, part)
        return ""

    def _fold(self, edit: Fold) -> str:
        found = [self.history.places[target] for target in edit.targets if target in self.history.places]
        members = self._foldable(edit, found)
        if not members:
            return "nothing in it may be folded"
        label = edit.label or f"{len(members)} parts folded"
        folded = Summary(summary(short_id(fold_id([self._exact(place) for place in members])), label, edit.text))
        weight = self.scale.part(folded)
        if weight >= sum(self._weight_now(place) for place in members):
            return "too small to be worth it"
        taken = structs.replace(edit, targets=tuple([self.history.occurrence(place) for place in members]))
        taken = structs.replace(taken, text=folded.text)
        for place in members:
            first = place == members[0]
            self._set(place, taken, weight if first else 0, folded if first else None)
        return ""

    def _foldable(self, edit: Fold, found: list[Place]) -> list[Place]:
        whole: set[Place] = set()
        for place in found:
            places = self._with_partner(place)
            if not self._forbids(edit, places) and all(self._may_fold(one) for one in places):
                whole.update(places)
        return sorted(whole)

    def _may_fold(self, place: Place) -> bool:
        """Never a summary again (some APIs hand it back as text), nor what is gone already."""
        fate, part = self.fates.get(place), self.history.part(place)
        taken = fate is not None and isinstance(fate.edit, Drop | Fold)
        summary = isinstance(part, Summary) or (isinstance(part, Text) and place in self._believed)
        return not (taken or summary or isinstance(part, Unknown))

    def _with_partner(self, place: Place) -> tuple[Place, ...]:
        partner = self._partner.get(place)
        return (place,) if partner is None else (place, partner)

    def _forbids(self, edit: Edit, places: tuple[Place, ...]) -> str:
        for place in places:
            pin: Pin = self.pins.get(place, "")
            if pin and not allows(pin, edit, self.history.part(place)):
                return f"pinned: {pin}"
        return ""

    def _exact(self, place: Place) -> str:
        part = self.history.part(place)
        # Most parts' content ids are of their exact text; those need no second hash.
        plain = isinstance(part, Text) or (isinstance(part, ToolResult) and [*map(type, part.content)] == [Text])
        return self.history.occurrence(place).content if plain else _exact_ids(self.history[place.message])[place.part]

    def _weight(self, place: Place) -> int:
        return self.weights[place.message][place.part]

    def _weight_now(self, place: Place) -> int:
        fate = self.fates.get(place)
        return self._weight(place) if fate is None else fate.weight

    def _set(self, place: Place, edit: Edit, weight: int, part: Part | None) -> None:
        old = self.fates.get(place)
        self.tokens += weight - self._weight_now(place)
        gone = part is None
        if gone != (old is not None and old.part is None):
            self._count(place.message, -1 if gone else 1)
        self.fates[place] = Fate(edit, weight, part)
        self.held.discard(place)

    def _count(self, message: int, change: int) -> None:
        before = self._left[message]
        self._left[message] = before + change
        if before and not before + change:
            self.tokens -= self.scale.overhead
        elif not before and before + change:
            self.tokens += self.scale.overhead

    # --- what depends on the whole; used by `settle` -----------------------------------------------------------

    def copy(self) -> "Draft":
        """A draft of its own with the same edits."""
        other = object.__new__(Draft)
        other.__dict__ = {**self.__dict__}
        other.fates = dict(self.fates)
        other.held = set(self.held)
        other._resumed = dict(self._resumed)
        other.refused = Counter(self.refused)
        other._left = list(self._left)
        return other

    def withdraw(self, place: Place, reason: str, *, wholly: bool = True) -> None:
        """Leave a part, and its partner, as they came in; if not `wholly`, as an earlier plan left them."""
        fate = self.fates.get(place)
        if fate is None:
            return
        members = [self.history.places[t] for t in fate.edit.targets] if isinstance(fate.edit, Fold) else [place]
        for member in members:
            for one in self._with_partner(member):
                if one in self.fates and (wholly or one not in self.held):
                    self.refused[self.fates[one].edit.policy, reason] += 1
                    self._clear(one, wholly=wholly)

    def _clear(self, place: Place, *, wholly: bool) -> None:
        fate = self.fates.pop(place)
        self.held.discard(place)
        self.tokens += self._weight(place) - fate.weight
        if fate.part is None:
            self._count(place.message, 1)
        before = self._resumed.pop(place, None) if wholly else self._resumed.get(place)
        members = [self.history.places[target] for target in targets_of(before.edit)] if before else []
        for member in members if all(one in self._resumed for one in members) and not wholly else ():
            self._set(member, *self._resumed[member])
            self.held.add(member)

    def alive(self, message: int) -> bool:
        """Whether anything is left of a message."""
        return self._left[message] > 0

    def rest(self, message: int) -> Iterator[tuple[Place, Part]]:
        """What is left of a message: where each part stood, and what it is now."""
        for j, part in enumerate(self.history[message].parts):
            place = Place(message, j)
            fate = self.fates.get(place)
            now = part if fate is None else fate.part
            if now is not None:
                yield place, now

    def drop(self, place: Place, policy: str, why: str) -> None:
        """Let a part go that no pin holds any longer."""
        self._set(place, Drop(self.history.occurrence(place), policy, why), 0, None)

    def put(self, place: Place, fate: Fate) -> None:
        """Decide what becomes of a part."""
        self._set(place, *fate)

    def touched(self) -> set[int]:
        """The messages with an edit in them."""
        return {place.message for place in self.fates}

    def message(self, index: int) -> Message:
        """A message as it came in."""
        return self.history[index]


@per_message
def _stand_ins(_: Message) -> dict[tuple[int, int, str, str], tuple[str, Part]]:
    """Stand-ins made for a message's parts, by part, turn and note: the next plan makes the same ones."""
    return {}


@per_message
def _cuts(_: Message) -> dict[tuple[int, tuple[Gap, ...]], Part | None]:
    """Cuts made in a message's parts."""
    return {}


@per_message
def _weights(_: Message) -> dict[tuple[Scale, int], tuple[int, Part]]:
    """What those weigh, by scale; the parts are held so that their ids stay theirs."""
    return {}


@per_message
def _exact_ids(message: Message) -> tuple[str, ...]:
    return tuple([exact_id(part) for part in message.parts])


def _partners(history: History) -> Iterator[tuple[Place, Place]]:
    for chain in history.chains:
        if chain.result is not None:
            yield chain.call, chain.result
            yield chain.result, chain.call


def is_signed(part: Part) -> bool:
    """Whether a part is thinking that its vendor can check."""
    return isinstance(part, Thinking) and bool(part.signature)
