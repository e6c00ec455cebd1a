"""Split an Aider chat history into blocks by author: the user, Aider, or the model.

Aider appends to one Markdown file. Lines of the user have the prefix `#### `, and lines of Aider have the prefix `> `.
Text of the model has no prefix, but it is also Markdown and can contain lines with either prefix. These rules identify
the author:

- A line of the user, and an output of Aider, ends in two spaces.
- If an output has several lines, only the first line has the prefix, and only the last line ends in two spaces.
- Text of the model is between blank lines.

If an editor removed the trailing spaces, the prefix alone identifies a line of Aider. Lines in the model's code blocks,
and lines that directly follow the model's text, are exceptions.
"""

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from thresher.transcripts.source import SourceFile

HEADER = re.compile(r"# aider chat started at (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)\s*")
FENCE = re.compile(r"\s*(`{3,}|<(source|code|pre|codeblock|sourcecode)>)")
"""Opening fence of a code block: backticks or a tag. Aider requests tags for files that contain backticks."""
MODE_LINE = re.compile(r"\s*-\*-.*-\*-\s*")
"""First line with settings for an editor."""
USER_PREFIX, AIDER_PREFIX, LINE_BREAK_SUFFIX = "#### ", "> ", "  "
AIDER_ONLY_LINE = re.compile(
    r"> (?:Tokens: |\^C|Applied edit to |Commit [0-9a-f]{7} |The LLM did not conform |Did not apply edit)"
)
"""Lines that only Aider writes, and only after the model's text. Such a line ends an unclosed code block."""

AiderBlockKind = Literal["user", "tool", "assistant", ""]


class AiderRun(NamedTuple):
    """One run of Aider: the lines from one start of Aider to the next start."""

    started: str
    """Local start time; empty for lines before the first header."""
    first_line: int
    """Number of the first line below the header."""
    lines: list[str]


class AiderBlock(NamedTuple):
    """Consecutive lines of one author, without Aider's prefixes."""

    kind: AiderBlockKind
    line: int
    lines: list[str]


def split_aider_runs(source: SourceFile) -> Iterator[AiderRun]:
    """Yield the runs in order. Lines before the first header are a run if they are not all blank."""
    run = AiderRun("", 1, [])
    invalid_lines: list[int] = []
    for number, data in source.lines(keep_blank=True):
        line = _decode_line(data, number)
        if "\ufffd" in line and b"\xef\xbf\xbd" not in data:
            invalid_lines.append(number)
        if header := HEADER.fullmatch(line):
            if run.started or any(map(str.strip, run.lines)):
                yield run
            run = AiderRun(header[1], number + 1, [])
        else:
            run.lines.append(line)
    if invalid_lines:
        source.report(f"{len(invalid_lines)} lines are not UTF-8", "replaced the invalid bytes", invalid_lines[0])
    if run.started or any(map(str.strip, run.lines)):
        yield run


def _decode_line(data: bytes, number: int) -> str:
    data = data.removeprefix(b"\xef\xbb\xbf") if number == 1 else data
    line = data.removesuffix(b"\r").replace(b"\0", b"").decode("utf-8", "replace")
    return "" if number == 1 and MODE_LINE.fullmatch(line) else line


def split_aider_blocks(run: AiderRun) -> list[AiderBlock]:
    """Split a run into blocks by author. Blank lines are kept only inside a block."""
    classifier = _LineClassifier(run.lines)
    blocks: list[AiderBlock] = []
    blank_count = 0
    for index, line in enumerate(run.lines):
        kind = classifier.classify(index, line)
        if not kind:
            blank_count += 1
            continue
        text = line if kind == "assistant" else line[len(classifier.prefix) :].rstrip()
        if not blocks or blocks[-1].kind != kind or (kind == "user" and blank_count):
            blocks.append(AiderBlock(kind, run.first_line + index, [text]))
        else:
            blocks[-1].lines.extend([*[""] * blank_count, text])
        blank_count = 0
    return blocks


class _LineClassifier:
    """Classifier of lines by author. Callers must classify the lines in order."""

    def __init__(self, lines: Sequence[str]) -> None:
        self.prefix = ""
        """Prefix of the last classified line; empty if this line has none."""
        self._lines = lines
        self._keeps_line_breaks = any(
            line.startswith((USER_PREFIX, AIDER_PREFIX)) and line.endswith(LINE_BREAK_SUFFIX) for line in lines
        )
        self._aider_only_lines = [index for index, line in enumerate(lines) if AIDER_ONLY_LINE.match(line)]
        self._closing_lines_by_fence: dict[str, list[int]] = {}
        self._kind: AiderBlockKind = ""
        self._is_output_open = False
        """True if the last line of Aider did not end in two spaces, so that the output continues."""
        self._after_blank = True
        self._awaited_closing = ""
        """Fence that closes the model's current code block; empty outside of a code block."""

    def classify(self, index: int, line: str) -> AiderBlockKind:
        """Return the kind of block that a line belongs to; empty for a blank line between blocks."""
        after_blank, self._after_blank = self._after_blank, not line.strip()
        self.prefix = ""
        if self._after_blank:
            return self._kind if self._kind == "assistant" or self._is_output_open else ""
        kind = self._classify_text_line(index, line, after_blank=after_blank)
        self._awaited_closing = self._next_awaited_closing(line) if kind == "assistant" else ""
        self._kind = kind
        return kind

    def _classify_text_line(self, index: int, line: str, *, after_blank: bool) -> AiderBlockKind:
        is_ended = line.endswith(LINE_BREAK_SUFFIX) or not self._keeps_line_breaks
        may_be_user = is_ended and (after_blank or self._kind == "user") and _starts_with_prefix(line, USER_PREFIX)
        if may_be_user and self._is_outside_code(index):
            self._is_output_open, self.prefix = False, USER_PREFIX
            return "user"
        if self._is_output_open:
            self._is_output_open = not line.endswith(LINE_BREAK_SUFFIX)
            return "tool"
        has_prefix = _starts_with_prefix(line, AIDER_PREFIX)
        if has_prefix and self._is_aider_line(index, line, is_ended=is_ended, after_blank=after_blank):
            self._is_output_open, self.prefix = not is_ended, AIDER_PREFIX
            return "tool"
        # Text of the model follows a blank line. A line that directly follows an output continues this output.
        return "tool" if self._kind == "tool" and not after_blank else "assistant"

    def _is_aider_line(self, index: int, line: str, *, is_ended: bool, after_blank: bool) -> bool:
        if is_ended:
            return self._kind != "assistant" or (after_blank and self._is_outside_code(index))
        follows_output = not self._kind or (self._kind != "assistant" and not after_blank)
        return follows_output or (after_blank and AIDER_ONLY_LINE.match(line) is not None)

    def _next_awaited_closing(self, line: str) -> str:
        if self._awaited_closing:
            return "" if line.strip() == self._awaited_closing else self._awaited_closing
        opening = FENCE.match(line)
        return "" if opening is None else opening[1].replace("<", "</")

    def _is_outside_code(self, index: int) -> bool:
        """Return whether a line is outside of the model's code blocks. A line that only Aider writes ends a code block.

        In a file with trailing spaces, every line counts as outside. Truncated answers, which leave a code block open,
        are common. Code that quotes a history with trailing spaces is rare.
        """
        if self._keeps_line_breaks or not self._awaited_closing:
            return True
        if self._awaited_closing not in self._closing_lines_by_fence:
            self._closing_lines_by_fence[self._awaited_closing] = [
                n for n, line in enumerate(self._lines) if line.strip() == self._awaited_closing
            ]
        end = _first_index_from(self._closing_lines_by_fence[self._awaited_closing], index)
        return end is None or (_first_index_from(self._aider_only_lines, index) or end) < end


def _starts_with_prefix(line: str, prefix: str) -> bool:
    return line.startswith(prefix) or line == prefix.rstrip()


def _first_index_from(indexes: Sequence[int], start: int) -> int | None:
    position = bisect_left(indexes, start)
    return indexes[position] if position < len(indexes) else None
