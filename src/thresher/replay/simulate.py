"""Replay one recording with one strategy, and measure the references in each request, the refetches and the cost.

If a request lacks text that its call used, the smallest block that contains it is refetched by a simulated extra call.
The block is appended to the conversation, so the strategy sees it at the next call. Extra calls add to the refetch cost
only; they do not count as calls.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from time import perf_counter

from msgspec import Struct, field

from thresher.replay.conversation import ReplayConversation, RequestBuilder
from thresher.replay.cost import REFETCH_CALL_TOKENS, CostMeter, Rates
from thresher.replay.recording import Recording
from thresher.replay.residency import CallResidency, ResidencyChecker
from thresher.store import ContentStore, InMemoryContentStore


class Strategy(Struct, frozen=True):
    """A named way to keep requests small.

    `start` runs once per recording and returns the function that builds each request.
    """

    name: str
    start: Callable[[ReplayConversation, ResidencyChecker], RequestBuilder]
    """Function that returns the request builder. Only oracles use the checker, which knows all future references."""
    budget: int | None = None
    """The token budget; None if the strategy takes none."""


class ReplayTotals(Struct, kw_only=True):
    """Sums over the calls of a strategy; `add` combines several recordings."""

    calls: int = 0
    tokens: int = 0
    calls_with_references: int = 0
    """Number of calls that reuse earlier text."""
    served: int = 0
    """Number of calls with references whose request contained all their references."""
    calls_with_quotes: int = 0
    """Number of calls with quotes: references to a line or a long phrase (kinds E and G)."""
    calls_with_all_quotes: int = 0
    """Number of calls with quotes whose request contained all their quotes."""
    hit_share_sum: float = 0.0
    """Sum of the hit shares of all calls. The hit share of a call is the share of its references that are hits."""
    references: dict[str, int] = field(default_factory=dict)
    """Number of references by kind."""
    hits: dict[str, int] = field(default_factory=dict)
    lost: int = 0
    refetch_calls: int = 0
    """Number of calls that had to refetch something."""
    replans: int = 0
    """Number of requests that do not extend the previous request."""
    warm_replans: int = 0
    """Number of replans while the cache was warm."""
    cost: float = 0.0
    refetch_cost: float = 0.0
    seconds: float = 0.0

    def add(self, other: "ReplayTotals") -> None:
        """Add other totals to these."""
        for name in self.__struct_fields__:
            mine, value = getattr(self, name), getattr(other, name)
            if isinstance(mine, dict):
                for kind, count in value.items():
                    mine[kind] = mine.get(kind, 0) + count
            else:
                setattr(self, name, mine + value)


def replay_recording(
    recording: Recording,
    strategy: Strategy,
    rates: Rates,
    *,
    checker: ResidencyChecker | None = None,
    store: ContentStore | None = None,
) -> ReplayTotals:
    """Replay a recording and return the totals. Several strategies may share a checker and its store."""
    store = InMemoryContentStore() if store is None else store
    checker = ResidencyChecker(recording.trace, store=store) if checker is None else checker
    totals = ReplayTotals()
    for call_totals in replay_requests(recording, strategy, rates, checker, store):
        totals.add(call_totals)
    return totals


def replay_requests(
    recording: Recording, strategy: Strategy, rates: Rates, checker: ResidencyChecker, store: ContentStore
) -> Iterator[ReplayTotals]:
    """Yield the totals of each request, in the order of the calls."""
    conversation, meter = ReplayConversation(recording, store), CostMeter(rates)
    build_request = strategy.start(conversation, checker)
    at = 0.0
    for number, call in enumerate(recording.trace.calls):
        # If a time is not recorded, reuse the previous one: neither the meter nor a window may use the real clock.
        at = at if call.time is None else call.time
        conversation.advance(call.stop)
        start = perf_counter()
        request = list(build_request(at))
        seconds = perf_counter() - start
        outcome = checker.check_call(number, [piece.text for piece in request if piece.text])
        is_warm = meter.is_warm(at)
        charge = meter.charge(at, [(piece, piece.tokens) for piece in request])
        totals = _make_call_totals(outcome)
        totals.tokens, totals.cost, totals.seconds = charge.tokens, charge.cost, seconds
        totals.replans, totals.warm_replans = int(charge.is_prefix_broken), int(charge.is_prefix_broken and is_warm)
        if outcome.refetch_blocks:
            places = [recording.trace.blocks[block].place for block in outcome.refetch_blocks]
            pieces, parts = conversation.refetch(list(map(recording.trace.history.part, places)))
            for part, block in zip(parts, outcome.refetch_blocks, strict=True):
                checker.add_block_copy(part, block)
            refetch = meter.charge(at, [(piece, piece.tokens) for piece in (*request, *pieces)])
            totals.refetch_cost = refetch.cost + rates.output * REFETCH_CALL_TOKENS
        yield totals


def _make_call_totals(outcome: CallResidency) -> ReplayTotals:
    references = Counter[str](reference.kind for reference in outcome.references)
    hits = Counter[str](reference.kind for reference in outcome.hits)
    quotes = references["E"] + references["G"]
    return ReplayTotals(
        calls=1,
        calls_with_quotes=int(quotes > 0),
        calls_with_all_quotes=int(quotes > 0 and hits["E"] + hits["G"] == quotes),
        calls_with_references=int(bool(outcome.references)),
        served=int(bool(outcome.references) and outcome.is_served),
        hit_share_sum=len(outcome.hits) / len(outcome.references) if outcome.references else 0.0,
        references=dict(references),
        hits=dict(hits),
        lost=len(outcome.lost),
        refetch_calls=int(bool(outcome.refetch_blocks)),
    )
