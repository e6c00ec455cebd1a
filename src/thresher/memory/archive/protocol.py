"""The rows of an archive of past sessions, and the operations that an implementation provides.

An archive stores rows and nothing more: which rows a session becomes, which sessions are one family and what it means
to forget one is decided above it (`placement`, `families`), and the full-text index is derived from it. So another
database is one more class with these methods.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

from msgspec import Struct

from thresher.memory.records import ArchivedSession, SourceRecord, SourceState

ABSENT_STATES: frozenset[SourceState] = frozenset(("gone", "foreign", "failed"))
"""States of a file in which the archive's copy of its sessions is all there is."""


class EncodedBlock(NamedTuple):
    """Consecutive messages of a session."""

    digest: bytes
    messages: int
    body: bytes


class EncodedSession(NamedTuple):
    """A session as it is to be stored; its facts come without a key and a root."""

    session: ArchivedSession
    origin_id: str
    layout: bytes
    text_size: int
    blocks: Sequence[EncodedBlock]
    source_version: str = ""
    """The version that a file of many sessions states for it."""


class StoredSession(NamedTuple):
    """A stored session without its layout and its blocks."""

    session: ArchivedSession
    """Its `gone` follows from `is_present` and the state of `source`; it is not stored."""
    ordinal: int
    """Its number among the sessions of this name in its file; negative for a version that the file lost."""
    source: str
    """The path of the file that it was read with."""
    owner: int = 0
    """The key of the session whose sub-agent it is."""
    origin_id: str = ""
    is_present: bool = True
    """Whether its file holds it."""
    text_size: int = 0
    source_version: str = ""

    @property
    def key(self) -> int:
        """The key of the session; 0 before it is stored."""
        return self.session.key


class BlockRow(NamedTuple):
    """A stored block without its body."""

    session: int
    number: int
    id: int
    """Higher than that of every block that was stored before, and never used again."""
    digest: bytes


class SessionFilter(Struct, frozen=True, kw_only=True):
    """Conditions that sessions must all meet; a default value sets none."""

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
    """Any part of the project's path; letters A to Z match in either case."""
    branch: str = ""
    subagent: bool = False


class Archive(Protocol):
    """A database of past sessions. Whatever fails raises `StoreError`."""

    name: str
    """A name for messages, different from that of every other archive."""

    def exists(self) -> bool:
        """Return whether anything was ever stored; create nothing."""

    def size(self) -> int:
        """Return the bytes on disk."""

    def lease(self, *, wait: bool, on_wait: Callable[[], None] | None) -> AbstractContextManager[bool]:
        """Hold the right to write, which one process at a time has; False if another has it and `wait` is not set.

        Call `on_wait` once before waiting. Complete transactions last when the context ends, also by an error.
        """

    def connected(self) -> AbstractContextManager[None]:
        """Use one connection for all calls inside."""

    def transaction(self) -> AbstractContextManager[None]:
        """Apply all changes made inside, or none; they last at the next `flush` or the end of the lease, or before."""

    def flush(self) -> None:
        """Make all complete transactions last."""

    def compact(self) -> None:
        """Leave no byte of removed rows on disk."""

    def generation(self) -> str:
        """Return an id that all indexes made from this archive carry; one with another id must not be used."""

    def renew_generation(self) -> None:
        """Change the id, so that every index is rebuilt."""

    def find_sessions(self, where: SessionFilter) -> list[StoredSession]:
        """Return the sessions that meet the conditions, by key."""

    def find_keys(self, where: SessionFilter) -> list[int]:
        """Return the keys of the sessions that meet the conditions, in order."""

    def read_layout(self, key: int) -> bytes:
        """Return the layout of a session."""

    def put_session(self, row: StoredSession, layout: bytes | None = None) -> int:
        """Add a session whose key is 0, or replace the one with its key; return the key.

        Keys ascend and are never used again. Without a layout, the stored one stays.
        """

    def remove_sessions(self, keys: Collection[int]) -> None:
        """Remove sessions and their blocks."""

    def find_blocks(self, sessions: Collection[int] | None = None, *, after: int = 0) -> list[BlockRow]:
        """Return the blocks of some sessions or all, with an id above `after`, by session and number."""

    def read_blocks(self, session: int, first: int = 0, last: int | None = None) -> list[bytes]:
        """Return the bodies of the blocks with these numbers."""

    def add_block(self, session: int, number: int, block: EncodedBlock) -> int:
        """Add a block to a session; return its id."""

    def remove_blocks(self, ids: Collection[int]) -> None:
        """Remove blocks."""

    def tombstones(self, after: int = 0) -> list[tuple[int, int]]:
        """Return what an index must remove or read again: position and block, for positions above `after`.

        A block below 0 is minus the key of a session whose title changed.
        """

    def add_tombstones(self, blocks: Iterable[int]) -> None:
        """Record blocks for all indexes, each at a new position above all others."""

    def clear_tombstones(self, upto: int) -> None:
        """Remove tombstones up to a position; an archive that several indexes share keeps them."""

    def sources(self) -> Mapping[str, SourceRecord]:
        """Return every known file, by its path."""

    def put_sources(self, known: Iterable[SourceRecord]) -> None:
        """Add files, or replace those with the same path."""

    def remove_sources(self, paths: Collection[str]) -> None:
        """Remove files."""

    def add_forgotten(self, digests: Iterable[bytes]) -> None:
        """Record the digests of sessions that must not be stored again."""

    def has_forgotten(self, digests: Iterable[bytes]) -> bool:
        """Return whether any of the digests is recorded."""
