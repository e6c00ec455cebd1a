"""Track the known text of every file through a session, and the gaps in that knowledge.

Actions have numbers. Each file has two texts. `fresh` contains the text read or written since the last gap opened; once
it is the whole file, the state is exact again. `stale` is the last known text before that gap. Edits apply to both
texts. If only the stale text is whole, it is the best known text.

During a gap, the text is uncertain. A gap covers the actions from the one that opened it up to the next one that shows
or writes the whole file. If a read shows lines that differ from the known ones, the file changed outside the transcript
at some time since it was last seen, so that gap starts there and not at the read.
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
    """The last action that revealed something about the file."""
    last_turn: int = 0
    """The turn of `last_action`."""
    invalidated_until: int = -1
    """The last action up to which folder invalidations were applied to this file."""
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
        """True if the text, or the absence of the file, is certain."""
        return (self.is_deleted or self.fresh.is_whole) and not self.open_gaps

    def gap_reasons_at(self, order: int) -> Iterator[str]:
        """Yield the reasons of the gaps that cover an action, including gaps that were discovered later."""
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
            reason = f"turn {turn}: {action.cause} may have changed files"
            self._invalidations.setdefault(action.folder, []).append((order, reason))
            return 0, 0
        file = self.refresh_file(action.path)
        before = file.last_action, file.last_turn
        lines = self._apply_to_file(file, order, turn, action)
        is_change = isinstance(action, FileWriteAction | FileEditAction | FileDeleteAction | FileMoveAction)
        if is_change and (file.last_action, file.last_turn) == before:
            file.last_action, file.last_turn = order, turn
        return lines

    def refresh_file(self, path: str) -> FileKnowledge:
        """Apply the folder invalidations since the last access to a file, and return the file."""
        file = self.files.get(path)
        if file is None:
            file = self.files[path] = FileKnowledge(path, gaps=[], open_gaps=[])
        for folder, invalidations in self._invalidations.items():
            if not folder or path.startswith(f"{folder}/"):
                index = bisect_right(invalidations, file.invalidated_until, key=lambda item: item[0])
                if index < len(invalidations):
                    _mark_uncertain(file, *invalidations[index])
        last = (invalidations[-1][0] for invalidations in self._invalidations.values())
        file.invalidated_until = max([file.invalidated_until, *last])
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
                removed = file.best_known.text.count("\n") if file.best_known.is_whole else 0
                _mark_deleted(file, order, turn)
                return 0, removed
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
            _mark_uncertain(target, order, f"turn {turn}: replaced by `{file.path}`, whose text is unknown", empty=True)
        if isinstance(action, FileMoveAction):
            _mark_deleted(file, order, turn)


def _mark_exact(file: FileKnowledge, order: int, turn: int) -> None:
    """Close all gaps: from here on the file is known."""
    file.last_action, file.last_turn = order, turn
    file.stale = UNKNOWN_TEXT
    _close(file, order)


def _mark_deleted(file: FileKnowledge, order: int, turn: int) -> None:
    file.fresh, file.is_deleted = UNKNOWN_TEXT, True
    _mark_exact(file, order, turn)


def _close(file: FileKnowledge, order: int) -> None:
    for gap in file.open_gaps:
        gap.stop = order
    file.open_gaps = []


def _mark_uncertain(
    file: FileKnowledge, order: int, reason: str, *, start: int | None = None, empty: bool = False
) -> None:
    """Open a gap: the known text may be outdated. With `empty`, it is certainly outdated."""
    is_known = bool(file.fresh.runs or file.stale.runs or file.is_deleted)
    if is_known and len(file.open_gaps) < MAX_OPEN_GAPS:
        gap = KnowledgeGap(reason, order if start is None else start)
        file.open_gaps.append(gap)
        file.gaps.append(gap)
    file.stale = UNKNOWN_TEXT if empty else file.best_known
    file.fresh = UNKNOWN_TEXT
    file.is_deleted = False


MAX_OPEN_GAPS = 100
"""Maximum number of simultaneous gaps of a file."""


def _describe_outside_change(file: FileKnowledge, turn: int) -> str:
    when = f"in turn {turn}" if turn <= file.last_turn else f"between turn {file.last_turn} and {turn}"
    return f"changed outside the session {when}"


def _apply_read(file: FileKnowledge, order: int, turn: int, seen: SeenLines | None) -> None:
    if seen is None:
        return
    if file.is_deleted:
        reason = f"{_describe_outside_change(file, turn)}: it exists again"
        _mark_uncertain(file, order, reason, start=file.last_action, empty=True)
    text, agrees = merge_seen_lines(file.fresh, seen.first, seen.text, ended=seen.reaches_end)
    if not agrees:
        reason = f"{_describe_outside_change(file, turn)}: turn {turn} shows other lines"
        _mark_uncertain(file, order, reason, start=file.last_action)
    file.fresh = text
    file.last_action, file.last_turn = order, turn
    if file.fresh.is_whole:
        _mark_exact(file, order, turn)


def _apply_write(file: FileKnowledge, order: int, turn: int, action: FileWriteAction) -> LineChangeCounts:
    best = file.best_known
    if action.text is None:
        _mark_uncertain(file, order, f"turn {turn}: written with unknown text", empty=not action.append)
        return 0, 0
    if action.append and not file.is_deleted:
        file.fresh, file.stale = append_text(file.fresh, action.text), append_text(file.stale, action.text)
        return count_line_changes("", action.text)
    file.fresh, file.is_deleted = make_whole_text(action.text), False
    _mark_exact(file, order, turn)
    return count_line_changes(best.text if best.is_whole else "", action.text)


def _apply_edit(file: FileKnowledge, order: int, turn: int, action: FileEditAction) -> LineChangeCounts:
    if not action.changes:
        _mark_uncertain(file, order, f"turn {turn}: an edit with unknown text")
        return 0, 0
    added = removed = 0
    for change in action.changes:
        if isinstance(change, TextReplacement) and not change.old:
            return _apply_write(file, order, turn, FileWriteAction(file.path, change.new))
        fresh, matches = _apply_change(file.fresh, change)
        if file.fresh.is_whole and matches != 1:
            where = "not in the known text" if matches == 0 else "more than once in the known text"
            reason = f"{_describe_outside_change(file, turn)}: the text that turn {turn} replaces is {where}"
            _mark_uncertain(file, order, reason, start=file.last_action)
            fresh = UNKNOWN_TEXT
        file.fresh, (file.stale, _) = fresh, _apply_change(file.stale, change)
        change_added, change_removed = measure_text_change(change)
        added, removed = added + change_added, removed + change_removed
    snippet = parse_edit_snippet(action.tool_output)
    if snippet is not None:
        _apply_read(file, order, turn, snippet)
    elif file.fresh.runs or file.stale.runs:
        file.last_action, file.last_turn = order, turn
    return added, removed


def _apply_change(text: PartialText, change: TextChange) -> tuple[PartialText, int]:
    """Return the text after a change and the number of matches; a change with exactly one match is certain."""
    match change:
        case TextReplacement():
            changed, matches = replace_text(text, change.old, change.new, every=change.replace_all)
            return changed, min(matches, 1) if change.replace_all else matches
        case LineInsertion():
            changed, is_placed = insert_lines(text, change.after, change.text)
            return changed, int(is_placed)
        case PatchChange():
            return _apply_hunks(text, change)
        case _:
            assert_never(change)


def _apply_hunks(text: PartialText, change: PatchChange) -> tuple[PartialText, int]:
    if text.is_whole:
        patched = apply_patch_hunks(text.text, change.hunks)
        return (make_whole_text(patched), 1) if patched is not None else (text, 0)
    matches = 1
    for hunk in change.hunks:
        old, new = ("".join(f"{line}\n" for line in lines) for lines in (hunk.old, hunk.new))
        if hunk.old:
            text, count = replace_text(text, old, new)
        else:
            text, count = append_text(text, new), int(text.reaches_end)
        matches = min(matches, count)
    return text, matches
