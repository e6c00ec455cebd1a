"""Long output of commands: its head and tail say most, and what repeats itself says it once.

First the text is squeezed: colour codes go, a progress bar keeps its last state, and of a run of lines that differ
in nothing but their numbers one stays (not where the numbers are the news: in tables, and in errors and matches that
name lines of files). What is still too long keeps its two ends. A file that a command shows is not squeezed: in a
file, lines that look alike are not noise. Every pass over the text is linear.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from thresher.deprecation import renamed_fields
from thresher.edits import Edit, Elision, Truncate, apply_elisions, keep_head_and_tail
from thresher.edits.placeholder import ID_SLOT
from thresher.model import History, Message, part_text
from thresher.model.message_cache import cached_per_message
from thresher.model.tool_calls import ToolUse
from thresher.policies.base import check_count

MIN_CUT_CHARS = 200
"""Characters that a cut must take to be worth its note; more than any note is long."""
MIN_RUN_LINES = 3
"""So many lines alike are a run."""


@renamed_fields(bash_truncate="truncate_above", keep_whole="keep_below")
@dataclass(frozen=True, kw_only=True)
class TruncateOutput:
    """Squeeze the output of commands, and cut what is long to its head and tail."""

    keep_below: int = 1_000
    """Characters up to which an output is left alone."""
    truncate_above: int = 10_000
    """Characters from which it is cut."""
    head: int = 2_000
    """Characters that stay of its start."""
    tail: int = 2_000
    """Characters that stay of its end."""
    squeeze: bool = True
    """Take out colour codes, past states of progress bars, and lines that repeat."""
    pressure: bool = False
    """Cut from `keep_below` on, to half the size."""

    def __post_init__(self) -> None:
        check_count("output", keep_below=self.keep_below, truncate_above=self.truncate_above)
        check_count("output", head=self.head, tail=self.tail)

    def __call__(self, history: History) -> Iterator[Edit]:
        """One cut for each output that is too long or repeats itself, the oldest first."""
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
    """Whether a command wrote it; of the tools for the project only git has a command."""
    return link.use.category == "execution" or (link.use.category == "project" and bool(link.use.command))


@cached_per_message
def _cut_cache(_: Message) -> "dict[tuple[TruncateOutput, int], tuple[tuple[Elision, ...], str]]":
    """What was found out about a message's parts."""
    return {}


def _format_note(text: str, done: str) -> str:
    return f"\n[thresher {ID_SLOT} · {done}: {len(text):,} chars, {text.count(chr(10)) + 1:,} lines in total]\n"


def _keep_head_and_tail(text: str, gaps: tuple[Elision, ...], head: int, tail: int) -> tuple[Elision, ...]:
    """Head and tail as they are after squeezing, as gaps of the text itself; nothing if little would go."""
    found = keep_head_and_tail(apply_elisions(text, gaps), head, tail)
    if not found:
        return ()
    start = _to_original_position(gaps, found[0].start, after=False)
    stop = _to_original_position(gaps, found[0].stop, after=True)
    return (
        *(gap for gap in gaps if gap.stop <= start),
        Elision(start, stop, _format_note(text, "truncated")),
        *(gap for gap in gaps if gap.start >= stop),
    )


def _to_original_position(gaps: tuple[Elision, ...], position: int, *, after: bool) -> int:
    """Where a position of the squeezed text was in the text; inside a note, the near end of its gap."""
    shift = 0
    for gap in gaps:
        at = gap.start - shift
        if position <= at:
            break
        if position < at + len(gap.note):
            return gap.stop if after else gap.start
        shift += gap.stop - gap.start - len(gap.note)
    return position + shift


# --- squeezing -----------------------------------------------------------------------------------------------

_ESCAPE = re.compile(
    r"(?:\x1b(?:\[[0-?]{0,64}[ -/]{0,8}[@-~]"  # colours, cursor moves
    r"|\][^\x07\x1b]{0,4096}(?:\x07|\x1b\\)"  # titles, links
    r"|[()][0-9A-Za-z]|[=>78cDEHMNOZ]))+"
)
_NUMBER = re.compile(r"\d+")
_WORD = re.compile(r"[^\W\d_]{1,12}")
_LOCATION = re.compile(r"\.\w{1,12}[:(]\d|\bline \d")
"""A place in a file, as compilers, searches and tracebacks name it."""
MAX_STATE_CHARS = 240
"""How far into a state one looks for its first word."""


@dataclass
class _SimilarLines:
    """Lines alike, as far as they go."""

    key: str | None = None
    first_end: int = 0
    """Where the first of them ends."""
    last_end: int = 0
    count: int = 0
    first_line_gaps: Sequence[Elision] = ()
    """The gaps inside the first line."""
    other_line_gaps: list[Elision] = field(default_factory=list)
    """The gaps inside the others."""

    def gaps(self) -> Iterator[Elision]:
        yield from self.first_line_gaps
        note = f" [… {self.count - 1:,} similar lines …]"
        if self.count >= MIN_RUN_LINES and self.last_end - self.first_end > len(note):
            yield Elision(self.first_end, self.last_end, note)
        else:
            yield from self.other_line_gaps


def find_output_noise(text: str) -> tuple[Elision, ...]:
    """The gaps that take out of an output what a terminal would not show, and what repeats itself."""
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
            run.other_line_gaps += inner
        else:
            gaps += run.gaps()
            run = _SimilarLines(key, end, end, 1, inner)
        start += len(line) + 1
    return (*gaps, *run.gaps())


def _similarity_key(line: str) -> str:
    """The line without its numbers; but where they are what it tells, a line is like its equals only."""
    flat = line.rstrip()
    return _NUMBER.sub("0", flat) if _WORD.search(flat) and not _LOCATION.search(flat) else flat


def _find_hidden(text: str, start: int, end: int) -> list[Elision]:
    """What a terminal would not show of a line: escape codes, and states that were written over."""
    gaps: list[Elision] = []
    state = start
    known: str | None = None
    for segment, stop in _segments(text, start, end):
        kind = _first_word(text[segment : min(stop, segment + MAX_STATE_CHARS)])
        if kind is None:  # a blank writes over nothing: some programs end their lines with two returns
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
    """The pieces of a line between carriage returns."""
    while (stop := text.find("\r", start, end)) >= 0:
        yield start, stop
        start = stop + 1
    yield start, end


def _first_word(segment: str) -> str | None:
    """The first word of a state, None for a blank: states of one progress bar begin alike, lines of a text do not."""
    shown = _ESCAPE.sub("", segment)
    word = _WORD.search(shown)
    return word[0] if word else "" if shown.strip() else None


def _find_escapes(text: str, start: int, end: int) -> Iterator[Elision]:
    return (Elision(found.start(), found.end()) for found in _ESCAPE.finditer(text, start, end))
