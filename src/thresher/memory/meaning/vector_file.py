"""The vectors of one model, in a SQLite file of their own.

One row holds the chunks of one block of the archive. A block never changes, so its id and digest say whether a row is
missing or out of date, and an interrupted build resumes where it stopped. A vector has one byte per dimension and a
scale. Each row has a checksum: SQLite itself does not notice a changed byte.

The file is derived from the archive. If it is damaged, it is deleted and built again.
"""

import re
import zlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from sqlite3 import Connection, DatabaseError
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from thresher.store.errors import StoreError
from thresher.store.sqlite_file import SqliteFile, SqliteSchema

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from thresher.memory.meaning.encoder import Matrix

SCHEMA = SqliteSchema(
    1,
    (
        "CREATE TABLE vectors (block INTEGER PRIMARY KEY, session INTEGER, digest BLOB, places BLOB, scales BLOB, "
        "body BLOB, checksum INTEGER)",
        "CREATE INDEX vectors_session ON vectors (session)",
        "CREATE TABLE state (name TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID",
    ),
)
SUFFIX = ".sqlite3"
MAX_QUERY_KEYS = 500
DAMAGE_ADVICE = "the next `thresher sync` rebuilds it"


class DamagedVectorsError(Exception):
    """A file of vectors cannot be read. Searches then skip the model, and the next build replaces the file."""


class BlockVectors(NamedTuple):
    """The vectors of a block: message index, scale and row of each chunk."""

    block: int
    session: int
    digest: bytes
    places: "NDArray[np.int32]"
    scales: "NDArray[np.float32]"
    matrix: "NDArray[np.int8]"


def quantize(matrix: "Matrix") -> "tuple[NDArray[np.float32], NDArray[np.int8]]":
    """Return the scale of each row, and the rows with one byte per dimension."""
    scales = np.maximum(np.abs(matrix).max(axis=1, initial=0.0), 1e-9).astype(np.float32) / np.float32(127)
    return scales, np.rint(matrix / scales[:, None]).astype(np.int8)


def vector_file_name(model: str) -> str:
    """Return the file name for a model, whose name may contain any character."""
    plain = re.sub(r"[^a-z0-9.-]+", "-", model.lower()).strip("-.")[:60]
    is_safe = plain == model and plain
    return f"{plain}{SUFFIX}" if is_safe else f"{plain}-{blake2b(model.encode(), digest_size=4).hexdigest()}{SUFFIX}"


class VectorFile:
    """The vectors of one model. Methods raise `StoreError`, or `DamagedVectorsError` if the file must be rebuilt."""

    def __init__(self, path: Path) -> None:
        """Open nothing yet."""
        self.path = path
        self._file = SqliteFile(path, SCHEMA)
        self._connection: Connection | None = None

    def exists(self) -> bool:
        """Return whether there are vectors of this model."""
        return self.path.exists()

    def size(self) -> int:
        """Return the size on disk in bytes."""
        return sum(path.stat().st_size for path in self.path.parent.glob(f"{self.path.name}*"))

    @property
    def _damage_mark(self) -> Path:
        return self.path.with_name(f"{self.path.name}.damaged")

    def raise_if_marked(self) -> None:
        """Raise `DamagedVectorsError` if a search has found damage."""
        if self._damage_mark.exists():
            raise DamagedVectorsError(f"{self.path}: damaged; {DAMAGE_ADVICE}")

    def delete(self) -> None:
        """Delete the file and its log."""
        for path in self.path.parent.glob(f"{self.path.name}*"):
            path.unlink(missing_ok=True)

    @contextmanager
    def connected(self) -> Iterator[None]:
        """Use one connection for all calls in the context."""
        if self._connection is not None:
            yield
            return
        with self._translate_errors(), ExitStack() as on_failure:
            connection = on_failure.enter_context(closing(self._file.connect()))
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute("PRAGMA secure_delete = ON")
            on_failure.pop_all()
        self._connection = connection
        try:
            yield  # not translated: other files may fail in the context, too
        finally:
            self._connection = None
            connection.close()

    @contextmanager
    def _use(self) -> Iterator[Connection]:
        """Open a connection if there is none, and translate the errors of its use."""
        with self.connected(), self._translate_errors():
            assert self._connection is not None
            yield self._connection

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            with self._file.translate_errors():
                yield
        except StoreError as error:
            if type(error.__cause__) is DatabaseError:  # its subclasses are locks, full disks and the like
                raise DamagedVectorsError(f"{self.path}: damaged; {DAMAGE_ADVICE}") from error
            raise

    # --- writing -------------------------------------------------------------------------------------------------

    def read_state(self, name: str) -> str:
        """Return a stored value; empty if there is none."""
        with self._use() as connection:
            row = connection.execute("SELECT value FROM state WHERE name = ?", (name,)).fetchone()
        return str(row[0]) if row else ""

    def write_state(self, name: str, value: str) -> None:
        """Store a value."""
        with self._use() as connection:
            connection.execute("INSERT OR REPLACE INTO state VALUES (?, ?)", (name, value))

    def blocks(self) -> dict[int, tuple[int, bytes]]:
        """Return the session and digest of all stored blocks by id."""
        with self._use() as connection:
            rows = connection.execute("SELECT block, session, digest FROM vectors")
            return {block: (session, digest) for block, session, digest in rows}

    def put(self, rows: Iterable[BlockVectors]) -> None:
        """Store blocks in one transaction."""
        with self._use() as connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany(
                "INSERT OR REPLACE INTO vectors VALUES (?, ?, ?, ?, ?, ?, ?)", map(_encode_row, rows)
            )
            connection.execute("COMMIT")

    def remove(self, blocks: Collection[int]) -> None:
        """Delete blocks, and their traces in the log."""
        if not blocks:
            return
        with self._use() as connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany("DELETE FROM vectors WHERE block = ?", [(block,) for block in blocks])
            connection.execute("COMMIT")
            with suppress(DatabaseError):  # a reader is active; the next checkpoint removes the traces
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    # --- reading -------------------------------------------------------------------------------------------------

    def read_sessions(self, keys: Sequence[int] | None = None) -> Iterator[BlockVectors]:
        """Yield the blocks of the given or all sessions."""
        with self._use() as connection:
            if keys is None:
                yield from map(self._decode_row, connection.execute("SELECT * FROM vectors"))
                return
            for start in range(0, len(keys), MAX_QUERY_KEYS):
                some = keys[start : start + MAX_QUERY_KEYS]
                query = f"SELECT * FROM vectors WHERE session IN ({','.join('?' * len(some))})"
                yield from map(self._decode_row, connection.execute(query, some))

    def _decode_row(self, row: tuple[int, int, bytes, bytes, bytes, bytes, int]) -> BlockVectors:
        block, session, digest, places, scales, body, checksum = row
        chunks = len(places) // 4
        if zlib.crc32(body, zlib.crc32(scales, zlib.crc32(places))) != checksum:
            self._damage_mark.touch(mode=0o600)
            raise DamagedVectorsError(f"{self.path}: damaged; {DAMAGE_ADVICE}")
        matrix = np.frombuffer(body, np.int8).reshape(chunks, -1 if chunks else 0)
        return BlockVectors(block, session, digest, np.frombuffer(places, "<i4"), np.frombuffer(scales, "<f4"), matrix)


def _encode_row(row: BlockVectors) -> tuple[int, int, bytes, bytes, bytes, bytes, int]:
    places, scales, body = row.places.astype("<i4").tobytes(), row.scales.astype("<f4").tobytes(), row.matrix.tobytes()
    checksum = zlib.crc32(body, zlib.crc32(scales, zlib.crc32(places)))
    return row.block, row.session, row.digest, places, scales, body, checksum
