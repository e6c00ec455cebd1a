"""`thresher` without a command: an overview of the sessions on this machine. It parses no session."""

import os
from collections import defaultdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import to_builtins

from thresher.cli.common import make_console, print_output
from thresher.cli.sources import open_existing_memory
from thresher.errors import ReadError
from thresher.memory.ingest.change_detection import read_file_stat
from thresher.render.session_names import abbreviate_home
from thresher.render.text import format_byte_size, format_local_time, plural
from thresher.store import get_data_folder
from thresher.transcripts import discover, list_session_versions

if TYPE_CHECKING:
    from rich.table import Table

    from thresher.memory.records import MemorySizes

NO_SESSIONS = """\
No agent sessions found on this machine.

Next:
  thresher demo            try Thresher on sample sessions
  thresher sessions PATH   list the sessions in another folder"""
NEXT_STEPS = """
Next:
  thresher sessions        list the sessions
  thresher search WORDS    find a session by its text
  thresher show ID         read a session
  thresher fit ID -b 60k   see how to trim a session to 60,000 tokens
  thresher --help          all commands"""


def show_overview(*, as_json: bool) -> None:
    """Print the agents with sessions on this machine, the size of the archive, and the next commands to try."""
    paths_by_agent: dict[str, list[Path]] = defaultdict(list)
    for file in discover():
        paths_by_agent[file.format].append(file.path)
    agents = [_agent_value(name, paths) for name, paths in paths_by_agent.items()]
    sizes = _measure_memory()
    if as_json:
        print_output({"agents": agents, "home": str(get_data_folder()), "memory": to_builtins(sizes)})
        return
    console = make_console()
    if not agents:
        console.print(NO_SESSIONS)
        return
    console.print("Agent sessions on this machine:\n", style="bold")
    console.print(_agent_table(agents))
    archived = f"{plural(sizes.sessions, 'session')} with {plural(sizes.messages, 'message')}"
    disk = format_byte_size(sizes.archive + sizes.index)
    console.print(
        f"\nArchive: {archived}, {disk} on disk." if sizes.sessions else "\nArchive: empty. The first search fills it."
    )
    console.print(NEXT_STEPS)


def _measure_memory() -> "MemorySizes":
    """Return the sizes of the archive as it is, without a sync."""
    from thresher.memory.records import MemorySizes

    memory = open_existing_memory()
    return memory.sizes() if memory is not None else MemorySizes(text=0, archive=0, index=0, sessions=0, messages=0)


def _agent_value(name: str, paths: list[Path]) -> dict[str, Any]:
    stats = [stat for path in paths if (stat := read_file_stat(path)) is not None]
    newest = max((stat.mtime_ns for stat in stats), default=0) / 1e9
    return {
        "agent": name,
        "sessions": sum(_count_sessions(name, path) for path in paths),
        "bytes": sum(stat.size for stat in stats),
        "newest": datetime.fromtimestamp(newest, UTC).isoformat(timespec="seconds"),
        "folder": os.path.commonpath([path.parent for path in paths]),
    }


def _count_sessions(name: str, path: Path) -> int:
    """Return the number of sessions in a file: the count in a database, 1 for any other file or a broken database."""
    try:
        versions = list_session_versions(path, format=name)
    except ReadError:
        return 1
    return 1 if versions is None else len(versions)


def _agent_table(agents: list[dict[str, Any]]) -> "Table":
    from rich.table import Table

    table = Table(box=None, padding=(0, 1), header_style="bold")
    table.add_column("agent")
    table.add_column("sessions", justify="right")
    table.add_column("size", justify="right")
    table.add_column("newest")
    table.add_column("folder", overflow="fold")
    for agent in agents:
        newest = format_local_time(datetime.fromisoformat(agent["newest"]))
        size = format_byte_size(agent["bytes"])
        table.add_row(agent["agent"], f"{agent['sessions']:,}", size, newest, abbreviate_home(agent["folder"]))
    return table
