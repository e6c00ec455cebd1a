"""`thresher forget`: delete sessions from the archive and the index."""

import sys
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from thresher.cli.common import print_result, progress_bar, warn
from thresher.cli.options import json_option, option, project_option
from thresher.errors import OptionError
from thresher.memory.search.query import parse_date_or_age
from thresher.render.text import plural

if TYPE_CHECKING:
    from thresher.memory.records import ArchivedSession


@click.command("forget")
@click.argument("ids", nargs=-1, metavar="[ID]...")
@project_option
@option("--before DATE", "Only sessions that ended before this date: 2026-03-01, 90d, 1y.")
@option("--yes -y", "Delete without asking.")
@option("--dry-run", "List the sessions that would be deleted, and delete nothing.")
@json_option
def forget_command(
    ids: tuple[str, ...], project: str, before: str | None, yes: bool, dry_run: bool, as_json: bool
) -> None:
    """Delete sessions from the archive for good.

    Select sessions by ID (the start of a session id), or by --project and --before; if you give both options, a
    session must match both. The next sync does not bring them back. The agents' own files are not changed.

    Exits 1 if nothing matches or you answer no.

    \b
    Examples:
      thresher forget 0f3c9a1e
      thresher forget --project secret-client --dry-run
      thresher forget --before 1y --yes --json
    """
    from thresher.memory import Memory

    selection = _parse_selection(ids, project, before)
    memory = Memory(discover=False)
    matches = memory.forget(**selection, dry=True)
    count = plural(len(matches), "session")
    if not matches:
        _print_sessions([], "No session in the archive matches; nothing deleted.", as_json=as_json)
        sys.exit(1)
    if dry_run:
        _print_sessions(matches, f"{count} would be deleted:", as_json=as_json)
        return
    if not yes:
        _confirm_removal(matches, as_json=as_json)
    warn("rebuilding the index without these sessions; this can take a while for a large archive")
    with progress_bar("building the index", percent=True) as progress:
        removed = memory.forget(**selection, progress=progress)
    _print_sessions(removed, f"{plural(len(removed), 'session')} deleted:", as_json=as_json, removed=True)


def _parse_selection(ids: tuple[str, ...], project: str, before: str | None) -> dict[str, Any]:
    if not (any(ids) or project or before):
        raise click.UsageError("Nothing selected. Give session ids, or --project or --before.")
    if ids and (project or before):
        raise click.UsageError("Session ids cannot be combined with --project or --before. Use one or the other.")
    end = parse_date_or_age(before, datetime.now().astimezone()) if before else None
    return {"ids": ids, "project": project, "before": end}


def _confirm_removal(matches: "list[ArchivedSession]", *, as_json: bool) -> None:
    if as_json or not sys.stdin.isatty():
        count = plural(len(matches), "session")
        raise OptionError(f"{count} would be deleted for good. Add --yes to delete them, or --dry-run to list them")
    _print_sessions(matches, "To be deleted:", as_json=False)
    if not click.confirm("Delete these sessions for good?"):
        warn("nothing deleted")
        sys.exit(1)


def _print_sessions(sessions: "list[ArchivedSession]", heading: str, *, as_json: bool, removed: bool = False) -> None:
    from thresher.render.memory import StyledLine, archived_session_lines, archived_session_value

    value = {"sessions": [archived_session_value(session) for session in sessions], "removed": removed}
    lines = [StyledLine(((heading, "bold"),)), *archived_session_lines(sessions)]
    print_result(value, lines, as_json=as_json)
