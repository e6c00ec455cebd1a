"""One recording, sent again in one way: what each request held, what was fetched again, what it cost.

Where a request lacks something that its call used, the smallest block with it is fetched, as by one more call: that
request ends with the block, and the way finds it in its history from then on. Such calls are told apart from those
that were recorded: they are no calls that a score counts, and their price is the price of refetching.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from time import perf_counter

from msgspec import Struct, field

from thresher.replay.bill import ASKED, Bill, Rates
from thresher.replay.feed import Ask, Feed
from thresher.replay.outcome import Outcome, Referee
from thresher.replay.recording import Recording
from thresher.replay.references import Needle
from thresher.store import MemoryStore, Store


class Way(Struct, frozen=True):
    """A way of keeping requests small: for each recording it is started once, then asked call by call."""

    name: str
    start: Callable[[Feed, Referee], Ask]
    """Only a clairvoyant looks at the referee: it knows what will be used."""
    budget: int | None = None
    """The setting of the way that a curve is drawn over; None where it has none."""


class Tally(Struct, kw_only=True):
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

    def add(self, other: "Tally") -> None:
        """Take in another."""
        for name in self.__struct_fields__:
            mine, value = getattr(self, name), getattr(other, name)
            if isinstance(mine, dict):
                for kind, count in value.items():
                    mine[kind] = mine.get(kind, 0) + count
            else:
                setattr(self, name, mine + value)


def replay(
    recording: Recording, way: Way, rates: Rates, *, referee: Referee | None = None, store: Store | None = None
) -> Tally:
    """What becomes of a recording; its referee may be shared by many ways, and so may the store that it knows."""
    store = MemoryStore() if store is None else store
    referee = Referee(recording.trace, store=store) if referee is None else referee
    tally = Tally()
    for told in requests(recording, way, rates, referee, store):
        tally.add(told)
    return tally


def requests(recording: Recording, way: Way, rates: Rates, referee: Referee, store: Store) -> Iterator[Tally]:
    """What became of each request, in the order of the calls."""
    feed, bill = Feed(recording, store), Bill(rates)
    ask = way.start(feed, referee)
    history = recording.trace.history
    at = 0.0
    for number, call in enumerate(recording.trace.calls):
        # Where no time was recorded, none has passed: neither a bill nor a window may look at the clock on the wall.
        at = at if call.at is None else call.at
        feed.advance(call.stop)
        begin = perf_counter()
        sent = list(ask(at))
        spent = perf_counter() - begin
        outcome = referee.judge(number, [piece.text for piece in sent if piece.text])
        warm = bill.is_warm(at)
        charge = bill.charge(at, [(piece, piece.tokens) for piece in sent])
        tally = _told(outcome)
        tally.tokens, tally.cost, tally.seconds = charge.tokens, charge.cost, spent
        tally.replans, tally.broken = int(charge.broken), int(charge.broken and warm)
        if outcome.faults:
            blocks = [recording.trace.blocks[block] for block in outcome.faults]
            pieces, parts = feed.fetch([history.part(block.place) for block in blocks])
            for part, block in zip(parts, outcome.faults, strict=True):
                referee.adopt(part, block)
            again = bill.charge(at, [(piece, piece.tokens) for piece in (*sent, *pieces)])
            tally.refetch = again.cost + rates.output * ASKED
        yield tally


def _told(outcome: Outcome) -> Tally:
    bearing = bool(outcome.needles)
    quotes, held = _quotes(outcome.needles), _quotes(outcome.resident)
    return Tally(
        calls=1,
        quoting=int(quotes > 0),
        quoted=int(quotes > 0 and held == quotes),
        bearing=int(bearing),
        served=int(bearing and outcome.served),
        survived=len(outcome.resident) / len(outcome.needles) if bearing else 0.0,
        needles=_by_kind(outcome.needles),
        resident=_by_kind(outcome.resident),
        lost=len(outcome.lost),
        fetched=int(bool(outcome.faults)),
    )


def _quotes(needles: tuple[Needle, ...]) -> int:
    return sum(needle.kind in "EG" for needle in needles)


def _by_kind(needles: tuple[Needle, ...]) -> dict[str, int]:
    return dict(Counter(needle.kind for needle in needles))
