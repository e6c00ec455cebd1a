"""The store on this machine: the truth in SQLite, the index beside it, and a lease so that one writes at a time.

What is read is put down in the truth, and given to the index while it is still in memory; but the index is made to
last only after the truth is. So a kill at any moment leaves an index that knows less than the truth, never more,
and it says how far it is: the rest is added from the truth the next time.
"""

import json
import os
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from datetime import datetime
from hashlib import blake2b
from itertools import groupby
from pathlib import Path
from sqlite3 import OperationalError, connect

from tantivy import FieldType, Query

from thresher.memory import docs
from thresher.memory.archive import ERRORS, Archive, Block, Entry
from thresher.memory.base import Progress
from thresher.memory.index import Index, remove
from thresher.memory.lineage import start_of
from thresher.memory.packing import BLOCK, laid_out, packed, shape_of, text_size
from thresher.memory.provenance import Piece, made_by_recall
from thresher.memory.tables import told
from thresher.memory.values import REASONS, Facts, Known, Sizes
from thresher.model import Message, Session
from thresher.store.errors import StoreError
from thresher.store.home import home

FOLDER = "memory"
LOCK = "sync.lock"
INDEX = "index"
PAUSE = 0.2
"""Seconds between two tries to get the lease."""
COMMIT_BYTES = 400_000_000
"""Characters after which the index is made to last, so that a kill costs little work."""


class EmbeddedStore:
    """Past sessions in a folder; by default the one in Thresher's home."""

    def __init__(self, folder: str | Path | None = None) -> None:
        self.folder = home() / FOLDER if folder is None else Path(folder)
        self.archive = Archive(self.folder)
        self._index: Index | None = None
        self._size = 0
        self._since_commit = 0
        self._is_complete = False
        """Whether all that the truth has beyond the index's own word is in the hands of the index's writer."""

    # --- the lease -----------------------------------------------------------------------------------------------

    @contextmanager
    def writing(self, *, wait: bool = True, waiting: Callable[[], None] | None = None, size: int = 0) -> Iterator[bool]:
        """The right to write."""
        with self._lease(wait, waiting) as held:
            if not held:
                yield False
                return
            self._size = size
            try:
                with self.archive.writing():
                    yield True
            finally:
                if self._index is not None:
                    self._index.close()
                self._is_complete = False

    @contextmanager
    def _lease(self, wait: bool, waiting: Callable[[], None] | None) -> Iterator[bool]:
        """A lock on a file, which the system takes back from whoever dies."""
        path = self.folder / LOCK
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not path.exists():
                os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
            lock = connect(path, timeout=0, isolation_level=None)
        except ERRORS as error:
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
                time.sleep(PAUSE)
            yield True

    # --- writing -------------------------------------------------------------------------------------------------

    def record(self, known: Known, sessions: Sequence[Session]) -> int:
        """Keep what a file holds now."""
        index = self._begun()
        keys: list[int] = []
        names: dict[tuple[str, str, str], int] = {}
        added = 0
        line = [(session, 0) for session in reversed(sessions)]
        while line:
            session, owner = line.pop()
            if self.archive.is_forgotten(session):
                continue
            name = (session.agent, session.id, session.file)
            ordinal = names[name] = names.get(name, -1) + 1
            key, messages = self._keep(index, session, ordinal, known.path, owner)
            added += messages
            keys.append(key)
            line += [(child, key) for child in reversed(session.children)]
        self.archive.only_present(known.path, keys)
        self.archive.note([known])
        if not keys and sessions:
            self.archive.hide(known.path)
        if self._since_commit > COMMIT_BYTES:
            self._commit(index)
        return added

    def _keep(self, index: Index, session: Session, ordinal: int, source: str, owner: int) -> tuple[int, int]:
        messages, found = laid_out(session), docs.read_pieces(session)
        made_by = made_by_recall(session)
        text = text_size(message for message in messages if not message.carried)
        facts = _facts_of(session, len(messages), made_by, is_child=owner > 0)
        entry = Entry(facts, start_of(session), shape_of(session), text, _blocks(messages, found))
        placed = self.archive.place(entry, ordinal=ordinal, source=source, owner=owner)
        for number, block in placed.blocks:
            index.add(placed.key, docs.docs_of(messages, found, block, number, made_by=made_by))
        if placed.blocks:
            self._since_commit += text
        return placed.key, placed.messages

    def note(self, known: Iterable[Known]) -> None:
        """Remember files that nothing was read from."""
        self.archive.note(known)

    def forget(self, keys: Iterable[int], progress: Progress | None = None) -> int:
        """Remove sessions for good; the index is made anew, since its lists of words would still tell them."""
        count = self.archive.forget(keys)
        if count:
            self._index = None
            self._is_complete = False
            remove(self.folder / INDEX)
            self.archive.save()
            self.refresh_index(progress)
            self.archive.scrub()
        return count

    # --- the index -----------------------------------------------------------------------------------------------

    def index(self) -> Index | None:
        """The index as it is, or None where there is none that can be used."""
        if self._index is None:
            self._index = Index.opened(self.folder / INDEX, self._name(self.archive.state()))
        return self._index

    def is_behind(self) -> bool:
        """Whether the index lacks something."""
        if not self.archive.path.exists():
            return False
        upto = int(self.archive.state().get("indexed_upto", 0))
        return self.archive.last_block() > upto or bool(self.archive.tombstones()) or self.index() is None

    def refresh_index(self, progress: Progress | None = None) -> None:
        """Bring the index up to the truth."""
        if self.is_behind():
            index = self._begun(progress)
            self._commit(index)

    def _name(self, state: Mapping[str, str]) -> str:
        return f"{state.get('index', '')} {docs.VERSION}"

    def _begun(self, progress: Progress | None = None) -> Index:
        """The index, open for writing, with all that the truth had before now."""
        index = self.index()
        if index is None:
            self.archive.index_lost(uuid.uuid4().hex)
            index = self._index = Index.created(self.folder / INDEX, self._name(self.archive.state()))
            self._is_complete = False
        if not self._is_complete:
            upto = int(self.archive.state().get("indexed_upto", 0))
            waiting = self.archive.above(upto)
            index.begin(self._size or len(waiting) * BLOCK * 1000, upto)
            self._catch_up(index, waiting, progress)
            self._is_complete = True
        return index

    def _catch_up(self, index: Index, waiting: list[tuple[int, int, int]], progress: Progress | None) -> None:
        """Add from the truth what the index does not have."""
        done = 0
        for key, rows in groupby(waiting, key=lambda row: row[0]):
            session = self.archive.session(key, children=False)
            made_by = self.archive.facts("key = ?", (key,))[0].made_by
            messages, found = laid_out(session), docs.read_pieces(session)
            for _, number, block in rows:
                index.add(key, docs.docs_of(messages, found, block, number, made_by=made_by))
                done += 1
            if progress is not None:
                progress(done, len(waiting))

    def _commit(self, index: Index) -> None:
        """Make truth and index last, in this order."""
        gone, upto = self.archive.tombstones(), self.archive.last_block()
        names = {-facts.key: facts for facts in self.facts(-block for block in gone if block < 0)}
        for block in gone:
            index.remove_block(block)
            if block in names:
                index.add(-block, [docs.title_doc(names[block])])
        self.archive.save()
        index.commit()
        self.archive.set_state(indexed_upto=str(upto))
        self.archive.clear_tombstones(gone)
        self.archive.save()
        self._since_commit = 0

    # --- reading -------------------------------------------------------------------------------------------------

    def sources(self) -> dict[str, Known]:
        """Every file that was looked at."""
        return self.archive.sources()

    def facts(  # noqa: PLR0913 - one for each thing to look for
        self,
        keys: Iterable[int] | None = None,
        *,
        id: str = "",
        root: str = "",
        agent: str = "",
        project: str = "",
        branch: str = "",
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> list[Facts]:
        """Sessions that all of it is true for; of a project, any part of its path will do."""
        conditions = {
            "substr(sessions.id, 1, length(?1)) = ?1": id,
            "root = ?1": root,
            "agent = ?1": agent,
            "instr(lower(project), lower(?1))": project,
            "branch = ?1": branch,
            "ended >= ?1": told(since),
            "started <= ?1 AND started <> ''": told(until),
        }
        given = {condition: value for condition, value in conditions.items() if value}
        where = " AND ".join(condition.replace("?1", f"?{n}") for n, condition in enumerate(given, 1))
        if keys is None:
            return self.archive.facts(where or "TRUE", [*given.values()])
        some = f"key IN (SELECT value FROM json_each(?{len(given) + 1}))"
        return self.archive.facts(f"{where or 'TRUE'} AND {some}", [*given.values(), json.dumps([*keys])])

    def messages(self, key: int, start: int = 0, stop: int | None = None) -> list[Message]:
        """Messages of a session by their places in it."""
        return self.archive.messages(key, start, stop)

    def one_by_one(self) -> AbstractContextManager[Callable[[int, int], Message]]:
        """Gives single messages, by session and place."""
        return self.archive.one_by_one()

    def session(self, key: int) -> Session:
        """A whole session with its sub-agents."""
        return self.archive.session(key)

    def sizes(self) -> Sizes:
        """How much is kept."""
        text, sessions, messages = self.archive.totals()
        return Sizes(text, _bytes_in(self.folder, INDEX), _bytes_in(self.folder / INDEX), sessions, messages)

    def left_out(self) -> dict[str, int]:
        """How many entries a search leaves out, by reason; what was said out of a recall counts as `derived`."""
        index = self.index()
        if index is None:
            return {}
        messages = Query.range_query(index.schema, "block", FieldType.Integer, lower_bound=1)
        every: dict[str, int] = {REASONS[code]: count for code, count in index.counts(messages, "reason").items()}
        both = [Query.term_query(index.schema, name, value) for name, value in (("reason", 0), ("derived", 1))]
        derived = sum(index.counts(messages.and_must_match(*both)).values())
        return {**every, "": every.get("", 0) - derived, "derived": derived}


def _blocks(messages: Sequence[Message], found: Sequence[list[Piece]]) -> list[Block]:
    blocks = []
    for start in range(0, len(messages), BLOCK):
        some = messages[start : start + BLOCK]
        body = packed(some)
        digest = blake2b(body, digest_size=16)
        digest.update(docs.signature(found[start : start + BLOCK]))
        blocks.append(Block(digest.digest(), len(some), body))
    return blocks


def _facts_of(session: Session, messages: int, made_by: str, *, is_child: bool) -> Facts:
    return Facts(
        key=0,
        id=_clean(session.id),
        agent=session.agent,
        file=session.file,
        project=_clean(session.project),
        branch=_clean(session.git_branch),
        title=_clean(session.title),
        version=_clean(session.version),
        parent=_clean(session.parent),
        subagent=is_child or bool(session.call_id),
        call=_clean(session.call_id),
        started=session.started,
        ended=session.ended,
        messages=messages,
        compactions=session.compactions,
        made_by=made_by,
    )


def _clean(text: str) -> str:
    """Text that a table can hold."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _bytes_in(folder: Path, *aside: str) -> int:
    if not folder.is_dir():
        return 0
    return sum(path.stat().st_size for path in folder.iterdir() if path.name not in aside and path.is_file())
