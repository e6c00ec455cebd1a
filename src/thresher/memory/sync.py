"""Bring the memory up to what lies on the disk: look at every file, read what changed, keep what went.

A world that did not change costs one look at each file, and nothing is written. What changed is read whole, since a
session is more than its lines; only blocks that differ are written. A file that vanished is marked, and its
sessions stay. Whatever goes wrong with one file is noted, and the rest goes on.

Sub-agents in files of their own are read with their parent. Such files, and the folders they lie in, are known as
its parts: when one of them changes, the parent is read again. A part whose parent's file is gone is read by itself.
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from thresher.memory.base import Progress, Store
from thresher.memory.gates import stat_of
from thresher.memory.preparing import Job, Prepared, each_prepared, prepared, worker_count
from thresher.memory.values import HIDDEN, Known, Report, hidden


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
    files: Iterable[tuple[str | None, str | Path]],
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
        whole = seen.whole if seen is not None else ""
        if whole and stat_of(whole) is not None:
            continue
        stat = stat_of(path)
        if stat is None:
            continue
        there.add(path)
        if not _is_text(path):
            found.unnamed.append(f"`{path!a}` has a name that is no text; rename it")
        elif seen is None or seen.stat != stat:
            found.jobs.append(Job(Path(path), wanted[path], stat, seen, parts=False, whole=whole))
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
        self.messages = self.forgotten = 0
        self.parts: set[str] = set()
        self.done = 0
        self.total = sum(job.stat.size for job in look.jobs)

    def run(self) -> None:
        if self.look.gone or self.look.back:
            self.store.note([*self.look.gone, *self.look.back])
        self.store.refresh_index(self.progress)  # what an earlier sync was kept from, or all of it
        workers = worker_count(len(self.look.jobs), self.total)
        with closing(each_prepared(self._left(by_age(self.look.jobs)), workers)) as every:
            for job, found in every:
                if found.known.path not in self.parts:
                    self._take_all(job, found)
                self._tell(job)
        self.store.refresh_index()

    def _left(self, jobs: Iterable[Job]) -> Iterator[Job]:
        """Files that no other was read with so far, and what is kept of each."""
        for job in jobs:
            if str(job.path) in self.parts:
                self._tell(job)
            else:
                yield job._replace(before=self.store.kept(str(job.path))) if job.known is not None else job

    def _tell(self, job: Job) -> None:
        self.done += job.stat.size
        if self.progress is not None:
            self.progress(self.done, self.total)

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
            forgotten_again=self.forgotten,
            seconds=seconds,
        )

    def _take_all(self, job: Job, found: Prepared) -> None:
        """Write down what a file says, a store's sessions in several goes."""
        self._take(job, found)
        counts, most = dict(self.counts), found.left + 1
        while found.left:
            if self.progress is not None:
                self.progress(self.done + job.stat.size * (most - found.left) // (most + 1), self.total)
            kept = self.store.kept(found.known.path)
            found = prepared(job._replace(known=found.known, before=kept, tried=found.tried))
            self._take(job, found)
        self.counts = counts  # it is one file

    def _take(self, job: Job, found: Prepared) -> None:
        """Write down what a file says, or that it says nothing."""
        match found.change:
            case "vanished":
                return
            case "touched":
                assert job.known is not None
                self.unchanged += 1
                self.store.note([found.known._replace(path=job.known.path)])
            case "failed":
                self.failed.append(found.known.problem)
                self.store.note([found.known])
            case "foreign":
                self.counts["foreign"] += 1
                self.store.note([found.known])
            case change:
                self.counts[change] += 1
                grown = change == "grown"
                recorded = self.store.record(found.known, found.sessions, found.parts, grown=grown, same=found.same)
                self.messages += recorded.messages
                self.forgotten += recorded.forgotten
                self.parts.update(part.path for part in found.parts)


def by_age(jobs: Sequence[Job]) -> list[Job]:
    """Files in the order they are read in, the newest first; then those that others are likely to be read with.

    A folder that is called like a file holds what belongs to it. What such a file did not take is read by itself.
    """
    names = {os.path.splitext(job.path)[0] for job in jobs}  # noqa: PTH122 - thousands of files
    first: list[Job] = []
    later: list[Job] = []
    for job in sorted(jobs, key=lambda job: -job.stat.mtime_ns):
        (later if any(str(folder) in names for folder in job.path.parents) else first).append(job)
    return [*first, *later]
