"""Parse the outcome of a tool call from its result.

Some dialects flag failures. Agents that run commands write the exit code into the text, each in its own format, before
or after the output. Other tools return a JSON object that reports an error. Without a flag, an exit code and such an
object, a short result that starts like an error message counts as a failure, and so does any traceback that is not
the content of a file.
"""

import re
from typing import Any, NamedTuple

from thresher.model.jsontext import load_json_object
from thresher.model.parts import ToolResult
from thresher.model.text import to_printable_line
from thresher.model.tool_calls import ToolCallDetails


class ToolOutcome(NamedTuple):
    """Success or failure of a call, and its output without the agent's wrapping."""

    is_known: bool
    failed: bool
    exit_code: int | None
    output: str


UNKNOWN_OUTCOME = ToolOutcome(is_known=False, failed=False, exit_code=None, output="")
_EXIT_CODE = re.compile(
    r"^(?:exit ?code:? |(?:process|command) exited with code |<returncode>|<exit_code>"
    r"|<(?:shellId: \w{1,20} completed|exited) with exit code |\[the command completed with exit code )(-?\d{1,10})\b",
    re.IGNORECASE | re.MULTILINE,
)
_OUTPUT_HEADER = re.compile(
    r"\A(?:Exit code \d+(?:\n|\Z)|<returncode>-?\d+</returncode>\s*<output>\n?"
    r"|(?:(?:Chunk ID|Exit code|Wall time|Original token count|Total output lines): [^\n]*\n"
    r"|Process [^\n]*\n){1,6}Output:\n(?:Total output lines: [^\n]*\n+)?)"
)
_OUTPUT_FOOTER = re.compile(
    r"(?:</output>|^Command exited with code -?\d+|^\[The command completed with exit code -?\d+\.\]"
    r"|^<(?:shellId: \w{1,20} completed|exited) with exit code -?\d+>|<system-reminder>[^<]*</system-reminder>)\Z",
    re.MULTILINE,
)
_ERROR_OPENING = re.compile(
    r"\s*(?:observation:\s*)?(?:<tool_use_error>|\[?error\b|traceback \(most recent"
    r"|[\w.]{0,60}(?:Error|Exception): |fatal: |ENOENT\b|(?:/bin/)?(?:ba|z|da)?sh: "
    r"|(?:file|path|tool|function) not found\b|no such (?:file|tool|function)\b"
    r"|(?:tool|command|function|execution)(?: call| execution| [`'\"][^`'\"\n]{1,60}[`'\"])? failed\b"
    r"|failed to (?:execute|run|call|read|write|open|find|parse|apply)\b|failed in sandbox\b"
    r"|(?:permission|access) denied\b|(?:file|path) does not exist\b|string to replace not found\b"
    r"|MCP error -?\d|apply_patch verification failed\b|invalid (?:`\w{1,40}` )?(?:argument|parameter)s?\b"
    r"|ran into \[Errno |\w{1,20}: [^\n]{0,200}(?:No such file or directory|Permission denied)\s*(?:\Z|\n))",
    re.IGNORECASE,
)
_CERTAIN_OPENING = re.compile(r"\s*(?:<tool_use_error>|Traceback \(most recent call last\))")
"""Openings of a failure of any length."""
_FAILED_PLACEHOLDER = re.compile(r"\s*\[thresher t1:[0-9a-f]{16} · [^\n\[\]]* · failed(?: · [^\n\[\]]*)?\]\s*\Z")
_ERROR_OBJECT_OPENING = re.compile(r"""\s*\{\s*"error"\s*:\s*(?:"[^"]|\{\s*")""")
_EXIT_CODE_AT_END = re.compile(r'"(?:exit_?code|return_?code)"\s*:\s*-?[1-9]\d{0,9}\s*\}{1,2}\s*\Z', re.IGNORECASE)
_OBJECT_KEY = re.compile(r'"(?:error|is_?error|success|ok|status|exit_?code|return_?code)"', re.IGNORECASE)
_EXIT_CODE_KEYS = ("exit_code", "exitCode", "returncode", "return_code", "returnCode", "ExitCode")
_WRAPPER_KEYS = ("result", "output", "response")
_ERROR_WORD = re.compile(r"error|exception|fail|fatal|panic|not found|no such|denied|cannot|refused", re.IGNORECASE)
_ERROR_TAGS = re.compile(r"</?(?:tool_use_error|error|output)>")
_ERROR_NAME = re.compile(r"\w(?:Error|Exception)\b|\b(?:error(?:\[\w+\])?|fatal|panic):", re.IGNORECASE)
MAX_ERROR_ANSWER_CHARS = 500
MAX_SEARCHED_CHARS = 6000
"""Characters at the end of an output to search for an error line or a footer."""
MAX_OBJECT_CHARS = 20_000
"""Maximum length of a JSON object that is decoded to find an error in it."""
COMMAND_CATEGORIES = ("execution", "file_edit")
"""Categories of tools whose results may contain an exit code. Codex runs patches as commands."""


def parse_tool_outcome(result: ToolResult | None, *, is_command: bool, is_read: bool = False) -> ToolOutcome:
    """Parse the outcome of a call.

    Only a command's result is searched for an exit code. For a read, only a short result can be an error without a
    flag, because a file may contain anything.
    """
    if result is None:
        return UNKNOWN_OUTCOME
    text = result.text
    code = None
    if is_command:
        code, text = _parse_exit_code(text)
    failed = result.is_error or (code != 0 if code is not None else _looks_failed(text, is_read=is_read))
    return ToolOutcome(True, failed, code, _strip_wrapping(text))


def has_failed(result: ToolResult, use: ToolCallDetails) -> bool:
    """Return whether a result reports a failure, with or without an error flag."""
    is_command = bool(use.command) or use.category in COMMAND_CATEGORIES
    return result.is_error or parse_tool_outcome(result, is_command=is_command, is_read=use.operation == "read").failed


def _looks_failed(text: str, *, is_read: bool) -> bool:
    is_short = len(text) < MAX_ERROR_ANSWER_CHARS
    if is_read and not is_short:
        return False
    if _CERTAIN_OPENING.match(text) or (is_short and _ERROR_OPENING.match(text)):
        return True
    if text[:100].lstrip().startswith("{"):
        return _reports_error(text)
    return bool(_FAILED_PLACEHOLDER.match(text)) if text.startswith("[thresher ") else False


def _reports_error(text: str) -> bool:
    """Return whether a JSON object reports an error; a truncated object counts if its start or its end shows it."""
    if _ERROR_OBJECT_OPENING.match(text) or _EXIT_CODE_AT_END.search(text[-60:]):
        return True
    if len(text) > MAX_OBJECT_CHARS or not _OBJECT_KEY.search(text):
        return False
    value: Any = load_json_object(text)
    if len(value) == 1:
        ((key, inner),) = value.items()
        value = inner if key in _WRAPPER_KEYS and isinstance(inner, dict) else value
    codes = [value.get(key) for key in _EXIT_CODE_KEYS]
    return bool(
        value.get("error")
        or value.get("is_error") is True
        or value.get("isError") is True
        or value.get("success") is False
        or value.get("ok") is False
        or value.get("status") in ("error", "failed", "failure")
        or any(type(code) is int and code != 0 for code in codes)
    )


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
