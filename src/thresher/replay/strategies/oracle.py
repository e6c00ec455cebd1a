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
from thresher.replay.conversation import ReplayConversation, RequestBuilder, RequestPiece
from thresher.replay.residency import ResidencyChecker
from thresher.replay.simulate import Strategy
from thresher.replay.strategies.baselines import LOW_WATER_SHARE
from thresher.replay.trace import strip_line_numbers


def oracle_strategy(budget: int) -> Strategy:
    """Before each call, drop what will not be used again, and then the worst until the rest fits."""

    def start(feed: ReplayConversation, referee: ResidencyChecker) -> RequestBuilder:
        seer = _OracleSelection(feed, referee)

        def ask(_: float | None) -> list[RequestPiece]:
            seer.take_new_messages()
            seer.drop_unused()
            seer.shrink_to(budget)
            return seer.build_request()

        return ask

    return Strategy("oracle", start, budget)


def batched_oracle_strategy(budget: int) -> Strategy:
    """Drop nothing until the budget is passed; then what will not be used again, and the worst until a share of it."""

    def start(feed: ReplayConversation, referee: ResidencyChecker) -> RequestBuilder:
        seer = _OracleSelection(feed, referee)

        def ask(_: float | None) -> list[RequestPiece]:
            seer.take_new_messages()
            if seer.tokens > budget:
                seer.drop_unused()
                seer.shrink_to(round(budget * LOW_WATER_SHARE))
            return seer.build_request()

        return ask

    return Strategy("oracle-batched", start, budget)


class _FutureUse(NamedTuple):
    """Needles of one call that stand in the same blocks."""

    number: int
    call: int
    sources: frozenset[int]
    reference_count: int
    available_from: int
    """The call that sees the newest of the sources: older copies need not last until then."""


class _FutureUses:
    """What will be used: the wants of all calls, by when and where one looks for them."""

    def __init__(self, referee: ResidencyChecker) -> None:
        self.by_call: list[list[_FutureUse]] = [[] for _ in referee.references]
        self.by_block: dict[int, list[_FutureUse]] = {}
        self.by_available_call: list[list[_FutureUse]] = [[] for _ in referee.references]
        number = 0
        for call, needles in enumerate(referee.references):
            for sources, count in Counter(needle.sources for needle in needles).items():
                wakes = referee.trace.blocks[max(sources)].visible
                want = _FutureUse(number, call, sources, count, wakes)
                number += 1
                self.by_call[call].append(want)
                self.by_available_call[wakes].append(want)
                for block in sources:
                    self.by_block.setdefault(block, []).append(want)


class _OracleSelection:
    """What is held, by the number of its block (what is no block has a negative one), and what for."""

    def __init__(self, feed: ReplayConversation, referee: ResidencyChecker) -> None:
        self._conversation = feed
        self._future = _FutureUses(referee)
        self._numbers = {block.place: number for number, block in enumerate(referee.trace.blocks)}
        self._newest_block_by_text: dict[str, int] = {}
        """The newest block of a text."""
        self._kept_pieces: dict[int, RequestPiece] = {}
        self._uses_by_block: dict[int, dict[int, list[_FutureUse]]] = {}
        """For a block that is held, the wants that count on it, by their call."""
        self._block_by_use: dict[int, int] = {}
        """The block that a want counts on."""
        self._call = -1
        self._messages = 0
        self._recorded_count = 0
        self._next_extra_number = 0
        self._new_blocks: set[int] = set()
        self.tokens = sum(piece.tokens for piece in feed.tool_pieces)

    def take_new_messages(self) -> None:
        """Take in what came, for the next call."""
        future = self._future
        for want in future.by_call[self._call] if self._call >= 0 else ():
            self._release(want)
        self._call += 1
        self._new_blocks = {
            number
            for message in self._conversation.messages[self._messages :]
            for number in self._keep_message(message)
        }
        self._messages = len(self._conversation.messages)
        for want in future.by_available_call[self._call]:
            self._assign(want)

    def drop_unused(self) -> None:
        """Drop what is old and of no use any more."""
        for number in [
            number
            for number in self._kept_pieces
            if number not in self._uses_by_block and number not in self._new_blocks
        ]:
            self._drop(number)

    def shrink_to(self, low: int) -> None:
        """Drop what is old, the worst first, until so much is left."""
        if self.tokens <= low:
            return
        worst = [(-self._score(number), number) for number in self._kept_pieces if number not in self._new_blocks]
        heapify(worst)
        while self.tokens > low and worst:
            score, number = heappop(worst)
            # A want that lost its copy may count on this one since.
            if -self._score(number) > score:
                heappush(worst, (-self._score(number), number))
            else:
                self._drop(number)

    def build_request(self) -> list[RequestPiece]:
        """What is held, in the order that it came in."""
        return [*self._conversation.tool_pieces, *self._kept_pieces.values()]

    def _score(self, number: int) -> float:
        due = self._uses_by_block.get(number)
        if due is None:
            return inf
        call = min(due)
        return (
            (call + 1 - self._call) * self._kept_pieces[number].tokens / sum(want.reference_count for want in due[call])
        )

    def _keep_message(self, message: Message) -> Iterator[int]:
        """Hold the pieces of a message; one that was not recorded brings a block again."""
        messages = self._conversation.recording.trace.history.messages
        recorded = self._recorded_count < len(messages) and messages[self._recorded_count] is message
        for index, piece in enumerate(self._conversation.make_message_pieces(message)):
            found = (
                self._numbers.get(Place(self._recorded_count, index))
                if recorded
                else self._newest_block_by_text.get(piece.text)
            )
            if found is None or found in self._kept_pieces:
                self._next_extra_number -= 1
                found = self._next_extra_number
            elif recorded:
                self._newest_block_by_text[strip_line_numbers(piece.text)] = self._newest_block_by_text[piece.text] = (
                    found
                )
            self._kept_pieces[found] = piece
            self.tokens += piece.tokens
            for want in () if recorded else self._future.by_block.get(found, ()):
                if want.available_from < self._call <= want.call and want.number not in self._block_by_use:
                    self._assign(want)
            yield found
        self._recorded_count += recorded

    def _assign(self, want: _FutureUse) -> None:
        """Let a want count on the lightest copy, if there is one."""
        held = [number for number in want.sources if number in self._kept_pieces]
        if held:
            number = min(held, key=lambda one: (self._kept_pieces[one].tokens, one))
            self._block_by_use[want.number] = number
            self._uses_by_block.setdefault(number, {}).setdefault(want.call, []).append(want)

    def _drop(self, number: int) -> None:
        self.tokens -= self._kept_pieces.pop(number).tokens
        for wants in self._uses_by_block.pop(number, {}).values():
            for want in wants:
                del self._block_by_use[want.number]
                self._assign(want)

    def _release(self, want: _FutureUse) -> None:
        """Its call is over."""
        number = self._block_by_use.pop(want.number, None)
        # The first of the wants of one call takes the others along.
        if number is not None and (due := self._uses_by_block.get(number)) is not None:
            due.pop(want.call, None)
            if not due:
                del self._uses_by_block[number]
