"""Google's Agent Development Kit: sessions as JSON or in SQLite, and the conversations of its eval sets.

A session is a list of events. An eval case is a row of invocations: what was asked, which tools were used on the way,
what was answered; files from before that name a query, the tools that it should use, and a reference. What should be
called was not called: such a call has no result. One session each, with the number of its event or invocation for a
line.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
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
    """A conversation in a file: its events, each with its number."""

    id: str
    events: list[tuple[int, Any]]
    title: str = ""


def _read(source: SourceFile) -> list[Session]:
    """Every session or eval case of a file."""
    if source.is_database:
        return _read_database(source)
    if source.document is not None:
        found = _find_conversations(source.read_document())
    else:
        found = _find_conversations([row for _, _, row in source.records(_DECODER)])
    if found is None:
        raise ReadError(f"`{source.path}` holds no session, events or eval set of the Agent Development Kit")
    stem = source.stem
    sessions: dict[str, Session] = {}
    for number, one in enumerate(found, 1):
        own = source.copy_for_session()
        own.problems += source.problems if not sessions else []
        id_ = one.id or (f"{stem}-{number}" if len(found) > 1 else stem)
        while id_ in sessions:  # a case that was run again
            id_ = f"{id_}-{number}"
        sessions[id_] = _build_session(own, one._replace(id=id_))
    return [*sessions.values()]


def _build_session(source: SourceFile, found: AdkConversation, project: str = "") -> Session:
    telling = AdkEventReader(source, [event for _, event in found.events])
    for number, event in found.events:
        try:
            telling.read_event(number, event)
        except RecursionError:
            source.report("an event is nested too deep to follow", "skipped", number)
    return telling.build_session(found.id, found.title, project)


# --- documents -------------------------------------------------------------------------------------------------------


def _find_conversations(value: Any) -> list[AdkConversation] | None:
    """The conversations of a document; None where it is none of the kit's."""
    if isinstance(value, dict):
        for key, of in (("eval_cases", _parse_eval_case), ("eval_case_results", _parse_eval_result)):
            if isinstance(either_case(value, key), list):
                return [of(as_dict(one)) for one in either_case(value, key)]
        one = _find_conversation(value)
        return None if one is None else [one]
    rows = [row for row in as_list(value) if isinstance(row, dict | list)]
    if rows and all(_is_event(row) for row in rows):
        return [AdkConversation("", [*enumerate(as_list(value), 1)])]
    if rows and all(_is_query(row) for row in rows):
        return [_parse_queries("", rows)]
    found = [_parse_queries("", row) if isinstance(row, list) else _find_conversation(row) for row in rows]
    return [one for one in found if one] if any(found) else None


def _find_conversation(value: dict[str, Any]) -> AdkConversation | None:
    """A conversation that is an object of its own."""
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
    """A case that was run: the session of the run."""
    found = _parse_session(as_dict(either_case(value, "session_details")))
    id_ = found.id or as_text(either_case(value, "session_id")) or as_text(either_case(value, "eval_id"))
    return found._replace(id=id_, title=as_text(either_case(value, "eval_id")))


def _parse_eval_case(value: Mapping[str, Any]) -> AdkConversation:
    rows = enumerate(list_at(value, "conversation"), 1)
    events = [(number, event) for number, row in rows for event in _expand_invocation(row)]
    id_ = as_text(either_case(value, "eval_id"))
    return AdkConversation(id_, events, id_)


def _parse_queries(name: str, rows: Any) -> AdkConversation:
    numbered = enumerate(as_list(rows), 1)
    events = [(number, event) for number, row in numbered for event in _expand_invocation(_upgrade_query(row))]
    return AdkConversation(name, events, name)


def _upgrade_query(row: Any) -> Any:
    """A query as newer files write it."""
    if not _is_query(row):
        return row
    expected = map(as_dict, list_at(row, "expected_tool_use"))
    uses = [{"name": use.get("tool_name"), "args": use.get("tool_input")} for use in expected]
    between = map(as_dict, list_at(row, "expected_intermediate_agent_responses"))
    said = [[one.get("author"), [{"text": one.get("text")}]] for one in between]
    return {
        "user_content": {"parts": [{"text": row["query"]}]},
        "intermediate_data": {"tool_uses": uses, "intermediate_responses": said},
        "final_response": {"parts": [{"text": row["reference"]}]} if text_at(row, "reference") else None,
    }


def _expand_invocation(row: Any) -> Iterator[Any]:
    """The events of an invocation: the prompt, what was done on the way, the answer."""
    if not isinstance(row, dict):
        yield row
        return
    shared = {
        "invocation_id": either_case(row, "invocation_id"),
        "timestamp": either_case(row, "creation_timestamp") or None,
    }
    between, final = either_case(row, "intermediate_data"), either_case(row, "final_response")
    if either_case(row, "user_content"):
        yield {**shared, "author": "user", "content": either_case(row, "user_content")}
    for event in map(as_dict, as_list(either_case(between, "invocation_events"))):
        yield {**shared, **event}
    for kind, key in (("tool_uses", "function_call"), ("tool_responses", "function_response")):
        if parts := [{key: one} for one in as_list(either_case(between, kind))]:
            yield {**shared, "author": "agent", "content": {"parts": parts}}
    for said in as_list(either_case(between, "intermediate_responses")):
        name, parts = said if isinstance(said, list) and len(said) == 2 else ("agent", said)
        yield {**shared, "author": as_text(name) or "agent", "content": {"parts": parts}}
    if final:
        yield {**shared, "author": "agent", "content": final}


def _is_session(row: Any) -> bool:
    return isinstance(value_at(row, "events"), list) and isinstance(either_case(row, "app_name"), str)


def _is_event(row: Any) -> bool:
    return isinstance(either_case(row, "author"), str) and isinstance(either_case(row, "invocation_id"), str)


def _is_query(row: Any) -> bool:
    return isinstance(row, dict) and isinstance(row.get("query"), str)


# --- the store -------------------------------------------------------------------------------------------------------


def _read_database(source: SourceFile) -> list[Session]:
    """Every session that is wanted, each with the problems of its own rows."""
    if not _is_adk_database(source):
        raise ReadError(f"`{source.path}` has not the tables of the Agent Development Kit")
    from thresher.transcripts.sqlite_source import open_read_only  # noqa: PLC0415 - it brings libraries of its own

    project = str(source.path.parent.parent) if source.path.parent.name == ".adk" else ""
    sessions: list[Session] = []
    with open_read_only(source.path) as connection:
        places = _event_rowids(connection)
        for id_, row in _sessions_by_id(connection).items():
            if source.is_wanted(id_):
                events = [_load_event(connection, place) for place in places.get(_session_key(row), ())]
                found = AdkConversation(id_, [*enumerate(events, 1)], str(row["app_name"]))
                sessions.append(_build_session(source.copy_for_session(), found, project))
    return sessions


def _session_key(row: "Row") -> tuple[Any, ...]:
    return row["app_name"], row["user_id"], row["id"]


def _sessions_by_id(connection: "Connection") -> "dict[str, Row]":
    """Every session by its id; where several users have one of the same, with the app's and the user's name."""
    rows = connection.execute("SELECT * FROM sessions ORDER BY create_time, id").fetchall()
    shared = Counter(str(row["id"]) for row in rows)
    names = ("/".join(map(str, _session_key(row))) for row in rows)
    return {name if shared[str(row["id"])] > 1 else str(row["id"]): row for name, row in zip(names, rows, strict=True)}


def _event_rowids(connection: "Connection") -> dict[tuple[Any, ...], list[int]]:
    """Where the events of each session are, in order: without an index, each search for them would read them all."""
    places: dict[tuple[Any, ...], list[int]] = {}
    asked = "SELECT app_name, user_id, session_id, rowid FROM events ORDER BY timestamp, rowid"
    for *key, place in connection.execute(asked):
        places.setdefault(tuple(key), []).append(place)
    return places


def _load_event(connection: "Connection", place: int) -> Any:
    """One event. Older builds kept its actions as Python objects, which nobody should load."""
    from thresher.transcripts.sqlite_source import decode_json_column  # noqa: PLC0415 - it brings libraries of its own

    row = dict(connection.execute("SELECT * FROM events WHERE rowid = ?", (place,)).fetchone())
    if "event_data" in row:
        event = decode_json_column(row["event_data"])
        facts = {key: row.get(key) for key in ("id", "invocation_id", "timestamp")}
        return {**facts, **event} if isinstance(event, dict) else event
    facts = {key: row.get(key) for key in ("id", "author", "invocation_id", "timestamp")}
    return facts | {key: decode_json_column(row.get(key)) for key in JSON_COLUMNS}


def _is_adk_database(source: SourceFile) -> bool:
    return source.has_tables(
        sessions="app_name user_id id create_time", events="app_name user_id session_id invocation_id timestamp"
    )


def _list_sessions(source: SourceFile) -> dict[str, str]:
    """Every session, with how many events it has and when it changed."""
    from thresher.transcripts.sqlite_source import open_read_only  # noqa: PLC0415 - it brings libraries of its own

    asked = "SELECT app_name, user_id, session_id, count(*) FROM events GROUP BY app_name, user_id, session_id"
    with open_read_only(source.path) as connection:
        counts = {(app, user, id_): number for app, user, id_, number in connection.execute(asked)}
        return {
            name: f"{dict(row).get('update_time')} {counts.get(_session_key(row), 0)}"
            for name, row in _sessions_by_id(connection).items()
        }


def _sniff(source: SourceFile) -> int:
    """The facts around a session or an eval set, events by their invocations, queries with the tools they expect."""
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
    is_plain = all(_is_event(row) for row in rows) or all(_is_session(row) for row in rows)
    return 3 if rows and is_plain else _sniff_queries(rows)


def _sniff_queries(rows: list[Any]) -> int:
    flat = [row for one in rows for row in (one if isinstance(one, list) else [one])]
    queries = [row for one in map(as_dict, flat) for row in (list_at(one, "data") if "data" in one else [one])]
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
