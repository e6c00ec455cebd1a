"""Format a plan as text: edits by policy and reason, with the tokens that they save."""

from collections.abc import Iterable

from thresher.edits.edit import Edit, Summarize

UNREPORTED_REFUSALS = (
    "another edit takes precedence", "already summarized", "already a placeholder", "contains a person's words"
)  # fmt: skip
"""Reasons for refusals that a plan's explanation omits, because another edit already covers the part."""
MAX_LISTED_MESSAGES = 5
"""Maximum number of message numbers to list; of the others, only the count is shown."""
EDIT_LABELS = {"Drop": "dropped", "Replace": "replaced", "Truncate": "truncated", "Summarize": "summarized"}


def summarize_edits(edits: Iterable[Edit]) -> list[tuple[str, str, str, int, int, int]]:
    """Return one row per policy, kind of edit and reason: parts, tokens before and after; largest savings first."""
    sums: dict[tuple[str, str, str], list[int]] = {}
    for edit in edits:
        total = sums.setdefault((edit.policy, EDIT_LABELS[type(edit).__name__], edit.why), [0, 0, 0])
        total[0] += len(edit.targets) if isinstance(edit, Summarize) else 1
        total[1] += edit.before
        total[2] += edit.before - edit.saved
    found = [(*key, total[0], total[1], total[2]) for key, total in sums.items()]
    return sorted(found, key=lambda row: (row[5] - row[4], row[0], row[1], row[2]))


def format_message_numbers(found: list[int]) -> str:
    """List the first message numbers, and count the rest."""
    more = f" and {len(found) - MAX_LISTED_MESSAGES} more" if len(found) > MAX_LISTED_MESSAGES else ""
    return ", ".join(map(str, found[:MAX_LISTED_MESSAGES])) + more


def format_edit_table(table: list[tuple[str, str, str, int, int, int]]) -> list[str]:
    """Format the rows of `summarize_edits` as an aligned table."""
    cells = [("policy", "", "parts", "before", "after", "why")]
    cells += [(p, done, f"{n:,}", f"{before:,}", f"{after:,}", why) for p, done, why, n, before, after in table]
    widths = [max(len(row[column]) for row in cells) for column in range(5)]
    return ["  " + "  ".join(_cell(row, column, widths) for column in range(6)).rstrip() for row in cells]


def _cell(row: tuple[str, ...], column: int, widths: list[int]) -> str:
    if column < 2:
        return row[column].ljust(widths[column])
    return row[column].rjust(widths[column]) if column < 5 else row[column]
