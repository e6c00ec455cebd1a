"""`thresher sessions`: list sessions."""

import sys
from pathlib import Path

import click
import msgspec

from thresher.cli.common import make_console, print_hint, print_output, warn
from thresher.cli.options import EXISTING_PATH, json_option, option, source_options
from thresher.cli.sources import SessionSources, read_sessions


@click.command("sessions")
@click.argument("paths", nargs=-1, type=EXISTING_PATH)
@option("--subagents", "Also list the sub-agents of the listed sessions.")
@option("--problems", "Print each problem found while reading the files.")
@source_options
@json_option
def sessions_command(
    paths: tuple[Path, ...], subagents: bool, problems: bool, sources: SessionSources, as_json: bool
) -> None:
    """List the sessions on this machine.

    With PATHS (files or folders), list the sessions there instead. The newest session comes first. If a file
    cannot be read, the command lists the other sessions and exits 1.

    \b
    Examples:
      thresher sessions
      thresher sessions ~/old-laptop/.claude --json
      thresher sessions --no-discover --source backup/
    """
    from thresher.render.session_row import make_session_row, session_table

    sessions, failures = read_sessions(sources.list_files(paths), named=[*paths, *sources.extra])
    ids = {(session.agent, session.id) for session in sessions}
    listed = [one for one in sessions if subagents or not (one.is_subagent and (one.agent, one.parent) in ids)]
    rows = sorted(map(make_session_row, listed), key=lambda row: row.started, reverse=True)
    if as_json:
        print_output({"sessions": msgspec.to_builtins(rows)})
    elif rows:
        console = make_console()
        console.print(session_table(rows, console.width))
        messages = [problem for row in rows for problem in row.problems]
        if messages and not problems:
            print_hint("Some files have problems: `--problems` prints them.")
        for message in messages if problems else ():
            console.print(message, style="yellow")
    else:
        make_console().print(
            "No sessions found. `thresher sessions PATH` reads other folders; `thresher demo` writes sample sessions."
        )
    for failure in failures:
        warn(f"thresher: {failure}")
    if failures:
        sys.exit(1)
