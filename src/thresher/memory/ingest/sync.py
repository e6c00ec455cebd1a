"""Sync the archive with the source files on disk.

Without changes, a sync reads only each file's metadata and writes nothing. A changed file is read completely, since
new lines can change how earlier ones are read, but only changed blocks are written. A deleted file is marked as gone,
and its sessions stay in the archive. A problem with one file is reported and does not stop the sync.

Sub-agents in separate files are read with their parent. These files and their folders are the parts of the parent's
file: when one changes, the parent's file is read again. If that file is gone, its parts are read by themselves.
"""

import os
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

    If another sync is running and `wait` is true, call `waiting` once and wait. If `wait` is false, return a report
    with `busy` set.
    """
    began = time.perf_counter()
    wanted = {absolute_path(os.fspath(path)): format or "" for format, path in files}
    plan = plan_sync(store.archive.sources(), wanted)
    if not (plan.jobs or plan.missing or plan.returned or store.is_index_behind()):
        return SyncReport(unchanged=plan.unchanged, failed=(*plan.invalid_names,), seconds=time.perf_counter() - began)
    size = sum(job.stat.size for job in plan.jobs)
    with store.write_lease(wait=wait, waiting=waiting, size=size) as is_ours:
        if not is_ours:
            return SyncReport(busy=True, seconds=time.perf_counter() - began)
        run = _SyncRun(store, plan_sync(store.archive.sources(), wanted), progress, options)
        run.run()
    return run.report(time.perf_counter() - began)


def plan_sync(sources: Mapping[str, SourceRecord], wanted: Mapping[str, str]) -> SyncPlan:
    """Compare the wanted files (path and format) with the known sources."""
    plan = SyncPlan([], 0, [], [], [])
    unchanged = 0
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
    return plan._replace(unchanged=unchanged)


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

    def __init__(self, store: SessionStore, plan: SyncPlan, progress: Progress | None, options: IngestOptions) -> None:
        self.store, self.options = store, options
        self.plan = plan
        self.progress = progress
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
        self.store.refresh_index(self.progress)  # after an interrupted sync, or if there is no index
        workers = self.options.workers
        workers = worker_count(len(self.plan.jobs), self.total) if workers is None else workers
        jobs = self._pending_jobs(order_by_age(self.plan.jobs))
        with closing(prepare_files(jobs, workers, self.options)) as prepared_files:
            for job, prepared in prepared_files:
                if prepared.source.path not in self.parts:
                    self._record_all(job, prepared)
                self._report_progress(job)
        self.store.refresh_index()

    def _pending_jobs(self, jobs: Iterable[IngestJob]) -> Iterator[IngestJob]:
        """Yield the jobs with stored digests; skip files that were already read as parts of other files."""
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

    def _record_all(self, job: IngestJob, prepared: PreparedFile) -> None:
        """Record a file, and read a multi-session file in batches until it is complete."""
        self._record_file(job, prepared)
        counts, total = dict(self.counts), prepared.remaining + 1
        while prepared.remaining:
            if self.progress is not None:
                self.progress(self.done + job.stat.size * (total - prepared.remaining) // (total + 1), self.total)
            stored = self.store.stored_digests(prepared.source.path)
            next_job = job._replace(source=prepared.source, stored=stored, already_read=prepared.already_read)
            prepared = prepare_file(next_job, self.options.read)
            self._record_file(job, prepared)
        self.counts = counts  # count the file once

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


def order_by_age(jobs: Sequence[IngestJob]) -> list[IngestJob]:
    """Order files by age, newest first, but put probable parts of other files last.

    A folder that has the name of a file, without its suffix, probably contains parts of that file. Files that are
    not read with that file are read by themselves at the end.
    """
    names = {os.path.splitext(job.path)[0] for job in jobs}  # noqa: PTH122 - thousands of files
    main_files: list[IngestJob] = []
    possible_parts: list[IngestJob] = []
    for job in sorted(jobs, key=lambda job: -job.stat.mtime_ns):
        (possible_parts if any(str(folder) in names for folder in job.path.parents) else main_files).append(job)
    return [*main_files, *possible_parts]
