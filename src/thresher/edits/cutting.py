"""Where a text may be cut: between characters, not inside one; at a line's end where one is near.

A gap's note says what is missing, and every limit includes it, so that what was cut once is short enough for ever.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator

from thresher.edits.edit import Gap
from thresher.edits.standin import ID
from thresher.model.jsontext import load

NEAR = 80
"""How far a cut moves to end with a whole line."""
LITTLE = 10
"""A cut takes away a tenth at least: less is not worth the hole."""
_JOINERS = "\u200d\ufe0f\ufe0e"


def head_and_tail(text: str, head: int, tail: int) -> tuple[Gap, ...]:
    """Keep so many characters of both ends, with the size of the whole said between; nothing if little would go."""
    note = _note(text)
    room = head + tail + len(note)
    return () if len(text) <= room + room // LITTLE else _gap(text, head, tail, note)


def _gap(text: str, head: int, tail: int, note: str) -> tuple[Gap, ...]:
    start = _line_end(text, _whole(text, head, -1), back=True)
    stop = _line_end(text, _whole(text, len(text) - tail, 1), back=False) if tail else len(text)
    return (Gap(start, stop, note),)


def to_limit(text: str, limit: int, *, tail: float = 0.5) -> tuple[Gap, ...]:
    """Cut a text to at most `limit` characters, the note included; `tail` is the share kept of its end."""
    note = _note(text)
    if len(text) <= max(limit, len(note)):
        return ()
    room = max(0, limit - len(note))
    end = int(room * tail)
    return _gap(text, room - end, end, note)


def _note(text: str) -> str:
    return f"\n[thresher {ID} · cut: {len(text):,} chars, {text.count(chr(10)) + 1:,} lines in all]\n"


def cut(text: str, gaps: tuple[Gap, ...]) -> str:
    """The text with its gaps."""
    kept: list[str] = []
    position = 0
    for start, stop, note in gaps:
        kept += (text[position:start], note)
        position = stop
    return "".join((*kept, text[position:]))


def _whole(text: str, position: int, step: int) -> int:
    """The next place in that direction that does not part a character from its marks, or an emoji from its next."""
    while 0 < position < len(text) and _joins(text, position):
        position += step
    return position


def within(gaps: Iterable[Gap], length: int) -> Iterator[Gap]:
    """The gaps, as far as they are in a text of that length."""
    for start, stop, note in gaps:
        if start <= stop and start <= length and stop >= 0:
            yield Gap(max(0, start), min(stop, length), note)


def joined(gaps: Iterable[Gap]) -> tuple[Gap, ...]:
    """Gaps of two cuts as one cut: where they meet they become one, with the longer note."""
    merged: list[Gap] = []
    for start, stop, note in sorted(gaps):
        if merged and start < merged[-1].stop:
            last = merged[-1]
            merged[-1] = Gap(last.start, max(last.stop, stop), max(last.note, note, key=len))
        else:
            merged.append(Gap(start, stop, note))
    return tuple(merged)


def _joins(text: str, position: int) -> bool:
    before, after = text[position - 1], text[position]
    if after in _JOINERS or before == "\u200d" or unicodedata.combining(after):
        return True
    if "\ud800" <= before <= "\udbff" and "\udc00" <= after <= "\udfff":
        return True
    return "\U0001f3fb" <= after <= "\U0001f3ff" or (_flag(before) and _flag(after))


def _flag(character: str) -> bool:
    return "\U0001f1e6" <= character <= "\U0001f1ff"


def _line_end(text: str, position: int, *, back: bool) -> int:
    """A line's end close by, or the place itself."""
    if back:
        found = text.rfind("\n", max(0, position - NEAR), position)
        return found + 1 if found > 0 else position
    found = text.find("\n", position, position + NEAR)
    return found if found >= 0 else position


_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_KEY = re.compile(r"\s*:")
_ESCAPE = re.compile(r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|.)", re.DOTALL)


def cut_arguments(arguments: str, limit: int) -> tuple[Gap, ...]:
    """Shorten the long strings in a JSON text, each to about `limit` characters; what comes out is still JSON."""
    gaps: list[Gap] = []
    for found in _STRING.finditer(arguments):
        inside = found.end() - found.start() - 2
        if inside <= limit or _KEY.match(arguments, found.end()):
            continue
        note = f" … [thresher {ID} · cut: {inside:,} chars in all] … "
        room = max(0, limit - len(note)) // 2
        start = _escape_start(arguments, found.start() + 1, found.start() + 1 + room)
        stop = _escape_start(arguments, found.start() + 1, found.end() - 1 - room)
        if stop - start > len(note):
            gaps.append(Gap(start, stop, note))
    return tuple(gaps)


def _escape_start(text: str, first: int, position: int) -> int:
    """The place, moved in front of an escape or a character that it would split."""
    before = max(first, position - 12)
    while before > first and text[before - 1] == "\\":
        before -= 1
    for escape in _ESCAPE.finditer(text, before, min(len(text), position + 12)):
        if escape.start() < position < escape.end():
            return escape.start()
    return _whole(text, position, -1)


def still_json(before: str, after: str) -> bool:
    """Whether a text that was JSON still is."""
    return not _is_json(before) or _is_json(after)


def _is_json(text: str) -> bool:
    try:
        load(text)
    except (ValueError, RecursionError):
        return False
    return True
