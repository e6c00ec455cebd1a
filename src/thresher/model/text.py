"""Text made into one short line, and never cut inside what a reader sees as one character."""

import re
import unicodedata

_CONTROL = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|[\x00-\x08\x0e-\x1b\x7f\u200e\u200f\u202a-\u202e\ud800-\udfff]")
_JOINER = "\u200d"
_SKIN_TONES = range(0x1F3FB, 0x1F400)


def to_printable_line(text: str) -> str:
    """One line, without terminal codes and what cannot be printed."""
    return " ".join(_CONTROL.sub("", text).split())


def clip(text: str, width: int) -> str:
    """At most `width` characters from the start, with a mark where something is missing."""
    if len(text) <= width:
        return text
    stop = max(width - 1, 0)
    while stop > 0 and _is_inside_character(text, stop):
        stop -= 1
    return text[:stop].rstrip() + "…" if width > 0 else ""


def clip_path(path: str, width: int) -> str:
    """At most `width` characters of a path from its end, which says the most."""
    if len(path) <= width:
        return path
    start = len(path) - max(width - 1, 0)
    while start < len(path) and _is_inside_character(path, start):
        start += 1
    return "…" + path[start:] if width > 0 else ""


def count_with_noun(number: int, noun: str) -> str:
    """`1 edit`, `2 edits`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def count_text_lines(text: str) -> int:
    """How many lines a text has."""
    return text.count("\n") + (0 if text.endswith("\n") or not text else 1)


def _is_inside_character(text: str, place: int) -> bool:
    """Whether a cut before this place would tear a mark from its letter, or a joined sign apart."""
    after, before = text[place], text[place - 1]
    joined = _JOINER in (after, before) or ord(after) in _SKIN_TONES
    return joined or unicodedata.combining(after) > 0 or unicodedata.category(after) in ("Mn", "Me")
