"""Count the lines that a change adds and removes: the difference of the two multisets of lines."""

from collections import Counter
from typing import assert_never

from thresher.timeline.actions import LineInsertion, PatchChange, TextChange, TextReplacement


def count_line_changes(old: str, new: str) -> tuple[int, int]:
    """Return the numbers of added and removed lines. A moved line counts as neither."""
    before, after = Counter(_rows(old)), Counter(_rows(new))
    return (after - before).total(), (before - after).total()


def measure_text_change(change: TextChange) -> tuple[int, int]:
    """Return the numbers of added and removed lines of one change."""
    match change:
        case TextReplacement():
            return count_line_changes(change.old, change.new)
        case LineInsertion():
            return count_line_changes("", change.text)
        case PatchChange():
            both = [count_line_changes("\n".join(hunk.old), "\n".join(hunk.new)) for hunk in change.hunks]
            return sum(came for came, _ in both), sum(went for _, went in both)
        case _:
            assert_never(change)


def _rows(text: str) -> list[str]:
    rows = text.split("\n")
    return rows[:-1] if rows[-1] == "" else rows
