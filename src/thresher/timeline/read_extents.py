"""Parse the lines that a read shows: remove line numbers, and detect whether they reach the end of the file.

Every agent formats lines in its own way (`  12→text`, `12: text`, `00012| text`, plain) and adds text before and after
them. If lines are omitted in the middle, truncated, or not numbered consecutively, the result is ignored: a wrong text
is worse than none.
"""

import re
from typing import NamedTuple

from thresher.model.line_extents import LineExtent, parse_read_extent
from thresher.model.tool_calls import ToolUse
from thresher.model.tool_outcomes import parse_tool_outcome

MOST_LINES = 2000
"""Agents show this many lines of a file by default. A read that shows that many may be truncated."""
_NUMBERED_LINE = re.compile(r" *(\d{1,9})(?:→|\t|: |:|\| ?)")
_EMPTY_NUMBERED_LINE = re.compile(r" *(\d{1,9})(?:→|\t|:|\|)? *")
_WRAPPER = re.compile(r"\A\s*(?:<path>[^\n]*</path>\n<type>(\w+)</type>\n)?<(content|file)>\n?(.*?)\n?</\2>", re.DOTALL)
_OMISSION = re.compile(
    r"tokens truncated|<elided_chars>|<output_head>|characters? (?:elided|truncated|omitted)|lines (?:elided|omitted)"
    r"|\A<persisted-output>|\AFile content \([^)]*\) exceeds|\A<tool_use_error>"
    r"|\[\.\.\. ?truncated|\[truncated|output truncated|^\.\.\. ?\[\d+ ",
    re.IGNORECASE | re.MULTILINE,
)
_CUT_LINE = re.compile(
    r"(?:\.\.\. ?\[truncated\]|\.\.\. \(line truncated[^)\n]{0,200}\)|\[line truncated\])$", re.MULTILINE
)
_END_NOTICE = re.compile(r"\(End of file")
_MORE_NOTICES = {
    ")": re.compile(r"\((?:Output capped|File has more lines|Showing lines)|\.\.\. \(\d{1,9} more lines"),
    "]": re.compile(r"\[(?:\d{1,9} more line|Showing lines )"),
}
"""Starts of a notice in the last line, by the last character of that line."""
_WINDOW = re.compile(
    r"\[File: [^\n]{0,4096} \((\d{1,9}) lines? total\)\]\n(?:\(\d+ more lines? above\)\n)?"
    r"((?:\d{1,9}:[^\n]*(?:\n|\Z))+)"
)
"""The part of the open file that SWE-agent shows."""
_EMPTY = re.compile(r"\A\s*(?:<system-reminder>)?Warning: the file exists but the contents are empty")
_SNIPPET = re.compile(r"^ *\d{1,9}→[^\n]*(?:\n *\d{1,9}→[^\n]*)*", re.MULTILINE)
_NUMBERING_COMMAND = re.compile(r"\bcat\s+-[a-zA-Z]*n|\bnl\b|\bbat\b")


class SeenLines(NamedTuple):
    """Lines of a file that a read shows."""

    first: int
    text: str
    reaches_end: bool
    """True if the file ends with these lines."""

    @property
    def is_whole(self) -> bool:
        """True if this is the whole file."""
        return self.first == 1 and self.reaches_end


def parse_read_result(link: ToolUse) -> SeenLines | None:
    """Return the lines that a successful read shows, or None if they are not certain."""
    if link.result is None or len(link.result.content) > 1:
        return None
    extent = parse_read_extent(link.call, link.use)
    end = parse_tool_outcome(link.result, is_command=bool(link.use.command), is_read=True)
    if end.failed or extent.variant:
        return None
    text = _strip_wrappers(end.output.replace("\r\n", "\n"))
    if _EMPTY.match(link.result.text):
        return SeenLines(1, "", reaches_end=True)
    if not text or _OMISSION.search(text) or _CUT_LINE.search(text):
        return None
    if text.startswith("[File: "):
        return _parse_file_window(text)
    return _lines(
        text, extent, is_command=bool(link.use.command), counts=bool(_NUMBERING_COMMAND.search(link.use.command))
    )


def _parse_file_window(text: str) -> SeenLines | None:
    match = _WINDOW.search(text)
    rows = _strip_numbers(match[2].rstrip("\n").split("\n")) if match else None
    if match is None or rows is None:
        return None
    first, lines = rows
    ended = first + len(lines) - 1 == int(match[1])
    return SeenLines(first, "".join(f"{line}\n" for line in lines), reaches_end=ended)


def parse_edit_snippet(text: str) -> SeenLines | None:
    """Parse the numbered lines around the edit, which some editing tools print in their result."""
    match = _SNIPPET.search(text)
    if match is None:
        return _parse_file_window(text.replace("\r\n", "\n")) if "[File: " in text else None
    rows = _strip_numbers(match[0].split("\n"))
    return SeenLines(rows[0], "\n".join(rows[1]), reaches_end=False) if rows else None


def _strip_wrappers(text: str) -> str:
    """Remove reminders after the file and tags around it. Return an empty text for a folder."""
    end = len(text)
    while text.endswith("</system-reminder>", 0, stop := _find_content_end(text, end)):
        end = _find_content_end(text, max(text.rfind("<system-reminder>", 0, stop), 0), "\n")
    text = text[:end]
    wrapped = _WRAPPER.match(text)
    if wrapped is None:
        return text
    return wrapped[3] if wrapped[1] in (None, "file") else ""


def _find_content_end(text: str, end: int, blank: str | None = None) -> int:
    """Return where the trailing white space before `end` begins. It copies a little text at a time."""
    while end:
        start = max(0, end - 4096)
        tail = text[start:end].rstrip(blank)
        if tail:
            return start + len(tail)
        end = start
    return 0


def _find_notices(text: str) -> tuple[int, int]:
    """Return where the content ends before a notice that the file ends, or that it continues; -1 if there is none."""
    stop = _find_content_end(text, len(text))
    line = text.rfind("\n", 0, stop) + 1
    closing = text[stop - 1 : stop]
    ended = _END_NOTICE.search(text, line, stop) if closing == ")" else None
    more = _MORE_NOTICES[closing].search(text, line, stop) if closing in _MORE_NOTICES and ended is None else None
    end, continuation = (
        _find_content_end(text, match.start(), "\n") if match is not None else -1 for match in (ended, more)
    )
    return end, continuation


def _lines(text: str, extent: LineExtent, *, is_command: bool, counts: bool) -> SeenLines | None:
    end, continuation = _find_notices(text)
    footer = max(end, continuation)
    rows = (text if footer < 0 else text[:footer]).split("\n")
    if is_command and rows[-1] == "":
        rows = rows[:-1]
    numbered = _strip_numbers(rows) if rows and (counts or not is_command) else None
    if numbered is not None and numbered[0] != extent.first_line:
        numbered = None  # the numbers are part of the file
    first, rows = numbered or (extent.first_line, rows)
    at_end = end >= 0 or (continuation < 0 and _reaches_end(rows, extent))
    if at_end and rows[-1:] == [""]:  # the final line end, numbered like a line
        return SeenLines(first, "".join(f"{row}\n" for row in rows[:-1]), reaches_end=True)
    return SeenLines(first, "".join(f"{row}\n" for row in rows), reaches_end=at_end)


def _reaches_end(rows: list[str], extent: LineExtent) -> bool:
    if extent.last_line is None:
        return len(rows) < MOST_LINES
    return len(rows) < extent.last_line - extent.first_line + 1


def _strip_numbers(rows: list[str]) -> tuple[int, list[str]] | None:
    """Return the number of the first line and the lines without numbers, or None if the numbers are not consecutive."""
    match = _NUMBERED_LINE.match(rows[0])
    if match is None:
        return None
    first = int(match[1])
    bare: list[str] = []
    for number, row in enumerate(rows, first):
        match = _NUMBERED_LINE.match(row) or _EMPTY_NUMBERED_LINE.fullmatch(row)
        if match is None or int(match[1]) != number:
            return None
        bare.append(row[match.end() :])
    return first, bare
