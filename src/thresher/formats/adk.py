"""Google's Agent Development Kit: sessions as JSON or in SQLite, and the conversations of its eval sets.

A session is a list of events. An eval case is a row of invocations: what was asked, which tools were used on the way,
what was answered; files from before that name a query, the tools that it should use, and a reference. What should be
called was not called: such a call has no result. One session each, with the number of its event or invocation for a
line.
"""

from collections import Counter
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
    sessions: dict[str, Session] = {}
    for number, one in enumerate(found, 1):
        own = source.apart()
        own.problems += source.problems if not sessions else []
        id_ = one.id or (f"{stem}-{number}" if len(found) > 1 else stem)
        while id_ in sessions:  # a case that was run again
            id_ = f"{id_}-{number}"
        sessions[id_] = _told(own, one._replace(id=id_))
    return [*sessions.values()]


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
        places = _places(connection)
        for id_, row in _named(connection).items():
            if source.is_wanted(id_):
                events = [_stored(connection, place) for place in places.get(_key(row), ())]
                found = Found(id_, [*enumerate(events, 1)], str(row["app_name"]))
                sessions.append(_told(source.apart(), found, project))
    return sessions


def _key(row: "Row") -> tuple[Any, ...]:
    return row["app_name"], row["user_id"], row["id"]


def _named(connection: "Connection") -> "dict[str, Row]":
    """Every session by its id; where several users have one of the same, with the app's and the user's name."""
    rows = connection.execute("SELECT * FROM sessions ORDER BY create_time, id").fetchall()
    shared = Counter(str(row["id"]) for row in rows)
    names = ("/".join(map(str, _key(row))) for row in rows)
    return {name if shared[str(row["id"])] > 1 else str(row["id"]): row for name, row in zip(names, rows, strict=True)}


def _places(connection: "Connection") -> dict[tuple[Any, ...], list[int]]:
    """Where the events of each session are, in order: without an index, each search for them would read them all."""
    places: dict[tuple[Any, ...], list[int]] = {}
    asked = "SELECT app_name, user_id, session_id, rowid FROM events ORDER BY timestamp, rowid"
    for *key, place in connection.execute(asked):
        places.setdefault(tuple(key), []).append(place)
    return places


def _stored(connection: "Connection", place: int) -> Any:
    """One event. Older builds kept its actions as Python objects, which nobody should load."""
    from thresher.formats.database import decoded  # noqa: PLC0415 - it brings libraries of its own

    row = dict(connection.execute("SELECT * FROM events WHERE rowid = ?", (place,)).fetchone())
    if "event_data" in row:
        event = decoded(row["event_data"])
        facts = {key: row.get(key) for key in ("id", "invocation_id", "timestamp")}
        return {**facts, **event} if isinstance(event, dict) else event
    facts = {key: row.get(key) for key in ("id", "author", "invocation_id", "timestamp")}
    return facts | {key: decoded(row.get(key)) for key in JSON_COLUMNS}


def _is_store(source: SourceFile) -> bool:
    return source.has_tables(
        sessions="app_name user_id id create_time", events="app_name user_id session_id invocation_id timestamp"
    )


def listed(source: SourceFile) -> dict[str, str]:
    """Every session, with how many events it has and when it changed."""
    from thresher.formats.database import opened  # noqa: PLC0415 - it brings libraries of its own

    asked = "SELECT app_name, user_id, session_id, count(*) FROM events GROUP BY app_name, user_id, session_id"
    with opened(source.path) as connection:
        counts = {(app, user, id_): number for app, user, id_, number in connection.execute(asked)}
        return {
            name: f"{dict(row).get('update_time')} {counts.get(_key(row), 0)}"
            for name, row in _named(connection).items()
        }


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
