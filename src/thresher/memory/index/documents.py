"""Documents of the index. Each contains texts of one kind from one message, and the paths that their calls touch."""

from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from thresher.memory.index.tokenizer import separate_words
from thresher.memory.records import EXCLUSION_REASONS, TEXT_KINDS, TextKind

DOCUMENT_VERSION = 6
"""Version of the document schema. Changing it rebuilds every index."""
MOST_FOLDERS = 24
MOST_PATH_CHARS = 4096
"""Maximum length of a path on most systems; only the end of a longer text is indexed as a path."""
RECALL_REASON = EXCLUSION_REASONS.index("recall")
_KIND_NUMBERS = {kind: number for number, kind in enumerate(TEXT_KINDS)}
_encode = msgspec.json.Encoder().encode


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


def encode_document(document: IndexDocument) -> str:
    """Encode a document as the fields of a JSON object, after its opening brace.

    The index puts the session and the block in front. Most documents are encoded in a worker process, and tantivy
    decodes them without the interpreter.
    """
    at, kind, texts, reason, derived, role, time, paths, (made, logged) = document
    fields: dict[str, Any] = {
        "at": at,
        "kind": _KIND_NUMBERS[kind],
        "reason": reason,
        "derived": int(derived),
        "role": role,
        "output" if kind == "output" else "said": texts,
    }
    if time:
        fields["time"] = time
    if made:
        fields["made"] = made
    if logged:
        fields["logged"] = logged
    if paths:
        terms = [*map(_path_terms, paths)]
        fields["paths"] = [words for words, _ in terms]
        fields["file"] = [suffix for _, suffixes in terms for suffix in suffixes]
    return _encode(fields).decode()[1:]


@lru_cache(maxsize=4096)
def _path_terms(path: str) -> tuple[str, list[str]]:
    """Return the words and the suffixes of a path; a session touches the same paths often."""
    return separate_words(path), path_suffixes(path)
