"""What happened to files: which call read which lines of which file, and which call changed it.

A path is written in one way, so that `./a.py` and `a.py` are one file and two files of one name in two folders stay
two. A relative path is taken for an absolute one that ends with it, if there is just one such in the history. What a
read shows of its file is an extent: its lines, and whatever else its arguments ask for. Only reads of equal extent
show the same lines for certain.
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
from thresher.model.tool_calls import ToolCallDetails, describe_tool_call
from thresher.model.tool_catalog import FileOperation
from thresher.policies.base import is_failed_call

CHANGE_OPERATIONS: tuple[FileOperation, ...] = ("write", "edit", "delete", "move")


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
    names = resolve_relative_paths(
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
