"""The policy `sliding-window`: drop whole turns, oldest first, until the rest fits the budget.

The cut is before a prompt or a turn, never between a call and its result. Pinned parts stay, and their tokens count.
Earlier summaries and the first request are dropped last, because nothing else contains their information.
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

POLICY_NAME = "sliding-window"


@dataclass(frozen=True, kw_only=True)
class SlidingWindow:
    """Drop the oldest turns until the rest fits the budget."""

    budget: int | None = None
    """Maximum tokens, including pinned parts and tool definitions; None: the budget of the plan or window."""
    requires_budget = True
    """The policy cannot work without a budget."""
    scale: TokenWeights = field(default_factory=default_token_weights, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.budget is not None:
            check_count(POLICY_NAME, budget=self.budget)

    def __call__(self, history: History) -> Iterator[Edit]:
        """Propose drops turn by turn, oldest first, while the rest exceeds the budget."""
        if self.budget is None:
            raise OptionError(f"policy `{POLICY_NAME}` needs a budget: set `budget`, for example to 60k")
        tokens = self.scale.history(history)
        if tokens <= self.budget:
            return
        pinned = find_pins(history).keys() | _find_opening_placeholder(history)
        reserve = self._opening_reserve(history)
        starts_with_user = False
        first = next((i for i, message in enumerate(history.messages) if is_prompt(message)), None)
        kept_longest: list[Place] = []
        for start, stop in pairwise(find_cut_points(history)):
            for i in range(start, stop):
                free = [Place(i, j) for j in range(len(history[i].parts)) if Place(i, j) not in pinned]
                deferred = [place for place in free if i == first or isinstance(history.part(place), Summary)]
                dropped = [place for place in free if place not in deferred]
                kept_longest += deferred
                tokens -= self._count_tokens_freed(history, i, dropped)
                starts_with_user |= history[i].role == "user" and len(dropped) < len(history[i].parts)
                for place in dropped:
                    yield Drop(history.occurrence(place), POLICY_NAME, "outside the window", removes_human_words=True)
            is_open = starts_with_user or (stop < len(history) and history[stop].role == "user")
            if tokens + (0 if is_open else reserve) <= self.budget:
                return
        for place in sorted(kept_longest, key=lambda place: place.message == first):
            tokens -= self._count_tokens_freed(history, place.message, [place])
            why = "first request" if place.message == first else "earlier summary or placeholder"
            yield Drop(history.occurrence(place), POLICY_NAME, why)
            if tokens + reserve <= self.budget:
                return

    def _opening_reserve(self, history: History) -> int:
        """Return the tokens of the placeholder for the opening user text, in case the plan has to add it."""
        first = next((i for i, message in enumerate(history.messages) if message.role != "system"), None)
        if first is None or history[first].role != "user":
            return 0
        for j, part in enumerate(history[first].parts):
            if isinstance(part, Text):
                short = short_id(history.occurrence(Place(first, j)).content)
                line = Text(format_placeholder(short, describe_part(history[first], part, None), part, 0))
                return min(self.scale.part(line), self.scale.part(part)) + self.scale.message(Message("user"))
        return 0

    def _count_tokens_freed(self, history: History, index: int, dropped: list[Place]) -> int:
        """Return the tokens freed in a message, including its overhead if no part stays."""
        message = history[index]
        if dropped and len(dropped) == len(message.parts):
            return self.scale.message(message)
        weights = self.scale.parts(message)
        return sum(weights[place.part] for place in dropped)


def find_cut_points(history: History) -> list[int]:
    """Return the cut points of a history: its start and end, and starts of prompts and turns outside tool chains."""
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
    """Return the places of placeholders in the user message that opens the history."""
    first = next((i for i, message in enumerate(history.messages) if message.role != "system"), None)
    if first is None or history[first].role != "user":
        return set()
    parts = history[first].parts
    return {Place(first, j) for j, part in enumerate(parts) if isinstance(part, Text) and get_placeholder_id(part)}
