"""Read another program's SQLite file. Reading changes no file in the folder, except for a lock in `-shm`.

In WAL mode, SQLite writes the newest changes to a journal (`-wal`). While the database is in use, `-shm` has an index
of this journal. In any other mode, SQLite writes to the database file directly, and keeps the old pages in `-journal`
for a rollback.

- WAL mode with `-wal` and `-shm`: reading registers a read lock in `-shm` and writes nothing else.
- WAL mode with changes in `-wal` and no `-shm`: SQLite would write files to recover the index, so a copy is read.
- WAL mode otherwise: the file is complete. It is opened as immutable, since SQLite would create `-wal` and `-shm`.
- Other modes: reading takes a shared lock and waits for a writer. If a transaction was interrupted and a rollback is
  pending, a copy is read.

No lock protects a file that is opened as immutable or copied. If the file changes during the read, reading fails.
"""

import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from thresher.errors import ReadError
from thresher.model.jsontext import load_json
from thresher.store.sqlite_file import connect_to_uri

LOCK_TIMEOUT_SECONDS = 10.0
"""Seconds to wait for a writer's lock."""
READ_VERSION_OFFSET = 19
"""Offset of the read version in the file header."""
WAL_READ_VERSION = 2


@contextmanager
def open_read_only(path: Path, *, lock_timeout: float = LOCK_TIMEOUT_SECONDS) -> Iterator[sqlite3.Connection]:
    """Open a read-only connection to a snapshot of the database. Each row gives access to values by column name."""
    try:
        with ExitStack() as stack:
            # The journals are next to the file, not next to a link to it.
            yield _connect(stack, Path(os.path.realpath(path)), lock_timeout)
    except (sqlite3.Error, OSError, UnicodeDecodeError) as error:  # a damaged file may contain names that are not UTF-8
        raise ReadError(f"`{path}` cannot be read as a database: {error}; try again, or pass a copy of it") from error


def read_table_columns(connection: sqlite3.Connection) -> dict[str, frozenset[str]]:
    """Return the columns of every table."""
    query = "SELECT t.name, c.name FROM sqlite_master AS t JOIN pragma_table_info(t.name) AS c"
    columns: dict[str, set[str]] = {}
    for table, column in connection.execute(query):
        columns.setdefault(table, set()).add(column)
    return {table: frozenset(names) for table, names in columns.items()}


def decode_json_column(value: Any) -> Any:
    """Decode the JSON text in a column; return None if the value is not valid JSON."""
    try:
        return load_json(value) if isinstance(value, str | bytes) else None
    except (ValueError, RecursionError):
        return None


def _connect(stack: ExitStack, path: Path, lock_timeout: float) -> sqlite3.Connection:
    wal, shm = _sibling_path(path, "-wal"), _sibling_path(path, "-shm")
    uri = f"{path.as_uri()}?mode=ro"
    if not (_is_wal(path) or wal.exists()):
        try:
            return _connect_to_uri(stack, uri, lock_timeout)
        except sqlite3.OperationalError as error:
            if not _needs_write_access(error):
                raise
            uri = _copy_database(stack, path)
    elif _size_or_zero(wal) and not _size_or_zero(shm):
        uri = _copy_database(stack, path)
    elif not (wal.exists() and _size_or_zero(shm)):
        stack.enter_context(_ensure_unchanged(path))
        uri += "&immutable=1"
    return _connect_to_uri(stack, uri, lock_timeout)


def _is_wal(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(READ_VERSION_OFFSET + 1)[READ_VERSION_OFFSET:] == bytes([WAL_READ_VERSION])


def _needs_write_access(error: sqlite3.Error) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN)


def _copy_database(stack: ExitStack, path: Path) -> str:
    """Copy a database and its journals to a temporary folder, and return the URI of the copy."""
    copy = Path(stack.enter_context(TemporaryDirectory(prefix="thresher-")), "copy")
    suffixes = ["", *(suffix for suffix in ("-wal", "-journal") if _size_or_zero(_sibling_path(path, suffix)))]
    with _ensure_unchanged(*(_sibling_path(path, suffix) for suffix in suffixes)):
        for suffix in suffixes:
            shutil.copyfile(_sibling_path(path, suffix), _sibling_path(copy, suffix))
    return f"{copy.absolute().as_uri()}?mode=rw"


@contextmanager
def _ensure_unchanged(*paths: Path) -> Iterator[None]:
    """Raise `OSError` at the end of the `with` block if one of the files changed during the block."""
    before = [_file_version(path) for path in paths]
    yield
    if [_file_version(path) for path in paths] != before:
        raise OSError("the file changed during the read")


def _file_version(path: Path) -> tuple[int, int]:
    facts = path.stat()
    return facts.st_size, facts.st_mtime_ns


def _connect_to_uri(stack: ExitStack, uri: str, lock_timeout: float) -> sqlite3.Connection:
    connection = stack.enter_context(closing(connect_to_uri(uri, timeout=lock_timeout)))
    connection.row_factory = sqlite3.Row
    connection.text_factory = lambda data: data.decode("utf-8", "replace")
    connection.execute("BEGIN")
    connection.execute("SELECT count(*) FROM sqlite_master").fetchone()  # the snapshot begins with the first read
    return connection


def _sibling_path(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def _size_or_zero(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
