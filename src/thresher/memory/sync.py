"""Bring the memory up to what lies on the disk: look at every file, read what changed, keep what went.

A world that did not change costs one look at each file, and nothing is written. What changed is read whole, since a
session is more than its lines; only blocks that differ are written. A file that vanished is marked, and its
sessions stay. Whatever goes wrong with one file is noted, and the rest goes on.

Sub-agents in files of their own are read with their parent. Such files, and the folders they lie in, are known as
its parts: when one of them changes, the parent is read again.
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from thresher.errors import ReadError, UnknownFormatError
from thresher.formats import read_all
from thresher.memory.base import Progress, Store
from thresher.memory.gates import mark_of, stat_of, verdict
from thresher.memory.values import HIDDEN, Known, Report, Stat, hidden
from thresher.model import Session

UNSURE_NS = 20_000_000
"""Clocks of file systems lag: a part that changed this shortly before it was read may have changed after, too."""


class Job(NamedTuple):
    """A file that is not as it was."""

    path: Path
    format: str
    stat: Stat
    known: Known | None
    parts: bool
    """Only its parts changed."""


class Look(NamedTuple):
    """What there is to do."""

    jobs: list[Job]
    unchanged: int
    gone: list[Known]
    back: list[Known]
    unnamed: list[str]
    """Sentences about files whose names cannot be kept."""


def sync(
    store: Store,
    files: Iterable[tuple[str | None, Path]],
    *,
    progress: Progress | None = None,
    wait: bool = True,
    waiting: Callable[[], None] | None = None,
) -> Report:
    """Read what changed in these files, and see which of all known ones are gone.

    With `wait`, another sync's end is waited for, and `waiting` is called once if so; else it is left to its work.
    """
    began = time.perf_counter()
    wanted = {_absolute(os.fspath(path)): format or "" for format, path in files}
    look = _look(store.sources(), wanted)
    if not (look.jobs or look.gone or look.back or store.is_behind()):
        return Report(unchanged=look.unchanged, failed=(*look.unnamed,), seconds=time.perf_counter() - began)
    size = sum(job.stat.size for job in look.jobs)
    with store.writing(wait=wait, waiting=waiting, size=size) as is_ours:
        if not is_ours:
            return Report(busy=True, seconds=time.perf_counter() - began)
        work = _Work(store, _look(store.sources(), wanted), progress)
        work.run()
    return work.report(time.perf_counter() - began)


def _look(sources: Mapping[str, Known], wanted: Mapping[str, str]) -> Look:
    found = Look([], 0, [], [], [])
    unchanged = 0
    there: set[str] = set()
    parts: dict[str, list[Known]] = {}
    for known in sources.values():
        if known.whole:
            parts.setdefault(known.whole, []).append(known)
    has_hidden = any(path.startswith(HIDDEN) for path in sources)
    for path in sorted(wanted, key=lambda path: (path.count(os.sep), path)):
        seen = sources.get(path) or (sources.get(hidden(path)) if has_hidden else None)
        if seen is not None and seen.state == "part":
            continue
        stat = stat_of(path)
        if stat is None:
            continue
        there.add(path)
        if not _is_text(path):
            found.unnamed.append(f"`{path!a}` has a name that is no text; rename it")
        elif seen is None or seen.stat != stat:
            found.jobs.append(Job(Path(path), wanted[path], stat, seen, parts=False))
        elif any(stat_of(part.path) != part.stat for part in parts.get(path, ())):
            found.jobs.append(Job(Path(path), wanted[path], stat, seen, parts=True))
        else:
            unchanged += 1
            if seen.state == "gone":
                found.back.append(seen._replace(state="here"))
    for path, known in sources.items():
        is_file = known.state == "here" and not path.startswith(HIDDEN)
        if is_file and path not in there and stat_of(path) is None:
            found.gone.append(known._replace(state="gone"))
    return found._replace(unchanged=unchanged)


def _absolute(path: str) -> str:
    return path if os.path.isabs(path) else os.path.abspath(path)  # noqa: PTH100, PTH117 - links stay as they are


def _is_text(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


class _Work:
    """One sync at work."""

    def __init__(self, store: Store, look: Look, progress: Progress | None) -> None:
        self.store = store
        self.look = look
        self.progress = progress
        self.counts = dict.fromkeys(("new", "grown", "rewritten", "foreign"), 0)
        self.unchanged = look.unchanged
        self.failed = [*look.unnamed]
        self.messages = 0
        self.parts: set[str] = set()

    def run(self) -> None:
        if self.look.gone or self.look.back:
            self.store.note([*self.look.gone, *self.look.back])
        self.store.refresh_index(self.progress)  # what an earlier sync was kept from, or all of it
        total = sum(job.stat.size for job in self.look.jobs)
        done = 0
        for job in self.look.jobs:
            if str(job.path) not in self.parts:
                self._file(job)
            done += job.stat.size
            if self.progress is not None:
                self.progress(done, total)
        self.store.refresh_index()

    def report(self, seconds: float) -> Report:
        return Report(
            new=self.counts["new"],
            grown=self.counts["grown"],
            rewritten=self.counts["rewritten"],
            foreign=self.counts["foreign"],
            unchanged=self.unchanged,
            gone=len(self.look.gone),
            failed=(*self.failed,),
            messages=self.messages,
            seconds=seconds,
        )

    def _file(self, job: Job) -> None:
        known = Known(str(job.path), job.stat, format=job.format)
        began = time.time_ns() - UNSURE_NS
        try:
            mark = mark_of(job.path, job.stat.size)
            known = known._replace(offset=mark.offset, prefix=mark.prefix)
            change = verdict(job.path, job.known, mark)
            if change == "touched" and not job.parts:
                self._touched(job, known)
                return
            sessions = read_all(job.path, format=job.format or None)
        except UnknownFormatError:
            self.counts["foreign"] += 1
            self.store.note([known._replace(state="foreign", prefix=b"")])
        except (ReadError, OSError) as error:
            if stat_of(job.path) is not None:
                self.failed.append(str(error))
                self.store.note([known._replace(state="failed", prefix=b"", problem=str(error))])
        else:
            self.counts["grown" if change == "touched" else change] += 1
            self.messages += self.store.record(known, sessions)
            parts = [*_parts(known.path, sessions, began)]
            self.parts.update(part.path for part in parts)
            self.store.note(parts)

    def _touched(self, job: Job, known: Known) -> None:
        """The same words with another time on them."""
        assert job.known is not None
        self.unchanged += 1
        self.store.note([known._replace(path=job.known.path)])


def _parts(path: str, sessions: Sequence[Session], began: int) -> Iterator[Known]:
    """Files that were read with this one, and their folders, where a new one would turn up."""
    files = {child.file for session in sessions for child in _below(session)} - {path}
    folders = {str(Path(file).parent) for file in files} - {str(Path(path).parent)}
    for part in sorted(files | folders):
        stat = stat_of(part)
        if stat is not None:
            # Where it may have changed since, it counts as changed, and is read once more.
            seen = stat._replace(size=-1) if stat.mtime_ns >= began else stat
            yield Known(part, seen, "part", whole=path)


def _below(session: Session) -> Iterator[Session]:
    for child in session.children:
        yield child
        yield from _below(child)
