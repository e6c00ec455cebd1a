"""The policy `reads`: keep the first and the latest read of the same lines of a file, and samples of the others.

Reads form a group if path and extent are equal: a placeholder for lines 10 to 20 never refers to a read of lines 50 to
60. A placeholder claims "same text" only if the texts are equal; otherwise it names the turn in which the file changed,
if known, and the turn of a later read.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from thresher.edits import Edit, Replace
from thresher.edits.placeholder import MAX_PATH_LENGTH, to_label_line
from thresher.errors import OptionError
from thresher.model import History
from thresher.model.line_extents import LineExtent
from thresher.policies.base import check_count
from thresher.policies.file_accesses import FileAccesses, FileRead, collect_file_accesses

REREAD_REASON = "re-read"
STALE_REASON = "stale read"
MIN_SAMPLED_READS = 6
"""Number of reads from which reads between the first and the last stay, too."""


@dataclass(frozen=True, kw_only=True)
class DeduplicateReads:
    """Keep the first and the latest read of a file's lines, plus samples between them from six reads on."""

    max_file_reads: int = 5
    """Maximum number of full reads of the same lines; 1: only the latest."""
    samples: int | None = None
    """Maximum number of reads between the first and the last that stay; None: as many as `max_file_reads` permits."""

    def __post_init__(self) -> None:
        check_count("reads", max_file_reads=self.max_file_reads, samples=self.samples or 0)
        if self.max_file_reads == 0:
            raise OptionError("policy `reads`: `max_file_reads` must be 1 or more, got 0; the latest read always stays")

    def __call__(self, history: History) -> Iterator[Edit]:
        """Propose placeholders for the other reads: duplicates first, then older states."""
        files = collect_file_accesses(history)
        groups: dict[tuple[str, LineExtent], list[FileRead]] = defaultdict(list)
        for read in files.reads:
            groups[read.path, read.extent].append(read)
        proposals: list[tuple[int, Replace]] = []
        for reads in groups.values():
            if len(reads) > 1:
                proposals += self._propose_placeholders(history, files, reads)
        proposals.sort(key=lambda pair: pair[0])
        for why in (REREAD_REASON, STALE_REASON):
            yield from (edit for _, edit in proposals if edit.why == why)

    def _propose_placeholders(
        self, history: History, files: FileAccesses, reads: list[FileRead]
    ) -> Iterator[tuple[int, Replace]]:
        kept = choose_kept_reads(len(reads), self.max_file_reads, self.samples)
        texts = [history.occurrence(read.result_place).content for read in reads]
        complete = [index for index in sorted(kept) if reads[index].is_complete]
        for index, read in enumerate(reads):
            if index in kept or not read.is_complete:
                continue
            same = [other for other in complete if texts[other] == texts[index]]
            newer = next((other for other in complete if other > index), None)
            name = _describe_path(history, read)
            if same:
                nearest = min(same, key=lambda other: (abs(other - index), -other))
                why, note = REREAD_REASON, f"re-read{name}; same text as the read at turn {reads[nearest].turn}"
            elif newer is not None:
                why, note = STALE_REASON, f"older state{name}; {_describe_change(files, read, reads[newer])}"
            else:
                continue
            yield read.order, Replace(history.occurrence(read.result_place), "reads", why, note=note)


def choose_kept_reads(count: int, max_file_reads: int = 5, samples: int | None = None) -> frozenset[int]:
    """Return the indexes of the reads to keep: at most `max_file_reads`."""
    if max_file_reads == 1:
        return frozenset(range(count)[-1:])
    allowed = max_file_reads - 2 if samples is None else min(samples, max_file_reads - 2)
    between = allowed if count >= MIN_SAMPLED_READS else 0
    if count <= between + 2:
        return frozenset(range(count))
    steps = between + 1
    return frozenset((2 * step * (count - 1) + steps) // (2 * steps) for step in range(steps + 1))


def _describe_path(history: History, read: FileRead) -> str:
    """Return the file's full path after "of"; return an empty string if the call itself contains this path."""
    return "" if history.links[read.order].use.path == read.path else f" of {to_label_line(read.path, MAX_PATH_LENGTH)}"


def _describe_change(files: FileAccesses, read: FileRead, newer: FileRead) -> str:
    """Describe why the newer read has a different text."""
    edit = files.find_edit(read.path, read.order, newer.order)
    changed = f"the file was edited at turn {edit.turn}" if edit else "the text has changed"
    return f"{changed} since; read again at turn {newer.turn}"
