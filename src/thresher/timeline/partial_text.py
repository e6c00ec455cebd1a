"""A text of which some lines are known: all of them, or runs of lines at their places.

Reads show a file in pieces, and edits change it between them. So a file is a row of runs; each run holds whole lines,
and its first line's number. Runs that touch become one, and one that starts at line 1 and reaches the end is the whole
text. What is replaced is looked for inside runs; where it stands in none of them, lines behind that place may have
moved, and only a run that starts at line 1 stays where it is.
"""

from collections.abc import Iterator
from typing import NamedTuple


class LineRun(NamedTuple):
    """Lines that follow each other; each has its end."""

    first: int
    text: str

    @property
    def stop(self) -> int:
        """The number of the line after the last."""
        return self.first + self.text.count("\n")


class PartialText(NamedTuple):
    """What is known of a text."""

    runs: tuple[LineRun, ...] = ()
    reaches_end: bool = False
    """The last run reaches the end."""
    lacks_final_newline: bool = False
    """The last line of the text has no line end."""

    @property
    def is_whole(self) -> bool:
        """Whether every line is known."""
        return self.reaches_end and len(self.runs) == 1 and self.runs[0].first == 1

    @property
    def text(self) -> str:
        """All that is known, with a line for each row of lines that is not."""
        if not self.runs:
            return ""
        rows: list[str] = []
        following = 1
        for run in self.runs:
            if run.first > following:
                rows.append(f"[… {format_line_range(following, run.first - 1)} not known …]\n")
            rows.append(run.text)
            following = run.stop
        if not self.reaches_end:
            rows.append(f"[… what follows line {following - 1} is not known …]\n")
        text = "".join(rows)
        return text[:-1] if self.reaches_end and self.lacks_final_newline else text

    def describe_unknown(self) -> Iterator[str]:
        """A sentence for each row of lines that is not known."""
        following = 1
        for run in self.runs:
            if run.first > following:
                yield f"{format_line_range(following, run.first - 1)} never shown"
            following = run.stop
        if not self.reaches_end:
            yield f"what follows line {following - 1} never shown"


UNKNOWN_TEXT = PartialText()


def make_whole_text(text: str) -> PartialText:
    """A text that is known in full."""
    return _with_end((), 1, text)


def format_line_range(first: int, last: int) -> str:
    """`line 4`, `lines 4-9`."""
    return f"line {first}" if first == last else f"lines {first}-{last}"


def _with_end(before: tuple[LineRun, ...], first: int, text: str) -> PartialText:
    """Runs whose last one is the end of the text, as it stands."""
    unfinished = bool(text) and not text.endswith("\n")
    return PartialText((*before, LineRun(first, f"{text}\n" if unfinished else text)), True, unfinished)


def _with_text(pieces: PartialText, place: int, text: str) -> PartialText:
    """The pieces with another text for one run; later runs move with it."""
    runs = pieces.runs
    if pieces.reaches_end and place == len(runs) - 1:
        return _with_end(runs[:place], runs[place].first, text)
    moved = text.count("\n") - runs[place].text.count("\n")
    later = tuple(LineRun(run.first + moved, run.text) for run in runs[place + 1 :])
    return pieces._replace(runs=(*runs[:place], LineRun(runs[place].first, text), *later))


def _own_text(pieces: PartialText, place: int) -> str:
    text = pieces.runs[place].text
    return text[:-1] if pieces.lacks_final_newline and pieces.reaches_end and place == len(pieces.runs) - 1 else text


def replace_text(pieces: PartialText, old: str, new: str, *, every: bool = False) -> tuple[PartialText, int]:
    """The pieces with one text in place of another, and how often that was found.

    Nothing changes where it was found more than once and not every one is meant. Found in no run, it stands where
    nothing is known.
    """
    texts = [_own_text(pieces, place) for place in range(len(pieces.runs))]
    counts = [text.count(old) for text in texts]
    found = sum(counts)
    moves = old.count("\n") != new.count("\n")
    if found > 1 and not every:
        return pieces, found
    if found == 0 or (every and not pieces.is_whole):
        pieces, texts = (_head(pieces), texts[:1]) if moves and not pieces.is_whole else (pieces, texts)
    for place in range(len(pieces.runs)):
        if counts[place]:
            pieces = _with_text(pieces, place, texts[place].replace(old, new))
    return pieces, found


def _head(pieces: PartialText) -> PartialText:
    """Only what stays at its place whatever happens behind it."""
    runs = tuple(run for run in pieces.runs[:1] if run.first == 1)
    return PartialText(runs)


def insert_lines(pieces: PartialText, after: int, text: str) -> tuple[PartialText, bool]:
    """The pieces with lines put in after a line (0: at the top), and whether their place was known."""
    text = text if text.endswith("\n") else f"{text}\n"
    for place, run in enumerate(pieces.runs):
        if run.first - 1 <= after < run.stop:
            rows = run.text.split("\n")
            at = after - run.first + 1
            changed = "\n".join(rows[:at]) + ("\n" if at else "") + text + "\n".join(rows[at:])
            return _with_text(pieces, place, changed), True
    kept = tuple(run for run in pieces.runs if run.stop <= after)
    height = text.count("\n")
    moved = tuple(LineRun(run.first + height, run.text) for run in pieces.runs if run.first > after)
    return pieces._replace(runs=(*kept, *moved)), False


def append_text(pieces: PartialText, text: str) -> PartialText:
    """The pieces with a text at the end, where the end is known."""
    if not pieces.reaches_end:
        return pieces
    last = len(pieces.runs) - 1
    return _with_text(pieces, last, _own_text(pieces, last) + text)


def merge_seen_lines(pieces: PartialText, first: int, text: str, *, ended: bool) -> tuple[PartialText, bool]:
    """The pieces with lines that were seen, and whether they are as they were known to be.

    Where they are not, only what was seen is known. What a tool prints need not say how the last line ends, and may
    leave out empty lines there; so these are not compared.
    """
    seen = (
        make_whole_text(text)
        if ended and first == 1
        else PartialText((LineRun(first, f"{text}\n" if text[-1:] != "\n" else text),), ended)
    )
    if not pieces.runs:
        return seen, True
    if not _is_consistent(pieces, seen.runs[0], ended=ended):
        return seen, False
    if pieces.is_whole:
        return pieces, True
    if seen.is_whole:
        return seen, True
    return _merge_runs(pieces, seen), True


def _is_consistent(pieces: PartialText, seen: LineRun, *, ended: bool) -> bool:
    rows = _rows(seen.text)
    for run in pieces.runs:
        low, high = max(seen.first, run.first), min(seen.stop, run.stop)
        if low < high:
            known = _rows(run.text)[low - run.first : high - run.first]
            if known != rows[low - seen.first : high - seen.first]:
                return False
    last = _last_nonempty_line(pieces.runs[-1])
    if pieces.reaches_end and _last_nonempty_line(seen) > last:
        return False  # the text was known to end before
    if not ended:
        return True
    return last < seen.stop and (not pieces.reaches_end or last < seen.first or last == _last_nonempty_line(seen))


def _last_nonempty_line(run: LineRun) -> int:
    """The number of the last line that is not empty; 0 where all are."""
    return run.first + run.text.rstrip("\n").count("\n") if run.text.strip("\n") else 0


def _rows(text: str) -> list[str]:
    rows = text.split("\n")
    return rows[:-1] if rows[-1] == "" else rows


def _merge_runs(pieces: PartialText, seen: PartialText) -> PartialText:
    """Both, runs that touch made one."""
    runs: list[LineRun] = []
    for run in sorted((*pieces.runs, *seen.runs)):
        if runs and run.first <= runs[-1].stop:
            known = runs[-1].stop - run.first
            rest = _rows(run.text)[known:] if known < run.text.count("\n") else []
            runs[-1] = LineRun(runs[-1].first, runs[-1].text + "".join(f"{row}\n" for row in rest))
        else:
            runs.append(run)
    ended = pieces.reaches_end or seen.reaches_end
    return PartialText(
        tuple(runs),
        ended,
        (pieces.reaches_end and pieces.lacks_final_newline) or (seen.reaches_end and seen.lacks_final_newline),
    )
