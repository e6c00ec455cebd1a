"""Facts and counts of sessions, and a table with one row per session."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from thresher.memory.ingest.redaction import redact
from thresher.model import History, Session
from thresher.render.text import format_count, format_token_count, plural, shorten
from thresher.tokens import count

if TYPE_CHECKING:
    from rich.table import Table


MIN_TITLE_WIDTH = 20
OPTIONAL_COLUMNS = ("compacted", "started", "sub-agents", "unpaired", "problems", "calls")
"""Columns to remove on a narrow terminal, in this order."""


class SessionRow(Struct, frozen=True):
    """Facts and counts of one session. The field names are the JSON keys."""

    file: str
    agent: str
    id: str
    project: str
    title: str
    started: str
    messages: int
    """Number of messages, including rewound messages and excluding messages of sub-agents.

    A message that a compaction repeats counts once.
    """
    calls: int
    results: int
    unpaired: int
    """Number of calls without a result, plus results without a call."""
    subagents: int
    """Number of calls that started a sub-agent."""
    compactions: int
    tokens: int
    """Estimated size of the next request's context."""
    records: dict[str, int]
    problems: list[str]


def make_session_row(session: Session) -> SessionRow:
    """Count the parts of a session, and redact its facts. A message that a compaction repeats counts once."""
    histories = [*session.segments, *(branch.history for branch in session.branches)]
    messages = list(session.messages(branches=True))
    return SessionRow(
        file=session.file,
        agent=session.agent,
        id=redact(session.id),
        project=redact(session.project),
        title=redact(session.title),
        started=session.started.isoformat() if session.started else "",
        messages=len(messages),
        calls=sum(1 for message in messages for _ in message.calls),
        results=sum(1 for message in messages for _ in message.results),
        unpaired=sum(_unpaired(history) for history in histories),
        subagents=sum(_count_subagent_calls(history) for history in histories),
        compactions=session.compactions,
        tokens=count(session.history),
        records=session.records,
        problems=[redact(str(problem)) for problem in session.problems],
    )


def _unpaired(history: History) -> int:
    unanswered = sum(chain.result is None and not history[chain.call.message].carried for chain in history.chains)
    return unanswered + sum(not history[orphan.message].carried for orphan in history.orphans)


def _count_subagent_calls(history: History) -> int:
    return sum(not history[spawn.start].carried for spawn in history.spawns)


def session_table(sessions: Sequence[SessionRow], width: int) -> "Table":
    """Build a table of the non-empty columns, as many as fit the width.

    Sessions without messages are only counted in the caption, unless no session has messages.
    """
    from rich.table import Table
    from rich.text import Text

    rows = [row for row in sessions if row.messages] or sessions
    columns = {name: cells for name, cells in _columns(rows).items() if any(cells)}
    widths = {name: max(len(name), *map(len, cells)) + 2 for name, cells in columns.items()}
    for name in OPTIONAL_COLUMNS:
        if sum(widths.values()) + MIN_TITLE_WIDTH > width:
            columns.pop(name, None)
            widths.pop(name, None)
    table = Table(box=None, padding=(0, 1), header_style="bold")
    for name in columns:
        table.add_column(name, no_wrap=True, justify="left" if name in ("agent", "session", "started") else "right")
    table.add_column("title", no_wrap=True)
    room = max(width - sum(widths.values()) - 2, MIN_TITLE_WIDTH)
    for row, cells in zip(rows, zip(*columns.values(), strict=True), strict=True):
        table.add_row(*cells, Text(shorten(row.title, room)))
    empty = f", and {len(sessions) - len(rows):,} without messages" if len(rows) < len(sessions) else ""
    table.caption = f"{plural(len(rows), 'session')}{empty}; tokens: estimated size of the next request"
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
    """Return the first eight characters of a UUID, or another id, truncated if it is long."""
    return row.id[:8] if len(row.id) == 36 and row.id.count("-") == 4 else shorten(row.id or Path(row.file).stem, 24)
