"""The annotations of past sessions: one plain-language line per piece of work, in a SQLite file next to the index.

A line is stored under the digest of the text that the model read, because a model wrote it for money: the same text is
never sent twice, also if its session is archived again under another key.
"""

from collections.abc import Collection, Iterable
from pathlib import Path
from typing import NamedTuple

from thresher.store.sqlite_file import SqliteFile, SqliteSchema

SCHEMA = SqliteSchema(
    1,
    (
        "CREATE TABLE annotations (digest BLOB, session INTEGER, message INTEGER, line TEXT, "
        "PRIMARY KEY (session, digest)) WITHOUT ROWID",
        "CREATE INDEX annotations_digest ON annotations (digest)",
    ),
)


class Annotation(NamedTuple):
    """A line about a piece of work, and the index of the message with which the piece begins."""

    digest: bytes
    message: int
    line: str


class AnnotationFile:
    """The annotations of one archive. Methods raise `StoreError` on failure."""

    def __init__(self, path: Path) -> None:
        """Open nothing yet."""
        self.path = path
        self._file = SqliteFile(path, SCHEMA)

    def read(self, session: int) -> list[Annotation]:
        """Return the annotations of a session in order; none if there is no file."""
        with self._file.open_existing() as connection:
            if connection is None:
                return []
            query = "SELECT digest, message, line FROM annotations WHERE session = ? ORDER BY message"
            return [Annotation(*row) for row in connection.execute(query, (session,))]

    def find_lines(self, digests: Collection[bytes]) -> dict[bytes, str]:
        """Return the known lines by digest."""
        with self._file.open_existing() as connection:
            if connection is None:
                return {}
            query = "SELECT line FROM annotations WHERE digest = ? LIMIT 1"
            found = {digest: connection.execute(query, (digest,)).fetchone() for digest in digests}
        return {digest: row[0] for digest, row in found.items() if row is not None}

    def replace(self, session: int, annotations: Iterable[Annotation]) -> None:
        """Replace the annotations of a session."""
        with self._file.open() as connection:
            connection.execute("PRAGMA secure_delete = ON")
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("DELETE FROM annotations WHERE session = ?", (session,))
            rows = [(one.digest, session, one.message, one.line) for one in annotations]
            connection.executemany("INSERT OR REPLACE INTO annotations VALUES (?, ?, ?, ?)", rows)
            connection.execute("COMMIT")

    def keep_sessions(self, keys: Iterable[int]) -> None:
        """Delete the annotations of all other sessions, and their traces in the log."""
        if not self.path.exists():
            return
        with self._file.open() as connection:
            connection.execute("PRAGMA secure_delete = ON")
            stored = {key for (key,) in connection.execute("SELECT DISTINCT session FROM annotations")}
            gone = [(key,) for key in stored - {*keys}]
            connection.executemany("DELETE FROM annotations WHERE session = ?", gone)
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
