"""How a tool's work ended, as far as its result tells.

Most dialects have a flag for failure; agents that run commands write the exit code into the text, each in its own
words, before or after the output. Where there is neither, a short answer that opens like an error is one.
"""

import re
from typing import NamedTuple

from thresher.model.jsontext import load_fields
from thresher.model.parts import ToolResult
from thresher.summarise.words import line


class Outcome(NamedTuple):
    """How it ended, and the output without the words around it."""

    known: bool
    failed: bool
    code: int | None
    output: str


UNKNOWN = Outcome(known=False, failed=False, code=None, output="")
_CODE = re.compile(
    r"^(?:exit code:? |(?:process|command) exited with code |<returncode>|<exit_code>"
    r"|\[the command completed with exit code )(-?\d{1,10})\b",
    re.IGNORECASE | re.MULTILINE,
)
_LEAD = re.compile(
    r"\A(?:Exit code \d+(?:\n|\Z)|<returncode>-?\d+</returncode>\s*<output>\n?"
    r"|(?:(?:Chunk ID|Exit code|Wall time|Original token count|Total output lines): [^\n]*\n"
    r"|Process [^\n]*\n){1,6}Output:\n(?:Total output lines: [^\n]*\n+)?)"
)
_TRAIL = re.compile(
    r"(?:</output>|^Command exited with code -?\d+|^\[The command completed with exit code -?\d+\.\]"
    r"|<system-reminder>[^<]*</system-reminder>)\Z",
    re.MULTILINE,
)
_ERROR = re.compile(r"\s*(?:<tool_use_error>|\[?error\b|traceback \(most recent)", re.IGNORECASE)
_TELLING = re.compile(r"error|exception|fail|fatal|panic|not found|no such|denied|cannot|refused", re.IGNORECASE)
_TAGS = re.compile(r"</?(?:tool_use_error|error|output)>")
_NAMED = re.compile(r"\w(?:Error|Exception)\b|\b(?:error(?:\[\w+\])?|fatal|panic):", re.IGNORECASE)
SHORT_ANSWER = 500
SEARCHED = 6000
"""How much of a long output's end is searched for what went wrong."""


def outcome(result: ToolResult | None, *, is_command: bool) -> Outcome:
    """How a call ended; only a command's result is searched for an exit code."""
    if result is None:
        return UNKNOWN
    text = result.text
    code = None
    if is_command:
        code, text = _unwrapped(text)
    looks_bad = len(text) < SHORT_ANSWER and bool(_ERROR.match(text)) and code is None
    return Outcome(True, result.is_error or looks_bad or code not in (None, 0), code, _output(text))


def error_line(end: Outcome) -> str:
    """The one line of a failure that says most: the last that names an error, or speaks of one, or just the last."""
    lines = [text for text in map(line, _TAGS.sub("", end.output[-SEARCHED:]).splitlines()) if text]
    if not lines:
        return ""
    if end.code is None:
        return lines[0]
    found = (text for sign in (_NAMED, _TELLING) for text in reversed(lines) if sign.search(text))
    return next(found, lines[-1])


def _unwrapped(text: str) -> tuple[int | None, str]:
    """The exit code and the text; older Codex wrote both as JSON."""
    if text.startswith('{"output":'):
        value = load_fields(text)
        metadata = value.get("metadata")
        code = metadata.get("exit_code") if isinstance(metadata, dict) else None
        output = value.get("output")
        return code if type(code) is int else None, output if isinstance(output, str) else text
    found = _CODE.search(text[:400]) or _CODE.search(text[-200:])
    return int(found[1]) if found else None, text


def _output(text: str) -> str:
    """The text without what agents put before and after it."""
    lead = _LEAD.match(text)
    start = lead.end() if lead else 0
    end = len(text.rstrip())
    trail = _TRAIL.search(text, max(start, end - SEARCHED), end)
    return text[start : trail.start()].rstrip("\n") if trail else text[start:]
