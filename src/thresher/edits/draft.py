"""A plan draft: accepts or refuses each proposed edit, and keeps the token count up to date.

Edits are added one at a time, so that fitting into a budget can stop as soon as the history fits. `close_draft`
applies the rules that concern the whole history: its opening, thinking after an edit, messages with only thinking.
"""

from collections import Counter
from collections.abc import Iterable
from typing import assert_never

from msgspec import structs

from thresher.edits.closed_placeholders import UNRESTORABLE, is_repeatable_result
from thresher.edits.draft_cache import (
    cached_exact_ids,
    cached_part_weights,
    cached_placeholders,
    cached_truncations,
    pair_chain_places,
)
from thresher.edits.draft_state import DraftState, PartDecision
from thresher.edits.edit import Drop, Edit, Pin, Replace, Summarize, Truncate, list_targets
from thresher.edits.pins import find_pins, is_edit_allowed
from thresher.edits.placeholder import add_kept_text, describe_part, format_placeholder, format_summary
from thresher.edits.rewrite import is_blank_text, replace_with_placeholder, rewrite_part, truncate_part
from thresher.edits.truncate import clamp_elisions, exclude_span, merge_elisions
from thresher.model import (
    History,
    Image,
    Occurrence,
    Part,
    Place,
    Summary,
    Text,
    ToolCall,
    ToolResult,
    Unknown,
)
from thresher.model.parts import part_text
from thresher.store import compute_summary_id, short_id
from thresher.tokens import TokenWeights

EDIT_PRECEDENCE = {Truncate: 1, Replace: 2, Summarize: 3, Drop: 4}
"""If two edits target the same part, the higher number wins."""


class PlanDraft(DraftState):
    """A plan under construction."""

    def __init__(
        self,
        history: History,
        scale: TokenWeights,
        *,
        placeholders: frozenset[Place] = frozenset(),
        opening: str | None = "",
    ) -> None:
        """Start without edits. `opening` is the way in which a reader can open a placeholder, for its text.

        If it is None, a reader cannot open any: then only content that a repeated call returns may be removed.
        """
        super().__init__(history, scale)
        self._opening = opening
        self.refusals: Counter[tuple[str, str]] = Counter()
        self.pins = find_pins(history, placeholders)
        self.placeholders = placeholders
        self._partners = dict(pair_chain_places(history))
        self._resumed_decisions: dict[Place, PartDecision] = {}
        """Decisions of the earlier plan, which apply again when a later edit is withdrawn."""
        self._requested_drops: dict[Occurrence, set[Place]] = {}
        """Places of summarized parts for which a drop was requested, by the first target of the summary."""

    def add(self, edit: Edit) -> bool:
        """Add an edit and everything it requires; return False if a rule forbids it or it saves no tokens."""
        reason = self._accept_edit(edit)
        if reason:
            self.refusals[edit.policy, reason] += 1
        return not reason

    def add_all(self, edits: Iterable[Edit]) -> None:
        """Add every edit that the rules allow."""
        for edit in edits:
            self.add(edit)

    def resume(self, edits: Iterable[Edit], *, held: bool = True) -> None:
        """Repeat edits of an earlier plan byte for byte, if the history still has all their targets.

        Set `held` if later messages answered the edited history; otherwise, the edits count as new.
        """
        for edit in edits:
            targets = list_targets(edit)
            places = [self.history.places[target] for target in targets if target in self.history.places]
            is_summary = isinstance(edit, Summarize)
            whole = places
            if not isinstance(edit, Replace | Truncate):
                whole = [member for place in places for member in self._with_partner(place)]
            is_split = is_summary and not set(whole) <= set(places)
            is_taken = not self.decisions.keys().isdisjoint(places)
            if len(places) < len(targets) or is_split or is_taken or self._pin_refusal(edit, tuple(whole)):
                self.refusals[edit.policy, "no longer possible"] += 1
                continue
            for place in places:
                removed = is_summary and place != places[0]
                part = None if removed else rewrite_part(self.history.part(place), edit)
                self._record_decision(place, edit, 0 if part is None else self.token_weights.part(part), part)
                self.held_places.add(place)
        self._drop_partners()
        if held:
            self._resumed_decisions = {place: self.decisions[place] for place in self.held_places}
        else:
            self.held_places = set(self._resumed_decisions)

    def _drop_partners(self) -> None:
        """Also drop the partner of each dropped call or result, which may have been added since the earlier plan."""
        for place, decision in list(self.decisions.items()):
            partner = self._partners.get(place)
            other = None if partner is None else self.decisions.get(partner)
            if isinstance(decision.edit, Drop) and partner is not None and (other is None or other.part is not None):
                self._drop_as(decision.edit, partner)
                self.held_places.add(partner)

    def _accept_edit(self, edit: Edit) -> str:
        """Apply an edit; return the reason if it is refused, else an empty string."""
        if isinstance(edit, Summarize):
            return self._accept_summarize(edit) if self._opening is not None else UNRESTORABLE
        place = self.history.places.get(edit.target)
        if place is None:
            return "no such part"
        if self._opening is None and (isinstance(edit, Drop) or not is_repeatable_result(self.history, place)):
            return UNRESTORABLE
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
        if not edit.removes_human_words and any(one in self.history.human_words for one in places):
            return self._accept_replace_pair(edit, places)
        free = [one for one in places if not self._is_summarized(one) or self._releases_summary(one, edit)]
        for one in free:
            self._drop_as(edit, one)
        return "" if free else "already summarized"

    def _accept_replace_pair(self, edit: Drop, places: tuple[Place, ...]) -> str:
        """Replace a call and its result, which contains a person's words, in place of dropping them."""
        replaces = [Replace(self.history.occurrence(one), edit.policy, edit.why, over=edit.over) for one in places]
        reasons = [self._accept_replace(one, place) for one, place in zip(replaces, places, strict=True)]
        return "" if "" in reasons else "contains a person's words"

    def _is_summarized(self, place: Place) -> bool:
        decision = self.decisions.get(place)
        return decision is not None and isinstance(decision.edit, Summarize)

    def _releases_summary(self, place: Place, edit: Drop) -> bool:
        """Register the drop of a summarized part; once drops of all parts of the summary are registered, drop them."""
        summary = self.decisions[place].edit
        requested = self._requested_drops.setdefault(summary.target, set())
        requested.add(place)
        targets = list_targets(summary)
        if len(requested) < len(targets):
            return False
        for target in targets:
            self._drop_as(edit, self.history.places[target])
        return True

    def _accept_replace(self, edit: Replace, place: Place) -> str:
        part = self.history.part(place)
        if not isinstance(part, ToolResult | ToolCall | Text | Image):
            return "this kind of part cannot be replaced"
        reason = self._rejection_reason(edit, place)
        if reason:
            return reason
        known = cached_placeholders(self.history[place.message])
        key = (
            place.part,
            self.history.turn(place.message),
            edit.note,
            edit.text,
            edit.removes_human_words,
            self._opening,
        )
        if key not in known:
            text = edit.text or self._placeholder_text(edit, place, part)
            known[key] = text, replace_with_placeholder(part, text)
        text, replaced = known[key]
        edit = structs.replace(edit, text=text)
        return self._accept_if_smaller(edit, place, replaced)

    def _placeholder_text(self, edit: Replace, place: Place, part: Part) -> str:
        message = self.history[place.message]
        partner = self._partners.get(place)
        paired = self.history.part(partner) if isinstance(part, ToolResult) and partner else None
        call = paired if isinstance(paired, ToolCall) else None
        label = describe_part(message, part, call)
        turn = self.history.turn(place.message)
        id_, opening = short_id(self._exact_id(place)), self._opening or ""
        text = format_placeholder(id_, label, part, turn, edit.note, call=call, opening=opening)
        words = None if edit.removes_human_words else self.history.human_words.get(place)
        return text if words is None else add_kept_text(text, part_text(part)[slice(*words)])

    def _accept_truncate(self, edit: Truncate, place: Place) -> str:
        part = self.history.part(place)
        if not isinstance(part, ToolResult | ToolCall | Text):
            return "this kind of part cannot be truncated"
        reason = self._rejection_reason(edit, place)
        if reason:
            return reason
        gaps = merge_elisions(clamp_elisions(edit.gaps, len(part_text(part))))
        words = None if edit.removes_human_words else self.history.human_words.get(place)
        gaps = gaps if words is None else tuple(exclude_span(gaps, words))
        if not gaps:
            return "contains a person's words"
        edit = structs.replace(edit, gaps=gaps)
        decision = self.decisions.get(place)
        if decision is not None and isinstance(decision.edit, Truncate):
            edit = structs.replace(
                decision.edit, gaps=merge_elisions((*decision.edit.gaps, *edit.gaps)), over=edit.over
            )
        known = cached_truncations(self.history[place.message])
        key = (place.part, edit.gaps)
        if key not in known:
            known[key] = truncate_part(part, edit.gaps, short_id(self._exact_id(place)))
        changed = known[key]
        if changed is None:
            return "truncation would break its JSON"
        if isinstance(part, Text) and is_blank_text(changed):
            self._record_decision(place, edit, 0, None)
            return ""
        return self._accept_if_smaller(edit, place, changed)

    def _rejection_reason(self, edit: Replace | Truncate, place: Place) -> str:
        if place in self.placeholders:
            return "already a placeholder"
        decision = self.decisions.get(place)
        if decision is not None:
            current, new = EDIT_PRECEDENCE[type(decision.edit)], EDIT_PRECEDENCE[type(edit)]
            if current > new or (current == new and not isinstance(edit, Truncate)):
                return "another edit takes precedence"
        return self._pin_refusal(edit, (place,))

    def _accept_if_smaller(self, edit: Replace | Truncate, place: Place, part: Part) -> str:
        known = cached_part_weights(self.history[place.message])
        key = (self.token_weights, id(part))
        if key not in known:
            known[key] = self.token_weights.part(part), part
        weight = known[key][0]
        if weight >= self.current_weight(place):
            return "saves no tokens"
        self._record_decision(place, edit, weight, part)
        return ""

    def _accept_summarize(self, edit: Summarize) -> str:
        found = [self.history.places[target] for target in edit.targets if target in self.history.places]
        members = self._summarizable_places(edit, set(found))
        if not members:
            return "none of its parts can be summarized"
        label = edit.label or f"{len(members)} parts folded"
        label = f"{label} · open: {self._opening}" if self._opening else label
        id_ = short_id(compute_summary_id([self._exact_id(place) for place in members]))
        summary = Summary(format_summary(id_, label, edit.text))
        weight = self.token_weights.part(summary)
        if weight >= sum(self.current_weight(place) for place in members):
            return "saves no tokens"
        targets = tuple([self.history.occurrence(place) for place in members])
        accepted = structs.replace(edit, targets=targets, text=summary.text)
        self._record_decision(members[0], accepted, weight, summary)
        for place in members[1:]:
            self._record_decision(place, accepted, 0, None)
        return ""

    def _summarizable_places(self, edit: Summarize, found: set[Place]) -> list[Place]:
        whole: set[Place] = set()
        for place in found:
            places = self._with_partner(place)
            keeps_words = not edit.removes_human_words and any(one in self.history.human_words for one in places)
            if keeps_words or self._pin_refusal(edit, places):
                continue
            if all(self._can_summarize(one, found) for one in places):
                whole.update(places)
        return sorted(whole)

    def _can_summarize(self, place: Place, found: set[Place]) -> bool:
        """Return whether a part is not unknown, nor an earlier summary (in some APIs a text), nor in one of this plan.

        The text of a summary is about all parts that its policy `found`. So it takes over those that another policy of
        this plan drops, or summarizes on their own: then restoring the summary returns all that it lists.
        """
        decision, part = self.decisions.get(place), self.history.part(place)
        if isinstance(part, Summary | Unknown) or (isinstance(part, Text) and place in self.placeholders):
            return False
        if decision is None or isinstance(decision.edit, Replace | Truncate):
            return True
        if place in self.held_places:
            return False
        members = {self.history.places[target] for target in list_targets(decision.edit)}
        return isinstance(decision.edit, Drop) or members <= {*self._with_partner(place)} & found

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
        # The content id of plain text is already a hash of the exact text.
        if isinstance(part, Text) or (isinstance(part, ToolResult) and [*map(type, part.content)] == [Text]):
            return self.history.occurrence(place).content
        return cached_exact_ids(self.history[place.message])[place.part]

    # --- operations for `close_draft` -----------------------------------------------------------------------------

    def copy(self) -> "PlanDraft":
        """Return an independent draft with the same edits."""
        other = object.__new__(PlanDraft)
        other.__dict__ = {**self.__dict__}
        other.decisions = dict(self.decisions)
        other.held_places = set(self.held_places)
        other._resumed_decisions = dict(self._resumed_decisions)
        other.refusals = Counter(self.refusals)
        other._parts_left = list(self._parts_left)
        return other

    def withdraw(self, place: Place, reason: str, *, wholly: bool = True) -> None:
        """Withdraw the edits of a part and its partner; unless `wholly`, restore the edits of an earlier plan."""
        decision = self.decisions.get(place)
        if decision is None:
            return
        members = (
            [self.history.places[t] for t in decision.edit.targets] if isinstance(decision.edit, Summarize) else [place]
        )
        for member in members:
            for one in self._with_partner(member):
                if one in self.decisions and (wholly or one not in self.held_places):
                    self.refusals[self.decisions[one].edit.policy, reason] += 1
                    self._clear_decision(one, wholly=wholly)

    def _clear_decision(self, place: Place, *, wholly: bool) -> None:
        decision = self.decisions.pop(place)
        self.held_places.discard(place)
        self.tokens += self.original_weight(place) - decision.weight
        if decision.part is None:
            self._adjust_parts_left(place.message, 1)
        before = self._resumed_decisions.pop(place, None) if wholly else self._resumed_decisions.get(place)
        members = [self.history.places[target] for target in list_targets(before.edit)] if before else []
        for member in members if all(one in self._resumed_decisions for one in members) and not wholly else ():
            self._record_decision(member, *self._resumed_decisions[member])
            self.held_places.add(member)

    def drop(self, place: Place, policy: str, why: str, *, over: Pin = "", removes_human_words: bool = False) -> None:
        """Drop a part without checking its pins."""
        edit = Drop(self.history.occurrence(place), policy, why, over, removes_human_words=removes_human_words)
        self._record_decision(place, edit, 0, None)

    def _drop_as(self, edit: Edit, place: Place) -> None:
        """Drop a part for the same reason as an edit."""
        words = edit.removes_human_words
        self.drop(place, edit.policy, edit.why, over=edit.over, removes_human_words=words)
