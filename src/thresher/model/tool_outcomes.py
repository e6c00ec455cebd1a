"""Parse the outcome of a tool call from its result.

Most dialects flag failures. Agents that run commands write the exit code into the text, each in its own format, before
or after the output. Without a flag and an exit code, a short result that starts like an error message counts as a
failure.
"""

import re
from typing import NamedTuple

from thresher.model.jsontext import load_json_object
from thresher.model.parts import ToolResult
from thresher.model.text import to_printable_line


class ToolOutcome(NamedTuple):
    """Success or failure of a call, and its output without the agent's wrapping."""

    is_known: bool
    failed: bool
    exit_code: int | None
    output: str


UNKNOWN_OUTCOME = ToolOutcome(is_known=False, failed=False, exit_code=None, output="")
_EXIT_CODE = re.compile(
    r"^(?:exit code:? |(?:process|command) exited with code |<returncode>|<exit_code>"
    r"|\[the command completed with exit code )(-?\d{1,10})\b",
    re.IGNORECASE | re.MULTILINE,
)
_OUTPUT_HEADER = re.compile(
    r"\A(?:Exit code \d+(?:\n|\Z)|<returncode>-?\d+</returncode>\s*<output>\n?"
    r"|(?:(?:Chunk ID|Exit code|Wall time|Original token count|Total output lines): [^\n]*\n"
    r"|Process [^\n]*\n){1,6}Output:\n(?:Total output lines: [^\n]*\n+)?)"
)
_OUTPUT_FOOTER = re.compile(
    r"(?:</output>|^Command exited with code -?\d+|^\[The command completed with exit code -?\d+\.\]"
    r"|<system-reminder>[^<]*</system-reminder>)\Z",
    re.MULTILINE,
)
_ERROR_OPENING = re.compile(r"\s*(?:<tool_use_error>|\[?error\b|traceback \(most recent)", re.IGNORECASE)
_ERROR_WORD = re.compile(r"error|exception|fail|fatal|panic|not found|no such|denied|cannot|refused", re.IGNORECASE)
_ERROR_TAGS = re.compile(r"</?(?:tool_use_error|error|output)>")
_ERROR_NAME = re.compile(r"\w(?:Error|Exception)\b|\b(?:error(?:\[\w+\])?|fatal|panic):", re.IGNORECASE)
MAX_ERROR_ANSWER_CHARS = 500
MAX_SEARCHED_CHARS = 6000
"""Characters at the end of an output to search for an error line or a footer."""


def parse_tool_outcome(result: ToolResult | None, *, is_command: bool) -> ToolOutcome:
    """Parse the outcome of a call; only a command's result is searched for an exit code."""
    if result is None:
        return UNKNOWN_OUTCOME
    text = result.text
    code = None
    if is_command:
        code, text = _parse_exit_code(text)
    looks_like_error = len(text) < MAX_ERROR_ANSWER_CHARS and bool(_ERROR_OPENING.match(text)) and code is None
    return ToolOutcome(True, result.is_error or looks_like_error or code not in (None, 0), code, _strip_wrapping(text))


def find_error_line(outcome: ToolOutcome) -> str:
    """Return the line of an output that states the error, or an empty string.

    Without an exit code, this is the first line. Otherwise, it is the last line that names an error type, else the last
    line with an error word, else the last line.
    """
    end = _ERROR_TAGS.sub("", outcome.output[-MAX_SEARCHED_CHARS:])
    lines = [line for line in map(to_printable_line, end.splitlines()) if line]
    if not lines:
        return ""
    if outcome.exit_code is None:
        return lines[0]
    matches = (text for pattern in (_ERROR_NAME, _ERROR_WORD) for text in reversed(lines) if pattern.search(text))
    return next(matches, lines[-1])


def _parse_exit_code(text: str) -> tuple[int | None, str]:
    """Return the exit code and the output; older Codex versions encode both as JSON."""
    if text.startswith('{"output":'):
        value = load_json_object(text)
        metadata = value.get("metadata")
        code = metadata.get("exit_code") if isinstance(metadata, dict) else None
        output = value.get("output")
        return code if type(code) is int else None, output if isinstance(output, str) else text
    match = _EXIT_CODE.search(text[:400]) or _EXIT_CODE.search(text[-200:])
    return int(match[1]) if match else None, text


def _strip_wrapping(text: str) -> str:
    """Remove the header and footer that agents put around the output."""
    header = _OUTPUT_HEADER.match(text)
    start = header.end() if header else 0
    end = len(text.rstrip())
    footer = _OUTPUT_FOOTER.search(text, max(start, end - MAX_SEARCHED_CHARS), end)
    return text[start : footer.start()].rstrip("\n") if footer else text[start:]
