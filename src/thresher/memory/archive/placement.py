"""A session as the archive keeps it, and where a new version of it went."""

from typing import NamedTuple

from thresher.memory.archive.schema import StoredBlock
from thresher.memory.records import ArchivedSession
from thresher.model import Message

MISSING_MESSAGE = Message("user", ())
"""Stands for what an index still knows while a sync is at work, or since one was cut short."""


class PlacedSession(NamedTuple):
    """What became of a session: the numbers of its new blocks, and under which ids they are kept."""

    key: int
    blocks: tuple[tuple[int, int], ...]
    new_messages: int
    """How many are new."""


class StoredSession(NamedTuple):
    """A session as it is kept now."""

    session: ArchivedSession
    links: tuple[int, str, str]
    """Its owner, its parent and its beginning."""
    blocks: list[StoredBlock]
