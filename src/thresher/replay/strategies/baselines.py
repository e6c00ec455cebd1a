"""Ways that look at nothing but age, weight and chance: what a policy has to beat.

All but `full_history_strategy` keep the head (system text and the first request) and what came since the last call, so
every text is shown once; of the rest they drop whole messages, never to show them again, and cut only where a request
may begin, so that calls keep their results. A window that moves with every call is never cached; the batched ones grow
until they weigh more than their budget and then fall well below it, so that the next calls go on from the same
beginning.
"""

from collections.abc import Callable, Iterator
from itertools import chain
from random import Random

from thresher.replay.conversation import ReplayConversation, RequestBuilder, RequestPiece
from thresher.replay.residency import ResidencyChecker
from thresher.replay.simulate import Strategy

LOW_WATER_SHARE = 5 / 12
"""Where a batched way falls to, as a share of its budget: from 60,000 tokens to 25,000."""


def full_history_strategy() -> Strategy:
    """All that has come."""
    return Strategy("full", lambda feed, _: lambda _: feed.all_pieces())


def recency_strategy(budget: int) -> Strategy:
    """The newest messages that fit, call by call."""
    return Strategy("recency", _make_window_start(budget, budget), budget)


def newest_batched_strategy(budget: int) -> Strategy:
    """The newest messages, in batches."""
    return Strategy("newest-batched", _make_window_start(budget, round(budget * LOW_WATER_SHARE)), budget)


def random_strategy(budget: int, seed: int) -> Strategy:
    """Any messages, in batches; a recording and a seed always make the same choice."""

    def start(feed: ReplayConversation, _: ResidencyChecker) -> RequestBuilder:
        lottery = _RandomSelection(feed, Random(f"{seed} {feed.recording.trace.name}"))

        def ask(_: float | None) -> list[RequestPiece]:
            lottery.take_new_messages()
            if lottery.tokens > budget:
                lottery.shrink_to(round(budget * LOW_WATER_SHARE))
            return lottery.build_request()

        return ask

    return Strategy("random", start, budget)


def _make_window_start(high: int, low: int) -> Callable[[ReplayConversation, ResidencyChecker], RequestBuilder]:
    def start(feed: ReplayConversation, _: ResidencyChecker) -> RequestBuilder:
        window = _SlidingWindow(feed)

        def ask(_: float | None) -> list[RequestPiece]:
            window.take_new_messages()
            if window.tokens > high:
                window.shrink_to(low)
            return feed.pieces_since(window.first_kept)

        return ask

    return start


class _SlidingWindow:
    """The head, and the messages from one on; its beginning only moves forward."""

    def __init__(self, feed: ReplayConversation) -> None:
        self._conversation = feed
        self.first_kept = 0
        self._safe_starts_passed = 0
        """How many of the safe messages the beginning has passed or stands at."""
        self._first_new = 0
        """The first message that came since the last call."""
        self._message_count = 0
        self._kept_tokens = 0
        """What the messages from the beginning on weigh."""

    @property
    def tokens(self) -> int:
        """What is sent now."""
        feed = self._conversation
        beside = sum(piece.tokens for piece in feed.tool_pieces)
        return (
            self._kept_tokens
            + beside
            + sum(feed.message_tokens[number] for number in feed.head_messages if number < self.first_kept)
        )

    def take_new_messages(self) -> None:
        """Take in what came."""
        self._first_new, self._message_count = self._message_count, len(self._conversation.messages)
        self._kept_tokens += sum(self._conversation.message_tokens[self._first_new : self._message_count])

    def shrink_to(self, low: int) -> None:
        """Begin later, until so much is left; what is new stays."""
        safe = self._conversation.safe_starts
        while (
            self.tokens > low
            and self._safe_starts_passed < len(safe)
            and safe[self._safe_starts_passed] <= self._first_new
        ):
            self._kept_tokens -= sum(
                self._conversation.message_tokens[self.first_kept : safe[self._safe_starts_passed]]
            )
            self.first_kept = safe[self._safe_starts_passed]
            self._safe_starts_passed += 1


class _RandomSelection:
    """Units of messages, of which chance takes one after another; a unit is what stands between two safe beginnings."""

    def __init__(self, feed: ReplayConversation, chance: Random) -> None:
        self._conversation = feed
        self._random = chance
        self._kept_units: list[range] = []
        """Units that are all old, and what is left of them: their messages."""
        self._head_ranges: list[range] = []
        self._first_ungrouped = 0
        """The first message of no such unit."""
        self._safe_starts_passed = 0
        """How many of the safe messages it has passed or stands at."""
        self._first_new = 0
        self._message_count = 0
        self.tokens = sum(piece.tokens for piece in feed.tool_pieces)

    def take_new_messages(self) -> None:
        """Take in what came."""
        feed = self._conversation
        self._first_new, self._message_count = self._message_count, len(feed.messages)
        self.tokens += sum(feed.message_tokens[self._first_new : self._message_count])
        while (
            self._safe_starts_passed < len(feed.safe_starts)
            and feed.safe_starts[self._safe_starts_passed] <= self._first_new
        ):
            self._kept_units.append(range(self._first_ungrouped, feed.safe_starts[self._safe_starts_passed]))
            self._first_ungrouped = feed.safe_starts[self._safe_starts_passed]
            self._safe_starts_passed += 1

    def shrink_to(self, low: int) -> None:
        """Drop units until so much is left; the head stays, and so does what is new."""
        self._random.shuffle(self._kept_units)
        while self.tokens > low and self._kept_units:
            for number in self._kept_units.pop():
                if number in self._conversation.head_messages:
                    self._head_ranges.append(range(number, number + 1))
                else:
                    self.tokens -= self._conversation.message_tokens[number]
        self._kept_units.sort(key=lambda unit: unit.start)

    def build_request(self) -> list[RequestPiece]:
        """What is left, in its order."""
        old = sorted([*self._head_ranges, *self._kept_units], key=lambda unit: unit.start)
        spans = [*old, range(self._first_ungrouped, self._message_count)]
        return [*self._conversation.tool_pieces, *chain.from_iterable(map(self._range_pieces, spans))]

    def _range_pieces(self, messages: range) -> Iterator[RequestPiece]:
        rows, starts = self._conversation.rows, self._conversation.starts
        start, stop = (starts[end] if end < len(starts) else len(rows) for end in (messages.start, messages.stop))
        return chain.from_iterable(row.pieces for row in rows[start:stop])
