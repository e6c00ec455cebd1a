"""What could be kept if one knew what will be used: a way to measure all those by that have to guess.

The clairvoyant knows the needles of all calls to come. One copy of each is enough, and none is needed as long as a
newer one is still to arrive: each needle counts on the lightest block that holds it. Where not all fits, that goes
first whose next use is far, heavy and little: requests until then × tokens ÷ needles served there. It is no optimum
(`bound` says what nobody can pass), only a plan that can be carried out.

It drops single parts and asks nobody whether a request without them is legal: calls lose their results, system text
goes when nothing will quote it. So it is a stronger yardstick than any way that an API would take. What came since the
last call is always shown, and what a fetch brings back is the block that it was.
"""

from collections import Counter
from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from math import inf
from typing import NamedTuple

from thresher.model import Message, Place
from thresher.replay.controls import LOW
from thresher.replay.feed import Ask, Feed, Piece
from thresher.replay.outcome import Referee
from thresher.replay.run import Way
from thresher.replay.trace import unnumbered


def oracle(budget: int) -> Way:
    """Before each call, drop what will not be used again, and then the worst until the rest fits."""

    def start(feed: Feed, referee: Referee) -> Ask:
        seer = _Seer(feed, referee)

        def ask(_: float | None) -> list[Piece]:
            seer.come()
            seer.shed()
            seer.fall(budget)
            return seer.sent()

        return ask

    return Way("oracle", start, budget)


def batched_oracle(budget: int) -> Way:
    """Drop nothing until the budget is passed; then what will not be used again, and the worst until a share of it."""

    def start(feed: Feed, referee: Referee) -> Ask:
        seer = _Seer(feed, referee)

        def ask(_: float | None) -> list[Piece]:
            seer.come()
            if seer.tokens > budget:
                seer.shed()
                seer.fall(round(budget * LOW))
            return seer.sent()

        return ask

    return Way("oracle-batched", start, budget)


class _Want(NamedTuple):
    """Needles of one call that stand in the same blocks."""

    number: int
    call: int
    sources: frozenset[int]
    needles: int
    wakes: int
    """The call that sees the newest of the sources: older copies need not last until then."""


class _Future:
    """What will be used: the wants of all calls, by when and where one looks for them."""

    def __init__(self, referee: Referee) -> None:
        self.of_call: list[list[_Want]] = [[] for _ in referee.needles]
        self.of_block: dict[int, list[_Want]] = {}
        self.woken: list[list[_Want]] = [[] for _ in referee.needles]
        number = 0
        for call, needles in enumerate(referee.needles):
            for sources, count in Counter(needle.sources for needle in needles).items():
                wakes = referee.trace.blocks[max(sources)].visible
                want = _Want(number, call, sources, count, wakes)
                number += 1
                self.of_call[call].append(want)
                self.woken[wakes].append(want)
                for block in sources:
                    self.of_block.setdefault(block, []).append(want)


class _Seer:
    """What is held, by the number of its block (what is no block has a negative one), and what for."""

    def __init__(self, feed: Feed, referee: Referee) -> None:
        self._feed = feed
        self._future = _Future(referee)
        self._numbers = {block.place: number for number, block in enumerate(referee.trace.blocks)}
        self._known: dict[str, int] = {}
        """The newest block of a text."""
        self._held: dict[int, Piece] = {}
        self._due: dict[int, dict[int, list[_Want]]] = {}
        """For a block that is held, the wants that count on it, by their call."""
        self._holder: dict[int, int] = {}
        """The block that a want counts on."""
        self._call = -1
        self._messages = 0
        self._recorded = 0
        self._spare = 0
        self._new: set[int] = set()
        self.tokens = sum(piece.tokens for piece in feed.tools)

    def come(self) -> None:
        """Take in what came, for the next call."""
        future = self._future
        for want in future.of_call[self._call] if self._call >= 0 else ():
            self._release(want)
        self._call += 1
        self._new = {number for message in self._feed.messages[self._messages :] for number in self._take(message)}
        self._messages = len(self._feed.messages)
        for want in future.woken[self._call]:
            self._assign(want)

    def shed(self) -> None:
        """Drop what is old and of no use any more."""
        for number in [number for number in self._held if number not in self._due and number not in self._new]:
            self._drop(number)

    def fall(self, low: int) -> None:
        """Drop what is old, the worst first, until so much is left."""
        if self.tokens <= low:
            return
        worst = [(-self._score(number), number) for number in self._held if number not in self._new]
        heapify(worst)
        while self.tokens > low and worst:
            score, number = heappop(worst)
            # A want that lost its copy may count on this one since.
            if -self._score(number) > score:
                heappush(worst, (-self._score(number), number))
            else:
                self._drop(number)

    def sent(self) -> list[Piece]:
        """What is held, in the order that it came in."""
        return [*self._feed.tools, *self._held.values()]

    def _score(self, number: int) -> float:
        due = self._due.get(number)
        if due is None:
            return inf
        call = min(due)
        return (call + 1 - self._call) * self._held[number].tokens / sum(want.needles for want in due[call])

    def _take(self, message: Message) -> Iterator[int]:
        """Hold the pieces of a message; one that was not recorded brings a block again."""
        messages = self._feed.recording.trace.history.messages
        recorded = self._recorded < len(messages) and messages[self._recorded] is message
        for index, piece in enumerate(self._feed.message(message)):
            found = self._numbers.get(Place(self._recorded, index)) if recorded else self._known.get(piece.text)
            if found is None or found in self._held:
                self._spare -= 1
                found = self._spare
            elif recorded:
                self._known[unnumbered(piece.text)] = self._known[piece.text] = found
            self._held[found] = piece
            self.tokens += piece.tokens
            for want in () if recorded else self._future.of_block.get(found, ()):
                if want.wakes < self._call <= want.call and want.number not in self._holder:
                    self._assign(want)
            yield found
        self._recorded += recorded

    def _assign(self, want: _Want) -> None:
        """Let a want count on the lightest copy, if there is one."""
        held = [number for number in want.sources if number in self._held]
        if held:
            number = min(held, key=lambda one: (self._held[one].tokens, one))
            self._holder[want.number] = number
            self._due.setdefault(number, {}).setdefault(want.call, []).append(want)

    def _drop(self, number: int) -> None:
        self.tokens -= self._held.pop(number).tokens
        for wants in self._due.pop(number, {}).values():
            for want in wants:
                del self._holder[want.number]
                self._assign(want)

    def _release(self, want: _Want) -> None:
        """Its call is over."""
        number = self._holder.pop(want.number, None)
        # The first of the wants of one call takes the others along.
        if number is not None and (due := self._due.get(number)) is not None:
            due.pop(want.call, None)
            if not due:
                del self._due[number]
