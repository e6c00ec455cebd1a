"""`thresher forget`: sessions removed from memory for good."""

import sys
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from thresher.cli.common import json_option, print_lines, print_output, progress_bar, warn
from thresher.errors import OptionError
from thresher.memory.search.query import parse_date_or_age

if TYPE_CHECKING:
    from thresher.memory.records import ArchivedSession


@click.command("forget")
@click.argument("ids", nargs=-1, metavar="[ID]...")
@click.option("--project", default="", help="All sessions in folders with this in their path.")
@click.option("--before", help="All sessions that ended before then: 2026-03-01, 90d, 1y.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Only list what would be removed.")
@json_option
def forget_command(
    ids: tuple[str, ...], project: str, before: str | None, yes: bool, dry_run: bool, as_json: bool
) -> None:
    """Remove sessions from memory for good: from the index and from the archive.

    Name them by the start of their ids, or by --project and --before (with both, those that fit both). They do not
    come back with the next sync. The agents' own files are not touched.

    Exits 0 where something was (or would be) removed, 1 where nothing fits, 2 on wrong use.

    \b
    Examples:
      thresher forget 0f3c9a1e
      thresher forget --project secret-client --dry-run
      thresher forget --before 1y --yes --json
    """
    from thresher.memory import Memory

    chosen = _parse_selection(ids, project, before)
    memory = Memory(discover=False)
    found = memory.forget(**chosen, dry=True)
    if not found:
        _print_sessions([], "Nothing in memory fits; nothing is removed.", as_json=as_json)
        sys.exit(1)
    if dry_run:
        _print_sessions(found, f"{_format_session_count(found)} would be removed:", as_json=as_json)
        return
    if not yes:
        _confirm_removal(found, as_json=as_json)
    warn("the index is built anew without them, which takes a while where much is kept")
    with progress_bar("building the index", percent=True) as progress:
        removed = memory.forget(**chosen, progress=progress)
    _print_sessions(removed, f"{_format_session_count(removed)} removed for good:", as_json=as_json, removed=True)


def _format_session_count(sessions: "list[ArchivedSession]") -> str:
    from thresher.render.text import plural

    return plural(len(sessions), "session")


def _parse_selection(ids: tuple[str, ...], project: str, before: str | None) -> dict[str, Any]:
    if not (any(ids) or project or before):
        raise click.UsageError("say what to forget: ids, --project or --before")
    if ids and (project or before):
        raise click.UsageError("name sessions by their ids, or choose by --project and --before; not both")
    return {
        "ids": ids,
        "project": project,
        "before": parse_date_or_age(before, datetime.now().astimezone()) if before else None,
    }


def _confirm_removal(found: "list[ArchivedSession]", *, as_json: bool) -> None:
    if as_json or not sys.stdin.isatty():
        raise OptionError(
            f"{_format_session_count(found)} would be removed for good; --yes says so, --dry-run lists them"
        )
    _print_sessions(found, "To be removed:", as_json=False)
    if not click.confirm("Remove them for good?"):
        warn("nothing was removed")
        sys.exit(1)


def _print_sessions(sessions: "list[ArchivedSession]", heading: str, *, as_json: bool, removed: bool = False) -> None:
    from thresher.render.memory import StyledLine, archived_session_lines, archived_session_value

    if as_json:
        print_output({"sessions": [archived_session_value(one) for one in sessions], "removed": removed})
    else:
        print_lines([StyledLine(((heading, "bold"),)), *archived_session_lines(sessions)])
