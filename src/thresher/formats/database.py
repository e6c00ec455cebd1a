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
from thresher.model.jsontext import load

PATIENCE = 10.0
"""Seconds that a writer is waited for."""
KIND = 19
"""The place in a file's head that says how it is to be read."""
JOURNALED = 2


@contextmanager
def opened(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection that can only read, and sees the database as it is at one moment; rows by name."""
    try:
        with ExitStack() as stack:
            # What belongs to a file lies beside it, not beside a link to it.
            yield _connection(stack, Path(os.path.realpath(path)))
    except (sqlite3.Error, OSError, UnicodeDecodeError) as error:  # names in a damaged file may be no text
        raise ReadError(f"`{path}` cannot be read as a database: {error}; try again, or give a copy of it") from error


def tables(connection: sqlite3.Connection) -> dict[str, frozenset[str]]:
    """The columns of every table."""
    asked = "SELECT t.name, c.name FROM sqlite_master AS t JOIN pragma_table_info(t.name) AS c"
    found: dict[str, set[str]] = {}
    for table, column in connection.execute(asked):
        found.setdefault(table, set()).add(column)
    return {table: frozenset(names) for table, names in found.items()}


def decoded(value: Any) -> Any:
    """The JSON in a column; None where it is none."""
    try:
        return load(value) if isinstance(value, str | bytes) else None
    except (ValueError, RecursionError):
        return None


def _connection(stack: ExitStack, path: Path) -> sqlite3.Connection:
    journal, its_map = _beside(path, "-wal"), _beside(path, "-shm")
    if not (_is_journaled(path) or journal.exists()):
        try:
            return _connected(stack, f"{path.as_uri()}?mode=ro")
        except sqlite3.OperationalError as error:
            if not _wants_to_write(error):
                raise
            return _copied(stack, path)
    if journal.exists() and _size(its_map):
        return _connected(stack, f"{path.as_uri()}?mode=ro")
    if _size(journal):
        return _copied(stack, path)
    stack.enter_context(_unchanged(path))
    return _connected(stack, f"{path.as_uri()}?mode=ro&immutable=1")


def _is_journaled(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(KIND + 1)[KIND:] == bytes([JOURNALED])


def _wants_to_write(error: sqlite3.Error) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN)


def _copied(stack: ExitStack, path: Path) -> sqlite3.Connection:
    copy = Path(stack.enter_context(TemporaryDirectory(prefix="thresher-")), "copy")
    journals = [end for end in ("-wal", "-journal") if _size(_beside(path, end))]
    with _unchanged(path, *(_beside(path, end) for end in journals)):
        for end in ("", *journals):
            shutil.copyfile(_beside(path, end), _beside(copy, end))
    return _connected(stack, f"{copy.absolute().as_uri()}?mode=rw")


@contextmanager
def _unchanged(*paths: Path) -> Iterator[None]:
    """Raise `OSError` where one of the files was written to meanwhile."""
    before = [_stamp(path) for path in paths]
    yield
    if [_stamp(path) for path in paths] != before:
        raise OSError("it was changed meanwhile")


def _stamp(path: Path) -> tuple[int, int]:
    facts = path.stat()
    return facts.st_size, facts.st_mtime_ns


def _connected(stack: ExitStack, address: str) -> sqlite3.Connection:
    connection = stack.enter_context(
        closing(sqlite3.connect(address, uri=True, timeout=PATIENCE, isolation_level=None))
    )
    connection.row_factory = sqlite3.Row
    connection.text_factory = lambda data: data.decode("utf-8", "replace")
    connection.execute("BEGIN")
    connection.execute("SELECT count(*) FROM sqlite_master").fetchone()  # the moment begins with the first look
    return connection


def _beside(path: Path, end: str) -> Path:
    return path.with_name(path.name + end)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
