"""Parse a tool call into file actions. Each one names a file and, for edits, the change of the text.

Agents encode an edit as an old and a new text, a list of such pairs, search/replace blocks, an insertion after a line,
a patch, or a whole new text. An edit in any other form changes the file in an unknown way.
"""

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from thresher.model.file_changes import NEW_TEXT_KEYS, OLD_TEXT_KEYS, PAIR_LIST_KEYS, PATCH_KEYS, WHOLE_TEXT_KEYS
from thresher.model.jsontext import load_json_object
from thresher.model.tool_calls import ToolUse
from thresher.timeline.patches import PatchHunk, parse_patch_sections


class TextReplacement(NamedTuple):
    """Replace one text by another."""

    old: str
    new: str
    replace_all: bool = False


class LineInsertion(NamedTuple):
    """Insert lines after a line; 0 is the top of the file."""

    after: int
    text: str


class PatchChange(NamedTuple):
    """The hunks of a patch."""

    hunks: tuple[PatchHunk, ...]


TextChange = TextReplacement | LineInsertion | PatchChange


class FileReadAction(NamedTuple):
    """Show lines of a file."""

    path: str
    link: ToolUse


class FileWriteAction(NamedTuple):
    """Write a whole file or append to it. The text is None if the call does not contain it."""

    path: str
    text: str | None
    append: bool = False


class FileEditAction(NamedTuple):
    """Change parts of a file. `changes` is empty if the call does not contain them."""

    path: str
    changes: tuple[TextChange, ...]
    tool_output: str = ""
    """The result of the tool, which may show the lines around the edit."""


class FileDeleteAction(NamedTuple):
    """Delete a file."""

    path: str


class FileMoveAction(NamedTuple):
    """Rename or move a file."""

    path: str
    to: str


class FileCopyAction(NamedTuple):
    """Copy a file."""

    path: str
    to: str


class UncertainChange(NamedTuple):
    """A file may have changed."""

    path: str
    cause: str


class TreeInvalidation(NamedTuple):
    """Any file below a folder may have changed. An empty folder means every file."""

    folder: str
    cause: str


FileAction = (
    FileReadAction
    | FileWriteAction
    | FileEditAction
    | FileDeleteAction
    | FileMoveAction
    | FileCopyAction
    | UncertainChange
    | TreeInvalidation
)

_BLOCK = re.compile(r"^(<{5,9} ?SEARCH|-{5,9} ?SEARCH|={5,9}|>{5,9} ?REPLACE|\+{5,9} ?REPLACE)[^\n]*\n?", re.MULTILINE)
_START_LINE = re.compile(r"\A(?::(?:start|end)_line:[^\n]*\n)*(?:-{5,}\n)?")
_REPLACE_ALL_KEYS = ("replace_all", "replaceAll", "allow_multiple", "use_regex_all")
_AFTER_LINE_KEYS = ("insert_line", "insertLine", "insert_after_line")
_BEFORE_LINE_KEYS = ("line", "line_number", "lineno")
_TARGETS = ("destination", "destination_path", "dest", "target", "new_path", "to")


def parse_file_actions(link: ToolUse) -> Iterator[FileAction]:
    """Yield the actions of a file tool's call, or of a shell command that applies a patch."""
    use = link.use
    if use.operation == "read":
        if use.path:
            yield FileReadAction(use.path, link)
        return
    if use.operation not in ("write", "edit", "delete", "move"):
        return
    fields = load_json_object(link.call.arguments)
    patch = _text(fields, PATCH_KEYS) or use.command or ("" if fields else link.call.arguments)
    sections = list(parse_patch_sections(patch)) if "*** " in patch else []
    if sections:
        yield from (action for section in sections for action in _parse_patch_section(section))
    elif use.path:
        yield from _parse_fields(link, fields, patch)


def _parse_patch_section(section: Any) -> Iterator[FileAction]:
    if section.verb == "Delete":
        yield FileDeleteAction(section.path)
    elif section.verb == "Add":
        yield FileWriteAction(section.path, section.text)
    else:
        if section.hunks or not section.to:
            yield FileEditAction(section.path, (PatchChange(section.hunks),) if section.hunks else ())
        if section.to:
            yield FileMoveAction(section.path, section.to)


def _parse_fields(link: ToolUse, fields: dict[str, Any], patch: str) -> Iterator[FileAction]:
    path = link.use.path
    match link.use.operation:
        case "delete":
            yield FileDeleteAction(path)
        case "move":
            yield FileMoveAction(path, _text(fields, _TARGETS))
        case "write":
            yield FileWriteAction(path, _first_text(fields, WHOLE_TEXT_KEYS))
        case _ if link.call.name.lower() in ("append", "append_file"):
            text = _text(fields, (*WHOLE_TEXT_KEYS, *NEW_TEXT_KEYS)) or None
            yield FileWriteAction(path, text, append=True)
        case _:
            output = link.result.text if link.result else ""
            yield FileEditAction(path, tuple(_parse_changes(fields, patch)), output)


def _parse_changes(fields: dict[str, Any], patch: str) -> Iterator[TextChange]:
    listed = [item for key in PAIR_LIST_KEYS if isinstance(fields.get(key), list) for item in fields[key]]
    if listed:
        pairs = [_parse_replacement(item, fields) if isinstance(item, dict) else None for item in listed]
        known = [pair for pair in pairs if pair is not None]
        yield from known if len(known) == len(listed) else ()
        return
    after, before = _number(fields, _AFTER_LINE_KEYS), _number(fields, _BEFORE_LINE_KEYS)
    text = _text(fields, (*NEW_TEXT_KEYS, *WHOLE_TEXT_KEYS))
    if not _text(fields, OLD_TEXT_KEYS) and text and (after is not None or before is not None):
        yield LineInsertion(after if after is not None else max((before or 0) - 1, 0), text)
    elif (replacement := _parse_replacement(fields, fields)) is not None:
        yield replacement
    else:
        yield from _parse_search_replace(patch.replace("\r\n", "\n") or _text(fields, WHOLE_TEXT_KEYS))


def _parse_replacement(pair: dict[str, Any], fields: dict[str, Any]) -> TextReplacement | None:
    old, new = _first_text(pair, OLD_TEXT_KEYS), _first_text(pair, NEW_TEXT_KEYS)
    if old is None or new is None:
        return None
    count = pair.get("expected_replacements")
    replace_all = any(pair.get(key) is True or fields.get(key) is True for key in _REPLACE_ALL_KEYS)
    return TextReplacement(old, new, replace_all or (type(count) is int and count > 1))


def _parse_search_replace(text: str) -> Iterator[TextReplacement]:
    """Parse blocks between SEARCH, = and REPLACE markers, as Cline and its forks write them."""
    pieces = _BLOCK.split(text)
    for index in range(1, len(pieces) - 3, 2):
        if "SEARCH" in pieces[index] and pieces[index + 2].startswith("="):
            yield TextReplacement(_START_LINE.sub("", pieces[index + 1], count=1), pieces[index + 3])


def _number(fields: dict[str, Any], keys: tuple[str, ...]) -> int | None:
    number = next((fields[key] for key in keys if type(fields.get(key)) is int), None)
    return number if number is None or number >= 0 else None


def _text(fields: dict[str, Any], keys: tuple[str, ...]) -> str:
    return next(filter(None, _texts(fields, keys)), "")


def _first_text(fields: dict[str, Any], keys: tuple[str, ...]) -> str | None:
    return next(_texts(fields, keys), None)


def _texts(fields: dict[str, Any], keys: tuple[str, ...]) -> Iterator[str]:
    """Yield the text fields with LF line ends, because the known texts have only these."""
    return (fields[key].replace("\r\n", "\n") for key in keys if isinstance(fields.get(key), str))
