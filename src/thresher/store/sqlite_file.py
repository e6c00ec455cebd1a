"""Open SQLite files: permissions, schema versions, timeouts and errors.

Thresher creates its files for the current user only, with a write-ahead log so that readers never wait. `user_version`
holds the schema version: an older schema is upgraded, a newer one is refused. Errors name the file and the next step.
"""

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from thresher.errors import ThresherError
from thresher.store.errors import StoreError

if TYPE_CHECKING:
    from sqlite3 import Connection

LOCK_TIMEOUT_SECONDS = 30.0
"""Seconds that a writer waits for the lock."""
HOME_ADVICE = "free disk space, or set THRESHER_HOME to a folder that can be written"

DAMAGE_ADVICE = "it is damaged: restore a backup, or move the file away and Thresher creates a new one"


class SqliteSchema(NamedTuple):
    """The tables of a file, and the migrations from older versions."""

    version: int
    tables: tuple[str, ...] = ()
    upgrades: Mapping[int, tuple[str, ...]] = {}
    """Statements that migrate each older version to the next one."""


class SqliteFile:
    """A SQLite file that Thresher owns, or an in-memory database if `path` is None."""

    def __init__(
        self,
        path: Path | None,
        schema: SqliteSchema,
        *,
        error: type[ThresherError] = StoreError,
        advice: str = HOME_ADVICE,
        timeout: float = LOCK_TIMEOUT_SECONDS,
    ) -> None:
        """Open nothing yet. A failure raises `error` with a message that ends with `advice`."""
        self.path = path
        self._schema, self._error, self._advice, self._timeout = schema, error, advice, timeout

    @property
    def name(self) -> str:
        """The file's name in messages."""
        return ":memory:" if self.path is None else str(self.path)

    def connect(self, verb: str = "read or written", *, any_thread: bool = False) -> "Connection":
        """Return a connection for reading and writing; create or migrate the file first if necessary.

        `verb` names the failed operation in an error.
        """
        with self.translate_errors(verb):
            if self.path is not None and not self.path.exists():
                self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                os.close(os.open(self.path, os.O_CREAT | os.O_RDWR, 0o600))
            if self.path is not None:
                make_private(self.path)
            address = self.name if self.path is None else f"{self.path.absolute().as_uri()}?mode=rw"
            connection = connect_to_uri(address, timeout=self._timeout, any_thread=any_thread)
            try:
                if self._read_version(connection) < self._schema.version:
                    self._upgrade(connection)
            except BaseException:
                connection.close()
                raise
        return connection

    @contextmanager
    def open(self, verb: str = "read or written") -> "Iterator[Connection]":
        """Connect, and close the connection at the end of the block."""
        with self.translate_errors(verb), closing(self.connect(verb)) as connection:
            yield connection

    @contextmanager
    def open_existing(self) -> "Iterator[Connection | None]":
        """Connect for reading, without creating or migrating anything; None if the file is missing or empty."""
        with self.translate_errors("read"):
            if self.path is None or not self.path.exists():
                yield None
                return
            make_private(self.path)
            with closing(connect_to_uri(_reading_uri(self.path), timeout=self._timeout)) as connection:
                self._read_version(connection)
                is_empty = connection.execute("SELECT 1 FROM sqlite_master").fetchone() is None
                yield None if is_empty else connection

    @contextmanager
    def translate_errors(self, verb: str = "read or written") -> Iterator[None]:
        """Convert an error of SQLite or of the system into one that names the next step."""
        try:
            yield
        except sqlite_errors() as error:
            advice = DAMAGE_ADVICE if "malformed" in str(error) else self._advice
            raise self._error(f"{self.name}: cannot be {verb} ({error}); {advice}") from error

    def adopt(self, old: Path) -> None:
        """Rename the database of an earlier Thresher version to this file's name, after merging its log.

        The rename happens under an exclusive lock. So no process keeps writing to a log under
        the old name, and if two processes rename at once, the second one finds the file already renamed.
        """
        deadline = time.monotonic() + self._timeout
        while self.path is not None and old.exists() and not self.path.exists():
            try:
                address = f"{old.absolute().as_uri()}?mode=rw"
                with closing(connect_to_uri(address, timeout=self._timeout)) as connection:
                    if old.exists():  # another process may have renamed it
                        connection.execute("PRAGMA journal_mode = DELETE")
                        connection.execute("BEGIN EXCLUSIVE")
                    if old.exists():
                        old.rename(self.path)
            except sqlite_errors() as error:
                if "locked" not in str(error) or time.monotonic() > deadline:
                    if not old.exists():
                        return
                    advice = "stop all other Thresher processes, then try again"
                    raise self._error(f"{old}: cannot be renamed to {self.path.name} ({error}); {advice}") from error
                time.sleep(0.05)

    def _read_version(self, connection: "Connection") -> int:
        version: int = connection.execute("PRAGMA user_version").fetchone()[0]
        if version > self._schema.version:
            raise self._error(f"{self.name}: written by a newer version of Thresher; upgrade this one")
        return version

    def _upgrade(self, connection: "Connection") -> None:
        """Create or migrate the tables, unless another process has just done so."""
        # Only a single connection can switch to WAL. Without WAL everything works, but readers wait.
        with suppress(sqlite_errors()[0]):
            connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("BEGIN IMMEDIATE")
        version, target_version = self._read_version(connection), self._schema.version
        upgrades = (statement for old in range(version, target_version) for statement in self._schema.upgrades[old])
        for statement in upgrades if version else self._schema.tables:
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {target_version}")
        connection.execute("COMMIT")


def make_private(path: Path) -> None:
    """Remove the rights of other users from a database that an earlier version or a copy has left readable."""
    for name in (path.name, f"{path.name}-wal", f"{path.name}-shm"):
        with suppress(FileNotFoundError, PermissionError):  # another user owns the file and its permissions
            file = path.with_name(name)
            if file.stat().st_mode & 0o077:
                file.chmod(0o600)


def connect_to_uri(address: str, *, timeout: float, any_thread: bool = False) -> "Connection":
    """Connect to a database URI in autocommit mode."""
    from sqlite3 import connect  # noqa: PLC0415 - loads a native library that most programs do not need

    return connect(address, timeout=timeout, isolation_level=None, uri=True, check_same_thread=not any_thread)


@cache
def sqlite_errors() -> tuple[type[Exception], ...]:
    """Return the exception types of SQLite file operations, SQLite's own first."""
    from sqlite3 import Error  # noqa: PLC0415 - loads a native library that most programs do not need

    return (Error, OSError, OverflowError)


def _reading_uri(path: Path) -> str:
    uri = path.absolute().as_uri()
    if os.access(path, os.W_OK) and os.access(path.parent, os.W_OK):
        return f"{uri}?mode=rw"  # a reader with write access removes its log
    log = path.with_name(f"{path.name}-wal")
    return f"{uri}?mode=ro" if log.exists() else f"{uri}?mode=ro&immutable=1"
