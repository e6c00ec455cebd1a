"""Oracle strategies, which know the future references: a benchmark for strategies that have to guess.

The oracle knows the references of all later calls. A reference needs only one source in the request, and older sources
are not needed before the newest one has appeared. Each use is therefore assigned to the lightest kept block that
contains its references. If the blocks exceed the budget, the oracle first drops the worst block. The worst block has
the highest score: its tokens, times the calls until its next use, divided by the references that this use serves. This
is a greedy heuristic, not an optimum; `upper_bound` calculates the limit that no strategy exceeds.

The oracle drops single parts and does not check whether an API would accept the request: calls may lose their results,
and unused system text is dropped. It can therefore do better than any strategy whose requests an API accepts. It always
sends everything since the last call, and treats a refetched text as the block that it copies.
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
    """Before each call, drop unused blocks, then the worst ones until the rest fits."""
    return _make_strategy("oracle", budget, trigger=-1, low=budget)


def batched_oracle_strategy(budget: int) -> Strategy:
    """If a request exceeds the budget, drop unused blocks, then the worst ones until a share of the budget is left."""
    return _make_strategy("oracle-batched", budget, trigger=budget, low=round(budget * LOW_WATER_SHARE))


def _make_strategy(name: str, budget: int, *, trigger: int, low: int) -> Strategy:
    def start(conversation: ReplayConversation, checker: ResidencyChecker) -> RequestBuilder:
        selection = _OracleSelection(conversation, checker)

        def build_request(_: float | None) -> list[RequestPiece]:
            selection.take_new_messages()
            if selection.tokens > trigger:
                selection.drop_unused()
                selection.shrink_to(low)
            return selection.build_request()

        return build_request

    return Strategy(name, start, budget)


class _FutureUse(NamedTuple):
    """References of one call that have the same sources."""

    number: int
    call: int
    sources: frozenset[int]
    reference_count: int
    available_from: int
    """The first call that sees the newest source; older copies are not needed before it."""


class _FutureUses:
    """The uses of all calls, indexed by call, by block and by first availability."""

    def __init__(self, checker: ResidencyChecker) -> None:
        self.by_call: list[list[_FutureUse]] = [[] for _ in checker.references]
        self.by_block: dict[int, list[_FutureUse]] = {}
        self.by_available_call: list[list[_FutureUse]] = [[] for _ in checker.references]
        number = 0
        for call, references in enumerate(checker.references):
            for sources, count in Counter(reference.sources for reference in references).items():
                wakes = checker.trace.blocks[max(sources)].visible
                use = _FutureUse(number, call, sources, count, wakes)
                number += 1
                self.by_call[call].append(use)
                self.by_available_call[wakes].append(use)
                for block in sources:
                    self.by_block.setdefault(block, []).append(use)


class _OracleSelection:
    """The kept pieces by block number (negative if not a block), and the future uses assigned to them."""

    def __init__(self, conversation: ReplayConversation, checker: ResidencyChecker) -> None:
        self._conversation = conversation
        self._future = _FutureUses(checker)
        self._numbers = {block.place: number for number, block in enumerate(checker.trace.blocks)}
        self._newest_block_by_text: dict[str, int] = {}
        """The newest block of each text."""
        self._kept_pieces: dict[int, RequestPiece] = {}
        self._uses_by_block: dict[int, dict[int, list[_FutureUse]]] = {}
        """For each kept block, the uses assigned to it, by call."""
        self._block_by_use: dict[int, int] = {}
        """The block that each use is assigned to."""
        self._call = -1
        self._messages = 0
        self._recorded_count = 0
        self._next_extra_number = 0
        self._new_blocks: set[int] = set()
        self.tokens = sum(piece.tokens for piece in conversation.tool_pieces)

    def take_new_messages(self) -> None:
        """Add the messages since the last call and move on to the next call."""
        future = self._future
        for use in future.by_call[self._call] if self._call >= 0 else ():
            self._release(use)
        self._call += 1
        self._new_blocks = {
            number
            for message in self._conversation.messages[self._messages :]
            for number in self._keep_message(message)
        }
        self._messages = len(self._conversation.messages)
        for use in future.by_available_call[self._call]:
            self._assign(use)

    def drop_unused(self) -> None:
        """Drop old blocks without a future use."""
        for number in self._kept_pieces.keys() - self._uses_by_block.keys() - self._new_blocks:
            self._drop(number)

    def shrink_to(self, low: int) -> None:
        """Drop old blocks, the worst first, until at most `low` tokens remain."""
        if self.tokens <= low:
            return
        worst = [(-self._score(number), number) for number in self._kept_pieces if number not in self._new_blocks]
        heapify(worst)
        while self.tokens > low and worst:
            score, number = heappop(worst)
            # This block may have received uses of blocks that were dropped since its score was computed.
            if -self._score(number) > score:
                heappush(worst, (-self._score(number), number))
            else:
                self._drop(number)

    def build_request(self) -> list[RequestPiece]:
        """Return the kept pieces in order."""
        return [*self._conversation.tool_pieces, *self._kept_pieces.values()]

    def _score(self, number: int) -> float:
        due = self._uses_by_block.get(number)
        if due is None:
            return inf
        call = min(due)
        references = sum(use.reference_count for use in due[call])
        return (call + 1 - self._call) * self._kept_pieces[number].tokens / references

    def _keep_message(self, message: Message) -> Iterator[int]:
        """Keep the pieces of a message and yield their numbers. A refetched text counts as its block."""
        messages = self._conversation.recording.trace.history.messages
        is_recorded = self._recorded_count < len(messages) and messages[self._recorded_count] is message
        for index, piece in enumerate(self._conversation.make_message_pieces(message)):
            if is_recorded:
                number = self._numbers.get(Place(self._recorded_count, index))
            else:
                number = self._newest_block_by_text.get(piece.text)
            if number is None or number in self._kept_pieces:
                self._next_extra_number -= 1
                number = self._next_extra_number
            elif is_recorded:
                self._newest_block_by_text |= {strip_line_numbers(piece.text): number, piece.text: number}
            self._kept_pieces[number] = piece
            self.tokens += piece.tokens
            for use in () if is_recorded else self._future.by_block.get(number, ()):
                if use.available_from < self._call <= use.call and use.number not in self._block_by_use:
                    self._assign(use)
            yield number
        self._recorded_count += is_recorded

    def _assign(self, use: _FutureUse) -> None:
        """Assign a use to the lightest of its sources that are kept, if any."""
        kept = [(self._kept_pieces[number].tokens, number) for number in use.sources if number in self._kept_pieces]
        if kept:
            _, number = min(kept)
            self._block_by_use[use.number] = number
            self._uses_by_block.setdefault(number, {}).setdefault(use.call, []).append(use)

    def _drop(self, number: int) -> None:
        self.tokens -= self._kept_pieces.pop(number).tokens
        for uses in self._uses_by_block.pop(number, {}).values():
            for use in uses:
                del self._block_by_use[use.number]
                self._assign(use)

    def _release(self, use: _FutureUse) -> None:
        """Remove a use whose call is over."""
        number = self._block_by_use.pop(use.number, None)
        # Releasing the first use of a call also removes the other uses of that call.
        if number is not None and (due := self._uses_by_block.get(number)) is not None:
            due.pop(use.call, None)
            if not due:
                del self._uses_by_block[number]
