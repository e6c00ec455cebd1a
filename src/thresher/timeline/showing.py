"""What a read shows of its file: which lines, without their numbers, and whether the last one is the file's last.

Every agent writes the lines in its own way (`  12→text`, `12: text`, `00012| text`, plain) and puts words before and
after them. Where lines were left out in the middle, or cut, or the numbers do not run on, nothing is taken from the
result: a text that may be wrong is worse than none.
"""

import re
from typing import NamedTuple

from thresher.model.tools import Link
from thresher.policies.files import Extent, extent_of
from thresher.summarise.outcomes import outcome

MOST_LINES = 2000
"""So many lines agents show of a file where nobody says how many; if all are there, there may be more."""
_NUMBERED = re.compile(r" *(\d{1,9})(?:→|\t|: |:|\| ?)")
_BLANKS = re.compile(r" *(\d{1,9})(?:→|\t|:|\|)? *")
_WRAPPED = re.compile(r"\A\s*(?:<path>[^\n]*</path>\n<type>(\w+)</type>\n)?<(content|file)>\n?(.*?)\n?</\2>", re.DOTALL)
_LEFT_OUT = re.compile(
    r"tokens truncated|<elided_chars>|<output_head>|characters? (?:elided|truncated|omitted)|lines (?:elided|omitted)"
    r"|\A<persisted-output>|\AFile content \([^)]*\) exceeds|\A<tool_use_error>"
    r"|\[\.\.\. ?truncated|\[truncated|output truncated|^\.\.\. ?\[\d+ ",
    re.IGNORECASE | re.MULTILINE,
)
_CUT_LINE = re.compile(r"(?:\.\.\. ?\[truncated\]|\.\.\. \(line truncated[^)\n]*\)|\[line truncated\])$", re.MULTILINE)
_ENDED = re.compile(r"\n*\(End of file[^\n]*\)\s*\Z")
_MORE = re.compile(
    r"\n*(?:\(Output capped[^\n]*\)|\(File has more lines[^\n]*\)|\(Showing lines[^\n]*\)|\[\d+ more lines?[^\n]*\]"
    r"|\.\.\. \(\d+ more lines[^\n]*\)|\[Showing lines [^\n]*\])\s*\Z"
)
_WINDOW = re.compile(
    r"\[File: [^\n]* \((\d+) lines? total\)\]\n(?:\(\d+ more lines? above\)\n)?((?:\d{1,9}:[^\n]*(?:\n|\Z))+)"
)
"""What SWE-agent shows of the file that is open."""
_EMPTY = re.compile(r"\A\s*(?:<system-reminder>)?Warning: the file exists but the contents are empty")
_SNIPPET = re.compile(r"^ *\d{1,9}→[^\n]*(?:\n *\d{1,9}→[^\n]*)*", re.MULTILINE)
_NUMBERS = re.compile(r"\bcat\s+-[a-zA-Z]*n|\bnl\b|\bbat\b")


class Shown(NamedTuple):
    """Lines of a file as they were seen."""

    first: int
    text: str
    ended: bool
    """The file ends with them."""

    @property
    def is_whole(self) -> bool:
        """Whether this is the whole file."""
        return self.first == 1 and self.ended


def shown_by(link: Link) -> Shown | None:
    """The lines that a read that went well shows; None where that cannot be told."""
    if link.result is None or len(link.result.content) > 1:
        return None
    extent = extent_of(link.call, link.use)
    end = outcome(link.result, is_command=bool(link.use.command))
    if end.failed or extent.view:
        return None
    text = _bare(end.output.replace("\r\n", "\n"))
    if _EMPTY.match(link.result.text):
        return Shown(1, "", ended=True)
    if not text or _LEFT_OUT.search(text) or _CUT_LINE.search(text):
        return None
    if text.startswith("[File: "):
        return _window(text)
    return _lines(text, extent, is_command=bool(link.use.command), counts=bool(_NUMBERS.search(link.use.command)))


def _window(text: str) -> Shown | None:
    found = _WINDOW.search(text)
    rows = _unnumbered(found[2].rstrip("\n").split("\n")) if found else None
    if found is None or rows is None:
        return None
    first, lines = rows
    ended = first + len(lines) - 1 == int(found[1])
    return Shown(first, "".join(f"{line}\n" for line in lines), ended=ended)


def snippet_of(text: str) -> Shown | None:
    """The numbered lines that some editors answer with: the file around an edit."""
    found = _SNIPPET.search(text)
    if found is None:
        return _window(text.replace("\r\n", "\n")) if "[File: " in text else None
    rows = _unnumbered(found[0].split("\n"))
    return Shown(rows[0], "\n".join(rows[1]), ended=False) if rows else None


def _bare(text: str) -> str:
    """Without reminders behind the file and marks around it; nothing for a folder."""
    while text.rstrip().endswith("</system-reminder>"):
        text = text[: max(text.rfind("<system-reminder>"), 0)].rstrip("\n")
    wrapped = _WRAPPED.match(text)
    if wrapped is None:
        return text
    return wrapped[3] if wrapped[1] in (None, "file") else ""


def _lines(text: str, extent: Extent, *, is_command: bool, counts: bool) -> Shown | None:
    ended = _ENDED.search(text)
    more = _MORE.search(text) if ended is None else None
    footer = ended or more
    rows = (text[: footer.start()] if footer else text).split("\n")
    if is_command and rows[-1] == "":
        rows = rows[:-1]
    numbered = _unnumbered(rows) if rows and (counts or not is_command) else None
    if numbered is not None and numbered[0] != extent.first:
        numbered = None  # numbers of the file's own
    first, rows = numbered or (extent.first, rows)
    at_end = ended is not None or (more is None and _reaches_end(rows, extent))
    if at_end and rows[-1:] == [""]:  # the last line's end, numbered like a line
        return Shown(first, "".join(f"{row}\n" for row in rows[:-1]), ended=True)
    return Shown(first, "".join(f"{row}\n" for row in rows), ended=at_end)


def _reaches_end(rows: list[str], extent: Extent) -> bool:
    if extent.last is None:
        return len(rows) < MOST_LINES
    return len(rows) < extent.last - extent.first + 1


def _unnumbered(rows: list[str]) -> tuple[int, list[str]] | None:
    """The number of the first line, and the lines without theirs; None where numbers do not run on."""
    found = _NUMBERED.match(rows[0])
    if found is None:
        return None
    first = int(found[1])
    bare: list[str] = []
    for number, row in enumerate(rows, first):
        match = _NUMBERED.match(row) or _BLANKS.fullmatch(row)
        if match is None or int(match[1]) != number:
            return None
        bare.append(row[match.end() :])
    return first, bare
