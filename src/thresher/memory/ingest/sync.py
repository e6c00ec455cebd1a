"""Sync the archive with the source files on disk.

Without changes, a sync reads only each file's metadata and writes nothing. A changed file is read completely, since
a session is more than its lines, but only changed blocks are written. A deleted file is marked, and its sessions
stay. A problem with one file is reported and does not stop the sync.

Sub-agents in separate files are read with their parent. These files and their folders are the parent's parts: when
one changes, the parent is read again. A part without its parent's file is read by itself.
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from thresher.memory.ingest.change_detection import read_file_stat
from thresher.memory.ingest.extract import IngestJob, PreparedFile, prepare_file
from thresher.memory.ingest.workers import INGEST_OPTIONS, IngestOptions, prepare_files, worker_count
from thresher.memory.records import HIDDEN_PATH_PREFIX, Progress, SourceRecord, SyncReport, hash_hidden_path
from thresher.memory.session_store import SessionStore


class SyncPlan(NamedTuple):
    """Work of one sync."""

    jobs: list[IngestJob]
    unchanged: int
    missing: list[SourceRecord]
    returned: list[SourceRecord]
    invalid_names: list[str]
    """Problem texts for file names that cannot be stored."""


def sync_sources(
    store: SessionStore,
    files: Iterable[tuple[str | None, str | Path]],
    *,
    progress: Progress | None = None,
    wait: bool = True,
    waiting: Callable[[], None] | None = None,
    options: IngestOptions = INGEST_OPTIONS,
) -> SyncReport:
    """Read the changed files, and mark known files that are gone.

    With `wait`, wait until another sync ends (`waiting` is called once before that). Otherwise return a report with
    `busy` set.
    """
    began = time.perf_counter()
    wanted = {_absolute(os.fspath(path)): format or "" for format, path in files}
    look = _plan_sync(store.sources(), wanted)
    if not (look.jobs or look.missing or look.returned or store.is_index_behind()):
        return SyncReport(unchanged=look.unchanged, failed=(*look.invalid_names,), seconds=time.perf_counter() - began)
    size = sum(job.stat.size for job in look.jobs)
    with store.write_lease(wait=wait, waiting=waiting, size=size) as is_ours:
        if not is_ours:
            return SyncReport(busy=True, seconds=time.perf_counter() - began)
        work = _SyncRun(store, _plan_sync(store.sources(), wanted), progress, options)
        work.run()
    return work.report(time.perf_counter() - began)


def _plan_sync(sources: Mapping[str, SourceRecord], wanted: Mapping[str, str]) -> SyncPlan:
    found = SyncPlan([], 0, [], [], [])
    unchanged = 0
    there: set[str] = set()
    parts: dict[str, list[SourceRecord]] = {}
    for known in sources.values():
        if known.whole:
            parts.setdefault(known.whole, []).append(known)
    has_hidden = any(path.startswith(HIDDEN_PATH_PREFIX) for path in sources)
    for path in sorted(wanted, key=lambda path: (path.count(os.sep), path)):
        seen = sources.get(path) or (sources.get(hash_hidden_path(path)) if has_hidden else None)
        whole = seen.whole if seen is not None else ""
        if whole and read_file_stat(whole) is not None:
            continue
        stat = read_file_stat(path)
        if stat is None:
            continue
        there.add(path)
        if not _is_text(path):
            found.invalid_names.append(f"`{path!a}` has a name that is not valid text; rename it")
        elif seen is None or seen.stat != stat:
            found.jobs.append(IngestJob(Path(path), wanted[path], stat, seen, only_parts_changed=False, whole=whole))
        elif any(read_file_stat(part.path) != part.stat for part in parts.get(path, ())):
            found.jobs.append(IngestJob(Path(path), wanted[path], stat, seen, only_parts_changed=True))
        else:
            unchanged += 1
            if seen.state == "gone":
                found.returned.append(seen._replace(state="here"))
    for path, known in sources.items():
        is_file = known.state == "here" and not path.startswith(HIDDEN_PATH_PREFIX)
        if is_file and path not in there and read_file_stat(path) is None:
            found.missing.append(known._replace(state="gone"))
    return found._replace(unchanged=unchanged)


def _absolute(path: str) -> str:
    return path if os.path.isabs(path) else os.path.abspath(path)  # noqa: PTH100, PTH117 - links stay as they are


def _is_text(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


class _SyncRun:
    """State of a running sync."""

    def __init__(self, store: SessionStore, look: SyncPlan, progress: Progress | None, options: IngestOptions) -> None:
        self.store, self.options = store, options
        self.plan = look
        self.progress = progress
        self.counts = dict.fromkeys(("new", "grown", "rewritten", "foreign"), 0)
        self.unchanged = look.unchanged
        self.failed = [*look.invalid_names]
        self.messages = self.forgotten = 0
        self.parts: set[str] = set()
        self.done = 0
        self.total = sum(job.stat.size for job in look.jobs)

    def run(self) -> None:
        if self.plan.missing or self.plan.returned:
            self.store.save_sources([*self.plan.missing, *self.plan.returned])
        self.store.refresh_index(self.progress)  # what an interrupted sync left, or everything
        workers = self.options.workers
        workers = worker_count(len(self.plan.jobs), self.total) if workers is None else workers
        with closing(prepare_files(self._pending_jobs(order_by_age(self.plan.jobs)), workers, self.options)) as every:
            for job, found in every:
                if found.source.path not in self.parts:
                    self._record_all(job, found)
                self._report_progress(job)
        self.store.refresh_index()

    def _pending_jobs(self, jobs: Iterable[IngestJob]) -> Iterator[IngestJob]:
        """Yield files that were not read with another one, with their stored digests."""
        for job in jobs:
            if str(job.path) in self.parts:
                self._report_progress(job)
            else:
                stored = self.store.stored_digests(str(job.path)) if job.source is not None else {}
                yield job._replace(stored=stored, most_sessions=self.options.sessions_per_read)

    def _report_progress(self, job: IngestJob) -> None:
        self.done += job.stat.size
        if self.progress is not None:
            self.progress(self.done, self.total)

    def report(self, seconds: float) -> SyncReport:
        return SyncReport(
            new=self.counts["new"],
            grown=self.counts["grown"],
            rewritten=self.counts["rewritten"],
            foreign=self.counts["foreign"],
            unchanged=self.unchanged,
            gone=len(self.plan.missing),
            failed=(*self.failed,),
            messages=self.messages,
            forgotten_again=self.forgotten,
            seconds=seconds,
        )

    def _record_all(self, job: IngestJob, found: PreparedFile) -> None:
        """Record a file, and read a multi-session file in batches until it is complete."""
        self._record_file(job, found)
        counts, most = dict(self.counts), found.remaining + 1
        while found.remaining:
            if self.progress is not None:
                self.progress(self.done + job.stat.size * (most - found.remaining) // (most + 1), self.total)
            kept = self.store.stored_digests(found.source.path)
            again = job._replace(source=found.source, stored=kept, already_read=found.already_read)
            found = prepare_file(again, self.options.read)
            self._record_file(job, found)
        self.counts = counts  # count the file once

    def _record_file(self, job: IngestJob, found: PreparedFile) -> None:
        """Record one result of reading a file."""
        match found.status:
            case "vanished":
                return
            case "touched":
                assert job.source is not None
                self.unchanged += 1
                self.store.save_sources([found.source._replace(path=job.source.path)])
            case "failed":
                self.failed.append(found.source.problem)
                self.store.save_sources([found.source])
            case "foreign":
                self.counts["foreign"] += 1
                self.store.save_sources([found.source])
            case change:
                self.counts[change] += 1
                grown = change == "grown"
                recorded = self.store.record(
                    found.source, found.sessions, found.parts, grown=grown, same=found.unchanged_ids
                )
                self.messages += recorded.new_messages
                self.forgotten += recorded.forgotten
                self.parts.update(part.path for part in found.parts)


def order_by_age(jobs: Sequence[IngestJob]) -> list[IngestJob]:
    """Order files by age, newest first, and put those that are probably parts of others last.

    A folder with the name of a file, without its suffix, contains parts of that file. Files that the main file does
    not include are read by themselves.
    """
    names = {os.path.splitext(job.path)[0] for job in jobs}  # noqa: PTH122 - thousands of files
    first: list[IngestJob] = []
    later: list[IngestJob] = []
    for job in sorted(jobs, key=lambda job: -job.stat.mtime_ns):
        (later if any(str(folder) in names for folder in job.path.parents) else first).append(job)
    return [*first, *later]
