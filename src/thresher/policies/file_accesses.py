"""File accesses of a history: which calls read which lines of a file, and which calls change it.

Paths are normalized, so that `./a.py` and `a.py` are the same file, while files with the same name in different folders
stay separate. A relative path counts as the absolute path that ends with it, if the history has exactly one such path.
The extent of a read is its line range and any other arguments that select text. Only reads with the same extent are
certain to show the same lines.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator
from typing import NamedTuple

from thresher.edits.placeholder import find_placeholder_ids
from thresher.model import History, Message, Place, ToolCall, ToolResult, part_text
from thresher.model.jsontext import load_json_object
from thresher.model.line_extents import LineExtent, parse_read_extent
from thresher.model.message_cache import cached_per_message
from thresher.model.paths import normalize_path, resolve_relative_paths
from thresher.model.tool_calls import ToolCallDetails, ToolUse, describe_tool_call
from thresher.model.tool_catalog import FileOperation
from thresher.policies.base import is_failed_call

CHANGE_OPERATIONS: tuple[FileOperation, ...] = ("write", "edit", "delete", "move")


class FileRead(NamedTuple):
    """A successful read of a file."""

    path: str
    extent: LineExtent
    order: int
    """Index of the read's chain in `history.links`."""
    turn: int
    result_place: Place
    """Place of the tool result."""
    result: ToolResult

    @property
    def is_complete(self) -> bool:
        """True if the result contains no placeholder."""
        return not find_placeholder_ids(part_text(self.result))

    def shown_lines(self) -> tuple[int, int]:
        """Return the first and the last line that the result contains."""
        end = self.extent.first_line + part_text(self.result).rstrip("\n").count("\n")
        return self.extent.first_line, end if self.extent.last_line is None else min(end, self.extent.last_line)


class FileEdit(NamedTuple):
    """A successful change of one file."""

    path: str
    operation: FileOperation
    order: int
    turn: int


class FileAccesses(NamedTuple):
    """All reads and edits of a history, in order."""

    reads: tuple[FileRead, ...]
    edits: dict[str, list[FileEdit]]
    """Edits by path."""

    def find_edit(self, path: str, after: int, before: int | None = None) -> FileEdit | None:
        """Return the first edit of a file after one chain and before another, both given by their `order`."""
        edits = self.edits.get(path, [])
        at = bisect_right(edits, after, key=lambda edit: edit.order)
        return edits[at] if at < len(edits) and (before is None or edits[at].order < before) else None


def collect_file_accesses(history: History) -> FileAccesses:
    """Collect the successful reads and edits of a history."""
    accesses: list[tuple[int, ToolUse, _CallAccess]] = []
    for order, link in enumerate(history.links):
        call = link.chain.call
        access = _parse_message_accesses(history[call.message])[call.part]
        if access is not None and not is_failed_call(link):
            accesses.append((order, link, access))
    paths = (path for _, _, access in accesses for path in (access.read_path, *access.changed_paths))
    names = resolve_relative_paths(path for path in paths if path)
    reads: list[FileRead] = []
    edits: dict[str, list[FileEdit]] = {}
    for order, link, access in accesses:
        turn = history.turn(link.chain.call.message)
        if access.read_path and link.chain.result and link.result:
            path = names[access.read_path]
            reads.append(FileRead(path, access.extent, order, turn, link.chain.result, link.result))
        for path, operation in access.changed_paths.items():
            edits.setdefault(names[path], []).append(FileEdit(names[path], operation, order, turn))
    return FileAccesses(tuple(reads), edits)


class _CallAccess(NamedTuple):
    read_path: str
    """The file that the call reads, or an empty string."""
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


_PATCH_HEADER = re.compile(r"^\*\*\* (?:(Update|Add|Delete) File|Move to): ([^\r\n]+)", re.MULTILINE)
_PATCH_OPERATION: dict[str, FileOperation] = {"Update": "edit", "Add": "write", "Delete": "delete"}
_DESTINATION_KEYS = ("destination", "destination_path", "dest", "target", "new_path", "to")


def find_changed_paths(call: ToolCall, use: ToolCallDetails) -> dict[str, FileOperation]:
    """Return the files that a call changes, each with its operation.

    A patch may change several files. A move changes its source and its target.
    """
    if "*** " in call.arguments:
        found = _PATCH_HEADER.findall("\n".join(_argument_texts(call)))
        if found:
            return {normalize_path(path): _PATCH_OPERATION.get(kind, "move") for kind, path in found}
    changed: dict[str, FileOperation] = {normalize_path(use.path): use.operation} if use.path else {}
    if use.operation == "move":
        fields = load_json_object(call.arguments)
        targets = [fields[key] for key in _DESTINATION_KEYS if isinstance(fields.get(key), str)]
        changed |= dict.fromkeys(map(normalize_path, targets), use.operation)
    return changed


def _argument_texts(call: ToolCall) -> Iterator[str]:
    fields = load_json_object(call.arguments)
    if not fields:
        yield call.arguments
    for value in fields.values():
        yield from (word for word in (value if isinstance(value, list) else [value]) if isinstance(word, str))
