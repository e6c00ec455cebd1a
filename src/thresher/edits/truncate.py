"""Choose spans to elide from a text: at character boundaries, and at line ends if one is near.

A note replaces each span and states the size of the original. Limits include the note, so that a truncated text is
not truncated again.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator

from thresher.edits.edit import Elision
from thresher.edits.placeholder import ID_SLOT
from thresher.model.jsontext import load_json
from thresher.model.text import find_even_length

LINE_SNAP_DISTANCE = 80
"""Maximum distance, in characters, to move a boundary to the end of a line."""
MIN_SAVING_DIVISOR = 10
"""Truncate only if the removed text is longer than one tenth of the text that stays."""
MIN_STRING_CHARS = 100
"""Characters that stay of each string in arguments, including the note."""
_JOINERS = "\u200d\ufe0f\ufe0e"


def keep_head_and_tail(text: str, head: int, tail: int) -> tuple[Elision, ...]:
    """Return the span to elide so that about `head` and `tail` characters stay; none if that removes too little."""
    note = _note(text)
    room = head + tail + len(note)
    return () if len(text) <= room + room // MIN_SAVING_DIVISOR else _elide_between(text, head, tail, note)


def _elide_between(text: str, head: int, tail: int, note: str) -> tuple[Elision, ...]:
    start = _line_end(text, _snap_to_character(text, head, -1), back=True)
    stop = _line_end(text, _snap_to_character(text, len(text) - tail, 1), back=False) if tail else len(text)
    return (Elision(start, stop, note),)


def elide_to_limit(text: str, limit: int, *, tail: float = 0.5) -> tuple[Elision, ...]:
    """Return the span to elide so that a text has at most `limit` characters, including the note.

    `tail` is the share of the kept characters that comes from the end of the text.
    """
    note = _note(text)
    if len(text) <= max(limit, len(note)):
        return ()
    room = max(0, limit - len(note))
    end = int(room * tail)
    return _elide_between(text, room - end, end, note)


def elide_further(text: str, gaps: tuple[Elision, ...], limit: int) -> tuple[Elision, ...]:
    """Return the span to elide so that a text that is already without `gaps` has at most `limit` characters."""
    found = elide_to_limit(apply_elisions(text, gaps), limit)
    return tuple([Elision(*to_original_span(gaps, gap), _note(text)) for gap in found])


def to_original_span(gaps: tuple[Elision, ...], span: Elision) -> tuple[int, int]:
    """Map a span of a text without `gaps` to the original text."""
    return (
        _to_original_position(gaps, span.start, after=False),
        _to_original_position(gaps, span.stop, after=True),
    )


def _to_original_position(gaps: tuple[Elision, ...], position: int, *, after: bool) -> int:
    """Map a position in a text without `gaps` to the original text.

    A position inside a note is mapped to the start or, with `after`, the end of the span that the note replaces.
    """
    shift = 0
    for gap in gaps:
        at = gap.start - shift
        if position <= at:
            break
        if position < at + len(gap.note):
            return gap.stop if after else gap.start
        shift += gap.stop - gap.start - len(gap.note)
    return position + shift


def _note(text: str) -> str:
    return f"\n[thresher {ID_SLOT} · truncated: {len(text):,} chars, {text.count(chr(10)) + 1:,} lines in total]\n"


def apply_elisions(text: str, gaps: tuple[Elision, ...]) -> str:
    """Return the text with each span replaced by its note."""
    kept: list[str] = []
    position = 0
    for start, stop, note in gaps:
        kept += (text[position:start], note)
        position = stop
    return "".join((*kept, text[position:]))


def _snap_to_character(text: str, position: int, step: int) -> int:
    """Move a position in the direction of `step` until it splits no combined character or emoji."""
    while 0 < position < len(text) and _splits_character(text, position):
        position += step
    return position


def clamp_elisions(gaps: Iterable[Elision], length: int) -> Iterator[Elision]:
    """Clip spans to the length of a text; omit spans outside it."""
    for start, stop, note in gaps:
        if start <= stop and start <= length and stop >= 0:
            yield Elision(max(0, start), min(stop, length), note)


def exclude_span(gaps: Iterable[Elision], kept: tuple[int, int]) -> Iterator[Elision]:
    """Yield the parts of spans outside the `kept` span. If a span is split, its note comes first."""
    first, last = kept
    for gap in gaps:
        pieces = [(gap.start, min(gap.stop, first)), (max(gap.start, last), gap.stop)]
        for number, (start, stop) in enumerate(piece for piece in pieces if piece[0] < piece[1]):
            yield Elision(start, stop, "\n…\n" if number else gap.note)


def merge_elisions(gaps: Iterable[Elision]) -> tuple[Elision, ...]:
    """Merge spans; overlapping ones become one span with the longer note.

    A note at the end of a condensed text is redundant if the note of a removed span names the same id.
    """
    merged: list[Elision] = []
    for start, stop, note in sorted(gaps):
        if merged and start < merged[-1].stop:
            last = merged[-1]
            merged[-1] = Elision(last.start, max(last.stop, stop), max(last.note, note, key=len))
        else:
            merged.append(Elision(start, stop, note))
    if any(_names_id(gap) and gap.start < gap.stop for gap in merged):
        merged = [gap for gap in merged if gap.start < gap.stop or not _names_id(gap)]
    return tuple(merged)


def _names_id(gap: Elision) -> bool:
    return ID_SLOT in gap.note


def _splits_character(text: str, position: int) -> bool:
    before, after = text[position - 1], text[position]
    if after in _JOINERS or before == "\u200d" or unicodedata.combining(after):
        return True
    if "\ud800" <= before <= "\udbff" and "\udc00" <= after <= "\udfff":
        return True
    return "\U0001f3fb" <= after <= "\U0001f3ff" or (_is_flag_letter(before) and _is_flag_letter(after))


def _is_flag_letter(character: str) -> bool:
    return "\U0001f1e6" <= character <= "\U0001f1ff"


def _line_end(text: str, position: int, *, back: bool) -> int:
    """Return a line end near a position, before it (`back`) or after it; if there is none, return the position."""
    if back:
        found = text.rfind("\n", max(0, position - LINE_SNAP_DISTANCE), position)
        return found + 1 if found > 0 else position
    found = text.find("\n", position, position + LINE_SNAP_DISTANCE)
    return found if found >= 0 else position


_STRING = re.compile(r'"(?:[^"\\]|\\.)*+(?P<end>"?)', re.DOTALL)
"""String, perhaps without its end: the search must not try the rest of the text again for each quote in it."""
_KEY = re.compile(r"\s*:")
_ESCAPE = re.compile(r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|.)", re.DOTALL)


def find_json_strings(text: str) -> Iterator[tuple[int, int]]:
    """Yield the start and the end of each string value in a JSON text, without its quotes; no names of fields."""
    for found in _STRING.finditer(text):
        if found["end"] and not _KEY.match(text, found.end()):
            yield found.start() + 1, found.end() - 1


def elide_long_arguments(arguments: str, limit: int) -> tuple[Elision, ...]:
    """Return the spans to elide so that each string in a JSON text has at most `limit` characters, if notes fit."""
    gaps: list[Elision] = []
    for first, end in find_json_strings(arguments):
        if end - first <= limit:
            continue
        note = f" … [thresher {ID_SLOT} · truncated: {end - first:,} chars in total] … "
        room = max(0, limit - len(note)) // 2
        start = _snap_to_escape(arguments, first, first + room, -1)
        stop = _snap_to_escape(arguments, first, end - room, 1)
        if stop - start > len(note):
            gaps.append(Elision(start, stop, note))
    return tuple(gaps)


def _snap_to_escape(text: str, first: int, position: int, step: int) -> int:
    """Move a position in the direction of `step` out of an escape sequence or a combined character."""
    before = max(first, position - 12)
    while before > first and text[before - 1] == "\\":
        before -= 1
    for escape in _ESCAPE.finditer(text, before, min(len(text), position + 12)):
        if escape.start() < position < escape.end():
            return escape.start() if step < 0 else escape.end()
    return _snap_to_character(text, position, step)


def elide_arguments_to_limit(arguments: str, limit: int) -> tuple[Elision, ...]:
    """Return the spans to elide so that arguments have at most `limit` characters, if strings of 100 permit it."""
    lengths = [stop - start for start, stop in find_json_strings(arguments)]
    excess = len(arguments) - limit
    if excess <= 0 or not lengths:
        return ()
    return elide_long_arguments(arguments, max(MIN_STRING_CHARS, find_even_length(lengths, sum(lengths) - excess)))


def is_still_json(before: str, after: str) -> bool:
    """Return False if `before` is JSON and `after` is not; otherwise True."""
    return not _is_json(before) or _is_json(after)


def _is_json(text: str) -> bool:
    try:
        load_json(text)
    except (ValueError, RecursionError):
        return False
    return True
