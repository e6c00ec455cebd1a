"""How much can be served at all, by any way that shows every text once and drops whole texts.

The ways that it holds for:
- each block is sent whole or not at all, in the first request that could hold it, and the tools go with each request;
- a block that was left out comes back only by a fetch, at a call that used it, and counts from the next request on.
`replay` fetches a block only where a call used something that it holds, so a way breaks the second only by showing
again, by itself, what it had left out.

The bound counts cells: one for each block and each request that holds it, of the block's weight. A call *uses* a block
if any of its needles stands there, whether it was served or not. Take a way, and of each call that it served some
needles no two of which share a source.
1. Each of these needles stood in a source b that the request held. A block comes in when it arrives or is fetched, and
   it is fetched only by calls that use it, so b was in all requests after the last call that used it before this one
   (or after the one that it arrived with) up to this one. These are the cells of the needle.
2. Cells of two needles differ. Of one call, they are of different blocks. Of two calls and different blocks, too. Of
   two calls and the same block b: the earlier call used b, so the later needle's cells begin after it.
3. No such cell is one of an arrival: they begin after it.
4. Which source it was, nobody knows; but the cells weigh no less than the cheapest of the sources would.
So the arrivals, and for each served call the sum of what is cheapest for its needles, are together no more than all
that was sent. That sum does not depend on the way: calls taken from the cheapest on give the greatest number that can
be served. It holds for many recordings together, and for any choice of needles; the dearest are chosen first.

To stay below every such way, a block weighs what its text does, without a message's frame, and no more than what a
fetch brings in its place. What might be served by no block costs nothing: needles that the tools' definitions hold, or
that a fetch words differently.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from itertools import accumulate
from math import ceil

from msgspec import Struct

from thresher.model import Part, ToolResult, part_text
from thresher.replay.conversation import ReplayConversation
from thresher.replay.recording import Recording
from thresher.replay.references import Reference, ReferenceIndex
from thresher.replay.residency import ResidencyChecker
from thresher.replay.trace import argument_values, block_text, strip_line_numbers
from thresher.store import InMemoryContentStore

ROUNDING_TOLERANCE = 1e-9
"""What a mean may be off by when it is multiplied again, as a share."""


class MinimumCost(Struct, frozen=True):
    """What a recording costs at the least; a cost is tokens, added up over requests."""

    calls: int
    arrivals: int
    """Tokens that must be sent, whatever is served: each block once, the tools each time."""
    costs: tuple[int, ...]
    """Of each call that used earlier text, what it takes to serve it; sorted."""

    @property
    def calls_with_references(self) -> int:
        """Calls that used earlier text."""
        return len(self.costs)


def compute_minimum_cost(recording: Recording, referee: ResidencyChecker) -> MinimumCost:
    """The least that one recording costs."""
    trace = recording.trace
    ground = _MinimumWeights(recording, referee)
    since = [block.visible for block in trace.blocks]
    costs = []
    for number, needles in enumerate(referee.references):
        if needles:
            costs.append(ground.cost(number, needles, since))
        for sources in {needle.sources for needle in needles}:
            for block in sources:
                since[block] = number
    shown = [trace.history.part(block.place) for block in trace.blocks if block.visible < len(trace.calls)]
    tools = recording.token_weights.tools(trace.history.tools) * len(trace.calls)
    return MinimumCost(len(trace.calls), tools + sum(map(recording.token_weights.part, shown)), tuple(sorted(costs)))


def most_served(floors: Iterable[MinimumCost], tokens_per_call: float) -> float:
    """The greatest share of calls that can be served at this mean; none where not even the arrivals fit."""
    calls, arrivals, costs = _pool_minimum_costs(floors)
    room = tokens_per_call * calls * (1 + ROUNDING_TOLERANCE) - arrivals
    if not costs:
        return 1.0
    return bisect_right(list(accumulate(costs)), room) / len(costs) if room >= 0 else 0.0


def least_tokens(floors: Iterable[MinimumCost], share: float) -> float:
    """The least mean of tokens per call at which this share of calls can be served."""
    calls, arrivals, costs = _pool_minimum_costs(floors)
    count = ceil(share * len(costs) * (1 - ROUNDING_TOLERANCE))
    return (arrivals + sum(costs[:count])) / calls if calls else 0.0


def _pool_minimum_costs(floors: Iterable[MinimumCost]) -> tuple[int, int, list[int]]:
    known = list(floors)
    costs = sorted(cost for one in known for cost in one.costs)
    return sum(one.calls for one in known), sum(one.arrivals for one in known), costs


class _MinimumWeights:
    """What the blocks of a recording weigh at the least, and which needles cost nothing."""

    def __init__(self, recording: Recording, referee: ResidencyChecker) -> None:
        history, blocks = recording.trace.history, recording.trace.blocks
        used = sorted({block for needles in referee.references for needle in needles for block in needle.sources})
        parts = [history.part(blocks[block].place) for block in used]
        fetched = _refetch_results(recording, parts)
        scale = recording.token_weights
        self._weights = {
            block: min(scale.part(part), scale.part(again))
            for block, part, again in zip(used, parts, fetched, strict=True)
        }
        own = {block.text for block in blocks}
        raw = {block: part_text(part) for block, part in zip(used, parts, strict=True)}
        # The referee takes a text for a result that had it with the numbers of its lines.
        self._ambiguous_blocks = {block for block, text in raw.items() if text != blocks[block].text and text in own}
        self._free_texts = ReferenceIndex()
        if history.tools:
            self._free_texts.add("\n".join((strip_line_numbers(history.tools), *argument_values(history.tools))))
        for block, again in zip(used, fetched, strict=True):
            if block_text(again) != blocks[block].text:
                self._free_texts.add(block_text(again))

    def cost(self, number: int, needles: Sequence[Reference], since: Sequence[int]) -> int:
        """What it takes to serve a call, given since when each block may have been gone."""
        charges: dict[AbstractSet[int], int] = {}
        for needle in needles:
            if needle.sources not in charges and not self._is_free(needle):
                charges[needle.sources] = min(self._weights[b] * (number - since[b]) for b in needle.sources)
        total, taken = 0, set[int]()
        for sources, charge in sorted(charges.items(), key=lambda item: (-item[1], len(item[0]))):
            if charge and taken.isdisjoint(sources):
                total += charge
                taken |= sources
        return total

    def _is_free(self, needle: Reference) -> bool:
        if self._ambiguous_blocks and not needle.sources.isdisjoint(self._ambiguous_blocks):
            return True
        return len(self._free_texts) > 0 and bool(self._free_texts.find_holders(needle.kind, needle.text))


def _refetch_results(recording: Recording, parts: Sequence[Part]) -> list[ToolResult]:
    """What a fetch brings for each part: a result that says the same, which may weigh less."""
    if not parts:
        return []
    feed = ReplayConversation(recording, InMemoryContentStore())
    feed.refetch(parts)
    return [part for number in feed.result_rows for part in feed.rows[number].parts if isinstance(part, ToolResult)]
