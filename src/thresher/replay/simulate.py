"""One recording, sent again in one way: what each request held, what was fetched again, what it cost.

Where a request lacks something that its call used, the smallest block with it is fetched, as by one more call: that
request ends with the block, and the way finds it in its history from then on. Such calls are told apart from those
that were recorded: they are no calls that a score counts, and their price is the price of refetching.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from time import perf_counter

from msgspec import Struct, field

from thresher.replay.conversation import ReplayConversation, RequestBuilder
from thresher.replay.cost import REFETCH_CALL_TOKENS, CostMeter, Rates
from thresher.replay.recording import Recording
from thresher.replay.references import Reference
from thresher.replay.residency import CallResidency, ResidencyChecker
from thresher.store import ContentStore, InMemoryContentStore


class Strategy(Struct, frozen=True):
    """A way of keeping requests small: for each recording it is started once, then asked call by call."""

    name: str
    start: Callable[[ReplayConversation, ResidencyChecker], RequestBuilder]
    """Only a clairvoyant looks at the referee: it knows what will be used."""
    budget: int | None = None
    """The setting of the way that a curve is drawn over; None where it has none."""


class ReplayTotals(Struct, kw_only=True):
    """What a way did; sums, so that recordings add up."""

    calls: int = 0
    tokens: int = 0
    bearing: int = 0
    """Calls that used earlier text."""
    served: int = 0
    """Of these, the ones whose request held all of it."""
    quoting: int = 0
    """Calls that used lines or long runs of words, kinds E and G: what no list of names can hold."""
    quoted: int = 0
    """Of these, the ones whose request held all of those."""
    survived: float = 0.0
    """Of the bearing calls, the shares of what they used that their request held, added up."""
    needles: dict[str, int] = field(default_factory=dict)
    """What was used, by kind."""
    resident: dict[str, int] = field(default_factory=dict)
    lost: int = 0
    fetched: int = 0
    """Calls that had to fetch something again."""
    replans: int = 0
    """Requests that did not begin with all of the one before."""
    broken: int = 0
    """Of these, those that came while the cache was warm."""
    cost: float = 0.0
    refetch: float = 0.0
    seconds: float = 0.0

    def add(self, other: "ReplayTotals") -> None:
        """Take in another."""
        for name in self.__struct_fields__:
            mine, value = getattr(self, name), getattr(other, name)
            if isinstance(mine, dict):
                for kind, count in value.items():
                    mine[kind] = mine.get(kind, 0) + count
            else:
                setattr(self, name, mine + value)


def replay_recording(
    recording: Recording,
    way: Strategy,
    rates: Rates,
    *,
    referee: ResidencyChecker | None = None,
    store: ContentStore | None = None,
) -> ReplayTotals:
    """What becomes of a recording; its referee may be shared by many ways, and so may the store that it knows."""
    store = InMemoryContentStore() if store is None else store
    referee = ResidencyChecker(recording.trace, store=store) if referee is None else referee
    tally = ReplayTotals()
    for told in replay_requests(recording, way, rates, referee, store):
        tally.add(told)
    return tally


def replay_requests(
    recording: Recording, way: Strategy, rates: Rates, referee: ResidencyChecker, store: ContentStore
) -> Iterator[ReplayTotals]:
    """What became of each request, in the order of the calls."""
    feed, bill = ReplayConversation(recording, store), CostMeter(rates)
    ask = way.start(feed, referee)
    history = recording.trace.history
    at = 0.0
    for number, call in enumerate(recording.trace.calls):
        # Where no time was recorded, none has passed: neither a bill nor a window may look at the clock on the wall.
        at = at if call.time is None else call.time
        feed.advance(call.stop)
        begin = perf_counter()
        sent = list(ask(at))
        spent = perf_counter() - begin
        outcome = referee.check_call(number, [piece.text for piece in sent if piece.text])
        warm = bill.is_warm(at)
        charge = bill.charge(at, [(piece, piece.tokens) for piece in sent])
        tally = _make_call_totals(outcome)
        tally.tokens, tally.cost, tally.seconds = charge.tokens, charge.cost, spent
        tally.replans, tally.broken = int(charge.is_prefix_broken), int(charge.is_prefix_broken and warm)
        if outcome.refetch_blocks:
            blocks = [recording.trace.blocks[block] for block in outcome.refetch_blocks]
            pieces, parts = feed.refetch([history.part(block.place) for block in blocks])
            for part, block in zip(parts, outcome.refetch_blocks, strict=True):
                referee.add_block_copy(part, block)
            again = bill.charge(at, [(piece, piece.tokens) for piece in (*sent, *pieces)])
            tally.refetch = again.cost + rates.output * REFETCH_CALL_TOKENS
        yield tally


def _make_call_totals(outcome: CallResidency) -> ReplayTotals:
    bearing = bool(outcome.references)
    quotes, held = _count_quotes(outcome.references), _count_quotes(outcome.hits)
    return ReplayTotals(
        calls=1,
        quoting=int(quotes > 0),
        quoted=int(quotes > 0 and held == quotes),
        bearing=int(bearing),
        served=int(bearing and outcome.is_served),
        survived=len(outcome.hits) / len(outcome.references) if bearing else 0.0,
        needles=_count_by_kind(outcome.references),
        resident=_count_by_kind(outcome.hits),
        lost=len(outcome.lost),
        fetched=int(bool(outcome.refetch_blocks)),
    )


def _count_quotes(needles: tuple[Reference, ...]) -> int:
    return sum(needle.kind in "EG" for needle in needles)


def _count_by_kind(needles: tuple[Reference, ...]) -> dict[str, int]:
    return dict(Counter(needle.kind for needle in needles))
