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
"""JSON names of fields. They are longer, because JSON has no docstrings."""


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
    """The purpose that the call states; without one, the agent's last text before the call."""
    agent: str = ""
    """The id of the sub-agent that made the call; empty if the session's own agent made it."""
    added: int = 0
    """Number of added lines, if known."""
    removed: int = 0
    """Number of removed lines, if known."""
    failed: bool = False


class FileActivity(Struct, frozen=True, rename={"first": "first_turn", "last": "last_turn"}):
    """Activity of a session on one file."""

    path: str
    reads: int
    edits: int
    writes: int
    first: int
    """The first turn that touched the file."""
    last: int
    """The last turn that touched the file."""
    deleted: bool
    exact: bool
    """True if the file's final state is known."""


class FileState(Struct, frozen=True):
    """A file after a turn."""

    path: str
    turn: int
    text: str | None
    """The known text; None if no text is known or the file is deleted."""
    exact: bool
    gaps: tuple[str, ...] = ()
    """Reasons why the state is not exact. The text also marks unknown lines."""


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
    """The path, relative to the project's folder if the file is in that folder."""
    project: str
    entries: tuple[ChangelogEntry, ...]


class Changelog(Struct, frozen=True):
    """Changes of files over several sessions."""

    files: tuple[FileChangelog, ...]
    sessions: tuple[str, ...]
    """The sessions that changed something, in order of time."""
