"""goose's database: one row per session, message and, from schema version 15 on, model call (usage).

Newer versions have more columns, so a query asks only for columns that exist. Messages are sorted as goose sorts them:
by time, then by id. A usage row names a session and a time but no message: it belongs to the last answer that began
before that time. A sub-agent's session refers to its parent and, in newer versions, to the message with the call.
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
from thresher.transcripts.coerce import as_list, text_at
from thresher.transcripts.goose.messages import GooseMessage, build_goose_session, parse_goose_facts, parse_goose_usage
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
"""`cost_source` of a row with the total usage of a session that is older than the usage table."""


def is_goose_database(source: SourceFile) -> bool:
    """Return True if a database has goose's tables."""
    return source.has_tables(sessions="id working_dir", messages="session_id role content_json")


@contextmanager
def _open_database(source: SourceFile) -> Iterator[sqlite3.Connection]:
    with open_read_only(source.path) as connection:
        source.tables = read_table_columns(connection)  # again: an earlier attempt may have failed
        if not is_goose_database(source):
            raise ReadError(f"`{source.path}` has no goose tables for sessions and messages")
        yield connection


def list_goose_sessions(source: SourceFile) -> dict[str, str]:
    """Map each session id to a version mark: the time of the last change, with counts and last ids of the rows."""
    with _open_database(source) as connection:
        rows = _select_rows(source, connection, "sessions", ("id", "updated_at"))
        marks = {row["id"]: [str(row.get("updated_at"))] for row in rows}
        for table in ("messages", "usage_ledger"):
            if source.has_tables(**{table: "id session_id"}):
                query = f"SELECT session_id, count(*), max(id) FROM {table} GROUP BY session_id"
                for id_, number, last in connection.execute(query):
                    marks.get(id_, []).append(f"{number}-{last}")
    return {id_: " ".join(mark) for id_, mark in marks.items() if isinstance(id_, str)}


def read_goose_database(source: SourceFile) -> list[Session]:
    """Read every wanted session. Each session contains the problems of its own rows."""
    with _open_database(source) as connection:
        rows = [*_select_rows(source, connection, "sessions", SESSION_COLUMNS, order=("created_at", "id"))]
        delegated: dict[str, list[str]] = {}
        for row in rows:
            delegated.setdefault(_delegating_message_id(row), []).append(row["id"])
        wanted = (row for row in rows if isinstance(row["id"], str) and source.is_wanted(row["id"]))
        return [_build_session(source.copy_for_session(), connection, row, delegated) for row in wanted]


def _select_rows(
    source: SourceFile,
    connection: sqlite3.Connection,
    table: str,
    columns: Sequence[str],
    *,
    session_id: str = "",
    order: Sequence[str] = ("id",),
) -> Iterator[GooseRow]:
    """Yield the rows of a table with the `columns` that exist. With `session_id`, yield only this session's rows."""
    known = source.tables.get(table, frozenset())
    names = ", ".join(name for name in columns if name in known)
    sorting = ", ".join(name for name in order if name in known) or "rowid"
    if not names or (session_id and "session_id" not in known):
        return
    where = "WHERE session_id = ?" if session_id else ""
    query = f"SELECT rowid AS row_number, {names} FROM {table} {where} ORDER BY {sorting}"
    yield from map(dict, connection.execute(query, (session_id,) if session_id else ()))


def _build_session(
    source: SourceFile, connection: sqlite3.Connection, row: GooseRow, delegated: Mapping[str, list[str]]
) -> Session:
    id_, call_id = row["id"], ""
    entries: list[GooseMessage] = []
    usages: list[GooseRow] = []
    try:
        order = ("created_timestamp", "id")
        for message in _select_rows(source, connection, "messages", MESSAGE_COLUMNS, session_id=id_, order=order):
            entries.append(_build_message(source, message))
        usage_rows = _select_rows(source, connection, "usage_ledger", USAGE_COLUMNS, session_id=id_)
        usages = [*filter(_is_answer_usage, usage_rows)]
        call_id = _find_delegating_call(source, connection, row, delegated.get(_delegating_message_id(row), []))
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
        source.report(f"the rows of session {id_} cannot be read ({error})", f"{len(entries)} messages are read")
    model_config = decode_json_column(row.get("model_config_json"))
    facts = parse_goose_facts({**row, "model_config": model_config}, id_)._replace(call_id=call_id)
    session = build_goose_session(source, facts, entries)
    records = session.records | ({"usage_ledger": len(usages)} if usages else {})
    return replace(session, segments=_assign_usage(session.segments, usages), records=records)


def _build_message(source: SourceFile, row: GooseRow) -> GooseMessage:
    content = decode_json_column(row["content_json"])
    if not isinstance(content, list):
        source.report("a message's content is not a list, or is damaged", "skipped", row["row_number"])
    metadata, created = decode_json_column(row.get("metadata_json")), row.get("created_timestamp")
    wire = {"id": row.get("message_id"), "role": row.get("role"), "created": created, "metadata": metadata}
    return GooseMessage(row["row_number"], {**wire, "content": content})


def _is_answer_usage(row: GooseRow) -> bool:
    return not row.get("is_compaction") and row.get("cost_source") != CARRIED_FORWARD


def _find_delegating_call(
    source: SourceFile, connection: sqlite3.Connection, row: GooseRow, siblings: Sequence[str]
) -> str:
    """Return the id of the parent's call that started a sub-agent, or an empty string.

    `siblings` are the ids of the sub-agents that the same message started, in the order of the message's calls.
    """
    message = _delegating_message_id(row)
    if not message or not source.has_tables(messages="message_id"):
        return ""
    query = "SELECT content_json FROM messages WHERE session_id = ? AND message_id = ?"
    parent_row = connection.execute(query, (text_at(row, "parent_session_id"), message)).fetchone()
    wires = as_list(decode_json_column(parent_row["content_json"])) if parent_row else []
    calls = [text_at(wire, "id") for wire in wires if _starts_agent(wire)]
    return calls[siblings.index(row["id"])] if len(calls) == len(siblings) else ""


def _delegating_message_id(row: Mapping[str, Any]) -> str:
    return text_at(decode_json_column(row.get("parent_delegation")), "parent_delegate_message_id")


def _starts_agent(wire: Any) -> bool:
    name = text_at(wire, "toolCall", "value", "name")
    return bool(name) and describe_tool_call(ToolCall("", name, "{}")).category == "subagent"


def _assign_usage(segments: Sequence[History], usages: Sequence[GooseRow]) -> tuple[History, ...]:
    """Assign each usage row to the last unassigned answer before the row's time, from the last row to the first.

    An answer that already has usage keeps it, but still uses up its usage row.
    """
    answers = [
        (number, index, message)
        for number, segment in enumerate(segments)
        for index, message in enumerate(segment)
        if message.role == "assistant" and message.author == "model" and not message.carried
    ]
    changed: dict[tuple[int, int], Message] = {}
    for row in reversed(usages):
        usage, time = parse_goose_usage(row), parse_time(row.get("created_timestamp"))
        while usage and time and answers:
            number, index, message = answers.pop()
            if message.time and message.time <= time:
                model = text_at(row, "model") or message.model
                changed[number, index] = replace(message, usage=message.usage or usage, model=model)
                break
    return tuple(
        History(tuple(changed.get((number, index), message) for index, message in enumerate(segment)))
        for number, segment in enumerate(segments)
    )
