"""What happened to files: which call read which lines of which file, and which call changed it.

A path is written in one way, so that `./a.py` and `a.py` are one file and two files of one name in two folders stay
two. A relative path is taken for an absolute one that ends with it, if there is just one such in the history. What a
read shows of its file is an extent: its lines, and whatever else its arguments ask for. Only reads of equal extent
show the same lines for certain.
"""

import posixpath
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from thresher.edits.placeholder import find_placeholder_ids
from thresher.model import History, Message, Place, ToolCall, ToolResult, part_text
from thresher.model.jsontext import canonical_json, load_json_object
from thresher.model.message_cache import cached_per_message
from thresher.model.tool_calls import FileOperation, ToolCallDetails, describe_tool_call
from thresher.model.tool_catalog import FILE_KEYS, INTENT_KEYS
from thresher.policies.base import is_failed_call

CHANGE_OPERATIONS: tuple[FileOperation, ...] = ("write", "edit", "delete", "move")


class LineExtent(NamedTuple):
    """What a read shows of its file."""

    first_line: int = 1
    last_line: int | None = None
    """None: to the end."""
    variant: str = ""
    """What makes it a look of its own kind, beyond lines: pages, the end of the file, several ranges."""


class FileRead(NamedTuple):
    """A read that brought something."""

    path: str
    extent: LineExtent
    order: int
    """The number of its chain in the history."""
    turn: int
    result_place: Place
    """Where its result stands."""
    result: ToolResult

    @property
    def is_complete(self) -> bool:
        """Whether its text is all there: nothing stands in for it, or for a piece of it."""
        return not find_placeholder_ids(part_text(self.result))

    def shown_lines(self) -> tuple[int, int]:
        """The first and the last line it really shows, counted from its text."""
        end = self.extent.first_line + part_text(self.result).rstrip("\n").count("\n")
        return self.extent.first_line, end if self.extent.last_line is None else min(end, self.extent.last_line)


class FileEdit(NamedTuple):
    """A change of one file that succeeded."""

    path: str
    operation: FileOperation
    order: int
    turn: int


class FileAccesses(NamedTuple):
    """All that happened to files, in order."""

    reads: tuple[FileRead, ...]
    edits: dict[str, list[FileEdit]]
    """The edits of each file."""

    def find_edit(self, path: str, after: int, before: int | None = None) -> FileEdit | None:
        """The first edit of a file after a chain, and before another one, given by their order."""
        edits = self.edits.get(path, [])
        at = bisect_right(edits, after, key=lambda edit: edit.order)
        return edits[at] if at < len(edits) and (before is None or edits[at].order < before) else None


def collect_file_accesses(history: History) -> FileAccesses:
    """The reads and edits of a history that came to something."""
    touched = [
        (order, link, touch)
        for order, link in enumerate(history.links)
        if (touch := _parse_message_accesses(history[link.chain.call.message])[link.chain.call.part])
        and not is_failed_call(link)
    ]
    names = _resolve_relative_paths(
        path for _, _, touch in touched for path in (touch.read_path, *touch.changed_paths) if path
    )
    reads: list[FileRead] = []
    edits: dict[str, list[FileEdit]] = {}
    for order, link, touch in touched:
        turn = history.turn(link.chain.call.message)
        if touch.read_path and link.chain.result and link.result:
            reads.append(FileRead(names[touch.read_path], touch.extent, order, turn, link.chain.result, link.result))
        for path, operation in touch.changed_paths.items():
            edits.setdefault(names[path], []).append(FileEdit(names[path], operation, order, turn))
    return FileAccesses(tuple(reads), edits)


class _CallAccess(NamedTuple):
    read_path: str
    """The file that is read."""
    extent: LineExtent
    changed_paths: dict[str, FileOperation]


@cached_per_message
def _parse_message_accesses(message: Message) -> tuple[_CallAccess | None, ...]:
    return tuple([_parse_call_access(part) if isinstance(part, ToolCall) else None for part in message.parts])


def _parse_call_access(call: ToolCall) -> _CallAccess | None:
    use = describe_tool_call(call)
    if use.operation == "read" and use.path:
        return _CallAccess(normalize_path(use.path), parse_read_extent(call, use), {})
    if use.operation in CHANGE_OPERATIONS:
        return _CallAccess("", LineExtent(), find_changed_paths(call, use))
    return None


# --- paths ---------------------------------------------------------------------------------------------------

_ROOT = re.compile(r"[A-Za-z]:/|/|~[^/]*/?")


def normalize_path(path: str, cwd: str = "") -> str:
    """The one way to write a path: forward slashes, no `.` or `..`; `~` and the case stay."""
    flat = path.strip()
    if re.match(r"[A-Za-z]:\\|\\\\", flat) or "/" not in flat:
        flat = flat.replace("\\", "/")
    if not flat:
        return ""
    root = _ROOT.match(flat)
    if root is None:
        return normalize_path(f"{cwd}/{flat}") if cwd else posixpath.normpath(flat)
    rest = flat[root.end() :].lstrip("/")
    if root[0].startswith("~"):
        home = root[0].rstrip("/")
        return f"{home}/{posixpath.normpath(rest)}" if rest else home
    return root[0] + posixpath.normpath(f"/{rest}")[1:]


def _resolve_relative_paths(paths: Iterable[str]) -> dict[str, str]:
    """Each path with its full name: the one absolute path here that ends with it, or itself."""
    known = dict.fromkeys(paths)
    relative = {path for path in known if not _ROOT.match(path)}
    found: dict[str, set[str]] = {}
    for path in known:
        if path in relative or not relative:
            continue
        at = path.find("/")
        while at >= 0:
            if path[at + 1 :] in relative:
                found.setdefault(path[at + 1 :], set()).add(path)
            at = path.find("/", at + 1)
    return {path: min(found[path]) if len(found.get(path, ())) == 1 else path for path in known}


_PATCH_HEADER = re.compile(r"^\*\*\* (?:(Update|Add|Delete) File|Move to): ([^\r\n]+)", re.MULTILINE)
_PATCH_OPERATION: dict[str, FileOperation] = {"Update": "edit", "Add": "write", "Delete": "delete"}
_DESTINATION_KEYS = ("destination", "destination_path", "dest", "target", "new_path", "to")


def find_changed_paths(call: ToolCall, use: ToolCallDetails) -> dict[str, FileOperation]:
    """The files that a call changes, and how: all that a patch names, and both ends of a move."""
    if "*** " in call.arguments:
        found = _PATCH_HEADER.findall("\n".join(_argument_texts(call)))
        if found:
            return {normalize_path(path): _PATCH_OPERATION.get(verb, "move") for verb, path in found}
    changed: dict[str, FileOperation] = {normalize_path(use.path): use.operation} if use.path else {}
    if use.operation == "move":
        fields = load_json_object(call.arguments)
        changed |= {
            normalize_path(fields[key]): "move" for key in _DESTINATION_KEYS if isinstance(fields.get(key), str)
        }
    return changed


def _argument_texts(call: ToolCall) -> Iterator[str]:
    fields = load_json_object(call.arguments)
    if not fields:
        yield call.arguments
    for value in fields.values():
        yield from (word for word in (value if isinstance(value, list) else [value]) if isinstance(word, str))


# --- extents -------------------------------------------------------------------------------------------------

_FIRST_LINE_KEYS = ("offset", "start_line", "startLine", "line_start", "start", "from_line", "start_line_one_indexed")
_LAST_LINE_KEYS = ("end_line", "endLine", "line_end", "end", "to_line", "end_line_one_indexed_inclusive")
_LINE_COUNT_KEYS = ("limit", "num_lines", "max_lines", "line_count")
_LINE_RANGE_KEYS = ("view_range", "line_range", "lines", "range")
_IGNORED_KEYS = frozenset((*INTENT_KEYS, "should_read_entire_file", "encoding"))
"""Arguments that change nothing about which lines are shown."""


def parse_read_extent(call: ToolCall, use: ToolCallDetails) -> LineExtent:
    """What a read shows of its file, as far as its arguments tell."""
    if use.command:
        return _parse_command_extent(use.command)
    fields = {key: value for key, value in load_json_object(call.arguments).items() if value not in (None, "", False)}
    if fields.get("command") in ("view", "read"):  # an editor that also reads: its verb says no more
        del fields["command"]
    path = next((key for key in FILE_KEYS if key in fields), "")
    if isinstance(fields.get(path), str):
        del fields[path]
    first, last = _take_line_range(fields)
    rest = {key: value for key, value in fields.items() if key not in _IGNORED_KEYS}
    return LineExtent(max(first, 1), last, canonical_json(rest) if rest else "")


def _take_line_range(fields: dict[str, Any]) -> tuple[int, int | None]:
    """Take the lines out of the arguments; what is no number stays there."""
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
    return isinstance(value, list) and len(value) == 2 and all(type(one) is int for one in value) and value[0] > 0


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
    """The lines that a shell command shows of a file, where it is known to do no more than that."""
    stages = _STAGE.findall(command) if len(command) <= MAX_COMMAND_CHARS else []
    if not stages and len(command) <= MAX_COMMAND_CHARS:
        return LineExtent()
    name, options = stages[0] if len(stages) == 1 else ("", "")
    found: re.Match[str] | None = None
    if name == "sed" and (found := _SED.search(f"{options} ")):
        last = found[2] or found[1]
        return LineExtent(int(found[1]), None if last == "$" else int(last))
    if name == "head" and (found := _HEAD.search(options)):
        return LineExtent(1, int(found[1]))
    if name == "head" and not re.search(r"(?:^|\s)-", options):
        return LineExtent(1, 10)
    if name == "tail" and (found := _TAIL.search(options)):
        return LineExtent(int(found[1]))
    return LineExtent(variant=" ".join(command.split()))
