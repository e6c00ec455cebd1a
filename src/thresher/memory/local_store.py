"""The store on this machine: the truth in SQLite, the index beside it, and a lease so that one writes at a time.

What is read is put down in the truth, and given to the index while it is still in memory; but the index is made to
last only after the truth is. So a kill at any moment leaves an index that knows less than the truth, never more,
and it says how far it is: the rest is added from the truth the next time.
"""

import json
import os
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from itertools import groupby
from pathlib import Path
from sqlite3 import OperationalError, connect

from tantivy import FieldType
from tantivy import Query as IndexQuery

from thresher.memory.archive.block_codec import MESSAGES_PER_BLOCK, flatten_messages
from thresher.memory.archive.placement import PlacedSession
from thresher.memory.archive.protocol import IngestCounts, Progress
from thresher.memory.archive.sqlite import SQLITE_ERRORS, SqliteArchive
from thresher.memory.index import documents
from thresher.memory.index.tantivy_index import TantivyIndex, remove_index
from thresher.memory.ingest.extract import PreparedSession, SessionName, StoredDigests
from thresher.memory.records import EXCLUSION_REASONS, ArchivedSession, MemorySizes, SourceRecord
from thresher.memory.search.query import Query
from thresher.memory.search.query_compiler import CompiledQuery
from thresher.model import Message, Session
from thresher.store.errors import StoreError
from thresher.store.home import get_data_folder

MEMORY_FOLDER = "memory"
LOCK = "sync.lock"
INDEX_FOLDER = "index"
LEASE_POLL_SECONDS = 0.2
"""Seconds between two tries to get the lease."""
FIRST_COMMIT, COMMIT_BYTES = 25_000_000, 1_000_000_000
"""Characters after which the index is made to last: soon at first, so that the newest can be found, then ever later."""
SELECT_STORED_DIGESTS = (
    "SELECT agent, sessions.id, file, ordinal, made_by, mark, digest FROM sessions JOIN blocks ON session = key "
    "WHERE present AND source = ? ORDER BY key, number"
)


class LocalSessionStore:
    """Past sessions in a folder; by default the one in Thresher's home."""

    def __init__(self, folder: str | Path | None = None) -> None:
        self.folder = get_data_folder() / MEMORY_FOLDER if folder is None else Path(folder)
        self.archive = SqliteArchive(self.folder)
        self._index: TantivyIndex | None = None
        self._expected_size = 0
        self._since_commit = 0
        self._commit_after = FIRST_COMMIT
        self._is_caught_up = False
        """Whether all that the truth has beyond the index's own word is in the hands of the index's writer."""

    # --- the lease -----------------------------------------------------------------------------------------------

    @contextmanager
    def write_lease(
        self, *, wait: bool = True, waiting: Callable[[], None] | None = None, size: int = 0
    ) -> Iterator[bool]:
        """The right to write."""
        with self._lease(wait, waiting) as held:
            if not held:
                yield False
                return
            self._expected_size = size
            try:
                with self.archive.open_for_writing():
                    yield True
            finally:
                if self._index is not None:
                    self._index.close()
                self._is_caught_up = False

    @contextmanager
    def _lease(self, wait: bool, waiting: Callable[[], None] | None) -> Iterator[bool]:
        """A lock on a file, which the system takes back from whoever dies."""
        path = self.folder / LOCK
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not path.exists():
                os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
            lock = connect(path, timeout=0, isolation_level=None)
        except SQLITE_ERRORS as error:
            raise StoreError(f"{path}: cannot be opened ({error}); set THRESHER_HOME to another folder") from error
        with closing(lock):
            told = False
            while True:
                try:
                    lock.execute("BEGIN IMMEDIATE")
                    break
                except OperationalError as error:
                    if "locked" not in str(error):
                        raise StoreError(f"{path}: cannot be locked ({error})") from error
                if not wait:
                    yield False
                    return
                if waiting is not None and not told:
                    waiting()
                told = True
                time.sleep(LEASE_POLL_SECONDS)
            yield True

    # --- writing -------------------------------------------------------------------------------------------------

    def stored_digests(self, source: str) -> dict[SessionName, StoredDigests]:
        """What is kept of the sessions of a file."""
        with self.archive.connect() as connection:
            rows = connection.execute(SELECT_STORED_DIGESTS, (source,)).fetchall()
        sessions = groupby(rows, key=lambda row: row[:6])
        return {one[:4]: StoredDigests(one[4], tuple(row[6] for row in some), one[5]) for one, some in sessions}

    def record(
        self,
        known: SourceRecord,
        sessions: Sequence[PreparedSession],
        parts: Sequence[SourceRecord] = (),
        *,
        grown: bool = False,
        same: Collection[str] = (),
    ) -> IngestCounts:
        """Keep what a file holds now, its sub-agents and the files it was read with; `same` ids are as they were."""
        index = self._writable_index()
        keys: dict[int, int] = {}
        banned: set[int] = set()
        added = 0
        with self.archive.transaction():
            for place, ready in enumerate(sessions):
                if ready.owner in banned or self.archive.is_forgotten(ready.encoded):
                    banned.add(place)
                    continue
                placed = self.archive.store_session(
                    ready.encoded,
                    ordinal=ready.ordinal,
                    source=known.path,
                    owner=keys.get(ready.owner, 0),
                    grown=grown and ready.encoded.session.file == known.path,
                )
                if placed is not None:
                    keys[place] = placed.key
                    added += placed.new_messages
                    self._index_session(index, ready, placed)
            self.archive.mark_absent(known.path, keys.values(), same)
            self.archive.save_sources([known, *parts])
            if banned and not keys:
                self.archive.hide_source(known.path)
        if self._since_commit > self._commit_after:
            self._commit(index)
            self._commit_after = min(2 * self._commit_after, COMMIT_BYTES)
        return IngestCounts(added, len(banned))

    def _index_session(self, index: TantivyIndex, ready: PreparedSession, placed: PlacedSession) -> None:
        """Give the index the entries of new blocks."""
        unread = [(number, block) for number, block in placed.blocks if number not in ready.documents]
        for number, block in placed.blocks:
            index.add_documents(placed.key, block, ready.documents.get(number, ()))
        if unread:  # it was thought to be there, and was taken away since
            self._index_stored_blocks(index, placed.key, unread)
        if placed.blocks:
            self._since_commit += ready.encoded.text_size

    def save_sources(self, known: Iterable[SourceRecord]) -> None:
        """Remember files that nothing was read from."""
        self.archive.save_sources(known)

    def forget(self, keys: Iterable[int], progress: Progress | None = None, *, for_good: bool = True) -> int:
        """Remove sessions; the index is made anew, since its lists of words would still tell them."""
        count = self.archive.forget(keys, for_good=for_good)
        if count:
            self._index = None
            self._is_caught_up = False
            remove_index(self.folder / INDEX_FOLDER)
            self.archive.commit()
            self.refresh_index(progress)
            self.archive.vacuum()
        return count

    # --- the index -----------------------------------------------------------------------------------------------

    def open_index(self) -> TantivyIndex | None:
        """The index as it is, or None where there is none that can be used."""
        if self._index is None:
            self._index = TantivyIndex.open_existing(self.folder / INDEX_FOLDER, self._index_name(self.archive.state()))
        return self._index

    def is_index_behind(self) -> bool:
        """Whether the index lacks something."""
        if not self.exists():
            return False
        upto = int(self.archive.state().get("indexed_upto", 0))
        return self.archive.last_block_id() > upto or bool(self.archive.tombstones()) or self.open_index() is None

    def refresh_index(self, progress: Progress | None = None) -> None:
        """Bring the index up to the truth."""
        if self.is_index_behind():
            index = self._writable_index(progress)
            self._commit(index)

    def _index_name(self, state: Mapping[str, str]) -> str:
        return f"{state.get('index', '')} {documents.DOCUMENT_VERSION}"

    def _writable_index(self, progress: Progress | None = None) -> TantivyIndex:
        """The index, open for writing, with all that the truth had before now."""
        index = self.open_index()
        if index is None:
            self.archive.reset_index_state(uuid.uuid4().hex)
            index = self._index = TantivyIndex.create(
                self.folder / INDEX_FOLDER, self._index_name(self.archive.state())
            )
            self._is_caught_up = False
        if not self._is_caught_up:
            upto = int(self.archive.state().get("indexed_upto", 0))
            waiting = self.archive.blocks_after(upto)
            index.begin_writing(self._expected_size or len(waiting) * MESSAGES_PER_BLOCK * 1000, upto)
            self._catch_up(index, waiting, progress)
            self._is_caught_up = True
        return index

    def _catch_up(self, index: TantivyIndex, waiting: list[tuple[int, int, int]], progress: Progress | None) -> None:
        """Add from the truth what the index does not have."""
        done = 0
        for key, rows in groupby(waiting, key=lambda row: row[0]):
            blocks = [(number, block) for _, number, block in rows]
            self._index_stored_blocks(index, key, blocks)
            done += len(blocks)
            if progress is not None:
                progress(done, len(waiting))

    def _index_stored_blocks(self, index: TantivyIndex, key: int, blocks: Iterable[tuple[int, int]]) -> None:
        """Add blocks of a session, by number and id, from the truth."""
        session = self.archive.session(key, children=False)
        made_by = self.archive.find_sessions("key = ?", (key,))[0].made_by
        messages, found = flatten_messages(session), documents.attribute_session(session)
        for number, block in blocks:
            index.add_documents(key, block, documents.build_documents(messages, found, number, made_by=made_by))

    def _commit(self, index: TantivyIndex) -> None:
        """Make truth and index last, in this order."""
        gone, upto = self.archive.tombstones(), self.archive.last_block_id()
        names = {-facts.key: facts for facts in self.find_sessions(-block for block in gone if block < 0)}
        for block in gone:
            index.remove_block(block)
            if block in names:
                index.add_documents(-block, block, [documents.build_title_document(names[block])])
        self.archive.commit()
        index.commit()
        self.archive.set_state(indexed_upto=str(upto))
        self.archive.clear_tombstones(gone)
        self.archive.commit()
        self._since_commit = 0

    # --- reading -------------------------------------------------------------------------------------------------

    def exists(self) -> bool:
        """Whether anything was ever kept."""
        return self.archive.path.exists()

    def sources(self) -> dict[str, SourceRecord]:
        """Every file that was looked at."""
        return self.archive.sources()

    def find_sessions(
        self,
        keys: Iterable[int] | None = None,
        *,
        id: str = "",
        root: str = "",
        agent: str = "",
        project: str = "",
        branch: str = "",
    ) -> list[ArchivedSession]:
        """Sessions that all of it is true for; of a project, any part of its path will do."""
        conditions = {
            "substr(sessions.id, 1, length(?1)) = ?1": id,
            "root = ?1": root,
            "agent = ?1": agent,
            "instr(lower(project), lower(?1))": project,
            "branch = ?1": branch,
        }
        given = {condition: value for condition, value in conditions.items() if value}
        if keys is not None:
            given["key IN (SELECT value FROM json_each(?1))"] = json.dumps([*keys])
        where = " AND ".join(condition.replace("?1", f"?{n}") for n, condition in enumerate(given, 1))
        return self.archive.find_sessions(where or "TRUE", [*given.values()])

    def subagent_keys(self) -> frozenset[int]:
        """The keys of all sessions of sub-agents."""
        with self.archive.connect() as connection:
            return frozenset(key for (key,) in connection.execute("SELECT key FROM sessions WHERE subagent"))

    def prepare_query(
        self, query: Query, *, only: Collection[int] | None = None, without: Collection[int] = ()
    ) -> CompiledQuery | None:
        """Put a query to the index."""
        index = self.open_index()
        return None if index is None else CompiledQuery(query, index, only=only, without=without)

    def document_frequency(self, word: str) -> int:
        """In how many texts a word is."""
        index = self.open_index()
        return index.document_frequency(word) if index is not None else 0

    def messages(self, key: int, start: int = 0, stop: int | None = None) -> list[Message]:
        """Messages of a session by their places in it."""
        return self.archive.messages(key, start, stop)

    def message_reader(self) -> AbstractContextManager[Callable[[int, int], Message]]:
        """Gives single messages, by session and place."""
        return self.archive.message_reader()

    def session(self, key: int) -> Session:
        """A whole session with its sub-agents."""
        return self.archive.session(key)

    def sizes(self) -> MemorySizes:
        """How much is kept."""
        text, sessions, messages = self.archive.totals()
        return MemorySizes(
            text, _folder_size(self.folder, INDEX_FOLDER), _folder_size(self.folder / INDEX_FOLDER), sessions, messages
        )

    def excluded_counts(self) -> dict[str, int]:
        """How many entries a search leaves out by default, by reason."""
        index = self.open_index()
        if index is None:
            return {}
        messages = IndexQuery.range_query(index.schema, "block", FieldType.Integer, lower_bound=1)
        every: dict[str, int] = {
            EXCLUSION_REASONS[code]: count for code, count in index.count_by_field(messages, "reason").items()
        }
        subagents = self.subagent_keys()
        if subagents:
            searched = IndexQuery.term_query(index.schema, "reason", 0)
            theirs = IndexQuery.term_set_query(index.schema, "session", [*subagents])
            hidden = sum(index.count_by_field(messages.and_must_match(searched, theirs)).values())
            every |= {"": every.get("", 0) - hidden, "sub-agent": hidden}
        return every


def _folder_size(folder: Path, *aside: str) -> int:
    if not folder.is_dir():
        return 0
    return sum(path.stat().st_size for path in folder.iterdir() if path.name not in aside and path.is_file())
