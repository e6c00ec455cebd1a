"""Shorten text to one line without splitting a visible character."""

import re
import unicodedata
from collections.abc import Sequence

_CONTROL = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|[\x00-\x08\x0e-\x1b\x7f\u200e\u200f\u202a-\u202e\ud800-\udfff]")
_JOINER = "\u200d"
_SKIN_TONES = range(0x1F3FB, 0x1F400)


def to_printable_line(text: str) -> str:
    """Collapse a text to one line; remove terminal codes and unprintable characters."""
    return " ".join(_CONTROL.sub("", text).split())


def clip(text: str, width: int) -> str:
    """Truncate a text at its end to `width` characters, including an ellipsis."""
    if len(text) <= width:
        return text
    stop = max(width - 1, 0)
    while stop > 0 and _is_inside_character(text, stop):
        stop -= 1
    return text[:stop].rstrip() + "…" if width > 0 else ""


def clip_path(path: str, width: int) -> str:
    """Truncate a path at the start to `width` characters, because its end is more specific."""
    if len(path) <= width:
        return path
    start = len(path) - max(width - 1, 0)
    while start < len(path) and _is_inside_character(path, start):
        start += 1
    return "…" + path[start:] if width > 0 else ""


def count_with_noun(number: int, noun: str) -> str:
    """Format a count: `1 edit`, `2 edits`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def count_text_lines(text: str) -> int:
    """Count the lines of a text."""
    return text.count("\n") + (0 if text.endswith("\n") or not text else 1)


def _is_inside_character(text: str, index: int) -> bool:
    """Return whether a cut here would separate a combining mark from its letter, or split a joined character."""
    after, before = text[index], text[index - 1]
    joined = _JOINER in (after, before) or ord(after) in _SKIN_TONES
    return joined or unicodedata.combining(after) > 0 or unicodedata.category(after) in ("Mn", "Me")


def find_even_length(lengths: Sequence[int], room: int) -> int:
    """Return the maximum length per text with which all texts fit; short texts leave room for longer ones."""
    left = max(0, room)
    for place, length in enumerate(sorted(lengths)):
        even = left // (len(lengths) - place)
        if length > even:
            return even
        left -= length
    return max(lengths, default=0)
