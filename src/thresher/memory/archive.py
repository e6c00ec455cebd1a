"""The truth: every session as it was read, in one SQLite file, from which the index can always be made again.

A session's messages lie in blocks of 64. A session that changed changes blocks: one whose digest is there already
stays, and from the first that differs on all are replaced. So a session that grew rewrites its last block, and
one that was rewound is noticed. Blocks are never changed and their numbers never used again: the index only has to
know the highest number that it has seen, and which ones went since. All that one file changed is written at once;
the changes of many small files are written together.

Where a file does not hold messages any more that it held before, the session stays as it was, under another number,
and what the file holds now is one of its own. Where that is nothing at all, nothing is changed.

Sessions that were forgotten for good leave the digest of their name, so that they do not come back from a file that
still holds them; such a file's own name is a digest, too.
"""

import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from sqlite3 import Connection, Error, connect
from typing import Any, NamedTuple

from msgspec import Raw

from thresher.memory.lineage import ban, bans, join_version, lost_of, set_aside, settle_root
from thresher.memory.packing import BLOCK, read_message, rebuilt, skimmed, unpacked
from thresher.memory.tables import (
    FACTS,
    VERSION,
    Block,
    Entry,
    Kept,
    blocks_of,
    facts_of,
    hide,
    make_tables,
    remove_blocks,
    row_of,
    same_blocks,
    stat_row,
)
from thresher.memory.values import Facts, Known, Stat
from thresher.model import Message, Session
from thresher.store.errors import NotStoredError, StoreError
from thresher.store.home import make_private

FILE = "truth.sqlite3"
PATIENCE = 30.0
"""Seconds that a writer waits for another."""
BATCH_SECONDS = 2.0
BATCH_BYTES = 32_000_000
"""After so much, what was written is made to last."""
ERRORS = (Error, OSError, OverflowError)
BLOCKS_AT_HAND = 32
"""Blocks that are not unpacked again for the next message in them."""
GONE = Message("user", ())
"""Stands for what an index still knows while a sync is at work, or since one was cut short."""


class Placed(NamedTuple):
    """What became of a session: the numbers of its new blocks, and under which ids they are kept."""

    key: int
    blocks: tuple[tuple[int, int], ...]
    messages: int
    """How many are new."""


class _Kept(NamedTuple):
    """A session as it is kept now."""

    facts: Facts
    links: tuple[int, str, str]
    """Its owner, its parent and its beginning."""
    blocks: list[Kept]


class Archive:
    """The file with the truth."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE
        self._connection: Connection | None = None
        self._written = 0
        self._begun = 0.0
        self._is_changing = False

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
            make_private(self.path.parent)
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
            make_tables(connection)
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
            finally:
                try:
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
        """One change with all that are made inside it, all or nothing; it lasts when its batch is full."""
        with self.opened() as connection:
            if self._is_changing:
                yield connection
                return
            if not connection.in_transaction:
                connection.execute("BEGIN IMMEDIATE")
                self._begun = time.monotonic()
            connection.execute("SAVEPOINT change")
            self._is_changing = True
            try:
                yield connection
            except BaseException:
                if connection.in_transaction:  # a full disk may have ended it
                    connection.execute("ROLLBACK TO change")
                raise
            finally:
                self._is_changing = False
            connection.execute("RELEASE change")
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

    def place(self, entry: Entry, *, ordinal: int, source: str, owner: int, grown: bool = False) -> Placed | None:
        """Keep a session; None where there is nothing in it any more. `grown`: all that was in its file still is."""
        with self.change() as connection:
            kept = self._kept(connection, entry.facts, ordinal)
            if kept and kept.blocks and not entry.blocks:
                return None
            known = kept.facts.messages if kept else 0
            lost = 0 if grown or kept is None else lost_of(connection, kept.blocks, entry.blocks)
            if kept and lost:
                set_aside(connection, kept.facts.key)
            before = None if lost else kept
            key = self._row(connection, entry, before, ordinal, source, owner)
            if before is None or before.links != (owner or before.links[0], entry.facts.parent, entry.start):
                settle_root(connection, key, kept.facts.key if kept and lost < known else 0)
            placed = self._replace(connection, key, entry, before)
            if not lost:
                join_version(connection, key, entry.blocks)
        return Placed(key, placed, max(0, entry.facts.messages - known + lost))

    def _kept(self, connection: Connection, facts: Facts, ordinal: int) -> _Kept | None:
        where = "agent = ? AND sessions.id = ? AND file = ? AND ordinal = ?"
        name = (facts.agent, facts.id, facts.file, ordinal)
        found = next(map(facts_of, connection.execute(f"{FACTS} WHERE {where}", name)), None)
        if found is None:
            return None
        links = connection.execute("SELECT owner, parent, start FROM sessions WHERE key = ?", (found.key,)).fetchone()
        return _Kept(found, links, blocks_of(connection, found.key))

    def _replace(
        self, connection: Connection, key: int, entry: Entry, before: _Kept | None
    ) -> tuple[tuple[int, int], ...]:
        """Write the blocks that differ; gives back the number and the id of each."""
        old = before.blocks if before else []
        same = same_blocks(old, entry.blocks) if before and before.facts.made_by == entry.facts.made_by else 0
        remove_blocks(connection, old[same:])
        name = (entry.facts.title, entry.facts.branch)
        if before is None or (before.facts.title, before.facts.branch) != name:
            connection.execute("INSERT OR IGNORE INTO tombstones VALUES (?)", (-key,))
        return tuple(
            (number, self._insert(connection, key, number, entry.blocks[number]))
            for number in range(same, len(entry.blocks))
        )

    def _row(
        self, connection: Connection, entry: Entry, before: _Kept | None, ordinal: int, source: str, owner: int
    ) -> int:
        """Write what is known of a session, and give back its key."""
        facts = entry.facts
        row = row_of(entry) | {"source": source, "owner": owner}
        if before is not None:
            # A sub-agent whose owner's file is gone is read by itself, and knows less of where it belongs.
            row |= {"owner": owner or before.links[0], "call": facts.call or before.facts.call}
            changes = ", ".join(f"{column} = ?" for column in row)
            connection.execute(f"UPDATE sessions SET {changes} WHERE key = ?", (*row.values(), before.facts.key))
            return before.facts.key
        row |= {"agent": facts.agent, "id": facts.id, "file": facts.file, "ordinal": ordinal}
        columns, marks = ", ".join(row), ", ".join("?" * len(row))
        done = connection.execute(f"INSERT INTO sessions ({columns}) VALUES ({marks})", (*row.values(),))
        return int(done.lastrowid or 0)

    def _insert(self, connection: Connection, key: int, number: int, block: Block) -> int:
        self._written += len(block.body)
        row = (key, number, block.digest, block.messages, block.body)
        done = connection.execute(
            "INSERT INTO blocks (session, number, digest, count, body) VALUES (?, ?, ?, ?, ?)", row
        )
        return int(done.lastrowid or 0)

    def only_present(self, source: str, keys: Iterable[int], same: Collection[str] = ()) -> None:
        """Mark what a file no longer holds: neither by its key, nor as one of the ids that are as they were."""
        held = set(keys)
        with self.change() as connection:
            every = connection.execute("SELECT key, id FROM sessions WHERE source = ? AND present", (source,))
            gone = [(key,) for key, id in every.fetchall() if key not in held and id not in same]
            connection.executemany("UPDATE sessions SET present = FALSE WHERE key = ?", gone)

    # --- forgetting ----------------------------------------------------------------------------------------------

    def forget(self, keys: Iterable[int], *, for_good: bool = True) -> int:
        """Remove sessions and their sub-agents; `for_good`, see that they do not come back, whatever their files do."""
        with self.change() as connection:
            every = self._with_subagents(connection, keys)
            for key in every:
                agent, id, start, source = connection.execute(
                    "SELECT agent, id, start, source FROM sessions WHERE key = ?", (key,)
                ).fetchone()
                connection.execute("DELETE FROM blocks WHERE session = ?", (key,))
                connection.execute("DELETE FROM sessions WHERE key = ?", (key,))
                if for_good:
                    connection.execute("INSERT OR IGNORE INTO forgotten VALUES (?)", (ban(agent, id, start),))
                    hide(connection, source)
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

    def is_forgotten(self, entry: Entry) -> bool:
        """Whether a session, or the one whose sub-agent it is, was to be forgotten."""
        facts = entry.facts
        digests = bans(facts.agent, facts.id, entry.start, facts.parent if facts.subagent else "")
        with self.opened() as connection:
            asked = "SELECT 1 FROM forgotten WHERE digest = ?"
            return any(connection.execute(asked, (digest,)).fetchone() for digest in digests)

    def hide(self, source: str) -> None:
        """Keep no name of a file that holds only forgotten sessions."""
        with self.change() as connection:
            hide(connection, source)

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
        """Gives single messages, by session and place; an empty one for a place that is not there any more."""
        with self.opened() as connection:

            @lru_cache(maxsize=BLOCKS_AT_HAND)
            def block(key: int, number: int) -> Sequence[Raw | Message]:
                asked = "SELECT body FROM blocks WHERE session = ? AND number = ?"
                row = connection.execute(asked, (key, number)).fetchone()
                return skimmed(row[0]) if row else ()

            def message(key: int, at: int) -> Message:
                found = block(key, at // BLOCK)[at % BLOCK : at % BLOCK + 1]
                return read_message(found[0]) if found else GONE

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
