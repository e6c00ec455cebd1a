"""Build the vectors of an archive: incremental, newest sessions first, resumable.

The ids of the archive's blocks are compared with the ids in the file of vectors: missing blocks are encoded, and blocks
that the archive has replaced or forgotten are deleted. Every text is redacted before it is split and encoded, because
an encoder may be a server.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import groupby
from pathlib import Path
from sqlite3 import OperationalError
from typing import NamedTuple

import numpy as np

from thresher.memory.archive import placement
from thresher.memory.archive.protocol import BlockRow
from thresher.memory.ingest.document_builder import attribute_session
from thresher.memory.ingest.redaction import redact
from thresher.memory.meaning.encoder import Encoder, EncodingStopped, split_chunks
from thresher.memory.meaning.vector_file import SUFFIX, BlockVectors, DamagedVectorsError, VectorFile, quantize
from thresher.memory.records import MESSAGES_PER_BLOCK, Progress, Stop, never_stop
from thresher.memory.session_store import SessionStore
from thresher.store.home import create_private_folder
from thresher.store.sqlite_file import SqliteFile, SqliteSchema

LOCK_FILE = "build.lock"
COMPLETE = "complete"
"""Name of the stored value that says up to which block everything has vectors."""
INTERRUPTED = "interrupted"


class BuildReport(NamedTuple):
    """Result of a build."""

    model: str
    blocks: int = 0
    """Number of blocks that were encoded now."""
    missing: int = 0
    """Number of blocks that still lack vectors."""
    chunks: int = 0
    rebuilt: bool = False
    """True if the file was damaged, so that everything was encoded again."""
    stopped: str = ""
    """Reason why the build ended early."""
    busy: bool = False
    """True if another process builds vectors, so that this build did nothing."""


class PendingBlock(NamedTuple):
    """A block to encode: its chunks with the index of the message of each."""

    row: BlockRow
    chunks: list[tuple[int, str]]


@contextmanager
def build_lock(folder: Path) -> Iterator[bool]:
    """Hold the lock of all builds in a folder; yield False if another process has it."""
    create_private_folder(folder)
    lock_file = SqliteFile(folder / LOCK_FILE, SqliteSchema(0), timeout=0)
    with closing(lock_file.connect()) as lock:
        try:
            lock.execute("BEGIN IMMEDIATE")
        except OperationalError:
            yield False
            return
        yield True


def build_vectors(
    store: SessionStore,
    file: VectorFile,
    encoder: Encoder,
    *,
    progress: Progress | None = None,
    stop: Stop = never_stop,
) -> BuildReport:
    """Encode the blocks that lack vectors until `stop` returns True; rebuild a damaged file.

    Without new blocks, this only compares two numbers. `remove_stale_vectors` handles removed blocks.
    """
    try:
        file.raise_if_marked()
        if file.exists() and _is_complete(store, file):
            return BuildReport(encoder.name)
    except DamagedVectorsError:
        pass  # the build below repairs the file
    with build_lock(file.path.parent) as is_ours:
        if not is_ours:
            return BuildReport(encoder.name, busy=True)
        try:
            file.raise_if_marked()
            return _VectorBuild(store, file, encoder).run(progress, stop)
        except DamagedVectorsError:
            file.delete()
            return _VectorBuild(store, file, encoder).run(progress, stop)._replace(rebuilt=True)


def _is_complete(store: SessionStore, file: VectorFile) -> bool:
    """Return whether the last build was complete and no block is newer."""
    with file.connected(), store.archive.connected():
        generation, _, last_block = file.read_state(COMPLETE).partition(" ")
        is_same = bool(last_block) and generation == store.archive.generation()
        return is_same and not store.archive.find_blocks(after=int(last_block))


def count_missing(store: SessionStore, file: VectorFile) -> int:
    """Return the number of blocks that lack vectors."""
    rows = store.archive.find_blocks() if store.exists() else []
    return len(_missing_rows(rows, file)) if file.exists() else len(rows)


def _missing_rows(rows: Iterable[BlockRow], file: VectorFile) -> list[BlockRow]:
    stored = file.blocks()
    return [row for row in rows if stored.get(row.id) != (row.session, row.digest)]


def _remove_stale_rows(rows: Iterable[BlockRow], file: VectorFile) -> None:
    current = {row.id: (row.session, row.digest) for row in rows}
    file.remove([block for block, origin in file.blocks().items() if current.get(block) != origin])


def remove_stale_vectors(store: SessionStore, folder: Path) -> None:
    """Delete the vectors of forgotten and replaced blocks from the files of all models."""
    for path in sorted(folder.glob(f"*{SUFFIX}")) if folder.is_dir() else ():
        file = VectorFile(path)
        try:
            with file.connected():
                _remove_stale_rows(store.archive.find_blocks(), file)
        except DamagedVectorsError:
            file.delete()


class _VectorBuild:
    def __init__(self, store: SessionStore, file: VectorFile, encoder: Encoder) -> None:
        self.store, self.file, self.encoder = store, file, encoder
        self.waiting: list[PendingBlock] = []
        self.waiting_chunks = self.done = self.chunks = 0

    def run(self, progress: Progress | None, stop: Stop) -> BuildReport:
        with self.file.connected(), self.store.archive.connected():
            missing = self._reconcile()
            last_block = max((row.id for row in self.store.archive.find_blocks()), default=0)
            reason = ""
            try:
                for key, rows in groupby(missing, key=lambda row: row.session):
                    if stop():
                        reason = INTERRUPTED
                        break
                    self._add_session(key, [*rows])
                    if self.waiting_chunks >= self.encoder.batch:
                        self._encode_waiting()
                        if progress is not None:
                            progress(self.done, len(missing))
                self._encode_waiting()
            except EncodingStopped as stopped:
                reason = str(stopped)
            self._remove_stale()
            if self.done == len(missing):
                self.file.write_state(COMPLETE, f"{self.store.archive.generation()} {last_block}")
        return BuildReport(self.encoder.name, self.done, len(missing) - self.done, self.chunks, stopped=reason)

    def _reconcile(self) -> list[BlockRow]:
        """Delete the vectors of removed blocks; return the blocks that lack vectors, newest session first."""
        rows = self._remove_stale()
        ended = {one.key: one.ended.timestamp() if one.ended else 0.0 for one in self.store.find_sessions()}
        missing = _missing_rows(rows, self.file)
        return sorted(missing, key=lambda row: (-ended.get(row.session, 0.0), row.session, row.number))

    def _remove_stale(self) -> list[BlockRow]:
        rows = self.store.archive.find_blocks()
        _remove_stale_rows(rows, self.file)
        return rows

    def _add_session(self, key: int, rows: Sequence[BlockRow]) -> None:
        """Read a session and queue its missing blocks."""
        facts, session = placement.read_session(self.store.archive, key, children=False)
        attributed = attribute_session(session) if not facts.made_by else []
        rules = self.encoder.rules
        for row in rows:
            first = row.number * MESSAGES_PER_BLOCK
            chunks = [
                (index, chunk)
                for index, texts in enumerate(attributed[first : first + MESSAGES_PER_BLOCK], first)
                for text in texts
                if text.field in rules.fields and not text.reason and not text.derived
                for chunk in split_chunks(redact(text.text), rules)
            ]
            self.waiting.append(PendingBlock(row, chunks))
            self.waiting_chunks += len(chunks)

    def _encode_waiting(self) -> None:
        """Encode and store the queued blocks, as many at once as the encoder wants."""
        while self.waiting:
            count = _count_blocks(self.waiting, self.encoder.batch)
            some, self.waiting = self.waiting[:count], self.waiting[count:]
            texts = [chunk for pending in some for _, chunk in pending.chunks]
            scales, matrix = quantize(_encode_in_batches(self.encoder.encode, texts, self.encoder.batch))
            self.file.put(_split_by_block(some, scales, matrix))
            self.done, self.chunks = self.done + count, self.chunks + len(texts)
        self.waiting_chunks = 0


def _count_blocks(waiting: Sequence[PendingBlock], most_chunks: int) -> int:
    """Return how many of the first blocks together have at most `most_chunks` chunks, at least one."""
    total = 0
    for count, pending in enumerate(waiting):
        total += len(pending.chunks)
        if count and total > most_chunks:
            return count
    return len(waiting)


def _encode_in_batches(
    encode: Callable[[Sequence[str]], "np.typing.NDArray[np.float32]"], texts: Sequence[str], batch: int
) -> "np.typing.NDArray[np.float32]":
    if not texts:
        return np.zeros((0, 0), np.float32)
    return np.concatenate([encode(texts[start : start + batch]) for start in range(0, len(texts), batch)])


def _split_by_block(
    some: Sequence[PendingBlock], scales: "np.typing.NDArray[np.float32]", matrix: "np.typing.NDArray[np.int8]"
) -> Iterator[BlockVectors]:
    start = 0
    for pending in some:
        stop = start + len(pending.chunks)
        places = np.array([place for place, _ in pending.chunks], np.int32)
        yield BlockVectors(
            pending.row.id, pending.row.session, pending.row.digest, places, scales[start:stop], matrix[start:stop]
        )
        start = stop
