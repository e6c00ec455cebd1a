"""`thresher files`: what a session did to files, and what they held after any turn."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from thresher.cli.common import find_session, json_option, print_lines, print_output, source_options, warn
from thresher.errors import OptionError

if TYPE_CHECKING:
    from thresher.timeline import FileState, Timeline


@click.command("files")
@click.argument("session")
@click.argument("path", required=False, default="")
@click.option("--at", type=click.IntRange(0), metavar="TURN", help="The text of PATH after this model call.")
@click.option("--diff", is_flag=True, help="What the session did to PATH, or to every file, as a unified diff.")
@click.option("--reveal", is_flag=True, help="Of a session from the archive, show keys and passwords as they are.")
@source_options
@json_option
def files_command(
    session: str,
    path: str,
    at: int | None,
    diff: bool,
    reveal: bool,
    sources: tuple[Path, ...],
    no_discover: bool,
    as_json: bool,
) -> None:
    """What SESSION (a file, or the start of an id) did to files, its sub-agents' work included.

    Without PATH: a table of them. With PATH (a path, or the end of one): the history of that file. Texts are made from
    the reads, writes and edits in the session; no file on disk is opened. A turn is one model call, counted from 1.

    Exits 0 where all that is shown is known exactly, 1 where something of it is not (standard error says why), 2 on
    wrong use. The table and the history exit with 0.

    \b
    Examples:
      thresher files 0f3c9a1e
      thresher files 0f3c9a1e config.py
      thresher files 0f3c9a1e src/config.py --at 50 > config.py
      thresher files 0f3c9a1e config.py --diff
      thresher files 0f3c9a1e --diff --json
    """
    from thresher.timeline import Timeline

    if at is not None and not path and not diff:
        raise OptionError("--at shows the text of one file; say which: `thresher files SESSION PATH --at TURN`")
    timeline = Timeline(find_session(session, sources, no_discover=no_discover, reveal=reveal))
    if at is not None and at > timeline.turns:
        raise OptionError(f"the session has {timeline.turns:,} turns; there is no {at:,}")
    if diff:
        _diff(timeline, path, at, as_json=as_json)
    elif at is not None:
        _print_state(timeline.file_state_at(path, turn=at), as_json=as_json)
    else:
        _print_history(timeline, path, as_json=as_json)


def _print_history(timeline: "Timeline", path: str, *, as_json: bool) -> None:
    from thresher.render.timeline import file_event_lines, file_event_value, files_lines, files_value

    project = timeline.session.project
    if not path:
        files = timeline.files()
        return print_output({"files": files_value(files)}) if as_json else print_lines(files_lines(files, project))
    events, state = timeline.events(path), timeline.file_state_at(path)
    return (
        print_output(file_event_value(events, state))
        if as_json
        else print_lines(file_event_lines(events, state, project))
    )


def _print_state(state: "FileState", *, as_json: bool) -> None:
    from thresher.render.timeline import file_state_value

    if as_json:
        print_output(file_state_value(state))
    elif state.text is not None:
        _print_text(state.text)
    elif state.exact:
        warn(f"it is gone after turn {state.turn}")
    _report_gaps([state])


def _diff(timeline: "Timeline", path: str, until: int | None, *, as_json: bool) -> None:
    changed = [one.path for one in timeline.files() if one.edits or one.writes or one.deleted]
    paths = [timeline.resolve_path(path)] if path else changed
    states = [timeline.file_state_at(one, turn=until) for one in paths]
    diffs = [timeline.diff(one, until=until) for one in paths]
    if as_json:
        both = zip(states, diffs, strict=True)
        rows = [{"path": s.path, "turn": s.turn, "exact": s.exact, "gaps": list(s.gaps), "diff": d} for s, d in both]
        print_output(rows[0] if path else {"files": rows})
    else:
        _print_text("".join(diffs))
    _report_gaps(states)


def _print_text(text: str) -> None:
    """A text as it is; on a terminal without what could steer it."""
    from thresher.render.text import strip_control_codes

    shown = strip_control_codes(text) if sys.stdout.isatty() else text
    click.echo(shown.encode("utf-8", "surrogatepass" if not sys.stdout.isatty() else "replace"), nl=False)


def _report_gaps(states: "list[FileState]") -> None:
    from thresher.render.timeline import format_display_path, gap_lines

    unsure = [state for state in states if not state.exact]
    for state in unsure:
        if len(states) > 1:
            warn(format_display_path(state.path))
        for line in gap_lines(state):
            warn(line.text)
    if unsure:
        sys.exit(1)
