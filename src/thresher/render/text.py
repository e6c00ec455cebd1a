"""Formatting of numbers and sizes, and shortening and sanitizing of text."""

import json
import re
from datetime import datetime
from unicodedata import east_asian_width

_CONTROL = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|[\x00-\x08\x0b-\x1f\x7f-\x9f]"
    # Characters that change the writing direction: with them, a line can display other text than it contains.
    # Tags and line separators are invisible, or break a line.
    r"|[\u061c\u200e\u200f\u2028-\u202e\u2066-\u206f\U000e0000-\U000e007f]"
)
_JSON_CONTROL = re.compile(r"[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u206f\U000e0000-\U000e007f]")
"""The characters of `_CONTROL` that JSON text may contain."""


def strip_control_codes(text: str) -> str:
    """Make text safe for a terminal: remove its codes, and replace characters that UTF-8 cannot encode.

    This is the only function for that purpose. `thresher.cli.common` applies it to everything that a command prints.
    """
    return _CONTROL.sub("", text).encode("utf-8", "replace").decode()


def escape_json_controls(text: str) -> str:
    """Make JSON text safe for a terminal, without changing the value: escape the characters that control one."""
    return _JSON_CONTROL.sub(lambda match: json.dumps(match[0])[1:-1], text)


def shorten(text: str, width: int) -> str:
    """Join the text into one line and truncate it to `width` characters."""
    line = " ".join(strip_control_codes(text).split())
    return line if len(line) <= width else line[: max(width - 1, 0)] + "…"


def shorten_path(path: str, width: int) -> str:
    """Join a path into one line, and truncate its start, if possible at a separator: `…/src/shop`."""
    line = " ".join(strip_control_codes(path).split())
    if len(line) <= width:
        return line
    end = line[len(line) - max(width - 1, 0) :]
    separator = max(end.find("/"), end.find("\\"), 0)
    return f"…{end[separator:]}"


def display_width(text: str) -> int:
    """Return the number of columns that a terminal needs for a text: two for a wide character, as in Chinese."""
    return len(text) if text.isascii() else sum(1 + (east_asian_width(character) in "WF") for character in text)


def format_count(number: int) -> str:
    """Format a number with thousands separators."""
    return f"{number:,}"


def format_local_time(time: datetime, pattern: str = "%Y-%m-%d %H:%M") -> str:
    """Format a time in the local time zone, or in its own zone if the local calendar cannot represent it."""
    try:
        local = time.astimezone()
    except (OverflowError, ValueError, OSError):
        local = time
    return f"{local:{pattern}}"


def plural(number: int, noun: str, nouns: str = "") -> str:
    """Format a count with its noun: `1 call`, `2 calls`."""
    return f"{number:,} {noun if number == 1 else nouns or noun + 's'}"


def format_token_count(number: int) -> str:
    """Round a number of tokens for display: 850, 12k, 1.2M."""
    if number < 1_000:
        return str(number)
    if number < 999_500:
        return f"{number / 1_000:.0f}k" if number >= 9_950 else f"{number / 1_000:.1f}k"
    return f"{number / 1_000_000:.1f}M"


def format_byte_size(number: int) -> str:
    """Format a size in bytes: 512 B, 1.5 MB."""
    for unit, scale in (("GB", 1_000_000_000), ("MB", 1_000_000), ("kB", 1_000)):
        if number >= scale:
            return f"{number / scale:.1f} {unit}"
    return f"{number} B"


def format_share(indexed: float) -> str:
    """Describe an incomplete index."""
    percent = f"{int(100 * indexed)}%" if indexed >= 0.01 else "less than 1%"  # rounding down: never 100 %
    return f"{percent} of the sessions on disk are indexed so far, the newest first"
