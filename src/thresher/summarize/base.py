"""The protocol of summarizers."""

from collections.abc import Sequence
from typing import Protocol

from thresher.model import History, Place


class Summarizer(Protocol):
    """Writes one text that summarizes many parts."""

    @property
    def name(self) -> str:
        """Name of the summarizer in settings and reports."""

    def __call__(self, history: History, members: Sequence[Place], *, limit: int) -> str:
        """Summarize the parts at these places in at most `limit` characters."""
