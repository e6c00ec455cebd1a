"""One entry of the index: the words of one kind in a message, and the paths it names."""

from typing import NamedTuple

from thresher.memory.records import EXCLUSION_REASONS, TextKind

DOCUMENT_VERSION = 5
"""How entries are made: another number makes all indexes be built again."""
MOST_FOLDERS = 24
RECALL_REASON = EXCLUSION_REASONS.index("recall")


class CommitSubjects(NamedTuple):
    """The subjects of commits that an output tells of, as `normalize_subject` gives them."""

    made: tuple[str, ...] = ()
    logged: tuple[str, ...] = ()


class IndexDocument(NamedTuple):
    """One entry."""

    at: int
    """The place of the message in the session; -1 for a title."""
    kind: TextKind
    texts: list[str]
    reason: int
    derived: bool = False
    role: int = 0
    time: int = 0
    paths: tuple[str, ...] = ()
    commits: CommitSubjects = CommitSubjects()


def path_suffixes(path: str) -> list[str]:
    """A path, and every end of it that begins with a name; in lower case, with slashes."""
    clean = path.encode("utf-8", "replace").decode().replace("\\", "/").lower()
    names = [name for name in clean.split("/") if name not in ("", ".")]
    return ["/".join(names[place:]) for place in range(len(names))][-MOST_FOLDERS:]
