"""`thresher forget`: delete sessions from the archive and the index."""

import sys
from collections.abc import Sequence
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
@option("--family", "Also delete their forks, continuations and copies, which repeat the same words.")
@option(
    "--store", "Delete the removed text behind placeholders, of all conversations or, with --before, the older part."
)
@option("--yes -y", "Delete without asking.")
@option("--dry-run", "List the sessions that would be deleted, and delete nothing.")
@json_option
def forget_command(
    ids: tuple[str, ...],
    project: str,
    before: str | None,
    family: bool,
    store: bool,
    yes: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Delete sessions from the archive for good.

    Select sessions by ID (the start of a session id), or by --project and --before; if you give both options, a
    session must match both. The next sync does not bring them back. The agents' own files are not changed.

    The text that Thresher removed from their requests is deleted, too, so `restore` no longer returns it. With --store,
    delete such text alone, whatever session it comes from; `restore` then returns nothing for its placeholders.

    Exits 1 if nothing matches or you answer no.

    \b
    Examples:
      thresher forget 0f3c9a1e
      thresher forget --project secret-client --dry-run
      thresher forget --before 1y --yes --json
      thresher forget --store --before 90d
    """
    from thresher.memory import Memory

    if store:
        if ids or project or family or dry_run:
            raise click.UsageError("--store deletes removed text of all conversations; combine it only with --before.")
        _forget_store(before, yes=yes, as_json=as_json)
        return
    selection = _parse_selection(ids, project, before) | {"family": family}
    memory = Memory(discover=False)
    matches = memory.forget(**selection, dry=True)
    count = plural(len(matches), "session")
    if not matches:
        _print_sessions([], "No session in the archive matches; nothing deleted.", as_json=as_json)
        sys.exit(1)
    related = memory.find_relatives(matches)
    if dry_run:
        _print_sessions(matches, f"{count} would be deleted:", as_json=as_json, related=related)
        return
    if not yes:
        _confirm_removal(matches, as_json=as_json, related=related)
    warn("rebuilding the index without these sessions; this can take a while for a large archive")
    with progress_bar("building the index", percent=True) as progress:
        removed = memory.forget(**selection, progress=progress)
    _delete_ledgers(removed)
    _print_sessions(
        removed, f"{plural(len(removed), 'session')} deleted:", as_json=as_json, removed=True, related=related
    )


def _delete_ledgers(sessions: "Sequence[ArchivedSession]") -> None:
    """Delete what the proxy has recorded of these sessions."""
    from thresher.serve.proxy.conversations import LEDGER_FOLDER, delete_ledgers
    from thresher.store.home import get_data_folder

    folder = get_data_folder() / LEDGER_FOLDER
    for session in sessions if folder.is_dir() else ():
        delete_ledgers(folder, session.id)


def _forget_store(before: str | None, *, yes: bool, as_json: bool) -> None:
    from thresher.render.memory import StyledLine
    from thresher.store import default_content_store

    end = parse_date_or_age(before, datetime.now().astimezone()) if before else None
    if not yes:
        if as_json or not sys.stdin.isatty():
            raise OptionError("removed text would be deleted for good. Add --yes to delete it")
        if not click.confirm("Delete removed text for good? `restore` will not return it."):
            warn("nothing deleted")
            sys.exit(1)
    deleted = default_content_store().prune(end)
    line = StyledLine(((f"{plural(deleted, 'removed part')} deleted from the content store", "bold"),))
    print_result({"sessions": [], "related": [], "removed": deleted > 0, "parts": deleted}, [line], as_json=as_json)


def _parse_selection(ids: tuple[str, ...], project: str, before: str | None) -> dict[str, Any]:
    if not (any(ids) or project or before):
        raise click.UsageError("Nothing selected. Give session ids, or --project or --before.")
    if ids and (project or before):
        raise click.UsageError("Session ids cannot be combined with --project or --before. Use one or the other.")
    end = parse_date_or_age(before, datetime.now().astimezone()) if before else None
    return {"ids": ids, "project": project, "before": end}


def _confirm_removal(matches: "list[ArchivedSession]", *, as_json: bool, related: "list[ArchivedSession]") -> None:
    if as_json or not sys.stdin.isatty():
        count = plural(len(matches), "session")
        raise OptionError(f"{count} would be deleted for good. Add --yes to delete them, or --dry-run to list them")
    _print_sessions(matches, "To be deleted:", as_json=False, related=related)
    if not click.confirm("Delete these sessions for good?"):
        warn("nothing deleted")
        sys.exit(1)


def _print_sessions(
    sessions: "list[ArchivedSession]",
    heading: str,
    *,
    as_json: bool,
    removed: bool = False,
    related: "Sequence[ArchivedSession]" = (),
) -> None:
    from thresher.render.memory import StyledLine, archived_session_lines
    from thresher.render.memory_values import archived_session_value

    value = {
        "sessions": [archived_session_value(session) for session in sessions],
        "related": [archived_session_value(session) for session in related],
        "removed": removed,
        "parts": 0,
    }
    lines = [StyledLine(((heading, "bold"),)), *archived_session_lines(sessions)]
    if related:
        count = plural(len(related), "session")
        note = f"{count} of the same family may hold the same words; --family deletes them, too:"
        lines += [StyledLine(((note, "yellow"),)), *archived_session_lines(related)]
    print_result(value, lines, as_json=as_json)
