"""Upper bound on the share of calls that a strategy can serve.

It applies to strategies that send every text at least once and drop only whole texts.

The bound holds for a strategy if:
- each block is sent whole or not at all, it is in the first request that could contain it, and the tool definitions are
  in every request;
- a dropped block returns only by a refetch, at a call that used it, and counts from the next request on.
A replay refetches a block only if a call used something in it, so a strategy violates the second condition only if it
sends a dropped block again by itself.

The bound counts cells: one for each block and each request that contains it, weighted by the block's tokens. A call
*uses* a block if the block is a source of any of its references, served or not. Take any strategy. For each served
call, choose references of which no two share a source.
1. Each of these references had a source b in the request. A block enters a request when it appears or is refetched, and
   only calls that use it refetch it. So b was in all requests after the last call that used it before this one (or
   after the request in which it appeared) up to this one. These are the cells of the reference.
2. The cells of two references differ. Within one call they belong to different blocks. The same holds for two calls and
   different blocks. For two calls and the same block b, the earlier call used b, so the cells of the later reference
   start after it.
3. None of these cells is the first appearance of a block, since they start after it.
4. The source is unknown, but the cells weigh at least as much as those of the cheapest source.
So the first appearances, plus for each served call the sum of the cheapest cells of its references, are at most the
total number of tokens sent. The sum of a call does not depend on the strategy, so serving the calls with the lowest
sums gives the maximum number of served calls. The bound holds for several recordings together and for any choice of
references; the code chooses the most expensive references first.

So that the bound holds for every such strategy, a block weighs only its text, without the message overhead, and at most
as much as its refetched copy. A reference that may be served without its block costs nothing: it is in the tool
definitions, or in a refetched text that differs from its block.
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
"""Relative rounding error allowed when a mean is multiplied by its count."""


class MinimumCost(Struct, frozen=True):
    """The minimum cost of a recording, in tokens summed over requests."""

    calls: int
    arrivals: int
    """Tokens that every strategy sends: each block once, and the tool definitions in every request."""
    costs: tuple[int, ...]
    """For each call with references, the minimum number of tokens to serve it, sorted."""

    @property
    def calls_with_references(self) -> int:
        """Number of calls that reuse earlier text."""
        return len(self.costs)


def compute_minimum_cost(recording: Recording, checker: ResidencyChecker) -> MinimumCost:
    """Return the minimum cost of one recording."""
    trace = recording.trace
    ground = _MinimumWeights(recording, checker)
    since = [block.visible for block in trace.blocks]
    costs = []
    for number, references in enumerate(checker.references):
        if references:
            costs.append(ground.cost(number, references, since))
        for sources in {reference.sources for reference in references}:
            for block in sources:
                since[block] = number
    shown = [trace.history.part(block.place) for block in trace.blocks if block.visible < len(trace.calls)]
    tools = recording.token_weights.tools(trace.history.tools) * len(trace.calls)
    return MinimumCost(len(trace.calls), tools + sum(map(recording.token_weights.part, shown)), tuple(sorted(costs)))


def most_served(minimum_costs: Iterable[MinimumCost], tokens_per_call: float) -> float:
    """Return the maximum share of calls that can be served with this mean number of tokens per call.

    Each block must be sent at least once, when it is new. Return 0 if that alone exceeds the mean.
    """
    calls, arrivals, costs = _pool_minimum_costs(minimum_costs)
    room = tokens_per_call * calls * (1 + ROUNDING_TOLERANCE) - arrivals
    if not costs:
        return 1.0
    return bisect_right(list(accumulate(costs)), room) / len(costs) if room >= 0 else 0.0


def least_tokens(minimum_costs: Iterable[MinimumCost], share: float) -> float:
    """Return the minimum mean tokens per call at which this share of calls can be served."""
    calls, arrivals, costs = _pool_minimum_costs(minimum_costs)
    count = ceil(share * len(costs) * (1 - ROUNDING_TOLERANCE))
    return (arrivals + sum(costs[:count])) / calls if calls else 0.0


def _pool_minimum_costs(minimum_costs: Iterable[MinimumCost]) -> tuple[int, int, list[int]]:
    known = list(minimum_costs)
    costs = sorted(cost for minimum in known for cost in minimum.costs)
    return sum(minimum.calls for minimum in known), sum(minimum.arrivals for minimum in known), costs


class _MinimumWeights:
    """Minimum token counts of the blocks of a recording, and the references that cost nothing."""

    def __init__(self, recording: Recording, checker: ResidencyChecker) -> None:
        history, blocks = recording.trace.history, recording.trace.blocks
        used = sorted(
            {block for references in checker.references for reference in references for block in reference.sources}
        )
        parts = [history.part(blocks[block].place) for block in used]
        fetched = _refetch_results(recording, parts)
        scale = recording.token_weights
        self._weights = {
            block: min(scale.part(part), scale.part(again))
            for block, part, again in zip(used, parts, fetched, strict=True)
        }
        own = {block.text for block in blocks}
        raw = {block: part_text(part) for block, part in zip(used, parts, strict=True)}
        # If the raw text of a block equals the text of another block, the checker counts the other one as this block.
        self._ambiguous_blocks = {block for block, text in raw.items() if text != blocks[block].text and text in own}
        self._free_texts = ReferenceIndex()
        if history.tools:
            self._free_texts.add("\n".join((strip_line_numbers(history.tools), *argument_values(history.tools))))
        for block, again in zip(used, fetched, strict=True):
            if block_text(again) != blocks[block].text:
                self._free_texts.add(block_text(again))

    def cost(self, number: int, references: Sequence[Reference], since: Sequence[int]) -> int:
        """Return the cost to serve a call. `since` lists the call at which each block appeared or was last used."""
        charges: dict[AbstractSet[int], int] = {}
        for reference in references:
            if reference.sources not in charges and not self._is_free(reference):
                charges[reference.sources] = min(self._weights[b] * (number - since[b]) for b in reference.sources)
        total, taken = 0, set[int]()
        for sources, charge in sorted(charges.items(), key=lambda item: (-item[1], len(item[0]))):
            if charge and taken.isdisjoint(sources):
                total += charge
                taken |= sources
        return total

    def _is_free(self, reference: Reference) -> bool:
        if self._ambiguous_blocks and not reference.sources.isdisjoint(self._ambiguous_blocks):
            return True
        return len(self._free_texts) > 0 and bool(self._free_texts.find_holders(reference.kind, reference.text))


def _refetch_results(recording: Recording, parts: Sequence[Part]) -> list[ToolResult]:
    """Return the results of a refetch for each part, in the dialect of the recording."""
    if not parts:
        return []
    conversation = ReplayConversation(recording, InMemoryContentStore())
    conversation.refetch(parts)
    return [
        part
        for number in conversation.result_rows
        for part in conversation.rows[number].parts
        if isinstance(part, ToolResult)
    ]
