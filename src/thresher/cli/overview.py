"""`thresher` alone: what is on this machine, and what to try next. Looks at files, reads no session."""

import os
from collections import defaultdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import to_builtins

from thresher.cli.common import make_console, print_output
from thresher.errors import ReadError
from thresher.memory.ingest.change_detection import read_file_stat
from thresher.render.text import format_byte_size, format_count
from thresher.store import get_data_folder
from thresher.transcripts import discover, list_session_versions

if TYPE_CHECKING:
    from thresher.memory.records import MemorySizes


def show_overview(*, as_json: bool) -> None:
    """Print it."""
    by_agent: dict[str, list[Path]] = defaultdict(list)
    for found in discover():
        by_agent[found.format].append(found.path)
    agents = [_agent_value(name, paths) for name, paths in by_agent.items()]
    if as_json:
        print_output({"agents": agents, "home": str(get_data_folder()), "memory": to_builtins(_measure_memory())})
        return
    out = make_console()
    if not agents:
        out.print("No agent's sessions were found in the usual places on this machine.")
        out.print("Try it on samples:  thresher demo\nOn files elsewhere:  thresher sessions PATH…")
        return
    out.print(_agent_table(agents))
    kept = _measure_memory()
    if kept.sessions:
        takes = format_byte_size(kept.archive + kept.index)
        out.print(
            f"\nMemory keeps {format_count(kept.messages)} messages of {format_count(kept.sessions)} sessions in "
            f"{takes}."
        )
    out.print(
        "\nNext:  thresher sessions        list them\n       thresher show ID         read one"
        "\n       thresher search WORDS…   find one by what was done in it"
    )


def _measure_memory() -> "MemorySizes":
    """What memory holds; it is not brought up to date for this, nor made."""
    from thresher.cli.archive import open_existing_memory
    from thresher.memory.records import MemorySizes

    memory = open_existing_memory()
    return memory.sizes() if memory is not None else MemorySizes(text=0, archive=0, index=0, sessions=0, messages=0)


def _agent_value(name: str, paths: list[Path]) -> dict[str, Any]:
    facts = [fact for path in paths if (fact := read_file_stat(path)) is not None]
    newest = max((fact.mtime_ns for fact in facts), default=0) / 1e9
    return {
        "agent": name,
        "sessions": sum(_count_sessions(name, path) for path in paths),
        "bytes": sum(fact.size for fact in facts),
        "newest": datetime.fromtimestamp(newest, UTC).isoformat(timespec="seconds"),
        "folder": os.path.commonpath([path.parent for path in paths]),
    }


def _count_sessions(name: str, path: Path) -> int:
    """How many sessions a file holds: of a database that is asked, and most others hold one."""
    try:
        found = list_session_versions(path, format=name)
    except ReadError:
        found = None
    return 1 if found is None else len(found)


def _agent_table(agents: list[dict[str, Any]]) -> Any:
    from rich.table import Table

    table = Table(box=None, padding=(0, 1), header_style="bold")
    for name, justify in (("agent", "left"), ("sessions", "right"), ("size", "right"), ("newest", "left")):
        table.add_column(name, justify=justify)  # type: ignore[arg-type]
    table.add_column("folder", overflow="fold")
    for agent in agents:
        newest = f"{datetime.fromisoformat(agent['newest']).astimezone():%Y-%m-%d %H:%M}"
        table.add_row(
            agent["agent"], format_count(agent["sessions"]), format_byte_size(agent["bytes"]), newest, agent["folder"]
        )
    return table
