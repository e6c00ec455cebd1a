"""A session in one row."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from thresher.model import History, Session
from thresher.render.text import format_count, format_token_count, plural, shorten
from thresher.tokens import count

if TYPE_CHECKING:
    from rich.table import Table


LEAST_TITLE = 20


class SessionRow(Struct, frozen=True):
    """What a list of sessions says of one; the names are stable for other programs."""

    file: str
    agent: str
    id: str
    project: str
    title: str
    started: str
    messages: int
    """Every message once; rewound ones included, those of sub-agents not."""
    calls: int
    results: int
    unpaired: int
    """Calls without a result, and results without a call."""
    subagents: int
    """Calls that started a sub-agent."""
    compactions: int
    tokens: int
    """About how much the model would see next."""
    records: dict[str, int]
    problems: list[str]


def make_session_row(session: Session) -> SessionRow:
    """Count everything once."""
    histories = [*session.segments, *(branch.history for branch in session.branches)]
    messages = list(session.messages(branches=True))
    return SessionRow(
        file=session.file,
        agent=session.agent,
        id=session.id,
        project=session.project,
        title=session.title,
        started=session.started.isoformat() if session.started else "",
        messages=len(messages),
        calls=sum(1 for message in messages for _ in message.calls),
        results=sum(1 for message in messages for _ in message.results),
        unpaired=sum(_unpaired(history) for history in histories),
        subagents=sum(_count_subagent_calls(history) for history in histories),
        compactions=session.compactions,
        tokens=count(session.history),
        records=session.records,
        problems=[str(problem) for problem in session.problems],
    )


def _unpaired(history: History) -> int:
    missing = sum(chain.result is None and not history[chain.call.message].carried for chain in history.chains)
    return missing + sum(not history[place.message].carried for place in history.orphans)


def _count_subagent_calls(history: History) -> int:
    return sum(not history[spawn.start].carried for spawn in history.spawns)


def session_table(every: Sequence[SessionRow], width: int) -> "Table":
    """Sessions as a table to be read at a glance: no empty columns, and as many as the line has room for.

    Those in which nothing was said are counted, not shown, if there are others.
    """
    from rich.table import Table
    from rich.text import Text

    rows = [row for row in every if row.messages] or every
    columns = {name: cells for name, cells in _columns(rows).items() if any(cells)}
    sizes = {name: max(len(name), *map(len, cells)) + 2 for name, cells in columns.items()}
    for name in ("compacted", "started", "sub-agents", "unpaired", "problems", "calls"):
        if sum(sizes.values()) + LEAST_TITLE > width:
            columns.pop(name, None)
            sizes.pop(name, None)
    table = Table(box=None, padding=(0, 1), header_style="bold")
    for name in columns:
        table.add_column(name, no_wrap=True, justify="left" if name in ("agent", "session", "started") else "right")
    table.add_column("title", no_wrap=True)
    room = max(width - sum(sizes.values()) - 2, LEAST_TITLE)
    for row, cells in zip(rows, zip(*columns.values(), strict=True), strict=True):
        table.add_row(*cells, Text(shorten(row.title, room)))
    others = len(every) - len(rows)
    empty = f", and {others:,} in which nothing was said" if others else ""
    table.caption = f"{plural(len(rows), 'session')}{empty}; tokens: about what the model would see next"
    table.caption_justify = "left"
    return table


def _columns(rows: Sequence[SessionRow]) -> dict[str, list[str]]:
    def numbers(counts: Iterable[int]) -> list[str]:
        return [format_count(number) if number else "" for number in counts]

    return {
        "agent": [row.agent for row in rows],
        "session": [_short_id(row) for row in rows],
        "started": [row.started[:16].replace("T", " ") for row in rows],
        "messages": numbers(row.messages for row in rows),
        "calls": numbers(row.calls for row in rows),
        "unpaired": numbers(row.unpaired for row in rows),
        "sub-agents": numbers(row.subagents for row in rows),
        "compacted": numbers(row.compactions for row in rows),
        "problems": numbers(len(row.problems) for row in rows),
        "tokens": [format_token_count(row.tokens) for row in rows],
    }


def _short_id(row: SessionRow) -> str:
    """Enough of an id to name it: the first eight of a UUID, the whole of a short one."""
    return row.id[:8] if len(row.id) == 36 and row.id.count("-") == 4 else shorten(row.id or Path(row.file).stem, 24)
