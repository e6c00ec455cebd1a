"""Whether a file changed, and how: looked at from outside first, and opened only where that says so.

A file of lines grows at its end. Bytes up to the last complete line are remembered by a digest: where they are the
same, it grew, or was only touched. A line that is still being written counts when it is complete: when its end is
there, or when it is JSON as it stands. A file that is one document has no lines, and all its bytes count. A database
that holds many sessions tells for each whether it changed.
"""

import os
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path
from typing import BinaryIO, Literal, NamedTuple

from thresher.memory.records import FileStat, SourceRecord
from thresher.model.jsontext import load_json

DATABASES = (".db", ".sqlite", ".sqlite3")
"""How the names of databases end: their newest changes lie in a journal beside them."""
CHUNK = 1 << 20
STEP = 1 << 16
FileChange = Literal["new", "grown", "rewritten", "touched"]


class FileFingerprint(NamedTuple):
    """How far a file was complete, and the digest of its bytes up to there."""

    offset: int
    prefix: bytes


def read_file_stat(path: str | Path) -> FileStat | None:
    """What the system says of a file or folder; None where it is not there, or cannot be looked at."""
    try:
        facts = os.stat(path)  # noqa: PTH116 - thousands of files, and a `Path` costs more than the look
    except (OSError, ValueError):
        return None
    inode = facts.st_ino & 0x7FFF_FFFF_FFFF_FFFF
    stat = FileStat(facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns, inode)
    name = os.fspath(path)
    # It lies beside the file itself, not beside a link to it.
    journal = read_file_stat(f"{os.path.realpath(name)}-wal") if name.endswith(DATABASES) else None
    if journal is None:
        return stat
    newest = max(stat.mtime_ns, journal.mtime_ns), max(stat.ctime_ns, journal.ctime_ns)
    return FileStat(stat.size + journal.size, *newest, inode)


def fingerprint_file(path: Path, size: int) -> FileFingerprint:
    """The mark of the first so many bytes of a file. Raises `OSError`."""
    if not path.is_file():  # a pipe would be waited for, and a device has no end
        raise OSError(f"`{path}` is no file with an end; name one that is")
    with path.open("rb") as file:
        offset = _complete_length(file, size)
        return FileFingerprint(offset, _digest(file, offset))


def fingerprint_sessions(listed: Mapping[str, str]) -> FileFingerprint:
    """The mark of a file that holds many sessions, by the marks of each."""
    digest = blake2b(digest_size=16)
    for session, mark in sorted(listed.items()):
        digest.update(f"{session}\0{mark}\0".encode("utf-8", "replace"))
    return FileFingerprint(0, digest.digest())


def classify_change(path: Path, known: SourceRecord | None, mark: FileFingerprint) -> FileChange:
    """What became of a file since it was last read. Raises `OSError`."""
    if known is None or not known.prefix or known.state not in ("here", "gone"):
        return "new"
    if mark.offset < known.offset:
        return "rewritten"
    if mark.offset == known.offset:
        return "touched" if mark.prefix == known.prefix else "rewritten"
    with path.open("rb") as file:
        return "grown" if _digest(file, known.offset) == known.prefix else "rewritten"


def _complete_length(file: BinaryIO, size: int) -> int:
    """Bytes up to the end of the last complete line; the size where there are no lines."""
    first = file.readline(STEP).strip()
    if not (first.startswith(b"{") and first.endswith(b"}")):
        return size
    end = size
    pieces: list[bytes] = []
    while end > 0:
        start = max(0, end - STEP)
        file.seek(start)
        piece = file.read(end - start)
        cut = piece.rfind(b"\n")
        pieces.append(piece[cut + 1 :])
        if cut >= 0:
            break
        end = start
    tail = b"".join(reversed(pieces))
    return size if not tail.strip() or _is_json(tail) else size - len(tail)


def _is_json(text: bytes) -> bool:
    try:
        load_json(text)
    except (ValueError, RecursionError):
        return False
    return True


def _digest(file: BinaryIO, size: int) -> bytes:
    digest = blake2b(digest_size=16)
    file.seek(0)
    while size > 0 and (piece := file.read(min(CHUNK, size))):
        digest.update(piece)
        size -= len(piece)
    return digest.digest()
