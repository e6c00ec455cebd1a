"""What a long session costs, request by request, and whether each request still held what its call used.

    python benchmarks/cost.py [--split tune|report|all] [--limit N] [--budget 60k] [--settings 3,6,20]
                              [--prices anthropic,gemini] [--only NAME] [--jobs 2] [--json FILE]

Every recorded session with 100 model calls or more is sent again: each segment between two real compactions is a
trace, repaired and put into the wire format of its vendor (what that cannot hold nobody sends), and request t is the
messages before turn t, at the recorded time. Each way of keeping requests small sees the same requests, and is billed
by the same rates for what it would send: reading what it shares with the beginning of its last request while that is
kept, writing the rest. The requests of the others are the same at all price lists, and are made once; Thresher is told
what tokens cost, so it is run at each.

- tokens: sent with a call, on average. System prompts and tool definitions are in few recordings, so they count in few.
- served: of the calls that used earlier text word for word, those whose request held all of it (`thresher.replay`).
- lost: of what they used, what the request neither held nor said where to find.
- cost: of all sessions together, against the full history; with refetches, where a call not served makes one more.
- re-plans: requests in a hundred that changed or dropped what the one before had sent; broken: those of them that came
  while the cache was warm, and so threw away what had been paid for.
- dearer: sessions that cost more than their full history, refetches aside.

A session that a tool cannot take is left out of its row, there and in what it is measured against.
"""

import argparse
import json
import os
import sys
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter, process_time
from typing import NamedTuple

from conversations import DATA, recordings, spread
from loop_peers import FULL, OWN, LoopPeer, Script, Sent, available, settle_in
from msgspec import structs
from peers import installed

import thresher
from thresher import History, Session
from thresher.edits import repair
from thresher.errors import ThresherError
from thresher.replay import DEFINITION, Bill, Call, Rates, Referee, Trace, rates_of, trace_of
from thresher.store import MemoryStore
from thresher.tokens import scale_for
from thresher.tokens.models import models
from thresher.tokens.scale import model_in
from thresher.window.prices import Prices, prices_of

COUNTER = "estimate"
SERVED = 0.95
"""The share of calls served at which the bill is told."""
CALLS = 100
"""A session shorter than this needs no such care."""
PRICES = {
    "anthropic": ("claude-sonnet-4-6", False),
    "anthropic-1h": ("claude-sonnet-4-6", True),
    "openai": ("gpt-5.6-sol", False),
    "gemini": ("gemini-3.1-pro", False),
}
"""Whose rates a price list has, and whether of the cache that lasts an hour."""
WIRES = {"anthropic": "anthropic", "openai": "openai-responses", "gemini": "gemini"}


def rates(name: str) -> Rates:
    """The rates of a price list."""
    model, hour = PRICES[name]
    return rates_of(models()[model], hour=hour)


def window_prices(name: str) -> Prices:
    """The same, as a window is told them."""
    model, hour = PRICES[name]
    return prices_of(models()[model], hour=hour)


# Sessions, as they were sent


class Place(NamedTuple):
    """Where a session is: its file, and its number in it."""

    file: str
    number: int


def long_sessions(data: Path, split: str) -> Iterator[Place]:
    """The sessions with enough calls."""
    for file in recordings(data, split):
        for number, session in enumerate(_read(data, file)):
            if sum(len(segment.turns) for segment in session.segments) >= CALLS:
                yield Place(file, number)


def _read(data: Path, file: str) -> list[Session]:
    try:
        return thresher.read_all(data / file)
    except ThresherError:
        return []


def sent_trace(segment: History, name: str) -> tuple[Trace, str]:
    """A segment as the trace of what its vendor's API was sent, and the wire format of that."""
    whole = repair(segment).history
    wire = WIRES.get(scale_for(whole, counter=COUNTER).vendor, "openai-chat")
    body = thresher.emit(whole, wire, body=True)
    history = thresher.parse(body, wire)
    key = _rows_key(body)
    beside = len(history) - len(body[key])
    calls = []
    for call in trace_of(whole, name).calls:
        rows = thresher.emit(History(whole.messages[: call.stop], whole.tools), wire, body=True)[key]
        # Where a format joins what came before a call with what came after it, that request is no beginning.
        if rows == body[key][: len(rows)] and call.stop and whole[call.stop - 1].role != "assistant":
            calls.append(Call(call.at, len(rows) + beside))
    stops = [call.stop for call in calls]
    blocks = trace_of(history, name).blocks
    seen = tuple(structs.replace(one, visible=bisect_right(stops, one.place.message)) for one in blocks)
    return Trace(name, history, tuple(calls), seen), wire


def _rows_key(body: Mapping[str, object]) -> str:
    return next(key for key in ("messages", "input", "contents") if key in body)


# The bill


@dataclass
class Tally:
    """What one way did with one session at one price list; sums, so that sessions add up."""

    calls: int = 0
    tokens: int = 0
    bearing: int = 0
    """Calls that used earlier text."""
    served: int = 0
    needles: int = 0
    lost: int = 0
    replans: int = 0
    broken: int = 0
    cost: float = 0.0
    refetch: float = 0.0
    seconds: float = 0.0

    def add(self, other: "Tally") -> None:
        """Take in another."""
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)


class Account:
    """The bills of one way in one trace."""

    def __init__(self, script: Script, referee: Referee, prices: Iterable[str]) -> None:
        self.script = script
        self.referee = referee
        self.tallies = {name: Tally() for name in prices}
        self._bills = {name: Bill(rates(name)) for name in self.tallies}
        self._at: float | None = None

    def charge(self, number: int, at: float | None, sent: Sent, seconds: float) -> None:
        """One request: what it weighs, what it held, what it costs."""
        outcome = self.referee.judge(number, [piece.text for piece in sent if piece.text])
        fetched = sum(self.script.weight(self.referee.trace.blocks[block].place) for block in outcome.faults)
        keyed = [(piece, piece.tokens) for piece in sent]
        for name, bill in self._bills.items():
            line = bill.charge(at, keyed)
            warm = at is None or self._at is None or at - self._at <= bill.rates.ttl
            told = Tally(
                calls=1,
                tokens=line.tokens,
                bearing=bool(outcome.needles),
                served=bool(outcome.needles) and outcome.served,
                needles=len(outcome.needles),
                lost=len(outcome.lost),
                replans=line.broken,
                broken=line.broken and warm,
                cost=line.cost,
                refetch=bill.rates.refetch(line.tokens, fetched) if outcome.faults else 0.0,
                seconds=seconds,
            )
            self.tallies[name].add(told)
        self._at = at


@dataclass(frozen=True)
class Options:
    """What a worker must know."""

    data: Path
    budget: int
    settings: tuple[int, ...]
    prices: tuple[str, ...]
    only: str

    def ways(self) -> list[LoopPeer]:
        """Those asked for, and the full history, which all are measured against."""
        prices = {name: window_prices(name) for name in self.prices}
        found = available(self.budget, self.settings, prices)[0]
        return [one for one in found if self.only in one.name or one.name == FULL]


@dataclass
class Told:
    """What all ways did with one session: by way and price list; or why one could not."""

    file: str
    tallies: dict[str, dict[str, Tally]] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)

    def add(self, way: str, found: Mapping[str, Tally]) -> None:
        """Take in what a way did with a segment."""
        for price, tally in found.items():
            self.tallies.setdefault(way, {}).setdefault(price, Tally()).add(tally)

    def of(self, way: str, price: str) -> Tally | None:
        """What a way did; none where it could not take the whole session."""
        return None if way in self.errors else self.tallies.get(way, {}).get(price)


def run_session(task: tuple[Place, Options]) -> Told:
    """All segments of a session, in every way."""
    place, options = task
    session = _read(options.data, place.file)[place.number]
    told = Told(place.file)
    for number, segment in enumerate(session.segments, 1):
        trace, wire = sent_trace(segment, f"{place.file}#{session.id}/{number}")
        store = MemoryStore()
        scale = scale_for(segment, counter=COUNTER)
        script = Script(trace.history, scale, wire=wire, model=model_in(segment), store=store)
        referee = Referee(trace, store=store)
        for way in options.ways() if trace.calls else ():
            account = Account(script, referee, (way.price,) if way.price else options.prices)
            try:
                run_way(way, account)
            except Exception as error:  # noqa: BLE001 - whatever a tool raises is told
                told.errors.setdefault(way.name, f"{trace.name}: {error!r}"[:300])
            told.add(way.name, account.tallies)
    return told


def run_way(way: LoopPeer, account: Account) -> None:
    """All requests of a trace in one way."""
    ask = way.start(account.script)
    for number, call in enumerate(account.referee.trace.calls):
        start = process_time()
        sent = ask(call.stop, call.at)
        account.charge(number, call.at, sent, process_time() - start)


# What is said


class Line(NamedTuple):
    """One way over all its sessions, at one price list."""

    name: str
    sessions: int
    tokens: float
    served: float
    lost: float
    cost: float
    with_refetch: float
    replans: float
    broken: float
    dearer: float
    milliseconds: float


def lines(results: Sequence[Told], price: str) -> list[Line]:
    """Every way, against the full history of the same sessions."""
    names = dict.fromkeys(name for told in results for name in told.tallies)
    return [line for name in names if (line := line_of(results, name, price))]


def line_of(results: Sequence[Told], name: str, price: str) -> Line | None:
    """One way; none if it could take no session."""
    both = ((told.of(name, price), told.of(FULL, price)) for told in results)
    pairs = [(mine, full) for mine, full in both if mine and full]
    if not pairs:
        return None
    mine, full = Tally(), Tally()
    for one, other in pairs:
        mine.add(one)
        full.add(other)
    return Line(
        name,
        sessions=len(pairs),
        tokens=mine.tokens / mine.calls,
        served=mine.served / max(1, mine.bearing),
        lost=mine.lost / max(1, mine.needles),
        cost=mine.cost / full.cost,
        with_refetch=(mine.cost + mine.refetch) / full.cost,
        replans=mine.replans / mine.calls,
        broken=mine.broken / mine.calls,
        dearer=sum(one.cost > other.cost for one, other in pairs) / len(pairs),
        milliseconds=1000 * mine.seconds / mine.calls,
    )


class Against(NamedTuple):
    """A way beside Thresher: what that costs where it serves as much, and where it sends as many tokens."""

    name: str
    tokens: float
    served: float
    cost: float
    """With refetches, as Thresher's are."""
    at_served: float | None
    """None: no setting serves as much."""
    at_tokens: float | None
    """None: no setting sends so few."""
    served_at_tokens: float | None

    @property
    def verdict(self) -> str:
        """Which is cheaper, at the same service."""
        if self.at_served is None:
            return "not reached"
        return "cheaper" if self.at_served < self.cost else "dearer"


def curve(results: Sequence[Line]) -> list[Against]:
    """Every other way against the curve that Thresher's settings draw."""
    own = own_lines(results)
    others = [line for line in results if not line.name.startswith(OWN) and line.name != FULL]
    return [_against(one, own) for one in (others if own else ())]


def own_lines(results: Sequence[Line]) -> list[Line]:
    """Thresher at its settings, the modes for bound thinking aside."""
    return [line for line in results if line.name.startswith(f"{OWN} keep")]


def _against(one: Line, own: Sequence[Line]) -> Against:
    """The cheapest of Thresher's settings that serve as much, or between two; and where it sends as many tokens."""
    between = on_line([(line.served, line.with_refetch) for line in own], one.served)
    enough = [line.with_refetch for line in own if line.served >= one.served]
    tokens = min(one.tokens, max(line.tokens for line in own))
    return Against(
        one.name,
        one.tokens,
        one.served,
        one.with_refetch,
        at_served=min(enough if between is None else [*enough, between], default=None),
        at_tokens=on_line([(line.tokens, line.with_refetch) for line in own], tokens),
        served_at_tokens=on_line([(line.tokens, line.served) for line in own], tokens),
    )


def on_line(points: Iterable[tuple[float, float]], wanted: float) -> float | None:
    """The height of the line through some points at a place; none beyond its ends."""
    row = sorted(points)
    for (less, low), (more, high) in pairwise(row):
        if less <= wanted <= more:
            return low + (high - low) * (wanted - less) / ((more - less) or 1)
    return next((height for place, height in row if place == wanted), None)


def show(results: Sequence[Told], prices: Sequence[str]) -> None:
    """One table for each price list."""
    for price in prices:
        known, found = rates(price), lines(results, price)
        print(
            f"\n{price} ({PRICES[price][0]}): read {known.read:.2f}, write {known.write:.2f}, "
            f"kept {known.ttl:.0f} s from {known.minimum} tokens on"
        )
        heads = ("sessions", "tokens", "served", "lost", "cost", "+refetch", "re-plans", "broken", "dearer", "ms/call")
        print(f"{'':<36}" + "".join(f"{head:>10}" for head in heads))
        for line in found:
            shares = (line.replans, line.broken, line.dearer)
            print(
                f"{line.name:<36}{line.sessions:>10}{line.tokens:>10,.0f}{_share(line.served)}{_share(line.lost)}"
                f"{line.cost:>10.3f}{line.with_refetch:>10.3f}{''.join(map(_share, shares))}{line.milliseconds:>10.2f}"
            )
        _show_curve(curve(found))
        own = own_lines(found)
        cost = on_line([(line.served, line.cost) for line in own], SERVED)
        whole = on_line([(line.served, line.with_refetch) for line in own], SERVED)
        if cost is not None and whole is not None:
            print(f"thresher at {SERVED:.0%} served: cost {cost:.3f}, with refetches {whole:.3f}")
    for told in results:
        for name, error in told.errors.items():
            print(f"{name} could not take {error}")


def _share(share: float) -> str:
    return f"{100 * share:>8.1f} %"


def _show_curve(found: Sequence[Against]) -> None:
    heads = ("cost", "thresher", "", "at tokens", "serving")
    if found:
        print(f"\n{'with refetches, at the same service':<36}" + "".join(f"{head:>12}" for head in heads))
    for one in found:
        served, tokens = _number(one.at_served), _number(one.at_tokens)
        serving = "" if one.served_at_tokens is None else _share(one.served_at_tokens)
        print(f"{one.name:<36}{one.cost:>12.3f}{served:>12}{one.verdict:>12}{tokens:>12}{serving:>12}")


def _number(cost: float | None) -> str:
    return "-" if cost is None else f"{cost:.3f}"


def versions(options: Options) -> dict[str, str]:
    """The packages that were measured."""
    names = dict.fromkeys(way.package for way in options.ways() if way.package)
    return {name: installed(name) for name in dict.fromkeys((OWN, *names))}


def as_json(results: Sequence[Told], options: Options, seconds: float) -> str:
    """For other programs: the tables, and each session by itself."""
    tables = {price: lines(results, price) for price in options.prices}
    value = {
        "definition": DEFINITION,
        "tables": {price: [line._asdict() for line in found] for price, found in tables.items()},
        "thresher_at": {price: [one._asdict() for one in curve(found)] for price, found in tables.items()},
        "sessions": [asdict(told) for told in results],
        "budget": options.budget,
        "versions": versions(options),
        "seconds": seconds,
    }
    return json.dumps(value, indent=1)


def measure(places: Sequence[Place], options: Options, jobs: int) -> list[Told]:
    """Every session, in as many processes; in the order of the sessions."""
    done = []
    with TemporaryDirectory() as folder, get_context("spawn").Pool(jobs, settle_in, (folder,), 4) as pool:
        for told in pool.imap(run_session, [(place, options) for place in places]):
            done.append(told)
            print(f"\r{len(done)}/{len(places)} {told.file:<50.50}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return done


def _tokens(text: str) -> int:
    return round(float(text[:-1]) * 1000) if text.endswith("k") else int(text)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--data", type=Path, default=DATA, help="the folder of recordings, with its index.jsonl")
    parser.add_argument("--split", choices=("report", "tune", "all"), default="all")
    parser.add_argument("--limit", type=int, help="at most so many sessions, spread evenly")
    parser.add_argument("--budget", type=_tokens, default=60_000, help="where the others begin to act")
    parser.add_argument("--settings", default="1,3,6,12,20,40", help="how many results Thresher keeps, with commas")
    parser.add_argument("--prices", default=",".join(PRICES), help="price lists, with commas")
    parser.add_argument("--only", default="", help="only ways with this in their name, beside the full history")
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--json", type=Path, help="write all figures to this file, too")
    chosen = parser.parse_args()
    if unknown := set(chosen.prices.split(",")) - set(PRICES):
        parser.error(f"no price list {', '.join(sorted(unknown))}; there are {', '.join(PRICES)}")
    settings = [int(one) for one in chosen.settings.split(",") if one]
    prices = tuple(chosen.prices.split(","))
    options = Options(chosen.data, chosen.budget, tuple(settings), prices, chosen.only)
    start = perf_counter()
    places = list(long_sessions(chosen.data, chosen.split))
    results = measure(places if chosen.limit is None else spread(places, chosen.limit), options, chosen.jobs)
    seconds = perf_counter() - start
    show(results, prices)
    print("\nversions: " + ", ".join(f"{name} {number}" for name, number in versions(options).items()))
    if missing := available(chosen.budget, (), {})[1]:
        print("not installed, left out: " + ", ".join(missing))
    print(f"{len(results)} sessions, {seconds:.0f} seconds")
    if chosen.json:
        chosen.json.write_text(as_json(results, options, seconds), encoding="utf-8")


if __name__ == "__main__":
    main()
