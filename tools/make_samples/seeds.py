"""The tools every sample writer shares: ids, times, weights and the two ways to show a file.

Nothing here looks at a clock or draws a random number. An id is a hash of its seed, a time is a start and a
count of seconds, so the same story gives the same bytes on every machine.
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
    """The bytes that every id of this seed is made of."""
    return hashlib.sha256(f"thresher samples: {seed}".encode()).digest()


def random_uuid(seed: str) -> str:
    """An id as most agents write it."""
    return str(uuid.UUID(bytes=digest(seed)[:16], version=4))


def timed_uuid(seed: str, moment: datetime) -> str:
    """An id of version 7, which begins with its time."""
    number = int(moment.timestamp() * 1000) << 80 | int.from_bytes(digest(seed)[:10], "big")
    number = number & ~(0xF << 76) | 0x7 << 76
    return str(uuid.UUID(int=number & ~(0x3 << 62) | 0x2 << 62))


def token(prefix: str, seed: str, length: int = 22) -> str:
    """An id of letters and digits behind a prefix."""
    number = int.from_bytes(digest(seed), "big")
    letters = []
    for _ in range(length):
        number, place = divmod(number, len(ALPHABET))
        letters.append(ALPHABET[place])
    return prefix + "".join(letters)


def hexadecimal(seed: str, length: int) -> str:
    """An id of hexadecimal digits."""
    return digest(seed).hex()[:length]


def opaque(seed: str, size: int) -> str:
    """A signature or an encrypted text: base64 that says nothing."""
    blocks = b"".join(digest(f"{seed} {number}") for number in range(size // 32 + 1))
    return base64.b64encode(blocks[:size]).decode()


@dataclass
class Clock:
    """A time that moves only when it is told to."""

    now: datetime
    ticks: int = 0

    def tick(self, seconds: float = 1.0) -> datetime:
        """Let some time go by, and a few milliseconds with it as real time does."""
        self.ticks += 1
        self.now += timedelta(seconds=seconds, milliseconds=self.ticks * 137 % 911)
        return self.now


def start(*numbers: int) -> Clock:
    """A clock set to a year, month, day, hour, minute and second."""
    year, month, day, hour, minute, second = numbers
    return Clock(datetime(year, month, day, hour, minute, second, tzinfo=UTC))


def stamp(moment: datetime) -> str:
    """A time as agents write it: `2026-03-12T09:14:02.137Z`."""
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def milliseconds(moment: datetime) -> int:
    """A time as milliseconds since 1970."""
    return round(moment.timestamp() * 1000)


def weight(value: Any) -> int:
    """About how many tokens a value comes to; the recorded usage is worked out from it."""
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return len(text) // 4 + 1


def line_of(record: Record) -> bytes:
    """A record as a line of a file."""
    return msgspec.json.encode(record) + b"\n"


def numbered(text: str, first: int = 1) -> str:
    """A file as Claude Code shows it to the model, with line numbers."""
    return "\n".join(f"{number:>6}→{line}" for number, line in enumerate(text.splitlines(), first))


def hunks(old: str, new: str) -> list[Record]:
    """The difference of two files as Claude Code keeps it."""
    before, after = old.splitlines(), new.splitlines()
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    return [hunk(group, before, after) for group in matcher.get_grouped_opcodes(3)]


def hunk(group: list[tuple[str, int, int, int, int]], before: list[str], after: list[str]) -> Record:
    """One hunk: its place in both files, and its lines with their marks."""
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
    """The difference of two files as git shows it."""
    mark = f"diff --git a/{name} b/{name}\nindex {hexadecimal(old, 7)}..{hexadecimal(new, 7)} 100644\n"
    before, after = old.splitlines(keepends=True), new.splitlines(keepends=True)
    return mark + "".join(difflib.unified_diff(before, after, f"a/{name}", f"b/{name}"))
