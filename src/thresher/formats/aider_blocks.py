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

from thresher.formats.source import SourceFile

HEADER = re.compile(r"# aider chat started at (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)\s*")
FENCE = re.compile(r"\s*(`{3,}|<(source|code|pre|codeblock|sourcecode)>)")
"""What opens code; Aider asks for tags where a file has backticks itself."""
MODE_LINE = re.compile(r"\s*-\*-.*-\*-\s*")
"""What people write at the top for their editor."""
USER, OWN, BREAK = "#### ", "> ", "  "
SURE = re.compile(
    r"> (?:Tokens: |\^C|Applied edit to |Commit [0-9a-f]{7} |The LLM did not conform |Did not apply edit)"
)
"""What only Aider says, and after the model only: it ends code that was left open."""

_AS_THEY_ARE = cast("msgspec.json.Decoder[bytes]", SimpleNamespace(decode=bytes))
"""Blank lines count here, and so do the spaces in them: `SourceFile.lines` leaves both out."""

Kind = Literal["user", "tool", "assistant", ""]


class Run(NamedTuple):
    """One start of Aider, and all that was said until the next."""

    started: str
    """Local time; empty for what stands before the first header."""
    first: int
    """The number of the first line below the header."""
    lines: list[str]


class Block(NamedTuple):
    """Lines on end from one voice, without what Aider writes around them."""

    kind: Kind
    line: int
    lines: list[str]


def runs(source: SourceFile) -> Iterator[Run]:
    """One run after the other; what stands before the first header comes first, if it says anything."""
    run = Run("", 1, [])
    wrong: list[int] = []
    for number, data, _ in source.rows(_AS_THEY_ARE):
        line = _decoded(data, number)
        if "\ufffd" in line and b"\xef\xbf\xbd" not in data:
            wrong.append(number)
        found = HEADER.fullmatch(line)
        if found:
            if run.started or any(map(str.strip, run.lines)):
                yield run
            run = Run(found[1], number + 1, [])
        else:
            run.lines.append(line)
    if wrong:
        source.problem(f"{len(wrong)} lines are not UTF-8", "what is wrong in them was replaced", wrong[0])
    if run.started or any(map(str.strip, run.lines)):
        yield run


def _decoded(data: bytes, number: int) -> str:
    data = data.removeprefix(b"\xef\xbb\xbf") if number == 1 else data
    line = data.removesuffix(b"\r").replace(b"\0", b"").decode("utf-8", "replace")
    return "" if number == 1 and MODE_LINE.fullmatch(line) else line


def blocks(run: Run) -> list[Block]:
    """The lines of a run by voice; blank ones only between lines of one voice."""
    voices = _Voices(run.lines)
    found: list[Block] = []
    waiting = 0
    for place, line in enumerate(run.lines):
        kind = voices.of(place, line)
        if not kind:
            waiting += 1
            continue
        bare = line if kind == "assistant" else line[len(voices.prefix) :].rstrip()
        if not found or found[-1].kind != kind or (kind == "user" and waiting):
            found.append(Block(kind, run.first + place, [bare]))
        else:
            found[-1].lines.extend([*[""] * waiting, bare])
        waiting = 0
    return found


class _Voices:
    """Whose the next line is, by those before it."""

    def __init__(self, lines: Sequence[str]) -> None:
        self.prefix = ""
        """What Aider put before the last line."""
        self._lines = lines
        self._is_kept = any(line.startswith((USER, OWN)) and line.endswith(BREAK) for line in lines)
        self._sure = [place for place, line in enumerate(lines) if SURE.match(line)]
        self._closings: dict[str, list[int]] = {}
        self._kind: Kind = ""
        self._is_open = False
        """An output goes on until a line ends in two spaces."""
        self._after_blank = True
        self._closing = ""
        """What closes the code that the model is writing."""

    def of(self, place: int, line: str) -> Kind:
        """The voice of a line; none for a blank one that is no part of anything."""
        after_blank, self._after_blank = self._after_blank, not line.strip()
        self.prefix = ""
        if self._after_blank:
            return self._kind if self._kind == "assistant" or self._is_open else ""
        kind = self._voice(place, line, after_blank=after_blank)
        self._closing = self._code(line) if kind == "assistant" else ""
        self._kind = kind
        return kind

    def _voice(self, place: int, line: str, *, after_blank: bool) -> Kind:
        is_ended = line.endswith(BREAK) or not self._is_kept
        if _begins(line, USER) and is_ended and (after_blank or self._kind == "user") and self._is_outside(place):
            self._is_open, self.prefix = False, USER
            return "user"
        if self._is_open:
            self._is_open = not line.endswith(BREAK)
            return "tool"
        if _begins(line, OWN) and self._is_own(place, line, is_ended=is_ended, after_blank=after_blank):
            self._is_open, self.prefix = not is_ended, OWN
            return "tool"
        # The model's words stand behind a blank line: what does not goes on with an output.
        return "tool" if self._kind == "tool" and not after_blank else "assistant"

    def _is_own(self, place: int, line: str, *, is_ended: bool, after_blank: bool) -> bool:
        if is_ended:
            return self._kind != "assistant" or (after_blank and self._is_outside(place))
        is_straight_below = not self._kind or (self._kind != "assistant" and not after_blank)
        return is_straight_below or (after_blank and SURE.match(line) is not None)

    def _code(self, line: str) -> str:
        if self._closing:
            return "" if line.strip() == self._closing else self._closing
        opened = FENCE.match(line)
        return "" if opened is None else opened[1].replace("<", "</")

    def _is_outside(self, place: int) -> bool:
        """Whether a line is none of code that the model shows; code that was cut off ends where Aider surely speaks.

        With two spaces at its end it is never the model's: answers that were cut off are many, and code that quotes
        a history with its spaces is rare.
        """
        if self._is_kept or not self._closing:
            return True
        if self._closing not in self._closings:
            self._closings[self._closing] = [n for n, line in enumerate(self._lines) if line.strip() == self._closing]
        end = _first_from(self._closings[self._closing], place)
        return end is None or (_first_from(self._sure, place) or end) < end


def _begins(line: str, mark: str) -> bool:
    return line.startswith(mark) or line == mark.rstrip()


def _first_from(places: Sequence[int], place: int) -> int | None:
    at = bisect_left(places, place)
    return places[at] if at < len(places) else None
