"""Matches of a pattern in the arguments of a call: in the decoded text of each string, so that JSON stays valid."""

import re
from collections.abc import Callable

from thresher.edits import Elision, find_json_strings
from thresher.model.jsontext import load_json

_ESCAPE = re.compile(r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|.)", re.DOTALL)


def find_argument_matches(arguments: str, find: Callable[[str], tuple[Elision, ...]]) -> tuple[Elision, ...]:
    """Return the spans that `find` matches: in each string value of a JSON text, or in free text."""
    if not arguments.lstrip().startswith(("{", "[", '"')):
        return find(arguments)
    gaps: list[Elision] = []
    for start, stop in find_json_strings(arguments):
        text, offsets = _decode_string(arguments[start:stop])
        matches = find(text) if text else ()
        gaps += (Elision(start + offsets(gap.start), start + offsets(gap.stop), gap.note) for gap in matches)
    return tuple(gaps)


def _decode_string(raw: str) -> tuple[str, Callable[[int], int]]:
    """Return the text of a JSON string, and a function from its positions to those in `raw`; empty if invalid."""
    if "\\" not in raw:
        return raw, int
    offsets: list[int] = []
    position = 0
    for escape in _ESCAPE.finditer(raw):
        offsets += range(position, escape.start() + 1)
        position = escape.end()
    offsets += range(position, len(raw) + 1)
    try:
        text = load_json(f'"{raw}"')
    except ValueError:
        return "", int
    return (text, offsets.__getitem__) if len(text) + 1 == len(offsets) else ("", int)
