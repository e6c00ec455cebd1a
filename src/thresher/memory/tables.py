"""The tables of the truth, and how a row of them is read."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from thresher.memory.values import Facts, Stat

TABLES = """
CREATE TABLE IF NOT EXISTS sources (
    path TEXT PRIMARY KEY, size INTEGER, mtime_ns INTEGER, ctime_ns INTEGER, inode INTEGER, state TEXT, format TEXT,
    offset INTEGER, prefix BLOB, problem TEXT, whole TEXT) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS sessions (
    key INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT, agent TEXT, file TEXT, ordinal INTEGER, source TEXT,
    owner INTEGER, project TEXT, branch TEXT, title TEXT, version TEXT, parent TEXT, root TEXT DEFAULT '', start TEXT,
    subagent INTEGER, call TEXT, started TEXT, ended TEXT, messages INTEGER, compactions INTEGER, made_by TEXT,
    present INTEGER, text INTEGER, shape BLOB, UNIQUE (agent, id, file, ordinal));
CREATE INDEX IF NOT EXISTS sessions_root ON sessions (agent, root);
CREATE INDEX IF NOT EXISTS sessions_start ON sessions (agent, start);
CREATE INDEX IF NOT EXISTS sessions_source ON sessions (source);
CREATE INDEX IF NOT EXISTS sessions_owner ON sessions (owner);
CREATE TABLE IF NOT EXISTS blocks (
    id INTEGER PRIMARY KEY AUTOINCREMENT, session INTEGER, number INTEGER, digest BLOB, count INTEGER, body BLOB,
    UNIQUE (session, number));
CREATE TABLE IF NOT EXISTS tombstones (block INTEGER PRIMARY KEY);
CREATE TABLE IF NOT EXISTS forgotten (digest BLOB PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS state (name TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID;
"""
FACTS = (
    "SELECT key, sessions.id, agent, file, project, branch, title, version, parent, root, subagent, call, started, "
    "ended, messages, compactions, made_by, NOT present OR COALESCE(sources.state, '') = 'gone' "
    "FROM sessions LEFT JOIN sources ON sources.path = source"
)


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
