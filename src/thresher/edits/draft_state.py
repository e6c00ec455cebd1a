"""The state of a plan draft: one decision per edited part, and the token count after all of them."""

from collections.abc import Iterator
from typing import NamedTuple

from thresher.edits.edit import Edit
from thresher.model import History, Part, Place
from thresher.tokens import TokenWeights


class PartDecision(NamedTuple):
    """Decision for a part: its edit, the tokens after it, and the resulting part (None if it is removed)."""

    edit: Edit
    weight: int
    part: Part | None


class DraftState:
    """The decisions about the parts of a history, and its tokens after them."""

    def __init__(self, history: History, scale: TokenWeights) -> None:
        self.history = history
        self.token_weights = scale
        self.decisions: dict[Place, PartDecision] = {}
        self.part_weights = [scale.parts(message) for message in history.messages]
        self.tokens_before = scale.history(history)
        self.tokens = self.tokens_before
        self.held_places: set[Place] = set()
        """Places edited by an earlier plan. Later messages are answers to the edited history."""
        self._parts_left = [len(message.parts) for message in history.messages]

    def original_weight(self, place: Place) -> int:
        """Return the tokens of an original part."""
        return self.part_weights[place.message][place.part]

    def current_weight(self, place: Place) -> int:
        """Return the tokens of a part after its edit, if any."""
        decision = self.decisions.get(place)
        return self.original_weight(place) if decision is None else decision.weight

    def set_decision(self, place: Place, decision: PartDecision) -> None:
        """Set the decision for a part without checks."""
        self._record_decision(place, *decision)

    def _record_decision(self, place: Place, edit: Edit, weight: int, part: Part | None) -> None:
        old = self.decisions.get(place)
        self.tokens += weight - self.current_weight(place)
        is_removed = part is None
        if is_removed != (old is not None and old.part is None):
            self._adjust_parts_left(place.message, -1 if is_removed else 1)
        self.decisions[place] = PartDecision(edit, weight, part)
        self.held_places.discard(place)

    def _adjust_parts_left(self, message: int, change: int) -> None:
        before = self._parts_left[message]
        self._parts_left[message] = before + change
        if before and not before + change:
            self.tokens -= self.token_weights.message_overhead
        elif not before and before + change:
            self.tokens += self.token_weights.message_overhead

    def has_parts_left(self, message: int) -> bool:
        """Return whether a message keeps any part."""
        return self._parts_left[message] > 0

    def remaining_parts(self, message: int) -> Iterator[tuple[Place, Part]]:
        """Yield the remaining parts of a message, as edited, with their original places."""
        for j, part in enumerate(self.history[message].parts):
            place = Place(message, j)
            decision = self.decisions.get(place)
            now = part if decision is None else decision.part
            if now is not None:
                yield place, now

    def edited_messages(self) -> set[int]:
        """Return the indexes of messages with an edit."""
        return {place.message for place in self.decisions}
