"""Whose each line of an Aider chat history is: the user's, Aider's own, or the model's.

Aider appends to one Markdown file. A line of the user's has `#### ` before it, one of its own `> `, and the model's
words stand as they are, which is Markdown too and may hold both. What tells them apart is the way Aider writes: each
line of the user's and of its own ends in two spaces, of an output of several lines only the first is quoted and only
the last ends so, and the model's words stand between blank lines. Where an editor took the spaces away, all that looks
like Aider's outside of code is taken for it, as Aider does when it reads its own file.
"""

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Literal, NamedTuple, cast

import msgspec

from thresher.transcripts.source import SourceFile

HEADER = re.compile(r"# aider chat started at (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)\s*")
FENCE = re.compile(r"\s*(`{3,}|<(source|code|pre|codeblock|sourcecode)>)")
"""What opens code; Aider asks for tags where a file has backticks itself."""
MODE_LINE = re.compile(r"\s*-\*-.*-\*-\s*")
"""What people write at the top for their editor."""
USER_PREFIX, AIDER_PREFIX, LINE_BREAK_SUFFIX = "#### ", "> ", "  "
AIDER_ONLY_LINE = re.compile(
    r"> (?:Tokens: |\^C|Applied edit to |Commit [0-9a-f]{7} |The LLM did not conform |Did not apply edit)"
)
"""What only Aider says, and after the model only: it ends code that was left open."""

_RAW_LINE_DECODER = cast("msgspec.json.Decoder[bytes]", SimpleNamespace(decode=bytes))
"""Blank lines count here, and so do the spaces in them: `SourceFile.lines` leaves both out."""

AiderBlockKind = Literal["user", "tool", "assistant", ""]


class AiderRun(NamedTuple):
    """One start of Aider, and all that was said until the next."""

    started: str
    """Local time; empty for what stands before the first header."""
    first_line: int
    """The number of the first line below the header."""
    lines: list[str]


class AiderBlock(NamedTuple):
    """Lines on end from one voice, without what Aider writes around them."""

    kind: AiderBlockKind
    line: int
    lines: list[str]


def split_aider_runs(source: SourceFile) -> Iterator[AiderRun]:
    """One run after the other; what stands before the first header comes first, if it says anything."""
    run = AiderRun("", 1, [])
    wrong: list[int] = []
    for number, data, _ in source.records(_RAW_LINE_DECODER):
        line = _decode_line(data, number)
        if "\ufffd" in line and b"\xef\xbf\xbd" not in data:
            wrong.append(number)
        found = HEADER.fullmatch(line)
        if found:
            if run.started or any(map(str.strip, run.lines)):
                yield run
            run = AiderRun(found[1], number + 1, [])
        else:
            run.lines.append(line)
    if wrong:
        source.report(f"{len(wrong)} lines are not UTF-8", "what is wrong in them was replaced", wrong[0])
    if run.started or any(map(str.strip, run.lines)):
        yield run


def _decode_line(data: bytes, number: int) -> str:
    data = data.removeprefix(b"\xef\xbb\xbf") if number == 1 else data
    line = data.removesuffix(b"\r").replace(b"\0", b"").decode("utf-8", "replace")
    return "" if number == 1 and MODE_LINE.fullmatch(line) else line


def split_aider_blocks(run: AiderRun) -> list[AiderBlock]:
    """The lines of a run by voice; blank ones only between lines of one voice."""
    voices = _LineClassifier(run.lines)
    found: list[AiderBlock] = []
    waiting = 0
    for place, line in enumerate(run.lines):
        kind = voices.classify(place, line)
        if not kind:
            waiting += 1
            continue
        bare = line if kind == "assistant" else line[len(voices.prefix) :].rstrip()
        if not found or found[-1].kind != kind or (kind == "user" and waiting):
            found.append(AiderBlock(kind, run.first_line + place, [bare]))
        else:
            found[-1].lines.extend([*[""] * waiting, bare])
        waiting = 0
    return found


class _LineClassifier:
    """Whose the next line is, by those before it."""

    def __init__(self, lines: Sequence[str]) -> None:
        self.prefix = ""
        """What Aider put before the last line."""
        self._lines = lines
        self._keeps_line_breaks = any(
            line.startswith((USER_PREFIX, AIDER_PREFIX)) and line.endswith(LINE_BREAK_SUFFIX) for line in lines
        )
        self._aider_only_lines = [place for place, line in enumerate(lines) if AIDER_ONLY_LINE.match(line)]
        self._closing_lines_by_fence: dict[str, list[int]] = {}
        self._kind: AiderBlockKind = ""
        self._is_output_open = False
        """An output goes on until a line ends in two spaces."""
        self._after_blank = True
        self._awaited_closing = ""
        """What closes the code that the model is writing."""

    def classify(self, place: int, line: str) -> AiderBlockKind:
        """The voice of a line; none for a blank one that is no part of anything."""
        after_blank, self._after_blank = self._after_blank, not line.strip()
        self.prefix = ""
        if self._after_blank:
            return self._kind if self._kind == "assistant" or self._is_output_open else ""
        kind = self._classify_text_line(place, line, after_blank=after_blank)
        self._awaited_closing = self._next_awaited_closing(line) if kind == "assistant" else ""
        self._kind = kind
        return kind

    def _classify_text_line(self, place: int, line: str, *, after_blank: bool) -> AiderBlockKind:
        is_ended = line.endswith(LINE_BREAK_SUFFIX) or not self._keeps_line_breaks
        may_be_user = is_ended and (after_blank or self._kind == "user") and _starts_with_prefix(line, USER_PREFIX)
        if may_be_user and self._is_outside_code(place):
            self._is_output_open, self.prefix = False, USER_PREFIX
            return "user"
        if self._is_output_open:
            self._is_output_open = not line.endswith(LINE_BREAK_SUFFIX)
            return "tool"
        if _starts_with_prefix(line, AIDER_PREFIX) and self._is_aider_line(
            place, line, is_ended=is_ended, after_blank=after_blank
        ):
            self._is_output_open, self.prefix = not is_ended, AIDER_PREFIX
            return "tool"
        # The model's words stand behind a blank line: what does not goes on with an output.
        return "tool" if self._kind == "tool" and not after_blank else "assistant"

    def _is_aider_line(self, place: int, line: str, *, is_ended: bool, after_blank: bool) -> bool:
        if is_ended:
            return self._kind != "assistant" or (after_blank and self._is_outside_code(place))
        is_straight_below = not self._kind or (self._kind != "assistant" and not after_blank)
        return is_straight_below or (after_blank and AIDER_ONLY_LINE.match(line) is not None)

    def _next_awaited_closing(self, line: str) -> str:
        if self._awaited_closing:
            return "" if line.strip() == self._awaited_closing else self._awaited_closing
        opened = FENCE.match(line)
        return "" if opened is None else opened[1].replace("<", "</")

    def _is_outside_code(self, place: int) -> bool:
        """Whether a line is none of code that the model shows; code that was cut off ends where Aider surely speaks.

        With two spaces at its end it is never the model's: answers that were cut off are many, and code that quotes
        a history with its spaces is rare.
        """
        if self._keeps_line_breaks or not self._awaited_closing:
            return True
        if self._awaited_closing not in self._closing_lines_by_fence:
            self._closing_lines_by_fence[self._awaited_closing] = [
                n for n, line in enumerate(self._lines) if line.strip() == self._awaited_closing
            ]
        end = _first_position_from(self._closing_lines_by_fence[self._awaited_closing], place)
        return end is None or (_first_position_from(self._aider_only_lines, place) or end) < end


def _starts_with_prefix(line: str, mark: str) -> bool:
    return line.startswith(mark) or line == mark.rstrip()


def _first_position_from(places: Sequence[int], place: int) -> int | None:
    at = bisect_left(places, place)
    return places[at] if at < len(places) else None
