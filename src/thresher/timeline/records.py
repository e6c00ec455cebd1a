"""Result types of a timeline: file events, states and changelogs."""

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
"""JSON names, which have to be clear without these docstrings."""


class FileEvent(Struct, frozen=True, rename=_CHANGE_KEYS):
    """One event of one file."""

    turn: int
    """The number of the model call, from 1. For a sub-agent, the call of its parent."""
    message: int
    """The index of the message in its session, from 0, as in `thresher show --around`."""
    time: datetime | None
    operation: FileOperation
    path: str
    to: str = ""
    """The new path of a moved file."""
    why: str = ""
    """The stated purpose of the call, or else the agent's last text before it."""
    agent: str = ""
    """The id of the sub-agent, if a sub-agent did it."""
    added: int = 0
    removed: int = 0
    """Numbers of added and removed lines, if known."""
    failed: bool = False


class FileActivity(Struct, frozen=True, rename={"first": "first_turn", "last": "last_turn"}):
    """Activity of a session on one file."""

    path: str
    reads: int
    edits: int
    writes: int
    first: int
    """The first and the last turn that touched the file."""
    last: int
    deleted: bool
    exact: bool
    """True if the file's final state is known."""


class FileState(Struct, frozen=True):
    """A file after a turn."""

    path: str
    turn: int
    text: str | None
    """None if nothing is known, or if the file is deleted, which is an exact state."""
    exact: bool
    gaps: tuple[str, ...] = ()
    """Reasons why the state is not exact. The text marks unknown lines too."""


class ChangelogEntry(Struct, frozen=True, rename=_CHANGE_KEYS):
    """One change of a file in a changelog."""

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
    """Relative to the project's folder, if it is inside it."""
    project: str
    entries: tuple[ChangelogEntry, ...]


class Changelog(Struct, frozen=True):
    """Changes of files over several sessions."""

    files: tuple[FileChangelog, ...]
    sessions: tuple[str, ...]
    """The sessions that changed something, in order of time."""
