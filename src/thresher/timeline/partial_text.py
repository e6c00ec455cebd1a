"""A partially known text: all lines, or runs of consecutive lines at known positions.

Reads show parts of a file, and edits change it in between. The text is therefore a list of runs; each has whole lines
and the number of its first line. Adjacent runs are merged, and a run that starts at line 1 and reaches the end is the
whole text. The old text of an edit is searched inside runs. If no run contains it, an edit that changes the number of
lines may have moved the known lines, so only a run that starts at line 1 is kept.
"""

from collections.abc import Iterator
from typing import NamedTuple


class LineRun(NamedTuple):
    """Consecutive lines, each with its line end."""

    first: int
    text: str

    @property
    def stop(self) -> int:
        """The number of the line after the last one."""
        return self.first + self.text.count("\n")


class PartialText(NamedTuple):
    """The known lines of a text."""

    runs: tuple[LineRun, ...] = ()
    reaches_end: bool = False
    """True if the last run reaches the end of the text."""
    lacks_final_newline: bool = False
    """True if the last line has no line end."""

    @property
    def is_whole(self) -> bool:
        """True if every line is known."""
        return self.reaches_end and len(self.runs) == 1 and self.runs[0].first == 1

    @property
    def text(self) -> str:
        """The known lines, with a marker line for each unknown range."""
        if not self.runs:
            return ""
        texts = [f"[… {unknown} unknown …]\n{run.text}" if unknown else run.text for unknown, run in self._ranges()]
        if self.reaches_end:
            text = "".join(texts)
            return text[:-1] if self.lacks_final_newline else text
        return "".join([*texts, f"[… text after line {self.runs[-1].stop - 1} unknown …]\n"])

    def describe_unknown(self) -> Iterator[str]:
        """Yield a description of each unknown range of lines."""
        yield from (f"{unknown} never shown" for unknown, _ in self._ranges() if unknown)
        if not self.reaches_end:
            yield f"text after line {self.runs[-1].stop - 1 if self.runs else 0} never shown"

    def _ranges(self) -> Iterator[tuple[str, LineRun]]:
        """Yield each run with the unknown range of lines before it, or an empty string if there is none."""
        previous_stop = 1
        for run in self.runs:
            yield format_line_range(previous_stop, run.first - 1) if run.first > previous_stop else "", run
            previous_stop = run.stop


UNKNOWN_TEXT = PartialText()


def make_whole_text(text: str) -> PartialText:
    """Return a completely known text."""
    return _with_end((), 1, text)


def format_line_range(first: int, last: int) -> str:
    """Format a range: `line 4`, `lines 4-9`."""
    return f"line {first}" if first == last else f"lines {first}-{last}"


def _with_end(before: tuple[LineRun, ...], first: int, text: str) -> PartialText:
    """Return a text whose last run reaches the end, with or without a final line end."""
    unfinished = bool(text) and not text.endswith("\n")
    return PartialText((*before, LineRun(first, f"{text}\n" if unfinished else text)), True, unfinished)


def _with_text(known: PartialText, index: int, text: str) -> PartialText:
    """Replace the text of one run and shift the later runs."""
    runs = known.runs
    if known.reaches_end and index == len(runs) - 1:
        return _with_end(runs[:index], runs[index].first, text)
    moved = text.count("\n") - runs[index].text.count("\n")
    later = tuple(LineRun(run.first + moved, run.text) for run in runs[index + 1 :])
    return known._replace(runs=(*runs[:index], LineRun(runs[index].first, text), *later))


def _own_text(known: PartialText, index: int) -> str:
    text = known.runs[index].text
    return text[:-1] if known.lacks_final_newline and known.reaches_end and index == len(known.runs) - 1 else text


def replace_text(known: PartialText, old: str, new: str, *, every: bool = False) -> tuple[PartialText, int]:
    """Replace a text and return the result and the number of matches.

    Several matches change nothing unless `every` is set. Without a match, the replaced text must be in an unknown
    range.
    """
    texts = [_own_text(known, index) for index in range(len(known.runs))]
    counts = [text.count(old) for text in texts]
    matches = sum(counts)
    moves = old.count("\n") != new.count("\n")
    if matches > 1 and not every:
        return known, matches
    if matches == 0 or (every and not known.is_whole):
        known, texts = (_head(known), texts[:1]) if moves and not known.is_whole else (known, texts)
    for index in range(len(known.runs)):
        if counts[index]:
            known = _with_text(known, index, texts[index].replace(old, new))
    return known, matches


def _head(known: PartialText) -> PartialText:
    """Keep only the first run, and only if it starts at line 1."""
    runs = tuple(run for run in known.runs[:1] if run.first == 1)
    return PartialText(runs)


def insert_lines(known: PartialText, after: int, text: str) -> tuple[PartialText, bool]:
    """Insert lines after a line (0: at the top). Also return True if that position is in a known run."""
    text = text if text.endswith("\n") else f"{text}\n"
    for index, run in enumerate(known.runs):
        if run.first - 1 <= after < run.stop:
            rows = run.text.split("\n")
            at = after - run.first + 1
            changed = "\n".join(rows[:at]) + ("\n" if at else "") + text + "\n".join(rows[at:])
            return _with_text(known, index, changed), True
    kept = tuple(run for run in known.runs if run.stop <= after)
    height = text.count("\n")
    moved = tuple(LineRun(run.first + height, run.text) for run in known.runs if run.first > after)
    return known._replace(runs=(*kept, *moved)), False


def append_text(known: PartialText, text: str) -> PartialText:
    """Append to a text, if its end is known."""
    if not known.reaches_end:
        return known
    last = len(known.runs) - 1
    return _with_text(known, last, _own_text(known, last) + text)


def merge_seen_lines(known: PartialText, first: int, text: str, *, ended: bool) -> tuple[PartialText, bool]:
    """Merge lines that a read shows. Also return whether they agree with the known ones.

    If they disagree, only the lines of the read are known. Tools may omit the final line end and empty lines before it,
    so these are not compared.
    """
    run = LineRun(first, f"{text}\n" if text[-1:] != "\n" else text)
    seen = make_whole_text(text) if ended and first == 1 else PartialText((run,), ended)
    if not known.runs:
        return seen, True
    if not _is_consistent(known, seen.runs[0], ended=ended):
        return seen, False
    if known.is_whole:
        return known, True
    if seen.is_whole:
        return seen, True
    return _merge_runs(known, seen), True


def _is_consistent(known: PartialText, seen: LineRun, *, ended: bool) -> bool:
    rows = _rows(seen.text)
    for run in known.runs:
        low, high = max(seen.first, run.first), min(seen.stop, run.stop)
        if low < high:
            known_rows = _rows(run.text)[low - run.first : high - run.first]
            if known_rows != rows[low - seen.first : high - seen.first]:
                return False
    last = _last_nonempty_line(known.runs[-1])
    if known.reaches_end and _last_nonempty_line(seen) > last:
        return False  # the known text ends before these lines
    if not ended:
        return True
    return last < seen.stop and (not known.reaches_end or last < seen.first or last == _last_nonempty_line(seen))


def _last_nonempty_line(run: LineRun) -> int:
    """Return the number of the last line that is not empty, or 0."""
    return run.first + run.text.rstrip("\n").count("\n") if run.text.strip("\n") else 0


def _rows(text: str) -> list[str]:
    rows = text.split("\n")
    return rows[:-1] if rows[-1] == "" else rows


def _merge_runs(known: PartialText, seen: PartialText) -> PartialText:
    """Merge overlapping and adjacent runs."""
    runs: list[LineRun] = []
    for run in sorted((*known.runs, *seen.runs)):
        if runs and run.first <= runs[-1].stop:
            overlap = runs[-1].stop - run.first
            rest = _rows(run.text)[overlap:] if overlap < run.text.count("\n") else []
            runs[-1] = LineRun(runs[-1].first, runs[-1].text + "".join(f"{row}\n" for row in rest))
        else:
            runs.append(run)
    ended = known.reaches_end or seen.reaches_end
    is_open = any(text.reaches_end and text.lacks_final_newline for text in (known, seen))
    return PartialText(tuple(runs), ended, is_open)
