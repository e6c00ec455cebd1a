"""Detect damage in the files of a tantivy index.

Tantivy reads most of a file without checking it, so a changed byte can cause wrong results or a panic. But each segment
file ends with a CRC-32 of its content. To verify all of them for every command would be slow. So a file is trusted if
its size and time are the same as when this index was last written, and is verified otherwise.
"""

from collections.abc import Mapping
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any, BinaryIO
from zlib import crc32

import msgspec

META_FILE = "meta.json"
CHUNK_BYTES = 1 << 20
FOOTER_MAGIC = (1337).to_bytes(4, "little")
MAX_FOOTER_BYTES = 10_000
FileStamp = tuple[int, int]
"""Size of a file, and the time of its last change in nanoseconds."""


def read_file_stamps(folder: Path) -> dict[str, FileStamp]:
    """Return the stamp of each file of the current segments."""
    segments = _read_segments(folder)
    stamps: dict[str, FileStamp] = {}
    for path in folder.iterdir():
        with suppress(FileNotFoundError):  # background merges delete files
            if _belongs_to(path.name, segments):
                stat = path.stat()
                stamps[path.name] = stat.st_size, stat.st_mtime_ns
    return stamps


def is_segment_damaged(folder: Path, trusted: Mapping[str, FileStamp]) -> bool:
    """Return whether a segment file is missing, or is damaged and has no trusted stamp."""
    stamps = read_file_stamps(folder)
    changed = [name for name, stamp in stamps.items() if trusted.get(name) != stamp]
    if not all(_is_intact(folder / name) for name in changed):
        return True
    segments = _read_segments(folder)  # again, since a merge removes a segment before it deletes the segment's files
    return any(name not in stamps and _belongs_to(name, segments) for name in trusted)


def digest_contents(folder: Path) -> str:
    """Return a digest of the index's metadata that background merges do not change.

    Merges replace segments, but neither the schema nor the number of the last operation nor that of the documents.
    """
    meta = _read_meta(folder)
    segments = meta.pop("segments")
    documents = sum(segment["max_doc"] - (segment["deletes"] or {}).get("num_deleted_docs", 0) for segment in segments)
    return blake2b(msgspec.json.encode([meta, documents], order="sorted"), digest_size=16).hexdigest()


def _read_meta(folder: Path) -> dict[str, Any]:
    return msgspec.json.decode((folder / META_FILE).read_bytes(), type=dict[str, Any])


def _read_segments(folder: Path) -> dict[str, str]:
    """Return the suffix of the file with deletions, by segment id."""
    segments = _read_meta(folder)["segments"]
    return {one["segment_id"].replace("-", ""): f"{(one['deletes'] or {}).get('opstamp')}.del" for one in segments}


def _belongs_to(name: str, segments: Mapping[str, str]) -> bool:
    """Return whether a file is part of one of these segments. Files with earlier deletions are not."""
    id, _, suffix = name.partition(".")
    return id in segments and (not suffix.endswith(".del") or suffix == segments[id])


def _is_intact(path: Path) -> bool:
    """Return whether the content of a file has the CRC-32 in its footer.

    The footer is a JSON object, followed by its length and a fixed number, with four bytes each.
    """
    try:
        with path.open("rb") as file:
            body_size, expected = _read_footer(file)
            return _compute_crc(file, body_size) == expected
    except FileNotFoundError:
        return True
    except (OSError, ValueError, LookupError, TypeError):
        return False


def _read_footer(file: BinaryIO) -> tuple[int, int]:
    """Return the size of the content and its CRC-32."""
    end = file.seek(-8, 2)
    size = int.from_bytes(file.read(4), "little")
    if file.read(4) != FOOTER_MAGIC or size > MAX_FOOTER_BYTES:
        raise ValueError("no footer")
    body_size = end - size
    file.seek(body_size)
    return body_size, msgspec.json.decode(file.read(size))["crc"]


def _compute_crc(file: BinaryIO, size: int) -> int:
    file.seek(0)
    crc = 0
    while size > 0 and (chunk := file.read(min(size, CHUNK_BYTES))):
        crc = crc32(chunk, crc)
        size -= len(chunk)
    return crc
