"""The tables of the truth, and how their rows are made and read."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from sqlite3 import Connection
from typing import Any, NamedTuple

from thresher.memory.records import ArchivedSession, FileStat, hash_hidden_path

TABLES = """
CREATE TABLE IF NOT EXISTS sources (
    path TEXT PRIMARY KEY, size INTEGER, mtime_ns INTEGER, ctime_ns INTEGER, inode INTEGER, state TEXT, format TEXT,
    offset INTEGER, prefix BLOB, problem TEXT, whole TEXT) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS sessions (
    key INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT, agent TEXT, file TEXT, ordinal INTEGER, source TEXT,
    owner INTEGER, project TEXT, branch TEXT, title TEXT, version TEXT, parent TEXT, root TEXT DEFAULT '', start TEXT,
    subagent INTEGER, call TEXT, started TEXT, ended TEXT, messages INTEGER, compactions INTEGER, made_by TEXT,
    present INTEGER, text INTEGER, shape BLOB, mark TEXT DEFAULT '', UNIQUE (agent, id, file, ordinal));
CREATE INDEX IF NOT EXISTS sessions_root ON sessions (agent, root);
CREATE INDEX IF NOT EXISTS sessions_start ON sessions (agent, start);
CREATE INDEX IF NOT EXISTS sessions_source ON sessions (source);
CREATE INDEX IF NOT EXISTS sessions_owner ON sessions (owner);
CREATE INDEX IF NOT EXISTS sessions_subagent ON sessions (key) WHERE subagent;
CREATE TABLE IF NOT EXISTS blocks (
    id INTEGER PRIMARY KEY AUTOINCREMENT, session INTEGER, number INTEGER, digest BLOB, count INTEGER, body BLOB,
    UNIQUE (session, number));
CREATE TABLE IF NOT EXISTS tombstones (block INTEGER PRIMARY KEY);
CREATE TABLE IF NOT EXISTS forgotten (digest BLOB PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS state (name TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID;
"""
SCHEMA_VERSION = 2
UPGRADES = {1: "ALTER TABLE sessions ADD COLUMN mark TEXT DEFAULT ''"}
"""What makes the tables of a version those of the next."""
SELECT_SESSIONS = (
    "SELECT key, sessions.id, agent, file, project, branch, title, version, parent, root, subagent, call, started, "
    "ended, messages, compactions, made_by, "
    "NOT present OR COALESCE(sources.state, '') IN ('gone', 'foreign', 'failed') "
    "FROM sessions LEFT JOIN sources ON sources.path = source"
)


StoredBlock = tuple[int, bytes]
"""A block that is kept: its id and its digest."""


class EncodedBlock(NamedTuple):
    """Some messages on end."""

    digest: bytes
    messages: int
    body: bytes


class EncodedSession(NamedTuple):
    """A session as it is to be kept; the facts come without a key and a root."""

    session: ArchivedSession
    origin_id: str
    layout: bytes
    text_size: int
    blocks: Sequence[EncodedBlock]
    source_version: str = ""
    """What a store of many sessions knows it by, as it is now."""


def make_tables(connection: Connection) -> None:
    """The tables as they are now, whatever version is there; whoever comes second finds them made."""
    connection.execute("BEGIN IMMEDIATE")
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    made = TABLES.split(";") if not version else [UPGRADES[one] for one in range(version, SCHEMA_VERSION)]
    for statement in made:
        connection.execute(statement)
    connection.execute(f"PRAGMA user_version = {max(version, SCHEMA_VERSION)}")
    connection.execute("COMMIT")


def build_session_row(entry: EncodedSession) -> dict[str, Any]:
    """What may change of a session from one reading to the next."""
    facts = entry.session
    return {
        "project": facts.project,
        "branch": facts.branch,
        "title": facts.title,
        "version": facts.version,
        "parent": facts.parent,
        "start": entry.origin_id,
        "subagent": facts.subagent,
        "call": facts.call,
        "started": to_iso(facts.started),
        "ended": to_iso(facts.ended),
        "messages": facts.messages,
        "compactions": facts.compactions,
        "made_by": facts.made_by,
        "present": True,
        "text": entry.text_size,
        "shape": entry.layout,
        "mark": entry.source_version,
    }


def parse_session_row(row: Sequence[Any]) -> ArchivedSession:
    """The facts in a row that `SELECT_SESSIONS` gives."""
    fields = dict(zip(ArchivedSession.__struct_fields__, row, strict=True))
    for flag in ("subagent", "gone"):
        fields[flag] = bool(fields[flag])
    for moment in ("started", "ended"):
        fields[moment] = datetime.fromisoformat(fields[moment]) if fields[moment] else None
    return ArchivedSession(**fields)


def to_iso(moment: datetime | None) -> str:
    """A time as text whose order is that of the times."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds") if moment else ""


def mask_inode(stat: FileStat) -> FileStat:
    """Numbers that a table can hold."""
    return stat._replace(inode=stat.inode & 0x7FFF_FFFF_FFFF_FFFF)


def hide_source(connection: Connection, source: str) -> None:
    """Keep no name of a file that no session is kept of, nor of what was read with it."""
    if connection.execute("SELECT 1 FROM sessions WHERE source = ?", (source,)).fetchone() is None:
        connection.execute(
            "UPDATE OR REPLACE sources SET path = ?, problem = '', whole = '' WHERE path = ?",
            (hash_hidden_path(source), source),
        )
        connection.execute("DELETE FROM sources WHERE whole = ?", (source,))


def select_blocks(connection: Connection, key: int) -> list[StoredBlock]:
    """The blocks of a session."""
    return connection.execute("SELECT id, digest FROM blocks WHERE session = ? ORDER BY number", (key,)).fetchall()


def count_same_blocks(old: Sequence[StoredBlock], new: Sequence[EncodedBlock]) -> int:
    """How many blocks are as they were."""
    pairs = zip(old, new, strict=False)
    return next((n for n, ((_, digest), block) in enumerate(pairs) if block.digest != digest), min(len(old), len(new)))


def remove_blocks(connection: Connection, blocks: Iterable[StoredBlock]) -> None:
    """Remove blocks, and tell the index."""
    gone = [(id,) for id, _ in blocks]
    connection.executemany("DELETE FROM blocks WHERE id = ?", gone)
    connection.executemany("INSERT OR IGNORE INTO tombstones VALUES (?)", gone)
