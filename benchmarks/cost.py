"""What a long session costs, request by request, and whether each request still held what its call used.

    python benchmarks/cost.py [--split tune|report|all] [--limit N] [--budget 60k] [--settings 6,12,22]
                              [--prices anthropic,gemini] [--only NAME] [--jobs 2] [--json FILE]

Every recorded session with 100 model calls or more is sent again: each segment between two real compactions is a
recording, repaired and put into the wire format of its vendor (what that cannot hold nobody sends), and request t is
the messages before turn t, at the recorded time. Each way of keeping requests small is replayed as `thresher.replay`
does it, with one referee for all: where a request lacks something that its call used, one more call fetches it, and
the way finds it in its history from then on. All are billed by the same rates for what they would send: reading what a
request shares with the beginning of the one before while that is kept, writing the rest. Every way is run at each price
list; only Thresher is told what tokens cost.

- tokens: sent with a call, on average. System prompts and tool definitions are in few recordings, so they count in few.
- served: of the calls that used earlier text word for word, those whose request held all of it (`thresher.replay`).
- lost: of what they used, what the request neither held nor said where to find.
- cost: of all sessions together, against the full history; with refetches, those calls included that fetch again.
- re-plans: requests in a hundred that changed or dropped what the one before had sent; broken: those of them that came
  while the cache was warm, and so threw away what had been paid for.
- dearer: sessions that cost more than their full history, refetches aside.

A session that a tool cannot take is left out of its row, there and in what it is measured against.
"""

import argparse
import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import NamedTuple

from conversations import DATA, recordings, spread
from loop_peers import FULL, OWN, LoopPeer, available, modes, settle_in, windows
from msgspec import to_builtins
from peers import installed

import thresher
from thresher import Session
from thresher.budget import parse_token_count
from thresher.errors import ThresherError
from thresher.replay import REFERENCE_DEFINITION, ResidencyChecker
from thresher.replay.recording import build_recording
from thresher.replay.scores import TARGET_SERVED_SHARE
from thresher.replay.simulate import ReplayTotals, replay_recording
from thresher.replay.strategies.registry import PRICES, rates_for_price_list
from thresher.store import InMemoryContentStore

CALLS = 100
"""A session shorter than this needs no such care."""
BINDING = "anthropic"
"""The price list of the models whose thinking is bound to what stands before it."""


# Sessions


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


# The bill


@dataclass(frozen=True)
class Options:
    """What a worker must know."""

    data: Path
    budget: int
    settings: tuple[int, ...]
    prices: tuple[str, ...]
    only: str

    def ways(self, price: str) -> list[LoopPeer]:
        """Those asked for, and the full history, which all are measured against."""
        rates = rates_for_price_list(price)
        found = [*available(self.budget)[0], *windows(self.settings, rates)]
        found += modes(rates) if price == BINDING else []
        return [one for one in found if self.only in one.name or one.name == FULL]


@dataclass
class Told:
    """What all ways did with one session: by way and price list; or why one could not."""

    file: str
    totals_by_setting: dict[str, dict[str, ReplayTotals]] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)

    def add(self, strategy: str, price: str, found: ReplayTotals) -> None:
        """Take in what a way did with a segment."""
        self.totals_by_setting.setdefault(strategy, {}).setdefault(price, ReplayTotals()).add(found)

    def of(self, strategy: str, price: str) -> ReplayTotals | None:
        """What a way did; none where it could not take the whole session."""
        return None if strategy in self.errors else self.totals_by_setting.get(strategy, {}).get(price)


def run_session(task: tuple[Place, Options]) -> Told:
    """All segments of a session, in every way and at every price list."""
    place, options = task
    session = _read(options.data, place.file)[place.number]
    told = Told(place.file)
    for number, segment in enumerate(session.segments, 1):
        recording = build_recording(segment, f"{place.file}#{session.id}/{number}")
        store = InMemoryContentStore()
        checker = ResidencyChecker(recording.trace, store=store)
        for price in options.prices if recording.trace.calls else ():
            rates = rates_for_price_list(price)
            for one in options.ways(price):
                try:
                    told.add(
                        one.name, price, replay_recording(recording, one.strategy, rates, checker=checker, store=store)
                    )
                except Exception as error:  # noqa: BLE001 - whatever a tool raises is told
                    told.errors.setdefault(one.name, f"{recording.trace.name}: {error!r}"[:300])
    return told


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
    names = dict.fromkeys(name for told in results for name in told.totals_by_setting)
    return [line for name in names if (line := line_of(results, name, price))]


def line_of(results: Sequence[Told], name: str, price: str) -> Line | None:
    """One way; none if it could take no session."""
    both = ((told.of(name, price), told.of(FULL, price)) for told in results)
    pairs = [(mine, full) for mine, full in both if mine and full]
    if not pairs:
        return None
    mine, full = ReplayTotals(), ReplayTotals()
    for one, other in pairs:
        mine.add(one)
        full.add(other)
    return Line(
        name,
        sessions=len(pairs),
        tokens=mine.tokens / mine.calls,
        served=mine.served / max(1, mine.calls_with_references),
        lost=mine.lost / max(1, sum(mine.references.values())),
        cost=mine.cost / full.cost,
        with_refetch=(mine.cost + mine.refetch_cost) / full.cost,
        replans=mine.replans / mine.calls,
        broken=mine.warm_replans / mine.calls,
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
    return [line for line in results if line.name.startswith(f"{OWN} age")]


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
        known, found = rates_for_price_list(price), lines(results, price)
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
        cost = on_line([(line.served, line.cost) for line in own], TARGET_SERVED_SHARE)
        whole = on_line([(line.served, line.with_refetch) for line in own], TARGET_SERVED_SHARE)
        if cost is not None and whole is not None:
            print(f"thresher at {TARGET_SERVED_SHARE:.0%} served: cost {cost:.3f}, with refetches {whole:.3f}")
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
    names = dict.fromkeys(strategy.package for strategy in options.ways(options.prices[0]) if strategy.package)
    return {name: installed(name) for name in dict.fromkeys((OWN, *names))}


def as_json(results: Sequence[Told], options: Options, seconds: float) -> str:
    """For other programs: the tables, and each session by itself."""
    tables = {price: lines(results, price) for price in options.prices}
    value = {
        "definition": REFERENCE_DEFINITION,
        "tables": {price: [line._asdict() for line in found] for price, found in tables.items()},
        "thresher_at": {price: [one._asdict() for one in curve(found)] for price, found in tables.items()},
        "sessions": to_builtins(results),
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


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--data", type=Path, default=DATA, help="the folder of recordings, with its index.jsonl")
    parser.add_argument("--split", choices=("report", "tune", "all"), default="all")
    parser.add_argument("--limit", type=int, help="at most so many sessions, spread evenly")
    parser.add_argument("--budget", type=parse_token_count, default=60_000, help="where the others begin to act")
    parser.add_argument("--settings", default="6,12,22,34,50,70", help="calls for which Thresher keeps what was read")
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
    if missing := available(chosen.budget)[1]:
        print("not installed, left out: " + ", ".join(missing))
    print(f"{len(results)} sessions, {seconds:.0f} seconds")
    if chosen.json:
        chosen.json.write_text(as_json(results, options, seconds), encoding="utf-8")


if __name__ == "__main__":
    main()
