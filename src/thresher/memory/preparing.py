"""All that can be done for one file before anything is written: read it, find what to keep and what to search.

`prepared` looks at one file and at what is known of it, and at nothing else. So it gives the same wherever it runs:
here, or in another process, where there is much to do. What comes back is small: packed blocks, the entries of
those blocks that are new, and facts; no messages. A store writes it down as it is.

A worker is a Python that does nothing but this. It is not started by `multiprocessing`: that runs the main module
again in each process, which is a user's script here, and may do anything. Files are given out in order, not more
than a few at a time, and come back in the same order: what is written does not depend on how many are at work.
"""

import gc
import os
import pickle
import subprocess
import sys
import time
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from queue import SimpleQueue
from signal import SIG_DFL, SIGINT, signal
from threading import Lock
from typing import Literal, NamedTuple

from thresher.errors import ReadError, UnknownFormatError
from thresher.formats import listed, read_all
from thresher.memory.docs import Doc, clean_title, docs_of, read_pieces, signature
from thresher.memory.gates import Verdict, mark_of, mark_of_store, stat_of, verdict
from thresher.memory.lineage import start_of
from thresher.memory.packing import BLOCK, compress, laid_out, packed, shape_of, text_size
from thresher.memory.provenance import Piece, made_by_recall
from thresher.memory.tables import Block, Entry
from thresher.memory.values import Facts, Known, Stat
from thresher.model import Message, Session

UNSURE_NS = 20_000_000
"""Clocks of file systems lag: a part that changed this shortly before it was read may have changed after, too."""
MUCH_BYTES = 64_000_000
"""What is less is read sooner than workers are started and told."""
FEW_FILES = 3
MOST_WORKERS = 4
AHEAD_FILES = 4
"""Files that are given out for each worker."""
AHEAD_BYTES = 64_000_000
"""Bytes of files that are given out at a time, so that memory stays small; a single file may have more."""
AT_ONCE = 128
"""Sessions of a store that are read at a time."""
START = "import sys; sys.path[:] = sys.argv[1:]; from thresher.memory.preparing import serve; serve()"

Change = Literal[Verdict, "foreign", "failed", "vanished"]
Name = tuple[str, str, str, int]
"""Agent, id, file, and which one it is of several sessions of that name."""


class Before(NamedTuple):
    """A session as it is kept now."""

    made_by: str
    digests: tuple[bytes, ...]
    mark: str = ""


class Job(NamedTuple):
    """A file that is not as it was."""

    path: Path
    format: str
    stat: Stat
    known: Known | None
    parts: bool
    """Only its parts changed."""
    whole: str = ""
    """The file that it was a part of, and that is gone."""
    before: Mapping[Name, Before] = {}
    """Its sessions, where some are kept."""
    tried: frozenset[str] = frozenset()
    """Sessions of a store, by id, that were read a moment ago: not all that is read is kept."""


class Ready(NamedTuple):
    """A session that only has to be written down."""

    entry: Entry
    ordinal: int
    """Which one it is of several sessions of this name."""
    owner: int
    """The place in its file of the session whose sub-agent it is; -1 where it is nobody's."""
    docs: dict[int, list[Doc]]
    """The entries of each block that was not kept, by its number in the session."""


class Prepared(NamedTuple):
    """All that a file has to say. Owners come before their sub-agents."""

    known: Known
    change: Change
    sessions: tuple[Ready, ...] = ()
    parts: tuple[Known, ...] = ()
    """Files that were read with this one, and their folders."""
    same: frozenset[str] = frozenset()
    """Sessions of a store that are there and were not read, by id."""
    tried: frozenset[str] = frozenset()
    """Those that were read, now or a moment ago."""
    left: int = 0
    """How many changed, and are still to be read."""


def prepared(job: Job) -> Prepared:
    """Read a file, unless it was only touched. What it cannot be read for is told in `known`."""
    known = Known(str(job.path), job.stat, format=job.format, whole=job.whole)
    began = time.time_ns() - UNSURE_NS
    try:
        marks = listed(job.path, format=job.format or None)
        mark = mark_of(job.path, job.stat.size) if marks is None else mark_of_store(marks)
        known = known._replace(offset=mark.offset, prefix=mark.prefix)
        change = verdict(job.path, job.known, mark)
        if change == "touched" and not job.parts:
            return Prepared(known, "touched")
        some, left = _changed(job, marks or {})
        wanted = some.__contains__ if marks else None
        sessions = read_all(job.path, format=job.format or None, is_wanted=wanted)
        ready = tuple(made_ready(sessions, job.before, marks))
    except UnknownFormatError:
        return Prepared(known._replace(state="foreign", prefix=b""), "foreign")
    except (ReadError, OSError) as error:
        return Prepared(known, "vanished") if stat_of(job.path) is None else failed(known, str(error))
    except MemoryError:
        return failed(known, f"{job.path}: there is not enough memory to read it")
    parts = tuple(_parts(known.path, sessions, began))
    if left:  # the next sync finds it changed, should this one end here
        known = known._replace(stat=job.stat._replace(size=-1), prefix=b"")
    change = "grown" if change == "touched" else change
    return Prepared(known, change, ready, parts, frozenset(marks or ()) - some, job.tried | some, left)


def _changed(job: Job, marks: Mapping[str, str]) -> tuple[frozenset[str], int]:
    """Some sessions of a store that are not as they were, by id, and how many others there are."""
    kept = {id: before.mark for (_, id, _, _), before in job.before.items()}
    changed = [id for id, mark in marks.items() if kept.get(id) != mark and id not in job.tried]
    return frozenset(changed[:AT_ONCE]), max(0, len(changed) - AT_ONCE)


def failed(known: Known, problem: str) -> Prepared:
    """What becomes of a file that cannot be read."""
    return Prepared(known._replace(state="failed", prefix=b"", problem=problem), "failed")


def made_ready(
    sessions: Sequence[Session], before: Mapping[Name, Before], marks: Mapping[str, str] | None = None
) -> Iterator[Ready]:
    """The sessions of a file, each before its sub-agents; `marks` tell of each in a store what it is known by."""
    ordinals: dict[tuple[str, str, str], int] = {}
    line = [(session, -1) for session in reversed(sessions)]
    place = 0
    while line:
        session, owner = line.pop()
        facts = _facts_of(session, is_child=owner >= 0)
        name = (facts.agent, facts.id, facts.file)
        ordinal = ordinals[name] = ordinals.get(name, -1) + 1
        ready = _ready(session, facts, ordinal, owner, before.get((*name, ordinal)))
        yield ready._replace(entry=ready.entry._replace(mark=(marks or {}).get(session.id, "")))
        line += [(child, place) for child in reversed(session.children)]
        place += 1


def _ready(session: Session, facts: Facts, ordinal: int, owner: int, before: Before | None) -> Ready:
    messages, found = laid_out(session), read_pieces(session)
    blocks = _blocks(messages, found)
    text = text_size(message for message in messages if not message.carried)
    same = _same(blocks, before) if before is not None and before.made_by == facts.made_by else 0
    docs = {number: [*docs_of(messages, found, number, made_by=facts.made_by)] for number in range(same, len(blocks))}
    return Ready(Entry(facts, start_of(session), shape_of(session), text, blocks), ordinal, owner, docs)


def _blocks(messages: Sequence[Message], found: Sequence[list[Piece]]) -> list[Block]:
    blocks = []
    for start in range(0, len(messages), BLOCK):
        some = messages[start : start + BLOCK]
        body = packed(some)
        digest = blake2b(body, digest_size=16)
        digest.update(signature(found[start : start + BLOCK]))
        blocks.append(Block(digest.digest(), len(some), compress(body)))
    return blocks


def _same(blocks: Sequence[Block], before: Before) -> int:
    """How many blocks are as they were."""
    pairs = zip(blocks, before.digests, strict=False)
    return next((number for number, (block, digest) in enumerate(pairs) if block.digest != digest), len(before.digests))


def _facts_of(session: Session, *, is_child: bool) -> Facts:
    return Facts(
        key=0,
        id=_clean(session.id),
        agent=session.agent,
        file=session.file,
        project=_clean(session.project),
        branch=_clean(session.git_branch),
        title=_clean(clean_title(session)),
        version=_clean(session.version),
        parent=_clean(session.parent),
        subagent=is_child or session.is_subagent,
        call=_clean(session.call_id),
        started=session.started,
        ended=session.ended,
        messages=sum(len(way) for way in (*session.segments, *(branch.history for branch in session.branches))),
        compactions=session.compactions,
        made_by=made_by_recall(session),
    )


def _clean(text: str) -> str:
    """Text that a table can hold."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _parts(path: str, sessions: Sequence[Session], began: int) -> Iterator[Known]:
    """Files that were read with this one, and their folders, where a new one would turn up."""
    children = [child for session in sessions for child in _below(session)]
    others = (file for one in (*sessions, *children) for file in one.files)
    files = {*(child.file for child in children), *others} - {path}
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


# --- other processes -------------------------------------------------------------------------------------------------


def worker_count(files: int, size: int) -> int:
    """How many workers so many files of so many bytes are worth; 0 where they are better read here."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    can_start = bool(sys.executable) and not hasattr(sys, "frozen")
    if size < MUCH_BYTES or files <= FEW_FILES or cores < 2 or not can_start:
        return 0
    return min(cores, MOST_WORKERS)


def each_prepared(jobs: Iterable[Job], workers: int) -> Generator[tuple[Job, Prepared]]:
    """Every file, prepared, in the order they are given in; by so many workers, or here where there are none."""
    if not workers:
        yield from ((job, prepared(job)) for job in jobs)
        return
    with _staff(workers) as staff:
        line: deque[tuple[Job, Future[Prepared]]] = deque()
        for job in jobs:
            line.append((job, staff.begin(job)))
            while len(line) > AHEAD_FILES * workers or sum(one.stat.size for one, _ in line) > AHEAD_BYTES:
                first, done = line.popleft()
                yield first, done.result()
        for first, done in line:
            yield first, done.result()


class _Staff:
    """Workers, and a thread for each that waits for its answers."""

    def __init__(self, count: int) -> None:
        self._threads = ThreadPoolExecutor(count)
        self._idle: SimpleQueue[subprocess.Popen[bytes] | None] = SimpleQueue()
        self._all: list[subprocess.Popen[bytes]] = []
        self._lock = Lock()
        self._is_over = False
        for _ in range(count):
            self._idle.put(None)

    def begin(self, job: Job) -> "Future[Prepared]":
        return self._threads.submit(self._asked, job)

    def _asked(self, job: Job) -> Prepared:
        process = self._idle.get()
        try:
            process = process or self._started()
            return _answer(process, job)
        except (OSError, EOFError, pickle.UnpicklingError):
            if self._is_over:
                raise
            process = None
        finally:
            self._idle.put(process)
        if job.stat.size > AHEAD_BYTES:  # likely for want of memory, and here it would be the end of the whole sync
            known = Known(str(job.path), job.stat, format=job.format)
            return failed(known, f"{job.path}: the process that read it was ended, perhaps for want of memory")
        return prepared(job)

    def _started(self) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-c", START, *(path for path in sys.path if isinstance(path, str))]
        pipe, nowhere = subprocess.PIPE, subprocess.DEVNULL
        with self._lock:
            if self._is_over:
                raise EOFError
            process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=nowhere)
            self._all.append(process)
        return process

    def end(self) -> None:
        """Let nobody finish what nobody waits for."""
        with self._lock:
            self._is_over = True
        self._threads.shutdown(wait=False, cancel_futures=True)
        for process in self._all:
            process.kill()
        self._threads.shutdown()
        for process in self._all:
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with suppress(OSError):  # of what it was not told any more
                        pipe.close()


@contextmanager
def _staff(count: int) -> Iterator[_Staff]:
    staff = _Staff(count)
    try:
        yield staff
    finally:
        staff.end()


def _answer(process: "subprocess.Popen[bytes]", job: Job) -> Prepared:
    assert process.stdin is not None
    assert process.stdout is not None
    pickle.dump(job, process.stdin)
    process.stdin.flush()
    answer: Prepared = pickle.load(process.stdout)
    return answer


def serve() -> None:
    """What a worker does: prepare the files that it is told of, until nobody tells it of any."""
    signal(SIGINT, SIG_DFL)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what somebody prints is no answer
    gc.freeze()
    gc.disable()  # hardly anything that is made here is a circle, and to look for them takes a tenth of the time
    with suppress(EOFError, BrokenPipeError):
        while True:
            job: Job = pickle.load(sys.stdin.buffer)
            pickle.dump(prepared(job), answers, pickle.HIGHEST_PROTOCOL)
            answers.flush()
            gc.collect()
