"""Many sessions, sent again in many ways: in several processes, and begun again where it was left.

A unit of work is one file with one policy at a few budgets: little is lost where it is stopped, and references are not
found again too often. What decides in no time (a control, a rule of others) has all its budgets in one. First comes the
full history of every file, and with it the floor that the bound is made of: that tells which files hold anything to
measure, so the policies see no others. The largest files go first, so that no processor waits at the end.

A unit that is done is one line in a file, whose name is a digest of all that its figures depend on: the definition, the
version, the package's own sources, prices, settings, and the files by size and time. Whoever starts the same sweep
again takes those lines and does the rest; a line that was torn is no line. When all is done the file goes.

What cannot be read and whoever raises is told, and the rest goes on.
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
"""A recording with fewer calls says too little."""
BUDGETS_PER_UNIT = 2
"""Budgets of one policy that are measured in one go."""
MAX_RESUME_AGE_SECONDS = 30 * 24 * 3600
"""Seconds after which a sweep that was stopped is not thought to go on."""
SweepProgress = Callable[[int, int], None]
"""How many units are done, and of how many."""


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
    """Send all sessions of all files again; `resume` is the folder where what is done is kept until all is."""
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
        units = [SweepUnit(file, way, budgets, minimum, rates) for file in order for way, budgets in asked]
        rest = workers.run_units(units)
    saved.delete()
    return _collect_results(kept, rest, ways, len(sized))


# What is to be done


def sort_files_by_size(files: Iterable[Path]) -> dict[Path, tuple[int, int]]:
    """The files with size and time, the largest first; one that is gone has none, and fails when it is read."""
    found: dict[Path, tuple[int, int]] = {}
    for path in files:
        found[path] = (0, 0)
        with suppress(OSError):
            stat = path.stat()
            found[path] = (stat.st_size, stat.st_mtime_ns)
    return dict(sorted(found.items(), key=lambda item: (-item[1][0], str(item[0]))))


def _group_budgets(ways: Sequence[tuple[str, int | None]]) -> list[tuple[str, tuple[int | None, ...]]]:
    """Each policy with the budgets that are measured together; the full history is always there, and none of them."""
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
    """A digest of all that a figure depends on."""
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
    """All sessions of a file, in one way."""
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
    """The recordings with enough calls, and how many others there are."""
    every = list(build_session_recordings(session))
    found = [one for one in every if len(one.trace.calls) >= minimum]
    return found, len(every) - len(found)


def _replay_session(session: Session, found: Sequence[Recording], unit: SweepUnit) -> SessionResult:
    """One session in one way; each recording has one referee for all budgets."""
    tallies = {_budget_key(budget): ReplayTotals() for budget in unit.budgets}
    floors: list[MinimumCost] = []
    for recording in found:
        store = InMemoryContentStore()
        referee = ResidencyChecker(recording.trace, store=store)
        if unit.strategy == FULL_HISTORY:
            floors.append(compute_minimum_cost(recording, referee))
        for budget in unit.budgets:
            way = make_strategy(unit.strategy, budget, unit.rates)
            tallies[_budget_key(budget)].add(replay_recording(recording, way, unit.rates, referee=referee, store=store))
    calls = sum(len(one.trace.calls) for one in found)
    return SessionResult(
        ReplayedSession(session.file, session.id, session.agent, session.project, len(found), calls),
        tallies,
        floors,
    )


def _merge_session_results(before: SessionResult | None, now: SessionResult) -> SessionResult:
    """Two sessions of one id in one file are one."""
    if before is None:
        return now
    for label, tally in before.tallies.items():
        now.tallies[label].add(tally)
    facts = msgspec.structs.replace(
        now.facts,
        recordings=before.facts.recordings + now.facts.recordings,
        calls=before.facts.calls + now.facts.calls,
    )
    return SessionResult(facts, now.tallies, [*before.floors, *now.floors])


def _budget_key(budget: int | None) -> str:
    """A budget as a key of JSON."""
    return "" if budget is None else str(budget)


# All units


class SweepCheckpoint:
    """The units that are done, one a line; without a folder, or where it cannot be written, none is kept.

    What others began and nobody went on with goes after a while.
    """

    def __init__(self, folder: Path | None, key: str) -> None:
        """Read what is there."""
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
            self._append(b"\n")  # so that the next line does not go on from one that was torn

    def add(self, done: UnitResult) -> None:
        """One more; what failed may go well the next time, and a name that is no text cannot be written."""
        if self._path is not None and not done.failures:
            with suppress(OSError, UnicodeEncodeError):
                self._append(msgspec.json.encode(done) + b"\n")

    def delete(self) -> None:
        """All is done."""
        if self._path is not None:
            with suppress(OSError):
                self._path.unlink(missing_ok=True)

    def _append(self, line: bytes) -> None:
        if self._path is not None:
            with self._path.open("ab") as file:
                file.write(line)


class SweepWorkers:
    """Does units, here or in other processes, in the order in which they are given."""

    def __init__(self, jobs: int, saved: SweepCheckpoint, tell: Callable[[int], None]) -> None:
        """With one job, all is done in this process."""
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
        """All of them; what comes out is in their order."""
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


# What was found


def exclude_subagent_files(first: Sequence[UnitResult]) -> list[UnitResult]:
    """What was found in the files, without those of sub-agents: these are told with their parents."""
    children = {file for done in first for file in done.children}
    return [done for done in first if done.file not in children]


def _collect_results(
    first: Sequence[UnitResult], rest: Sequence[UnitResult], ways: Sequence[tuple[str, int | None]], files: int
) -> SweepResults:
    every = [*first, *rest]
    told = {key: one for done in first for key, one in done.sessions.items()}
    settings = [StrategySetting(name, None if name == FULL_HISTORY else budget) for name, budget in ways]
    tallies: dict[StrategySetting, dict[str, ReplayTotals]] = {
        setting: {} for setting in (*settings, StrategySetting(FULL_HISTORY, None))
    }
    for done in every:
        for key, one in done.sessions.items():
            for label, tally in one.tallies.items():
                tallies[StrategySetting(done.way, int(label) if label else None)][key] = tally
    return SweepResults(
        sessions={key: one.facts for key, one in told.items()},
        tallies=tallies,
        floors={key: one.floors for key, one in told.items()},
        # What raises at every budget is told once.
        failures=list(dict.fromkeys(failure for done in every for failure in done.failures)),
        files=files,
        short=sum(done.short for done in first),
    )
