"""Documents of the index. Each contains texts of one kind from one message, and the paths that their calls touch."""

from typing import NamedTuple

from thresher.memory.records import EXCLUSION_REASONS, TextKind

DOCUMENT_VERSION = 7
"""Version of the document schema. Changing it rebuilds every index."""
MOST_FOLDERS = 24
MOST_PATH_CHARS = 4096
"""Maximum length of a path on most systems; only the end of a longer text is indexed as a path."""
RECALL_REASON = EXCLUSION_REASONS.index("recall")


class CommitSubjects(NamedTuple):
    """Normalized commit subjects in a tool's output: of commits that the command `made`, or only listed (`logged`)."""

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
    """Return a path and its suffixes (`b/c.py`, `c.py`), at most 24, in lower case with forward slashes."""
    normalized = path[-MOST_PATH_CHARS:].encode("utf-8", "replace").decode().replace("\\", "/").lower()
    names = [name for name in normalized.split("/") if name not in ("", ".")][-MOST_FOLDERS:]
    return ["/".join(names[start:]) for start in range(len(names))]
