"""Sync the archive with the source files on disk.

Without changes, a sync reads only each file's metadata and writes nothing. A changed file is read completely, since
new lines can change how earlier ones are read, but only changed blocks are written. A deleted file is marked as gone,
and its sessions stay in the archive. A problem with one file is reported and does not stop the sync.

A sync can stop early: it reads the newest files first, keeps what it has recorded, and the next one reads the rest.

Sub-agents in separate files are read with their parent. These files and their folders are the parts of the parent's
file: when one changes, the parent's file is read again. If that file is gone, its parts are read by themselves.
"""

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from thresher.memory.ingest.change_detection import FileChange, read_file_stat
from thresher.memory.ingest.extract import (
    IngestJob,
    PreparedFile,
    build_failed_file,
    describe_failure,
    is_storage_failure,
    prepare_file,
)
from thresher.memory.ingest.workers import INGEST_OPTIONS, MUCH_BYTES, IngestOptions, prepare_files, worker_count
from thresher.memory.records import (
    HIDDEN_PATH_PREFIX,
    Progress,
    SourceRecord,
    Stop,
    SyncReport,
    hash_hidden_path,
    never_stop,
)
from thresher.memory.session_store import SessionStore

FEW_SESSIONS = 16
"""Number of sessions to read from a multi-session file at a time, if the sync may have to stop early."""


class SyncPlan(NamedTuple):
    """Work of one sync."""

    jobs: list[IngestJob]
    unchanged: int
    missing: list[SourceRecord]
    returned: list[SourceRecord]
    invalid_names: list[str]
    """Problem texts for file names that cannot be stored."""
    size: int = 0
    """Size of all wanted files in bytes."""


def sync_sources(
    store: SessionStore,
    files: Iterable[tuple[str | None, str | Path]],
    *,
    progress: Progress | None = None,
    wait: bool = True,
    waiting: Callable[[], None] | None = None,
    stop: Stop = never_stop,
    options: IngestOptions = INGEST_OPTIONS,
) -> SyncReport:
    """Read the changed files, and mark known files that are gone.

    If another sync is running and `wait` is true, call `waiting` once and wait. If `wait` is false, return a report
    with `busy` set. When `stop` returns True, keep what is done and leave the other files to the next sync.
    """
    began = time.perf_counter()
    wanted = {absolute_path(os.fspath(path)): format or "" for format, path in files}
    plan = plan_sync(store.archive.sources(), wanted)
    if not (plan.jobs or plan.missing or plan.returned or store.is_index_behind() or store.indexed_share() < 1):
        return SyncReport(unchanged=plan.unchanged, failed=(*plan.invalid_names,), seconds=time.perf_counter() - began)
    size = sum(job.stat.size for job in plan.jobs)
    with store.write_lease(wait=wait, waiting=waiting, size=size) as is_ours:
        if not is_ours:
            return SyncReport(busy=True, seconds=time.perf_counter() - began)
        run = _SyncRun(store, plan_sync(store.archive.sources(), wanted), progress, stop, options)
        run.run()
    return run.report(time.perf_counter() - began)


def plan_sync(sources: Mapping[str, SourceRecord], wanted: Mapping[str, str]) -> SyncPlan:
    """Compare the wanted files (path and format) with the known sources."""
    plan = SyncPlan([], 0, [], [], [])
    unchanged = size = 0
    existing: set[str] = set()
    parts: dict[str, list[SourceRecord]] = {}
    for source in sources.values():
        if source.whole:
            parts.setdefault(source.whole, []).append(source)
    has_hidden = any(path.startswith(HIDDEN_PATH_PREFIX) for path in sources)
    for path in sorted(wanted, key=lambda path: (path.count(os.sep), path)):
        known_source = sources.get(path) or (sources.get(hash_hidden_path(path)) if has_hidden else None)
        main_file = known_source.whole if known_source is not None else ""
        if main_file and read_file_stat(main_file) is not None:
            continue
        stat = read_file_stat(path)
        if stat is None:
            continue
        existing.add(path)
        size += stat.size
        if not _is_text(path):
            plan.invalid_names.append(f"`{path!a}` has a name that is not valid text; rename it")
        elif known_source is None or known_source.stat != stat:
            plan.jobs.append(IngestJob(Path(path), wanted[path], stat, known_source, whole=main_file))
        elif any(read_file_stat(part.path) != part.stat for part in parts.get(path, ())):
            plan.jobs.append(IngestJob(Path(path), wanted[path], stat, known_source, only_parts_changed=True))
        else:
            unchanged += 1
            if known_source.state == "gone":
                plan.returned.append(known_source._replace(state="here"))
    for path, source in sources.items():
        is_file = source.state == "here" and not path.startswith(HIDDEN_PATH_PREFIX)
        if is_file and path not in existing and read_file_stat(path) is None:
            plan.missing.append(source._replace(state="gone"))
    return plan._replace(unchanged=unchanged, size=size)


def absolute_path(path: str) -> str:
    """Return the path under which the archive knows a file."""
    return path if os.path.isabs(path) else os.path.abspath(path)  # noqa: PTH100, PTH117 - links stay as they are


def _is_text(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


class _SyncRun:
    """State of a running sync."""

    def __init__(
        self, store: SessionStore, plan: SyncPlan, progress: Progress | None, stop: Stop, options: IngestOptions
    ) -> None:
        self.store, self.options = store, options
        self.plan = plan
        self.progress, self.stop = progress, stop
        self.counts = dict.fromkeys(("new", "grown", "rewritten", "foreign"), 0)
        self.unchanged = plan.unchanged
        self.failed = [*plan.invalid_names]
        self.messages = self.forgotten = 0
        self.parts: set[str] = set()
        self.done = 0
        self.total = sum(job.stat.size for job in plan.jobs)

    def run(self) -> None:
        if self.plan.missing or self.plan.returned:
            self.store.archive.put_sources([*self.plan.missing, *self.plan.returned])
        self._update_share()
        # After an interrupted sync, or if there is no index.
        if self.store.refresh_index(self.progress, self.stop):
            self._read_files()
            self.store.refresh_index()
            self.store.save_share()

    def _read_files(self) -> None:
        workers = self.options.workers
        workers = worker_count(len(self.plan.jobs), self.total) if workers is None else workers
        jobs = self._pending_jobs(order_by_age(self.plan.jobs, postpone_large=self.is_bounded))
        with closing(prepare_files(jobs, workers, self.options, self.stop)) as prepared_files:
            for job, prepared in prepared_files:
                if prepared.source.path in self.parts or self._record_all(job, prepared):
                    self._report_progress(job)

    @property
    def is_bounded(self) -> bool:
        """True if the sync may have to stop early."""
        return self.stop is not never_stop

    def _pending_jobs(self, jobs: Iterable[IngestJob]) -> Iterator[IngestJob]:
        """Yield the jobs with stored digests; skip files that were already read as parts of other files."""
        for job in jobs:
            if str(job.path) in self.parts:
                self._report_progress(job)
            else:
                stored = self.store.stored_digests(str(job.path)) if job.source is not None else {}
                most = min(self.options.sessions_per_read, FEW_SESSIONS if self.is_bounded else sys.maxsize)
                yield job._replace(stored=stored, most_sessions=most)

    def _update_share(self) -> None:
        """Tell the index which share of the files it has when it commits the next time."""
        self.store.share = (self.plan.size - self.total + self.done) / self.plan.size if self.done < self.total else 1.0

    def _report_progress(self, job: IngestJob) -> None:
        self.done += job.stat.size
        self._update_share()
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
            indexed=self.store.indexed_share(),
        )

    def _record_all(self, job: IngestJob, prepared: PreparedFile) -> bool:
        """Record a file, and read a multi-session file in batches; return whether it is complete."""
        self._record_file(job, prepared)
        counts, total = dict(self.counts), prepared.remaining + 1
        while prepared.remaining and not self.stop():
            if self.progress is not None:
                self.progress(self.done + job.stat.size * (total - prepared.remaining) // (total + 1), self.total)
            stored = self.store.stored_digests(prepared.source.path)
            next_job = job._replace(source=prepared.source, stored=stored, already_read=prepared.already_read)
            prepared = prepare_file(next_job, self.options.read)
            self._record_file(job, prepared)
        self.counts = counts  # count the file once
        return not prepared.remaining

    def _record_file(self, job: IngestJob, prepared: PreparedFile) -> None:
        """Record one result of reading a file."""
        match prepared.status:
            case "vanished":
                return
            case "touched":
                assert job.source is not None
                self.unchanged += 1
                self.store.archive.put_sources([prepared.source._replace(path=job.source.path)])
            case "failed":
                self.failed.append(prepared.source.problem)
                self.store.archive.put_sources([prepared.source])
            case "foreign":
                self.counts["foreign"] += 1
                self.store.archive.put_sources([prepared.source])
            case change:
                self._store_sessions(job, prepared, change)

    def _store_sessions(self, job: IngestJob, prepared: PreparedFile, change: FileChange) -> None:
        """Store the sessions of a file. If a value cannot be stored, only this file fails."""
        grown, same = change == "grown", prepared.unchanged_ids
        try:
            counts = self.store.record(prepared.source, prepared.sessions, prepared.parts, grown=grown, same=same)
        except Exception as error:
            if is_storage_failure(error):
                raise
            self._record_file(job, build_failed_file(prepared.source, describe_failure(job.path, error)))
            return
        self.counts[change] += 1
        self.messages += counts.new_messages
        self.forgotten += counts.forgotten
        self.parts.update(part.path for part in prepared.parts)


def order_by_age(jobs: Sequence[IngestJob], *, postpone_large: bool = False) -> list[IngestJob]:
    """Order files by age, newest first, but put probable parts of other files last.

    A folder that has the name of a file, without its suffix, probably contains parts of that file. Files that are
    not read with that file are read by themselves at the end. With `postpone_large`, a file that may take all the time
    of a bounded sync comes after the other main files.
    """
    names = {os.path.splitext(job.path)[0] for job in jobs}  # noqa: PTH122 - thousands of files
    main_files: list[IngestJob] = []
    possible_parts: list[IngestJob] = []
    for job in sorted(jobs, key=lambda job: -job.stat.mtime_ns):
        (possible_parts if any(str(folder) in names for folder in job.path.parents) else main_files).append(job)
    if postpone_large:
        main_files.sort(key=lambda job: job.stat.size > MUCH_BYTES)
    return [*main_files, *possible_parts]
