"""Extract file changes from a tool call's arguments: lines added, lines removed, first new line.

Agents encode an edit as an old and a new text, a list of such pairs, the whole new content, search-and-replace blocks,
or a patch that may name several files. Common lines at the start and end of a pair are context, not changes.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from thresher.model.parts import ToolCall
from thresher.model.text import to_printable_line
from thresher.model.tool_calls import ToolCallDetails
from thresher.model.tool_catalog import FileOperation

OLD_TEXT_KEYS = ("old_string", "oldString", "oldText", "old_text", "old_str", "search", "before")
NEW_TEXT_KEYS = ("new_string", "newString", "newText", "new_text", "new_str", "insert_text", "replace", "after")
WHOLE_TEXT_KEYS = ("content", "contents", "file_text", "new_source", "code_edit", "text")
PAIR_LIST_KEYS = ("edits", "replacements", "changes")
PATCH_KEYS = ("input", "patch", "patchText", "patch_text", "diff")


LineDiff = tuple[list[str], list[str]]
"""Added and removed lines."""


class ToolFileChange(NamedTuple):
    """Change to one file."""

    path: str
    operation: FileOperation
    added: int
    removed: int
    first_line: str
    """The first added line with a letter or digit; if there is none, the first such removed line."""


_PATCH_HEADER = re.compile(r"^\*\*\* (Update|Add|Delete) File: ([^\r\n]+)", re.MULTILINE)
_OPERATIONS: dict[str, FileOperation] = {"Update": "edit", "Add": "write", "Delete": "delete"}
_BLOCK = re.compile(r"^(<{5,9} ?SEARCH|-{5,9} ?SEARCH|={5,9}|>{5,9} ?REPLACE|\+{5,9} ?REPLACE)[^\n]*\n?", re.MULTILINE)


def extract_file_changes(call: ToolCall, use: ToolCallDetails, fields: dict[str, Any]) -> tuple[ToolFileChange, ...]:
    """Return one change per file that the call changes. Only a patch changes several files."""
    patch = _first_text(fields, PATCH_KEYS) or (use.command or call.arguments if not fields or use.command else "")
    headers = list(_PATCH_HEADER.finditer(patch))
    if headers:
        stops = [header.start() for header in headers[1:]] + [len(patch)]
        return tuple(
            _build_change(header[2].strip(), _OPERATIONS[header[1]], [_split_patch_lines(patch[header.end() : stop])])
            for header, stop in zip(headers, stops, strict=True)
        )
    if use.operation in ("delete", "move"):
        return (ToolFileChange(use.path, use.operation, 0, 0, ""),)
    pairs = list(_find_text_pairs(fields)) or list(_find_search_blocks(patch))
    diffs = [_diff_lines(old, new) for old, new in pairs] or [_split_patch_lines(patch)]
    return (_build_change(use.path, use.operation, diffs),)


def _build_change(path: str, operation: FileOperation, diffs: Sequence[LineDiff]) -> ToolFileChange:
    added = [text for new, _ in diffs for text in new]
    removed = [text for _, old in diffs for text in old]
    return ToolFileChange(path, operation, len(added), len(removed), _first_meaningful_line([*added, *removed]))


def _find_text_pairs(fields: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for key in PAIR_LIST_KEYS:
        listed = fields.get(key)
        for item in listed if isinstance(listed, list) else ():
            if isinstance(item, dict):
                yield _first_text(item, OLD_TEXT_KEYS), _first_text(item, NEW_TEXT_KEYS)
    old = _first_text(fields, OLD_TEXT_KEYS)
    new = _first_text(fields, NEW_TEXT_KEYS) or _first_text(fields, WHOLE_TEXT_KEYS)
    if old or new:
        yield old, new


def _find_search_blocks(text: str) -> Iterator[tuple[str, str]]:
    """Yield the old and new text of each `SEARCH` / `=` / `REPLACE` block, the format of Cline and its forks."""
    pieces = _BLOCK.split(text)
    for index in range(1, len(pieces) - 3, 2):
        if "SEARCH" in pieces[index] and pieces[index + 2].startswith("="):
            yield pieces[index + 1], pieces[index + 3]


def _diff_lines(old: str, new: str) -> LineDiff:
    """Return the added and removed lines between two texts, without their common prefix and suffix."""
    added, removed = new.splitlines(), old.splitlines()
    start = 0
    while start < min(len(added), len(removed)) and added[start] == removed[start]:
        start += 1
    end = 0
    while end < min(len(added), len(removed)) - start and added[-1 - end] == removed[-1 - end]:
        end += 1
    return added[start : len(added) - end], removed[start : len(removed) - end]


def _split_patch_lines(patch: str) -> LineDiff:
    lines = patch.splitlines()
    added = [text[1:] for text in lines if text.startswith("+") and not text.startswith("+++ ")]
    removed = [text[1:] for text in lines if text.startswith("-") and not text.startswith("--- ")]
    return added, removed


def _first_meaningful_line(lines: Sequence[str]) -> str:
    return next((text for text in map(to_printable_line, lines) if any(map(str.isalnum, text))), "")


def _first_text(fields: dict[str, Any], keys: tuple[str, ...]) -> str:
    for key in keys:
        value = fields.get(key)
        if isinstance(value, str) and value:
            return value
    return ""
