"""What is known of every file while a session is gone through, and the gaps: each with its beginning and end.

Every action has a number. For each file two texts are kept. `fresh` is what was seen or written since the last doubt;
as soon as that is the whole file, it is exact again. `stale` is the last that was known before the doubt: edits go
into both, and where only the stale one is whole, it is the best answer there is.

A gap covers the numbers from the action that opened it up to the one that shows or writes the whole file. Where a read
shows other lines than those that were known, the file changed outside the record at some time since it was last seen;
so such a gap begins there, before the read that tells it.
"""

from bisect import bisect_right
from collections.abc import Iterator
from typing import assert_never

from msgspec import Struct

from thresher.timeline.actions import (
    Action,
    Change,
    Copy,
    Delete,
    Doubt,
    Edit,
    Hunks,
    Insert,
    Move,
    Read,
    Swap,
    Sweep,
    Write,
)
from thresher.timeline.counting import counted, difference
from thresher.timeline.patches import patched
from thresher.timeline.pieces import NOTHING, Pieces, appended, inserted, shown, swapped, whole
from thresher.timeline.showing import Shown, shown_by, snippet_of

Counted = tuple[int, int]


class Gap(Struct):
    """Why a file is not known, and from which action to which (not included)."""

    text: str
    start: int
    stop: int | None = None


class Known(Struct):
    """What is known of one file."""

    path: str
    fresh: Pieces = NOTHING
    stale: Pieces = NOTHING
    gone: bool = False
    order: int = -1
    """The last action that told something of it, and the turn of that."""
    turn: int = 0
    swept: int = -1
    """Sweeps up to this action are taken in."""
    gaps: list[Gap] = []
    open: list[Gap] = []

    @property
    def best(self) -> Pieces:
        """The most that can be said of its text."""
        if self.fresh.is_whole or not self.stale.runs:
            return self.fresh
        return self.stale if self.stale.is_whole or not self.fresh.runs else self.fresh

    @property
    def is_exact(self) -> bool:
        """Whether the text, or that there is none, is known."""
        return (self.gone or self.fresh.is_whole) and not self.open

    def gaps_at(self, order: int) -> Iterator[str]:
        """What is not known after an action, whenever that came out."""
        yield from (gap.text for gap in self.gaps if gap.start <= order and (gap.stop is None or order < gap.stop))


class Book:
    """All files, as far as the actions that were taken in tell."""

    def __init__(self) -> None:
        """Nothing is known."""
        self.files: dict[str, Known] = {}
        self._sweeps: dict[str, list[tuple[int, str]]] = {}

    def take(self, order: int, turn: int, action: Action) -> Counted:
        """Take in the next action; the lines that came and went."""
        if isinstance(action, Sweep):
            self._sweeps.setdefault(action.folder, []).append(
                (order, f"turn {turn}: {action.what} may have changed files")
            )
            return 0, 0
        file = self.settled(action.path)
        before = file.order, file.turn
        lines = self._done(file, order, turn, action)
        if (file.order, file.turn) == before and isinstance(action, Write | Edit | Delete | Move):
            file.order, file.turn = order, turn
        return lines

    def settled(self, path: str) -> Known:
        """A file, with the sweeps since it was last looked at."""
        file = self.files.get(path)
        if file is None:
            file = self.files[path] = Known(path, gaps=[], open=[])
        for folder, sweeps in self._sweeps.items():
            if not folder or path.startswith(f"{folder}/"):
                at = bisect_right(sweeps, file.swept, key=lambda sweep: sweep[0])
                if at < len(sweeps):
                    _doubt(file, sweeps[at][0], sweeps[at][1])
        file.swept = max([file.swept, *(sweeps[-1][0] for sweeps in self._sweeps.values())])
        return file

    def _done(self, file: Known, order: int, turn: int, action: Action) -> Counted:
        match action:
            case Read():
                _seen(file, order, turn, shown_by(action.link))
            case Write():
                return _written(file, order, turn, action)
            case Edit():
                return _edited(file, order, turn, action)
            case Delete():
                gone = 0, file.best.text.count("\n") if file.best.is_whole else 0
                file.fresh, file.stale, file.gone = NOTHING, NOTHING, True
                _sure(file, order, turn)
                return gone
            case Move() | Copy():
                self._moved(file, order, turn, action)
            case Doubt():
                _doubt(file, order, f"turn {turn}: {action.what}")
            case Sweep():
                pass
            case _:
                assert_never(action)
        return 0, 0

    def _moved(self, file: Known, order: int, turn: int, action: Move | Copy) -> None:
        target = self.settled(action.to)
        if file.fresh.is_whole or file.fresh.runs or file.stale.runs:
            _close(target, order)
            target.fresh, target.stale, target.gone = file.fresh, file.stale, False
            target.order, target.turn = order, turn
            target.open = [Gap(gap.text, order) for gap in file.open]
            target.gaps += target.open
        else:
            _doubt(target, order, f"turn {turn}: `{file.path}`, of which nothing is known, took its place", empty=True)
            target.gone = False
        if isinstance(action, Move):
            file.fresh, file.stale, file.gone = NOTHING, NOTHING, True
            _sure(file, order, turn)


def _sure(file: Known, order: int, turn: int) -> None:
    """All is known from here on."""
    file.order, file.turn = order, turn
    file.stale = NOTHING
    _close(file, order)


def _close(file: Known, order: int) -> None:
    for gap in file.open:
        gap.stop = order
    file.open = []


def _doubt(file: Known, order: int, text: str, *, start: int | None = None, empty: bool = False) -> None:
    """What was known need not be so any more; `empty`: is surely not so."""
    known = bool(file.fresh.runs or file.stale.runs or file.gone)
    if known and len(file.open) < MOST_GAPS:
        gap = Gap(text, order if start is None else start)
        file.open.append(gap)
        file.gaps.append(gap)
    file.stale = NOTHING if empty else file.best
    file.fresh = NOTHING
    file.gone = False


MOST_GAPS = 100
"""So many reasons at one time are enough."""


def _outside(file: Known, turn: int) -> str:
    if turn <= file.turn:
        return f"changed outside the record in turn {turn}"
    return f"changed outside the record between turn {file.turn} and {turn}"


def _seen(file: Known, order: int, turn: int, seen: Shown | None) -> None:
    if seen is None:
        return
    if file.gone:
        _doubt(file, order, f"{_outside(file, turn)}: it is there again", start=file.order, empty=True)
    pieces, agrees = shown(file.fresh, seen.first, seen.text, ended=seen.ended)
    if not agrees:
        _doubt(file, order, f"{_outside(file, turn)}: turn {turn} shows other lines", start=file.order)
    file.fresh = pieces
    file.order, file.turn = order, turn
    if file.fresh.is_whole:
        _sure(file, order, turn)


def _written(file: Known, order: int, turn: int, action: Write) -> Counted:
    best = file.best
    if action.text is None:
        _doubt(file, order, f"turn {turn}: written, and it is not told what", empty=not action.append)
        return 0, 0
    if action.append and not file.gone:
        file.fresh, file.stale = appended(file.fresh, action.text), appended(file.stale, action.text)
        return counted("", action.text)
    file.fresh, file.gone = whole(action.text), False
    _sure(file, order, turn)
    return counted(best.text if best.is_whole else "", action.text)


def _edited(file: Known, order: int, turn: int, action: Edit) -> Counted:
    if not action.changes:
        _doubt(file, order, f"turn {turn}: an edit that does not say what it wrote")
        return 0, 0
    added = removed = 0
    for change in action.changes:
        if isinstance(change, Swap) and not change.old:
            return _written(file, order, turn, Write(file.path, change.new))
        fresh, found = _changed(file.fresh, change)
        stale, _ = _changed(file.stale, change)
        if file.fresh.is_whole and found != 1:
            _doubt(file, order, f"{_outside(file, turn)}: {_why_not(found, turn)}", start=file.order)
            fresh, (stale, _) = NOTHING, _changed(file.stale, change)
        file.fresh, file.stale = fresh, stale
        more = difference(change)
        added, removed = added + more[0], removed + more[1]
    snippet = snippet_of(action.answer)
    if snippet is not None:
        _seen(file, order, turn, snippet)
    elif file.fresh.runs or file.stale.runs:
        file.order, file.turn = order, turn
    return added, removed


def _why_not(found: int, turn: int) -> str:
    place = "not in" if found == 0 else "more than once in"
    return f"what turn {turn} replaces is {place} the text that was known"


def _changed(pieces: Pieces, change: Change) -> tuple[Pieces, int]:
    """The pieces after a change, and how often its place was found: once is as it should be."""
    match change:
        case Swap():
            made, found = swapped(pieces, change.old, change.new, every=change.every)
            return made, min(found, 1) if change.every else found
        case Insert():
            made, placed = inserted(pieces, change.after, change.text)
            return made, int(placed)
        case Hunks():
            return _patched(pieces, change)
        case _:
            assert_never(change)


def _patched(pieces: Pieces, change: Hunks) -> tuple[Pieces, int]:
    if pieces.is_whole:
        text = patched(pieces.text, change.hunks)
        return (whole(text), 1) if text is not None else (pieces, 0)
    found = 1
    for hunk in change.hunks:
        old, new = ("".join(f"{row}\n" for row in rows) for rows in (hunk.old, hunk.new))
        if hunk.old:
            pieces, once = swapped(pieces, old, new)
            found = min(found, once)
        else:
            pieces, found = appended(pieces, new), min(found, int(pieces.ended))
    return pieces, found
