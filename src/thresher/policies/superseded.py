"""The policy `superseded`: remove results that a later call made obsolete: repeated calls, stale reads, failures.

A read is obsolete after a later read of the same lines, after a call that overwrote or deleted the file, and, with the
option `edited`, after any later edit of the file. Until the lines are read again, the older text together with the
edit is all the model knows about them, so the escalation to a budget uses `edited` only late.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from thresher.edits import Drop, Edit, Replace
from thresher.edits.placeholder import get_placeholder_id
from thresher.model import History, Place
from thresher.model.line_extents import LineExtent
from thresher.model.paths import normalize_path
from thresher.model.tool_calls import ToolUse
from thresher.policies.base import is_failed_call
from thresher.policies.file_accesses import FileAccesses, FileRead, collect_file_accesses

POLICY_NAME = "superseded"
REPEATED_CALL_REASON = "same call again"
STALE_READ_REASON = "stale read"
RESOLVED_FAILURE_REASON = "failed, succeeded later"


@dataclass(frozen=True, kw_only=True)
class RemoveSuperseded:
    """Drop failures that later succeeded; replace repeated results and stale reads by placeholders."""

    identical: bool = True
    """True if a result is replaced when a later call with the same tool and arguments returned it again."""
    stale: bool = True
    """True if a read is replaced when its lines were read again, or its file was overwritten or deleted."""
    edited: bool = True
    """True if a read is also replaced when its file was edited later; needs `stale`."""
    failed: bool = True
    """True if a failed call is dropped when a later call of the same tool succeeded on the same file or command."""

    def __call__(self, history: History) -> Iterator[Edit]:
        """Propose edits, oldest first: failures, then repeated results, then stale reads."""
        if self.failed:
            for link in _find_resolved_failures(history):
                yield Drop(history.occurrence(link.chain.call), POLICY_NAME, RESOLVED_FAILURE_REASON)
        seen: set[Place] = set()
        for place, note in _find_repeated_calls(history) if self.identical else ():
            seen.add(place)
            yield Replace(history.occurrence(place), POLICY_NAME, REPEATED_CALL_REASON, note=note)
        for place, note in _find_stale_reads(history, edited=self.edited) if self.stale else ():
            if place not in seen:
                yield Replace(history.occurrence(place), POLICY_NAME, STALE_READ_REASON, note=note)


def _find_resolved_failures(history: History) -> list[ToolUse]:
    succeeded: set[tuple[str, str]] = set()
    found: list[ToolUse] = []
    for link in reversed(history.links):
        key = (link.call.name.lower(), _call_target(link))
        if not is_failed_call(link):
            succeeded.add(key)
        elif key in succeeded:
            found.append(link)
    return found[::-1]


def _call_target(link: ToolUse) -> str:
    """Return the target of a call: its command, otherwise its file, otherwise all its arguments."""
    if link.use.command and link.use.category != "file_edit":
        return " ".join(link.use.command.split())
    return normalize_path(link.use.path) or link.call.arguments


def _find_repeated_calls(history: History) -> list[tuple[Place, str]]:
    latest: dict[tuple[str, str], Place] = {}
    found: list[tuple[Place, str]] = []
    for chain, _, result, _ in reversed(history.links):
        if chain.result is None or result is None or not result.content:
            continue
        contents = (history.occurrence(chain.call).content, history.occurrence(chain.result).content)
        later = latest.setdefault(contents, chain.call)
        if later != chain.call and not get_placeholder_id(result):
            found.append((chain.result, f"same as turn {history.turn(later.message)}"))
    return found[::-1]


def _find_stale_reads(history: History, *, edited: bool) -> list[tuple[Place, str]]:
    files = collect_file_accesses(history)
    by_file: dict[str, list[FileRead]] = defaultdict(list)
    for read in files.reads:
        by_file[read.path].append(read)
    found: list[tuple[Place, str]] = []
    for reads in by_file.values():
        later = _LaterReads()
        for read in reversed(reads):
            note = _describe_staleness(files, read, later, edited=edited)
            if not note:
                later.add(read)
            elif read.is_complete:
                found.append((read.result_place, note))
    return sorted(found)


def _describe_staleness(files: FileAccesses, read: FileRead, later: "_LaterReads", *, edited: bool) -> str:
    """Return why a read is stale, or an empty string."""
    again = later.find_covering(read)
    if again is not None:
        edit = files.find_edit(read.path, read.order, again.order)
        return f"{f'edited at turn {edit.turn} since; ' if edit else ''}read again at turn {again.turn}"
    for edit in reversed(files.edits.get(read.path, [])):
        if edit.order < read.order:
            break
        if edit.operation in ("write", "delete"):
            return f"{'deleted' if edit.operation == 'delete' else 'written anew'} at turn {edit.turn}"
    changed = files.find_edit(read.path, read.order) if edited else None
    return f"edited at turn {changed.turn} since" if changed else ""


class _LaterReads:
    """The later complete reads of one file."""

    def __init__(self) -> None:
        """Start without reads."""
        self._by_extent: dict[LineExtent, FileRead] = {}
        self._spans: list[tuple[int, int, FileRead]] = []
        """First line, last line and read of each span, sorted by first and last line; no span contains another."""

    def find_covering(self, read: FileRead) -> FileRead | None:
        """Return a later read that contains all lines of this one."""
        equal = self._by_extent.get(read.extent)
        if equal is not None or read.extent.variant or not self._spans:
            return equal
        return self._find_enclosing(*read.shown_lines())

    def _find_enclosing(self, first: int, last: int) -> FileRead | None:
        at = bisect_right(self._spans, first, key=_span_start)
        return self._spans[at - 1][2] if at and self._spans[at - 1][1] >= last else None

    def add(self, read: FileRead) -> None:
        """Add a read for comparison with earlier ones."""
        if not read.is_complete:
            return
        self._by_extent.setdefault(read.extent, read)
        first, last = read.shown_lines()
        if read.extent.variant or self._find_enclosing(first, last):
            return
        start = stop = bisect_left(self._spans, first, key=_span_start)
        while stop < len(self._spans) and self._spans[stop][1] <= last:
            stop += 1
        self._spans[start:stop] = [(first, last, read)]


def _span_start(span: tuple[int, int, FileRead]) -> int:
    return span[0]
