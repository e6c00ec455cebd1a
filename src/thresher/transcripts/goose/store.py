"""goose's database: a row a session, a row a message, and from version 15 of its tables on a row a bill.

Tables have grown from version to version, so only columns that are there are asked for. Messages come in the order
that goose reads them in. A bill names its session and its time, not its message: it is that of the last answer begun
before it. A sub-agent's session names its parent, and later ones the message that has the call.
"""

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from msgspec.structs import replace

from thresher.errors import ReadError
from thresher.model import History, Message, Session, ToolCall
from thresher.model.tool_calls import describe_tool_call
from thresher.transcripts.base import parse_time
from thresher.transcripts.coerce import as_list, first_text, text_at
from thresher.transcripts.goose.messages import GooseFacts, GooseMessage, build_goose_session, parse_goose_usage
from thresher.transcripts.source import SourceFile
from thresher.transcripts.sqlite_source import decode_json_column, open_read_only, read_table_columns

GooseRow = dict[str, Any]

SESSION_COLUMNS = (
    *("id", "name", "description", "session_type", "working_dir", "created_at", "updated_at", "model_config_json"),
    *("parent_session_id", "parent_delegation"),
)
MESSAGE_COLUMNS = ("id", "message_id", "role", "content_json", "created_timestamp", "metadata_json")
USAGE_COLUMNS = (
    *("created_timestamp", "model", "input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens"),
    *("cost_source", "is_compaction"),
)
CARRIED_FORWARD = "carried_forward"
"""Where a bill comes from that is no bill: the sum of all that was used before there was a ledger."""


def is_goose_database(source: SourceFile) -> bool:
    """Whether a database has goose's tables."""
    return source.has_tables(sessions="id working_dir", messages="session_id role content_json")


@contextmanager
def _open_database(source: SourceFile) -> Iterator[sqlite3.Connection]:
    with open_read_only(source.path) as connection:
        source.tables = read_table_columns(connection)  # as they are now: a look at them before may have failed
        if not is_goose_database(source):
            raise ReadError(f"`{source.path}` has no tables of goose's sessions and their messages")
        yield connection


def list_goose_sessions(source: SourceFile) -> dict[str, str]:
    """Every session, with when it changed last, how many messages and bills it has and which is the latest."""
    with _open_database(source) as connection:
        rows = _select_rows(source, connection, "sessions", ("id", "updated_at"))
        marks = {row["id"]: [str(row.get("updated_at"))] for row in rows}
        for table in ("messages", "usage_ledger"):
            if source.has_tables(**{table: "id session_id"}):
                asked = f"SELECT session_id, count(*), max(id) FROM {table} GROUP BY session_id"
                for id_, number, last in connection.execute(asked):
                    marks.get(id_, []).append(f"{number}-{last}")
    return {id_: " ".join(mark) for id_, mark in marks.items() if isinstance(id_, str)}


def read_goose_database(source: SourceFile) -> list[Session]:
    """Every session that is wanted, each with the problems of its own rows."""
    with _open_database(source) as connection:
        rows = [*_select_rows(source, connection, "sessions", SESSION_COLUMNS, order=("created_at", "id"))]
        started: dict[str, list[str]] = {}
        for row in rows:
            started.setdefault(_delegating_message_id(row), []).append(row["id"])
        return [
            _build_session(source.copy_for_session(), connection, row, started)
            for row in rows
            if isinstance(row["id"], str) and source.is_wanted(row["id"])
        ]


def _select_rows(
    source: SourceFile,
    connection: sqlite3.Connection,
    table: str,
    wanted: Sequence[str],
    *,
    of: str = "",
    order: Sequence[str] = ("id",),
) -> Iterator[GooseRow]:
    """Rows with those of the columns that the table has; `of` one session, if named."""
    there = source.tables.get(table, frozenset())
    names = ", ".join(name for name in wanted if name in there)
    sorting = ", ".join(name for name in order if name in there) or "rowid"
    if not names or (of and "session_id" not in there):
        return
    where = "WHERE session_id = ?" if of else ""
    asked = f"SELECT rowid AS place, {names} FROM {table} {where} ORDER BY {sorting}"
    yield from map(dict, connection.execute(asked, (of,) if of else ()))


def _build_session(
    own: SourceFile, connection: sqlite3.Connection, row: GooseRow, started: Mapping[str, list[str]]
) -> Session:
    id_, call_id = row["id"], ""
    entries: list[GooseMessage] = []
    bills: list[GooseRow] = []
    try:
        order = ("created_timestamp", "id")
        for found in _select_rows(own, connection, "messages", MESSAGE_COLUMNS, of=id_, order=order):
            entries.append(_build_message(own, found))
        bills = [*filter(_is_answer_usage, _select_rows(own, connection, "usage_ledger", USAGE_COLUMNS, of=id_))]
        call_id = _find_delegating_call(own, connection, row, started.get(_delegating_message_id(row), []))
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
        own.report(f"the rows of session {id_} cannot be read ({error})", f"{len(entries)} messages were")
    facts = GooseFacts(
        id_,
        title=first_text(row, "name", "description"),
        project=text_at(row, "working_dir"),
        model=text_at(decode_json_column(row.get("model_config_json")), "model_name"),
        is_subagent=row.get("session_type") == "sub_agent",
        parent=text_at(row, "parent_session_id"),
        call_id=call_id,
        started=row.get("created_at"),
        ended=row.get("updated_at"),
    )
    session = build_goose_session(own, facts, entries)
    records = session.records | ({"usage_ledger": len(bills)} if bills else {})
    return replace(session, segments=_assign_usage(session.segments, bills), records=records)


def _build_message(own: SourceFile, row: GooseRow) -> GooseMessage:
    content = decode_json_column(row["content_json"])
    if not isinstance(content, list):
        own.report("the content of a message is no list, or torn", "left out", row["place"])
    metadata, created = decode_json_column(row.get("metadata_json")), row.get("created_timestamp")
    wire = {"id": row.get("message_id"), "role": row.get("role"), "created": created, "metadata": metadata}
    return GooseMessage(row["place"], {**wire, "content": content})


def _is_answer_usage(bill: GooseRow) -> bool:
    return not bill.get("is_compaction") and bill.get("cost_source") != CARRIED_FORWARD


def _find_delegating_call(
    own: SourceFile, connection: sqlite3.Connection, row: GooseRow, siblings: Sequence[str]
) -> str:
    """The call of the parent's that started a sub-agent: the only one in the message that is named, or by order."""
    message = _delegating_message_id(row)
    if not message or not own.has_tables(messages="message_id"):
        return ""
    asked = "SELECT content_json FROM messages WHERE session_id = ? AND message_id = ?"
    found = connection.execute(asked, (text_at(row, "parent_session_id"), message)).fetchone()
    wires = as_list(decode_json_column(found["content_json"])) if found else []
    calls = [text_at(wire, "id") for wire in wires if _starts_agent(wire)]
    return calls[siblings.index(row["id"])] if len(calls) == len(siblings) else ""


def _delegating_message_id(row: Mapping[str, Any]) -> str:
    return text_at(decode_json_column(row.get("parent_delegation")), "parent_delegate_message_id")


def _starts_agent(wire: Any) -> bool:
    name = text_at(wire, "toolCall", "value", "name")
    return bool(name) and describe_tool_call(ToolCall("", name, "{}")).category == "subagent"


def _assign_usage(segments: Sequence[History], bills: Sequence[GooseRow]) -> tuple[History, ...]:
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
        usage, moment = parse_goose_usage(bill), parse_time(bill.get("created_timestamp"))
        while usage and moment and answers:
            number, place, message = answers.pop()
            if message.time and message.time <= moment:
                model = text_at(bill, "model") or message.model
                changed[number, place] = replace(message, usage=message.usage or usage, model=model)
                break
    return tuple(
        History(tuple(changed.get((number, place), message) for place, message in enumerate(segment)))
        for number, segment in enumerate(segments)
    )
