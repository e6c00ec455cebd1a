"""The points in a long sync at which the index is committed."""

from typing import NamedTuple


class CommitSizes(NamedTuple):
    """Number of characters to index between two commits of the index.

    The number grows after each commit, from `first` up to `last`. So the first (newest) sessions are searchable soon,
    and after an interruption only a part must be read from the archive again. Each commit writes a segment with its own
    dictionary, so few commits are faster.
    """

    first: int = 5_000_000
    last: int = 250_000_000


COMMIT_SIZES = CommitSizes()
GROWTH = 4
"""Factor from one number to the next."""


class CommitPace:
    """Counts the characters since the last commit."""

    def __init__(self, sizes: CommitSizes | tuple[int, int]) -> None:
        self._sizes = CommitSizes(*sizes)
        self._limit = self._sizes.first
        self._count = 0

    @property
    def is_due(self) -> bool:
        """True if enough text was added since the last commit."""
        return self._count > self._limit

    def add(self, characters: int) -> None:
        """Count added text."""
        self._count += characters

    def restart(self) -> None:
        """Start a sync."""
        self._limit, self._count = self._sizes.first, 0

    def record_commit(self) -> None:
        """Start to count again, up to a higher limit."""
        self._limit, self._count = min(GROWTH * self._limit, self._sizes.last), 0
