"""Format the difference of two texts as a unified diff."""

from collections.abc import Iterator, Sequence
from difflib import unified_diff

MOST_LINES = 20_000
"""Larger texts get a single hunk between their common prefix and suffix, because `difflib` takes quadratic time."""
CONTEXT = 3


def format_unified_diff(old: str | None, new: str | None, path: str) -> str:
    """Return the diff of two texts. None means that the file does not exist."""
    if old == new:
        return ""
    name = path.lstrip("/").replace("\n", " ")
    before = "/dev/null" if old is None else f"a/{name}"
    after = "/dev/null" if new is None else f"b/{name}"
    first, second = (old or "").splitlines(keepends=True), (new or "").splitlines(keepends=True)
    if len(first) + len(second) > MOST_LINES:
        rows = _diff_ends(first, second, before, after)
    else:
        rows = unified_diff(first, second, before, after, n=CONTEXT)
    return "".join(row if row.endswith("\n") else f"{row}\n\\ No newline at end of file\n" for row in rows)


def _diff_ends(first: Sequence[str], second: Sequence[str], before: str, after: str) -> Iterator[str]:
    """Yield a single hunk between the common first lines and the common last lines."""
    least = min(len(first), len(second))
    start = next((at for at in range(least) if first[at] != second[at]), least)
    end = next((at for at in range(least - start) if first[-1 - at] != second[-1 - at]), least - start)
    low, rest = max(start - CONTEXT, 0), min(end, CONTEXT)
    gone, came = first[start : len(first) - end], second[start : len(second) - end]
    lead, trail = first[low:start], first[len(first) - end : len(first) - end + rest]
    sizes = len(lead) + len(gone) + len(trail), len(lead) + len(came) + len(trail)
    yield f"--- {before}\n"
    yield f"+++ {after}\n"
    yield f"@@ -{low + 1},{sizes[0]} +{low + 1},{sizes[1]} @@\n"
    for sign, rows in ((" ", lead), ("-", gone), ("+", came), (" ", trail)):
        yield from (f"{sign}{row}" for row in rows)
