"""What a tool call does to files, as values: which file, and how its text changes.

Agents write an edit as an old text and a new one, as a list of such pairs, as blocks to search and replace, as lines to
put in after a line, as a patch, or as a whole new text. An edit that says none of these changes the file in a way that
is not known.
"""

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from thresher.model.jsontext import load_fields
from thresher.model.tools import Link
from thresher.summarise.changes import LISTS, NEW, OLD, PATCH, WHOLE
from thresher.timeline.patches import Hunk, sections


class Swap(NamedTuple):
    """One text in place of another."""

    old: str
    new: str
    every: bool = False


class Insert(NamedTuple):
    """Lines put in after a line; 0 is the top."""

    after: int
    text: str


class Hunks(NamedTuple):
    """The hunks of a patch."""

    hunks: tuple[Hunk, ...]


Change = Swap | Insert | Hunks


class Read(NamedTuple):
    """Lines are shown."""

    path: str
    link: Link


class Write(NamedTuple):
    """A whole text, or one behind what is there; None where it is not told."""

    path: str
    text: str | None
    append: bool = False


class Edit(NamedTuple):
    """Changes of a text; none where it is not told which."""

    path: str
    changes: tuple[Change, ...]
    answer: str = ""
    """What the tool said, which may show the lines around."""


class Delete(NamedTuple):
    """A file goes."""

    path: str


class Move(NamedTuple):
    """A file gets another name."""

    path: str
    to: str


class Copy(NamedTuple):
    """A file has the text of another."""

    path: str
    to: str


class Doubt(NamedTuple):
    """A file may have changed."""

    path: str
    what: str


class Sweep(NamedTuple):
    """Every file below a folder may have changed; where it is empty, every file."""

    folder: str
    what: str


Action = Read | Write | Edit | Delete | Move | Copy | Doubt | Sweep

_BLOCK = re.compile(r"^(<{5,9} ?SEARCH|-{5,9} ?SEARCH|={5,9}|>{5,9} ?REPLACE|\+{5,9} ?REPLACE)[^\n]*\n?", re.MULTILINE)
_START_LINE = re.compile(r"\A(?::(?:start|end)_line:[^\n]*\n)*(?:-{5,}\n)?")
_EVERY = ("replace_all", "replaceAll", "allow_multiple", "use_regex_all")
_AFTER = ("insert_line", "insertLine", "insert_after_line")
_BEFORE = ("line", "line_number", "lineno")
_TARGETS = ("destination", "destination_path", "dest", "target", "new_path", "to")


def actions(link: Link) -> Iterator[Action]:
    """What a call of a file tool does; a shell command is read elsewhere, save one that applies a patch."""
    use = link.use
    if use.operation == "read":
        if use.path:
            yield Read(use.path, link)
        return
    if use.operation not in ("write", "edit", "delete", "move"):
        return
    fields = load_fields(link.call.arguments)
    patch = _text(fields, PATCH) or (use.command or link.call.arguments if not fields or use.command else "")
    found = list(sections(patch)) if "*** " in patch else []
    if found:
        yield from (action for section in found for action in _of_patch(section))
    elif use.path:
        yield from _of_fields(link, fields, patch)


def _of_patch(section: Any) -> Iterator[Action]:
    if section.verb == "Delete":
        yield Delete(section.path)
    elif section.verb == "Add":
        yield Write(section.path, section.text)
    else:
        if section.hunks or not section.to:
            yield Edit(section.path, (Hunks(section.hunks),) if section.hunks else ())
        if section.to:
            yield Move(section.path, section.to)


def _of_fields(link: Link, fields: dict[str, Any], patch: str) -> Iterator[Action]:
    path = link.use.path
    match link.use.operation:
        case "delete":
            yield Delete(path)
        case "move":
            yield Move(path, _text(fields, _TARGETS))
        case "write":
            yield Write(path, _plain(next((fields[key] for key in WHOLE if isinstance(fields.get(key), str)), None)))
        case _:
            answer = link.result.text if link.result else ""
            if link.call.name.lower() in ("append", "append_file"):
                yield Write(path, _plain(_text(fields, (*WHOLE, *NEW)) or None), append=True)
            else:
                yield Edit(path, tuple(_changes(fields, patch)), answer)


def _changes(fields: dict[str, Any], patch: str) -> Iterator[Change]:
    listed = [one for key in LISTS if isinstance(fields.get(key), list) for one in fields[key]]
    if listed:
        pairs = [_swap(one, fields) for one in listed if isinstance(one, dict)]
        if len(pairs) == len(listed) and None not in pairs:
            yield from (pair for pair in pairs if pair is not None)
        return
    after = _number(fields, _AFTER)
    before = _number(fields, _BEFORE)
    text = _text(fields, (*NEW, *WHOLE))
    if not _text(fields, OLD) and text and (after is not None or before is not None):
        yield Insert(after if after is not None else max((before or 0) - 1, 0), _plain(text) or "")
        return
    swap = _swap(fields, fields)
    if swap is not None:
        yield swap
    else:
        yield from _blocks((patch or _text(fields, WHOLE)).replace("\r\n", "\n"))


def _swap(one: dict[str, Any], around: dict[str, Any]) -> Swap | None:
    old = next((one[key] for key in OLD if isinstance(one.get(key), str)), None)
    new = next((one[key] for key in NEW if isinstance(one.get(key), str)), None)
    if old is None or new is None:
        return None
    counted = one.get("expected_replacements")
    every = any(one.get(key) is True or around.get(key) is True for key in _EVERY) or (
        type(counted) is int and counted > 1
    )
    return Swap(_plain(old) or "", _plain(new) or "", every)


def _blocks(text: str) -> Iterator[Swap]:
    """Blocks between the marks SEARCH, = and REPLACE, as Cline and its kin write them."""
    pieces = _BLOCK.split(text)
    for place in range(1, len(pieces) - 3, 2):
        if "SEARCH" in pieces[place] and pieces[place + 2].startswith("="):
            yield Swap(_START_LINE.sub("", pieces[place + 1], count=1), pieces[place + 3])


def _number(fields: dict[str, Any], keys: tuple[str, ...]) -> int | None:
    found = next((fields[key] for key in keys if type(fields.get(key)) is int), None)
    return found if found is None or found >= 0 else None


def _text(fields: dict[str, Any], keys: tuple[str, ...]) -> str:
    return next((fields[key] for key in keys if isinstance(fields.get(key), str) and fields[key]), "")


def _plain(text: str | None) -> str | None:
    """A text with one kind of line end: what reads show has no other."""
    return text.replace("\r\n", "\n") if text is not None else None
