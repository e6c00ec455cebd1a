"""Detect whether and how a source file changed, by its metadata first and its content only if needed.

A line-based file grows at its end. A digest covers its bytes up to the last complete line. If these bytes still have
the same digest, the file grew or was only touched. The last line is complete if it ends with a line break or is valid
JSON. For a file that is a single document, the digest covers all bytes. For a database with many sessions, it covers
the version that the database states for each session.
"""

import os
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path
from typing import BinaryIO, Literal, NamedTuple

from thresher.memory.records import FileStat, SourceRecord
from thresher.model.jsontext import load_json

DATABASES = (".db", ".sqlite", ".sqlite3")
"""Suffixes of databases, whose latest changes are in a separate journal file."""
CHUNK = 1 << 20
STEP = 1 << 16
FileChange = Literal["new", "grown", "rewritten", "touched"]


class FileFingerprint(NamedTuple):
    """Digest of a file, and the number of bytes that it covers (0 if it covers session versions)."""

    offset: int
    prefix: bytes


def read_file_stat(path: str | Path) -> FileStat | None:
    """Return the metadata of a file or folder; None if it is missing or inaccessible."""
    try:
        status = os.stat(path)  # noqa: PTH116 - thousands of files, and a `Path` costs more than the call
    except (OSError, ValueError):
        return None
    inode = status.st_ino & 0x7FFF_FFFF_FFFF_FFFF
    stat = FileStat(status.st_size, status.st_mtime_ns, status.st_ctime_ns, inode)
    name = os.fspath(path)
    # The journal is next to the database itself, not next to a symlink to it.
    journal = read_file_stat(f"{os.path.realpath(name)}-wal") if name.endswith(DATABASES) else None
    if journal is None:
        return stat
    newest = max(stat.mtime_ns, journal.mtime_ns), max(stat.ctime_ns, journal.ctime_ns)
    return FileStat(stat.size + journal.size, *newest, inode)


def fingerprint_file(path: Path, size: int) -> FileFingerprint:
    """Return the fingerprint of a file's first `size` bytes. Raises `OSError`."""
    if not path.is_file():  # reading a pipe would block, and a device has no end
        raise OSError(f"`{path}` must be a regular file")
    with path.open("rb") as file:
        offset = _complete_length(file, size)
        return FileFingerprint(offset, _digest(file, offset))


def fingerprint_sessions(versions: Mapping[str, str]) -> FileFingerprint:
    """Return the fingerprint of a multi-session file, from the version of each session."""
    digest = blake2b(digest_size=16)
    for session, version in sorted(versions.items()):
        digest.update(f"{session}\0{version}\0".encode("utf-8", "replace"))
    return FileFingerprint(0, digest.digest())


def classify_change(path: Path, known: SourceRecord | None, fingerprint: FileFingerprint) -> FileChange:
    """Classify the change of a file since the last sync. Raises `OSError`."""
    if known is None or not known.prefix or known.state not in ("here", "gone"):
        return "new"
    if fingerprint.offset < known.offset:
        return "rewritten"
    if fingerprint.offset == known.offset:
        return "touched" if fingerprint.prefix == known.prefix else "rewritten"
    with path.open("rb") as file:
        return "grown" if _digest(file, known.offset) == known.prefix else "rewritten"


def _complete_length(file: BinaryIO, size: int) -> int:
    """Return the size up to the end of the last complete line, or `size` if the file is not line-based."""
    first = file.readline(STEP).strip()
    if not (first.startswith(b"{") and first.endswith(b"}")):
        return size
    end = size
    tail_chunks: list[bytes] = []
    while end > 0:
        start = max(0, end - STEP)
        file.seek(start)
        chunk = file.read(end - start)
        line_break = chunk.rfind(b"\n")
        tail_chunks.append(chunk[line_break + 1 :])
        if line_break >= 0:
            break
        end = start
    tail = b"".join(reversed(tail_chunks))
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
    while size > 0 and (chunk := file.read(min(CHUNK, size))):
        digest.update(chunk)
        size -= len(chunk)
    return digest.digest()
