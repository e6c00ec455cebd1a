"""What a later call has made pointless: the same call again, an older look at the same lines, a failure made good.

A read gives way to a later read that shows the same lines, to a call that wrote the file anew or deleted it, and to
any later edit of the file. The last is a choice (`edited`): an older text and the edit together are all that is known
of lines which nobody read again, so the way down to a budget leaves them for later.
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
RESOLVED_FAILURE_REASON = "failed, made good later"


@dataclass(frozen=True, kw_only=True)
class RemoveSuperseded:
    """Let go of failures that were made good; point from repeated calls and outdated reads to the newer ones."""

    identical: bool = True
    """Answers that a later call of the same tool with the same arguments gave again, word for word."""
    stale: bool = True
    """Reads whose lines were read again, or whose file was written anew or deleted."""
    edited: bool = True
    """Reads of a file that was edited since."""
    failed: bool = True
    """Failed calls where a later one of the same tool succeeded on the same file or command."""

    def __call__(self, history: History) -> Iterator[Edit]:
        """Failures first, then what is said again, then what is out of date; the oldest first."""
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
    good: set[tuple[str, str]] = set()
    found: list[ToolUse] = []
    for link in reversed(history.links):
        key = (link.call.name.lower(), _call_target(link))
        if not is_failed_call(link):
            good.add(key)
        elif key in good:
            found.append(link)
    return found[::-1]


def _call_target(link: ToolUse) -> str:
    """What a call works on: a command as it reads, a file, or else all its arguments."""
    if link.use.command and link.use.category != "file_edit":
        return " ".join(link.use.command.split())
    return normalize_path(link.use.path) or link.call.arguments


def _find_repeated_calls(history: History) -> list[tuple[Place, str]]:
    newest: dict[tuple[str, str], Place] = {}
    found: list[tuple[Place, str]] = []
    for chain, _, result, _ in reversed(history.links):
        if chain.result is None or result is None or not result.content:
            continue
        said = (history.occurrence(chain.call).content, history.occurrence(chain.result).content)
        later = newest.setdefault(said, chain.call)
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
            note = (
                _describe_staleness(files, read, later, edited=edited)
                if len(reads) > 1 or read.path in files.edits
                else ""
            )
            if not note:
                later.add(read)
            elif read.is_complete:
                found.append((read.result_place, note))
    return sorted(found)


def _describe_staleness(files: FileAccesses, read: FileRead, later: "_LaterReads", *, edited: bool) -> str:
    """Why a read is out of date, or nothing."""
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
    """The reads of one file that come later and hold their text."""

    def __init__(self) -> None:
        """Start with none."""
        self._by_extent: dict[LineExtent, FileRead] = {}
        self._spans: list[tuple[int, int, FileRead]] = []
        """First line, last line, read: sorted by both, since none is within another."""

    def find_covering(self, read: FileRead) -> FileRead | None:
        """A later read that shows all lines of this one."""
        equal = self._by_extent.get(read.extent)
        if equal is not None or read.extent.variant or not self._spans:
            return equal
        return self._find_enclosing(*read.shown_lines())

    def _find_enclosing(self, first: int, last: int) -> FileRead | None:
        at = bisect_right(self._spans, first, key=_span_start)
        return self._spans[at - 1][2] if at and self._spans[at - 1][1] >= last else None

    def add(self, read: FileRead) -> None:
        """Take a read into account for those before it."""
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
