"""`thresher changelog`: what changed in files, and why, over one session or many."""

import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from thresher.cli.common import (
    find_session,
    json_option,
    print_lines,
    print_output,
    progress_bar,
    source_options,
    sync_before_search,
)
from thresher.errors import OptionError
from thresher.memory.search.query import parse_date_or_age

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from thresher.memory import Memory
    from thresher.memory.records import ArchivedSession
    from thresher.model import Session


@click.command("changelog")
@click.argument("ids", nargs=-1, metavar="[ID]...")
@click.option("--project", default="", help="All sessions in folders with this in their path.")
@click.option("--since", help="Only changes since then: 2026-03-01, 7d, 2w, today.")
@click.option("--until", help="Only changes until then; a day means its end.")
@click.option("--no-sync", is_flag=True, help="Do not look for new sessions and messages first.")
@click.option("--reveal", is_flag=True, help="Show keys, tokens and passwords as they are.")
@source_options
@json_option
def changelog_command(
    ids: tuple[str, ...],
    project: str,
    since: str | None,
    until: str | None,
    no_sync: bool,
    reveal: bool,
    sources: tuple[Path, ...],
    no_discover: bool,
    as_json: bool,
) -> None:
    """What changed in files and why, per file, as Markdown: of sessions named by ID (or by file), or of many.

    The reason of a change is what its call says it is for, or else what the agent said right before it. With --project
    or --since the sessions come from memory; keys and passwords in them are redacted.

    Exits 0 where something changed, 1 where nothing did, 2 on wrong use.

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
        raise OptionError("say of what: the ID of a session, or --project or --since for all that fit")
    if ids and project:
        raise OptionError("an ID names a session and --project many; leave one of them out")
    now = datetime.now().astimezone()
    start = parse_date_or_age(since, now) if since else None
    stop = parse_date_or_age(until, now, end=True) if until else None
    if ids:
        sessions = [find_session(one, sources, no_discover=no_discover, reveal=reveal) for one in ids]
    else:
        sessions = _load_archived_sessions(
            project, start, sources, no_discover=no_discover, no_sync=no_sync, reveal=reveal
        )
    log = build_changelog(sessions, since=start, until=stop)
    if as_json:
        print_output(changelog_value(log))
    else:
        print_lines(changelog_lines(log, _title(ids, project)))
    if not log.files:
        sys.exit(1)


def _title(ids: tuple[str, ...], project: str) -> str:
    return f"Changes in {project or ', '.join(Path(one).name for one in ids)}" if project or ids else "Changes"


def _load_archived_sessions(
    project: str, since: datetime | None, sources: tuple[Path, ...], *, no_discover: bool, no_sync: bool, reveal: bool
) -> "list[Session]":
    """The sessions that memory keeps of a project, or of all, that went on after a time."""
    from thresher.memory import Memory

    memory = Memory(sources=sources, discover=not no_discover)
    if not no_sync:
        sync_before_search(memory)
    facts = [
        one for one in memory.store.find_sessions(project=project) if not one.subagent and not _ended_before(one, since)
    ]
    with progress_bar("reading") as progress:
        return [*_iter_sessions(memory, facts, reveal=reveal, progress=progress)]


def _ended_before(facts: "ArchivedSession", since: datetime | None) -> bool:
    ended = facts.ended or facts.started
    return since is not None and ended is not None and ended < since


def _iter_sessions(
    memory: "Memory", facts: "list[ArchivedSession]", *, reveal: bool, progress: "Callable[[int, int], None] | None"
) -> "Iterator[Session]":
    from thresher.memory.ingest.session_redaction import redact_session

    for done, one in enumerate(facts, 1):
        session = memory.store.session(one.key)
        yield session if reveal else redact_session(session)
        if progress is not None:
            progress(done, len(facts))
