"""Content store on disk: one SQLite file with one table.

Every call opens and closes the file, so threads and forked processes can share a store. This takes a fraction of a
millisecond. Writers lock the file immediately and wait for each other. Reading creates nothing.
"""

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cache
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from thresher.model.identity import content_id
from thresher.model.parts import Part
from thresher.store.base import NO_SUMMARIES, StoredContent, read_stored_text, require_unique
from thresher.store.errors import StoreError
from thresher.store.home import get_data_folder
from thresher.store.ids import exact_id, is_complete_id, parse_part_id
from thresher.store.part_codec import decode_part, encode_part
from thresher.store.sqlite_file import SqliteFile, SqliteSchema

if TYPE_CHECKING:
    from sqlite3 import Connection

STORE_FILE = "store.sqlite3"
MIN_COMPRESSED_SIZE = 1024
"""Minimum size in bytes of a body to compress."""

StoredRowKind = Literal["part", "packed", "alias", "fold"]
StoredRow = tuple[str, StoredRowKind, bytes]
_TABLE = "CREATE TABLE IF NOT EXISTS kept (id TEXT PRIMARY KEY, kind TEXT NOT NULL, body BLOB NOT NULL)"
_NOW = "CAST(strftime('%s', 'now') AS INTEGER)"
_ADD_USED = ("ALTER TABLE kept ADD COLUMN used INTEGER", f"UPDATE kept SET used = {_NOW}")
# The first files have the table, but no version.
_SCHEMA = SqliteSchema(2, (_TABLE, *_ADD_USED), {1: _ADD_USED})
_INSERT = f"INSERT INTO kept (id, kind, body, used) VALUES (?, ?, ?, {_NOW}) ON CONFLICT (id) DO NOTHING"
_REFRESH = (
    f"UPDATE kept SET used = {_NOW} WHERE (id = ?1 OR (kind = 'alias' AND body = CAST(?1 AS BLOB))) AND used < ?2"
)
SECONDS_PER_DAY = 86_400
_SELECT_IDS = "SELECT id, kind, CASE kind WHEN 'alias' THEN body ELSE x'' END FROM kept WHERE id >= ? AND id < ?"


class SqliteContentStore:
    """A content store in a file, by default in Thresher's data folder."""

    def __init__(self, path: str | Path | None = None) -> None:
        self.path = get_data_folder() / STORE_FILE if path is None else Path(path)
        self._file = SqliteFile(self.path, _SCHEMA)

    def put(self, parts: Iterable[Part], folds: Mapping[str, Sequence[str]] = NO_SUMMARIES) -> None:
        """Store parts and the members of summaries, in one transaction."""
        wanted: dict[str, Part] = {}
        for part in parts:
            wanted.setdefault(exact_id(part), part)
        known = self.has((*wanted, *folds))
        part_rows = (row for id, part in wanted.items() if id not in known for row in _rows(id, part))
        summary_rows: Iterator[StoredRow] = (
            (id, "fold", msgspec.json.encode(folds[id])) for id in folds if id not in known
        )
        self._write(chain(part_rows, summary_rows))
        self._refresh(known)

    def _refresh(self, ids: set[str]) -> None:
        """Note once a day that content is still in use, so that a retention period keeps it."""
        with self._file.open_existing() as connection:
            if connection is None or not ids or "used" not in _column_names(connection):
                return
            limit = connection.execute(f"SELECT {_NOW}").fetchone()[0] - SECONDS_PER_DAY
            query = "SELECT 1 FROM kept WHERE id = ? AND used < ?"
            old = [(id, limit) for id in ids if connection.execute(query, (id, limit)).fetchone()]
        if old:
            with self._file.open("written") as connection:
                connection.executemany(_REFRESH, old)

    def forget(self, parts: Iterable[Part]) -> int:
        """Delete these parts and the summaries that contain them; return the number of deleted contents."""
        ids = {id for part in parts for id in (exact_id(part), content_id(part))}
        return self._delete(lambda connection: _ids_to_forget(connection, ids))

    def prune(self, before: datetime | None = None) -> int:
        """Delete the content that was last stored before this time, or all of it; return the number of contents."""
        limit = None if before is None else int(before.timestamp())
        query = "SELECT id FROM kept WHERE ?1 IS NULL OR used < ?1"
        return self._delete(lambda connection: {id for (id,) in connection.execute(query, (limit,))})

    def _delete(self, select: "Callable[[Connection], set[str]]") -> int:
        """Delete the rows with the selected ids, and overwrite their text in the file."""
        if not self.path.exists():
            return 0
        with self._file.open("written") as connection:
            if not select(connection):
                return 0
            connection.execute("PRAGMA secure_delete = ON")
            connection.execute("BEGIN IMMEDIATE")
            rows = [(id,) for id in select(connection)]
            deleted = [
                connection.execute("DELETE FROM kept WHERE id = ? RETURNING kind", row).fetchone()[0] for row in rows
            ]
            connection.execute("COMMIT")
            connection.execute("VACUUM")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return sum(kind != "alias" for kind in deleted)

    def get(self, id: str) -> StoredContent | None:
        """Return the content whose id equals or starts with this id."""
        with self._file.open_existing() as connection:
            target = require_unique(_targets(connection, id), id)
            if connection is None or target is None:
                return None
            kind, body = connection.execute("SELECT kind, body FROM kept WHERE id = ?", (target,)).fetchone()
        return self._decode_body(kind, body)

    def has(self, ids: Iterable[str]) -> set[str]:
        """Return the given ids that match stored content."""
        with self._file.open_existing() as connection:
            return {id for id in ids if _targets(connection, id)}

    def text(self, id: str) -> str:
        """Return the stored text with this id."""
        return read_stored_text(self, id)

    def _decode_body(self, kind: StoredRowKind, body: bytes) -> StoredContent:
        try:
            if kind == "fold":
                return tuple(msgspec.json.decode(body, type=list[str]))
            return decode_part(zlib.decompress(body) if kind == "packed" else body)
        except (ValueError, zlib.error, msgspec.MsgspecError) as error:
            raise StoreError(
                f"{self.path}: a stored part is damaged ({error}); restore the file from a backup"
            ) from error

    def _write(self, rows: Iterator[StoredRow]) -> None:
        first = next(rows, None)
        if first is None:
            return
        with self._file.open("written") as connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute(_INSERT, first)
            connection.executemany(_INSERT, rows)
            connection.execute("COMMIT")


@cache
def content_store_in(folder: Path) -> SqliteContentStore:
    """Return the store in a data folder."""
    return SqliteContentStore(folder / STORE_FILE)


def default_content_store() -> SqliteContentStore:
    """Return the store in Thresher's data folder."""
    return content_store_in(get_data_folder())


def _column_names(connection: "Connection") -> set[str]:
    return {row[1] for row in connection.execute("PRAGMA table_info(kept)")}


def _ids_to_forget(connection: "Connection", ids: set[str]) -> set[str]:
    """Return the stored ids of parts, of other spellings of them, and of summaries that contain them."""
    found: set[str] = set()
    rows = connection.execute("SELECT id, kind, CASE WHEN kind IN ('alias', 'fold') THEN body END FROM kept").fetchall()
    targets = ids | {body.decode() for id, kind, body in rows if kind == "alias" and id in ids}
    for id, kind, body in rows:
        is_selected = id in targets or (kind == "alias" and body.decode() in targets)
        if is_selected or (kind == "fold" and targets.intersection(msgspec.json.decode(body, type=list[str]))):
            found.add(id)
    return found


def _rows(id: str, part: Part) -> Iterator[StoredRow]:
    body = encode_part(part)
    if len(body) < MIN_COMPRESSED_SIZE:
        yield id, "part", body
    else:
        yield id, "packed", zlib.compress(body)
    alias = content_id(part)
    if alias != id:
        yield alias, "alias", id.encode()


def _targets(connection: "Connection | None", id: str) -> set[str]:
    """Return the exact ids of all contents that match an id, its first digits or an alias."""
    prefix = parse_part_id(id)
    if connection is None or prefix is None:
        return set()
    rows: Iterable[StoredRow] = connection.execute(
        _SELECT_IDS, (prefix, prefix + ("\0" if is_complete_id(prefix) else "g"))
    )
    return {body.decode() if kind == "alias" else stored_id for stored_id, kind, body in rows}
