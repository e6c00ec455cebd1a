"""Ways that look at nothing but age, weight and chance: what a policy has to beat.

All but `full` keep the head (system text and the first request) and what came since the last call, so every text is
shown once; of the rest they drop whole messages, never to show them again, and cut only where a request may begin, so
that calls keep their results. A window that moves with every call is never cached; the batched ones grow until they
weigh more than their budget and then fall well below it, so that the next calls go on from the same beginning.
"""

from collections.abc import Callable, Iterator
from itertools import chain
from random import Random

from thresher.replay.feed import Ask, Feed, Piece
from thresher.replay.outcome import Referee
from thresher.replay.run import Way

LOW = 5 / 12
"""Where a batched way falls to, as a share of its budget: from 60,000 tokens to 25,000."""


def full() -> Way:
    """All that has come."""
    return Way("full", lambda feed, _: lambda _: feed.whole())


def recency(budget: int) -> Way:
    """The newest messages that fit, call by call."""
    return Way("recency", _window(budget, budget), budget)


def newest(budget: int) -> Way:
    """The newest messages, in batches."""
    return Way("newest-batched", _window(budget, round(budget * LOW)), budget)


def random_window(budget: int, seed: int) -> Way:
    """Any messages, in batches; a recording and a seed always make the same choice."""

    def start(feed: Feed, _: Referee) -> Ask:
        lottery = _Lottery(feed, Random(f"{seed} {feed.recording.trace.name}"))

        def ask(_: float | None) -> list[Piece]:
            lottery.come()
            if lottery.tokens > budget:
                lottery.fall(round(budget * LOW))
            return lottery.sent()

        return ask

    return Way("random", start, budget)


def _window(high: int, low: int) -> Callable[[Feed, Referee], Ask]:
    def start(feed: Feed, _: Referee) -> Ask:
        window = _Window(feed)

        def ask(_: float | None) -> list[Piece]:
            window.come()
            if window.tokens > high:
                window.fall(low)
            return feed.since(window.begin)

        return ask

    return start


class _Window:
    """The head, and the messages from one on; its beginning only moves forward."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self.begin = 0
        self._cut = 0
        """How many of the safe messages the beginning has passed or stands at."""
        self._new = 0
        """The first message that came since the last call."""
        self._come = 0
        self._rest = 0
        """What the messages from the beginning on weigh."""

    @property
    def tokens(self) -> int:
        """What is sent now."""
        feed = self._feed
        beside = sum(piece.tokens for piece in feed.tools)
        return self._rest + beside + sum(feed.weights[number] for number in feed.head if number < self.begin)

    def come(self) -> None:
        """Take in what came."""
        self._new, self._come = self._come, len(self._feed.messages)
        self._rest += sum(self._feed.weights[self._new : self._come])

    def fall(self, low: int) -> None:
        """Begin later, until so much is left; what is new stays."""
        safe = self._feed.safe
        while self.tokens > low and self._cut < len(safe) and safe[self._cut] <= self._new:
            self._rest -= sum(self._feed.weights[self.begin : safe[self._cut]])
            self.begin = safe[self._cut]
            self._cut += 1


class _Lottery:
    """Units of messages, of which chance takes one after another; a unit is what stands between two safe beginnings."""

    def __init__(self, feed: Feed, chance: Random) -> None:
        self._feed = feed
        self._chance = chance
        self._kept: list[range] = []
        """Units that are all old, and what is left of them: their messages."""
        self._heads: list[range] = []
        self._rest = 0
        """The first message of no such unit."""
        self._cut = 0
        """How many of the safe messages it has passed or stands at."""
        self._new = 0
        self._come = 0
        self.tokens = sum(piece.tokens for piece in feed.tools)

    def come(self) -> None:
        """Take in what came."""
        feed = self._feed
        self._new, self._come = self._come, len(feed.messages)
        self.tokens += sum(feed.weights[self._new : self._come])
        while self._cut < len(feed.safe) and feed.safe[self._cut] <= self._new:
            self._kept.append(range(self._rest, feed.safe[self._cut]))
            self._rest = feed.safe[self._cut]
            self._cut += 1

    def fall(self, low: int) -> None:
        """Drop units until so much is left; the head stays, and so does what is new."""
        self._chance.shuffle(self._kept)
        while self.tokens > low and self._kept:
            for number in self._kept.pop():
                if number in self._feed.head:
                    self._heads.append(range(number, number + 1))
                else:
                    self.tokens -= self._feed.weights[number]
        self._kept.sort(key=lambda unit: unit.start)

    def sent(self) -> list[Piece]:
        """What is left, in its order."""
        old = sorted([*self._heads, *self._kept], key=lambda unit: unit.start)
        spans = [*old, range(self._rest, self._come)]
        return [*self._feed.tools, *chain.from_iterable(map(self._pieces, spans))]

    def _pieces(self, messages: range) -> Iterator[Piece]:
        rows, starts = self._feed.rows, self._feed.starts
        start, stop = (starts[end] if end < len(starts) else len(rows) for end in (messages.start, messages.stop))
        return chain.from_iterable(row.pieces for row in rows[start:stop])
