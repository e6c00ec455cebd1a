"""The tables of the truth, and how their rows are made and read."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from sqlite3 import Connection
from typing import Any, NamedTuple

from thresher.memory.values import Facts, Stat, hidden

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
VERSION = 2
UPGRADES = {1: "ALTER TABLE sessions ADD COLUMN mark TEXT DEFAULT ''"}
"""What makes the tables of a version those of the next."""
FACTS = (
    "SELECT key, sessions.id, agent, file, project, branch, title, version, parent, root, subagent, call, started, "
    "ended, messages, compactions, made_by, "
    "NOT present OR COALESCE(sources.state, '') IN ('gone', 'foreign', 'failed') "
    "FROM sessions LEFT JOIN sources ON sources.path = source"
)


Kept = tuple[int, bytes]
"""A block that is kept: its id and its digest."""


class Block(NamedTuple):
    """Some messages on end."""

    digest: bytes
    messages: int
    body: bytes


class Entry(NamedTuple):
    """A session as it is to be kept; the facts come without a key and a root."""

    facts: Facts
    start: str
    shape: bytes
    text: int
    blocks: Sequence[Block]
    mark: str = ""
    """What a store of many sessions knows it by, as it is now."""


def make_tables(connection: Connection) -> None:
    """The tables as they are now, whatever version is there; whoever comes second finds them made."""
    connection.execute("BEGIN IMMEDIATE")
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    made = TABLES.split(";") if not version else [UPGRADES[one] for one in range(version, VERSION)]
    for statement in made:
        connection.execute(statement)
    connection.execute(f"PRAGMA user_version = {max(version, VERSION)}")
    connection.execute("COMMIT")


def row_of(entry: Entry) -> dict[str, Any]:
    """What may change of a session from one reading to the next."""
    facts = entry.facts
    return {
        "project": facts.project,
        "branch": facts.branch,
        "title": facts.title,
        "version": facts.version,
        "parent": facts.parent,
        "start": entry.start,
        "subagent": facts.subagent,
        "call": facts.call,
        "started": told(facts.started),
        "ended": told(facts.ended),
        "messages": facts.messages,
        "compactions": facts.compactions,
        "made_by": facts.made_by,
        "present": True,
        "text": entry.text,
        "shape": entry.shape,
        "mark": entry.mark,
    }


def facts_of(row: Sequence[Any]) -> Facts:
    """The facts in a row that `FACTS` gives."""
    fields = dict(zip(Facts.__struct_fields__, row, strict=True))
    for flag in ("subagent", "gone"):
        fields[flag] = bool(fields[flag])
    for moment in ("started", "ended"):
        fields[moment] = datetime.fromisoformat(fields[moment]) if fields[moment] else None
    return Facts(**fields)


def told(moment: datetime | None) -> str:
    """A time as text whose order is that of the times."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds") if moment else ""


def stat_row(stat: Stat) -> Stat:
    """Numbers that a table can hold."""
    return stat._replace(inode=stat.inode & 0x7FFF_FFFF_FFFF_FFFF)


def hide(connection: Connection, source: str) -> None:
    """Keep no name of a file that no session is kept of, nor of what was read with it."""
    if connection.execute("SELECT 1 FROM sessions WHERE source = ?", (source,)).fetchone() is None:
        connection.execute(
            "UPDATE OR REPLACE sources SET path = ?, problem = '', whole = '' WHERE path = ?", (hidden(source), source)
        )
        connection.execute("DELETE FROM sources WHERE whole = ?", (source,))


def blocks_of(connection: Connection, key: int) -> list[Kept]:
    """The blocks of a session."""
    return connection.execute("SELECT id, digest FROM blocks WHERE session = ? ORDER BY number", (key,)).fetchall()


def same_blocks(old: Sequence[Kept], new: Sequence[Block]) -> int:
    """How many blocks are as they were."""
    pairs = zip(old, new, strict=False)
    return next((n for n, ((_, digest), block) in enumerate(pairs) if block.digest != digest), min(len(old), len(new)))


def remove_blocks(connection: Connection, blocks: Iterable[Kept]) -> None:
    """Remove blocks, and tell the index."""
    gone = [(id,) for id, _ in blocks]
    connection.executemany("DELETE FROM blocks WHERE id = ?", gone)
    connection.executemany("INSERT OR IGNORE INTO tombstones VALUES (?)", gone)
