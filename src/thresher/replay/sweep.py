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
from msgspec import Struct, field

from thresher.budget import Settings, settings
from thresher.errors import ThresherError, UnknownFormatError
from thresher.formats import read_all
from thresher.model import Session
from thresher.replay.bill import Rates
from thresher.replay.bound import Floor, floor
from thresher.replay.outcome import Referee
from thresher.replay.recording import Recording, recordings
from thresher.replay.references import DEFINITION
from thresher.replay.run import Tally, replay
from thresher.replay.scores import FULL, Setting
from thresher.replay.ways import PEERS, is_control, make_way, policy_file
from thresher.replay.workers import settle_in
from thresher.store import MemoryStore

CALLS = 15
"""A recording with fewer calls says too little."""
TOGETHER = 2
"""Budgets of one policy that are measured in one go."""
KEPT = 30 * 24 * 3600
"""Seconds after which a sweep that was stopped is not thought to go on."""
Progress = Callable[[int, int], None]
"""How many units are done, and of how many."""


class Failure(Struct, frozen=True):
    """What could not be done."""

    file: str
    way: str
    """Empty where the file could not be read."""
    error: str
    kind: Literal["read", "format", "way"] = "way"
    """A file in no known format may be anything that lies in a folder."""


class Facts(Struct, frozen=True):
    """A session: all its segments and sub-agents that are long enough."""

    file: str
    id: str
    agent: str
    project: str
    recordings: int = 0
    calls: int = 0


class Told(Struct, frozen=True):
    """What one way did with one session, by budget."""

    facts: Facts
    tallies: dict[str, Tally]
    floors: list[Floor] = []


class Unit(Struct, frozen=True):
    """One piece of work: a file, and a way at its budgets."""

    file: str
    way: str
    budgets: tuple[int | None, ...]
    minimum: int
    rates: Rates

    @property
    def name(self) -> str:
        """What tells it apart from all others of a sweep."""
        return f"{self.file}\n{self.way}\n{self.minimum}\n{','.join(map(str, self.budgets))}"


class Done(Struct, frozen=True):
    """A unit, done."""

    name: str
    file: str
    way: str
    sessions: dict[str, Told] = {}
    failures: list[Failure] = []
    children: list[str] = []
    """Files of sub-agents that are told with their parents."""
    short: int = 0
    """Recordings with too few calls."""


class Results(Struct, frozen=True, kw_only=True):
    """What a sweep found, session by session, so that it can be told in any grouping."""

    sessions: dict[str, Facts] = field(default_factory=dict)
    tallies: dict[Setting, dict[str, Tally]] = field(default_factory=dict)
    floors: dict[str, list[Floor]] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)
    files: int = 0
    short: int = 0
    """Recordings with too few calls."""


def sweep(
    files: Iterable[Path],
    ways: Sequence[tuple[str, int | None]],
    rates: Rates,
    *,
    jobs: int = 1,
    minimum: int = CALLS,
    progress: Progress | None = None,
    resume: Path | None = None,
) -> Results:
    """Send all sessions of all files again; `resume` is the folder where what is done is kept until all is."""
    sized = sized_files(files)
    asked = _asked(ways)
    saved = (
        Saved(resume, key_of(sized, dict.fromkeys(name for name, _ in asked), rates, settings()))
        if resume is not None
        else Saved(None, "")
    )
    total = len(sized) * (1 + len(asked))
    workers = Workers(min(jobs, total), saved, lambda done: progress(done, total) if progress is not None else None)
    with workers:
        first = workers.do([Unit(str(path), FULL, (None,), minimum, rates) for path in sized])
        kept = parents(first)
        total = len(sized) + sum(bool(done.sessions) for done in kept) * len(asked)
        order = [done.file for done in kept if done.sessions]
        units = [Unit(file, way, budgets, minimum, rates) for file in order for way, budgets in asked]
        rest = workers.do(units)
    saved.forget()
    return _results(kept, rest, ways, len(sized))


# What is to be done


def sized_files(files: Iterable[Path]) -> dict[Path, tuple[int, int]]:
    """The files with size and time, the largest first; one that is gone has none, and fails when it is read."""
    found: dict[Path, tuple[int, int]] = {}
    for path in files:
        found[path] = (0, 0)
        with suppress(OSError):
            stat = path.stat()
            found[path] = (stat.st_size, stat.st_mtime_ns)
    return dict(sorted(found.items(), key=lambda item: (-item[1][0], str(item[0]))))


def _asked(ways: Sequence[tuple[str, int | None]]) -> list[tuple[str, tuple[int | None, ...]]]:
    """Each policy with the budgets that are measured together; the full history is always there, and none of them."""
    found: dict[str, dict[int | None, None]] = {}
    for name, budget in ways:
        if name != FULL:
            found.setdefault(name, {})[budget] = None
    units = []
    for name, of in found.items():
        step = len(of) if is_control(name) or name in PEERS else TOGETHER
        units += [(name, tuple(of)[start : start + step]) for start in range(0, len(of), step)]
    return units


def key_of(sized: Mapping[Path, tuple[int, int]], names: Iterable[str], rates: Rates, chosen: Settings) -> str:
    """A digest of all that a figure depends on."""
    sources = Path(__file__).parents[1].rglob("*.py")
    policies = [path for name in names if (path := policy_file(name)) is not None]
    facts = (
        DEFINITION,
        version("thresher"),
        max(path.stat().st_mtime_ns for path in sources),
        msgspec.structs.asdict(rates),
        [(str(path), *facts) for path, facts in sorted(sized.items())],
        [path.read_text("utf-8", "replace") for path in policies if path.is_file()],
        chosen,
    )
    return sha256(repr(facts).encode("utf-8", "replace")).hexdigest()[:20]


# One unit


def run_unit(unit: Unit) -> Done:
    """All sessions of a file, in one way."""
    told: dict[str, Told] = {}
    failed: dict[str, Failure] = {}
    children: list[str] = []
    short = 0
    try:
        sessions = read_all(unit.file)
    except (ThresherError, OSError) as error:
        kind: Literal["read", "format"] = "format" if isinstance(error, UnknownFormatError) else "read"
        return Done(unit.name, unit.file, unit.way, failures=[Failure(unit.file, "", str(error), kind)])
    for session in sessions:
        children += [child.file for child in session.children if child.file != session.file]
        key = f"{session.file}#{session.id}"
        try:
            found, less = _long(session, unit.minimum)
            short += less
            if found:
                told[key] = _joined(told.get(key), _session(session, found, unit))
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a way or a recording raises is told
            text = f"session {session.id}: {type(error).__name__}: {error}"
            failed[key] = Failure(unit.file, unit.way, text[:500])
    whole = {key: one for key, one in told.items() if key not in failed}
    return Done(unit.name, unit.file, unit.way, whole, list(failed.values()), children, short)


def _long(session: Session, minimum: int) -> tuple[list[Recording], int]:
    """The recordings with enough calls, and how many others there are."""
    every = list(recordings(session))
    found = [one for one in every if len(one.trace.calls) >= minimum]
    return found, len(every) - len(found)


def _session(session: Session, found: Sequence[Recording], unit: Unit) -> Told:
    """One session in one way; each recording has one referee for all budgets."""
    tallies = {_label(budget): Tally() for budget in unit.budgets}
    floors: list[Floor] = []
    for recording in found:
        store = MemoryStore()
        referee = Referee(recording.trace, store=store)
        if unit.way == FULL:
            floors.append(floor(recording, referee))
        for budget in unit.budgets:
            way = make_way(unit.way, budget, unit.rates)
            tallies[_label(budget)].add(replay(recording, way, unit.rates, referee=referee, store=store))
    calls = sum(len(one.trace.calls) for one in found)
    return Told(
        Facts(session.file, session.id, session.agent, session.project, len(found), calls),
        tallies,
        floors,
    )


def _joined(before: Told | None, now: Told) -> Told:
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
    return Told(facts, now.tallies, [*before.floors, *now.floors])


def _label(budget: int | None) -> str:
    """A budget as a key of JSON."""
    return "" if budget is None else str(budget)


# All units


class Saved:
    """The units that are done, one a line; without a folder, or where it cannot be written, none is kept.

    What others began and nobody went on with goes after a while.
    """

    def __init__(self, folder: Path | None, key: str) -> None:
        """Read what is there."""
        self._path = None if folder is None else folder / f"{key}.jsonl"
        self.done: dict[str, Done] = {}
        if self._path is not None:
            with suppress(OSError):
                self._read(self._path)

    def _read(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        for other in path.parent.glob("*.jsonl"):
            with suppress(OSError):
                if other != path and other.stat().st_mtime < time() - KEPT:
                    other.unlink()
        told = path.read_bytes() if path.exists() else b""
        for line in told.splitlines():
            with suppress(msgspec.DecodeError, UnicodeDecodeError):
                done = msgspec.json.decode(line, type=Done)
                self.done[done.name] = done
        if told and not told.endswith(b"\n"):
            self._append(b"\n")  # so that the next line does not go on from one that was torn

    def add(self, done: Done) -> None:
        """One more; what failed may go well the next time, and a name that is no text cannot be written."""
        if self._path is not None and not done.failures:
            with suppress(OSError, UnicodeEncodeError):
                self._append(msgspec.json.encode(done) + b"\n")

    def forget(self) -> None:
        """All is done."""
        if self._path is not None:
            with suppress(OSError):
                self._path.unlink(missing_ok=True)

    def _append(self, line: bytes) -> None:
        if self._path is not None:
            with self._path.open("ab") as file:
                file.write(line)


class Workers:
    """Does units, here or in other processes, in the order in which they are given."""

    def __init__(self, jobs: int, saved: Saved, tell: Callable[[int], None]) -> None:
        """With one job, all is done in this process."""
        spawn = get_context("spawn")
        self._pool = ProcessPoolExecutor(jobs, spawn, initializer=settle_in) if jobs > 1 else None
        self._saved = saved
        self._tell = tell
        self._count = 0

    def __enter__(self) -> "Workers":
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)

    def do(self, units: Sequence[Unit]) -> list[Done]:
        """All of them; what comes out is in their order."""
        found = {unit.name: self._saved.done[unit.name] for unit in units if unit.name in self._saved.done}
        self._count += len(found)
        self._tell(self._count)
        for done in self._finished([unit for unit in units if unit.name not in found]):
            found[done.name] = done
            self._saved.add(done)
            self._count += 1
            self._tell(self._count)
        return [found[unit.name] for unit in units]

    def _finished(self, units: Sequence[Unit]) -> Iterator[Done]:
        if self._pool is None:
            yield from map(run_unit, units)
            return
        try:
            futures: list[Future[Done]] = [self._pool.submit(run_unit, unit) for unit in units]
            yield from (future.result() for future in as_completed(futures))
        except BrokenProcessPool as error:
            raise ThresherError(
                "a process ended before its work did, perhaps for want of memory: start again with fewer --jobs; "
                "what is done is kept"
            ) from error


# What was found


def parents(first: Sequence[Done]) -> list[Done]:
    """What was found in the files, without those of sub-agents: these are told with their parents."""
    children = {file for done in first for file in done.children}
    return [done for done in first if done.file not in children]


def _results(
    first: Sequence[Done], rest: Sequence[Done], ways: Sequence[tuple[str, int | None]], files: int
) -> Results:
    every = [*first, *rest]
    told = {key: one for done in first for key, one in done.sessions.items()}
    settings = [Setting(name, None if name == FULL else budget) for name, budget in ways]
    tallies: dict[Setting, dict[str, Tally]] = {setting: {} for setting in (*settings, Setting(FULL, None))}
    for done in every:
        for key, one in done.sessions.items():
            for label, tally in one.tallies.items():
                tallies[Setting(done.way, int(label) if label else None)][key] = tally
    return Results(
        sessions={key: one.facts for key, one in told.items()},
        tallies=tallies,
        floors={key: one.floors for key, one in told.items()},
        # What raises at every budget is told once.
        failures=list(dict.fromkeys(failure for done in every for failure in done.failures)),
        files=files,
        short=sum(done.short for done in first),
    )
