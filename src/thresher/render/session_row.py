"""Facts and counts of sessions, and a table with one row per session."""

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from thresher.memory.ingest.redaction import redact
from thresher.model import History, Session
from thresher.render.session_names import abbreviate_home, shorten_session_ids
from thresher.render.text import format_count, format_local_time, plural, shorten, shorten_path
from thresher.tokens import count

if TYPE_CHECKING:
    from rich.table import Table


COLUMN_GAP = 2
MAX_ID_WIDTH = 24
NARROW_ID_WIDTH = 16
NARROW_TABLE = 100
"""Width of a table in characters below which long ids are truncated more."""
MIN_PROJECT_WIDTH = 16
MIN_TITLE_WIDTH = 30
OPTIONAL_COLUMNS = ("problems", "messages", "agent")
"""Columns to remove on a narrow terminal, in this order."""


class SessionRow(Struct, frozen=True):
    """Facts and counts of one session. The field names are the JSON keys."""

    file: str
    agent: str
    id: str
    project: str
    title: str
    started: str
    ended: str
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
        ended=session.ended.isoformat() if session.ended else "",
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


class SessionEntry(NamedTuple):
    """One row of the table of sessions."""

    id: str
    agent: str
    project: str
    title: str
    time: datetime | None
    """Time of the last message."""
    messages: int
    problems: int = 0


def session_table(sessions: Sequence[SessionEntry], width: int, *, more: int = 0) -> "Table":
    """Build a table of the sessions. Id, project, time and title are always visible; other columns if there is room.

    Sessions without messages are only counted in the caption, unless no session has messages. `more` is the number of
    sessions that match and are not in the table.
    """
    from rich.table import Table
    from rich.text import Text

    rows = [row for row in sessions if row.messages] or sessions
    columns = {name: cells for name, cells in _columns(rows, width).items() if any(cells)}
    widths = {name: max(len(name), *map(len, cells)) + COLUMN_GAP for name, cells in columns.items()}
    for name in OPTIONAL_COLUMNS:
        if sum(widths.values()) + MIN_TITLE_WIDTH > width:
            columns.pop(name, None)
            widths.pop(name, None)
    table = Table(box=None, padding=(0, COLUMN_GAP, 0, 0), pad_edge=False, header_style="bold")
    for name in columns:
        table.add_column(name, no_wrap=True, justify="right" if name in ("messages", "problems") else "left")
    table.add_column("title", no_wrap=True)
    room = max(width - sum(widths.values()), MIN_TITLE_WIDTH // 2)
    for row, cells in zip(rows, zip(*columns.values(), strict=True), strict=True):
        table.add_row(*cells, Text(shorten(row.title, room)))
    count = f"{len(rows):,} of {plural(len(rows) + more, 'session')}" if more else plural(len(rows), "session")
    empty = f", and {len(sessions) - len(rows):,} without messages" if len(rows) < len(sessions) else ""
    table.caption = f"{count}{empty}"
    table.caption_justify = "left"
    return table


def _columns(rows: Sequence[SessionEntry], width: int) -> dict[str, list[str]]:
    project_width = max(width // 5, MIN_PROJECT_WIDTH)
    id_width = NARROW_ID_WIDTH if width < NARROW_TABLE else MAX_ID_WIDTH
    ids = shorten_session_ids([row.id or "(no id)" for row in rows])
    return {
        "session": [shorten(id, id_width) for id in ids],
        "agent": [row.agent for row in rows],
        "last message": [format_local_time(row.time) if row.time else "" for row in rows],
        "project": [shorten_path(abbreviate_home(row.project), project_width) for row in rows],
        "messages": [format_count(row.messages) for row in rows],
        "problems": [format_count(row.problems) if row.problems else "" for row in rows],
    }
