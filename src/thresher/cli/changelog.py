"""`thresher changelog`: file changes and their reasons, over one or many sessions."""

import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from thresher.cli.common import print_result, track_progress
from thresher.cli.options import (
    DATE_EXAMPLES,
    json_option,
    no_sync_option,
    option,
    project_option,
    reveal_option,
    source_options,
)
from thresher.cli.sources import SessionSources
from thresher.errors import OptionError
from thresher.memory.search.query import parse_date_or_age

if TYPE_CHECKING:
    from thresher.memory import Memory
    from thresher.model import Session


@click.command("changelog")
@click.argument("ids", nargs=-1, metavar="[SESSION]...")
@project_option
@option("--since DATE", f"Only changes since this date: {DATE_EXAMPLES}.")
@option("--until DATE", "Only changes until the end of this date.")
@no_sync_option
@reveal_option
@source_options
@json_option
def changelog_command(
    ids: tuple[str, ...],
    project: str,
    since: str | None,
    until: str | None,
    no_sync: bool,
    reveal: bool,
    sources: SessionSources,
    as_json: bool,
) -> None:
    """List file changes and the reasons for them.

    The output is Markdown with one section per file. Name sessions (files or the start of their ids), or select them
    from the archive with --project, --since and --until. The reason for a change is the description in its tool call,
    or the agent's text before the call if there is no description. Keys and passwords in archived sessions are
    redacted.

    Exits 1 if nothing changed.

    \b
    Examples:
      thresher changelog 0f3c9a1e
      thresher changelog rollout.jsonl --json
      thresher changelog --project shop --since 7d
      thresher changelog --since today > CHANGES.md
    """
    from thresher.render.timeline import changelog_lines, changelog_value
    from thresher.timeline import build_changelog

    if not (ids or project or since or until):
        raise OptionError("nothing selected: name a SESSION, or select sessions with --project, --since or --until")
    if ids and project:
        raise OptionError("--project cannot be combined with SESSION; use one or the other")
    now = datetime.now().astimezone()
    start = parse_date_or_age(since, now) if since else None
    end = parse_date_or_age(until, now, end=True) if until else None
    if ids:
        sessions = [sources.find_session(reference, reveal=reveal) for reference in ids]
    else:
        sessions = _load_archived_sessions(sources.open_memory(sync=not no_sync), project, start, reveal=reveal)
    changelog = build_changelog(sessions, since=start, until=end)
    subject = project or ", ".join(Path(reference).name for reference in ids)
    title = f"Changes in {subject}" if subject else "Changes"
    print_result(changelog_value(changelog), changelog_lines(changelog, title), as_json=as_json)
    if not changelog.files:
        sys.exit(1)


def _load_archived_sessions(memory: "Memory", project: str, since: datetime | None, *, reveal: bool) -> "list[Session]":
    """Return the archived sessions of a project, except sub-agents and sessions that ended before `since`."""
    from thresher.memory.ingest.session_redaction import redact_session

    keys = []
    for facts in memory.store.find_sessions(project=project):
        ended = facts.ended or facts.started
        if not facts.subagent and (since is None or ended is None or ended >= since):
            keys.append(facts.key)
    sessions = map(memory.store.session, track_progress(keys, "reading"))
    return [session if reveal else redact_session(session) for session in sessions]
