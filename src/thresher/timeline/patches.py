"""Parse and apply patches of the `*** Begin Patch` format.

A hunk consists of lines to find and their replacement. The lines are searched after the previous hunk, first exactly
and then with increasing tolerance for whitespace. The tools that apply such patches do the same, so the result is the
text that they wrote.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

_SECTION = re.compile(r"^\*\*\* (Update|Add|Delete) File: ([^\r\n]+)$", re.MULTILINE)
_MOVE = re.compile(r"\A\s*\*\*\* Move to: ([^\r\n]+)")
_END = re.compile(r"^\*\*\* End Patch[^\n]*$.*", re.MULTILINE | re.DOTALL)
_LINE_NORMALIZERS: tuple[Callable[[str], str], ...] = (str, str.rstrip, str.strip)


class PatchHunk(NamedTuple):
    """Lines to find and their replacement."""

    context_lines: tuple[str, ...]
    """Lines to find before the old lines, one after the other."""
    old: tuple[str, ...]
    new: tuple[str, ...]
    at_end: bool = False


class PatchSection(NamedTuple):
    """The changes of a patch to one file."""

    verb: str
    """Update, Add or Delete."""
    path: str
    to: str
    hunks: tuple[PatchHunk, ...]
    text: str
    """Content of an added file."""


def parse_patch_sections(patch: str) -> Iterator[PatchSection]:
    """Yield the section of each file, in order."""
    patch = _END.sub("", patch.replace("\r\n", "\n"))
    headers = list(_SECTION.finditer(patch))
    stops = [header.start() for header in headers[1:]] + [len(patch)]
    for header, stop in zip(headers, stops, strict=False):
        body = patch[header.end() + 1 : stop]
        moved = _MOVE.match(body)
        rows = (body[moved.end() + 1 :] if moved else body).removesuffix("\n").split("\n")
        added = "".join(f"{row[1:]}\n" for row in rows if row.startswith("+")) if header[1] == "Add" else ""
        hunks = tuple(_hunks(rows)) if header[1] == "Update" else ()
        yield PatchSection(header[1], header[2].strip(), moved[1].strip() if moved else "", hunks, added)


def _hunks(rows: Sequence[str]) -> Iterator[PatchHunk]:
    after: list[str] = []
    old: list[str] = []
    new: list[str] = []
    for row in [*rows, "@@"]:
        if row.startswith("@@"):
            if old or new:
                yield PatchHunk(tuple(after), tuple(old), tuple(new))
                after, old, new = [], [], []
            after += [row[2:].strip()] if row[2:].strip() else []
        elif row.startswith("*** End of File"):
            yield PatchHunk(tuple(after), tuple(old), tuple(new), at_end=True)
            after, old, new = [], [], []
        elif row.startswith(("+", "-", " ")) or not row:
            old += [row[1:]] if row[:1] != "+" else []
            new += [row[1:]] if row[:1] != "-" else []


def apply_patch_hunks(text: str, hunks: Sequence[PatchHunk]) -> str | None:
    """Apply all hunks to a text. Return None if one does not match."""
    rows = text.split("\n")
    rows = rows[:-1] if rows[-1] == "" else rows
    made: list[str] = []
    position = 0
    for hunk in hunks:
        start = position
        for mark in hunk.context_lines:
            index = _find(rows, (mark,), start)
            if index is None:
                return None
            start = index + 1
        if not hunk.old:
            made += rows[position:] + list(hunk.new)
            position = len(rows)
            continue
        placed = _locate_hunk(rows, hunk, start)
        if placed is None:
            return None
        at, old, new = placed
        made += [*rows[position:at], *new]
        position = at + len(old)
    return "".join(f"{row}\n" for row in [*made, *rows[position:]])


def _locate_hunk(rows: Sequence[str], hunk: PatchHunk, start: int) -> tuple[int, Sequence[str], Sequence[str]] | None:
    """Return the position, old lines and new lines of a hunk, without a final empty line that the text lacks."""
    old, new = hunk.old, hunk.new
    at = _find(rows, old, start, at_end=hunk.at_end)
    if at is None and old[-1] == "":
        old, new = old[:-1], new[:-1] if new and new[-1] == "" else new
        at = _find(rows, old, start, at_end=hunk.at_end) if old else None
    return (at, old, new) if at is not None else None


def _find(rows: Sequence[str], wanted: Sequence[str], start: int, *, at_end: bool = False) -> int | None:
    """Return the first match of some lines from a start line on. With `at_end`, prefer a match at the end."""
    for look in _LINE_NORMALIZERS:
        # Match on joined text, which takes linear time for any lines.
        text = "".join(f"\n{look(row)}" for row in rows[start:]) + "\n"
        lines = "".join(f"\n{look(row)}" for row in wanted) + "\n"
        if at_end and text.endswith(lines):
            return len(rows) - len(wanted)
        at = text.find(lines)
        if at >= 0:
            return start + text.count("\n", 0, at)
    return None
