"""Replay many sessions with many strategies, in several processes, with resume.

A unit of work is one file with one policy at a few budgets, so that an interruption loses little work and references
are rarely searched twice. Strategies that decide instantly (baselines, peer rules) run at all budgets in one unit. The
full history of every file is replayed first, with the minimum costs of the upper bound. That shows which files contain
anything to measure, and only those are replayed with the policies. The largest files run first, so that no processor is
left with a long one at the end.

Each finished unit is one line of a checkpoint file. The file name is a digest of everything that the figures depend on:
the reference definition, the version and source of this package, prices, settings, and the size and time of each file.
Restarting the same sweep reads those lines and runs the rest; it ignores an incomplete line. The file is deleted when
the sweep is complete.

If a file is unreadable or a strategy raises an error, the failure is reported and the other units still run.
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
"""Minimum number of calls in a recording; the sweep skips shorter recordings."""
BUDGETS_PER_UNIT = 2
"""Number of budgets of a policy in one unit."""
MAX_RESUME_AGE_SECONDS = 30 * 24 * 3600
"""Age at which the checkpoints of other sweeps are deleted."""
SweepProgress = Callable[[int, int], None]
"""Callback with the number of finished units and the total."""
UnitFunction = Callable[[SweepUnit], UnitResult]


# Planning


def sort_files_by_size(files: Iterable[Path]) -> dict[Path, tuple[int, int]]:
    """Return size and time of each file, the largest first. A missing file gets zeros and fails when it is read."""
    sizes: dict[Path, tuple[int, int]] = {}
    for path in files:
        sizes[path] = (0, 0)
        with suppress(OSError):
            stat = path.stat()
            sizes[path] = (stat.st_size, stat.st_mtime_ns)
    return dict(sorted(sizes.items(), key=lambda item: (-item[1][0], str(item[0]))))


def _group_budgets(settings: Sequence[tuple[str, int | None]]) -> list[tuple[str, tuple[int | None, ...]]]:
    """Return the strategy and budgets of each unit, without the full history, which always runs."""
    budgets_by_name: dict[str, dict[int | None, None]] = {}
    for name, budget in settings:
        if name != FULL_HISTORY:
            budgets_by_name.setdefault(name, {})[budget] = None
    groups = []
    for name, budgets in budgets_by_name.items():
        step = len(budgets) if is_baseline(name) or name in PEER_STRATEGIES else BUDGETS_PER_UNIT
        groups += [(name, tuple(budgets)[start : start + step]) for start in range(0, len(budgets), step)]
    return groups


def compute_sweep_key(
    sizes: Mapping[Path, tuple[int, int]], names: Iterable[str], rates: Rates, settings: Settings
) -> str:
    """Return a digest of everything that affects the figures."""
    sources = Path(__file__).parents[1].rglob("*.py")
    policies = [path for name in names if (path := policy_file(name)) is not None]
    facts = (
        REFERENCE_DEFINITION,
        version("thresher"),
        max(path.stat().st_mtime_ns for path in sources),
        msgspec.structs.asdict(rates),
        [(str(path), *size) for path, size in sorted(sizes.items())],
        [path.read_text("utf-8", "replace") for path in policies if path.is_file()],
        settings,
    )
    return sha256(repr(facts).encode("utf-8", "replace")).hexdigest()[:20]


# One unit


def run_unit(unit: SweepUnit, read: Callable[[str], Sequence[Session]] = read_all) -> UnitResult:
    """Replay all sessions of a file with one strategy."""
    results: dict[str, SessionResult] = {}
    failures: dict[str, ReplayFailure] = {}
    children: list[str] = []
    short = 0
    try:
        sessions = read(unit.file)
    except (ThresherError, OSError) as error:
        kind: Literal["read", "format"] = "format" if isinstance(error, UnknownFormatError) else "read"
        failure = ReplayFailure(unit.file, "", str(error), kind)
        return UnitResult(unit.name, unit.file, unit.strategy, failures=[failure])
    for session in sessions:
        children += [child.file for child in session.children if child.file != session.file]
        key = f"{session.file}#{session.id}"
        try:
            recordings = list(build_session_recordings(session))
            long = [recording for recording in recordings if len(recording.trace.calls) >= unit.min_calls]
            short += len(recordings) - len(long)
            if long:
                results[key] = _merge_session_results(results.get(key), _replay_session(session, long, unit))
        except (Exception, SystemExit) as error:  # noqa: BLE001 - report any error of a strategy or a recording
            text = f"{type(error).__name__}: {error}"
            failures[key] = ReplayFailure(unit.file, unit.strategy, text[:500], session=session.id)
    complete = {key: result for key, result in results.items() if key not in failures}
    return UnitResult(unit.name, unit.file, unit.strategy, complete, list(failures.values()), children, short)


def _replay_session(session: Session, recordings: Sequence[Recording], unit: SweepUnit) -> SessionResult:
    """Replay one session with one strategy. A recording has one checker for all budgets."""
    totals_by_budget = {_budget_key(budget): ReplayTotals() for budget in unit.budgets}
    minimum_costs: list[MinimumCost] = []
    for recording in recordings:
        store = InMemoryContentStore()
        checker = ResidencyChecker(recording.trace, store=store)
        if unit.strategy == FULL_HISTORY:
            minimum_costs.append(compute_minimum_cost(recording, checker))
        for budget in unit.budgets:
            strategy = make_strategy(unit.strategy, budget, unit.rates)
            totals = replay_recording(recording, strategy, unit.rates, checker=checker, store=store)
            totals_by_budget[_budget_key(budget)].add(totals)
    calls = sum(len(recording.trace.calls) for recording in recordings)
    facts = ReplayedSession(session.file, session.id, session.agent, session.project, len(recordings), calls)
    return SessionResult(facts, totals_by_budget, minimum_costs)


def _merge_session_results(before: SessionResult | None, now: SessionResult) -> SessionResult:
    """Merge two sessions of one file that have the same id."""
    if before is None:
        return now
    for budget, totals in before.totals_by_budget.items():
        now.totals_by_budget[budget].add(totals)
    recordings, calls = before.facts.recordings + now.facts.recordings, before.facts.calls + now.facts.calls
    facts = msgspec.structs.replace(now.facts, recordings=recordings, calls=calls)
    return SessionResult(facts, now.totals_by_budget, [*before.minimum_costs, *now.minimum_costs])


def _budget_key(budget: int | None) -> str:
    """Return a budget as a JSON key."""
    return "" if budget is None else str(budget)


# All units


class SweepCheckpoint:
    """Finished units, one per line. Without a folder, or in a read-only one, it stores nothing.

    Opening a checkpoint deletes old checkpoints of other sweeps.
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
        lines = path.read_bytes() if path.exists() else b""
        for line in lines.splitlines():
            with suppress(msgspec.DecodeError, UnicodeDecodeError):
                result = msgspec.json.decode(line, type=UnitResult)
                self.finished_units[result.name] = result
        if lines and not lines.endswith(b"\n"):
            self._append(b"\n")  # so that the next line does not extend an incomplete one

    def add(self, result: UnitResult) -> None:
        """Add a finished unit. Skip a unit that failed, or whose file name cannot be encoded, so that it runs again."""
        if not result.failures:
            with suppress(OSError, UnicodeEncodeError):
                self._append(msgspec.json.encode(result) + b"\n")

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

    def __init__(
        self,
        jobs: int,
        checkpoint: SweepCheckpoint,
        report_progress: Callable[[int], None],
        run: UnitFunction = run_unit,
    ) -> None:
        """Create the worker pool; one job runs in this process."""
        spawn = get_context("spawn")
        self._pool = ProcessPoolExecutor(jobs, spawn, initializer=initialize_sweep_worker) if jobs > 1 else None
        self._checkpoint = checkpoint
        self._report_progress = report_progress
        self._run = run
        self._finished_count = 0

    def __enter__(self) -> "SweepWorkers":
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)

    def run_units(self, units: Sequence[SweepUnit]) -> list[UnitResult]:
        """Run all units and return the results in the same order."""
        names = {unit.name for unit in units}
        results = {name: result for name, result in self._checkpoint.finished_units.items() if name in names}
        self._finished_count += len(results)
        self._report_progress(self._finished_count)
        for result in self._run_new_units([unit for unit in units if unit.name not in results]):
            results[result.name] = result
            self._checkpoint.add(result)
            self._finished_count += 1
            self._report_progress(self._finished_count)
        return [results[unit.name] for unit in units]

    def _run_new_units(self, units: Sequence[SweepUnit]) -> Iterator[UnitResult]:
        if self._pool is None:
            yield from map(self._run, units)
            return
        try:
            futures: list[Future[UnitResult]] = [self._pool.submit(self._run, unit) for unit in units]
            yield from (future.result() for future in as_completed(futures))
        except BrokenProcessPool as error:
            raise ThresherError(
                "a worker process stopped unexpectedly, possibly out of memory. Run the same command with fewer "
                "`--jobs`; finished work is kept."
            ) from error


def run_sweep(  # noqa: PLR0913 - a sweep has many options
    files: Iterable[Path],
    settings: Sequence[tuple[str, int | None]],
    rates: Rates,
    *,
    jobs: int = 1,
    minimum: int = MIN_RECORDED_CALLS,
    progress: SweepProgress | None = None,
    resume: Path | None = None,
    run: UnitFunction = run_unit,
) -> SweepResults:
    """Replay all sessions of all files. `resume` is the folder of the checkpoint; `run` runs one unit."""
    sizes = sort_files_by_size(files)
    groups = _group_budgets(settings)
    names = dict.fromkeys(name for name, _ in groups)
    key = "" if resume is None else compute_sweep_key(sizes, names, rates, load_settings())
    checkpoint = SweepCheckpoint(resume, key)
    total = len(sizes) * (1 + len(groups))
    report = (lambda _: None) if progress is None else lambda finished: progress(finished, total)
    with SweepWorkers(min(jobs, total), checkpoint, report, run) as workers:
        first = workers.run_units([SweepUnit(str(path), FULL_HISTORY, (None,), minimum, rates) for path in sizes])
        full = exclude_subagent_files(first)
        relevant = [result.file for result in full if result.sessions]
        total = len(sizes) + len(relevant) * len(groups)
        units = [SweepUnit(file, name, budgets, minimum, rates) for file in relevant for name, budgets in groups]
        rest = workers.run_units(units)
    checkpoint.delete()
    return _collect_results(full, rest, settings, len(sizes))


# Results


def exclude_subagent_files(first: Sequence[UnitResult]) -> list[UnitResult]:
    """Drop the results of sub-agent files, which count with their parents."""
    children = {file for result in first for file in result.children}
    return [result for result in first if result.file not in children]


def _collect_results(
    full: Sequence[UnitResult], rest: Sequence[UnitResult], settings: Sequence[tuple[str, int | None]], files: int
) -> SweepResults:
    results = [*full, *rest]
    sessions = {key: session for result in full for key, session in result.sessions.items()}
    names = [(name, None if name == FULL_HISTORY else budget) for name, budget in settings]
    totals_by_setting: dict[StrategySetting, dict[str, ReplayTotals]] = {
        StrategySetting(*setting): {} for setting in (*names, (FULL_HISTORY, None))
    }
    for result in results:
        for key, session in result.sessions.items():
            for budget, totals in session.totals_by_budget.items():
                totals_by_setting[StrategySetting(result.strategy, int(budget) if budget else None)][key] = totals
    return SweepResults(
        sessions={key: session.facts for key, session in sessions.items()},
        totals_by_setting=totals_by_setting,
        minimum_costs={key: session.minimum_costs for key, session in sessions.items()},
        # If a strategy raises the same error at several budgets, report it once.
        failures=list(dict.fromkeys(failure for result in results for failure in result.failures)),
        files=files,
        short=sum(result.short for result in full),
    )
