"""The truth: every session as it was read, in one SQLite file, from which the index can always be made again.

A session's messages lie in blocks of 64. A session that changed changes blocks: one whose digest is there already
stays, and from the first that differs on all are replaced. So a session that grew rewrites its last block, and
one that was rewound is noticed. Blocks are never changed and their numbers never used again: the index only has to
know the highest number that it has seen, and which ones went since. All that one file changed is written at once;
the changes of many small files are written together.

Sessions that were forgotten leave the digest of their name, so that they do not come back from a file that still
holds them; such a file's own name is a digest, too.
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from sqlite3 import Connection, Error, connect
from typing import Any, NamedTuple

from thresher.memory.lineage import settle_root
from thresher.memory.packing import BLOCK, compress, one_of, rebuilt, unpacked
from thresher.memory.tables import FACTS, TABLES, facts_of, stat_row, told
from thresher.memory.values import Facts, Known, Stat, hidden
from thresher.model import Message, Session
from thresher.store.errors import NotStoredError, StoreError

FILE = "truth.sqlite3"
VERSION = 1
PATIENCE = 30.0
"""Seconds that a writer waits for another."""
BATCH_SECONDS = 2.0
BATCH_BYTES = 32_000_000
"""After so much, what was written is made to last."""
ERRORS = (Error, OSError, OverflowError)


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


class Placed(NamedTuple):
    """What became of a session: the numbers of its new blocks, and under which ids they are kept."""

    key: int
    blocks: tuple[tuple[int, int], ...]
    messages: int
    """How many more there are than before."""


class Archive:
    """The file with the truth."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE
        self._connection: Connection | None = None
        self._written = 0
        self._begun = 0.0

    @contextmanager
    def opened(self) -> Iterator[Connection]:
        """A connection: the one that is being written with, or one for a look."""
        try:
            if self._connection is not None:
                yield self._connection
                return
            with closing(self._connected()) as connection:
                yield connection
        except ERRORS as error:
            advice = "free the disk, or set THRESHER_HOME to a folder that can be written"
            raise StoreError(f"{self.path}: cannot be read or written ({error}); {advice}") from error

    def _connected(self) -> Connection:
        if not self.path.exists():
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(os.open(self.path, os.O_CREAT | os.O_RDWR, 0o600))
        address = f"{self.path.absolute().as_uri()}?mode=rw"
        connection = connect(address, timeout=PATIENCE, isolation_level=None, uri=True)
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if version > VERSION:
            connection.close()
            raise StoreError(f"{self.path}: written by a newer version of Thresher; upgrade this one")
        if version < VERSION:
            with suppress(Error):  # only one can switch, and only while it is alone
                connection.execute("PRAGMA journal_mode = WAL")
            connection.executescript(f"BEGIN IMMEDIATE; {TABLES} PRAGMA user_version = {VERSION}; COMMIT;")
        return connection

    # --- writing -------------------------------------------------------------------------------------------------

    @contextmanager
    def writing(self) -> Iterator[None]:
        """All that is written inside lasts, in batches; what an error leaves half done does not."""
        with self.opened() as connection:
            self._connection = connection
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute("PRAGMA secure_delete = ON")
            try:
                yield
                self.save()
            finally:
                self._connection = None
                if connection.in_transaction:
                    connection.execute("ROLLBACK")

    def save(self) -> None:
        """Make what was written last."""
        with self.opened() as connection:
            if connection.in_transaction:
                connection.execute("COMMIT")
            self._written = 0

    @contextmanager
    def change(self) -> Iterator[Connection]:
        """One change, all or nothing; it lasts when its batch is full."""
        with self.opened() as connection:
            if not connection.in_transaction:
                connection.execute("BEGIN IMMEDIATE")
                self._begun = time.monotonic()
            yield connection
            if self._written > BATCH_BYTES or time.monotonic() - self._begun > BATCH_SECONDS:
                self.save()

    def note(self, known: Iterable[Known]) -> None:
        """Remember files."""
        rows = [(one.path, *stat_row(one.stat), *one[2:]) for one in known]
        with self.change() as connection:
            connection.executemany(f"INSERT OR REPLACE INTO sources VALUES ({', '.join('?' * 11)})", rows)

    def set_state(self, **values: str) -> None:
        """Remember a few facts about the index."""
        with self.change() as connection:
            connection.executemany("INSERT OR REPLACE INTO state VALUES (?, ?)", values.items())

    def index_lost(self, name: str) -> None:
        """A new index of this name has nothing yet, no titles either."""
        with self.change() as connection:
            connection.execute("DELETE FROM tombstones")
            connection.execute("INSERT INTO tombstones SELECT -key FROM sessions")
            self.set_state(index=name, indexed_upto="0")

    def place(self, entry: Entry, *, ordinal: int, source: str, owner: int) -> Placed:
        """Keep a session."""
        with self.change() as connection:
            key, before, is_new_name = self._row(connection, entry, ordinal, source, owner)
            old = connection.execute(
                "SELECT id, digest, count FROM blocks WHERE session = ? ORDER BY number", (key,)
            ).fetchall()
            same = 0
            if before is None or before.made_by == entry.facts.made_by:
                while same < min(len(old), len(entry.blocks)) and old[same][1] == entry.blocks[same].digest:
                    same += 1
            gone = [(id,) for id, _, _ in old[same:]]
            connection.executemany("DELETE FROM blocks WHERE id = ?", gone)
            connection.executemany("INSERT OR IGNORE INTO tombstones VALUES (?)", gone)
            if is_new_name:
                connection.execute("INSERT OR IGNORE INTO tombstones VALUES (?)", (-key,))
            placed = tuple(
                (number, self._insert(connection, key, number, entry.blocks[number]))
                for number in range(same, len(entry.blocks))
            )
        return Placed(key, placed, entry.facts.messages - (before.messages if before else 0))

    def _row(
        self, connection: Connection, entry: Entry, ordinal: int, source: str, owner: int
    ) -> tuple[int, Facts | None, bool]:
        """The session's key, what was known of it, and whether its name is another now."""
        facts = entry.facts
        where = "agent = ? AND sessions.id = ? AND file = ? AND ordinal = ?"
        name = (facts.agent, facts.id, facts.file, ordinal)
        before = next(map(facts_of, connection.execute(f"{FACTS} WHERE {where}", name)), None)
        links = connection.execute(f"SELECT owner, parent, start FROM sessions WHERE {where}", name).fetchone()
        row = {
            "source": source,
            "owner": owner,
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
        }
        if before is None:
            columns = f"INSERT INTO sessions (agent, id, file, ordinal, {', '.join(row)})"
            done = connection.execute(f"{columns} VALUES ({', '.join('?' * (len(row) + 4))})", (*name, *row.values()))
            key = int(done.lastrowid or 0)
        else:
            key = before.key
            connection.execute(
                f"UPDATE sessions SET {', '.join(f'{column} = ?' for column in row)} WHERE key = ?",
                (*row.values(), key),
            )
        if links != (owner, facts.parent, entry.start):
            settle_root(connection, key)
        renamed = before is None or (before.title, before.branch) != (facts.title, facts.branch)
        return key, before, renamed

    def _insert(self, connection: Connection, key: int, number: int, block: Block) -> int:
        body = compress(block.body)
        self._written += len(body)
        row = (key, number, block.digest, block.messages, body)
        done = connection.execute(
            "INSERT INTO blocks (session, number, digest, count, body) VALUES (?, ?, ?, ?, ?)", row
        )
        return int(done.lastrowid or 0)

    def only_present(self, source: str, keys: Iterable[int]) -> None:
        """Mark what a file no longer holds."""
        held = set(keys)
        with self.change() as connection:
            every = connection.execute("SELECT key FROM sessions WHERE source = ? AND present", (source,)).fetchall()
            gone = [row for row in every if row[0] not in held]
            connection.executemany("UPDATE sessions SET present = FALSE WHERE key = ?", gone)

    # --- forgetting ----------------------------------------------------------------------------------------------

    def forget(self, keys: Iterable[int]) -> int:
        """Remove sessions and their sub-agents, and see that they do not come back."""
        with self.change() as connection:
            line, every = list(keys), dict[int, None]()
            while line:
                key = line.pop()
                if key not in every and connection.execute("SELECT 1 FROM sessions WHERE key = ?", (key,)).fetchone():
                    every[key] = None
                    line += [row[0] for row in connection.execute("SELECT key FROM sessions WHERE owner = ?", (key,))]
            for key in every:
                agent, id, source = connection.execute(
                    "SELECT agent, id, source FROM sessions WHERE key = ?", (key,)
                ).fetchone()
                connection.execute("INSERT OR IGNORE INTO forgotten VALUES (?)", (_name_digest(agent, id),))
                connection.execute("DELETE FROM blocks WHERE session = ?", (key,))
                connection.execute("DELETE FROM sessions WHERE key = ?", (key,))
                _hide(connection, source)
        return len(every)

    def is_forgotten(self, session: Session) -> bool:
        """Whether a session was to be forgotten."""
        with self.opened() as connection:
            name = (_name_digest(session.agent, session.id),)
            return connection.execute("SELECT 1 FROM forgotten WHERE digest = ?", name).fetchone() is not None

    def hide(self, source: str) -> None:
        """Keep no name of a file that holds only forgotten sessions."""
        with self.change() as connection:
            _hide(connection, source)

    def scrub(self) -> None:
        """Leave no byte of what was removed."""
        self.save()
        with self.opened() as connection:
            connection.execute("VACUUM")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    # --- reading -------------------------------------------------------------------------------------------------

    def sources(self) -> dict[str, Known]:
        """Every file that was looked at."""
        with self.opened() as connection:
            rows = connection.execute("SELECT * FROM sources")
            return {row[0]: Known(row[0], Stat(*row[1:5]), *row[5:]) for row in rows}

    def state(self) -> Mapping[str, str]:
        """A few facts about the index."""
        with self.opened() as connection:
            return dict(connection.execute("SELECT name, value FROM state"))

    def facts(self, where: str = "TRUE", values: Sequence[Any] = ()) -> list[Facts]:
        """Sessions that a condition holds for, in the order they came."""
        with self.opened() as connection:
            return [*map(facts_of, connection.execute(f"{FACTS} WHERE {where} ORDER BY key", values))]

    def messages(self, key: int, start: int = 0, stop: int | None = None) -> list[Message]:
        """Messages of a session, by place."""
        last = 1 << 40 if stop is None else max(stop - 1, 0) // BLOCK
        with self.opened() as connection:
            rows = connection.execute(
                "SELECT body FROM blocks WHERE session = ? AND number BETWEEN ? AND ? ORDER BY number",
                (key, start // BLOCK, last),
            )
            found = [message for (body,) in rows for message in unpacked(body)]
        begin = start % BLOCK
        return found[begin : None if stop is None else begin + stop - start]

    @contextmanager
    def one_by_one(self) -> Iterator[Callable[[int, int], Message]]:
        """Gives single messages, by session and place."""
        with self.opened() as connection:

            def message(key: int, at: int) -> Message:
                rows = connection.execute(
                    "SELECT body FROM blocks WHERE session = ? AND number = ?", (key, at // BLOCK)
                )
                return one_of(rows.fetchone()[0], at % BLOCK)

            yield message

    def session(self, key: int, *, children: bool = True) -> Session:
        """A session, as it was read."""
        found = self.facts("key = ?", (key,))
        if not found:
            raise NotStoredError(f"no session has the key {key}; a search tells which there are")
        with self.opened() as connection:
            shape = connection.execute("SELECT shape FROM sessions WHERE key = ?", (key,)).fetchone()[0]
            below = connection.execute("SELECT key FROM sessions WHERE owner = ? ORDER BY key", (key,)).fetchall()
        inner = [self.session(child) for (child,) in below] if children else []
        return rebuilt(found[0], shape, self.messages(key), inner)

    def above(self, block: int) -> list[tuple[int, int, int]]:
        """Blocks that came after one: session, number and id of each, those of a session together."""
        with self.opened() as connection:
            rows = connection.execute(
                "SELECT session, number, id FROM blocks WHERE id > ? ORDER BY session, number", (block,)
            )
            return rows.fetchall()

    def last_block(self) -> int:
        """The highest number that a block ever had."""
        with self.opened() as connection:
            found = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'blocks'").fetchone()
            return int(found[0]) if found else 0

    def tombstones(self) -> list[int]:
        """Blocks that went, and (as minus their key) sessions that have another name, since the index was written."""
        with self.opened() as connection:
            return [row[0] for row in connection.execute("SELECT block FROM tombstones")]

    def clear_tombstones(self, blocks: Iterable[int]) -> None:
        """These are not in the index any more."""
        with self.change() as connection:
            connection.executemany("DELETE FROM tombstones WHERE block = ?", [(block,) for block in blocks])

    def totals(self) -> tuple[int, int, int]:
        """Characters, sessions and messages."""
        with self.opened() as connection:
            row = connection.execute(
                "SELECT COALESCE(SUM(text), 0), COUNT(*), COALESCE(SUM(messages), 0) FROM sessions"
            )
            text, sessions, messages = row.fetchone()
            return text, sessions, messages


def _hide(connection: Connection, source: str) -> None:
    if connection.execute("SELECT 1 FROM sessions WHERE source = ?", (source,)).fetchone() is None:
        connection.execute(
            "UPDATE OR REPLACE sources SET path = ?, problem = '' WHERE path = ?", (hidden(source), source)
        )
        connection.execute("DELETE FROM sources WHERE whole = ?", (source,))


def _name_digest(agent: str, id: str) -> bytes:
    return blake2b(f"{agent}\n{id}".encode("utf-8", "replace"), digest_size=16).digest()
