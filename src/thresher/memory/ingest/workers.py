"""Worker processes that prepare files in a large sync.

A worker is a Python process started with `subprocess`. `multiprocessing` is not an option, because it runs the main
module again in each process, and that may be a user's script. Files are queued in order, up to a limit, and their
results arrive in the same order. So the stored result does not depend on the number of workers.
"""

import gc
import os
import pickle
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import closing, suppress
from queue import SimpleQueue
from signal import SIG_DFL, SIGINT, signal
from threading import Lock
from typing import NamedTuple

from thresher.memory.ingest.extract import (
    MAX_SESSIONS_PER_READ,
    IngestJob,
    PreparedFile,
    SessionReader,
    build_failed_file,
    prepare_file,
)
from thresher.memory.records import SourceRecord, Stop, never_stop
from thresher.transcripts import read_all

MUCH_BYTES = 64_000_000
"""Minimum size of a sync that is faster with workers."""
MOST_WORKERS = 4
BYTES_PER_COLLECTION = 64_000_000
"""Size of the files that a worker reads between two garbage collections."""
STOP_POLL_SECONDS = 0.1
"""Interval at which a sync that waits for a worker checks whether to stop."""
AHEAD_FILES = 4
"""Maximum number of queued files per worker."""
WORKER_SCRIPT = (
    "import sys; sys.path[:] = sys.argv[1:]; from thresher.memory.ingest.workers import "
    "run_ingest_worker; run_ingest_worker()"
)


def start_worker_process(command: list[str]) -> "subprocess.Popen[bytes]":
    """Start a worker with pipes for its standard input and output."""
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)


class IngestOptions(NamedTuple):
    """Options for reading files in a sync."""

    read: SessionReader = read_all
    """Function that reads a file in this process."""
    sessions_per_read: int = MAX_SESSIONS_PER_READ
    workers: int | None = None
    """Number of workers; None to choose it by the number and size of the files."""
    ahead_bytes: int = 64_000_000
    """Maximum size of queued files in bytes, to limit memory. A single file may be larger."""
    start_process: Callable[[list[str]], "subprocess.Popen[bytes]"] = start_worker_process


INGEST_OPTIONS = IngestOptions()


def worker_count(files: int, size: int, cores: int = 0) -> int:
    """Return the number of workers for this many files and bytes; 0 to read them in this process."""
    cores = cores or (len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    can_start = bool(sys.executable) and not hasattr(sys, "frozen")
    return min(files, cores, MOST_WORKERS) if size >= MUCH_BYTES and can_start else 0


def prepare_files(
    jobs: Iterable[IngestJob], workers: int, options: IngestOptions = INGEST_OPTIONS, stop: Stop = never_stop
) -> Generator[tuple[IngestJob, PreparedFile]]:
    """Prepare files and yield them in order, in this process if `workers` is 0; end early if `stop` returns True.

    A worker can stop in the middle of a file, but this process only between two files.
    """
    if not workers:
        for job in jobs:
            if stop():
                return
            yield job, prepare_file(job, options.read)
        return
    with closing(_WorkerPool(workers, options)) as pool:
        queue: deque[tuple[IngestJob, Future[PreparedFile]]] = deque()
        for job in jobs:
            queue.append((job, pool.submit(job)))
            while (
                len(queue) > AHEAD_FILES * workers
                or sum(waiting.stat.size for waiting, _ in queue) > options.ahead_bytes
            ):
                first, future = queue.popleft()
                if not _wait_for(future, stop):
                    return
                yield first, future.result()
        for first, future in queue:
            if not _wait_for(future, stop):
                return
            yield first, future.result()


def _wait_for(future: "Future[PreparedFile]", stop: Stop) -> bool:
    """Wait for a result; return False if the sync should stop before it is there."""
    while not stop():
        if wait([future], STOP_POLL_SECONDS).done:
            return True
    return False


class _WorkerPool:
    """Worker processes, each with a thread that waits for its results."""

    def __init__(self, count: int, options: IngestOptions) -> None:
        self._options = options
        self._threads = ThreadPoolExecutor(count)
        self._idle: SimpleQueue[subprocess.Popen[bytes] | None] = SimpleQueue()
        self._processes: list[subprocess.Popen[bytes]] = []
        self._lock = Lock()
        self._is_closed = False
        for _ in range(count):
            self._idle.put(None)

    def submit(self, job: IngestJob) -> "Future[PreparedFile]":
        return self._threads.submit(self._prepare_in_worker, job)

    def _prepare_in_worker(self, job: IngestJob) -> PreparedFile:
        process = self._idle.get()
        try:
            process = process or self._start_worker()
            return _request_result(process, job)
        except (OSError, EOFError, pickle.UnpicklingError):
            if self._is_closed:
                raise
            process = None
        finally:
            self._idle.put(process)
        # The worker probably ran out of memory. If this process read a large file and died too, the sync would end.
        if job.stat.size > self._options.ahead_bytes:
            source = SourceRecord(str(job.path), job.stat, format=job.format)
            problem = f"{job.path}: the worker process died, probably because of too little memory"
            return build_failed_file(source, problem)
        return prepare_file(job)

    def _start_worker(self) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-c", WORKER_SCRIPT, *(path for path in sys.path if isinstance(path, str))]
        with self._lock:
            if self._is_closed:
                raise EOFError
            process = self._options.start_process(command)
            self._processes.append(process)
        return process

    def close(self) -> None:
        """Cancel queued files and stop all workers."""
        with self._lock:
            self._is_closed = True
        self._threads.shutdown(wait=False, cancel_futures=True)
        for process in self._processes:
            process.kill()
        self._threads.shutdown()
        for process in self._processes:
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with suppress(OSError):  # unsent data
                        pipe.close()


def _request_result(process: "subprocess.Popen[bytes]", job: IngestJob) -> PreparedFile:
    assert process.stdin is not None
    assert process.stdout is not None
    pickle.dump(job, process.stdin)
    process.stdin.flush()
    result: PreparedFile = pickle.load(process.stdout)
    return result


def run_ingest_worker() -> None:
    """Prepare the files of the jobs on standard input, and write the results to standard output."""
    signal(SIGINT, SIG_DFL)
    results = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # keep printed text out of the result stream
    gc.freeze()
    gc.disable()  # Almost no objects here form reference cycles, so rare collections save 15 %.
    since_collection = 0
    with suppress(EOFError, BrokenPipeError):
        while True:
            job: IngestJob = pickle.load(sys.stdin.buffer)
            pickle.dump(prepare_file(job), results, pickle.HIGHEST_PROTOCOL)
            results.flush()
            since_collection += job.stat.size
            if since_collection > BYTES_PER_COLLECTION:
                gc.collect()
                since_collection = 0
