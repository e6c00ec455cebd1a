"""The policy `output`: shorten long command output: remove repetition, keep head and tail.

First, the text is squeezed: color codes are removed, a progress bar keeps its last state, and of consecutive lines
that differ only in numbers and times, the first one stays, with a note on how many distinct lines it hides. A digit in
a name, such as `part_07.csv`, is no number. Tables, errors and search matches keep all their lines, because there the
numbers matter. Output that is still too long keeps its head and tail. File contents are not squeezed, because
similar lines in a file are not noise. Every pass over the text takes linear time.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from thresher.deprecation import renamed_fields
from thresher.edits import Edit, Elision, Truncate, apply_elisions, keep_head_and_tail
from thresher.edits.placeholder import ID_SLOT
from thresher.edits.truncate import to_original_span
from thresher.model import History, Message, part_text
from thresher.model.message_cache import cached_per_message
from thresher.model.tool_calls import ToolUse
from thresher.policies.base import check_count

MIN_CUT_CHARS = 200
"""Minimum characters to remove, longer than any note."""
MIN_RUN_LINES = 3
"""Minimum number of similar lines to collapse."""


@renamed_fields(bash_truncate="truncate_above", keep_whole="keep_below")
@dataclass(frozen=True, kw_only=True)
class TruncateOutput:
    """Squeeze the output of commands, and truncate long output to its head and tail."""

    keep_below: int = 1_000
    """Length up to which output stays unchanged."""
    truncate_above: int = 10_000
    """Length above which output is truncated."""
    head: int = 2_000
    """Characters to keep from the start."""
    tail: int = 2_000
    """Characters to keep from the end."""
    squeeze: bool = True
    """True if color codes, past states of progress bars, and repeated lines are removed."""
    pressure: bool = False
    """True if all output above `keep_below` is truncated, to half of `head` and `tail`."""

    def __post_init__(self) -> None:
        check_count("output", keep_below=self.keep_below, truncate_above=self.truncate_above)
        check_count("output", head=self.head, tail=self.tail)

    def __call__(self, history: History) -> Iterator[Edit]:
        """Propose one truncation per long or repetitive output, oldest first."""
        for link in history.links:
            place = link.chain.result
            if place is None or link.result is None or not _is_command_output(link):
                continue
            text = part_text(link.result)
            if len(text) <= self.keep_below:
                continue
            known = _cut_cache(history[place.message])
            if (self, place.part) not in known:
                known[self, place.part] = self._find_cuts(text, is_file=link.use.operation == "read")
            gaps, why = known[self, place.part]
            if gaps:
                yield Truncate(history.occurrence(place), "output", why, gaps)

    def _find_cuts(self, text: str, *, is_file: bool) -> tuple[tuple[Elision, ...], str]:
        gaps = find_output_noise(text) if self.squeeze and not is_file else ()
        length = len(text) - sum(stop - start - len(note) for start, stop, note in gaps)
        limit, ends = self.truncate_above, self.head + self.tail
        if self.pressure:
            limit, ends = min(limit, self.keep_below), ends // 2
        else:
            ends = min(ends, max(limit - MIN_CUT_CHARS, 0))
        note = _format_note(text, "condensed").rstrip("\n") if gaps else ""
        if length + len(note) > max(limit, ends + MIN_CUT_CHARS):
            head = ends * self.head // max(self.head + self.tail, 1)
            both = _keep_head_and_tail(text, gaps, head, ends - head)
            if both:
                return both, "long output"
        if length + MIN_CUT_CHARS <= len(text):
            return (*gaps, Elision(len(text), len(text), note)), "repetitive output"
        return (), ""


def _is_command_output(link: ToolUse) -> bool:
    """Return whether a result is the output of a command. In the category `project`, only git calls have a command."""
    return link.use.category == "execution" or (link.use.category == "project" and bool(link.use.command))


@cached_per_message
def _cut_cache(_: Message) -> "dict[tuple[TruncateOutput, int], tuple[tuple[Elision, ...], str]]":
    """Cache the spans to elide in the parts of a message."""
    return {}


def _format_note(text: str, done: str) -> str:
    return f"\n[thresher {ID_SLOT} · {done}: {len(text):,} chars, {text.count(chr(10)) + 1:,} lines in total]\n"


def _keep_head_and_tail(text: str, gaps: tuple[Elision, ...], head: int, tail: int) -> tuple[Elision, ...]:
    """Return the spans to elide so that the squeezed text keeps head and tail; none if that text is too short."""
    found = keep_head_and_tail(apply_elisions(text, gaps), head, tail)
    if not found:
        return ()
    start, stop = to_original_span(gaps, found[0])
    return (
        *(gap for gap in gaps if gap.stop <= start),
        Elision(start, stop, _format_note(text, "truncated")),
        *(gap for gap in gaps if gap.start >= stop),
    )


# --- squeezing -----------------------------------------------------------------------------------------------

_ESCAPE = re.compile(
    r"(?:\x1b(?:\[[0-?]{0,64}[ -/]{0,8}[@-~]"  # colors, cursor moves
    r"|\][^\x07\x1b]{0,4096}(?:\x07|\x1b\\)"  # titles, links
    r"|[()][0-9A-Za-z]|[=>78cDEHMNOZ]))+"
)
_NUMBER = re.compile(r"(?<![\w/\\.-])\d+(?:[.,:/T-]\d+)*(?:Z|%|[^\W\d_]{1,3})?(?![\w/\\]|[.-]\w)")
"""Number or time, perhaps with a unit: `7`, `1,024 kB`, `3.5ms`, `80%`, `12/400`, `2026-01-31T12:00:05.123Z`."""
_WORD = re.compile(r"[^\W\d_]{1,12}")
_LOCATION = re.compile(r"\.\w{1,12}[:(]\d|\bline \d")
"""Location in a file, as compilers, searches and tracebacks write it."""
MAX_STATE_CHARS = 240
"""Maximum characters of a progress state to search for its first word."""


@dataclass
class _SimilarLines:
    """A run of consecutive similar lines."""

    key: str | None = None
    first_end: int = 0
    """End of the first line."""
    last_end: int = 0
    count: int = 0
    first_line: str = ""
    hidden: set[str] = field(default_factory=set)
    """The distinct lines after the first one."""
    first_line_gaps: Sequence[Elision] = ()
    """Spans to elide inside the first line."""
    other_line_gaps: list[Elision] = field(default_factory=list)
    """Spans to elide inside the other lines."""

    def gaps(self) -> Iterator[Elision]:
        yield from self.first_line_gaps
        note = f" [… {self._describe()} …]"
        if self.count >= MIN_RUN_LINES and self.last_end - self.first_end > len(note):
            yield Elision(self.first_end, self.last_end, note)
        else:
            yield from self.other_line_gaps

    def _describe(self) -> str:
        if self.hidden == {self.first_line}:
            return f"{self.count - 1:,} identical lines"
        return f"{self.count - 1:,} similar lines, {len(self.hidden):,} distinct"


def find_output_noise(text: str) -> tuple[Elision, ...]:
    """Return the spans that a terminal would not show, and the spans of repeated lines."""
    gaps: list[Elision] = []
    run = _SimilarLines()
    start = 0
    for line in text.split("\n"):
        end = start + len(line) - line.endswith("\r")
        inner: Sequence[Elision] = ()
        shown = line
        if "\r" not in line[:-1]:
            if "\x1b" in line:
                inner, shown = list(_find_escapes(text, start, end)), _ESCAPE.sub("", line)
        else:
            inner = _find_hidden(text, start, end)
            shown = apply_elisions(line, tuple([Elision(gap.start - start, gap.stop - start) for gap in inner]))
        key = _similarity_key(shown)
        if key == run.key:
            run.count += 1
            run.last_end = end
            run.hidden.add(shown.rstrip())
            run.other_line_gaps += inner
        else:
            gaps += run.gaps()
            run = _SimilarLines(key, end, end, 1, shown.rstrip(), first_line_gaps=inner)
        start += len(line) + 1
    return (*gaps, *run.gaps())


def _similarity_key(line: str) -> str:
    """Return the line with its numbers and times replaced by 0; return it unchanged if they matter."""
    flat = line.rstrip()
    return _NUMBER.sub("0", flat) if _WORD.search(flat) and not _LOCATION.search(flat) else flat


def _find_hidden(text: str, start: int, end: int) -> list[Elision]:
    """Return the spans of escape codes and overwritten progress states in a line."""
    gaps: list[Elision] = []
    state = start
    known: str | None = None
    for segment, stop in _segments(text, start, end):
        kind = _first_word(text[segment : min(stop, segment + MAX_STATE_CHARS)])
        if kind is None:  # blank text overwrites nothing: some programs end lines with two carriage returns
            continue
        if kind != known:
            gaps += _find_escapes(text, state, segment)
        elif gaps and gaps[-1].stop == state:
            gaps[-1] = Elision(gaps[-1].start, segment)
        else:
            gaps.append(Elision(state, segment))
        state = segment
        known = kind
    return [*gaps, *_find_escapes(text, state, end)]


def _segments(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the spans of a line between carriage returns."""
    while (stop := text.find("\r", start, end)) >= 0:
        yield start, stop
        start = stop + 1
    yield start, end


def _first_word(segment: str) -> str | None:
    """Return the first word of a progress state, by which states of one bar are recognized; None for blank text."""
    shown = _ESCAPE.sub("", segment)
    word = _WORD.search(shown)
    return word[0] if word else "" if shown.strip() else None


def _find_escapes(text: str, start: int, end: int) -> Iterator[Elision]:
    return (Elision(found.start(), found.end()) for found in _ESCAPE.finditer(text, start, end))
