"""`thresher demo`: sample sessions of several agents, and a search of them."""

from datetime import datetime
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

import click
import msgspec

from thresher.cli.common import make_console, print_lines, print_output, program_name
from thresher.cli.options import json_option, option
from thresher.cli.sources import SessionSources, read_sessions
from thresher.store import get_data_folder
from thresher.transcripts.discovery import DATA_FOLDER

if TYPE_CHECKING:
    from thresher.memory.results import SearchResults
    from thresher.render.session_row import SessionEntry, SessionRow

DEMO_QUESTION = "why were half pennies lost at the reduced rate?"
MAX_SESSIONS, MAX_MESSAGES = 2, 1


@click.command("demo")
@option(
    "--to DIR",
    "Write the samples to this folder. Default: `demo` in Thresher's data folder.",
    name="folder",
    type=click.Path(path_type=Path, file_okay=False),
)
@json_option
def demo_command(folder: Path | None, as_json: bool) -> None:
    """Try Thresher on sample sessions.

    Writes sessions of four agents that work on a small web shop, lists them, and searches them. The sessions are
    fictional, the same on each run, and separate from your own archive. They contain thinking, parallel calls,
    repeated reads, a failing test, a sub-agent, a compaction and an interrupted call.

    \b
    Examples:
      thresher demo
      thresher demo --to /tmp/samples --json
    """
    from thresher.memory import Memory
    from thresher.render.memory_values import search_result_value
    from thresher.render.session_row import make_session_row
    from thresher.samples import write_samples

    folder = folder or get_data_folder() / "demo"
    files = write_samples(folder)
    agent_folders = sorted({folder / file.relative_to(folder).parts[0] for file in files})
    sessions, _ = read_sessions(SessionSources(discover=False).list_files(agent_folders))
    rows = sorted(map(make_session_row, sessions), key=lambda row: row.ended, reverse=True)
    memory = Memory(home=folder / DATA_FOLDER, sources=agent_folders, discover=False)
    results = memory.search(DEMO_QUESTION, sessions=MAX_SESSIONS, messages=MAX_MESSAGES)
    if as_json:
        value = {"folder": str(folder), "files": [str(file) for file in files]}
        print_output(
            value | {"sessions": [msgspec.to_builtins(row) for row in rows], "search": search_result_value(results)}
        )
    else:
        _print_demo(folder, rows, results)


def _table_entry(row: "SessionRow") -> "SessionEntry":
    from thresher.render.session_row import SessionEntry

    time = datetime.fromisoformat(row.ended) if row.ended else None
    return SessionEntry(row.id, row.agent, row.project, row.title, time, row.messages, len(row.problems))


def _print_demo(folder: Path, rows: "list[SessionRow]", results: "SearchResults") -> None:
    from thresher.render.memory import search_result_lines
    from thresher.render.session_row import session_table

    program, console = program_name(), make_console()
    limits = f"--sessions {MAX_SESSIONS} --messages {MAX_MESSAGES} --no-sync"
    search = f"THRESHER_HOME={quote(str(folder / DATA_FOLDER))} {program} search {quote(DEMO_QUESTION)} {limits}"
    agents = len({row.agent for row in rows})
    console.print(f"Wrote sample sessions of {agents} agents to {folder}\n", soft_wrap=True)
    console.print(session_table([_table_entry(row) for row in rows], console.width))
    console.print("\nSearching the sample sessions (kept apart from yours):", style="bold")
    console.print(f"  {search}\n", soft_wrap=True)
    print_lines(search_result_lines(results, program=program, where=f" --source {quote(str(folder))}"))
    longest = quote(max(rows, key=lambda row: row.messages).file)
    console.print("\nNext, on the longest sample session:", style="bold")
    for line in (
        f"  {program} show {longest}",
        f"  {program} fit {longest} --budget 1k",
        f"  {program} convert {longest} --to openai-chat",
    ):
        console.print(line, soft_wrap=True)
    console.print("\nThen, on your own sessions:", style="bold")
    console.print(f"  {program}                  overview of this machine", soft_wrap=True)
    console.print(f"  {program} search WORDS     find a session by its text", soft_wrap=True)
