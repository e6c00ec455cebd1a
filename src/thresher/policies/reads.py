"""The same lines of a file, read again and again: the first and the newest read stay, and samples between them.

Reads count as the same when path and extent are equal: a look at lines 10 to 20 is never answered by a pointer to a
look at lines 50 to 60. What a pointer says is true of the texts: "same text" only where the texts are equal, else it
tells that the file has changed since, and where it was read again.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from thresher.edits import Edit, Replace
from thresher.edits.placeholder import MAX_PATH_LENGTH, to_label_line
from thresher.model import History
from thresher.model.line_extents import LineExtent
from thresher.policies.base import check_count
from thresher.policies.file_accesses import FileAccesses, FileRead, collect_file_accesses

REREAD_REASON = "re-read"
STALE_REASON = "stale read"


@dataclass(frozen=True, kw_only=True)
class DeduplicateReads:
    """Keep the first and the newest read of a file's lines, with samples between where there are many."""

    max_file_reads: int = 5
    """Up to so many reads, only the first and the last stay; beyond, samples of the middle too."""
    samples: int = 3
    """How many reads of the middle stay then, spread evenly."""

    def __post_init__(self) -> None:
        check_count("reads", max_file_reads=self.max_file_reads, samples=self.samples)

    def __call__(self, history: History) -> Iterator[Edit]:
        """Point from the reads between to those that stay: first where nothing is lost, then older states."""
        files = collect_file_accesses(history)
        groups: dict[tuple[str, LineExtent], list[FileRead]] = defaultdict(list)
        for read in files.reads:
            groups[read.path, read.extent].append(read)
        found: list[tuple[int, Replace]] = []
        for reads in groups.values():
            if len(reads) > 2:
                found += self._propose_placeholders(history, files, reads)
        found.sort(key=lambda pair: pair[0])
        for why in (REREAD_REASON, STALE_REASON):
            yield from (stub for _, stub in found if stub.why == why)

    def _propose_placeholders(
        self, history: History, files: FileAccesses, reads: list[FileRead]
    ) -> Iterator[tuple[int, Replace]]:
        kept = choose_kept_reads(len(reads), self.max_file_reads, self.samples)
        texts = [history.occurrence(read.result_place).content for read in reads]
        holders = [at for at in sorted(kept) if reads[at].is_complete]
        for at, read in enumerate(reads):
            if at in kept or not read.is_complete:
                continue
            same = [other for other in holders if texts[other] == texts[at]]
            newer = next((other for other in holders if other > at), None)
            name = _describe_path(history, read)
            if same:
                _, _, nearest = min((abs(other - at), -other, other) for other in same)
                why, said = REREAD_REASON, f"re-read{name}; same text as the read at turn {reads[nearest].turn}"
            elif newer is not None:
                why, said = STALE_REASON, f"older state{name}; {_describe_change(files, read, reads[newer])}"
            else:
                continue
            yield read.order, Replace(history.occurrence(read.result_place), "reads", why, note=said)


def choose_kept_reads(count: int, max_file_reads: int = 5, samples: int = 3) -> frozenset[int]:
    """Which of so many reads stay, counted from 0."""
    ends = {0, count - 1} if count else set()
    if count <= max(max_file_reads, 2):
        return frozenset(ends)
    middle = range(1, count - 1)
    if len(middle) <= samples:
        return frozenset(range(count))
    steps = samples + 1
    return frozenset(ends | {(2 * step * (count - 1) + steps) // (2 * steps) for step in range(1, steps)})


def _describe_path(history: History, read: FileRead) -> str:
    """The full path, where the call itself does not say it."""
    return "" if history.links[read.order].use.path == read.path else f" of {to_label_line(read.path, MAX_PATH_LENGTH)}"


def _describe_change(files: FileAccesses, read: FileRead, newer: FileRead) -> str:
    """How it came that the newer read has another text."""
    edit = files.find_edit(read.path, read.order, newer.order)
    changed = f"the file was edited at turn {edit.turn}" if edit else "the text has changed"
    return f"{changed} since; read again at turn {newer.turn}"
