"""What a store of past sessions does; the one on this machine is `embedded`."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Protocol

from thresher.memory.values import Facts, Known, Sizes
from thresher.model import Message, Session

Progress = Callable[[int, int], None]
"""Takes how much is done, and of how much."""


class Store(Protocol):
    """Where past sessions are kept and found. Whatever fails raises `StoreError`."""

    def sources(self) -> Mapping[str, Known]:
        """Every file that was looked at, by its path; by its `hidden` one where all its sessions were forgotten."""

    def writing(
        self, *, wait: bool = True, waiting: Callable[[], None] | None = None, size: int = 0
    ) -> AbstractContextManager[bool]:
        """The right to write, which one at a time has; False where another has it and `wait` is not wanted.

        `waiting` is called once where it must wait; `size` says how many bytes will be read. What was recorded
        when the context is left by an error stays, as far as it was complete.
        """

    def record(self, known: Known, sessions: Sequence[Session]) -> int:
        """Keep what a file holds now, with its sub-agents; gives back how many messages are new. All or nothing."""

    def note(self, known: Iterable[Known]) -> None:
        """Remember files that nothing was read from: touched, gone, foreign, failed, parts of others."""

    def is_behind(self) -> bool:
        """Whether the index lacks something, or is missing itself."""

    def refresh_index(self, progress: Progress | None = None) -> None:
        """Bring the index up to what is kept; an index that is lost or damaged is built anew."""

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
        """Sessions by key, by the start of their id, by family, and by what else is known of them."""

    def messages(self, key: int, start: int = 0, stop: int | None = None) -> list[Message]:
        """Messages of a session by their places in it, those that a compaction repeats too."""

    def session(self, key: int) -> Session:
        """A whole session with its sub-agents, as it was read."""

    def forget(self, keys: Iterable[int], progress: Progress | None = None) -> int:
        """Remove sessions and their sub-agents for good, while writing; gives back how many."""

    def sizes(self) -> Sizes:
        """How much is kept."""

    def left_out(self) -> dict[str, int]:
        """How many entries a search leaves out by default, by reason; those that it looks into under ""."""
