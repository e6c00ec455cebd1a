"""The newest that fit: whole turns go, the oldest first, until the rest is small enough.

A cut stands before a prompt or before a turn, and never between a call and its result. What is pinned stays where
it is and counts. Summaries of what left earlier, and the first request, go last of all: nothing else tells of them.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from thresher.edits import Drop, Edit, find_pins
from thresher.edits.placeholder import describe_part, format_placeholder, get_placeholder_id
from thresher.errors import OptionError
from thresher.model import History, Message, Place, Summary, Text
from thresher.model.turns import is_prompt
from thresher.policies.base import check_count
from thresher.store import short_id
from thresher.tokens import TokenWeights, default_token_weights


@dataclass(frozen=True, kw_only=True)
class SlidingWindow:
    """Drop the oldest turns until the rest fits."""

    budget: int | None = None
    """Tokens that what stays may weigh, pinned parts and tool definitions counted; None: the budget of the plan."""
    scale: TokenWeights = field(default_factory=default_token_weights, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.budget is not None:
            check_count("sliding-window", budget=self.budget)

    def __call__(self, history: History) -> Iterator[Edit]:
        """Drop turn by turn, the oldest first, as long as the rest is too heavy."""
        if self.budget is None:
            raise OptionError("policy `sliding-window` drops what is beyond a budget, and there is none: give one")
        left = self.scale.history(history)
        if left <= self.budget:
            return
        pinned = find_pins(history).keys() | _find_opening_placeholder(history)
        reserve = self._opening_reserve(history)
        opens = False
        first = next((i for i, message in enumerate(history.messages) if is_prompt(message)), None)
        last: list[Place] = []
        for start, stop in pairwise(find_cut_points(history)):
            for i in range(start, stop):
                free = [Place(i, j) for j in range(len(history[i].parts)) if Place(i, j) not in pinned]
                gone = [place for place in free if i != first and not isinstance(history.part(place), Summary)]
                last += [place for place in free if place not in gone]
                left -= self._count_tokens_freed(history, i, gone)
                opens = opens or (history[i].role == "user" and len(gone) < len(history[i].parts))
                yield from (
                    Drop(history.occurrence(place), "sliding-window", "older than what fits the budget")
                    for place in gone
                )
            opened = opens or (stop < len(history) and history[stop].role == "user")
            if left + (0 if opened else reserve) <= self.budget:
                return
        for place in sorted(last, key=lambda place: place.message == first):
            left -= self._count_tokens_freed(history, place.message, [place])
            why = "even the first request" if place.message == first else "even what tells of what was left out before"
            yield Drop(history.occurrence(place), "sliding-window", why)
            if left + reserve <= self.budget:
                return

    def _opening_reserve(self, history: History) -> int:
        """What a pointer to the user's opening words weighs: the law puts one where an assistant would come first."""
        first = next((i for i, message in enumerate(history.messages) if message.role != "system"), None)
        if first is None or history[first].role != "user":
            return 0
        for j, part in enumerate(history[first].parts):
            if isinstance(part, Text):
                short = short_id(history.occurrence(Place(first, j)).content)
                line = Text(format_placeholder(short, describe_part(history[first], part, None), part, 0))
                return min(self.scale.part(line), self.scale.part(part)) + self.scale.message(Message("user"))
        return 0

    def _count_tokens_freed(self, history: History, index: int, gone: list[Place]) -> int:
        """What a message is lighter by: all of it, frame and all, where nothing stays."""
        message = history[index]
        weights = self.scale.parts(message)
        if gone and len(gone) == len(message.parts):
            return self.scale.message(message)
        return sum(weights[place.part] for place in gone)


def find_cut_points(history: History) -> list[int]:
    """Where the history may be cut: its ends, before prompts, and before turns; never inside a chain."""
    inside = [0] * (len(history) + 1)
    for chain in history.chains:
        if chain.result is not None and chain.result.message > chain.call.message:
            inside[chain.call.message + 1] += 1
            inside[chain.result.message + 1] -= 1
    starts = {turn.start for turn in history.turns}
    found = [0]
    depth = inside[0]
    for index in range(1, len(history)):
        depth += inside[index]
        if not depth and (index in starts or history[index].role == "user"):
            found.append(index)
    return [*found, len(history)]


def _find_opening_placeholder(history: History) -> set[Place]:
    """The pointer to the user's opening words, where nothing else opens the conversation any longer."""
    first = next((i for i, message in enumerate(history.messages) if message.role != "system"), None)
    if first is None or history[first].role != "user":
        return set()
    parts = history[first].parts
    return {Place(first, j) for j, part in enumerate(parts) if isinstance(part, Text) and get_placeholder_id(part)}
