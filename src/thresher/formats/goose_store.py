"""goose's database: a row a session, a row a message, and from version 15 of its tables on a row a bill.

Tables have grown from version to version, so only columns that are there are asked for. Messages come in the order
that goose reads them in. A bill names its session and its time, not its message: it is that of the last answer begun
before it. A sub-agent's session names its parent, and later ones the message that has the call.
"""

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from msgspec import structs

from thresher.errors import ReadError
from thresher.formats.database import decoded, opened, tables
from thresher.formats.goose_messages import Entry, Facts, session_of, usage_of
from thresher.formats.loose import at, fields, items, text
from thresher.formats.source import SourceFile
from thresher.formats.transcript import timestamp
from thresher.model import History, Message, Session, ToolCall
from thresher.model.tools import tool_use

Row = dict[str, Any]

OF_SESSION = (
    *("id", "name", "description", "session_type", "working_dir", "created_at", "updated_at", "model_config_json"),
    *("parent_session_id", "parent_delegation"),
)
OF_MESSAGE = ("id", "message_id", "role", "content_json", "created_timestamp", "metadata_json")
OF_BILL = (
    *("created_timestamp", "model", "input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens"),
    *("cost_source", "is_compaction"),
)
SUM = "carried_forward"
"""Where a bill comes from that is no bill: the sum of all that was used before there was a ledger."""


def is_store(source: SourceFile) -> bool:
    """Whether a database has goose's tables."""
    return source.has_tables(sessions="id working_dir", messages="session_id role content_json")


@contextmanager
def _opened(source: SourceFile) -> Iterator[sqlite3.Connection]:
    with opened(source.path) as connection:
        source.tables = tables(connection)  # as they are now: a look at them before may have failed
        if not is_store(source):
            raise ReadError(f"`{source.path}` has no tables of goose's sessions and their messages")
        yield connection


def listed(source: SourceFile) -> dict[str, str]:
    """Every session, with when it changed last, how many messages and bills it has and which is the latest."""
    with _opened(source) as connection:
        rows = _rows(source, connection, "sessions", ("id", "updated_at"))
        marks = {row["id"]: [str(row.get("updated_at"))] for row in rows}
        for table in ("messages", "usage_ledger"):
            if source.has_tables(**{table: "id session_id"}):
                asked = f"SELECT session_id, count(*), max(id) FROM {table} GROUP BY session_id"
                for id_, number, last in connection.execute(asked):
                    marks.get(id_, []).append(f"{number}-{last}")
    return {id_: " ".join(mark) for id_, mark in marks.items() if isinstance(id_, str)}


def read_database(source: SourceFile) -> list[Session]:
    """Every session that is wanted, each with the problems of its own rows."""
    with _opened(source) as connection:
        rows = [*_rows(source, connection, "sessions", OF_SESSION, order=("created_at", "id"))]
        started: dict[str, list[str]] = {}
        for row in rows:
            started.setdefault(_delegating(row), []).append(row["id"])
        return [
            _session(source.apart(), connection, row, started)
            for row in rows
            if isinstance(row["id"], str) and source.is_wanted(row["id"])
        ]


def _rows(
    source: SourceFile,
    connection: sqlite3.Connection,
    table: str,
    wanted: Sequence[str],
    *,
    of: str = "",
    order: Sequence[str] = ("id",),
) -> Iterator[Row]:
    """Rows with those of the columns that the table has; `of` one session, if named."""
    there = source.tables.get(table, frozenset())
    names = ", ".join(name for name in wanted if name in there)
    sorting = ", ".join(name for name in order if name in there) or "rowid"
    if not names or (of and "session_id" not in there):
        return
    where = "WHERE session_id = ?" if of else ""
    asked = f"SELECT rowid AS place, {names} FROM {table} {where} ORDER BY {sorting}"
    yield from map(dict, connection.execute(asked, (of,) if of else ()))


def _session(own: SourceFile, connection: sqlite3.Connection, row: Row, started: Mapping[str, list[str]]) -> Session:
    id_, call_id = row["id"], ""
    entries: list[Entry] = []
    bills: list[Row] = []
    try:
        for found in _rows(own, connection, "messages", OF_MESSAGE, of=id_, order=("created_timestamp", "id")):
            entries.append(_entry(own, found))
        bills = [bill for bill in _rows(own, connection, "usage_ledger", OF_BILL, of=id_) if _is_answer(bill)]
        call_id = _call(own, connection, row, started.get(_delegating(row), []))
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
        own.problem(f"the rows of session {id_} cannot be read ({error})", f"{len(entries)} messages were")
    facts = Facts(
        id_,
        title=text(row.get("name")) or text(row.get("description")),
        project=text(row.get("working_dir")),
        model=text(fields(decoded(row.get("model_config_json"))).get("model_name")),
        is_subagent=row.get("session_type") == "sub_agent",
        parent=text(row.get("parent_session_id")),
        call_id=call_id,
        started=row.get("created_at"),
        ended=row.get("updated_at"),
    )
    session = session_of(own, facts, entries)
    records = session.records | ({"usage_ledger": len(bills)} if bills else {})
    return structs.replace(session, segments=_billed(session.segments, bills), records=records)


def _entry(own: SourceFile, row: Row) -> Entry:
    content = decoded(row["content_json"])
    if not isinstance(content, list):
        own.problem("the content of a message is no list, or torn", "left out", row["place"])
    metadata, created = decoded(row.get("metadata_json")), row.get("created_timestamp")
    wire = {"id": row.get("message_id"), "role": row.get("role"), "created": created, "metadata": metadata}
    return Entry(row["place"], {**wire, "content": content})


def _is_answer(bill: Row) -> bool:
    return not bill.get("is_compaction") and bill.get("cost_source") != SUM


def _call(own: SourceFile, connection: sqlite3.Connection, row: Row, siblings: Sequence[str]) -> str:
    """The call of the parent's that started a sub-agent: the only one in the message that is named, or by order."""
    message = _delegating(row)
    if not message or not own.has_tables(messages="message_id"):
        return ""
    asked = "SELECT content_json FROM messages WHERE session_id = ? AND message_id = ?"
    found = connection.execute(asked, (text(row.get("parent_session_id")), message)).fetchone()
    wires = items(decoded(found["content_json"])) if found else []
    calls = [text(at(wire, "id")) for wire in wires if _starts_agent(wire)]
    return calls[siblings.index(row["id"])] if len(calls) == len(siblings) else ""


def _delegating(row: Mapping[str, Any]) -> str:
    return text(fields(decoded(row.get("parent_delegation"))).get("parent_delegate_message_id"))


def _starts_agent(wire: Any) -> bool:
    name = text(at(wire, "toolCall", "value", "name"))
    return bool(name) and tool_use(ToolCall("", name, "{}")).category == "subagent"


def _billed(segments: Sequence[History], bills: Sequence[Row]) -> tuple[History, ...]:
    """From the last on: each bill to the last answer that began before it and has none yet.

    A message may hold its own bill, which then is in the ledger once more: it is still that message's.
    """
    answers = [
        (number, place, message)
        for number, segment in enumerate(segments)
        for place, message in enumerate(segment)
        if message.role == "assistant" and message.author == "model" and not message.carried
    ]
    changed: dict[tuple[int, int], Message] = {}
    for bill in reversed(bills):
        usage, moment = usage_of(bill), timestamp(bill.get("created_timestamp"))
        while usage and moment and answers:
            number, place, message = answers.pop()
            if message.time and message.time <= moment:
                model = text(bill.get("model")) or message.model
                changed[number, place] = structs.replace(message, usage=message.usage or usage, model=model)
                break
    return tuple(
        History(tuple(changed.get((number, place), message) for place, message in enumerate(segment)))
        for number, segment in enumerate(segments)
    )
