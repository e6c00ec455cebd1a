"""Edits on their way into a plan: each is taken or refused as the laws have it, and the weight is known at any time.

A draft grows edit by edit, so that a search for a budget can stop as soon as the history fits. What depends on the
whole (what comes first, thinking behind an edit, messages that only think) is settled in `settle`.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple, assert_never

from msgspec import structs

from thresher.edits.draft_cache import (
    cached_exact_ids,
    cached_part_weights,
    cached_placeholders,
    cached_truncations,
    pair_chain_places,
)
from thresher.edits.edit import Drop, Edit, Pin, Replace, Summarize, Truncate, list_targets
from thresher.edits.pins import find_pins, is_edit_allowed
from thresher.edits.placeholder import describe_part, format_placeholder, format_summary
from thresher.edits.rewrite import is_blank_text, replace_with_placeholder, rewrite_part, truncate_part
from thresher.edits.truncate import clamp_elisions, merge_elisions
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
from thresher.model.parts import part_text
from thresher.store import compute_summary_id, short_id
from thresher.tokens import TokenWeights

EDIT_PRECEDENCE = {Truncate: 1, Replace: 2, Summarize: 3, Drop: 4}
"""Where two edits want one part, the stronger has it."""


class PartDecision(NamedTuple):
    """What becomes of a part: the edit, what it weighs then, and what is left of it (nothing, if it goes)."""

    edit: Edit
    weight: int
    part: Part | None


class PlanDraft:
    """A plan in the making."""

    def __init__(self, history: History, scale: TokenWeights, *, believed: frozenset[Place] = frozenset()) -> None:
        self.history = history
        self.token_weights = scale
        self.decisions: dict[Place, PartDecision] = {}
        self.refusals: Counter[tuple[str, str]] = Counter()
        self.part_weights = [scale.parts(message) for message in history.messages]
        self.tokens_before = scale.history(history)
        self.tokens = self.tokens_before
        self.pins = find_pins(history, believed)
        self._verified_placeholders = believed
        self._partners = dict(pair_chain_places(history))
        self.held_places: set[Place] = set()
        """Places of edits that an earlier plan made: what came after it was said to the edited history."""
        self._resumed_decisions: dict[Place, PartDecision] = {}
        """What those edits made of their parts: a later edit that is given back gives way to it."""
        self._requested_drops: dict[Occurrence, set[Place]] = {}
        """Of a fold, by its first part: what else was to be dropped."""
        self._parts_left = [len(message.parts) for message in history.messages]

    def add(self, edit: Edit) -> bool:
        """Take an edit, with all that it brings along; False if it may not be, or saves nothing."""
        reason = self._accept_edit(edit)
        if reason:
            self.refusals[edit.policy, reason] += 1
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
            targets = list_targets(edit)
            places = [self.history.places[target] for target in targets if target in self.history.places]
            whole = (
                places
                if isinstance(edit, Replace | Truncate)
                else [p for one in places for p in self._with_partner(one)]
            )
            torn = isinstance(edit, Summarize) and not set(whole) <= set(places)
            taken = not self.decisions.keys().isdisjoint(places)
            if len(places) < len(targets) or torn or taken or self._pin_refusal(edit, tuple(whole)):
                self.refusals[edit.policy, "no longer possible"] += 1
                continue
            for place in places:
                first = place == places[0]
                part = (
                    rewrite_part(self.history.part(place), edit) if first or not isinstance(edit, Summarize) else None
                )
                self._record_decision(place, edit, 0 if part is None else self.token_weights.part(part), part)
                self.held_places.add(place)
        self._drop_partners()
        if held:
            self._resumed_decisions = {place: self.decisions[place] for place in self.held_places}
        else:
            self.held_places = set(self._resumed_decisions)

    def _drop_partners(self) -> None:
        """A call whose result is another one by now, or the reverse, goes with what it was paired with."""
        for place, fate in list(self.decisions.items()):
            partner = self._partners.get(place)
            other = None if partner is None else self.decisions.get(partner)
            if isinstance(fate.edit, Drop) and partner is not None and (other is None or other.part is not None):
                self._record_decision(
                    partner, structs.replace(fate.edit, target=self.history.occurrence(partner)), 0, None
                )
                self.held_places.add(partner)

    def _accept_edit(self, edit: Edit) -> str:
        """Why not, or nothing."""
        if isinstance(edit, Summarize):
            return self._accept_summarize(edit)
        place = self.history.places.get(edit.target)
        if place is None:
            return "no such part"
        match edit:
            case Drop():
                return self._accept_drop(edit, place)
            case Replace():
                return self._accept_replace(edit, place)
            case Truncate():
                return self._accept_truncate(edit, place)
            case _:
                assert_never(edit)

    def _accept_drop(self, edit: Drop, place: Place) -> str:
        places = self._with_partner(place)
        reason = self._pin_refusal(edit, places)
        if reason:
            return reason
        free = [one for one in places if not self._is_summarized(one) or self._releases_summary(one, edit)]
        for one in free:
            self._record_decision(one, structs.replace(edit, target=self.history.occurrence(one)), 0, None)
        return "" if free else "folded already"

    def _is_summarized(self, place: Place) -> bool:
        fate = self.decisions.get(place)
        return fate is not None and isinstance(fate.edit, Summarize)

    def _releases_summary(self, place: Place, edit: Drop) -> bool:
        """Note that a part of a fold is to go; when all of them are, so does their summary."""
        fold = self.decisions[place].edit
        asked = self._requested_drops.setdefault(fold.target, set())
        asked.add(place)
        if not isinstance(fold, Summarize) or len(asked) < len(fold.targets):
            return False
        for target in fold.targets:
            one = self.history.places[target]
            self._record_decision(one, structs.replace(edit, target=target), 0, None)
        return True

    def _accept_replace(self, edit: Replace, place: Place) -> str:
        part = self.history.part(place)
        if not isinstance(part, ToolResult | ToolCall | Text | Image):
            return "nothing can stand in for it"
        reason = self._rejection_reason(edit, place)
        if reason:
            return reason
        known = cached_placeholders(self.history[place.message])
        key = (place.part, self.history.turn(place.message), edit.note, edit.text)
        if key not in known:
            text = edit.text or self._placeholder_text(edit, place, part)
            known[key] = text, replace_with_placeholder(part, text)
        text, replaced = known[key]
        return self._accept_if_smaller(
            Replace(edit.target, edit.policy, edit.why, edit.note, edit.over, text), place, replaced
        )

    def _placeholder_text(self, edit: Replace, place: Place, part: Part) -> str:
        message = self.history[place.message]
        partner = self._partners.get(place)
        call = self.history.part(partner) if isinstance(part, ToolResult) and partner else None
        label = describe_part(message, part, call if isinstance(call, ToolCall) else None)
        return format_placeholder(
            short_id(self._exact_id(place)), label, part, self.history.turn(place.message), edit.note
        )

    def _accept_truncate(self, edit: Truncate, place: Place) -> str:
        part = self.history.part(place)
        if not isinstance(part, ToolResult | ToolCall | Text):
            return "it cannot be cut"
        reason = self._rejection_reason(edit, place)
        if reason:
            return reason
        edit = structs.replace(edit, gaps=merge_elisions(clamp_elisions(edit.gaps, len(part_text(part)))))
        fate = self.decisions.get(place)
        if fate is not None and isinstance(fate.edit, Truncate):
            edit = structs.replace(fate.edit, gaps=merge_elisions((*fate.edit.gaps, *edit.gaps)), over=edit.over)
        known = cached_truncations(self.history[place.message])
        key = (place.part, edit.gaps)
        if key not in known:
            known[key] = truncate_part(part, edit.gaps, short_id(self._exact_id(place)))
        changed = known[key]
        if changed is None:
            return "a cut would break its JSON"
        if isinstance(part, Text) and is_blank_text(changed):
            self._record_decision(place, edit, 0, None)
            return ""
        return self._accept_if_smaller(edit, place, changed)

    def _rejection_reason(self, edit: Replace | Truncate, place: Place) -> str:
        if place in self._verified_placeholders:
            return "stands in already"
        fate = self.decisions.get(place)
        if fate is not None and EDIT_PRECEDENCE[type(fate.edit)] >= EDIT_PRECEDENCE[type(edit)] + isinstance(
            edit, Truncate
        ):
            return "another edit has it"
        return self._pin_refusal(edit, (place,))

    def _accept_if_smaller(self, edit: Replace | Truncate, place: Place, part: Part) -> str:
        known = cached_part_weights(self.history[place.message])
        key = (self.token_weights, id(part))
        if key not in known:
            known[key] = self.token_weights.part(part), part
        weight = known[key][0]
        if weight >= self._current_weight(place):
            return "too small to be worth it"
        self._record_decision(place, edit, weight, part)
        return ""

    def _accept_summarize(self, edit: Summarize) -> str:
        found = [self.history.places[target] for target in edit.targets if target in self.history.places]
        members = self._summarizable_places(edit, found)
        if not members:
            return "nothing in it may be folded"
        label = edit.label or f"{len(members)} parts folded"
        folded = Summary(
            format_summary(short_id(compute_summary_id([self._exact_id(place) for place in members])), label, edit.text)
        )
        weight = self.token_weights.part(folded)
        if weight >= sum(self._current_weight(place) for place in members):
            return "too small to be worth it"
        taken = structs.replace(edit, targets=tuple([self.history.occurrence(place) for place in members]))
        taken = structs.replace(taken, text=folded.text)
        for place in members:
            first = place == members[0]
            self._record_decision(place, taken, weight if first else 0, folded if first else None)
        return ""

    def _summarizable_places(self, edit: Summarize, found: list[Place]) -> list[Place]:
        whole: set[Place] = set()
        for place in found:
            places = self._with_partner(place)
            if not self._pin_refusal(edit, places) and all(self._can_summarize(one) for one in places):
                whole.update(places)
        return sorted(whole)

    def _can_summarize(self, place: Place) -> bool:
        """Never a summary again (some APIs hand it back as text), nor what is gone already."""
        fate, part = self.decisions.get(place), self.history.part(place)
        taken = fate is not None and isinstance(fate.edit, Drop | Summarize)
        summary = isinstance(part, Summary) or (isinstance(part, Text) and place in self._verified_placeholders)
        return not (taken or summary or isinstance(part, Unknown))

    def _with_partner(self, place: Place) -> tuple[Place, ...]:
        partner = self._partners.get(place)
        return (place,) if partner is None else (place, partner)

    def _pin_refusal(self, edit: Edit, places: tuple[Place, ...]) -> str:
        for place in places:
            pin: Pin = self.pins.get(place, "")
            if pin and not is_edit_allowed(pin, edit, self.history.part(place)):
                return f"pinned: {pin}"
        return ""

    def _exact_id(self, place: Place) -> str:
        part = self.history.part(place)
        # Most parts' content ids are of their exact text; those need no second hash.
        plain = isinstance(part, Text) or (isinstance(part, ToolResult) and [*map(type, part.content)] == [Text])
        return (
            self.history.occurrence(place).content
            if plain
            else cached_exact_ids(self.history[place.message])[place.part]
        )

    def _original_weight(self, place: Place) -> int:
        return self.part_weights[place.message][place.part]

    def _current_weight(self, place: Place) -> int:
        fate = self.decisions.get(place)
        return self._original_weight(place) if fate is None else fate.weight

    def _record_decision(self, place: Place, edit: Edit, weight: int, part: Part | None) -> None:
        old = self.decisions.get(place)
        self.tokens += weight - self._current_weight(place)
        gone = part is None
        if gone != (old is not None and old.part is None):
            self._adjust_parts_left(place.message, -1 if gone else 1)
        self.decisions[place] = PartDecision(edit, weight, part)
        self.held_places.discard(place)

    def _adjust_parts_left(self, message: int, change: int) -> None:
        before = self._parts_left[message]
        self._parts_left[message] = before + change
        if before and not before + change:
            self.tokens -= self.token_weights.message_overhead
        elif not before and before + change:
            self.tokens += self.token_weights.message_overhead

    # --- what depends on the whole; used by `settle` -----------------------------------------------------------

    def copy(self) -> "PlanDraft":
        """A draft of its own with the same edits."""
        other = object.__new__(PlanDraft)
        other.__dict__ = {**self.__dict__}
        other.decisions = dict(self.decisions)
        other.held_places = set(self.held_places)
        other._resumed_decisions = dict(self._resumed_decisions)
        other.refusals = Counter(self.refusals)
        other._parts_left = list(self._parts_left)
        return other

    def withdraw(self, place: Place, reason: str, *, wholly: bool = True) -> None:
        """Leave a part, and its partner, as they came in; if not `wholly`, as an earlier plan left them."""
        fate = self.decisions.get(place)
        if fate is None:
            return
        members = [self.history.places[t] for t in fate.edit.targets] if isinstance(fate.edit, Summarize) else [place]
        for member in members:
            for one in self._with_partner(member):
                if one in self.decisions and (wholly or one not in self.held_places):
                    self.refusals[self.decisions[one].edit.policy, reason] += 1
                    self._clear_decision(one, wholly=wholly)

    def _clear_decision(self, place: Place, *, wholly: bool) -> None:
        fate = self.decisions.pop(place)
        self.held_places.discard(place)
        self.tokens += self._original_weight(place) - fate.weight
        if fate.part is None:
            self._adjust_parts_left(place.message, 1)
        before = self._resumed_decisions.pop(place, None) if wholly else self._resumed_decisions.get(place)
        members = [self.history.places[target] for target in list_targets(before.edit)] if before else []
        for member in members if all(one in self._resumed_decisions for one in members) and not wholly else ():
            self._record_decision(member, *self._resumed_decisions[member])
            self.held_places.add(member)

    def has_parts_left(self, message: int) -> bool:
        """Whether anything is left of a message."""
        return self._parts_left[message] > 0

    def remaining_parts(self, message: int) -> Iterator[tuple[Place, Part]]:
        """What is left of a message: where each part stood, and what it is now."""
        for j, part in enumerate(self.history[message].parts):
            place = Place(message, j)
            fate = self.decisions.get(place)
            now = part if fate is None else fate.part
            if now is not None:
                yield place, now

    def drop(self, place: Place, policy: str, why: str) -> None:
        """Let a part go that no pin holds any longer."""
        self._record_decision(place, Drop(self.history.occurrence(place), policy, why), 0, None)

    def set_decision(self, place: Place, fate: PartDecision) -> None:
        """Decide what becomes of a part."""
        self._record_decision(place, *fate)

    def edited_messages(self) -> set[int]:
        """The messages with an edit in them."""
        return {place.message for place in self.decisions}

    def message(self, index: int) -> Message:
        """A message as it came in."""
        return self.history[index]


def is_signed_thinking(part: Part) -> bool:
    """Whether a part is thinking that its vendor can check."""
    return isinstance(part, Thinking) and bool(part.signature)
