"""Index documents: the texts of one kind in a message, with the paths it names."""

from typing import NamedTuple

from thresher.memory.records import EXCLUSION_REASONS, TextKind

DOCUMENT_VERSION = 5
"""Version of the document schema. Changing it rebuilds every index."""
MOST_FOLDERS = 24
RECALL_REASON = EXCLUSION_REASONS.index("recall")


class CommitSubjects(NamedTuple):
    """Normalized subjects of commits in a tool's output, made by the command or listed by it."""

    made: tuple[str, ...] = ()
    logged: tuple[str, ...] = ()


class IndexDocument(NamedTuple):
    """One document of the index."""

    at: int
    """Index of the message in the session; -1 for a title."""
    kind: TextKind
    texts: list[str]
    reason: int
    derived: bool = False
    role: int = 0
    time: int = 0
    paths: tuple[str, ...] = ()
    commits: CommitSubjects = CommitSubjects()


def path_suffixes(path: str) -> list[str]:
    """Return a path and all its suffixes that start at a name, in lower case with forward slashes."""
    normalized = path.encode("utf-8", "replace").decode().replace("\\", "/").lower()
    names = [name for name in normalized.split("/") if name not in ("", ".")]
    return ["/".join(names[start:]) for start in range(len(names))][-MOST_FOLDERS:]
