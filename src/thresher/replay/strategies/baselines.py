"""Baselines that use only age, size and chance: the strategies that a policy has to beat.

All except `full_history_strategy` keep the head (system text and the first user message) and everything since the last
call, so every text is sent at least once. From the rest they drop whole messages for good, and only at positions where
a request may start, so that calls keep their results. A window that moves with every call breaks the cached prefix. The
batched baselines grow until they exceed the budget and then shrink well below it, so that the following requests share
a prefix.
"""

from collections.abc import Callable
from random import Random

from thresher.replay.conversation import ReplayConversation, RequestBuilder, RequestPiece
from thresher.replay.residency import ResidencyChecker
from thresher.replay.simulate import Strategy

LOW_WATER_SHARE = 5 / 12
"""Share of the budget that a batched strategy shrinks to: 25,000 of 60,000 tokens."""


def full_history_strategy() -> Strategy:
    """Send the full history."""
    return Strategy("full", lambda conversation, _: lambda _: conversation.all_pieces())


def recency_strategy(budget: int) -> Strategy:
    """Send the newest messages that fit. Choose them again at every call."""
    return _shrinking_strategy("recency", _SlidingWindow, budget, budget)


def newest_batched_strategy(budget: int) -> Strategy:
    """Send the newest messages; drop old ones in batches."""
    return _shrinking_strategy("newest-batched", _SlidingWindow, budget, round(budget * LOW_WATER_SHARE))


def random_strategy(budget: int, seed: int) -> Strategy:
    """Drop random messages in batches. The choice depends only on the recording and the seed."""

    def select(conversation: ReplayConversation) -> _RandomSelection:
        return _RandomSelection(conversation, Random(f"{seed} {conversation.recording.trace.name}"))

    return _shrinking_strategy("random", select, budget, round(budget * LOW_WATER_SHARE))


def _shrinking_strategy(
    name: str, select: "Callable[[ReplayConversation], _SlidingWindow | _RandomSelection]", budget: int, low: int
) -> Strategy:
    def start(conversation: ReplayConversation, _: ResidencyChecker) -> RequestBuilder:
        selection = select(conversation)

        def build_request(_: float | None) -> list[RequestPiece]:
            selection.take_new_messages()
            if selection.tokens > budget:
                selection.shrink_to(low)
            return selection.build_request()

        return build_request

    return Strategy(name, start, budget)


class _SlidingWindow:
    """The head and all messages from `first_kept` on. `first_kept` never decreases."""

    def __init__(self, conversation: ReplayConversation) -> None:
        self._conversation = conversation
        self.first_kept = 0
        self._safe_starts_passed = 0
        """Number of safe starts up to `first_kept`."""
        self._first_new = 0
        """The first message since the last call."""
        self._message_count = 0
        self._kept_tokens = 0
        """Token count of the messages from `first_kept` on."""

    @property
    def tokens(self) -> int:
        """Token count of the request."""
        conversation = self._conversation
        head = (number for number in conversation.head_messages if number < self.first_kept)
        head_tokens = sum(conversation.message_tokens[number] for number in head)
        return self._kept_tokens + head_tokens + sum(piece.tokens for piece in conversation.tool_pieces)

    def take_new_messages(self) -> None:
        """Add the messages since the last call."""
        self._first_new, self._message_count = self._message_count, len(self._conversation.messages)
        self._kept_tokens += sum(self._conversation.message_tokens[self._first_new : self._message_count])

    def shrink_to(self, low: int) -> None:
        """Move the start forward until at most `low` tokens remain; new messages stay."""
        for start in self._conversation.safe_starts[self._safe_starts_passed :]:
            if self.tokens <= low or start > self._first_new:
                return
            self._kept_tokens -= sum(self._conversation.message_tokens[self.first_kept : start])
            self.first_kept = start
            self._safe_starts_passed += 1

    def build_request(self) -> list[RequestPiece]:
        """Return the head and the kept messages."""
        return self._conversation.pieces_since(self.first_kept)


class _RandomSelection:
    """A random selection of units. A unit is the messages between two safe starts."""

    def __init__(self, conversation: ReplayConversation, chance: Random) -> None:
        self._conversation = conversation
        self._random = chance
        self._kept_units: list[range] = []
        """Units of old messages that are still sent."""
        self._head_ranges: list[range] = []
        self._first_ungrouped = 0
        """The first message that is not yet in a unit."""
        self._safe_starts_passed = 0
        """Number of safe starts up to `_first_ungrouped`."""
        self._first_new = 0
        self._message_count = 0
        self.tokens = sum(piece.tokens for piece in conversation.tool_pieces)

    def take_new_messages(self) -> None:
        """Add the messages since the last call."""
        conversation = self._conversation
        self._first_new, self._message_count = self._message_count, len(conversation.messages)
        self.tokens += sum(conversation.message_tokens[self._first_new : self._message_count])
        for start in conversation.safe_starts[self._safe_starts_passed :]:
            if start > self._first_new:
                break
            self._kept_units.append(range(self._first_ungrouped, start))
            self._first_ungrouped = start
            self._safe_starts_passed += 1

    def shrink_to(self, low: int) -> None:
        """Drop random units until at most `low` tokens remain; the head and new messages stay."""
        self._random.shuffle(self._kept_units)
        while self.tokens > low and self._kept_units:
            for number in self._kept_units.pop():
                if number in self._conversation.head_messages:
                    self._head_ranges.append(range(number, number + 1))
                else:
                    self.tokens -= self._conversation.message_tokens[number]
        self._kept_units.sort(key=lambda unit: unit.start)

    def build_request(self) -> list[RequestPiece]:
        """Return the remaining messages in order."""
        old = sorted([*self._head_ranges, *self._kept_units], key=lambda unit: unit.start)
        return self._conversation.pieces_of([*old, range(self._first_ungrouped, self._message_count)])
