"""Helpers of all sample writers: ids, times, token weights, and two ways to show a file.

Nothing here uses a clock or random numbers. An id is a hash of its seed, and a time is a start plus some seconds, so
the same story gives the same bytes on every machine.
"""

import base64
import difflib
import hashlib
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

Record = dict[str, Any]

ALPHABET = "0123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"


def digest(seed: str) -> bytes:
    """Return the bytes from which an id of this seed is made."""
    return hashlib.sha256(f"thresher samples: {seed}".encode()).digest()


def random_uuid(seed: str) -> str:
    """Return an id in the format of most agents."""
    return str(uuid.UUID(bytes=digest(seed)[:16], version=4))


def timed_uuid(seed: str, moment: datetime) -> str:
    """Return a UUID of version 7, which starts with its time."""
    number = int(moment.timestamp() * 1000) << 80 | int.from_bytes(digest(seed)[:10], "big")
    number = number & ~(0xF << 76) | 0x7 << 76
    return str(uuid.UUID(int=number & ~(0x3 << 62) | 0x2 << 62))


def token(prefix: str, seed: str, length: int = 22) -> str:
    """Return an id of letters and digits after a prefix."""
    number = int.from_bytes(digest(seed), "big")
    letters = []
    for _ in range(length):
        number, place = divmod(number, len(ALPHABET))
        letters.append(ALPHABET[place])
    return prefix + "".join(letters)


def hexadecimal(seed: str, length: int) -> str:
    """Return an id of hexadecimal digits."""
    return digest(seed).hex()[:length]


def opaque(seed: str, size: int) -> str:
    """Return a meaningless signature or encrypted text in base64."""
    blocks = b"".join(digest(f"{seed} {number}") for number in range(size // 32 + 1))
    return base64.b64encode(blocks[:size]).decode()


@dataclass
class Clock:
    """A clock that advances only on request."""

    now: datetime
    ticks: int = 0

    def tick(self, seconds: float = 1.0) -> datetime:
        """Advance the clock by some seconds and a few milliseconds, as in real sessions."""
        self.ticks += 1
        self.now += timedelta(seconds=seconds, milliseconds=self.ticks * 137 % 911)
        return self.now


def start(*numbers: int) -> Clock:
    """Return a clock set to a year, month, day, hour, minute and second."""
    year, month, day, hour, minute, second = numbers
    return Clock(datetime(year, month, day, hour, minute, second, tzinfo=UTC))


def stamp(moment: datetime) -> str:
    """Format a time like most agents: `2026-03-12T09:14:02.137Z`."""
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def milliseconds(moment: datetime) -> int:
    """Return a time as milliseconds since 1970."""
    return round(moment.timestamp() * 1000)


def weight(value: Any) -> int:
    """Estimate the tokens of a value, from which the recorded usage is computed."""
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return len(text) // 4 + 1


def line_of(record: Record) -> bytes:
    """Encode a record as a line of a file."""
    return msgspec.json.encode(record) + b"\n"


def numbered(text: str, first: int = 1) -> str:
    """Format a file with line numbers, as Claude Code shows it to the model."""
    return "\n".join(f"{number:>6}→{line}" for number, line in enumerate(text.splitlines(), first))


def hunks(old: str, new: str) -> list[Record]:
    """Return the diff of two files in the format of Claude Code."""
    before, after = old.splitlines(), new.splitlines()
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    return [hunk(group, before, after) for group in matcher.get_grouped_opcodes(3)]


def hunk(group: list[tuple[str, int, int, int, int]], before: list[str], after: list[str]) -> Record:
    """Return one hunk: its position in both files, and its lines with their prefixes."""
    lines: list[str] = []
    for kind, old_from, old_to, new_from, new_to in group:
        if kind == "equal":
            lines += [f" {line}" for line in before[old_from:old_to]]
        else:
            lines += [f"-{line}" for line in before[old_from:old_to]]
            lines += [f"+{line}" for line in after[new_from:new_to]]
    first, last = group[0], group[-1]
    return {
        "oldStart": first[1] + 1,
        "oldLines": last[2] - first[1],
        "newStart": first[3] + 1,
        "newLines": last[4] - first[3],
        "lines": lines,
    }


def unified(name: str, old: str, new: str) -> str:
    """Return the diff of two files in the format of git."""
    mark = f"diff --git a/{name} b/{name}\nindex {hexadecimal(old, 7)}..{hexadecimal(new, 7)} 100644\n"
    before, after = old.splitlines(keepends=True), new.splitlines(keepends=True)
    return mark + "".join(difflib.unified_diff(before, after, f"a/{name}", f"b/{name}"))
