"""`thresher sessions`: list them."""

import sys
from pathlib import Path

import click
import msgspec

from thresher.cli.common import (
    find_session_files,
    json_option,
    make_console,
    print_output,
    read_sessions,
    source_options,
    warn,
)


@click.command("sessions")
@click.argument("paths", nargs=-1, type=click.Path(exists=True, path_type=Path))
@source_options
@json_option
@click.option("--subagents", is_flag=True, help="List sub-agents beside the sessions that started them.")
@click.option("--problems", is_flag=True, help="Say each problem that was met while reading.")
def sessions_command(
    paths: tuple[Path, ...],
    sources: tuple[Path, ...],
    no_discover: bool,
    as_json: bool,
    subagents: bool,
    problems: bool,
) -> None:
    """List sessions: those on this machine, or those in PATHS (files or folders).

    \b
    Examples:
      thresher sessions
      thresher sessions ~/old-laptop/.claude --json
      thresher sessions --no-discover --source backup/
    """
    from thresher.render.session_row import make_session_row, session_table

    files = find_session_files(paths, sources, no_discover=no_discover)
    sessions, failures = read_sessions(files, named=[*paths, *sources])
    ids = {(session.agent, session.id) for session in sessions}
    listed = [one for one in sessions if subagents or not (one.is_subagent and (one.agent, one.parent) in ids)]
    rows = sorted((make_session_row(session) for session in listed), key=lambda row: row.started, reverse=True)
    if as_json:
        print_output({"sessions": msgspec.to_builtins(rows)})
    elif rows:
        out = make_console()
        out.print(session_table(rows, out.width))
        if problems:
            for problem in (problem for row in rows for problem in row.problems):
                out.print(problem, markup=False, style="yellow")
        elif any(row.problems for row in rows):
            out.print("`--problems` says what was met while reading.", style="dim")
    else:
        make_console().print(
            "No sessions here. `thresher demo` writes some to try; `thresher sessions PATH…` reads others."
        )
    for failure in failures:
        warn(f"thresher: {failure}")
    if failures:
        sys.exit(1)
