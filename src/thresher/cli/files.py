"""`thresher files`: the files that a session changed, and their content after any turn."""

import sys
from typing import TYPE_CHECKING

import click

from thresher.cli.common import print_content, print_output, print_result, warn
from thresher.cli.options import WholeNumber, json_option, option, reveal_option, source_options
from thresher.cli.sources import SessionSources
from thresher.errors import OptionError

if TYPE_CHECKING:
    from thresher.timeline import FileState, Timeline


@click.command("files")
@click.argument("session")
@click.argument("path", required=False, default="")
@option(
    "--at TURN",
    "Print the content of PATH after this turn: 50. With --diff: only changes up to this turn.",
    type=WholeNumber(0),
)
@option("--diff", "Print the session's changes to PATH, or to all files, as a unified diff.")
@reveal_option
@source_options
@json_option
def files_command(
    session: str, path: str, at: int | None, diff: bool, reveal: bool, sources: SessionSources, as_json: bool
) -> None:
    """Show what a session did to each file.

    SESSION is a file or the start of a session id. Changes by its sub-agents are included. Without PATH, print a table
    of files. With PATH (a path or the end of one), print the history of that file. File contents are rebuilt from the
    reads, writes and edits in the session, not from files on disk. A turn is one model call; the first is 1.

    With --at or --diff, exits 1 if part of the content is not known exactly; standard error explains why.

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
        raise OptionError("--at needs a PATH: `thresher files SESSION PATH --at TURN`")
    timeline = Timeline(sources.find_session(session, reveal=reveal))
    if at is not None and at > timeline.turns:
        raise OptionError(f"--at must be at most {timeline.turns:,}, the last turn of the session; got {at:,}")
    if diff:
        _print_diff(timeline, path, at, as_json=as_json)
    elif at is not None:
        _print_state(timeline.file_state_at(path, turn=at), as_json=as_json)
    else:
        _print_history(timeline, path, as_json=as_json)


def _print_history(timeline: "Timeline", path: str, *, as_json: bool) -> None:
    from thresher.render.timeline import file_event_lines, file_event_value, files_lines, files_value

    project = timeline.session.project
    if path:
        events, state = timeline.events(path), timeline.file_state_at(path)
        print_result(file_event_value(events, state), file_event_lines(events, state, project), as_json=as_json)
    else:
        files = timeline.files()
        print_result({"files": files_value(files)}, files_lines(files, project), as_json=as_json)


def _print_state(state: "FileState", *, as_json: bool) -> None:
    from thresher.render.timeline import file_state_value

    if as_json:
        print_output(file_state_value(state))
    elif state.text is not None:
        print_content(state.text)
    elif state.exact:
        warn(f"the file does not exist after turn {state.turn}")
    _report_gaps([state])


def _print_diff(timeline: "Timeline", path: str, until: int | None, *, as_json: bool) -> None:
    changed = [file.path for file in timeline.files() if file.edits or file.writes or file.deleted]
    paths = [timeline.resolve_path(path)] if path else changed
    states = [timeline.file_state_at(name, turn=until) for name in paths]
    diffs = [timeline.diff(name, until=until) for name in paths]
    if as_json:
        both = zip(states, diffs, strict=True)
        rows = [{"path": s.path, "turn": s.turn, "exact": s.exact, "gaps": list(s.gaps), "diff": d} for s, d in both]
        print_output(rows[0] if path else {"files": rows})
    else:
        print_content("".join(diffs))
    _report_gaps(states)


def _report_gaps(states: "list[FileState]") -> None:
    from thresher.render.timeline import format_display_path, gap_lines

    inexact = [state for state in states if not state.exact]
    for state in inexact:
        if len(states) > 1:
            warn(format_display_path(state.path))
        for line in gap_lines(state):
            warn(line.text)
    if inexact:
        sys.exit(1)
