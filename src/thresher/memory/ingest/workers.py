"""Worker processes that prepare files, where there is much to read.

A worker is a Python that does nothing but this. It is not started by `multiprocessing`: that runs the main module
again in each process, which is a user's script here, and may do anything. Files are given out in order, not more
than a few at a time, and come back in the same order: what is written does not depend on how many are at work.
"""

import gc
import os
import pickle
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
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
from thresher.memory.records import SourceRecord
from thresher.transcripts import read_all

MUCH_BYTES = 64_000_000
"""What is less is read sooner than workers are started and told."""
FEW_FILES = 3
MOST_WORKERS = 4
AHEAD_FILES = 4
"""Files that are given out for each worker."""
WORKER_SCRIPT = (
    "import sys; sys.path[:] = sys.argv[1:]; from thresher.memory.ingest.workers import "
    "run_ingest_worker; run_ingest_worker()"
)


def start_worker_process(command: list[str]) -> "subprocess.Popen[bytes]":
    """Start a process that is spoken to through its standard input and output."""
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)


class IngestOptions(NamedTuple):
    """How a sync reads files."""

    read: SessionReader = read_all
    """Reads a file in this process."""
    sessions_per_read: int = MAX_SESSIONS_PER_READ
    workers: int | None = None
    """How many there are; None decides by how much there is to read."""
    ahead_bytes: int = 64_000_000
    """Bytes of files that are given out at a time, so that memory stays small; a single file may have more."""
    start_process: Callable[[list[str]], "subprocess.Popen[bytes]"] = start_worker_process


INGEST_OPTIONS = IngestOptions()


def worker_count(files: int, size: int, cores: int = 0) -> int:
    """How many workers so many files of so many bytes are worth; 0 where they are better read here."""
    cores = cores or (len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    can_start = bool(sys.executable) and not hasattr(sys, "frozen")
    if size < MUCH_BYTES or files <= FEW_FILES or cores < 2 or not can_start:
        return 0
    return min(cores, MOST_WORKERS)


def prepare_files(
    jobs: Iterable[IngestJob], workers: int, options: IngestOptions = INGEST_OPTIONS
) -> Generator[tuple[IngestJob, PreparedFile]]:
    """Every file, prepared, in the order they are given in; by so many workers, or here where there are none."""
    if not workers:
        yield from ((job, prepare_file(job, options.read)) for job in jobs)
        return
    with closing(_WorkerPool(workers, options)) as staff:
        line: deque[tuple[IngestJob, Future[PreparedFile]]] = deque()
        for job in jobs:
            line.append((job, staff.submit(job)))
            while len(line) > AHEAD_FILES * workers or sum(one.stat.size for one, _ in line) > options.ahead_bytes:
                first, done = line.popleft()
                yield first, done.result()
        for first, done in line:
            yield first, done.result()


class _WorkerPool:
    """Workers, and a thread for each that waits for its answers."""

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
        if (
            job.stat.size > self._options.ahead_bytes
        ):  # likely for want of memory, and here it would be the end of the whole sync
            known = SourceRecord(str(job.path), job.stat, format=job.format)
            return build_failed_file(
                known, f"{job.path}: the process that read it was ended, perhaps for want of memory"
            )
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
        """Let nobody finish what nobody waits for."""
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
                    with suppress(OSError):  # of what it was not told any more
                        pipe.close()


def _request_result(process: "subprocess.Popen[bytes]", job: IngestJob) -> PreparedFile:
    assert process.stdin is not None
    assert process.stdout is not None
    pickle.dump(job, process.stdin)
    process.stdin.flush()
    answer: PreparedFile = pickle.load(process.stdout)
    return answer


def run_ingest_worker() -> None:
    """What a worker does: prepare the files that it is told of, until nobody tells it of any."""
    signal(SIGINT, SIG_DFL)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what somebody prints is no answer
    gc.freeze()
    gc.disable()  # hardly anything that is made here is a circle, and to look for them takes a tenth of the time
    with suppress(EOFError, BrokenPipeError):
        while True:
            job: IngestJob = pickle.load(sys.stdin.buffer)
            pickle.dump(prepare_file(job), answers, pickle.HIGHEST_PROTOCOL)
            answers.flush()
            gc.collect()
