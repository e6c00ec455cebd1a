"""A text of which some lines are known: all of them, or runs of lines at their places.

Reads show a file in pieces, and edits change it between them. So a file is a row of runs; each run holds whole lines,
and its first line's number. Runs that touch become one, and one that starts at line 1 and reaches the end is the whole
text. What is replaced is looked for inside runs; where it stands in none of them, lines behind that place may have
moved, and only a run that starts at line 1 stays where it is.
"""

from collections.abc import Iterator
from typing import NamedTuple


class Run(NamedTuple):
    """Lines that follow each other; each has its end."""

    first: int
    text: str

    @property
    def stop(self) -> int:
        """The number of the line after the last."""
        return self.first + self.text.count("\n")


class Pieces(NamedTuple):
    """What is known of a text."""

    runs: tuple[Run, ...] = ()
    ended: bool = False
    """The last run reaches the end."""
    unfinished: bool = False
    """The last line of the text has no line end."""

    @property
    def is_whole(self) -> bool:
        """Whether every line is known."""
        return self.ended and len(self.runs) == 1 and self.runs[0].first == 1

    @property
    def text(self) -> str:
        """All that is known, with a line for each row of lines that is not."""
        if not self.runs:
            return ""
        rows: list[str] = []
        following = 1
        for run in self.runs:
            if run.first > following:
                rows.append(f"[… {lines_named(following, run.first - 1)} not known …]\n")
            rows.append(run.text)
            following = run.stop
        if not self.ended:
            rows.append(f"[… what follows line {following - 1} is not known …]\n")
        text = "".join(rows)
        return text[:-1] if self.ended and self.unfinished else text

    def unknown(self) -> Iterator[str]:
        """A sentence for each row of lines that is not known."""
        following = 1
        for run in self.runs:
            if run.first > following:
                yield f"{lines_named(following, run.first - 1)} never shown"
            following = run.stop
        if not self.ended:
            yield f"what follows line {following - 1} never shown"


NOTHING = Pieces()


def whole(text: str) -> Pieces:
    """A text that is known in full."""
    return _ended((), 1, text)


def lines_named(first: int, last: int) -> str:
    """`line 4`, `lines 4-9`."""
    return f"line {first}" if first == last else f"lines {first}-{last}"


def _ended(before: tuple[Run, ...], first: int, text: str) -> Pieces:
    """Runs whose last one is the end of the text, as it stands."""
    unfinished = bool(text) and not text.endswith("\n")
    return Pieces((*before, Run(first, f"{text}\n" if unfinished else text)), True, unfinished)


def _with_text(pieces: Pieces, place: int, text: str) -> Pieces:
    """The pieces with another text for one run; later runs move with it."""
    runs = pieces.runs
    if pieces.ended and place == len(runs) - 1:
        return _ended(runs[:place], runs[place].first, text)
    moved = text.count("\n") - runs[place].text.count("\n")
    later = tuple(Run(run.first + moved, run.text) for run in runs[place + 1 :])
    return pieces._replace(runs=(*runs[:place], Run(runs[place].first, text), *later))


def _own_text(pieces: Pieces, place: int) -> str:
    text = pieces.runs[place].text
    return text[:-1] if pieces.unfinished and pieces.ended and place == len(pieces.runs) - 1 else text


def swapped(pieces: Pieces, old: str, new: str, *, every: bool = False) -> tuple[Pieces, int]:
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


def _head(pieces: Pieces) -> Pieces:
    """Only what stays at its place whatever happens behind it."""
    runs = tuple(run for run in pieces.runs[:1] if run.first == 1)
    return Pieces(runs)


def inserted(pieces: Pieces, after: int, text: str) -> tuple[Pieces, bool]:
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
    moved = tuple(Run(run.first + height, run.text) for run in pieces.runs if run.first > after)
    return pieces._replace(runs=(*kept, *moved)), False


def appended(pieces: Pieces, text: str) -> Pieces:
    """The pieces with a text at the end, where the end is known."""
    if not pieces.ended:
        return pieces
    last = len(pieces.runs) - 1
    return _with_text(pieces, last, _own_text(pieces, last) + text)


def shown(pieces: Pieces, first: int, text: str, *, ended: bool) -> tuple[Pieces, bool]:
    """The pieces with lines that were seen, and whether they are as they were known to be.

    Where they are not, only what was seen is known. What a tool prints need not say how the last line ends, and may
    leave out empty lines there; so these are not compared.
    """
    seen = (
        whole(text)
        if ended and first == 1
        else Pieces((Run(first, f"{text}\n" if text[-1:] != "\n" else text),), ended)
    )
    if not pieces.runs:
        return seen, True
    if not _agree(pieces, seen.runs[0], ended=ended):
        return seen, False
    if pieces.is_whole:
        return pieces, True
    if seen.is_whole:
        return seen, True
    return _joined(pieces, seen), True


def _agree(pieces: Pieces, seen: Run, *, ended: bool) -> bool:
    rows = _rows(seen.text)
    for run in pieces.runs:
        low, high = max(seen.first, run.first), min(seen.stop, run.stop)
        if low < high:
            known = _rows(run.text)[low - run.first : high - run.first]
            if known != rows[low - seen.first : high - seen.first]:
                return False
    last = _last_said(pieces.runs[-1])
    if pieces.ended and _last_said(seen) > last:
        return False  # the text was known to end before
    if not ended:
        return True
    return last < seen.stop and (not pieces.ended or last < seen.first or last == _last_said(seen))


def _last_said(run: Run) -> int:
    """The number of the last line that is not empty; 0 where all are."""
    return run.first + run.text.rstrip("\n").count("\n") if run.text.strip("\n") else 0


def _rows(text: str) -> list[str]:
    rows = text.split("\n")
    return rows[:-1] if rows[-1] == "" else rows


def _joined(pieces: Pieces, seen: Pieces) -> Pieces:
    """Both, runs that touch made one."""
    runs: list[Run] = []
    for run in sorted((*pieces.runs, *seen.runs)):
        if runs and run.first <= runs[-1].stop:
            known = runs[-1].stop - run.first
            rest = _rows(run.text)[known:] if known < run.text.count("\n") else []
            runs[-1] = Run(runs[-1].first, runs[-1].text + "".join(f"{row}\n" for row in rest))
        else:
            runs.append(run)
    ended = pieces.ended or seen.ended
    return Pieces(tuple(runs), ended, (pieces.ended and pieces.unfinished) or (seen.ended and seen.unfinished))
