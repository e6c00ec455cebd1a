"""What the memory of past sessions speaks of: sessions, the files they come from, and what a sync did."""

from collections.abc import Callable
from datetime import datetime
from hashlib import blake2b
from typing import Literal, NamedTuple, get_args

from msgspec import Struct

from thresher.model.message import Role

ExclusionReason = Literal[
    "", "short", "interruption", "error", "command", "editor", "harness", "syntax", "recall", "system"
]
"""Why a piece is left out of a search; empty where it is not."""
ROLES: tuple[Role, ...] = get_args(Role)
EXCLUSION_REASONS: tuple[ExclusionReason, ...] = get_args(ExclusionReason)
"""The index keeps a role and a reason as their places here: new ones go to the end."""

TextKind = Literal["human", "agent", "thinking", "summary", "input", "commands", "output", "title", "edits"]
TEXT_KINDS: tuple[TextKind, ...] = get_args(TextKind)
"""What the words of an entry are; kept like the others."""

SourceState = Literal["here", "gone", "foreign", "failed", "part"]
"""`foreign`: in no known format, so it is not looked into again until it changes. `part`: read with another file."""


HIDDEN_PATH_PREFIX = "forgotten:"
MESSAGES_PER_BLOCK = 64
"""Messages that are stored, and replaced, together."""
Progress = Callable[[int, int], None]
"""Takes how much is done, and of how much."""


class FileStat(NamedTuple):
    """What the system says of a file without opening it."""

    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int


class SourceRecord(NamedTuple):
    """A file as it was when it was last looked at."""

    path: str
    stat: FileStat
    state: SourceState = "here"
    format: str = ""
    """The format that the caller said it is in; empty where it was recognised."""
    offset: int = 0
    """Bytes up to the end of the last complete line; all of them in a file that has no lines."""
    prefix: bytes = b""
    """The digest of those bytes."""
    problem: str = ""
    """Why it could not be read."""
    whole: str = ""
    """The file that this one is a part of."""


def hash_hidden_path(path: str) -> str:
    """The name under which a file is known whose sessions were all forgotten: it does not tell the path."""
    return HIDDEN_PATH_PREFIX + blake2b(path.encode("utf-8", "replace"), digest_size=16).hexdigest()


class ArchivedSession(Struct, frozen=True, kw_only=True):
    """A session, without its messages."""

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
    """The same for all of one family: forks, resumes, continuations, copies, sub-agents."""
    subagent: bool = False
    call: str = ""
    started: datetime | None = None
    ended: datetime | None = None
    messages: int = 0
    compactions: int = 0
    made_by: str = ""
    """The memory tool that made this session itself."""
    gone: bool = False
    """The file is not there any more, cannot be read, or no longer holds it: what is kept here is all there is."""


class MemorySizes(
    Struct, frozen=True, rename={"text": "text_bytes", "archive": "archive_bytes", "index": "index_bytes"}
):
    """How much is remembered, and what it takes, in bytes."""

    text: int
    archive: int
    index: int
    sessions: int
    messages: int


class SyncReport(NamedTuple):
    """What a sync found and did, in files; `messages` are those that were not known before."""

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
    """Another sync is at work, so nothing was done."""
    forgotten: int = 0
    """Sessions that were older than the retention."""
    forgotten_again: int = 0
    """Sessions in files that were read, which were forgotten for good and stay so."""
