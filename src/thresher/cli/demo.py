"""`thresher demo`: sample sessions of several agents, and what Thresher makes of them."""

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

import click
import msgspec

from thresher.cli.common import (
    find_session_files,
    json_option,
    make_console,
    print_lines,
    print_output,
    program_name,
    read_sessions,
)
from thresher.store import get_data_folder

if TYPE_CHECKING:
    from thresher.memory.results import SearchResults
    from thresher.render.session_row import SessionRow

DEMO_QUESTION = "why were half pennies lost at the reduced rate?"
MAX_SESSIONS, MAX_MESSAGES = 2, 3
MEMORY_FOLDER = ".thresher"
"""The folder beside the samples that their memory is kept in."""


@click.command("demo")
@click.option("--to", "folder", type=click.Path(path_type=Path, file_okay=False), help="Write the samples there.")
@json_option
def demo_command(folder: Path | None, as_json: bool) -> None:
    """Write sample sessions and show what is in them.

    The samples go to Thresher's own data directory, or where `--to` says. They are made up, and the same every
    time: four agents work on a small web shop, with thinking, parallel calls, repeated reads, a failing test, a
    sub-agent, a compaction and an interrupted call. Then it searches them, in a memory of their own.

    \b
    Examples:
      thresher demo
      thresher demo --to /tmp/samples --json
    """
    from thresher.render.memory import search_result_value
    from thresher.render.session_row import make_session_row
    from thresher.samples import write_samples

    folder = folder or get_data_folder() / "demo"
    files = write_samples(folder)
    places = sorted({folder / file.relative_to(folder).parts[0] for file in files})
    sessions, _ = read_sessions(find_session_files(places, (), no_discover=True))
    rows = [make_session_row(session) for session in sessions]
    answer = _search(folder, places)
    if as_json:
        value = {"folder": str(folder), "files": [str(file) for file in files]}
        found = {"sessions": [msgspec.to_builtins(row) for row in rows], "search": search_result_value(answer)}
        print_output(value | found)
        return
    _print_demo(folder, rows, answer)


def _search(folder: Path, places: list[Path]) -> "SearchResults":
    """Ask a question of the samples; whoever runs this keeps them out of their own memory."""
    from thresher.memory import Memory

    memory = Memory(home=folder / MEMORY_FOLDER, sources=places, discover=False)
    return memory.search(DEMO_QUESTION, sessions=MAX_SESSIONS, messages=MAX_MESSAGES)


def _format_search_command(folder: Path) -> str:
    """The command that asks the same."""
    shown = f"--sessions {MAX_SESSIONS} --messages {MAX_MESSAGES} --no-sync"
    return f"THRESHER_HOME={quote(str(folder / MEMORY_FOLDER))} {program_name()} search {quote(DEMO_QUESTION)} {shown}"


def _print_demo(folder: Path, rows: "list[SessionRow]", answer: "SearchResults") -> None:
    from thresher.render.memory import search_result_lines
    from thresher.render.session_row import session_table

    out = make_console()
    out.print(f"Sample sessions of {len({row.agent for row in rows})} agents are in {folder}\n", markup=False)
    out.print(session_table(rows, out.width))
    out.print("\nA question to their memory, which is not yours:", style="bold")
    out.print(f"  {_format_search_command(folder)}\n", markup=False, soft_wrap=True)
    print_lines(search_result_lines(answer, program=program_name(), where=f" --source {quote(str(folder))}"))
    longest = max(rows, key=lambda row: row.messages)
    out.print("\nNext:", style="bold")
    for line in (
        f'{program_name()} show "{longest.file}"',
        f'{program_name()} fit "{longest.file}" --budget 1k',
        f'{program_name()} convert "{longest.file}" --to openai-chat',
        f"{program_name()}                     which sessions are on this machine",
        f"{program_name()} search WORDS…       find one of them by what was done in it",
    ):
        out.print(f"  {line}", markup=False, soft_wrap=True)
