"""SQLite implementation of the archive, with a lock file for the write lease."""

import json
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from sqlite3 import Connection, DatabaseError, OperationalError
from typing import Any

from msgspec import structs

from thresher.memory.archive.protocol import ABSENT_STATES, BlockRow, EncodedBlock, SessionFilter, StoredSession
from thresher.memory.records import ArchivedSession, FileStat, SourceRecord
from thresher.store.errors import StoreError
from thresher.store.home import create_private_folder
from thresher.store.sqlite_file import LOCK_TIMEOUT_SECONDS, SqliteFile, SqliteSchema

ARCHIVE_FILE, OLD_ARCHIVE_FILE = "archive.sqlite3", "truth.sqlite3"
LOCK_FILE = "sync.lock"
LEASE_POLL_SECONDS = 0.2
BATCH_SECONDS, BATCH_BYTES = 2.0, 32_000_000
"""Time in seconds and size in bytes after which a batch of transactions is committed."""

_SOURCES = """CREATE TABLE sources (
    path TEXT PRIMARY KEY, size INTEGER, mtime_ns INTEGER, ctime_ns INTEGER, inode INTEGER, state TEXT, format TEXT,
    offset INTEGER, prefix BLOB, problem TEXT, whole TEXT) WITHOUT ROWID"""
_SESSIONS = """CREATE TABLE sessions (
    key INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT, agent TEXT, file TEXT, ordinal INTEGER, source TEXT,
    owner INTEGER, project TEXT, branch TEXT, title TEXT, version TEXT, parent TEXT, root TEXT DEFAULT '', start TEXT,
    subagent INTEGER, call TEXT, started TEXT, ended TEXT, messages INTEGER, compactions INTEGER, made_by TEXT,
    present INTEGER, text INTEGER, shape BLOB, mark TEXT DEFAULT '', UNIQUE (agent, id, file, ordinal))"""
_BLOCKS = """CREATE TABLE blocks (
    id INTEGER PRIMARY KEY AUTOINCREMENT, session INTEGER, number INTEGER, digest BLOB, count INTEGER, body BLOB,
    UNIQUE (session, number))"""
_TOMBSTONES = "CREATE TABLE tombstones (position INTEGER PRIMARY KEY AUTOINCREMENT, block INTEGER UNIQUE)"
_GENERATION = "INSERT OR REPLACE INTO state VALUES ('generation', lower(hex(randomblob(16))))"
SCHEMA = SqliteSchema(
    3,
    (
        _SOURCES,
        _SESSIONS,
        "CREATE INDEX sessions_root ON sessions (agent, root)",
        "CREATE INDEX sessions_start ON sessions (agent, start)",
        "CREATE INDEX sessions_source ON sessions (source)",
        "CREATE INDEX sessions_owner ON sessions (owner)",
        "CREATE INDEX sessions_subagent ON sessions (key) WHERE subagent",
        _BLOCKS,
        _TOMBSTONES,
        "CREATE TABLE forgotten (digest BLOB PRIMARY KEY) WITHOUT ROWID",
        "CREATE TABLE state (name TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID",
        _GENERATION,
    ),
    {
        1: ("ALTER TABLE sessions ADD COLUMN mark TEXT DEFAULT ''",),
        # The index stores its own state since version 3; older indexes are rebuilt.
        2: ("DROP TABLE tombstones", _TOMBSTONES, "DELETE FROM state", _GENERATION),
    },
)
_FACTS = ArchivedSession.__struct_fields__[1:-1]
"""Fields of `ArchivedSession` that are columns: all except `key` and `gone`."""
_COLUMNS = (*_FACTS, "ordinal", "source", "owner", "start", "present", "text", "mark")
_INTEGERS = frozenset({"ordinal", "owner", "subagent", "messages", "compactions", "present", "text"})
_KINDS = tuple(int if column in _INTEGERS else str for column in (*_COLUMNS, "state"))
"""Types of the columns of `_SELECT` after the key."""
_SOURCE_KINDS = (str, int, int, int, int, str, str, int, bytes, str, str)
_SELECT = (
    f"SELECT key, {', '.join(f'sessions.{column}' for column in _COLUMNS)}, COALESCE(sources.state, '') "
    "FROM sessions LEFT JOIN sources ON sources.path = source WHERE {} ORDER BY key"
)
_CONDITIONS = {
    "keys": "key IN (SELECT value FROM json_each(?))",
    "id": "sessions.id = ?",
    "id_prefix": "substr(sessions.id, 1, length(?1)) = ?1",
    "origin_id": "start = ?",
    "project": "instr(lower(project), lower(?))",
    "folder": "(project = ?1 OR substr(project, 1, length(?1) + 1) IN (?1 || '/', ?1 || '\\'))",
    "subagent": "subagent = ?",
}
"""SQL conditions of the filter fields for which `column = ?` does not work."""


class _ThreadConnection(threading.local):
    connection: Connection | None = None


class SqliteArchive:
    """An archive in a SQLite file. Transactions of a lease are committed in batches."""

    def __init__(
        self,
        path: Path,
        *,
        batch_seconds: float = BATCH_SECONDS,
        batch_bytes: int = BATCH_BYTES,
        timeout: float = LOCK_TIMEOUT_SECONDS,
    ) -> None:
        self.path, self.name = path, str(path)
        self._file = SqliteFile(path, SCHEMA, timeout=timeout)
        self._batch_seconds, self._batch_bytes = batch_seconds, batch_bytes
        self._own = _ThreadConnection()
        self._uncommitted_bytes = 0
        self._batch_started = 0.0
        self._in_transaction = False

    def exists(self) -> bool:
        """Return whether the archive exists, without creating it."""
        return self.path.exists() or self._old_path.exists()

    @property
    def _old_path(self) -> Path:
        return self.path.with_name(OLD_ARCHIVE_FILE)

    def size(self) -> int:
        """Return the size on disk in bytes."""
        return sum(path.stat().st_size for path in self.path.parent.glob(f"{self.path.name}*"))

    # --- connections -------------------------------------------------------------------------------------------------

    @contextmanager
    def lease(self, *, wait: bool = True, on_wait: Callable[[], None] | None = None) -> Iterator[bool]:
        """Hold the write lock, a file lock that the system releases if the process dies."""
        create_private_folder(self.path.parent)
        lock_file = SqliteFile(self.path.with_name(LOCK_FILE), SqliteSchema(0), timeout=0)
        with closing(lock_file.connect()) as lock:
            while not self._is_locked(lock):
                if not wait:
                    yield False
                    return
                if on_wait is not None:
                    on_wait()
                on_wait = None
                time.sleep(LEASE_POLL_SECONDS)
            with self.connected():
                self._run("PRAGMA synchronous = NORMAL")
                self._run("PRAGMA secure_delete = ON")
                yield True

    def _is_locked(self, lock: Connection) -> bool:
        """Try to acquire the lock; return whether this succeeded."""
        try:
            lock.execute("BEGIN IMMEDIATE")
        except OperationalError as error:
            if "locked" not in str(error):
                raise StoreError(f"{self.path.with_name(LOCK_FILE)}: cannot lock the file ({error})") from error
            return False
        return True

    @contextmanager
    def connected(self) -> Iterator[Connection]:
        """Use one connection for all calls in the context."""
        if self._own.connection is not None:
            yield self._own.connection
            return
        if not self.path.exists():
            create_private_folder(self.path.parent)
            self._file.adopt(self._old_path)
        with self._file.open() as connection:
            self._own.connection = connection
            try:
                yield connection
            finally:
                try:
                    self.flush()
                finally:
                    self._own.connection = None
                    if connection.in_transaction:
                        connection.execute("ROLLBACK")

    def flush(self) -> None:
        """Persist all completed transactions."""
        connection = self._own.connection
        if connection is not None and connection.in_transaction:
            with self._file.translate_errors():
                connection.execute("COMMIT")
        self._uncommitted_bytes = 0

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Apply all changes in the context or none."""
        if self._in_transaction:
            yield
            return
        with self.connected() as connection, self._file.translate_errors():
            if not connection.in_transaction:
                connection.execute("BEGIN IMMEDIATE")
                self._batch_started = time.monotonic()
            connection.execute("SAVEPOINT change")
            self._in_transaction = True
            try:
                yield
            except BaseException:
                if connection.in_transaction:  # a full disk may have ended the transaction
                    connection.execute("ROLLBACK TO change")
                raise
            finally:
                self._in_transaction = False
            connection.execute("RELEASE change")
            is_late = time.monotonic() - self._batch_started > self._batch_seconds
            if is_late or self._uncommitted_bytes > self._batch_bytes:
                self.flush()

    def compact(self) -> None:
        """Remove all traces of deleted rows from disk."""
        self.flush()
        self._run("VACUUM")
        self._run("PRAGMA wal_checkpoint(TRUNCATE)")

    def _run(self, statement: str, *values: Any) -> list[Any]:
        with self.connected() as connection:
            try:
                return connection.execute(statement, values).fetchall()
            except (UnicodeDecodeError, OperationalError) as error:
                if "decode" not in str(error):
                    raise
                return _read_damaged_rows(connection, statement, values)

    def _write(self, statement: str, rows: Iterable[tuple[Any, ...]]) -> None:
        with self.transaction(), self.connected() as connection:
            connection.executemany(statement, rows)

    def _insert(self, table: str, row: Mapping[str, Any]) -> int:
        """Insert a row and return its id."""
        statement = f"INSERT INTO {table} ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})"
        with self.transaction(), self.connected() as connection:
            return int(connection.execute(statement, (*row.values(),)).lastrowid or 0)

    # --- sessions ----------------------------------------------------------------------------------------------------

    def find_sessions(self, where: SessionFilter) -> list[StoredSession]:
        """Return the matching sessions, ordered by key."""
        conditions, values = _build_conditions(where)
        return [_parse_session(*row) for row in self._run(_SELECT.format(conditions), *values)]

    def find_keys(self, where: SessionFilter) -> list[int]:
        """Return the keys of matching sessions in order."""
        conditions, values = _build_conditions(where)
        return [row[0] for row in self._run(f"SELECT key FROM sessions WHERE {conditions} ORDER BY key", *values)]

    def read_layout(self, key: int) -> bytes:
        """Return the layout of a session."""
        layout: bytes = self._run("SELECT shape FROM sessions WHERE key = ?", key)[0][0]
        return layout

    def put_session(self, row: StoredSession, layout: bytes | None = None) -> int:
        """Insert the session if its key is 0, otherwise update the stored one; return the key."""
        facts = {column: getattr(row.session, column) for column in _FACTS}
        facts |= {"started": _to_iso(row.session.started), "ended": _to_iso(row.session.ended)}
        columns = facts | dict(zip(_COLUMNS[len(_FACTS) :], row[1:], strict=True))
        if layout is not None:
            columns["shape"] = layout
        if not row.key:
            return self._insert("sessions", columns)
        changes = ", ".join(f"{column} = ?" for column in columns)
        self._write(f"UPDATE sessions SET {changes} WHERE key = ?", [(*columns.values(), row.key)])
        return row.key

    def remove_sessions(self, keys: Collection[int]) -> None:
        """Delete sessions and their blocks."""
        with self.transaction():
            self._write("DELETE FROM blocks WHERE session = ?", [(key,) for key in keys])
            self._write("DELETE FROM sessions WHERE key = ?", [(key,) for key in keys])

    # --- blocks ------------------------------------------------------------------------------------------------------

    def find_blocks(self, sessions: Collection[int] | None = None, *, after: int = 0) -> list[BlockRow]:
        """Return the blocks with an id above `after`, of the given or all sessions, ordered by session and number."""
        condition = "" if sessions is None else "AND session IN (SELECT value FROM json_each(?))"
        order = "ORDER BY +session, +number"
        statement = f"SELECT session, number, id, digest FROM blocks WHERE id > ? {condition} {order}"
        values = () if sessions is None else (json.dumps([*sessions]),)
        return [*map(BlockRow._make, self._run(statement, after, *values))]

    def read_blocks(self, session: int, first: int = 0, last: int | None = None) -> list[bytes]:
        """Return the bodies of the blocks from `first` to `last` (inclusive), or to the end without `last`."""
        statement = "SELECT body FROM blocks WHERE session = ? AND number BETWEEN ? AND ? ORDER BY number"
        return [row[0] for row in self._run(statement, session, first, 1 << 40 if last is None else last)]

    def add_block(self, session: int, number: int, block: EncodedBlock) -> int:
        """Add a block to a session; return its id."""
        self._uncommitted_bytes += len(block.body)
        digest, count, body = block
        row = {"session": session, "number": number, "digest": digest, "count": count, "body": body}
        return self._insert("blocks", row)

    def remove_blocks(self, ids: Collection[int]) -> None:
        """Delete blocks."""
        self._write("DELETE FROM blocks WHERE id = ?", [(id,) for id in ids])

    # --- index support -----------------------------------------------------------------------------------------------

    def generation(self) -> str:
        """Return the id of this archive's data; empty if it is damaged, which rebuilds the index."""
        rows = self._run("SELECT value FROM state WHERE name = 'generation'")
        return str(rows[0][0]) if rows else ""

    def renew_generation(self) -> None:
        """Replace the id, so that every index is rebuilt."""
        self._write(_GENERATION, [()])

    def tombstones(self, after: int = 0) -> list[tuple[int, int]]:
        """Return the position and block of each tombstone above position `after`."""
        return self._run("SELECT position, block FROM tombstones WHERE position > ? ORDER BY position", after)

    def add_tombstones(self, blocks: Iterable[int]) -> None:
        """Add tombstones for all indexes, each at a new highest position."""
        self._write("INSERT OR REPLACE INTO tombstones (block) VALUES (?)", [(block,) for block in blocks])

    def clear_tombstones(self, upto: int) -> None:
        """Delete tombstones up to a position; this archive has only one index, which has processed them."""
        self._write("DELETE FROM tombstones WHERE position <= ?", [(upto,)])

    # --- files and forgotten sessions --------------------------------------------------------------------------------

    def sources(self) -> dict[str, SourceRecord]:
        """Return the record of every known file by path, or by hidden name if all its sessions are forgotten.

        A damaged record is missing, so that the file is read again.
        """
        rows = [row for row in self._run("SELECT * FROM sources") if tuple(map(type, row)) == _SOURCE_KINDS]
        return {row[0]: SourceRecord(row[0], FileStat(*row[1:5]), *row[5:]) for row in rows}

    def put_sources(self, known: Iterable[SourceRecord]) -> None:
        """Insert or replace the records of files by path."""
        rows = [(source.path, *source.stat, *source[2:]) for source in known]
        self._write(f"INSERT OR REPLACE INTO sources VALUES ({', '.join('?' * 11)})", rows)

    def remove_sources(self, paths: Collection[str]) -> None:
        """Delete the records of files; the files themselves stay."""
        self._write("DELETE FROM sources WHERE path = ?", [(path,) for path in paths])

    def add_forgotten(self, digests: Iterable[bytes]) -> None:
        """Add digests of sessions that must not be stored again."""
        self._write("INSERT OR IGNORE INTO forgotten VALUES (?)", [(digest,) for digest in digests])

    def has_forgotten(self, digests: Iterable[bytes]) -> bool:
        """Return whether any of the digests is stored."""
        return any(self._run("SELECT 1 FROM forgotten WHERE digest = ?", digest) for digest in digests)


def _build_conditions(where: SessionFilter) -> tuple[str, list[Any]]:
    conditions: list[str] = []
    values: list[Any] = []
    for name, value in structs.asdict(where).items():
        if value or (name == "keys" and value is not None):
            values.append(json.dumps([*value]) if name == "keys" else value)
            condition = _CONDITIONS.get(name, f"{name} = ?")
            conditions.append(condition.replace("?1", "?").replace("?", f"?{len(values)}"))
    return " AND ".join(conditions) or "TRUE", values


def _parse_session(key: int, *row: Any) -> StoredSession:
    """Return a stored session. A value that is damaged on disk is read as missing."""
    values: list[Any] = [value if type(value) is kind else kind() for value, kind in zip(row, _KINDS, strict=True)]
    *columns, state = values
    fields = dict(zip(_FACTS, columns, strict=False))
    ordinal, source, owner, origin, present, text, version = columns[len(_FACTS) :]
    fields |= {"key": key, "subagent": bool(fields["subagent"]), "gone": not present or state in ABSENT_STATES}
    for moment in ("started", "ended"):
        fields[moment] = _parse_iso(fields[moment])
    return StoredSession(ArchivedSession(**fields), ordinal, source, owner, origin, bool(present), text, version)


def _read_damaged_rows(connection: Connection, statement: str, values: tuple[Any, ...]) -> list[Any]:
    """Read rows with damaged texts; raise an error if the names of the columns are damaged."""
    connection.text_factory = lambda text: text.decode("utf-8", "replace")
    try:
        return connection.execute(statement, values).fetchall()
    except UnicodeDecodeError as error:
        raise DatabaseError("the schema is malformed") from error


def _parse_iso(text: str) -> datetime | None:
    try:
        time = datetime.fromisoformat(text) if text else None
    except ValueError:
        return None
    return time if time is not None and time.tzinfo else None


def _to_iso(moment: datetime | None) -> str:
    """Format a time as UTC text that sorts chronologically."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds") if moment else ""
