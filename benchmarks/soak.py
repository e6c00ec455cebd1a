"""Soak test of a window: `python benchmarks/soak.py [--conversations 10000] [--seed 1] [--minutes M]`.

Random conversations in all four dialects. Each one is an agent's loop that continues, repeats a request, rewinds,
forks, edits its past, removes its oldest messages, changes its system text, loses rows, sends the output back as its
history, and restarts. Some processes crash between or during two writes, and some share a ledger and a store with
another process. The laws of `tests/window/loops.py` are checked on every request. The exit code is 1 if one is broken,
with the number that reproduces it: `--first N --conversations 1` and the same seed.
"""

import argparse
import json
import multiprocessing
import os
import signal
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from random import Random
from time import monotonic, sleep
from typing import Any, NamedTuple

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / "tests" / where) for where in (".", "window")]

import loops  # noqa: E402 - modules of the tests
from loops import COLD, DIALECTS, IDLE, MOVES, WARM, Beat, Talk, Watched, some_beats, some_text  # noqa: E402

from thresher.budget import PRESETS  # noqa: E402
from thresher.store import InMemoryContentStore, SqliteContentStore  # noqa: E402
from thresher.window import Ledger, Thresholds, Window  # noqa: E402

DIED = 9
"""Exit code of a process that the test crashes."""


class Outcome(NamedTuple):
    """Result of one conversation."""

    number: int
    kind: str
    counts: Counter[str]
    fault: str = ""


# --- one conversation ------------------------------------------------------------------------------------------


def settings(random: Random) -> dict[str, Any]:
    """Return a window that replans often."""
    pace = Thresholds(
        keep_calls=random.randrange(1, 4),
        min_saving=random.choice((10, 200)),
        min_expected_calls=5,
        patience=random.choice((0.0, 1.0)),
    )
    policy = random.choice(("auto", "auto", *PRESETS, ("mask", "smart")))
    thinking = random.choice((None, None, "strip_after_edit", "append_only"))
    return {
        "policy": policy,
        "budget": random.choice((300, 1_000, 2_000, 4_000)),
        "thresholds": pace,
        "thinking": thinking,
    }


def some_talk(random: Random) -> Talk:
    """Return an empty conversation."""
    dialect = random.choice(DIALECTS)
    named = dialect not in ("gemini", "openai-chat") or random.random() < 0.7
    system = random.choice(("", "You are careful."))
    return Talk(dialect, system=system, body=random.random() < 0.6, named=named)


def gap(random: Random) -> float:
    """Return the seconds until the next call; sometimes the cache expires."""
    return COLD if random.random() < 0.08 else random.uniform(1, WARM)


def loop(random: Random, folder: Path) -> Counter[str]:
    """Run a loop with all kinds of moves on one window, which sometimes restarts from its ledger."""
    talk = some_talk(random)
    forks: list[Talk] = []
    in_file = random.random() < 0.2
    watched = Watched(
        talk.dialect,
        ledger=folder / "ledger" if in_file else None,
        store=SqliteContentStore(folder / "store") if in_file else InMemoryContentStore(),
        reads=random.random() < 0.2,
        **settings(random),
    )
    done: Counter[str] = Counter()
    feeds, rough = random.random() < 0.2, random.choice((0.0, 0.1, 0.3))
    for beat in some_beats(random, random.randrange(1, 22)):
        talk.add(beat)
        if random.random() < rough:
            done[_turned(talk, forks, watched, random, folder)] += 1
            talk = forks.pop(0) if forks and random.random() < 0.5 else talk
        if not talk.awaits:
            continue
        sent = watched.call(talk.request(), gap(random))
        done["calls"] += 1
        if feeds:
            talk.rows = list(loops.rows_in(sent, talk.dialect))
    done.update(f"event {event.trigger}" for event in watched.window.events)
    return done


def _turned(talk: Talk, forks: list[Talk], watched: Watched, random: Random, folder: Path) -> str:
    """Make a random move and return its name."""
    name = random.choice((*MOVES, "retry", "fork", "restart"))
    if name == "retry" and talk.awaits:
        watched.call(talk.request(), gap(random))
    elif name == "fork":
        forks.append(talk.copy())
        forks[-1].add(some_text(random).strip() or "or else")
    elif name == "restart":
        watched.window.save(folder / "saved")
        watched.restart(folder / "saved")
    elif name in MOVES and talk.rows:
        MOVES[name](talk, random)
    return name


# --- crashing processes ----------------------------------------------------------------------------------------


class Dying:
    """Ends the process before or after one of its writes."""

    def __init__(self, left: int, *, before: bool) -> None:
        self.left = left
        self.before = before

    def around(self, write: Callable[..., Any]) -> Callable[..., Any]:
        """Write, and perhaps crash."""

        def wrapped(*given: Any) -> Any:
            self.left -= 1
            if self.left == 0 and self.before:
                os._exit(DIED)
            done = write(*given)
            if self.left == 0:
                os._exit(DIED)
            return done

        return wrapped


def crash(random: Random, folder: Path) -> Counter[str]:
    """Crash a process between or during two writes, and resume from its files in another one."""
    talk, options = some_talk(random), settings(random)
    beats = some_beats(random, random.randrange(4, 20))
    dying = Dying(random.randrange(1, 12), before=random.random() < 0.5)
    after = random.choice((None, None, random.uniform(0.002, 0.05)))
    child = os.fork()
    if child == 0:
        _until_it_dies(talk, beats, options, dying if after is None else Dying(0, before=False), folder)
    if after is not None:
        sleep(after)
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    done = Counter({"crash" if status else "no crash": 1})
    watched = Watched(talk.dialect, ledger=folder / "ledger", store=SqliteContentStore(folder / "store"), **options)
    for beat in beats:
        talk.add(beat)
        if talk.awaits:
            watched.call(talk.request(), gap(random))
            done["calls"] += 1
    return done


def _until_it_dies(talk: Talk, beats: list[Beat], options: dict[str, Any], dying: Dying, folder: Path) -> None:
    try:
        store, ledger = SqliteContentStore(folder / "store"), Ledger(folder / "ledger")
        for one, name in ((store, "put"), (ledger, "decide"), (ledger, "note")):
            setattr(one, name, dying.around(getattr(one, name)))
        watched = Watched(talk.dialect, ledger=ledger, store=store, **options)
        for beat in beats:
            talk.add(beat)
            if talk.awaits:
                watched.window.fit(talk.request(), at=watched.at + talk.number)
    finally:
        os._exit(0)


# --- two processes at once -------------------------------------------------------------------------------------


def pair(random: Random, folder: Path) -> Counter[str]:
    """Run the same loop in two processes on one ledger and one store, and compare their output."""
    talk, options = some_talk(random), settings(random)
    beats = some_beats(random, random.randrange(4, 16))
    seeds = [random.random(), random.random()]
    children = [
        os.fork() or _run_concurrently(talk, beats, options, Random(seed), folder / str(seed)) for seed in seeds
    ]
    for child in children:
        os.waitpid(child, 0)
    done: Counter[str] = Counter()
    for seed in seeds:
        result = json.loads((folder / f"{seed}.result").read_text())
        loops.hold("two at once", not result["fault"], result["fault"])
        done.update(result["counts"])
    for beat in beats:
        talk.add(beat)
    store = SqliteContentStore(folder / "store")
    idle = options | {"budget": 10**9, "thresholds": IDLE, "format": talk.dialect}
    windows = [Window(store=store, ledger=folder / "ledger", **idle) for _ in seeds]
    one, other = (loops.written(window.fit(talk.request()), talk.dialect) for window in windows)
    loops.hold("two fresh windows say the same", one == other)
    return done


def _run_concurrently(talk: Talk, beats: list[Beat], options: dict[str, Any], random: Random, place: Path) -> int:
    """Run the loop of one of two processes, and write its result to a file."""
    fault, counts = "", Counter({"pair": 1})
    try:
        store = SqliteContentStore(place.parent / "store")
        ledger = place.parent / "ledger"
        watched = Watched(talk.dialect, ledger=ledger, store=store, reads=False, shared=True, **options)
        for beat in beats:
            talk.add(beat)
            if talk.awaits:
                sleep(random.uniform(0, 0.004))
                watched.call(talk.request(), gap(random))
                counts["calls"] += 1
        counts.update(f"event {event.trigger}" for event in watched.window.events)
    except BaseException:  # noqa: BLE001 - the other process reports it
        fault = traceback.format_exc(limit=-6)
    place.with_name(f"{place.name}.result").write_text(json.dumps({"fault": fault, "counts": counts}))
    os._exit(0)


# --- all conversations -----------------------------------------------------------------------------------------

KINDS: dict[str, Callable[[Random, Path], Counter[str]]] = {"loop": loop, "crash": crash, "pair": pair}


def kind_of(seed: int, number: int) -> str:
    """Return the kind of a conversation by its number."""
    return Random(f"kind {seed} {number}").choices(tuple(KINDS), (90, 6, 4))[0]


def converse(seed: int, number: int) -> Outcome:
    """Run one conversation; the same numbers give the same one, except for the timing of two processes."""
    random, kind = Random(f"{seed} {number}"), kind_of(seed, number)
    with tempfile.TemporaryDirectory(prefix="thresher-soak-") as folder:
        try:
            return Outcome(number, kind, KINDS[kind](random, Path(folder)))
        except Exception:  # noqa: BLE001 - every exception is a finding
            return Outcome(number, kind, Counter(), traceback.format_exc(limit=-6))


def outcomes(seed: int, numbers: range, processes: int) -> Iterator[Outcome]:
    """Yield the results of many conversations."""
    if processes == 1:
        yield from (converse(seed, number) for number in numbers)
        return
    with multiprocessing.get_context("fork").Pool(processes) as pool:
        yield from pool.imap_unordered(_numbered, ((seed, number) for number in numbers), chunksize=4)


def _numbered(both: tuple[int, int]) -> Outcome:
    return converse(*both)


def main() -> int:
    """Run the conversations and print a summary."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--conversations", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0, help="number of the first conversation")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=60.0, help="stop after this many minutes")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    until = monotonic() + options.minutes * 60
    counts: Counter[str] = Counter()
    faults: list[Outcome] = []
    numbers = range(options.first, options.first + options.conversations)
    for outcome in outcomes(options.seed, numbers, options.processes):
        counts.update(outcome.counts)
        counts["conversations"] += 1
        if outcome.fault:
            faults.append(outcome)
            again = f"--seed {options.seed} --first {outcome.number} --conversations 1"
            print(f"{outcome.kind}: {again}\n{outcome.fault}", file=sys.stderr)
        if monotonic() > until:
            break
    for name, count in sorted(counts.items()):
        print(f"{count:>9,}  {name}")
    print(f"{len(faults):>9,}  faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
