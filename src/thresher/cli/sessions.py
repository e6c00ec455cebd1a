"""`thresher sessions`: list sessions."""

import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from thresher.cli.common import paged_console, print_output, print_text, warn
from thresher.cli.options import (
    DATE_EXAMPLES,
    EXISTING_PATH,
    NameChoice,
    WholeNumber,
    json_option,
    option,
    project_option,
    source_options,
)
from thresher.cli.sources import SLOW_SYNC_SECONDS, SessionSources
from thresher.render.text import plural
from thresher.transcripts import format_names

if TYPE_CHECKING:
    from thresher.cli.session_list import ListedSession, SessionList
    from thresher.render.session_row import SessionEntry


@click.command("sessions")
@click.argument("paths", nargs=-1, type=EXISTING_PATH)
@project_option
@option("--agent NAME", "Only sessions of this agent.", type=NameChoice(format_names()))
@option("--since DATE", f"Only sessions with messages since this date: {DATE_EXAMPLES}.")
@option("--limit N", "List only the newest N sessions.", type=WholeNumber(1))
@option("--subagents", "Also list the sub-agents of the listed sessions.")
@option("--problems", "Print each problem found while reading the files, and the files of unknown format.")
@source_options
@json_option
def sessions_command(
    paths: tuple[Path, ...],
    project: str,
    agent: str | None,
    since: str | None,
    limit: int | None,
    subagents: bool,
    problems: bool,
    sources: SessionSources,
    as_json: bool,
) -> None:
    """List the sessions on this machine.

    With PATHS (files or folders), list the sessions there instead. The session with the latest message comes first.
    Files that did not change since the last `thresher sync` or search are not read again.

    Exits 1 if no session matches, or if a file cannot be read; the other sessions are still listed.

    \b
    Examples:
      thresher sessions
      thresher sessions --project shop --since 7d
      thresher sessions ~/old-laptop/.claude --json
      thresher sessions --no-discover --source backup/ --limit 20
    """
    from thresher.cli.session_list import list_sessions, select_sessions
    from thresher.memory.search.query import parse_date_or_age

    start = parse_date_or_age(since, datetime.now().astimezone()) if since else None
    began = time.perf_counter()
    found = list_sessions(sources.list_files(paths), named=[*paths, *sources.extra])
    is_slow = time.perf_counter() - began > SLOW_SYNC_SECONDS
    matches = select_sessions(found.sessions, subagents=subagents, project=project, agent=agent or "", since=start)
    listed = matches[:limit]
    with found.connected():
        if as_json:
            _print_json(listed)
        elif listed:
            _print_table(listed, more=len(matches) - len(listed))
            _print_problems(listed, found, as_list=problems)
        else:
            print_text(_no_sessions_message(found, [*paths, *sources.extra]))
    for text in _format_notes(found, is_slow=is_slow and not paths):
        warn(text)
    if found.failures or not listed:
        sys.exit(1)


def _print_json(listed: "Iterable[ListedSession]") -> None:
    from thresher.render.session_row import make_session_row

    print_output({"sessions": [msgspec.to_builtins(make_session_row(one.load())) for one in listed]})


def _print_table(listed: "Sequence[ListedSession]", *, more: int) -> None:
    from thresher.render.session_row import session_table

    with paged_console() as console:
        console.print(session_table([session_entry(one) for one in listed], console.width, more=more))


def session_entry(listed: "ListedSession") -> "SessionEntry":
    """Return the row of a session in the table, redacted."""
    from thresher.memory.ingest.redaction import redact
    from thresher.render.session_row import SessionEntry

    facts, problems = listed.facts, len(listed.problems())
    name, project, title = map(redact, (facts.id, facts.project, facts.title))
    return SessionEntry(name, facts.agent, project, title, listed.last_message, facts.messages, problems)


def _print_problems(listed: "Iterable[ListedSession]", found: "SessionList", *, as_list: bool) -> None:
    """Print the problems and the files of unknown format, or only their number."""
    from thresher.memory.ingest.redaction import redact

    problems = [redact(str(problem)) for one in listed for problem in one.problems()]
    if as_list:
        for text in (*problems, *(f"{file}: unknown format" for file in found.unrecognized)):
            print_text(text)
        return
    counts = [plural(len(problems), "problem") + " found while reading"] if problems else []
    counts += [f"{plural(len(found.unrecognized), 'file')} of unknown format"] if found.unrecognized else []
    if counts:
        print_text(f"{' and '.join(counts)}; `--problems` lists them.")


def _no_sessions_message(found: "SessionList", named: Sequence[Path]) -> str:
    if found.sessions:
        count = plural(len(found.sessions), "session")
        return f"None of {count} matches. Use fewer or other conditions (--project, --agent, --since)."
    where = f" in {', '.join(f'`{path}`' for path in named)}" if named else ""
    unknown = f" {plural(len(found.unrecognized), 'file')} of unknown format." if found.unrecognized else ""
    other = "another folder" if named else "a folder"
    return f"No sessions found{where}.{unknown} `thresher sessions PATH` reads {other}; `thresher demo` has samples."


def _format_notes(found: "SessionList", *, is_slow: bool) -> Iterator[str]:
    """Yield the failures, and a hint if reading took long."""
    yield from (f"thresher: {failure}" for failure in found.failures)
    if is_slow:
        files = plural(found.read, "file")
        yield f"{files} had to be read. After `thresher sync`, only changed files are read."
