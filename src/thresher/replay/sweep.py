"""Replay many sessions with many strategies, in several processes, with resume.

A unit of work is one file with one policy at a few budgets, so that little is lost on an interruption and references
are rarely searched twice. Strategies that decide instantly (baselines, peer rules) run at all budgets in one unit. The
full history of every file is replayed first, with the minimum costs of the upper bound. That shows which files contain
anything to measure, and only those are replayed with the policies. The largest files run first, so that no processor is
left with a long one at the end.

Each finished unit is one line of a checkpoint file. Its name is a digest of everything that the figures depend on: the
reference definition, the version and source of this package, prices, settings, and the size and time of each file.
Restarting the same sweep reads those lines and runs the rest; an incomplete line is ignored. The file is deleted when
the sweep is complete.

Unreadable files and strategies that raise are reported, and the other units still run.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from hashlib import sha256
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path
from time import time
from typing import Literal

import msgspec

from thresher.budget import Settings, load_settings
from thresher.errors import ThresherError, UnknownFormatError
from thresher.model import Session
from thresher.replay.cost import Rates
from thresher.replay.recording import Recording, build_session_recordings
from thresher.replay.references import REFERENCE_DEFINITION
from thresher.replay.residency import ResidencyChecker
from thresher.replay.scores import FULL_HISTORY, StrategySetting
from thresher.replay.simulate import ReplayTotals, replay_recording
from thresher.replay.strategies.registry import PEER_STRATEGIES, is_baseline, make_strategy, policy_file
from thresher.replay.strategies.upper_bound import MinimumCost, compute_minimum_cost
from thresher.replay.sweep_results import (
    ReplayedSession,
    ReplayFailure,
    SessionResult,
    SweepResults,
    SweepUnit,
    UnitResult,
)
from thresher.replay.workers import initialize_sweep_worker
from thresher.store import InMemoryContentStore
from thresher.transcripts import read_all

MIN_RECORDED_CALLS = 15
"""Recordings with fewer calls are skipped: they say too little."""
BUDGETS_PER_UNIT = 2
"""Number of budgets of a policy in one unit."""
MAX_RESUME_AGE_SECONDS = 30 * 24 * 3600
"""Age in seconds at which the checkpoint of another sweep is deleted."""
SweepProgress = Callable[[int, int], None]
"""Callback with the number of finished units and the total."""


def run_sweep(
    files: Iterable[Path],
    ways: Sequence[tuple[str, int | None]],
    rates: Rates,
    *,
    jobs: int = 1,
    minimum: int = MIN_RECORDED_CALLS,
    progress: SweepProgress | None = None,
    resume: Path | None = None,
) -> SweepResults:
    """Replay all sessions of all files. `resume` is the folder of the checkpoint."""
    sized = sort_files_by_size(files)
    asked = _group_budgets(ways)
    saved = (
        SweepCheckpoint(
            resume, compute_sweep_key(sized, dict.fromkeys(name for name, _ in asked), rates, load_settings())
        )
        if resume is not None
        else SweepCheckpoint(None, "")
    )
    total = len(sized) * (1 + len(asked))
    workers = SweepWorkers(
        min(jobs, total), saved, lambda done: progress(done, total) if progress is not None else None
    )
    with workers:
        first = workers.run_units([SweepUnit(str(path), FULL_HISTORY, (None,), minimum, rates) for path in sized])
        kept = exclude_subagent_files(first)
        total = len(sized) + sum(bool(done.sessions) for done in kept) * len(asked)
        order = [done.file for done in kept if done.sessions]
        units = [SweepUnit(file, strategy, budgets, minimum, rates) for file in order for strategy, budgets in asked]
        rest = workers.run_units(units)
    saved.delete()
    return _collect_results(kept, rest, ways, len(sized))


# Planning


def sort_files_by_size(files: Iterable[Path]) -> dict[Path, tuple[int, int]]:
    """Return size and time of each file, the largest first. A missing file gets zeros and fails when it is read."""
    found: dict[Path, tuple[int, int]] = {}
    for path in files:
        found[path] = (0, 0)
        with suppress(OSError):
            stat = path.stat()
            found[path] = (stat.st_size, stat.st_mtime_ns)
    return dict(sorted(found.items(), key=lambda item: (-item[1][0], str(item[0]))))


def _group_budgets(ways: Sequence[tuple[str, int | None]]) -> list[tuple[str, tuple[int | None, ...]]]:
    """Return each strategy with the budgets of one unit. The full history always runs and is not included."""
    found: dict[str, dict[int | None, None]] = {}
    for name, budget in ways:
        if name != FULL_HISTORY:
            found.setdefault(name, {})[budget] = None
    units = []
    for name, of in found.items():
        step = len(of) if is_baseline(name) or name in PEER_STRATEGIES else BUDGETS_PER_UNIT
        units += [(name, tuple(of)[start : start + step]) for start in range(0, len(of), step)]
    return units


def compute_sweep_key(
    sized: Mapping[Path, tuple[int, int]], names: Iterable[str], rates: Rates, chosen: Settings
) -> str:
    """Return a digest of everything that a figure depends on."""
    sources = Path(__file__).parents[1].rglob("*.py")
    policies = [path for name in names if (path := policy_file(name)) is not None]
    facts = (
        REFERENCE_DEFINITION,
        version("thresher"),
        max(path.stat().st_mtime_ns for path in sources),
        msgspec.structs.asdict(rates),
        [(str(path), *facts) for path, facts in sorted(sized.items())],
        [path.read_text("utf-8", "replace") for path in policies if path.is_file()],
        chosen,
    )
    return sha256(repr(facts).encode("utf-8", "replace")).hexdigest()[:20]


# One unit


def run_unit(unit: SweepUnit) -> UnitResult:
    """Replay all sessions of a file with one strategy."""
    told: dict[str, SessionResult] = {}
    failed: dict[str, ReplayFailure] = {}
    children: list[str] = []
    short = 0
    try:
        sessions = read_all(unit.file)
    except (ThresherError, OSError) as error:
        kind: Literal["read", "format"] = "format" if isinstance(error, UnknownFormatError) else "read"
        return UnitResult(
            unit.name, unit.file, unit.strategy, failures=[ReplayFailure(unit.file, "", str(error), kind)]
        )
    for session in sessions:
        children += [child.file for child in session.children if child.file != session.file]
        key = f"{session.file}#{session.id}"
        try:
            found, less = _select_long_recordings(session, unit.min_calls)
            short += less
            if found:
                told[key] = _merge_session_results(told.get(key), _replay_session(session, found, unit))
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a way or a recording raises is told
            text = f"session {session.id}: {type(error).__name__}: {error}"
            failed[key] = ReplayFailure(unit.file, unit.strategy, text[:500])
    whole = {key: one for key, one in told.items() if key not in failed}
    return UnitResult(unit.name, unit.file, unit.strategy, whole, list(failed.values()), children, short)


def _select_long_recordings(session: Session, minimum: int) -> tuple[list[Recording], int]:
    """Return the recordings with enough calls, and the number of the others."""
    every = list(build_session_recordings(session))
    found = [one for one in every if len(one.trace.calls) >= minimum]
    return found, len(every) - len(found)


def _replay_session(session: Session, found: Sequence[Recording], unit: SweepUnit) -> SessionResult:
    """Replay one session with one strategy. A recording has one checker for all budgets."""
    totals_by_setting = {_budget_key(budget): ReplayTotals() for budget in unit.budgets}
    minimum_costs: list[MinimumCost] = []
    for recording in found:
        store = InMemoryContentStore()
        checker = ResidencyChecker(recording.trace, store=store)
        if unit.strategy == FULL_HISTORY:
            minimum_costs.append(compute_minimum_cost(recording, checker))
        for budget in unit.budgets:
            strategy = make_strategy(unit.strategy, budget, unit.rates)
            totals_by_setting[_budget_key(budget)].add(
                replay_recording(recording, strategy, unit.rates, checker=checker, store=store)
            )
    calls = sum(len(one.trace.calls) for one in found)
    return SessionResult(
        ReplayedSession(session.file, session.id, session.agent, session.project, len(found), calls),
        totals_by_setting,
        minimum_costs,
    )


def _merge_session_results(before: SessionResult | None, now: SessionResult) -> SessionResult:
    """Merge two sessions of one file that have the same id."""
    if before is None:
        return now
    for label, totals in before.totals_by_setting.items():
        now.totals_by_setting[label].add(totals)
    facts = msgspec.structs.replace(
        now.facts,
        recordings=before.facts.recordings + now.facts.recordings,
        calls=before.facts.calls + now.facts.calls,
    )
    return SessionResult(facts, now.totals_by_setting, [*before.minimum_costs, *now.minimum_costs])


def _budget_key(budget: int | None) -> str:
    """Return a budget as a JSON key."""
    return "" if budget is None else str(budget)


# All units


class SweepCheckpoint:
    """Finished units, one per line. Nothing is written without a folder, or if the folder is read-only.

    Old checkpoints of other sweeps are deleted.
    """

    def __init__(self, folder: Path | None, key: str) -> None:
        """Read the finished units."""
        self._path = None if folder is None else folder / f"{key}.jsonl"
        self.finished_units: dict[str, UnitResult] = {}
        if self._path is not None:
            with suppress(OSError):
                self._read(self._path)

    def _read(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        for other in path.parent.glob("*.jsonl"):
            with suppress(OSError):
                if other != path and other.stat().st_mtime < time() - MAX_RESUME_AGE_SECONDS:
                    other.unlink()
        told = path.read_bytes() if path.exists() else b""
        for line in told.splitlines():
            with suppress(msgspec.DecodeError, UnicodeDecodeError):
                done = msgspec.json.decode(line, type=UnitResult)
                self.finished_units[done.name] = done
        if told and not told.endswith(b"\n"):
            self._append(b"\n")  # so that the next line does not extend an incomplete one

    def add(self, done: UnitResult) -> None:
        """Add a unit. Skip failures, which may succeed next time, and file names that cannot be encoded."""
        if self._path is not None and not done.failures:
            with suppress(OSError, UnicodeEncodeError):
                self._append(msgspec.json.encode(done) + b"\n")

    def delete(self) -> None:
        """Delete the checkpoint of a complete sweep."""
        if self._path is not None:
            with suppress(OSError):
                self._path.unlink(missing_ok=True)

    def _append(self, line: bytes) -> None:
        if self._path is not None:
            with self._path.open("ab") as file:
                file.write(line)


class SweepWorkers:
    """Run units in this process or in worker processes."""

    def __init__(self, jobs: int, saved: SweepCheckpoint, tell: Callable[[int], None]) -> None:
        """Create the worker pool; one job runs in this process."""
        spawn = get_context("spawn")
        self._pool = ProcessPoolExecutor(jobs, spawn, initializer=initialize_sweep_worker) if jobs > 1 else None
        self._checkpoint = saved
        self._report_progress = tell
        self._finished_count = 0

    def __enter__(self) -> "SweepWorkers":
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)

    def run_units(self, units: Sequence[SweepUnit]) -> list[UnitResult]:
        """Run all units and return the results in the same order."""
        found = {
            unit.name: self._checkpoint.finished_units[unit.name]
            for unit in units
            if unit.name in self._checkpoint.finished_units
        }
        self._finished_count += len(found)
        self._report_progress(self._finished_count)
        for done in self._run_new_units([unit for unit in units if unit.name not in found]):
            found[done.name] = done
            self._checkpoint.add(done)
            self._finished_count += 1
            self._report_progress(self._finished_count)
        return [found[unit.name] for unit in units]

    def _run_new_units(self, units: Sequence[SweepUnit]) -> Iterator[UnitResult]:
        if self._pool is None:
            yield from map(run_unit, units)
            return
        try:
            futures: list[Future[UnitResult]] = [self._pool.submit(run_unit, unit) for unit in units]
            yield from (future.result() for future in as_completed(futures))
        except BrokenProcessPool as error:
            raise ThresherError(
                "a process ended before its work did, perhaps for want of memory: start again with fewer --jobs; "
                "what is done is kept"
            ) from error


# Results


def exclude_subagent_files(first: Sequence[UnitResult]) -> list[UnitResult]:
    """Drop the results of sub-agent files, which are counted with their parents."""
    children = {file for done in first for file in done.children}
    return [done for done in first if done.file not in children]


def _collect_results(
    first: Sequence[UnitResult], rest: Sequence[UnitResult], ways: Sequence[tuple[str, int | None]], files: int
) -> SweepResults:
    every = [*first, *rest]
    told = {key: one for done in first for key, one in done.sessions.items()}
    settings = [StrategySetting(name, None if name == FULL_HISTORY else budget) for name, budget in ways]
    totals_by_setting: dict[StrategySetting, dict[str, ReplayTotals]] = {
        setting: {} for setting in (*settings, StrategySetting(FULL_HISTORY, None))
    }
    for done in every:
        for key, one in done.sessions.items():
            for label, totals in one.totals_by_setting.items():
                totals_by_setting[StrategySetting(done.strategy, int(label) if label else None)][key] = totals
    return SweepResults(
        sessions={key: one.facts for key, one in told.items()},
        totals_by_setting=totals_by_setting,
        minimum_costs={key: one.minimum_costs for key, one in told.items()},
        # A strategy that raises at every budget is reported once.
        failures=list(dict.fromkeys(failure for done in every for failure in done.failures)),
        files=files,
        short=sum(done.short for done in first),
    )
