"""Row types of an archive, and the protocol that each archive implements.

An archive only stores rows. The modules `placement` and `families` decide which rows represent a session,
which sessions form a family and how to forget a session. The full-text index is derived from the archive. So another
database needs only one class with these methods.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

from msgspec import Struct

from thresher.memory.records import ArchivedSession, SourceRecord, SourceState

ABSENT_STATES: frozenset[SourceState] = frozenset(("gone", "foreign", "failed"))
"""States of a file in which the archive has the only usable copy of its sessions."""


class EncodedBlock(NamedTuple):
    """Consecutive messages of a session, encoded and compressed."""

    digest: bytes
    messages: int
    body: bytes


class EncodedSession(NamedTuple):
    """A session to store. Its facts have neither a key nor a root yet."""

    session: ArchivedSession
    origin_id: str
    layout: bytes
    text_size: int
    blocks: Sequence[EncodedBlock]
    source_version: str = ""
    """Version that a multi-session file states for the session; empty for other files."""


class StoredSession(NamedTuple):
    """A stored session without its layout and blocks."""

    session: ArchivedSession
    """Facts of the session. `gone` is not stored; it is derived from `is_present` and the state of `source`."""
    ordinal: int
    """Position among sessions with the same name in the file; negative for a version that the file lost."""
    source: str
    """Path of the file that the sync read; for a sub-agent with its own file, usually the file of its parent."""
    owner: int = 0
    """Key of the session that owns this sub-agent; 0 if it has no owner."""
    origin_id: str = ""
    is_present: bool = True
    """True if the source file still contains the session."""
    text_size: int = 0
    source_version: str = ""

    @property
    def key(self) -> int:
        """Key of the session; 0 until it is stored."""
        return self.session.key


class BlockRow(NamedTuple):
    """A stored block without its body."""

    session: int
    number: int
    id: int
    """Id of the block: higher than every earlier id, and never reused."""
    digest: bytes


class SessionFilter(Struct, frozen=True, kw_only=True):
    """Conditions on a session, which must all hold. The defaults match every session."""

    keys: Collection[int] | None = None
    agent: str = ""
    id: str = ""
    id_prefix: str = ""
    file: str = ""
    source: str = ""
    owner: int = 0
    origin_id: str = ""
    root: str = ""
    project: str = ""
    """Substring of the project's path; case-insensitive for ASCII letters."""
    folder: str = ""
    """Folder that is the project's, or contains it."""
    branch: str = ""
    subagent: bool = False
    """True to match only sub-agents."""


class Archive(Protocol):
    """A database of past sessions. Methods raise `StoreError` on failure."""

    name: str
    """Unique name, for error messages and index folders."""

    def exists(self) -> bool:
        """Return whether the archive exists, without creating it."""

    def size(self) -> int:
        """Return the size on disk in bytes."""

    def lease(self, *, wait: bool, on_wait: Callable[[], None] | None) -> AbstractContextManager[bool]:
        """Hold the write lock; yield False if another process has it and `wait` is false.

        Call `on_wait` once before waiting. Completed transactions persist when the context ends, even with an
        exception.
        """

    def connected(self) -> AbstractContextManager[object]:
        """Use one connection for all calls in the context."""

    def transaction(self) -> AbstractContextManager[None]:
        """Apply all changes in the context or none.

        The changes persist no later than the next `flush` or the end of the lease.
        """

    def flush(self) -> None:
        """Persist all completed transactions."""

    def compact(self) -> None:
        """Remove all traces of deleted rows from disk."""

    def generation(self) -> str:
        """Return the id of this archive's data. An index with another id must not be used."""

    def renew_generation(self) -> None:
        """Replace the id, so that every index is rebuilt."""

    def find_sessions(self, where: SessionFilter) -> list[StoredSession]:
        """Return the matching sessions, ordered by key."""

    def find_keys(self, where: SessionFilter) -> list[int]:
        """Return the keys of matching sessions in order."""

    def read_layout(self, key: int) -> bytes:
        """Return the layout of a session."""

    def put_session(self, row: StoredSession, layout: bytes | None = None) -> int:
        """Insert a session with key 0, or update the one with the given key; return the key.

        Keys ascend and are never reused. Without a layout, the stored one remains.
        """

    def remove_sessions(self, keys: Collection[int]) -> None:
        """Delete sessions and their blocks."""

    def find_blocks(self, sessions: Collection[int] | None = None, *, after: int = 0) -> list[BlockRow]:
        """Return the blocks with an id above `after`, of the given or all sessions, ordered by session and number."""

    def read_blocks(self, session: int, first: int = 0, last: int | None = None) -> list[bytes]:
        """Return the bodies of the blocks from `first` to `last` (inclusive), or to the end without `last`."""

    def add_block(self, session: int, number: int, block: EncodedBlock) -> int:
        """Add a block to a session; return its id."""

    def remove_blocks(self, ids: Collection[int]) -> None:
        """Delete blocks."""

    def tombstones(self, after: int = 0) -> list[tuple[int, int]]:
        """Return the position and block of each tombstone above position `after`.

        An index must remove the documents of these blocks. A negative block number is the negated key of a
        session whose title document is out of date.
        """

    def add_tombstones(self, blocks: Iterable[int]) -> None:
        """Add tombstones for all indexes, each at a new highest position."""

    def clear_tombstones(self, upto: int) -> None:
        """Delete tombstones up to a position. If several indexes share the archive, do nothing."""

    def sources(self) -> Mapping[str, SourceRecord]:
        """Return the record of every known file by path, or by hidden name if all its sessions are forgotten."""

    def put_sources(self, known: Iterable[SourceRecord]) -> None:
        """Insert or replace the records of files by path."""

    def remove_sources(self, paths: Collection[str]) -> None:
        """Delete the records of files; the files themselves stay."""

    def add_forgotten(self, digests: Iterable[bytes]) -> None:
        """Add digests of sessions that must not be stored again."""

    def has_forgotten(self, digests: Iterable[bytes]) -> bool:
        """Return whether any of the digests is stored."""
