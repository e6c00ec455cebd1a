"""What is told of files: what happened to them, what is known of them, and why they changed."""

from datetime import datetime
from typing import Literal

from msgspec import Struct

FileOperation = Literal["read", "write", "edit", "delete", "move"]


_CHANGE_KEYS = {
    "message": "message_index",
    "to": "moved_to",
    "why": "reason",
    "agent": "subagent",
    "added": "lines_added",
    "removed": "lines_removed",
}
"""Names in JSON, where a key has to explain itself without these docstrings."""


class FileEvent(Struct, frozen=True, rename=_CHANGE_KEYS):
    """One thing that happened to one file."""

    turn: int
    """The number of the model call, from 1; for a sub-agent's work, that of the call in its parent."""
    message: int
    """The place of the message in its session, counted from 0 as `thresher show --around` does."""
    time: datetime | None
    operation: FileOperation
    path: str
    to: str = ""
    """Where a move ends."""
    why: str = ""
    """What the call says that it is for, or else what the agent said right before it."""
    agent: str = ""
    """The id of the sub-agent that did it."""
    added: int = 0
    removed: int = 0
    """Lines that came and went, as far as is known."""
    failed: bool = False


class FileActivity(Struct, frozen=True, rename={"first": "first_turn", "last": "last_turn"}):
    """What a session did to one file."""

    path: str
    reads: int
    edits: int
    writes: int
    first: int
    """The first turn that touched it, and the last."""
    last: int
    deleted: bool
    exact: bool
    """Whether its state at the end is known."""


class FileState(Struct, frozen=True):
    """A file as it was after a turn."""

    path: str
    turn: int
    text: str | None
    """None where nothing is known, and where the file is gone: that is exact then."""
    exact: bool
    gaps: tuple[str, ...] = ()
    """Why it is not exact; where lines are missing, a line in the text says which."""


class ChangelogEntry(Struct, frozen=True, rename=_CHANGE_KEYS):
    """One change of a file, as a changelog tells it."""

    session: str
    turn: int
    time: datetime | None
    operation: FileOperation
    why: str
    added: int
    removed: int
    to: str = ""
    agent: str = ""


class FileChangelog(Struct, frozen=True):
    """All changes of one file, in order."""

    path: str
    """Within its project's folder, where it lies there."""
    project: str
    entries: tuple[ChangelogEntry, ...]


class Changelog(Struct, frozen=True):
    """What changed in files over some sessions, and why."""

    files: tuple[FileChangelog, ...]
    sessions: tuple[str, ...]
    """The sessions that changed something, in order of time."""
