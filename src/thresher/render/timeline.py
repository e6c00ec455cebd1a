"""Render file histories and changelogs as terminal lines, Markdown and JSON values.

Paths, reasons and gaps are transcript text, so each is shortened to one line without control codes. In Markdown, they
are escaped, so that they cannot create a link, an image or a tag.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from itertools import groupby
from typing import Any

from msgspec import to_builtins

from thresher.model.text import clip_path
from thresher.render.memory import StyledLine
from thresher.render.text import format_local_time, plural, shorten, strip_control_codes
from thresher.timeline.path_index import relative_to_folder
from thresher.timeline.records import Changelog, ChangelogEntry, FileActivity, FileChangelog, FileEvent, FileState

LONGEST_PATH = 80
LONGEST_REASON = 160
MOST_ENTRIES = 200
"""Maximum number of Markdown entries per file; JSON contains all."""
_STYLES = {"write": "green", "edit": "yellow", "delete": "red", "move": "cyan", "read": "dim"}
_CODE = re.compile(r"(`[^`]*`)")
_MARKDOWN_CHARACTERS = re.compile(r"([\\<\[\]*`]|(?<![^\W_])_|_(?![^\W_]))")


def files_lines(files: Sequence[FileActivity], project: str) -> Iterator[StyledLine]:
    """Yield a table of files: turns, numbers of reads and changes, and whether the final text is known."""
    if not files:
        yield _styled_line("This session read or changed no file.", "bold")
        return
    header = ("turns", "reads", "edits", "writes", "final text", "file")
    rows = [_cells(file, project) for file in files]
    widths = [max(len(row[column]) for row in [header, *rows]) for column in range(5)]
    for file, row in zip((None, *files), (header, *rows), strict=True):
        numbers = "  ".join(map(str.rjust, row[:4], widths))
        state = row[4].ljust(widths[4])
        if file is None:
            yield _styled_line(f"{numbers}  {state}  {row[5]}", "bold")
            continue
        style = "red" if file.deleted else "green" if file.exact else "yellow"
        yield StyledLine(((f"{numbers}  ", ""), (f"{state}  ", style), (row[5], "")), no_wrap=True)
    known = sum(file.exact for file in files)
    yield _styled_line(
        f"{plural(len(files), 'file')}: final text known for {known}, uncertain for {len(files) - known}", "dim"
    )


def _cells(file: FileActivity, project: str) -> tuple[str, ...]:
    turns = f"{file.first}" if file.first == file.last else f"{file.first}-{file.last}"
    state = ("deleted" if file.deleted else "known") if file.exact else "uncertain"
    counts = (str(number) if number else "" for number in (file.reads, file.edits, file.writes))
    return turns, *counts, state, format_display_path(relative_to_folder(file.path, project))


def format_display_path(path: str) -> str:
    """Return a path as one line, shortened at the start."""
    return clip_path(" ".join(strip_control_codes(path).split()), LONGEST_PATH)


def file_event_lines(events: Sequence[FileEvent], state: FileState, project: str) -> Iterator[StyledLine]:
    """Yield the events of one file, then a line about the final text."""
    yield _styled_line(format_display_path(relative_to_folder(state.path, project)), "bold cyan")
    yield from (_event_line(event, project) for event in events)
    if not state.exact:
        yield from gap_lines(state)
    elif state.text is None:
        yield _styled_line("final state: deleted", "green")
    else:
        yield _styled_line(f"final text known: {plural(state.text.count(chr(10)), 'line')}", "green")


def file_event_entries(events: Sequence[FileEvent], project: str = "") -> list[str]:
    """Return one line of text per event."""
    return [_event_line(event, project).text.strip() for event in events]


def _event_line(event: FileEvent, project: str) -> StyledLine:
    indent = f"  turn {event.turn:<5} "
    facts = [
        _format_line_counts(event.added, event.removed),
        f"→ {format_display_path(relative_to_folder(event.to, project))}" if event.to else "",
        "failed" if event.failed else "",
        f"by sub-agent {shorten(event.agent, 12)}" if event.agent else "",
        shorten(event.why, LONGEST_REASON) if event.operation != "read" else "",
    ]
    operation = f"{event.operation:<7}", _STYLES[event.operation]
    details = "  ".join(filter(None, facts)), "red" if event.failed else ""
    return StyledLine(((indent, "dim"), operation, details, (f"  #{event.message}", "dim")), hanging_indent=len(indent))


def _format_line_counts(added: int, removed: int) -> str:
    return f"+{added} −{removed}" if added or removed else ""


def gap_lines(state: FileState) -> Iterator[StyledLine]:
    """Yield the reasons why a state is not exact."""
    yield _styled_line(f"The text after turn {state.turn} is uncertain:", "yellow")
    for gap in state.gaps:
        yield StyledLine(((f"  - {shorten(gap, LONGEST_REASON * 2)}", ""),), hanging_indent=4)


def files_value(files: Sequence[FileActivity]) -> list[dict[str, Any]]:
    """Return files as JSON values."""
    return [to_builtins(file) for file in files]


def file_event_value(events: Sequence[FileEvent], state: FileState) -> dict[str, Any]:
    """Return the events and the state of one file as JSON values, without its text."""
    value = file_state_value(state)
    del value["text"]
    return value | {"events": [to_builtins(event) for event in events]}


def file_state_value(state: FileState) -> dict[str, Any]:
    """Return a state as JSON values."""
    value: dict[str, Any] = to_builtins(state)
    return value


def changelog_value(log: Changelog) -> dict[str, Any]:
    """Return a changelog as JSON values."""
    value: dict[str, Any] = to_builtins(log)
    return value


def changelog_markdown(log: Changelog, title: str = "Changes") -> str:
    """Return a changelog as Markdown."""
    return "\n".join(line.text for line in changelog_lines(log, title))


def changelog_lines(log: Changelog, title: str = "Changes") -> Iterator[StyledLine]:
    """Yield the lines of a changelog in Markdown: a heading for each file, and an item for each change."""
    yield _styled_line(f"# {escape_markdown(title)}", "bold")
    if not log.files:
        yield _styled_line("")
        yield _styled_line("No file was changed.")
    several = len(log.sessions) > 1
    for file in log.files:
        yield _styled_line("")
        yield _styled_line(
            f"## {_format_code(format_display_path(file.path))}{_project_suffix(file, log)}", "bold cyan"
        )
        yield _styled_line("")
        items = [*_items(file.entries, several=several)]
        for item in items[:MOST_ENTRIES]:
            yield StyledLine(((item, ""),), hanging_indent=2)
        if len(items) > MOST_ENTRIES:
            yield _styled_line(f"- … and {len(items) - MOST_ENTRIES:,} more")


def _project_suffix(file: FileChangelog, log: Changelog) -> str:
    """Return ` in FOLDER` with the file's project if the changelog covers several projects, otherwise an empty text."""
    folders = {other.project for other in log.files if other.project}
    return f" in {_format_code(format_display_path(file.project))}" if file.project and len(folders) > 1 else ""


def _items(entries: Iterable[ChangelogEntry], *, several: bool) -> Iterator[str]:
    """Yield Markdown items; consecutive changes for the same reason share one item."""
    for _, group in groupby(entries, key=lambda entry: (entry.session, entry.why, entry.to)):
        merged = list(group)
        first, last = merged[0], merged[-1]
        turns = f"turn {first.turn}" if first.turn == last.turn else f"turns {first.turn}-{last.turn}"
        lines = _format_line_counts(sum(entry.added for entry in merged), sum(entry.removed for entry in merged))
        facts = [_day(first.time), f"session {shorten(first.session, 8)}" if several else "", turns, lines]
        reason = escape_markdown(shorten(first.why, LONGEST_REASON * 2))
        operations = _describe_operations(merged)
        yield f"- {operations}{f': {reason}' if reason else ''} ({', '.join(filter(None, facts))})"


def _describe_operations(entries: Sequence[ChangelogEntry]) -> str:
    operations = dict.fromkeys(entry.operation for entry in entries)
    past = {"write": "wrote", "edit": "edited", "delete": "deleted", "move": "moved", "read": "read"}
    text = ", ".join(past[operation] for operation in operations)
    to = entries[-1].to
    return f"{text} to {_format_code(format_display_path(to))}" if to else text


def _day(time: datetime | None) -> str:
    return format_local_time(time, "%Y-%m-%d") if time else ""


def escape_markdown(text: str) -> str:
    """Escape a text for Markdown, except between backticks."""
    return "".join(
        piece if _CODE.fullmatch(piece) else _MARKDOWN_CHARACTERS.sub(r"\\\1", piece) for piece in _CODE.split(text)
    )


def _format_code(text: str) -> str:
    return f"`{text.replace('`', chr(39))}`"


def _styled_line(text: str, style: str = "") -> StyledLine:
    return StyledLine(((text, style),))
