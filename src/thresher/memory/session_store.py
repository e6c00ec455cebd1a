"""Keep an archive and its derived index in sync.

New messages go to the archive and, while they are in memory, to the index writer. The index commits only after the
archive does. So a process that dies leaves an index that lacks recent blocks, never one with extra blocks. The index
stores its own position, and the next run adds the missing blocks from the archive.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

from thresher.memory.annotation_file import AnnotationFile
from thresher.memory.archive import placement
from thresher.memory.archive.block_codec import decode_problems
from thresher.memory.archive.placement import MessageReader, PlacedSession, SessionName, StoredDigests
from thresher.memory.archive.protocol import Archive, SessionFilter
from thresher.memory.archive.sqlite import ARCHIVE_FILE, SqliteArchive
from thresher.memory.index.commit_pace import COMMIT_SIZES, CommitPace, CommitSizes
from thresher.memory.index.documents import DOCUMENT_VERSION, encode_document
from thresher.memory.index.share import read_share, write_share
from thresher.memory.index.tantivy_index import TantivyIndex, remove_index
from thresher.memory.ingest.document_builder import build_annotation_documents, build_title_document
from thresher.memory.ingest.extract import PreparedSession
from thresher.memory.ingest.stored_blocks import index_step, index_stored_blocks, split_into_steps
from thresher.memory.records import (
    MESSAGES_PER_BLOCK,
    ArchivedSession,
    MemorySizes,
    Progress,
    SourceRecord,
    Stop,
    never_stop,
)
from thresher.model import Message, Problem, Session
from thresher.store.errors import StoreError
from thresher.store.home import get_data_folder

MEMORY_FOLDER = "memory"
INDEX_FOLDER = "index"


class IngestCounts(NamedTuple):
    """Result of recording a file: the numbers of new messages and of forgotten sessions that were skipped."""

    new_messages: int
    forgotten: int


class SessionStore:
    """Past sessions, by default in a SQLite archive in Thresher's home, with the index next to it.

    `folder` contains the index, and the archive unless another one is given. `project_root` limits what is read, but
    not what is written: only sessions whose project is this folder or below it are visible. Methods raise `StoreError`
    on failure.
    """

    def __init__(
        self,
        folder: str | Path | None = None,
        archive: Archive | None = None,
        *,
        project_root: str = "",
        commit_sizes: CommitSizes = COMMIT_SIZES,
        document_version: int = DOCUMENT_VERSION,
        index_type: type[TantivyIndex] = TantivyIndex,
    ) -> None:
        """Open no file yet. If the index has another `document_version`, the next sync rebuilds it."""
        self.folder = get_data_folder() / MEMORY_FOLDER if folder is None else Path(folder)
        self.project_root = project_root
        local = SqliteArchive(self.folder / ARCHIVE_FILE)
        self.archive: Archive = archive or local
        other = blake2b(self.archive.name.encode(), digest_size=8).hexdigest()
        is_local = self.archive.name == local.name
        self.index_folder = self.folder / (INDEX_FOLDER if is_local else f"{INDEX_FOLDER}-{other}")
        self.annotations = AnnotationFile(
            self.index_folder.with_name(self.index_folder.name.replace(INDEX_FOLDER, "annotations", 1) + ".sqlite3")
        )
        self._index: TantivyIndex | None = None
        self._document_version, self._index_type = document_version, index_type
        self._expected_size = 0
        self._pace = CommitPace(commit_sizes)
        self._is_caught_up = False
        """True if the index writer has every block that the archive contained before this lease."""
        self.share = 1.0
        """Share of the sessions on disk, by size, that the archive contains. A sync updates it."""
        self._archive_share = 1.0
        """Share of the archive's blocks that the index writer has."""

    # --- writing -------------------------------------------------------------------------------------------------

    @contextmanager
    def write_lease(
        self, *, wait: bool = True, waiting: Callable[[], None] | None = None, size: int = 0
    ) -> Iterator[bool]:
        """Hold the write lock; yield False if another process has it and `wait` is false.

        `waiting` is called once before waiting. `size` is the number of bytes that the sync will read. An exception in
        the context does not undo what `record` has completed.
        """
        with self.archive.lease(wait=wait, on_wait=waiting) as is_held:
            self._expected_size = size
            self._pace.restart()
            try:
                yield is_held
            finally:
                if is_held and self._index is not None:
                    self._index.close()
                self._is_caught_up = False

    def record(
        self,
        known: SourceRecord,
        sessions: Sequence[PreparedSession],
        parts: Sequence[SourceRecord] = (),
        *,
        grown: bool = False,
        same: Collection[str] = (),
    ) -> IngestCounts:
        """Store the current sessions of a file with its sub-agents and parts, in one transaction.

        With `grown`, the file still contains everything that it contained before. Otherwise, a session that lost
        messages keeps its old version, marked as gone, and the current one is stored separately. `same` contains ids of
        unchanged sessions that were not read.
        """
        try:
            return self._record(known, sessions, parts, grown=grown, same=same)
        except BaseException:
            # The archive undoes the file. The index cannot, so it returns to its last commit and catches up again.
            self._discard_index()
            raise

    def _record(
        self,
        known: SourceRecord,
        sessions: Sequence[PreparedSession],
        parts: Sequence[SourceRecord],
        *,
        grown: bool,
        same: Collection[str],
    ) -> IngestCounts:
        index = self._begin_recording()
        keys: dict[int, int] = {}
        forgotten: set[int] = set()
        new_messages = 0
        with self.archive.transaction():
            for position, prepared in enumerate(sessions):
                if prepared.owner in forgotten or placement.is_forgotten(self.archive, prepared.encoded):
                    forgotten.add(position)
                    continue
                placed = placement.store_session(
                    self.archive,
                    prepared.encoded,
                    ordinal=prepared.ordinal,
                    source=known.path,
                    owner=keys.get(prepared.owner, 0),
                    grown=grown and prepared.encoded.session.file == known.path,
                )
                if placed is not None:
                    keys[position] = placed.key
                    new_messages += placed.new_messages
                    self._index_session(index, prepared, placed)
            placement.mark_absent(self.archive, known.path, frozenset(keys.values()), same)
            self.archive.put_sources([known, *parts])
            if forgotten and not keys:
                placement.hide_sources(self.archive, [known.path])
        if self._pace.is_due:
            self._commit(index)
        return IngestCounts(new_messages, len(forgotten))

    def _discard_index(self) -> None:
        if self._index is not None:
            self._index.close()
        self._index = None
        self._is_caught_up = False

    def _index_session(self, index: TantivyIndex, prepared: PreparedSession, placed: PlacedSession) -> None:
        """Add the documents of new blocks to the index."""
        for number, block in placed.blocks:
            index.add_documents(placed.key, block, prepared.documents.get(number, ()))
        unprepared = [(number, block) for number, block in placed.blocks if number not in prepared.documents]
        if unprepared:  # the block was stored when the worker prepared this file, and was removed since
            index_stored_blocks(self.archive, index, placed.key, unprepared)
        if placed.blocks:
            self._pace.add(prepared.encoded.text_size)

    def forget(self, keys: Iterable[int], progress: Progress | None = None, *, for_good: bool = True) -> int:
        """Remove sessions and their sub-agents; return their number. The caller must hold the write lock.

        This rebuilds the index, since its word lists would still contain words of these sessions. With `for_good`, no
        sync stores them again; otherwise they return when their file changes.
        """
        with self.archive.transaction():
            count = placement.forget_sessions(self.archive, keys, for_good=for_good)
        if count:
            self._index = None
            self._is_caught_up = False
            remove_index(self.index_folder)
            self.archive.flush()
            self.refresh_index(progress)
            self.archive.compact()
        return count

    # --- the index -----------------------------------------------------------------------------------------------

    def open_index(self) -> TantivyIndex | None:
        """Return the existing index, or None if it is missing or unusable."""
        if self._index is None or not self._index.is_usable:
            self._index = self._index_type.open_existing(self.index_folder, self._index_name())
        return self._index

    def is_index_behind(self) -> bool:
        """Return whether the index is missing or damaged, or lacks changes of the archive."""
        if not self.archive.exists():
            return False
        with self.archive.connected():
            index = self.open_index()
            if index is None or self._is_damaged(index):
                return True
            state = index.read_state()
            new = self.archive.find_blocks(after=state.last_block)
            return bool(new or self.archive.tombstones(state.last_tombstone))

    def indexed_share(self) -> float:
        """Return the share of the sessions on disk, by size, that the index contains: 1 after a complete sync."""
        if not self.archive.exists():
            return 1.0
        if self.open_index() is not None:
            return read_share(self.index_folder)
        return 0.0 if self.archive.find_keys(SessionFilter()) else 1.0

    def save_share(self) -> None:
        """Store the current share, which may have changed without a change of the index."""
        if self.open_index() is not None:
            write_share(self.index_folder, self.share)

    def refresh_index(self, progress: Progress | None = None, stop: Stop = never_stop) -> bool:
        """Update the index from the archive, and rebuild it if it is missing or damaged; return whether it is complete.

        The caller must hold the write lock. When `stop` returns True, keep what is done; the next call resumes.
        """
        if not self.is_index_behind():
            return True
        index = self.open_index()
        if index is not None and self._is_damaged(index):
            index.mark_damaged()
        if index is None or not self._is_caught_up:
            index = self._open_for_writing(self.open_index())
            self._is_caught_up = self._catch_up(index, progress, stop)
        self._commit(index)
        return self._is_caught_up

    def _is_damaged(self, index: TantivyIndex) -> bool:
        """Verify an index, but not while this lease writes to it, since merges replace its files."""
        return not self._is_caught_up and index.is_damaged()

    def _index_name(self) -> str:
        return f"{self.archive.generation()} {self._document_version}"

    def _begin_recording(self) -> TantivyIndex:
        """Return the index, open for writing, with every block that the archive has."""
        index = self.open_index()
        if index is not None and self._is_caught_up:
            return index
        index = self._open_for_writing(index)
        self._is_caught_up = self._catch_up(index)
        return index

    def _open_for_writing(self, index: TantivyIndex | None) -> TantivyIndex:
        """Open a writer for an existing index, or for a new one if there is none or it cannot be written."""
        if index is not None:
            with suppress(StoreError):
                self._begin_writing(index)
                return index
        self._index = self._index_type.create(self.index_folder, self._index_name())
        self._begin_writing(self._index)
        return self._index

    def _begin_writing(self, index: TantivyIndex) -> None:
        missing = self.archive.find_blocks(after=index.read_state().last_block)
        index.begin_writing(self._expected_size or len(missing) * MESSAGES_PER_BLOCK * 1000)

    def _catch_up(self, index: TantivyIndex, progress: Progress | None = None, stop: Stop = never_stop) -> bool:
        """Add missing blocks from the archive to the index; return False if it stopped early."""
        missing = self.archive.find_blocks(after=index.read_state().last_block)
        total = len(self.archive.find_blocks()) if missing else 1
        left = len(missing)
        for step in split_into_steps(missing):
            self._archive_share = (total - left) / total
            if stop():
                return False
            if self._pace.is_due:
                self._commit(index)
            self._pace.add(index_step(self.archive, index, step))
            left -= len(step)
            if progress is not None:
                progress(len(missing) - left, len(missing))
        self._archive_share = 1.0
        return True

    def _commit(self, index: TantivyIndex) -> None:
        """Commit the archive, then the index."""
        last_tombstone = index.read_state().last_tombstone
        tombstones = self.archive.tombstones(last_tombstone)
        blocks = {block for _, block in tombstones}
        keys = None if last_tombstone < 0 else [-block for block in blocks if block < 0]
        rows = self.archive.find_sessions(SessionFilter(keys=keys))
        for block in blocks | {-row.key for row in rows}:
            index.remove_block(block)
        for row in rows:
            documents = [build_title_document(row.session)]
            documents += build_annotation_documents(self.annotations.read(row.key))
            index.add_documents(row.key, -row.key, map(encode_document, documents))
        self.archive.flush()
        position = max((position for position, _ in tombstones), default=max(last_tombstone, 0))
        index.commit(position)
        write_share(self.index_folder, self.share * self._archive_share)
        self.archive.clear_tombstones(position)
        self.archive.flush()
        self._pace.record_commit()

    def reindex_annotations(self, keys: Iterable[int]) -> None:
        """Index the annotations of these sessions again, together with their titles."""
        tombstones = [-key for key in keys]
        if not tombstones:
            return
        with self.write_lease():
            with self.archive.transaction():
                self.archive.add_tombstones(tombstones)
            self.refresh_index()

    # --- reading -------------------------------------------------------------------------------------------------

    def exists(self) -> bool:
        """Return whether the archive exists, without creating it."""
        return self.archive.exists()

    def stored_digests(self, source: str) -> Mapping[SessionName, StoredDigests]:
        """Return the block digests of a file's stored sessions. Blocks with these digests need no documents."""
        return placement.read_stored_digests(self.archive, source)

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
        """Return the sessions that meet all conditions; `id` is a prefix and `project` any part of the path."""
        key_list = None if keys is None else [*keys]
        where = self.visible_sessions(
            keys=key_list, id_prefix=id, root=root, agent=agent, project=project, branch=branch
        )
        return [row.session for row in self.archive.find_sessions(where)]

    def visible_sessions(self, **conditions: Any) -> SessionFilter:
        """Return a filter that also requires that this store may show the session."""
        return SessionFilter(**conditions, folder=self.project_root)

    def messages(self, key: int, start: int = 0, stop: int | None = None) -> list[Message]:
        """Return a range of a session's messages, including those that a compaction repeats."""
        return placement.read_messages(self.archive, key, start, stop)

    def message_reader(self) -> AbstractContextManager[MessageReader]:
        """Open a reader that returns a message by session key and index."""
        return placement.open_message_reader(self.archive)

    def session(self, key: int) -> Session:
        """Return a complete session with its sub-agents."""
        return placement.read_session(self.archive, key)[1]

    def problems(self, key: int) -> tuple[Problem, ...]:
        """Return the problems that were found when a session was read from its file."""
        return decode_problems(self.archive.read_layout(key))

    def document_frequency(self, word: str) -> int:
        """Return the number of texts, except tool output, that contain a word (a token of `tokenize_words`)."""
        index = self.open_index()
        return index.document_frequency(word) if index is not None else 0

    def sizes(self) -> MemorySizes:
        """Return the number of archived sessions and messages, and the sizes on disk."""
        rows = self.archive.find_sessions(SessionFilter())
        text, messages = sum(row.text_size for row in rows), sum(row.session.messages for row in rows)
        folder = self.index_folder
        index = sum(path.stat().st_size for path in folder.iterdir()) if folder.is_dir() else 0
        return MemorySizes(text, self.archive.size(), index, len(rows), messages)

    def excluded_counts(self) -> dict[str, int]:
        """Return the number of texts that a search skips by default, by reason.

        `""` counts the texts that a search covers.
        """
        index = self.open_index()
        return {} if index is None else index.count_by_reason()
