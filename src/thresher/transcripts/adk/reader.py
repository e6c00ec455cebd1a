"""Google Agent Development Kit: sessions as JSON or in SQLite, and the conversations of eval sets.

A session is a list of events. An eval case is a list of invocations, each with a prompt, tool calls and an answer.
The older test files have a list of queries, each with the expected tool calls and a reference answer. Expected calls
never ran, so they have no result. Each session or eval case becomes one session. The source line of a message is the
number of its event or invocation.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from thresher.errors import ReadError
from thresher.model import Session
from thresher.transcripts.adk.events import NAME, AdkEventReader, either_case
from thresher.transcripts.base import TranscriptFormat
from thresher.transcripts.coerce import as_dict, as_list, as_text, list_at, text_at, value_at
from thresher.transcripts.source import SourceFile

if TYPE_CHECKING:
    from sqlite3 import Connection, Row

_DECODER: msgspec.json.Decoder[Any] = msgspec.json.Decoder()
JSON_COLUMNS = ("content", "usage_metadata", "input_transcription", "output_transcription")


class AdkConversation(NamedTuple):
    """A conversation in a file. Each event has the number of its event or invocation in the file."""

    id: str
    events: list[tuple[int, Any]]
    title: str = ""


def _read(source: SourceFile) -> list[Session]:
    """Read every session or eval case in a file."""
    if source.is_database:
        return _read_database(source)
    is_document = source.document is not None
    value = source.read_document() if is_document else [row for _, _, row in source.records(_DECODER)]
    conversations = _find_conversations(value)
    if conversations is None:
        raise ReadError(f"`{source.path}` has no session, events or eval set of the Agent Development Kit")
    stem = source.stem
    sessions: dict[str, Session] = {}
    for number, conversation in enumerate(conversations, 1):
        session_source = source.copy_for_session()
        session_source.problems += source.problems if not sessions else []
        id_ = conversation.id or (f"{stem}-{number}" if len(conversations) > 1 else stem)
        while id_ in sessions:  # an eval case can run several times
            id_ = f"{id_}-{number}"
        sessions[id_] = _build_session(session_source, conversation._replace(id=id_))
    return [*sessions.values()]


def _build_session(source: SourceFile, conversation: AdkConversation, project: str = "") -> Session:
    reader = AdkEventReader(source, [event for _, event in conversation.events])
    for number, event in conversation.events:
        try:
            reader.read_event(number, event)
        except RecursionError:
            source.report("an event is nested too deeply", "skipped", number)
    return reader.build_session(conversation.id, conversation.title, project)


# JSON documents


def _find_conversations(value: Any) -> list[AdkConversation] | None:
    """Return the conversations in a document, or None if the document is not in an ADK layout."""
    if isinstance(value, dict):
        for key, parse in (("eval_cases", _parse_eval_case), ("eval_case_results", _parse_eval_result)):
            if isinstance(either_case(value, key), list):
                return [parse(as_dict(case)) for case in either_case(value, key)]
        conversation = _find_conversation(value)
        return None if conversation is None else [conversation]
    rows = [row for row in as_list(value) if isinstance(row, dict | list)]
    if rows and all(map(_is_event, rows)):
        return [AdkConversation("", [*enumerate(as_list(value), 1)])]
    if rows and all(map(_is_query, rows)):
        return [_parse_queries("", rows)]
    found = [_parse_queries("", row) if isinstance(row, list) else _find_conversation(row) for row in rows]
    return [*filter(None, found)] or None


def _find_conversation(value: dict[str, Any]) -> AdkConversation | None:
    """Return the conversation in an object, or None if the object is not in an ADK layout."""
    if isinstance(value.get("events"), list):
        return _parse_session(value)
    if isinstance(value.get("conversation"), list):
        return _parse_eval_case(value)
    if any(_is_query(row) for row in list_at(value, "data")):
        return _parse_queries(text_at(value, "name"), value["data"])
    return _parse_queries("", [value]) if _is_query(value) else None


def _parse_session(value: Mapping[str, Any]) -> AdkConversation:
    events = [*enumerate(list_at(value, "events"), 1)]
    return AdkConversation(text_at(value, "id"), events, as_text(either_case(value, "app_name")))


def _parse_eval_result(value: Mapping[str, Any]) -> AdkConversation:
    """Return the session of an eval run."""
    session = _parse_session(as_dict(either_case(value, "session_details")))
    session_id, eval_id = (as_text(either_case(value, key)) for key in ("session_id", "eval_id"))
    return session._replace(id=session.id or session_id or eval_id, title=eval_id)


def _parse_eval_case(value: Mapping[str, Any]) -> AdkConversation:
    id_ = as_text(either_case(value, "eval_id"))
    return _parse_invocations(id_, list_at(value, "conversation"))


def _parse_queries(name: str, rows: list[Any]) -> AdkConversation:
    return _parse_invocations(name, map(_upgrade_query, rows))


def _parse_invocations(name: str, rows: Iterable[Any]) -> AdkConversation:
    events = [(number, event) for number, row in enumerate(rows, 1) for event in _expand_invocation(row)]
    return AdkConversation(name, events, name)


def _upgrade_query(row: Any) -> Any:
    """Convert a query of the older test files to an invocation."""
    if not _is_query(row):
        return row
    expected = map(as_dict, list_at(row, "expected_tool_use"))
    uses = [{"name": use.get("tool_name"), "args": use.get("tool_input")} for use in expected]
    responses = map(as_dict, list_at(row, "expected_intermediate_agent_responses"))
    texts = [[response.get("author"), [{"text": response.get("text")}]] for response in responses]
    return {
        "user_content": {"parts": [{"text": row["query"]}]},
        "intermediate_data": {"tool_uses": uses, "intermediate_responses": texts},
        "final_response": {"parts": [{"text": row["reference"]}]} if text_at(row, "reference") else None,
    }


def _expand_invocation(row: Any) -> Iterator[Any]:
    """Yield the events of an invocation: the prompt, intermediate events and the answer."""
    if not isinstance(row, dict):
        yield row
        return
    timestamp = either_case(row, "creation_timestamp") or None
    shared = {"invocation_id": either_case(row, "invocation_id"), "timestamp": timestamp}
    between, final = either_case(row, "intermediate_data"), either_case(row, "final_response")
    if either_case(row, "user_content"):
        yield {**shared, "author": "user", "content": either_case(row, "user_content")}
    for event in map(as_dict, as_list(either_case(between, "invocation_events"))):
        yield {**shared, **event}
    for kind, key in (("tool_uses", "function_call"), ("tool_responses", "function_response")):
        if parts := [{key: wire} for wire in as_list(either_case(between, kind))]:
            yield {**shared, "author": "agent", "content": {"parts": parts}}
    for response in as_list(either_case(between, "intermediate_responses")):
        name, parts = response if isinstance(response, list) and len(response) == 2 else ("agent", response)
        yield {**shared, "author": as_text(name) or "agent", "content": {"parts": parts}}
    if final:
        yield {**shared, "author": "agent", "content": final}


def _is_session(row: Any) -> bool:
    return isinstance(value_at(row, "events"), list) and isinstance(either_case(row, "app_name"), str)


def _is_event(row: Any) -> bool:
    return isinstance(either_case(row, "author"), str) and isinstance(either_case(row, "invocation_id"), str)


def _is_query(row: Any) -> bool:
    return isinstance(row, dict) and isinstance(row.get("query"), str)


# SQLite


def _read_database(source: SourceFile) -> list[Session]:
    """Read every session that `source.is_wanted` accepts. Each session has only the problems of its own events."""
    if not _is_adk_database(source):
        raise ReadError(f"`{source.path}` does not have the tables of the Agent Development Kit")
    from thresher.transcripts.sqlite_source import open_read_only  # noqa: PLC0415 - imports SQLite

    project = str(source.path.parent.parent) if source.path.parent.name == ".adk" else ""
    sessions: list[Session] = []
    with open_read_only(source.path) as connection:
        rowids = _event_rowids(connection)
        for id_, row in _sessions_by_id(connection).items():
            if source.is_wanted(id_):
                events = [_load_event(connection, rowid) for rowid in rowids.get(_session_key(row), ())]
                conversation = AdkConversation(id_, [*enumerate(events, 1)], str(row["app_name"]))
                sessions.append(_build_session(source.copy_for_session(), conversation, project))
    return sessions


def _session_key(row: "Row") -> tuple[Any, ...]:
    return row["app_name"], row["user_id"], row["id"]


def _sessions_by_id(connection: "Connection") -> "dict[str, Row]":
    """Return the sessions by id. An id that occurs several times gets the names of the app and the user as a prefix."""
    rows = connection.execute("SELECT * FROM sessions ORDER BY create_time, id").fetchall()
    shared = Counter(str(row["id"]) for row in rows)
    names = ("/".join(map(str, _session_key(row))) for row in rows)
    return {name if shared[str(row["id"])] > 1 else str(row["id"]): row for name, row in zip(names, rows, strict=True)}


def _event_rowids(connection: "Connection") -> dict[tuple[Any, ...], list[int]]:
    """Return the row ids of each session's events, in order. Since the table has no index, scan it only once."""
    rowids: dict[tuple[Any, ...], list[int]] = {}
    query = "SELECT app_name, user_id, session_id, rowid FROM events ORDER BY timestamp, rowid"
    for *key, rowid in connection.execute(query):
        rowids.setdefault(tuple(key), []).append(rowid)
    return rowids


def _load_event(connection: "Connection", rowid: int) -> Any:
    """Load one event. Ignore the pickled actions of older ADK versions, since unpickling could run code."""
    from thresher.transcripts.sqlite_source import decode_json_column  # noqa: PLC0415 - imports SQLite

    row = dict(connection.execute("SELECT * FROM events WHERE rowid = ?", (rowid,)).fetchone())
    if "event_data" in row:
        event = decode_json_column(row["event_data"])
        facts = {key: row.get(key) for key in ("id", "invocation_id", "timestamp")}
        return {**facts, **event} if isinstance(event, dict) else event
    facts = {key: row.get(key) for key in ("id", "author", "invocation_id", "timestamp")}
    return facts | {key: decode_json_column(row.get(key)) for key in JSON_COLUMNS}


def _is_adk_database(source: SourceFile) -> bool:
    events = "app_name user_id session_id invocation_id timestamp"
    return source.has_tables(sessions="app_name user_id id create_time", events=events)


def _list_sessions(source: SourceFile) -> dict[str, str]:
    """Map each session id to a version mark: the time of the last change, and the number of events."""
    from thresher.transcripts.sqlite_source import open_read_only  # noqa: PLC0415 - imports SQLite

    query = "SELECT app_name, user_id, session_id, count(*) FROM events GROUP BY app_name, user_id, session_id"
    with open_read_only(source.path) as connection:
        counts = {(app, user, id_): number for app, user, id_, number in connection.execute(query)}
        return {
            name: f"{dict(row).get('update_time')} {counts.get(_session_key(row), 0)}"
            for name, row in _sessions_by_id(connection).items()
        }


def _sniff(source: SourceFile) -> int:
    """Match the fields of a session or an eval set, events with invocations, or queries with expected tool calls."""
    if source.is_database:
        return 3 if _is_adk_database(source) else 0
    value = source.document if source.document is not None else list(source.head)
    if isinstance(value, dict):
        cases = either_case(value, "eval_cases") or either_case(value, "eval_case_results")
        if _is_session(value) or (isinstance(cases, list) and either_case(value, "eval_set_id")):
            return 3
        is_case = either_case(value, "eval_id") and isinstance(value.get("conversation"), list)
        return 2 if is_case or isinstance(cases, list) else _sniff_queries([value])
    rows = as_list(value)
    is_plain = all(map(_is_event, rows)) or all(map(_is_session, rows))
    return 3 if rows and is_plain else _sniff_queries(rows)


def _sniff_queries(rows: list[Any]) -> int:
    flat = [row for item in rows for row in (item if isinstance(item, list) else [item])]
    queries = [row for item in map(as_dict, flat) for row in (list_at(item, "data") if "data" in item else [item])]
    expected = any("expected_tool_use" in as_dict(row) for row in queries)
    return 3 if queries and expected and all(_is_query(row) for row in queries) else 0


FORMAT = TranscriptFormat(
    NAME,
    "Google ADK",
    _sniff,
    _read,
    wire="gemini",
    layouts="sessions and events as JSON; eval sets, their results and the older test files; the SQLite store",
    holds=("thinking", "usage", "times", "edits", "rewinds", "compactions"),
    seen="eval sets and test files of 2025; sessions and stores as the sources of 1.0 to 2 write them",
    listed=_list_sessions,
)
