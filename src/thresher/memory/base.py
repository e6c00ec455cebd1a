"""What a store of past sessions does; the one on this machine is `embedded`."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, NamedTuple, Protocol

from thresher.memory.preparing import Before, Name, Ready
from thresher.memory.query import Query
from thresher.memory.values import Facts, Known, Sizes
from thresher.model import Message, Session

if TYPE_CHECKING:
    from thresher.memory.index import Found

Progress = Callable[[int, int], None]
"""Takes how much is done, and of how much."""


class Recorded(NamedTuple):
    """What became of a file that was read."""

    messages: int
    """How many are new."""
    forgotten: int
    """Sessions that are in it, but were forgotten for good."""


class Question(Protocol):
    """A query, put to a store: of some sessions, without others."""

    @property
    def query(self) -> Query:
        """What was asked."""

    @property
    def terms(self) -> Sequence[str]:
        """The words that tell, as the store has them."""

    def counts(self) -> Mapping[int, int]:
        """How many texts match, by session."""

    def messages(
        self, sessions: Collection[int], best: int = 0, each: int = 0
    ) -> "tuple[Mapping[int, int], list[Found]]":
        """How many messages match in some sessions, and so many of the best texts in them.

        After those come more, the best first, until so many of the best of `each` session are there.
        """

    def left_out(self) -> Mapping[int, int]:
        """How many would match that are left out by default, by the place of the reason in `REASONS`."""

    def within(self, sessions: Collection[int]) -> int:
        """How many match in sessions that may not answer."""

    def cut_off(self) -> int:
        """How many match that the query's cut-off takes."""

    def best(self, limit: int, sessions: Collection[int] | None = None) -> "list[Found]":
        """The texts that match best, in some sessions or all."""

    def titles(self) -> "list[Found]":
        """The titles that hold any of the words."""

    def made(self, *, barred: bool = True) -> Collection[int]:
        """Sessions that made a commit whose subject is the question; those that may answer, or all."""

    def logged(self) -> Mapping[int, int]:
        """When an output first listed such a commit, in seconds, by session; only where that is known."""

    def edits(self) -> Mapping[int, int]:
        """How many entries of edits there are, by session: about one a message."""


class Store(Protocol):
    """Where past sessions are kept and found. Whatever fails raises `StoreError`."""

    def exists(self) -> bool:
        """Whether anything was ever kept; to look leaves nothing behind."""

    def sources(self) -> Mapping[str, Known]:
        """Every file that was looked at, by its path; by its `hidden` one where all its sessions were forgotten."""

    def writing(
        self, *, wait: bool = True, waiting: Callable[[], None] | None = None, size: int = 0
    ) -> AbstractContextManager[bool]:
        """The right to write, which one at a time has; False where another has it and `wait` is not wanted.

        `waiting` is called once where it must wait; `size` says how many bytes will be read. What was recorded
        when the context is left by an error stays, as far as it was complete.
        """

    def kept(self, source: str) -> Mapping[Name, Before]:
        """What is kept of the sessions of a file: that need not be made ready again."""

    def record(
        self,
        known: Known,
        sessions: Sequence[Ready],
        parts: Sequence[Known] = (),
        *,
        grown: bool = False,
        same: Collection[str] = (),
    ) -> Recorded:
        """Keep what a file holds now, with its sub-agents and the files it was read with. All or nothing.

        `grown` says that all that was in the file is still in it. Otherwise a session that lost messages stays as it
        was, gone, and what is there now is kept beside it. `same` are sessions of the file, by id, that were not read
        since they did not change.
        """

    def note(self, known: Iterable[Known]) -> None:
        """Remember files that nothing was read from: touched, gone, foreign, failed, parts of others."""

    def is_behind(self) -> bool:
        """Whether the index lacks something, or is missing itself."""

    def refresh_index(self, progress: Progress | None = None) -> None:
        """Bring the index up to what is kept; an index that is lost or damaged is built anew."""

    def facts(
        self,
        keys: Iterable[int] | None = None,
        *,
        id: str = "",
        root: str = "",
        agent: str = "",
        project: str = "",
        branch: str = "",
    ) -> list[Facts]:
        """Sessions by key, by the start of their id, by family, and by what else is known of them."""

    def subagents(self) -> frozenset[int]:
        """The keys of all sessions of sub-agents."""

    def ask(
        self, query: Query, *, only: Collection[int] | None = None, without: Collection[int] = ()
    ) -> Question | None:
        """Put a query to the store: of these sessions, without those; None where nothing can be searched yet."""

    def frequency(self, word: str) -> int:
        """In how many texts a word is that `words` gave."""

    def messages(self, key: int, start: int = 0, stop: int | None = None) -> list[Message]:
        """Messages of a session by their places in it, those that a compaction repeats too."""

    def one_by_one(self) -> AbstractContextManager[Callable[[int, int], Message]]:
        """Gives single messages, by session and place; an empty one for a place that is not there any more."""

    def session(self, key: int) -> Session:
        """A whole session with its sub-agents, as it was read."""

    def forget(self, keys: Iterable[int], progress: Progress | None = None, *, for_good: bool = True) -> int:
        """Remove sessions and their sub-agents, while writing; gives back how many.

        For good means that they are never read again; otherwise they come back when their file changes.
        """

    def sizes(self) -> Sizes:
        """How much is kept."""

    def left_out(self) -> dict[str, int]:
        """How many entries a search leaves out by default, by reason; those that it looks into under "".

        Entries of sub-agents that it would look into otherwise are told under "sub-agent".
        """
