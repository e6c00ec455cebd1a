"""The truth: every session as it was read, in one SQLite file, from which the index can always be made again.

A session's messages lie in blocks of 64. A session that changed changes blocks: one whose digest is there already
stays, and from the first that differs on all are replaced. So a session that grew rewrites its last block, and
one that was rewound is noticed. Blocks are never changed and their numbers never used again: the index only has to
know the highest number that it has seen, and which ones went since. All that one file changed is written at once,
many small files together.

Where a file does not hold messages any more that it held before, the session stays as it was, under another number,
and what the file holds now is one of its own. Where that is nothing at all, nothing is changed.

Forgotten sessions leave the digest of their name, so that a file that still holds them does not bring them back.
"""

import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from sqlite3 import Connection, Error, connect
from typing import Any

from msgspec import Raw

from thresher.memory.archive import families
from thresher.memory.archive.block_codec import (
    MESSAGES_PER_BLOCK,
    decode_message,
    decode_messages,
    decode_messages_lazily,
    rebuild_session,
)
from thresher.memory.archive.placement import MISSING_MESSAGE, PlacedSession, StoredSession
from thresher.memory.archive.schema import (
    SCHEMA_VERSION,
    SELECT_SESSIONS,
    EncodedBlock,
    EncodedSession,
    build_session_row,
    count_same_blocks,
    hide_source,
    make_tables,
    mask_inode,
    parse_session_row,
    remove_blocks,
    select_blocks,
)
from thresher.memory.records import ArchivedSession, FileStat, SourceRecord
from thresher.model import Message, Session
from thresher.store.errors import NotStoredError, StoreError
from thresher.store.home import create_private_folder

ARCHIVE_FILE = "truth.sqlite3"
LOCK_TIMEOUT_SECONDS = 30.0
"""Seconds that a writer waits for another."""
BATCH_SECONDS = 2.0
BATCH_BYTES = 32_000_000
"""After so much, what was written is made to last."""
SQLITE_ERRORS = (Error, OSError, OverflowError)
BLOCK_CACHE_SIZE = 32
"""Blocks that are not unpacked again for the next message in them."""


class SqliteArchive:
    """The file with the truth."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / ARCHIVE_FILE
        self._connection: Connection | None = None
        self._uncommitted_bytes = 0
        self._transaction_started = 0.0
        self._in_transaction = False

    @contextmanager
    def connect(self) -> Iterator[Connection]:
        """A connection: the one that is being written with, or one for a look."""
        try:
            if self._connection is not None:
                yield self._connection
                return
            with closing(self._open_connection()) as connection:
                yield connection
        except SQLITE_ERRORS as error:
            advice = "free the disk, or set THRESHER_HOME to a folder that can be written"
            raise StoreError(f"{self.path}: cannot be read or written ({error}); {advice}") from error

    def _open_connection(self) -> Connection:
        if not self.path.exists():
            create_private_folder(self.path.parent)
            os.close(os.open(self.path, os.O_CREAT | os.O_RDWR, 0o600))
        address = f"{self.path.absolute().as_uri()}?mode=rw"
        connection = connect(address, timeout=LOCK_TIMEOUT_SECONDS, isolation_level=None, uri=True)
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if version > SCHEMA_VERSION:
            connection.close()
            raise StoreError(f"{self.path}: written by a newer version of Thresher; upgrade this one")
        if version < SCHEMA_VERSION:
            with suppress(Error):  # only one can switch, and only while it is alone
                connection.execute("PRAGMA journal_mode = WAL")
            make_tables(connection)
        return connection

    # --- writing -------------------------------------------------------------------------------------------------

    @contextmanager
    def open_for_writing(self) -> Iterator[None]:
        """All that is written inside lasts, in batches; what an error leaves half done does not."""
        with self.connect() as connection:
            self._connection = connection
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute("PRAGMA secure_delete = ON")
            try:
                yield
            finally:
                try:
                    self.commit()
                finally:
                    self._connection = None
                    if connection.in_transaction:
                        connection.execute("ROLLBACK")

    def commit(self) -> None:
        """Make what was written last."""
        with self.connect() as connection:
            if connection.in_transaction:
                connection.execute("COMMIT")
            self._uncommitted_bytes = 0

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """One change with all that are made inside it, all or nothing; it lasts when its batch is full."""
        with self.connect() as connection:
            if self._in_transaction:
                yield connection
                return
            if not connection.in_transaction:
                connection.execute("BEGIN IMMEDIATE")
                self._transaction_started = time.monotonic()
            connection.execute("SAVEPOINT change")
            self._in_transaction = True
            try:
                yield connection
            except BaseException:
                if connection.in_transaction:  # a full disk may have ended it
                    connection.execute("ROLLBACK TO change")
                raise
            finally:
                self._in_transaction = False
            connection.execute("RELEASE change")
            if self._uncommitted_bytes > BATCH_BYTES or time.monotonic() - self._transaction_started > BATCH_SECONDS:
                self.commit()

    def save_sources(self, known: Iterable[SourceRecord]) -> None:
        """Remember files."""
        rows = [(one.path, *mask_inode(one.stat), *one[2:]) for one in known]
        with self.transaction() as connection:
            connection.executemany(f"INSERT OR REPLACE INTO sources VALUES ({', '.join('?' * 11)})", rows)

    def set_state(self, **values: str) -> None:
        """Remember a few facts about the index."""
        with self.transaction() as connection:
            connection.executemany("INSERT OR REPLACE INTO state VALUES (?, ?)", values.items())

    def reset_index_state(self, name: str) -> None:
        """A new index of this name has nothing yet, no titles either."""
        with self.transaction() as connection:
            connection.execute("DELETE FROM tombstones")
            connection.execute("INSERT INTO tombstones SELECT -key FROM sessions")
            self.set_state(index=name, indexed_upto="0")

    def store_session(
        self, entry: EncodedSession, *, ordinal: int, source: str, owner: int, grown: bool = False
    ) -> PlacedSession | None:
        """Keep a session; None where there is nothing in it any more. `grown`: all that was in its file still is."""
        with self.transaction() as connection:
            kept = self._find_stored(connection, entry.session, ordinal)
            if kept and kept.blocks and not entry.blocks:
                return None
            known = kept.session.messages if kept else 0
            lost = 0 if grown or kept is None else families.count_lost_messages(connection, kept.blocks, entry.blocks)
            if kept and lost:
                families.retire_version(connection, kept.session.key)
            before = None if lost else kept
            key = self._write_row(connection, entry, before, ordinal, source, owner)
            if before is None or before.links != (owner or before.links[0], entry.session.parent, entry.origin_id):
                families.assign_family_root(connection, key, kept.session.key if kept and lost < known else 0)
            placed = self._write_blocks(connection, key, entry, before)
            if not lost:
                families.drop_restored_version(connection, key, entry.blocks)
        return PlacedSession(key, placed, max(0, entry.session.messages - known + lost))

    def _find_stored(self, connection: Connection, facts: ArchivedSession, ordinal: int) -> StoredSession | None:
        where = "agent = ? AND sessions.id = ? AND file = ? AND ordinal = ?"
        name = (facts.agent, facts.id, facts.file, ordinal)
        found = next(map(parse_session_row, connection.execute(f"{SELECT_SESSIONS} WHERE {where}", name)), None)
        if found is None:
            return None
        links = connection.execute("SELECT owner, parent, start FROM sessions WHERE key = ?", (found.key,)).fetchone()
        return StoredSession(found, links, select_blocks(connection, found.key))

    def _write_blocks(
        self, connection: Connection, key: int, entry: EncodedSession, before: StoredSession | None
    ) -> tuple[tuple[int, int], ...]:
        """Write the blocks that differ; gives back the number and the id of each."""
        old = before.blocks if before else []
        same = count_same_blocks(old, entry.blocks) if before and before.session.made_by == entry.session.made_by else 0
        remove_blocks(connection, old[same:])
        name = (entry.session.title, entry.session.branch)
        if before is None or (before.session.title, before.session.branch) != name:
            connection.execute("INSERT OR IGNORE INTO tombstones VALUES (?)", (-key,))
        return tuple(
            (number, self._insert_block(connection, key, number, entry.blocks[number]))
            for number in range(same, len(entry.blocks))
        )

    def _write_row(
        self,
        connection: Connection,
        entry: EncodedSession,
        before: StoredSession | None,
        ordinal: int,
        source: str,
        owner: int,
    ) -> int:
        """Write what is known of a session, and give back its key."""
        facts = entry.session
        row = build_session_row(entry) | {"source": source, "owner": owner}
        if before is not None:
            # A sub-agent whose owner's file is gone is read by itself, and knows less of where it belongs.
            row |= {"owner": owner or before.links[0], "call": facts.call or before.session.call}
            changes = ", ".join(f"{column} = ?" for column in row)
            connection.execute(f"UPDATE sessions SET {changes} WHERE key = ?", (*row.values(), before.session.key))
            return before.session.key
        row |= {"agent": facts.agent, "id": facts.id, "file": facts.file, "ordinal": ordinal}
        columns, marks = ", ".join(row), ", ".join("?" * len(row))
        done = connection.execute(f"INSERT INTO sessions ({columns}) VALUES ({marks})", (*row.values(),))
        return int(done.lastrowid or 0)

    def _insert_block(self, connection: Connection, key: int, number: int, block: EncodedBlock) -> int:
        self._uncommitted_bytes += len(block.body)
        row = (key, number, block.digest, block.messages, block.body)
        done = connection.execute(
            "INSERT INTO blocks (session, number, digest, count, body) VALUES (?, ?, ?, ?, ?)", row
        )
        return int(done.lastrowid or 0)

    def mark_absent(self, source: str, keys: Iterable[int], same: Collection[str] = ()) -> None:
        """Mark what a file no longer holds: neither by its key, nor as one of the ids that are as they were."""
        held = set(keys)
        with self.transaction() as connection:
            every = connection.execute("SELECT key, id FROM sessions WHERE source = ? AND present", (source,))
            gone = [(key,) for key, id in every.fetchall() if key not in held and id not in same]
            connection.executemany("UPDATE sessions SET present = FALSE WHERE key = ?", gone)

    # --- forgetting ----------------------------------------------------------------------------------------------

    def forget(self, keys: Iterable[int], *, for_good: bool = True) -> int:
        """Remove sessions and their sub-agents; `for_good`, see that they do not come back, whatever their files do."""
        with self.transaction() as connection:
            every = self._with_subagents(connection, keys)
            for key in every:
                agent, id, start, source = connection.execute(
                    "SELECT agent, id, start, source FROM sessions WHERE key = ?", (key,)
                ).fetchone()
                connection.execute("DELETE FROM blocks WHERE session = ?", (key,))
                connection.execute("DELETE FROM sessions WHERE key = ?", (key,))
                if for_good:
                    connection.execute(
                        "INSERT OR IGNORE INTO forgotten VALUES (?)",
                        (families.compute_forgotten_digest(agent, id, start),),
                    )
                    hide_source(connection, source)
            if every:  # whatever happens next: no index that still knows them is used again
                connection.execute("INSERT OR REPLACE INTO state VALUES ('index', '')")
        return len(every)

    def _with_subagents(self, connection: Connection, keys: Iterable[int]) -> list[int]:
        line, every = list(keys), dict[int, None]()
        while line:
            key = line.pop()
            if key not in every and connection.execute("SELECT 1 FROM sessions WHERE key = ?", (key,)).fetchone():
                every[key] = None
                line += [row[0] for row in connection.execute("SELECT key FROM sessions WHERE owner = ?", (key,))]
        return [*every]

    def is_forgotten(self, entry: EncodedSession) -> bool:
        """Whether a session, or the one whose sub-agent it is, was to be forgotten."""
        facts = entry.session
        digests = families.list_forgotten_digests(
            facts.agent, facts.id, entry.origin_id, facts.parent if facts.subagent else ""
        )
        with self.connect() as connection:
            asked = "SELECT 1 FROM forgotten WHERE digest = ?"
            return any(connection.execute(asked, (digest,)).fetchone() for digest in digests)

    def hide_source(self, source: str) -> None:
        """Keep no name of a file that holds only forgotten sessions."""
        with self.transaction() as connection:
            hide_source(connection, source)

    def vacuum(self) -> None:
        """Leave no byte of what was removed."""
        self.commit()
        with self.connect() as connection:
            connection.execute("VACUUM")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    # --- reading -------------------------------------------------------------------------------------------------

    def sources(self) -> dict[str, SourceRecord]:
        """Every file that was looked at."""
        with self.connect() as connection:
            rows = connection.execute("SELECT * FROM sources")
            return {row[0]: SourceRecord(row[0], FileStat(*row[1:5]), *row[5:]) for row in rows}

    def state(self) -> Mapping[str, str]:
        """A few facts about the index."""
        with self.connect() as connection:
            return dict(connection.execute("SELECT name, value FROM state"))

    def find_sessions(self, where: str = "TRUE", values: Sequence[Any] = ()) -> list[ArchivedSession]:
        """Sessions that a condition holds for, in the order they came."""
        with self.connect() as connection:
            return [
                *map(parse_session_row, connection.execute(f"{SELECT_SESSIONS} WHERE {where} ORDER BY key", values))
            ]

    def messages(self, key: int, start: int = 0, stop: int | None = None) -> list[Message]:
        """Messages of a session, by place."""
        last = 1 << 40 if stop is None else max(stop - 1, 0) // MESSAGES_PER_BLOCK
        with self.connect() as connection:
            rows = connection.execute(
                "SELECT body FROM blocks WHERE session = ? AND number BETWEEN ? AND ? ORDER BY number",
                (key, start // MESSAGES_PER_BLOCK, last),
            )
            found = [message for (body,) in rows for message in decode_messages(body)]
        begin = start % MESSAGES_PER_BLOCK
        return found[begin : None if stop is None else begin + stop - start]

    @contextmanager
    def message_reader(self) -> Iterator[Callable[[int, int], Message]]:
        """Gives single messages, by session and place; an empty one for a place that is not there any more."""
        with self.connect() as connection:

            @lru_cache(maxsize=BLOCK_CACHE_SIZE)
            def block(key: int, number: int) -> Sequence[Raw | Message]:
                asked = "SELECT body FROM blocks WHERE session = ? AND number = ?"
                row = connection.execute(asked, (key, number)).fetchone()
                return decode_messages_lazily(row[0]) if row else ()

            def message(key: int, at: int) -> Message:
                found = block(key, at // MESSAGES_PER_BLOCK)[at % MESSAGES_PER_BLOCK : at % MESSAGES_PER_BLOCK + 1]
                return decode_message(found[0]) if found else MISSING_MESSAGE

            yield message

    def session(self, key: int, *, children: bool = True) -> Session:
        """A session, as it was read."""
        found = self.find_sessions("key = ?", (key,))
        if not found:
            raise NotStoredError(f"no session has the key {key}; a search tells which there are")
        with self.connect() as connection:
            shape = connection.execute("SELECT shape FROM sessions WHERE key = ?", (key,)).fetchone()[0]
            below = connection.execute("SELECT key FROM sessions WHERE owner = ? ORDER BY key", (key,)).fetchall()
        inner = [self.session(child) for (child,) in below] if children else []
        return rebuild_session(found[0], shape, self.messages(key), inner)

    def blocks_after(self, block: int) -> list[tuple[int, int, int]]:
        """Blocks that came after one: session, number and id of each, those of a session together."""
        with self.connect() as connection:
            rows = connection.execute(
                "SELECT session, number, id FROM blocks WHERE id > ? ORDER BY session, number", (block,)
            )
            return rows.fetchall()

    def last_block_id(self) -> int:
        """The highest number that a block ever had."""
        with self.connect() as connection:
            found = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'blocks'").fetchone()
            return int(found[0]) if found else 0

    def tombstones(self) -> list[int]:
        """Blocks that went, and (as minus their key) sessions that have another name, since the index was written."""
        with self.connect() as connection:
            return [row[0] for row in connection.execute("SELECT block FROM tombstones")]

    def clear_tombstones(self, blocks: Iterable[int]) -> None:
        """These are not in the index any more."""
        with self.transaction() as connection:
            connection.executemany("DELETE FROM tombstones WHERE block = ?", [(block,) for block in blocks])

    def totals(self) -> tuple[int, int, int]:
        """Characters, sessions and messages."""
        with self.connect() as connection:
            row = connection.execute(
                "SELECT COALESCE(SUM(text), 0), COUNT(*), COALESCE(SUM(messages), 0) FROM sessions"
            )
            text, sessions, messages = row.fetchone()
            return text, sessions, messages
