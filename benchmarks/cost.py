"""Measure the cost of long sessions, request by request, and whether each request contains what its call reuses.

    python benchmarks/cost.py [--split tune|report|all] [--limit N] [--budget 60k] [--settings 6,12,22]
        [--prices anthropic,gemini] [--only NAME] [--jobs 2] [--json FILE]

Every recorded session with at least 100 model calls is replayed: each segment between two real compactions is a
recording, repaired and encoded in the dialect of its vendor, and request t is the messages before turn t at the
recorded time. Each strategy runs as in `thresher.replay`, and all share one residency checker. If a request lacks
something that its call reuses, an extra call refetches it, and the strategy finds it in its history from then on. All
pay the same rates: cache reads for the common prefix with the previous request while it is cached, cache writes for the
rest. Every strategy runs with each price list; only Thresher uses the prices.

- tokens: mean tokens per call. Few recordings contain system prompts and tool definitions, so few count them.
- served: share of the calls with references whose request contained all of them (`thresher.replay`).
- lost: share of references that are neither in the request nor recoverable.
- cost: of all sessions, relative to the full history; with refetches, the refetching calls are included.
- replans: percentage of requests that changed or dropped something of the previous one; warm: those that did so while
  the cache was warm, which wastes a paid cache write.
- more expensive: sessions that cost more than their full history, without refetches.

A session that a tool cannot process is excluded from its row and from the row's comparisons.
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
"""Shorter sessions are not measured."""
BINDING = "anthropic"
"""The price list of the models that bind thinking to its prefix."""


# Sessions


class Place(NamedTuple):
    """A file and the number of the session in it."""

    file: str
    number: int


def find_long_sessions(data: Path, split: str) -> Iterator[Place]:
    """Yield the sessions with enough calls."""
    for file in recordings(data, split):
        for number, session in enumerate(_read(data, file)):
            if sum(len(segment.turns) for segment in session.segments) >= CALLS:
                yield Place(file, number)


def _read(data: Path, file: str) -> list[Session]:
    try:
        return thresher.read_all(data / file)
    except ThresherError:
        return []


# Cost


@dataclass(frozen=True)
class Options:
    """The options of a worker."""

    data: Path
    budget: int
    settings: tuple[int, ...]
    prices: tuple[str, ...]
    only: str

    def ways(self, price: str) -> list[LoopPeer]:
        """Return the selected strategies and the full history, which is the reference for all."""
        rates = rates_for_price_list(price)
        found = [*available(self.budget)[0], *windows(self.settings, rates)]
        found += modes(rates) if price == BINDING else []
        return [one for one in found if self.only in one.name or one.name == FULL]


@dataclass
class SessionCosts:
    """Totals of all strategies on one session by price list, or the errors."""

    file: str
    totals_by_setting: dict[str, dict[str, ReplayTotals]] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)

    def add(self, strategy: str, price: str, found: ReplayTotals) -> None:
        """Add the totals of a strategy on one segment."""
        self.totals_by_setting.setdefault(strategy, {}).setdefault(price, ReplayTotals()).add(found)

    def of(self, strategy: str, price: str) -> ReplayTotals | None:
        """Return the totals of a strategy; None if it failed on the session."""
        return None if strategy in self.errors else self.totals_by_setting.get(strategy, {}).get(price)


def run_session(task: tuple[Place, Options]) -> SessionCosts:
    """Replay all segments of a session with every strategy and price list."""
    place, options = task
    session = _read(options.data, place.file)[place.number]
    told = SessionCosts(place.file)
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


# Output


class Line(NamedTuple):
    """One strategy over all its sessions, with one price list."""

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


def build_lines(results: Sequence[SessionCosts], price: str) -> list[Line]:
    """Return a line per strategy, relative to the full history of the same sessions."""
    names = dict.fromkeys(name for told in results for name in told.totals_by_setting)
    return [line for name in names if (line := build_line(results, name, price))]


def build_line(results: Sequence[SessionCosts], name: str, price: str) -> Line | None:
    """Return the line of one strategy; None if it failed on every session."""
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
    """Another strategy compared with Thresher: Thresher's cost at the same served share and at the same tokens."""

    name: str
    tokens: float
    served: float
    cost: float
    """With refetches, as for Thresher."""
    at_served: float | None
    """None: no setting serves as much."""
    at_tokens: float | None
    """None: no setting sends that few tokens."""
    served_at_tokens: float | None

    @property
    def verdict(self) -> str:
        """Return which one is cheaper at the same served share."""
        if self.at_served is None:
            return "not reached"
        return "cheaper" if self.at_served < self.cost else "dearer"


def curve(results: Sequence[Line]) -> list[Against]:
    """Compare every other strategy with the curve of Thresher's settings."""
    own = select_own_lines(results)
    others = [line for line in results if not line.name.startswith(OWN) and line.name != FULL]
    return [_against(one, own) for one in (others if own else ())]


def select_own_lines(results: Sequence[Line]) -> list[Line]:
    """Return Thresher's settings, without the modes for bound thinking."""
    return [line for line in results if line.name.startswith(f"{OWN} age")]


def _against(one: Line, own: Sequence[Line]) -> Against:
    """Compare with the cheapest setting that serves as much (interpolated) and with equal tokens."""
    between = interpolate([(line.served, line.with_refetch) for line in own], one.served)
    enough = [line.with_refetch for line in own if line.served >= one.served]
    tokens = min(one.tokens, max(line.tokens for line in own))
    return Against(
        one.name,
        one.tokens,
        one.served,
        one.with_refetch,
        at_served=min(enough if between is None else [*enough, between], default=None),
        at_tokens=interpolate([(line.tokens, line.with_refetch) for line in own], tokens),
        served_at_tokens=interpolate([(line.tokens, line.served) for line in own], tokens),
    )


def interpolate(points: Iterable[tuple[float, float]], wanted: float) -> float | None:
    """Interpolate a line through points; None beyond its ends."""
    row = sorted(points)
    for (less, low), (more, high) in pairwise(row):
        if less <= wanted <= more:
            return low + (high - low) * (wanted - less) / ((more - less) or 1)
    return next((height for place, height in row if place == wanted), None)


def show(results: Sequence[SessionCosts], prices: Sequence[str]) -> None:
    """Print one table for each price list."""
    for price in prices:
        known, found = rates_for_price_list(price), build_lines(results, price)
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
        own = select_own_lines(found)
        cost = interpolate([(line.served, line.cost) for line in own], TARGET_SERVED_SHARE)
        whole = interpolate([(line.served, line.with_refetch) for line in own], TARGET_SERVED_SHARE)
        if cost is not None and whole is not None:
            print(f"thresher at {TARGET_SERVED_SHARE:.0%} served: cost {cost:.3f}, with refetches {whole:.3f}")
    for told in results:
        for name, error in told.errors.items():
            print(f"{name} failed on {error}")


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
    """Return the versions of the measured packages."""
    names = dict.fromkeys(strategy.package for strategy in options.ways(options.prices[0]) if strategy.package)
    return {name: installed(name) for name in dict.fromkeys((OWN, *names))}


def as_json(results: Sequence[SessionCosts], options: Options, seconds: float) -> str:
    """Return the tables and the results of each session as JSON."""
    tables = {price: build_lines(results, price) for price in options.prices}
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


def measure(places: Sequence[Place], options: Options, jobs: int) -> list[SessionCosts]:
    """Replay every session in worker processes, keeping their order."""
    done = []
    with TemporaryDirectory() as folder, get_context("spawn").Pool(jobs, settle_in, (folder,), 4) as pool:
        for told in pool.imap(run_session, [(place, options) for place in places]):
            done.append(told)
            print(f"\r{len(done)}/{len(places)} {told.file:<50.50}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return done


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--data", type=Path, default=DATA, help="the folder of recordings, with its index.jsonl")
    parser.add_argument("--split", choices=("report", "tune", "all"), default="all")
    parser.add_argument("--limit", type=int, help="maximum number of sessions, evenly spaced")
    parser.add_argument("--budget", type=parse_token_count, default=60_000, help="token budget of the other tools")
    parser.add_argument("--settings", default="6,12,22,34,50,70", help="number of calls for which reads are kept")
    parser.add_argument("--prices", default=",".join(PRICES), help="price lists, separated by commas")
    parser.add_argument("--only", default="", help="only strategies whose name contains this, and the full history")
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--json", type=Path, help="also write all figures to this file")
    chosen = parser.parse_args()
    if unknown := set(chosen.prices.split(",")) - set(PRICES):
        parser.error(f"unknown price list {', '.join(sorted(unknown))}. Available: {', '.join(PRICES)}")
    settings = [int(one) for one in chosen.settings.split(",") if one]
    prices = tuple(chosen.prices.split(","))
    options = Options(chosen.data, chosen.budget, tuple(settings), prices, chosen.only)
    start = perf_counter()
    places = list(find_long_sessions(chosen.data, chosen.split))
    results = measure(places if chosen.limit is None else spread(places, chosen.limit), options, chosen.jobs)
    seconds = perf_counter() - start
    show(results, prices)
    print("\nversions: " + ", ".join(f"{name} {number}" for name, number in versions(options).items()))
    if missing := available(chosen.budget)[1]:
        print("Skipped, not installed: " + ", ".join(missing))
    print(f"{len(results)} sessions, {seconds:.0f} seconds")
    if chosen.json:
        chosen.json.write_text(as_json(results, options, seconds), encoding="utf-8")


if __name__ == "__main__":
    main()
