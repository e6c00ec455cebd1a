"""Google's Agent Development Kit: sessions as JSON or in SQLite, and the conversations of its eval sets.

A session is a list of events. An eval case is a row of invocations: what was asked, which tools were used on the way,
what was answered; files from before that name a query, the tools that it should use, and a reference. What should be
called was not called: such a call has no result. One session each, with the number of its event or invocation for a
line.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from thresher.errors import ReadError
from thresher.formats.adk_events import NAME, Telling, told
from thresher.formats.loose import fields, items, text
from thresher.formats.source import SourceFile
from thresher.formats.transcript import Home, TranscriptFormat
from thresher.model import Session
from thresher.model.jsontext import load

if TYPE_CHECKING:
    from sqlite3 import Connection, Row

_DECODER: msgspec.json.Decoder[Any] = msgspec.json.Decoder()
JSON_COLUMNS = ("content", "usage_metadata", "input_transcription", "output_transcription")


class Found(NamedTuple):
    """A conversation in a file: its events, each with its number."""

    id: str
    events: list[tuple[int, Any]]
    title: str = ""


def read(source: SourceFile) -> list[Session]:
    """Every session or eval case of a file."""
    if source.is_database:
        return _read_store(source)
    if source.document is not None:
        found = _found(source.take_document())
    else:
        found = _found([row for _, _, row in source.rows(_DECODER)])
    if found is None:
        raise ReadError(f"`{source.path}` holds no session, events or eval set of the Agent Development Kit")
    stem = source.path.name.split(".")[0]
    names = [f"{stem}-{number}" if len(found) > 1 else stem for number in range(1, len(found) + 1)]
    sessions: list[Session] = []
    for one, name in zip(found, names, strict=True):
        own = source.apart()
        own.problems += source.problems if not sessions else []
        sessions.append(_told(own, one._replace(id=one.id or name)))
    return sessions


def _told(source: SourceFile, found: Found, project: str = "") -> Session:
    telling = Telling(source, [event for _, event in found.events])
    for number, event in found.events:
        try:
            telling.take(number, event)
        except RecursionError:
            source.problem("an event is nested too deep to follow", "skipped", number)
    return telling.session(found.id, found.title, project)


# --- documents -------------------------------------------------------------------------------------------------------


def _found(value: Any) -> list[Found] | None:
    """The conversations of a document; None where it is none of the kit's."""
    if isinstance(value, dict):
        for key, of in (("eval_cases", _case), ("eval_case_results", _outcome)):
            if isinstance(told(value, key), list):
                return [of(fields(one)) for one in told(value, key)]
        one = _one(value)
        return None if one is None else [one]
    rows = [row for row in items(value) if isinstance(row, dict | list)]
    if rows and all(_is_event(row) for row in rows):
        return [Found("", [*enumerate(items(value), 1)])]
    if rows and all(_is_query(row) for row in rows):
        return [_queries("", rows)]
    found = [_queries("", row) if isinstance(row, list) else _one(row) for row in rows]
    return [one for one in found if one] if any(found) else None


def _one(value: dict[str, Any]) -> Found | None:
    """A conversation that is an object of its own."""
    if isinstance(value.get("events"), list):
        return _session(value)
    if isinstance(value.get("conversation"), list):
        return _case(value)
    if any(_is_query(row) for row in items(value.get("data"))):
        return _queries(text(value.get("name")), value["data"])
    return _queries("", [value]) if _is_query(value) else None


def _session(value: Mapping[str, Any]) -> Found:
    return Found(text(value.get("id")), [*enumerate(items(value.get("events")), 1)], text(told(value, "app_name")))


def _outcome(value: Mapping[str, Any]) -> Found:
    """A case that was run: the session of the run."""
    found = _session(fields(told(value, "session_details")))
    id_ = found.id or text(told(value, "session_id")) or text(told(value, "eval_id"))
    return found._replace(id=id_, title=text(told(value, "eval_id")))


def _case(value: Mapping[str, Any]) -> Found:
    rows = enumerate(items(value.get("conversation")), 1)
    events = [(number, event) for number, row in rows for event in _invocation(row)]
    id_ = text(told(value, "eval_id"))
    return Found(id_, events, id_)


def _queries(name: str, rows: Any) -> Found:
    numbered = enumerate(items(rows), 1)
    return Found(name, [(number, event) for number, row in numbered for event in _invocation(_asked(row))], name)


def _asked(row: Any) -> Any:
    """A query as newer files write it."""
    if not _is_query(row):
        return row
    uses = [
        {"name": use.get("tool_name"), "args": use.get("tool_input")}
        for use in map(fields, items(row.get("expected_tool_use")))
    ]
    between = map(fields, items(row.get("expected_intermediate_agent_responses")))
    said = [[one.get("author"), [{"text": one.get("text")}]] for one in between]
    return {
        "user_content": {"parts": [{"text": row["query"]}]},
        "intermediate_data": {"tool_uses": uses, "intermediate_responses": said},
        "final_response": {"parts": [{"text": row["reference"]}]} if text(row.get("reference")) else None,
    }


def _invocation(row: Any) -> Iterator[Any]:
    """The events of an invocation: the prompt, what was done on the way, the answer."""
    if not isinstance(row, dict):
        yield row
        return
    shared = {"invocation_id": told(row, "invocation_id"), "timestamp": told(row, "creation_timestamp") or None}
    between, final = told(row, "intermediate_data"), told(row, "final_response")
    if told(row, "user_content"):
        yield {**shared, "author": "user", "content": told(row, "user_content")}
    for event in map(fields, items(told(between, "invocation_events"))):
        yield {**shared, **event}
    for kind, key in (("tool_uses", "function_call"), ("tool_responses", "function_response")):
        if parts := [{key: one} for one in items(told(between, kind))]:
            yield {**shared, "author": "agent", "content": {"parts": parts}}
    for said in items(told(between, "intermediate_responses")):
        name, parts = said if isinstance(said, list) and len(said) == 2 else ("agent", said)
        yield {**shared, "author": text(name) or "agent", "content": {"parts": parts}}
    if final:
        yield {**shared, "author": "agent", "content": final}


def _is_session(row: Any) -> bool:
    return isinstance(fields(row).get("events"), list) and isinstance(told(row, "app_name"), str)


def _is_event(row: Any) -> bool:
    return isinstance(told(row, "author"), str) and isinstance(told(row, "invocation_id"), str)


def _is_query(row: Any) -> bool:
    return isinstance(row, dict) and isinstance(row.get("query"), str)


# --- the store -------------------------------------------------------------------------------------------------------


def _read_store(source: SourceFile) -> list[Session]:
    """Every session that is wanted, each with the problems of its own rows."""
    if not _is_store(source):
        raise ReadError(f"`{source.path}` has not the tables of the Agent Development Kit")
    from thresher.formats.database import opened  # noqa: PLC0415 - it brings libraries of its own

    project = str(source.path.parent.parent) if source.path.parent.name == ".adk" else ""
    sessions: list[Session] = []
    with opened(source.path) as connection:
        for row in connection.execute("SELECT * FROM sessions ORDER BY create_time, id").fetchall():
            if not source.is_wanted(row["id"]):
                continue
            own = source.apart()
            events = [*enumerate(_stored(connection, row), 1)]
            sessions.append(_told(own, Found(str(row["id"]), events, str(row["app_name"])), project))
    return sessions


def _stored(connection: "Connection", session: "Row") -> Iterator[Any]:
    """The events of a session. Older builds kept their actions as Python objects, which nobody should load."""
    asked = "SELECT * FROM events WHERE app_name = ? AND user_id = ? AND session_id = ? ORDER BY timestamp, rowid"
    for row in connection.execute(asked, (session["app_name"], session["user_id"], session["id"])):
        there = dict(row)
        if "event_data" in there:
            event = _decoded(there["event_data"])
            facts = {key: there[key] for key in ("id", "invocation_id", "timestamp")}
            yield {**facts, **event} if isinstance(event, dict) else event
        else:
            names = ("id", "author", "invocation_id", "timestamp")
            yield {**{key: there.get(key) for key in names}, **{key: _decoded(there.get(key)) for key in JSON_COLUMNS}}


def _decoded(data: Any) -> Any:
    try:
        return load(data) if isinstance(data, str) else None
    except (ValueError, RecursionError):
        return None


def _is_store(source: SourceFile) -> bool:
    return source.has_tables(
        sessions="app_name user_id id create_time", events="app_name user_id session_id invocation_id timestamp"
    )


def listed(source: SourceFile) -> dict[str, str]:
    """Every session, with how many events it has and when it changed."""
    from thresher.formats.database import opened  # noqa: PLC0415 - it brings libraries of its own

    asked = "SELECT session_id, count(*) FROM events GROUP BY session_id"
    with opened(source.path) as connection:
        counts = {str(id_): number for id_, number in connection.execute(asked)}
        rows = connection.execute("SELECT * FROM sessions").fetchall()
    return {str(row["id"]): f"{dict(row).get('update_time')} {counts.get(str(row['id']), 0)}" for row in rows}


def sniff(source: SourceFile) -> int:
    """The facts around a session or an eval set, events by their invocations, queries with the tools they expect."""
    if source.is_database:
        return 3 if _is_store(source) else 0
    value = source.document if source.document is not None else list(source.head)
    if isinstance(value, dict):
        cases = told(value, "eval_cases") or told(value, "eval_case_results")
        if _is_session(value) or (isinstance(cases, list) and told(value, "eval_set_id")):
            return 3
        is_case = told(value, "eval_id") and isinstance(value.get("conversation"), list)
        return 2 if is_case or isinstance(cases, list) else _sniff_queries([value])
    rows = items(value)
    is_plain = all(_is_event(row) for row in rows) or all(_is_session(row) for row in rows)
    return 3 if rows and is_plain else _sniff_queries(rows)


def _sniff_queries(rows: list[Any]) -> int:
    flat = [row for one in rows for row in (one if isinstance(one, list) else [one])]
    queries = [row for one in map(fields, flat) for row in (items(one.get("data")) if "data" in one else [one])]
    expected = any("expected_tool_use" in fields(row) for row in queries)
    return 3 if queries and expected and all(_is_query(row) for row in queries) else 0


def homes(environment: Mapping[str, str], home: Path) -> list[Home]:  # noqa: ARG001 - a format's homes depend on both
    """None: the kit keeps a store in the folder of each agent, wherever that is."""
    return []


FORMAT = TranscriptFormat(
    NAME,
    "Google ADK",
    sniff,
    read,
    homes,
    wire="gemini",
    layouts="sessions and events as JSON; eval sets, their results and the older test files; the SQLite store",
    holds=("thinking", "usage", "times", "edits", "rewinds", "compactions"),
    seen="eval sets and test files of 2025; sessions and stores as the sources of 1.0 to 2 write them",
    listed=listed,
)
