"""`thresher demo`: sample sessions of several agents, and what Thresher makes of them."""

from pathlib import Path

import click
import msgspec

from thresher.cli.common import console, json_option, print_json, program, read_sessions, session_files
from thresher.store import home


@click.command("demo")
@click.option("--to", "folder", type=click.Path(path_type=Path, file_okay=False), help="Write the samples there.")
@json_option
def command(folder: Path | None, as_json: bool) -> None:
    """Write sample sessions and show what is in them.

    The samples go to Thresher's own data directory, or where `--to` says. They are made up, and the same every
    time: four agents work on a small web shop, with thinking, parallel calls, repeated reads, a failing test, a
    sub-agent, a compaction and an interrupted call.

    \b
    Examples:
      thresher demo
      thresher demo --to /tmp/samples --json
    """
    from thresher.render import session_row, session_table
    from thresher.samples import write_samples

    folder = folder or home() / "demo"
    files = write_samples(folder)
    sessions, _ = read_sessions(session_files([folder], (), no_discover=True))
    rows = [session_row(session) for session in sessions]
    if as_json:
        value = {"folder": str(folder), "files": [str(file) for file in files]}
        print_json(value | {"sessions": [msgspec.to_builtins(row) for row in rows]})
        return
    out = console()
    out.print(f"Sample sessions of {len({row.agent for row in rows})} agents are in {folder}\n", markup=False)
    out.print(session_table(rows, out.width))
    longest = max(rows, key=lambda row: row.messages)
    out.print("\nNext:", style="bold")
    for line in (
        f'{program()} show "{longest.file}"',
        f'{program()} fit "{longest.file}" --budget 1k',
        f'{program()} convert "{longest.file}" --to openai-chat',
        f"{program()}                     which sessions are on this machine",
    ):
        out.print(f"  {line}", markup=False, soft_wrap=True)
