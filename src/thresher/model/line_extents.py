"""Parse the line extent of a read: the lines of a file that a call requests.

An extent holds the lines and every other argument that changes the output. Two reads certainly
show the same lines only if their extents are equal.
"""

import re
from typing import Any, NamedTuple

from thresher.model.jsontext import canonical_json, load_json_object
from thresher.model.parts import ToolCall
from thresher.model.tool_calls import ToolCallDetails
from thresher.model.tool_catalog import FILE_KEYS, INTENT_KEYS

_FIRST_LINE_KEYS = ("offset", "start_line", "startLine", "line_start", "start", "from_line", "start_line_one_indexed")
_LAST_LINE_KEYS = ("end_line", "endLine", "line_end", "end", "to_line", "end_line_one_indexed_inclusive")
_LINE_COUNT_KEYS = ("limit", "num_lines", "max_lines", "line_count")
_LINE_RANGE_KEYS = ("view_range", "line_range", "lines", "range")
_IGNORED_KEYS = frozenset((*INTENT_KEYS, "should_read_entire_file", "encoding"))
"""Arguments that do not affect the lines shown."""


class LineExtent(NamedTuple):
    """The lines that a read shows, counted from 1."""

    first_line: int = 1
    last_line: int | None = None
    """Last line; None if the read continues to the end of the file."""
    variant: str = ""
    """All other arguments that affect the output, or an unparsable shell command; empty if there is neither."""


def parse_read_extent(call: ToolCall, use: ToolCallDetails) -> LineExtent:
    """Parse the extent of a read from its arguments."""
    if use.command:
        return _parse_command_extent(use.command)
    fields = {key: value for key, value in load_json_object(call.arguments).items() if value not in (None, "", False)}
    if fields.get("command") in ("view", "read"):  # an editor's subcommand does not affect the lines
        del fields["command"]
    path = next((key for key in FILE_KEYS if key in fields), "")
    if isinstance(fields.get(path), str):
        del fields[path]
    first, last = _take_line_range(fields)
    rest = {key: value for key, value in fields.items() if key not in _IGNORED_KEYS}
    return LineExtent(max(first, 1), last, canonical_json(rest) if rest else "")


def _take_line_range(fields: dict[str, Any]) -> tuple[int, int | None]:
    """Remove the line range from the arguments and return it; values that are not numbers stay."""
    pair = next((key for key in _LINE_RANGE_KEYS if _is_range(fields.get(key))), "")
    if pair:
        first, last = fields.pop(pair)
        return first, last if last >= first else None
    start = _take_int(fields, _FIRST_LINE_KEYS)
    stop = _take_int(fields, _LAST_LINE_KEYS)
    count = _take_int(fields, _LINE_COUNT_KEYS)
    first = 1 if start is None else start
    if stop is None and count is not None:
        stop = max(first, 1) + count - 1
    return first, stop


def _is_range(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(type(number) is int for number in value) and value[0] > 0


def _take_int(fields: dict[str, Any], keys: tuple[str, ...]) -> int | None:
    for key in keys:
        value = fields.get(key)
        if type(value) is int and value >= 0:
            del fields[key]
            return value
    return None


MAX_COMMAND_CHARS = 1000
_STAGE = re.compile(r"(?:^|[|;&\n]|\bsudo\s|=[^\s=]*\s)\s*(head|tail|sed)\s([^|]*)")
_SED = re.compile(r"""-n\s+["']?(\d+)(?:,(\d+|\$))?p["']?\s""")
_HEAD = re.compile(r"(?:-n\s*|--lines[=\s]|-)(\d+)(?=\s|$)")
_TAIL = re.compile(r"(?:-n\s*|--lines[=\s])?\+(\d+)(?=\s|$)")


def _parse_command_extent(command: str) -> LineExtent:
    """Parse the lines of a file that a shell command shows; a command that cannot be parsed becomes the `variant`."""
    stages = _STAGE.findall(command) if len(command) <= MAX_COMMAND_CHARS else []
    if not stages and len(command) <= MAX_COMMAND_CHARS:
        return LineExtent()
    name, options = stages[0] if len(stages) == 1 else ("", "")
    match: re.Match[str] | None = None
    if name == "sed" and (match := _SED.search(f"{options} ")):
        last = match[2] or match[1]
        return LineExtent(int(match[1]), None if last == "$" else int(last))
    if name == "head" and (match := _HEAD.search(options)):
        return LineExtent(1, int(match[1]))
    if name == "head" and not re.search(r"(?:^|\s)-", options):
        return LineExtent(1, 10)
    if name == "tail" and (match := _TAIL.search(options)):
        return LineExtent(int(match[1]))
    return LineExtent(variant=" ".join(command.split()))
