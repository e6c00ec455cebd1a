"""Another program's SQLite file, read without leaving a trace of it.

A database either keeps its newest changes in a journal beside it (`-wal`), with a map of that journal (`-shm`) while
it is in use, or writes into itself and keeps beside it what it would need to undo that (`-journal`).

In the first kind, reading takes a place in the map, and no more, while the map is there. Without map and journal the
file is all there is, and is read as if nobody could write it: SQLite would create both otherwise. A journal without its
map could only be read by writing, so a copy is read. In the second kind reading takes a lock, for which a writer is
waited for; only where a change was cut short, and would have to be undone first, a copy is read.

Where no lock is taken, somebody may write after all: what was read of a file that changed meanwhile is not believed.
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
"""Seconds that a writer is waited for."""
READ_VERSION_OFFSET = 19
"""The place in a file's head that says how it is to be read."""
WAL_READ_VERSION = 2


@contextmanager
def open_read_only(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection that can only read, and sees the database as it is at one moment; rows by name."""
    try:
        with ExitStack() as stack:
            # What belongs to a file lies beside it, not beside a link to it.
            yield _connect(stack, Path(os.path.realpath(path)))
    except (sqlite3.Error, OSError, UnicodeDecodeError) as error:  # names in a damaged file may be no text
        raise ReadError(f"`{path}` cannot be read as a database: {error}; try again, or give a copy of it") from error


def read_table_columns(connection: sqlite3.Connection) -> dict[str, frozenset[str]]:
    """The columns of every table."""
    asked = "SELECT t.name, c.name FROM sqlite_master AS t JOIN pragma_table_info(t.name) AS c"
    found: dict[str, set[str]] = {}
    for table, column in connection.execute(asked):
        found.setdefault(table, set()).add(column)
    return {table: frozenset(names) for table, names in found.items()}


def decode_json_column(value: Any) -> Any:
    """The JSON in a column; None where it is none."""
    try:
        return load_json(value) if isinstance(value, str | bytes) else None
    except (ValueError, RecursionError):
        return None


def _connect(stack: ExitStack, path: Path) -> sqlite3.Connection:
    journal, its_map = _sibling_path(path, "-wal"), _sibling_path(path, "-shm")
    if not (_is_wal(path) or journal.exists()):
        try:
            return _connect_to_uri(stack, f"{path.as_uri()}?mode=ro")
        except sqlite3.OperationalError as error:
            if not _needs_write_access(error):
                raise
            return _connect_to_copy(stack, path)
    if journal.exists() and _size_or_zero(its_map):
        return _connect_to_uri(stack, f"{path.as_uri()}?mode=ro")
    if _size_or_zero(journal):
        return _connect_to_copy(stack, path)
    stack.enter_context(_ensure_unchanged(path))
    return _connect_to_uri(stack, f"{path.as_uri()}?mode=ro&immutable=1")


def _is_wal(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(READ_VERSION_OFFSET + 1)[READ_VERSION_OFFSET:] == bytes([WAL_READ_VERSION])


def _needs_write_access(error: sqlite3.Error) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN)


def _connect_to_copy(stack: ExitStack, path: Path) -> sqlite3.Connection:
    copy = Path(stack.enter_context(TemporaryDirectory(prefix="thresher-")), "copy")
    journals = [end for end in ("-wal", "-journal") if _size_or_zero(_sibling_path(path, end))]
    with _ensure_unchanged(path, *(_sibling_path(path, end) for end in journals)):
        for end in ("", *journals):
            shutil.copyfile(_sibling_path(path, end), _sibling_path(copy, end))
    return _connect_to_uri(stack, f"{copy.absolute().as_uri()}?mode=rw")


@contextmanager
def _ensure_unchanged(*paths: Path) -> Iterator[None]:
    """Raise `OSError` where one of the files was written to meanwhile."""
    before = [_file_version(path) for path in paths]
    yield
    if [_file_version(path) for path in paths] != before:
        raise OSError("it was changed meanwhile")


def _file_version(path: Path) -> tuple[int, int]:
    facts = path.stat()
    return facts.st_size, facts.st_mtime_ns


def _connect_to_uri(stack: ExitStack, address: str) -> sqlite3.Connection:
    connection = stack.enter_context(closing(connect_to_uri(address, timeout=LOCK_TIMEOUT_SECONDS)))
    connection.row_factory = sqlite3.Row
    connection.text_factory = lambda data: data.decode("utf-8", "replace")
    connection.execute("BEGIN")
    connection.execute("SELECT count(*) FROM sqlite_master").fetchone()  # the moment begins with the first look
    return connection


def _sibling_path(path: Path, end: str) -> Path:
    return path.with_name(path.name + end)


def _size_or_zero(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
