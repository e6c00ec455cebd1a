"""`thresher demo`: sample sessions of several agents, and what Thresher makes of them."""

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

import click
import msgspec

from thresher.cli.common import (
    console,
    json_option,
    print_json,
    print_lines,
    program,
    read_sessions,
    session_files,
)
from thresher.store import home

if TYPE_CHECKING:
    from thresher.memory.hits import Answer
    from thresher.render.rows import SessionRow

QUESTION = "why were half pennies lost at the reduced rate?"
SESSIONS, MESSAGES = 2, 3
MEMORY = ".thresher"
"""The folder beside the samples that their memory is kept in."""


@click.command("demo")
@click.option("--to", "folder", type=click.Path(path_type=Path, file_okay=False), help="Write the samples there.")
@json_option
def command(folder: Path | None, as_json: bool) -> None:
    """Write sample sessions and show what is in them.

    The samples go to Thresher's own data directory, or where `--to` says. They are made up, and the same every
    time: four agents work on a small web shop, with thinking, parallel calls, repeated reads, a failing test, a
    sub-agent, a compaction and an interrupted call. Then it searches them, in a memory of their own.

    \b
    Examples:
      thresher demo
      thresher demo --to /tmp/samples --json
    """
    from thresher.render.memory import answer_value
    from thresher.render.rows import session_row
    from thresher.samples import write_samples

    folder = folder or home() / "demo"
    files = write_samples(folder)
    places = sorted({folder / file.relative_to(folder).parts[0] for file in files})
    sessions, _ = read_sessions(session_files(places, (), no_discover=True))
    rows = [session_row(session) for session in sessions]
    answer = _search(folder, places)
    if as_json:
        value = {"folder": str(folder), "files": [str(file) for file in files]}
        found = {"sessions": [msgspec.to_builtins(row) for row in rows], "search": answer_value(answer)}
        print_json(value | found)
        return
    _show(folder, rows, answer)


def _search(folder: Path, places: list[Path]) -> "Answer":
    """Ask a question of the samples; whoever runs this keeps them out of their own memory."""
    from thresher.memory import Memory

    memory = Memory(home=folder / MEMORY, sources=places, discover=False)
    return memory.search(QUESTION, sessions=SESSIONS, messages=MESSAGES)


def _asking(folder: Path) -> str:
    """The command that asks the same."""
    shown = f"--sessions {SESSIONS} --messages {MESSAGES} --no-sync"
    return f"THRESHER_HOME={quote(str(folder / MEMORY))} {program()} search {quote(QUESTION)} {shown}"


def _show(folder: Path, rows: "list[SessionRow]", answer: "Answer") -> None:
    from thresher.render.memory import answer_lines
    from thresher.render.rows import session_table

    out = console()
    out.print(f"Sample sessions of {len({row.agent for row in rows})} agents are in {folder}\n", markup=False)
    out.print(session_table(rows, out.width))
    out.print("\nA question to their memory, which is not yours:", style="bold")
    out.print(f"  {_asking(folder)}\n", markup=False, soft_wrap=True)
    print_lines(answer_lines(answer, program=program(), where=f" --source {quote(str(folder))}"))
    longest = max(rows, key=lambda row: row.messages)
    out.print("\nNext:", style="bold")
    for line in (
        f'{program()} show "{longest.file}"',
        f'{program()} fit "{longest.file}" --budget 1k',
        f'{program()} convert "{longest.file}" --to openai-chat',
        f"{program()}                     which sessions are on this machine",
        f"{program()} search WORDS…       find one of them by what was done in it",
    ):
        out.print(f"  {line}", markup=False, soft_wrap=True)
