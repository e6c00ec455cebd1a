"""What a call changes in files, as far as its arguments tell: lines in, lines out, the first new line.

Agents write an edit as an old text and a new one, as a list of such pairs, as a whole new content, as blocks to
search and replace, or as a patch that may name several files. Lines that a pair has in common at its ends are
context, not change.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from thresher.model.parts import ToolCall
from thresher.model.tools import Operation, ToolUse
from thresher.summarise.words import line

OLD = ("old_string", "oldString", "oldText", "old_text", "old_str", "search", "before")
NEW = ("new_string", "newString", "newText", "new_text", "new_str", "insert_text", "replace", "after")
WHOLE = ("content", "contents", "file_text", "new_source", "code_edit", "text")
LISTS = ("edits", "replacements", "changes")
PATCH = ("input", "patch", "patchText", "patch_text", "diff")


class Change(NamedTuple):
    """What happens to one file."""

    path: str
    operation: Operation
    added: int
    removed: int
    first: str
    """The first line that is new, or else gone."""


_HEADER = re.compile(r"^\*\*\* (Update|Add|Delete) File: ([^\r\n]+)", re.MULTILINE)
_OPERATIONS: dict[str, Operation] = {"Update": "edit", "Add": "write", "Delete": "delete"}
_BLOCK = re.compile(r"^(<{5,9} ?SEARCH|-{5,9} ?SEARCH|={5,9}|>{5,9} ?REPLACE|\+{5,9} ?REPLACE)[^\n]*\n?", re.MULTILINE)


def changes(call: ToolCall, use: ToolUse, fields: dict[str, Any]) -> tuple[Change, ...]:
    """Every file that the call changes; more than one only for a patch."""
    patch = _text(fields, PATCH) or (use.command or call.arguments if not fields or use.command else "")
    headers = list(_HEADER.finditer(patch))
    if headers:
        stops = [header.start() for header in headers[1:]] + [len(patch)]
        return tuple(_patched(header, patch[header.end() : stop]) for header, stop in zip(headers, stops, strict=True))
    if use.operation in ("delete", "move"):
        return (Change(use.path, use.operation, 0, 0, ""),)
    pairs = list(_pairs(fields)) or list(_blocks(patch))
    if pairs:
        return (_counted(use, [_difference(old, new) for old, new in pairs]),)
    return (_counted(use, [_signs(patch)]),)


def _patched(header: re.Match[str], body: str) -> Change:
    added, removed = _signs(body)
    return Change(header[2].strip(), _OPERATIONS[header[1]], len(added), len(removed), _telling([*added, *removed]))


def _counted(use: ToolUse, found: Sequence[tuple[Sequence[str], Sequence[str]]]) -> Change:
    added = [text for new, _ in found for text in new]
    removed = [text for _, old in found for text in old]
    return Change(use.path, use.operation, len(added), len(removed), _telling([*added, *removed]))


def _pairs(fields: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for key in LISTS:
        listed = fields.get(key)
        for one in listed if isinstance(listed, list) else ():
            if isinstance(one, dict):
                yield _text(one, OLD), _text(one, NEW)
    old, new = _text(fields, OLD), _text(fields, NEW) or _text(fields, WHOLE)
    if old or new:
        yield old, new


def _blocks(text: str) -> Iterator[tuple[str, str]]:
    """Blocks between the marks SEARCH, = and REPLACE, as Cline and its kin write them."""
    pieces = _BLOCK.split(text)
    for place in range(1, len(pieces) - 3, 2):
        if "SEARCH" in pieces[place] and pieces[place + 2].startswith("="):
            yield pieces[place + 1], pieces[place + 3]


def _difference(old: str, new: str) -> tuple[list[str], list[str]]:
    """The lines that came and went, without those that both begin and end with."""
    came, went = new.splitlines(), old.splitlines()
    start = 0
    while start < min(len(came), len(went)) and came[start] == went[start]:
        start += 1
    end = 0
    while end < min(len(came), len(went)) - start and came[-1 - end] == went[-1 - end]:
        end += 1
    return came[start : len(came) - end], went[start : len(went) - end]


def _signs(patch: str) -> tuple[list[str], list[str]]:
    lines = patch.splitlines()
    added = [text[1:] for text in lines if text.startswith("+") and not text.startswith("+++ ")]
    removed = [text[1:] for text in lines if text.startswith("-") and not text.startswith("--- ")]
    return added, removed


def _telling(lines: Sequence[str]) -> str:
    return next((text for text in map(line, lines) if any(map(str.isalnum, text))), "")


def _text(fields: dict[str, Any], keys: tuple[str, ...]) -> str:
    for key in keys:
        value = fields.get(key)
        if isinstance(value, str) and value:
            return value
    return ""
