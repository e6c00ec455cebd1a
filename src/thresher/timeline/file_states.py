"""Track the known text of every file through a session, and the gaps in that knowledge.

Actions are numbered. Each file has two texts. `fresh` contains what was read or written since the last doubt; once it
is the whole file, the state is exact again. `stale` is the last text before the doubt: edits apply to both, and if only
the stale text is whole, it is the best known one.

A gap covers the actions from the one that opened it up to the next one that shows or writes the whole file. If a read
shows lines that differ from the known ones, the file changed outside the transcript at some time since it was last
seen, so that gap starts there and not at the read.
"""

from bisect import bisect_right
from collections.abc import Iterator
from typing import assert_never

from msgspec import Struct

from thresher.timeline.actions import (
    FileAction,
    FileCopyAction,
    FileDeleteAction,
    FileEditAction,
    FileMoveAction,
    FileReadAction,
    FileWriteAction,
    LineInsertion,
    PatchChange,
    TextChange,
    TextReplacement,
    TreeInvalidation,
    UncertainChange,
)
from thresher.timeline.line_counts import count_line_changes, measure_text_change
from thresher.timeline.partial_text import (
    UNKNOWN_TEXT,
    PartialText,
    append_text,
    insert_lines,
    make_whole_text,
    merge_seen_lines,
    replace_text,
)
from thresher.timeline.patches import apply_patch_hunks
from thresher.timeline.read_extents import SeenLines, parse_edit_snippet, parse_read_result

LineChangeCounts = tuple[int, int]


class KnowledgeGap(Struct):
    """The reason why a file's text is uncertain, from action `start` up to action `stop` (exclusive)."""

    reason: str
    start: int
    stop: int | None = None


class FileKnowledge(Struct):
    """The known text of one file."""

    path: str
    fresh: PartialText = UNKNOWN_TEXT
    stale: PartialText = UNKNOWN_TEXT
    is_deleted: bool = False
    last_action: int = -1
    """The last action that revealed something about the file, and its turn."""
    last_turn: int = 0
    invalidated_until: int = -1
    """Tree invalidations up to this action are applied."""
    gaps: list[KnowledgeGap] = []
    open_gaps: list[KnowledgeGap] = []

    @property
    def best_known(self) -> PartialText:
        """The most complete text known."""
        if self.fresh.is_whole or not self.stale.runs:
            return self.fresh
        return self.stale if self.stale.is_whole or not self.fresh.runs else self.fresh

    @property
    def is_exact(self) -> bool:
        """Report whether the text, or the absence of the file, is certain."""
        return (self.is_deleted or self.fresh.is_whole) and not self.open_gaps

    def gap_reasons_at(self, order: int) -> Iterator[str]:
        """Yield the gaps that cover an action, including those discovered later."""
        yield from (gap.reason for gap in self.gaps if gap.start <= order and (gap.stop is None or order < gap.stop))


class FileStateTracker:
    """The state of all files after the actions applied so far."""

    def __init__(self) -> None:
        """Start without any known file."""
        self.files: dict[str, FileKnowledge] = {}
        self._invalidations: dict[str, list[tuple[int, str]]] = {}

    def apply_action(self, order: int, turn: int, action: FileAction) -> LineChangeCounts:
        """Apply the next action and return the numbers of added and removed lines."""
        if isinstance(action, TreeInvalidation):
            self._invalidations.setdefault(action.folder, []).append(
                (order, f"turn {turn}: {action.cause} may have changed files")
            )
            return 0, 0
        file = self.refresh_file(action.path)
        before = file.last_action, file.last_turn
        lines = self._apply_to_file(file, order, turn, action)
        if (file.last_action, file.last_turn) == before and isinstance(
            action, FileWriteAction | FileEditAction | FileDeleteAction | FileMoveAction
        ):
            file.last_action, file.last_turn = order, turn
        return lines

    def refresh_file(self, path: str) -> FileKnowledge:
        """Return a file after applying the tree invalidations since it was last accessed."""
        file = self.files.get(path)
        if file is None:
            file = self.files[path] = FileKnowledge(path, gaps=[], open_gaps=[])
        for folder, sweeps in self._invalidations.items():
            if not folder or path.startswith(f"{folder}/"):
                at = bisect_right(sweeps, file.invalidated_until, key=lambda sweep: sweep[0])
                if at < len(sweeps):
                    _mark_uncertain(file, sweeps[at][0], sweeps[at][1])
        file.invalidated_until = max(
            [file.invalidated_until, *(sweeps[-1][0] for sweeps in self._invalidations.values())]
        )
        return file

    def _apply_to_file(self, file: FileKnowledge, order: int, turn: int, action: FileAction) -> LineChangeCounts:
        match action:
            case FileReadAction():
                _apply_read(file, order, turn, parse_read_result(action.link))
            case FileWriteAction():
                return _apply_write(file, order, turn, action)
            case FileEditAction():
                return _apply_edit(file, order, turn, action)
            case FileDeleteAction():
                gone = 0, file.best_known.text.count("\n") if file.best_known.is_whole else 0
                file.fresh, file.stale, file.is_deleted = UNKNOWN_TEXT, UNKNOWN_TEXT, True
                _mark_exact(file, order, turn)
                return gone
            case FileMoveAction() | FileCopyAction():
                self._apply_move(file, order, turn, action)
            case UncertainChange():
                _mark_uncertain(file, order, f"turn {turn}: {action.cause}")
            case TreeInvalidation():
                pass
            case _:
                assert_never(action)
        return 0, 0

    def _apply_move(self, file: FileKnowledge, order: int, turn: int, action: FileMoveAction | FileCopyAction) -> None:
        target = self.refresh_file(action.to)
        if file.fresh.is_whole or file.fresh.runs or file.stale.runs:
            _close(target, order)
            target.fresh, target.stale, target.is_deleted = file.fresh, file.stale, False
            target.last_action, target.last_turn = order, turn
            target.open_gaps = [KnowledgeGap(gap.reason, order) for gap in file.open_gaps]
            target.gaps += target.open_gaps
        else:
            _mark_uncertain(
                target, order, f"turn {turn}: `{file.path}`, of which nothing is known, took its place", empty=True
            )
            target.is_deleted = False
        if isinstance(action, FileMoveAction):
            file.fresh, file.stale, file.is_deleted = UNKNOWN_TEXT, UNKNOWN_TEXT, True
            _mark_exact(file, order, turn)


def _mark_exact(file: FileKnowledge, order: int, turn: int) -> None:
    """Close all gaps: from here on the file is known."""
    file.last_action, file.last_turn = order, turn
    file.stale = UNKNOWN_TEXT
    _close(file, order)


def _close(file: FileKnowledge, order: int) -> None:
    for gap in file.open_gaps:
        gap.stop = order
    file.open_gaps = []


def _mark_uncertain(
    file: FileKnowledge, order: int, text: str, *, start: int | None = None, empty: bool = False
) -> None:
    """Open a gap: the known text may be outdated. With `empty`, it is certainly outdated."""
    known = bool(file.fresh.runs or file.stale.runs or file.is_deleted)
    if known and len(file.open_gaps) < MAX_OPEN_GAPS:
        gap = KnowledgeGap(text, order if start is None else start)
        file.open_gaps.append(gap)
        file.gaps.append(gap)
    file.stale = UNKNOWN_TEXT if empty else file.best_known
    file.fresh = UNKNOWN_TEXT
    file.is_deleted = False


MAX_OPEN_GAPS = 100
"""Maximum number of simultaneous gaps of a file."""


def _describe_outside_change(file: FileKnowledge, turn: int) -> str:
    if turn <= file.last_turn:
        return f"changed outside the record in turn {turn}"
    return f"changed outside the record between turn {file.last_turn} and {turn}"


def _apply_read(file: FileKnowledge, order: int, turn: int, seen: SeenLines | None) -> None:
    if seen is None:
        return
    if file.is_deleted:
        _mark_uncertain(
            file,
            order,
            f"{_describe_outside_change(file, turn)}: it is there again",
            start=file.last_action,
            empty=True,
        )
    pieces, agrees = merge_seen_lines(file.fresh, seen.first, seen.text, ended=seen.reaches_end)
    if not agrees:
        _mark_uncertain(
            file,
            order,
            f"{_describe_outside_change(file, turn)}: turn {turn} shows other lines",
            start=file.last_action,
        )
    file.fresh = pieces
    file.last_action, file.last_turn = order, turn
    if file.fresh.is_whole:
        _mark_exact(file, order, turn)


def _apply_write(file: FileKnowledge, order: int, turn: int, action: FileWriteAction) -> LineChangeCounts:
    best = file.best_known
    if action.text is None:
        _mark_uncertain(file, order, f"turn {turn}: written, and it is not told what", empty=not action.append)
        return 0, 0
    if action.append and not file.is_deleted:
        file.fresh, file.stale = append_text(file.fresh, action.text), append_text(file.stale, action.text)
        return count_line_changes("", action.text)
    file.fresh, file.is_deleted = make_whole_text(action.text), False
    _mark_exact(file, order, turn)
    return count_line_changes(best.text if best.is_whole else "", action.text)


def _apply_edit(file: FileKnowledge, order: int, turn: int, action: FileEditAction) -> LineChangeCounts:
    if not action.changes:
        _mark_uncertain(file, order, f"turn {turn}: an edit that does not say what it wrote")
        return 0, 0
    added = removed = 0
    for change in action.changes:
        if isinstance(change, TextReplacement) and not change.old:
            return _apply_write(file, order, turn, FileWriteAction(file.path, change.new))
        fresh, found = _apply_change(file.fresh, change)
        stale, _ = _apply_change(file.stale, change)
        if file.fresh.is_whole and found != 1:
            _mark_uncertain(
                file,
                order,
                f"{_describe_outside_change(file, turn)}: {_describe_mismatch(found, turn)}",
                start=file.last_action,
            )
            fresh, (stale, _) = UNKNOWN_TEXT, _apply_change(file.stale, change)
        file.fresh, file.stale = fresh, stale
        more = measure_text_change(change)
        added, removed = added + more[0], removed + more[1]
    snippet = parse_edit_snippet(action.tool_output)
    if snippet is not None:
        _apply_read(file, order, turn, snippet)
    elif file.fresh.runs or file.stale.runs:
        file.last_action, file.last_turn = order, turn
    return added, removed


def _describe_mismatch(found: int, turn: int) -> str:
    place = "not in" if found == 0 else "more than once in"
    return f"what turn {turn} replaces is {place} the text that was known"


def _apply_change(pieces: PartialText, change: TextChange) -> tuple[PartialText, int]:
    """Return the text after a change and the number of matches; a change with exactly one match is certain."""
    match change:
        case TextReplacement():
            made, found = replace_text(pieces, change.old, change.new, every=change.replace_all)
            return made, min(found, 1) if change.replace_all else found
        case LineInsertion():
            made, placed = insert_lines(pieces, change.after, change.text)
            return made, int(placed)
        case PatchChange():
            return _apply_hunks(pieces, change)
        case _:
            assert_never(change)


def _apply_hunks(pieces: PartialText, change: PatchChange) -> tuple[PartialText, int]:
    if pieces.is_whole:
        text = apply_patch_hunks(pieces.text, change.hunks)
        return (make_whole_text(text), 1) if text is not None else (pieces, 0)
    found = 1
    for hunk in change.hunks:
        old, new = ("".join(f"{row}\n" for row in rows) for rows in (hunk.old, hunk.new))
        if hunk.old:
            pieces, once = replace_text(pieces, old, new)
            found = min(found, once)
        else:
            pieces, found = append_text(pieces, new), min(found, int(pieces.reaches_end))
    return pieces, found
