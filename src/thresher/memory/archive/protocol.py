"""What a store of past sessions does; the one on this machine is `embedded`."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, NamedTuple, Protocol

from thresher.memory.ingest.extract import PreparedSession, SessionName, StoredDigests
from thresher.memory.records import ArchivedSession, MemorySizes, SourceRecord
from thresher.memory.search.query import Query
from thresher.model import Message, Session

if TYPE_CHECKING:
    from thresher.memory.index.tantivy_index import IndexHit

Progress = Callable[[int, int], None]
"""Takes how much is done, and of how much."""


class IngestCounts(NamedTuple):
    """What became of a file that was read."""

    new_messages: int
    """How many are new."""
    forgotten: int
    """Sessions that are in it, but were forgotten for good."""


class QueryRunner(Protocol):
    """A query, put to a store: of some sessions, without others."""

    @property
    def query(self) -> Query:
        """What was asked."""

    @property
    def terms(self) -> Sequence[str]:
        """The words that tell, as the store has them."""

    def match_counts(self) -> Mapping[int, int]:
        """How many texts match, by session."""

    def message_matches(
        self, sessions: Collection[int], best: int = 0, each: int = 0
    ) -> "tuple[Mapping[int, int], list[IndexHit]]":
        """How many messages match in some sessions, and so many of the best texts in them.

        After those come more, the best first, until so many of the best of `each` session are there.
        """

    def excluded_counts(self) -> Mapping[int, int]:
        """How many would match that are left out by default, by the place of the reason in `REASONS`."""

    def count_in_sessions(self, sessions: Collection[int]) -> int:
        """How many match in sessions that may not answer."""

    def count_cut_off(self) -> int:
        """How many match that the query's cut-off takes."""

    def best_matches(self, limit: int, sessions: Collection[int] | None = None) -> "list[IndexHit]":
        """The texts that match best, in some sessions or all."""

    def title_matches(self) -> "list[IndexHit]":
        """The titles that hold any of the words."""

    def commits_made(self, *, barred: bool = True) -> Collection[int]:
        """Sessions that made a commit whose subject is the question; those that may answer, or all."""

    def commits_seen(self) -> Mapping[int, int]:
        """When an output first listed such a commit, in seconds, by session; only where that is known."""

    def edit_counts(self) -> Mapping[int, int]:
        """How many entries of edits there are, by session: about one a message."""


class SessionStore(Protocol):
    """Where past sessions are kept and found. Whatever fails raises `StoreError`."""

    def exists(self) -> bool:
        """Whether anything was ever kept; to look leaves nothing behind."""

    def sources(self) -> Mapping[str, SourceRecord]:
        """Every file that was looked at, by its path; by its `hidden` one where all its sessions were forgotten."""

    def write_lease(
        self, *, wait: bool = True, waiting: Callable[[], None] | None = None, size: int = 0
    ) -> AbstractContextManager[bool]:
        """The right to write, which one at a time has; False where another has it and `wait` is not wanted.

        `waiting` is called once where it must wait; `size` says how many bytes will be read. What was recorded
        when the context is left by an error stays, as far as it was complete.
        """

    def stored_digests(self, source: str) -> Mapping[SessionName, StoredDigests]:
        """What is kept of the sessions of a file: that need not be made ready again."""

    def record(
        self,
        known: SourceRecord,
        sessions: Sequence[PreparedSession],
        parts: Sequence[SourceRecord] = (),
        *,
        grown: bool = False,
        same: Collection[str] = (),
    ) -> IngestCounts:
        """Keep what a file holds now, with its sub-agents and the files it was read with. All or nothing.

        `grown` says that all that was in the file is still in it. Otherwise a session that lost messages stays as it
        was, gone, and what is there now is kept beside it. `same` are sessions of the file, by id, that were not read
        since they did not change.
        """

    def save_sources(self, known: Iterable[SourceRecord]) -> None:
        """Remember files that nothing was read from: touched, gone, foreign, failed, parts of others."""

    def is_index_behind(self) -> bool:
        """Whether the index lacks something, or is missing itself."""

    def refresh_index(self, progress: Progress | None = None) -> None:
        """Bring the index up to what is kept; an index that is lost or damaged is built anew."""

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
        """Sessions by key, by the start of their id, by family, and by what else is known of them."""

    def subagent_keys(self) -> frozenset[int]:
        """The keys of all sessions of sub-agents."""

    def prepare_query(
        self, query: Query, *, only: Collection[int] | None = None, without: Collection[int] = ()
    ) -> QueryRunner | None:
        """Put a query to the store: of these sessions, without those; None where nothing can be searched yet."""

    def document_frequency(self, word: str) -> int:
        """In how many texts a word is that `words` gave."""

    def messages(self, key: int, start: int = 0, stop: int | None = None) -> list[Message]:
        """Messages of a session by their places in it, those that a compaction repeats too."""

    def message_reader(self) -> AbstractContextManager[Callable[[int, int], Message]]:
        """Gives single messages, by session and place; an empty one for a place that is not there any more."""

    def session(self, key: int) -> Session:
        """A whole session with its sub-agents, as it was read."""

    def forget(self, keys: Iterable[int], progress: Progress | None = None, *, for_good: bool = True) -> int:
        """Remove sessions and their sub-agents, while writing; gives back how many.

        For good means that they are never read again; otherwise they come back when their file changes.
        """

    def sizes(self) -> MemorySizes:
        """How much is kept."""

    def excluded_counts(self) -> dict[str, int]:
        """How many entries a search leaves out by default, by reason; those that it looks into under "".

        Entries of sub-agents that it would look into otherwise are told under "sub-agent".
        """
