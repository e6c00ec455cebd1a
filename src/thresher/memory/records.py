"""Records of the session memory: archived sessions, source files and sync reports."""

from collections.abc import Callable
from datetime import datetime
from hashlib import blake2b
from typing import Literal, NamedTuple, get_args

from msgspec import Struct

from thresher.model.message import Role

ExclusionReason = Literal[
    "", "short", "interruption", "error", "command", "editor", "harness", "syntax", "recall", "system"
]
"""Reason why a search skips a text; empty if the search covers the text."""
ROLES: tuple[Role, ...] = get_args(Role)
EXCLUSION_REASONS: tuple[ExclusionReason, ...] = get_args(ExclusionReason)
"""All exclusion reasons. The index stores a reason or a role by its position in `EXCLUSION_REASONS` or `ROLES`, so
append new values at the end."""

TextKind = Literal[
    "human", "agent", "thinking", "summary", "input", "commands", "output", "title", "edits", "annotation"
]
TEXT_KINDS: tuple[TextKind, ...] = get_args(TextKind)
"""All kinds of index documents. The index stores a kind by its position here, so append new values at the end."""

SourceState = Literal["here", "gone", "foreign", "failed", "part"]
"""State of a file at the last sync. `here`: on disk. `gone`: deleted. `foreign`: unknown format, skipped until the file
changes. `failed`: not readable. `part`: read together with another file."""


HIDDEN_PATH_PREFIX = "forgotten:"
MESSAGES_PER_BLOCK = 64
"""Number of messages that the archive stores and replaces as one block."""
Progress = Callable[[int, int], None]
"""Callback that receives the amount done and the total."""
Stop = Callable[[], bool]
"""Callback that returns True when long work should stop and leave the rest to the next run."""


class FileStat(NamedTuple):
    """File metadata from `stat`. For a database, the size includes the journal, and the times are the later ones."""

    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int


class SourceRecord(NamedTuple):
    """State of a source file at the last sync."""

    path: str
    stat: FileStat
    state: SourceState = "here"
    format: str = ""
    """Transcript format that the caller specified; empty if it was detected."""
    offset: int = 0
    """Size up to the end of the last complete line, or the whole size if the file is not line-based."""
    prefix: bytes = b""
    """Digest of the first `offset` bytes; for a multi-session file, digest of the session versions."""
    problem: str = ""
    """Reason why the file could not be read."""
    whole: str = ""
    """Main file with which this file is read; empty if this is a main file."""


def never_stop() -> bool:
    """Return False: do all the work."""
    return False


def to_storable_text(text: str) -> str:
    """Replace unpaired surrogates, which a database cannot store."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def hash_hidden_path(path: str) -> str:
    """Return a name that does not reveal the path, for a file whose sessions are all forgotten."""
    return HIDDEN_PATH_PREFIX + blake2b(path.encode("utf-8", "replace"), digest_size=16).hexdigest()


class ArchivedSession(Struct, frozen=True, kw_only=True):
    """A session without its messages."""

    key: int
    id: str
    agent: str
    file: str
    project: str = ""
    branch: str = ""
    title: str = ""
    version: str = ""
    parent: str = ""
    root: str = ""
    """Id shared by the whole family: forks, resumed sessions, continuations, copies and sub-agents."""
    subagent: bool = False
    call: str = ""
    started: datetime | None = None
    ended: datetime | None = None
    messages: int = 0
    compactions: int = 0
    made_by: str = ""
    """Memory tool that created this session or forbids indexing it; empty if there is none."""
    gone: bool = False
    """True if the archive has the only copy: the file was deleted, is unreadable or no longer contains the session."""


class MemorySizes(
    Struct, frozen=True, rename={"text": "text_bytes", "archive": "archive_bytes", "index": "index_bytes"}
):
    """Number of archived sessions and messages, and sizes in bytes."""

    text: int
    archive: int
    index: int
    sessions: int
    messages: int


class SyncReport(NamedTuple):
    """Result of a sync, as numbers of files. `failed` has problem texts; `messages` is the number of new messages."""

    new: int = 0
    grown: int = 0
    rewritten: int = 0
    unchanged: int = 0
    gone: int = 0
    foreign: int = 0
    failed: tuple[str, ...] = ()
    messages: int = 0
    seconds: float = 0.0
    busy: bool = False
    """True if this sync did nothing because another one was running."""
    forgotten: int = 0
    """Number of sessions that were removed because they exceeded the retention period."""
    forgotten_again: int = 0
    """Number of forgotten sessions that the sync found in files and skipped."""
    indexed: float = 1.0
    """Share of the session files on disk, by size, that the index contains; below 1 if the sync stopped early."""
