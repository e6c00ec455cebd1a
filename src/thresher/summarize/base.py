"""What a summariser is."""

from collections.abc import Sequence
from typing import Protocol

from thresher.model import History, Place


class Summarizer(Protocol):
    """Writes one text that stands for many parts."""

    @property
    def name(self) -> str:
        """What it is called in settings and reports."""

    def __call__(self, history: History, members: Sequence[Place], *, limit: int) -> str:
        """One text for the parts at these places, at most `limit` characters."""
