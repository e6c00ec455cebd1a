"""Tests of the `goose` format: store, files, exports and recordings; visibility, compactions and usage."""

import json
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest

import thresher as th
from damage import MUTANTS, fuzz, read_damaged
from thresher.errors import ReadError, UnknownFormatError
from thresher.model import Image, Summary, Text, Thinking, ToolCall, ToolResult, Unknown, Usage
from thresher.transcripts import list_session_versions
from thresher.transcripts.goose.reader import find_goose_homes

Json = dict[str, Any]

FIXTURE = Path(__file__).parents[1] / "fixtures" / "goose.jsonl"
NOON = 1_741_089_600

SESSIONS = (
    "id TEXT PRIMARY KEY, name TEXT NOT NULL DEFAULT '', description TEXT NOT NULL DEFAULT '', "
    "user_set_name BOOLEAN DEFAULT FALSE, session_type TEXT NOT NULL DEFAULT 'user', working_dir TEXT NOT NULL, "
    "created_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP, updated_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP, "
    "extension_data TEXT DEFAULT '{}', total_tokens INTEGER, input_tokens INTEGER, output_tokens INTEGER, "
    "cache_read_tokens INTEGER, cache_write_tokens INTEGER, accumulated_total_tokens INTEGER, "
    "accumulated_input_tokens INTEGER, accumulated_output_tokens INTEGER, accumulated_cache_read_tokens INTEGER, "
    "accumulated_cache_write_tokens INTEGER, accumulated_cost REAL, schedule_id TEXT, recipe_json TEXT, "
    "user_recipe_values_json TEXT, provider_name TEXT, model_config_json TEXT, "
    "goose_mode TEXT NOT NULL DEFAULT 'auto', archived_at TIMESTAMP, project_id TEXT, parent_session_id TEXT, "
    "parent_delegation TEXT"
)
MESSAGES = (
    "id INTEGER PRIMARY KEY AUTOINCREMENT, message_id TEXT, session_id TEXT NOT NULL REFERENCES sessions(id), "
    "role TEXT NOT NULL, content_json TEXT NOT NULL, created_timestamp INTEGER NOT NULL, "
    "timestamp TIMESTAMP DEFAULT CURRENT_TIMESTAMP, tokens INTEGER, metadata_json TEXT"
)
LEDGER = (
    "id INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT NOT NULL REFERENCES sessions(id) ON DELETE CASCADE, "
    "created_timestamp INTEGER NOT NULL, model TEXT, input_tokens INTEGER, output_tokens INTEGER, "
    "total_tokens INTEGER, cache_read_tokens INTEGER, cache_write_tokens INTEGER, cost REAL, cost_source TEXT, "
    "is_compaction INTEGER DEFAULT 0"
)
TABLES = f"CREATE TABLE sessions ({SESSIONS}); CREATE TABLE messages ({MESSAGES}); CREATE TABLE usage_ledger ({LEDGER})"
"""Version 17."""
OLD_TABLES = """
CREATE TABLE sessions (id TEXT PRIMARY KEY, description TEXT NOT NULL DEFAULT '', working_dir TEXT NOT NULL,
    created_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP, updated_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP,
    extension_data TEXT DEFAULT '{}', total_tokens INTEGER, schedule_id TEXT, recipe_json TEXT);
CREATE TABLE messages (id INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT NOT NULL REFERENCES sessions(id),
    role TEXT NOT NULL, content_json TEXT NOT NULL, created_timestamp INTEGER NOT NULL,
    timestamp TIMESTAMP DEFAULT CURRENT_TIMESTAMP, tokens INTEGER);
"""
"""Version 1."""
SEEN, HIDDEN = {"userVisible": True, "agentVisible": True}, {"userVisible": False, "agentVisible": True}
OLD, GONE = {"userVisible": True, "agentVisible": False}, {"userVisible": False, "agentVisible": False}


def said(words: str, **fields: Any) -> Json:
    return {"type": "text", "text": words, **fields}


def call(id_: Any, name: str = "shell", **arguments: Any) -> Json:
    return {
        "type": "toolRequest",
        "id": id_,
        "toolCall": {"status": "success", "value": {"name": name, "arguments": arguments}},
    }


def answer(id_: Any, *content: Any, **fields: Any) -> Json:
    return {
        "type": "toolResponse",
        "id": id_,
        "toolResult": {"status": "success", "value": {"content": [*content], **fields}},
    }


def message(role: str, *content: Any, at: int = 0, metadata: Json | None = None, **fields: Any) -> Json:
    return {"role": role, "created": NOON + at, "content": [*content], "metadata": metadata or SEEN, **fields}


def store(path: Path, tables: str = TABLES) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.executescript(tables)
    return connection


def insert(connection: sqlite3.Connection, table: str, **row: Any) -> None:
    there = [name for _, name, *_ in connection.execute(f"PRAGMA table_info({table})")]
    row = {name: json.dumps(value) if isinstance(value, dict | list) else value for name, value in row.items()}
    names = [name for name in row if name in there]
    marks = ", ".join("?" * len(names))
    connection.execute(f"INSERT INTO {table} ({', '.join(names)}) VALUES ({marks})", [row[name] for name in names])


def add(connection: sqlite3.Connection, id_: str, *messages: Json, **facts: Any) -> None:
    """Insert a session as goose writes it."""
    always = {"id": id_, "working_dir": "/w", "created_at": "2025-03-04 12:00:00", "updated_at": "2025-03-04 12:00:00"}
    insert(connection, "sessions", **(always | facts))
    for number, one in enumerate(messages, 1):
        columns = {
            "content_json": one["content"],
            "created_timestamp": one["created"],
            "metadata_json": one["metadata"],
        }
        name = one.get("id", f"msg_{id_}_{number}")
        insert(connection, "messages", session_id=id_, message_id=name, role=one["role"], **columns)


def stored(folder: Path, *messages: Json, bills: tuple[Json, ...] = (), **facts: Any) -> th.Session:
    path = folder / "sessions.db"
    path.unlink(missing_ok=True)
    with closing(store(path)) as connection:
        add(connection, "20250304_1", *messages, **facts)
        for bill in bills:
            insert(connection, "usage_ledger", session_id="20250304_1", **bill)
    assert th.sniff(path) == "goose"
    [session] = th.read_all(path)
    return session


def spoken(history: th.History) -> list[tuple[str, str]]:
    return [(one.author, one.text) for one in history]


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if not path.name.endswith("-shm")}


# --- the store -------------------------------------------------------------------------------------------------------


def test_only_wanted_sessions_are_read_and_only_changed_ones_get_a_new_version(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    with closing(store(path)) as connection:
        add(connection, "20250304_1", message("user", said("One?")))
        add(connection, "20250304_2", message("user", said("Two?")))
        before = list_session_versions(path)
        add(connection, "20250304_3")
        insert(
            connection,
            "messages",
            session_id="20250304_2",
            role="user",
            content_json=[said("More?")],
            created_timestamp=NOON,
        )
        after = list_session_versions(path)
    assert before is not None
    assert after is not None
    assert sorted(after) == ["20250304_1", "20250304_2", "20250304_3"]
    assert [id_ for id_ in before if before[id_] != after[id_]] == ["20250304_2"]
    [session] = th.read_all(path, is_wanted=lambda id_: id_ == "20250304_2")
    assert spoken(session.history) == [("human", "Two?"), ("human", "More?")]
    assert list_session_versions(path) == after


def test_usage_titles_and_compactions_change_the_version(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    marks = []
    with closing(store(path)) as connection:
        add(connection, "s", message("user", said("One?")))
        marks.append(list_session_versions(path))
        insert(connection, "usage_ledger", session_id="s", created_timestamp=NOON, input_tokens=1, output_tokens=1)
        marks.append(list_session_versions(path))
        connection.execute("UPDATE sessions SET name = 'Named', updated_at = datetime('now')")
        marks.append(list_session_versions(path))
    assert len({str(mark) for mark in marks}) == 3


def test_a_store_in_use_is_read_up_to_its_last_write_and_left_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    with closing(store(path)) as connection:
        add(connection, "s", message("user", said("Still in the journal?")))
        before = contents(tmp_path)
        assert before["sessions.db-wal"]
        [session] = th.read_all(path)
        assert list_session_versions(path)
        assert contents(tmp_path) == before
    assert spoken(session.history) == [("human", "Still in the journal?")]


def test_a_store_without_its_shared_memory_file_is_read_with_its_journal(tmp_path: Path) -> None:
    (tmp_path / "copy").mkdir()
    with closing(store(tmp_path / "sessions.db")) as connection:
        add(connection, "s", message("user", said("Still in the journal?")))
        for name in ("sessions.db", "sessions.db-wal"):
            shutil.copy(tmp_path / name, tmp_path / "copy" / name)
    before = contents(tmp_path / "copy")
    [session] = th.read_all(tmp_path / "copy" / "sessions.db")
    assert spoken(session.history) == [("human", "Still in the journal?")]
    assert [*(tmp_path / "copy").glob("*-shm")] == []
    assert contents(tmp_path / "copy") == before


def test_the_tables_of_the_first_version_are_read(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    with closing(store(path, OLD_TABLES)) as connection:
        add(
            connection,
            "20250304_1",
            message("user", said("Hello?")),
            message("assistant", said("Hi.")),
            description="Greeting",
        )
    [session] = th.read_all(path)
    assert (session.id, session.title, session.project, session.parent) == ("20250304_1", "Greeting", "/w", "")
    assert spoken(session.history) == [("human", "Hello?"), ("model", "Hi.")]
    assert [one.id for one in session.history] == ["line-1", "line-2"]


def test_a_damaged_store_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    with closing(store(path)) as connection:
        add(connection, "s", *(message("user", said("x" * 500)) for _ in range(50)))
    data = path.read_bytes()
    path.write_bytes(data[:4000])
    with pytest.raises(ReadError, match=r"cannot be read as a database: .*malformed"):
        th.read_all(path)
    path.rename(tmp_path / "other.db")
    with pytest.raises(ReadError):
        th.read_all(tmp_path / "other.db")
    (tmp_path / "empty.db").touch()
    with pytest.raises(ReadError, match="is empty"):
        th.read_all(tmp_path / "empty.db")


def test_another_programs_database_is_not_detected_as_goose(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "sessions.db")) as connection:
        connection.executescript(
            "CREATE TABLE sessions (id TEXT, title TEXT); CREATE TABLE messages (id TEXT, body TEXT)"
        )
    assert th.sniff(tmp_path / "sessions.db") is None
    with pytest.raises(ReadError, match="has no goose tables"):
        th.read_all(tmp_path / "sessions.db", format="goose")


def test_messages_have_gooses_order(tmp_path: Path) -> None:
    session = stored(tmp_path, message("assistant", said("Second."), at=5), message("user", said("First."), at=1))
    assert [(one.text, one.source.line) for one in session.history if one.source] == [("First.", 2), ("Second.", 1)]
    assert (str(session.started), str(session.ended)) == ("2025-03-04 12:00:00+00:00", "2025-03-04 12:00:05+00:00")


def test_a_damaged_row_is_reported_and_the_rest_is_read(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    with closing(store(path)) as connection:
        add(connection, "s", message("user", said("Hello?")))
        insert(
            connection,
            "messages",
            session_id="s",
            role="assistant",
            content_json='[{"type": "te',
            created_timestamp=NOON,
        )
        insert(
            connection,
            "messages",
            session_id="s",
            role="oracle",
            content_json=[said("Beware.")],
            created_timestamp=NOON,
        )
        insert(connection, "messages", session_id="s", role="user", content_json=b"\xff\xfe", created_timestamp="soon")
    [session] = th.read_all(path)
    assert spoken(session.history) == [("human", "Hello?"), ("harness", "Beware.")]
    assert [problem.line for problem in session.problems] == [2, 4]


def test_a_default_name_is_not_a_title(tmp_path: Path) -> None:
    assert stored(tmp_path, message("user", said("Boil it.")), name="CLI Session").title == "Boil it."
    assert stored(tmp_path, message("user", said("Boil it.")), name="Kettle").title == "Kettle"


def test_a_sub_agent_has_the_call_that_started_it(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    delegated = {"parent_delegate_message_id": "m2", "execution_mode": "foreground"}
    child = {"session_type": "sub_agent", "parent_session_id": "p", "parent_delegation": delegated}
    with closing(store(path)) as connection:
        two = message("assistant", call("c1", "delegate"), call("x", "shell"), call("c2", "delegate"), id="m2")
        add(connection, "p", message("user", said("Go.")), two, created_at="2025-03-04 10:00:00")
        add(connection, "a", message("user", said("First.")), created_at="2025-03-04 10:00:01", **child)
        add(connection, "b", message("user", said("Second.")), created_at="2025-03-04 10:00:02", **child)
        add(connection, "c", message("user", said("Lost.")), **(child | {"parent_delegation": None}))
    found = {session.id: session for session in th.read_all(path)}
    assert [(found[id_].parent, found[id_].call_id) for id_ in "pabc"] == [
        ("", ""),
        ("p", "c1"),
        ("p", "c2"),
        ("p", ""),
    ]
    assert [found[id_].history[0].author for id_ in "pabc"] == ["human", "model", "model", "model"]
    [only] = th.read_all(path, is_wanted=lambda id_: id_ == "b")
    assert only.call_id == "c2"


def bill(at: int, given: int, **fields: Any) -> Json:
    return {"created_timestamp": NOON + at, "model": "m", "input_tokens": given, "output_tokens": 1, **fields}


@pytest.mark.parametrize(
    ("bills", "expected"),
    [
        ((bill(1, 10), bill(3, 20), bill(9, 30)), [10, 20, 30]),
        # Fast answers: the second begins in the second in which the first is billed.
        ((bill(2, 10), bill(4, 20), bill(9, 30)), [10, 20, 30]),
        # An answer that was cut off has none.
        ((bill(1, 10), bill(9, 30)), [10, None, 30]),
        ((bill(1, 10), bill(3, 99, is_compaction=1), bill(3, 20)), [10, 20, None]),
        # What was used before there was a ledger is no bill.
        ((bill(2, 999, cost_source="carried_forward"), bill(2, 20), bill(9, 30)), [None, 20, 30]),
        # Before any answer there is nothing to bill.
        ((bill(-5, 10),), [None, None, None]),
    ],
)
def test_usage_belongs_to_the_last_answer_that_began_before_it(
    tmp_path: Path, bills: tuple[Json, ...], expected: list[int | None]
) -> None:
    answers = [message("assistant", said(words), at=at) for words, at in (("One.", 1), ("Two.", 2), ("Three.", 8))]
    session = stored(tmp_path, *answers, bills=bills, model_config_json={"model_name": "known"})
    assert [one.usage.input if one.usage else None for one in session.history] == expected
    assert [one.model for one in session.history] == ["m" if given else "known" for given in expected]


def test_usage_that_a_message_also_contains_is_not_assigned_to_another_message(tmp_path: Path) -> None:
    own = {**SEEN, "usage": {"inputTokens": 7, "outputTokens": 2}}
    answers = (message("assistant", said("One.")), message("assistant", said("Two."), at=5, metadata=own))
    session = stored(tmp_path, *answers, bills=(bill(6, 7),))
    assert [one.usage.input if one.usage else None for one in session.history] == [None, 7]


def test_usage_times_can_be_in_milliseconds(tmp_path: Path) -> None:
    given = bill(0, 10) | {"created_timestamp": (NOON + 1) * 1000}
    late = bill(0, 20) | {"created_timestamp": (NOON - 1) * 1000}
    session = stored(tmp_path, message("assistant", said("Hi.")), bills=(late, given))
    assert [one.usage.input for one in session.history if one.usage] == [10]


def test_input_tokens_include_cached_tokens(tmp_path: Path) -> None:
    given = bill(1, 100, cache_read_tokens=30, cache_write_tokens=10)
    session = stored(tmp_path, message("assistant", said("Hi.")), bills=(given,))
    assert session.history[0].usage == Usage(60, 1, 30, 10)
    own = message("assistant", said("Hi."), metadata={**SEEN, "usage": {"inputTokens": 7, "outputTokens": 2}})
    assert stored(tmp_path, own).history[0].usage == Usage(7, 2)


# --- visibility ------------------------------------------------------------------------------------------------------


def test_each_compaction_starts_a_segment_and_the_repeated_prompt_is_carried(tmp_path: Path) -> None:
    session = stored(
        tmp_path,
        message("user", said("Boil."), metadata=OLD, at=0),
        message("assistant", said("Boiled."), metadata=OLD, at=1),
        message("user", said("Pour."), metadata=GONE, at=2),
        message("user", said("Water was boiled."), metadata=GONE, at=3),
        message("assistant", said("Go on."), metadata=GONE, at=3),
        message("user", said("Pour."), metadata=OLD, at=3),
        message("assistant", said("Poured."), metadata=OLD, at=4),
        message("user", said("Water was boiled and poured."), metadata=HIDDEN, at=5),
        message("assistant", said("Go on."), metadata=HIDDEN, at=5),
        message("user", said("Drink."), at=6),
    )
    assert session.compactions == 2
    assert [spoken(segment) for segment in session.segments] == [
        [("human", "Boil."), ("model", "Boiled."), ("human", "Pour.")],
        [("harness", "Water was boiled."), ("human", "Pour."), ("model", "Poured.")],
        [("harness", "Water was boiled and poured."), ("human", "Drink.")],
    ]
    assert [one.text for one in session.messages() if one.author == "human"] == ["Boil.", "Pour.", "Drink."]
    assert [isinstance(segment[0].parts[0], Summary) for segment in session.segments] == [False, True, True]
    assert session.records["continuation"] == 2


def test_visible_messages_are_carried_over_a_compaction(tmp_path: Path) -> None:
    session = stored(
        tmp_path,
        message("user", said("Boil."), metadata=OLD),
        message("assistant", said("Boiled.")),
        message("user", said("Water was boiled."), metadata=HIDDEN, at=1),
        message("assistant", said("Go on."), metadata=HIDDEN, at=1),
        message("user", said("Pour."), at=2),
    )
    assert [(one.text, one.carried) for one in session.history] == [
        ("Water was boiled.", False),
        ("Boiled.", True),
        ("Pour.", False),
    ]


def test_a_call_is_read_instead_of_its_summary(tmp_path: Path) -> None:
    session = stored(
        tmp_path,
        message("user", said("Look.")),
        message("assistant", call("a", command="ls"), metadata=OLD),
        message("user", answer("a", said("kettle.py")), metadata=OLD),
        message("user", said("[Historical tool call summary] Files were listed."), metadata=HIDDEN),
        message("assistant", said("One file.")),
    )
    assert [one.author for one in session.history] == ["human", "model", "tool", "model"]
    assert (session.compactions, session.records["summary of a call"]) == (0, 1)


def test_text_for_one_audience_has_the_harness_as_author(tmp_path: Path) -> None:
    notice = {"type": "systemNotification", "notificationType": "inlineMessage", "msg": "Saved."}
    session = stored(
        tmp_path,
        message("user", said("/prompts"), metadata=OLD),
        message("assistant", said("There are none."), metadata=OLD),
        message("assistant", notice, metadata=OLD),
        message("user", said("The task in the background is done."), metadata=HIDDEN),
        message("assistant", said("Good.")),
    )
    assert [author for author, _ in spoken(session.history)] == ["human", "harness", "harness", "model"]
    assert session.records["systemNotification"] == 1


def test_content_for_the_user_only_is_skipped(tmp_path: Path) -> None:
    for_user = {"annotations": {"audience": ["user"]}}
    for_both = {"annotations": {"audience": ["user", "assistant"]}}
    session = stored(
        tmp_path,
        message("assistant", said("Shown.", **for_user), call("a")),
        message("user", answer("a", said("for you", **for_user), said("for both", **for_both), said("for all"))),
    )
    assert session.history[0].text == ""
    assert next(session.history[1].results).content == (Text("for both"), Text("for all"))
    assert session.records["for the user alone"] == 2


# --- parts -----------------------------------------------------------------------------------------------------------


def test_every_type_of_part_is_parsed(tmp_path: Path) -> None:
    session = stored(
        tmp_path,
        message("user", said("See:"), {"type": "image", "data": "aGk=", "mimeType": "image/png"}),
        message(
            "assistant",
            {"type": "thinking", "thinking": "Hm.", "signature": "s"},
            {"type": "redactedThinking", "data": "r"},
            {"type": "reasoning", "text": "Old."},
            {"type": "frontendToolRequest", "id": "f", "toolCall": {"status": "success", "value": {"name": "show"}}},
            {"type": "hologram", "depth": 3},
            {"type": "actionRequired", "data": {"actionType": "elicitation"}},
            {"type": "toolConfirmationRequest", "id": "t"},
        ),
    )
    assert session.history[0].parts == (Text("See:"), Image("image/png", "aGk="))
    assert session.history[1].parts == (
        Thinking("Hm.", "s"),
        Thinking("", "r"),
        Thinking("Old."),
        ToolCall("f", "show", "{}"),
        Unknown("hologram", '{"type":"hologram","depth":3}'),
    )


RESULTS: dict[str, tuple[Any, ToolResult]] = {
    "an object": ({"status": "success", "value": {"content": [said("ok")]}}, ToolResult("a", (Text("ok"),))),
    "a list": ({"status": "success", "value": [said("ok")]}, ToolResult("a", (Text("ok"),))),
    "a failure": (
        {"status": "success", "value": {"content": [said("no")], "isError": True}},
        ToolResult("a", (Text("no"),), is_error=True),
    ),
    "an error": ({"status": "error", "error": "-32603: no"}, ToolResult("a", (Text("-32603: no"),), is_error=True)),
    "data": (
        {"status": "success", "value": {"content": [], "structuredContent": {"n": 1}}},
        ToolResult("a", (Text('{"n":1}'),)),
    ),
    "a file": (
        {"status": "success", "value": [{"type": "resource", "resource": {"uri": "u", "text": "t"}}]},
        ToolResult("a", (Text("t"),)),
    ),
    "bytes": (
        {
            "status": "success",
            "value": [{"type": "resource", "resource": {"blob": "aGk=", "mimeType": "application/pdf"}}],
        },
        ToolResult("a", (Image("application/pdf", "aGk="),)),
    ),
    "sound": (
        {"status": "success", "value": [{"type": "audio", "data": "aGk=", "mimeType": "audio/wav"}]},
        ToolResult("a", (Image("audio/wav", "aGk="),)),
    ),
    "nothing": ({"status": "success", "value": {"content": []}}, ToolResult("a")),
    "something else": (7, ToolResult("a")),
}


@pytest.mark.parametrize(("tool_result", "result"), RESULTS.values(), ids=list(RESULTS))
def test_every_form_of_result_is_parsed(tmp_path: Path, tool_result: Any, result: ToolResult) -> None:
    wire = {"type": "toolResponse", "id": "a", "toolResult": tool_result}
    session = stored(tmp_path, message("assistant", call("a")), message("user", wire, said("Well?")))
    assert [*session.history[1].results] == [result]
    assert (session.history[2].role, session.history[2].text) == ("user", "Well?")
    assert len({one.id for one in session.history}) == 3


def test_calls_and_messages_with_the_same_id_get_unique_ids(tmp_path: Path) -> None:
    session = stored(
        tmp_path,
        message("assistant", call("call_0"), id="same"),
        message("user", answer("call_0", said("one")), id="same"),
        message("assistant", call("call_0"), call(None), id=None),
        message("user", answer("call_0", said("two"))),
    )
    calls = [call.id for message in session.history for call in message.calls]
    assert calls == ["call_0", "call-3-1", "call-3-2"]
    answers = {result.call_id: result.text for message in session.history for result in message.results}
    assert answers == {"call_0": "one", "call-3-1": "two"}
    assert session.history.orphans == ()
    assert [problem.what for problem in session.problems] == ["3 messages and calls have no unique id"]


# --- files -----------------------------------------------------------------------------------------------------------


def test_an_export_is_read(tmp_path: Path) -> None:
    path = tmp_path / "export.json"
    facts = {"id": "20250304_7", "working_dir": "/w", "name": "Kettle", "extension_data": {}, "message_count": 2}
    more = {
        "created_at": "2025-03-04T12:00:00Z",
        "updated_at": "2025-03-04T12:01:00Z",
        "model_config": {"model_name": "m"},
    }
    rows = [message("user", said("Boil.")), message("assistant", said("Boiled."))]
    for document in (facts | more | {"conversation": rows}, facts | more | {"messages": rows}):
        path.write_text(json.dumps(document, indent=2))
        assert th.sniff(path) == "goose"
        [session] = th.read_all(path)
        assert (session.id, session.title, session.history[1].model) == ("20250304_7", "Kettle", "m")
        assert [one.source.line for one in session.history if one.source] == [1, 2]
    path.write_text(json.dumps(facts | {"conversation": [3, *rows]}))
    [session] = th.read_all(path, format="goose")
    assert [(problem.line, problem.done) for problem in session.problems] == [(1, "skipped")]


def lines(path: Path, *rows: Any) -> Path:
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return path


def test_a_file_can_start_with_a_message_or_have_none(tmp_path: Path) -> None:
    path = lines(tmp_path / "20250304_120000.jsonl", message("assistant", call("a")), message("user", answer("a")))
    assert th.sniff(path) == "goose"
    [session] = th.read_all(path)
    assert (session.id, [one.role for one in session.history]) == ("20250304_120000", ["assistant", "tool"])
    path = lines(tmp_path / "new.jsonl", {"working_dir": "/w", "description": "", "message_count": 0})
    assert th.sniff(path) == "goose"
    [session] = th.read_all(path)
    assert (session.project, len(session.history)) == ("/w", 0)


def test_malformed_lines_are_reported_and_the_rest_is_read(tmp_path: Path) -> None:
    rows = (
        {"working_dir": "/w", "description": "d"},
        message("user", said("One.")),
        "[1]",
        '{"role": "us',
        message("user", said("Two.")),
    )
    odd = ({"role": "user", "content": "plain", "created": "soon"}, {"role": 3, "content": [None, 5]}, {"no": "role"})
    [session] = th.read_all(lines(tmp_path / "s.jsonl", *rows, *odd))
    assert [one.text for one in session.history if one.text] == ["One.", "Two."]
    assert {problem.line for problem in session.problems} == {3, 4}
    assert session.history[2].parts == (Unknown("", "null"), Unknown("", "5"))


@pytest.mark.parametrize(
    "value",
    [
        [{"role": "user", "content": [{"type": "text", "text": "Hi."}]}],
        {"model": "m", "messages": [{"role": "user", "content": "Hi."}]},
        {"working_dir": "/w", "messages": [{"role": "user", "content": "Hi."}]},
        {"a": {"input": {"messages": []}, "output": {}}},
        {},
        {"hash": {"input": 1, "output": 2}},
    ],
)
def test_other_documents_are_not_detected_as_goose(tmp_path: Path, value: Any) -> None:
    path = tmp_path / "other.json"
    path.write_text(json.dumps(value))
    assert th.sniff(path) != "goose"


# --- recordings of a provider ----------------------------------------------------------------------------------------


def request(
    *messages: Json,
    output: Json,
    system: str = "You help.",
    tools: tuple[Any, ...] = ({"name": "shell"},),
    given: int = 1,
) -> Json:
    usage = {"model": "m", "usage": {"input_tokens": given, "output_tokens": 1}}
    asked = {"system": system, "messages": [*messages], "tools": [*tools]}
    return {"input": asked, "output": {"message": output, "usage": usage}}


def recorded(folder: Path, *requests: Any) -> list[th.Session]:
    path = folder / "recording.json"
    path.write_text(json.dumps({f"{number:064}": one for number, one in enumerate(requests)}))
    return th.read_all(path, format="goose")


def test_the_longest_request_is_read_with_every_recorded_answer(tmp_path: Path) -> None:
    ask, found = message("user", said("Look.")), message("user", answer("a", said("kettle.py")), at=2)
    first = message("assistant", said("I look."), call("a"), at=1)
    again = message("assistant", call("a"), at=1)
    last = message("assistant", said("One file."), at=3)
    title = request(
        message("user", said("Name a talk that begins so: Look.")), output=message("assistant", said("Files")), tools=()
    )
    tool = {"name": "shell", "description": "Runs.", "inputSchema": {"type": "object", "properties": {}}}
    short, long = request(ask, output=first, given=10), request(ask, again, found, output=last, tools=(tool,), given=20)
    [session] = recorded(tmp_path, long, title, short)
    assert spoken(session.history) == [
        ("harness", "You help."),
        ("human", "Look."),
        ("model", "I look."),
        ("tool", ""),
        ("model", "One file."),
    ]
    assert [one.usage.input for one in session.history if one.usage] == [10, 20]
    assert (session.id, session.title, session.records["title"]) == ("recording", "Files", 1)
    assert json.loads(session.history.tools)[0]["input_schema"] == tool["inputSchema"]


def test_different_conversations_are_different_sessions(tmp_path: Path) -> None:
    one, two = (
        request(message("user", said(words)), output=message("assistant", said("Yes."))) for words in ("A?", "B?")
    )
    none = request(output=message("assistant", said("Hello.")))
    found = recorded(tmp_path, one, two, one, none)
    assert [session.id for session in found] == ["recording-1", "recording-2", "recording-3"]
    assert [len(session.history) for session in found] == [3, 3, 2]


def test_malformed_entries_are_reported(tmp_path: Path) -> None:
    good = request(message("user", said("A?")), output=message("assistant", said("Yes.")))
    good["input"]["messages"].append(5)
    [session] = recorded(tmp_path, 3, good)
    assert [problem.line for problem in session.problems] == [1, 2]
    with pytest.raises(ReadError, match="no conversation"):
        recorded(tmp_path, 3)


def test_every_recording_is_read(shared_data: Path) -> None:
    """Read one session per file, as in the index. Its message counts do not match: 10 for a request without messages
    and its answer (001), 1 for `{}` (003), 1 for a prompt with an answer (006, 007). It counts no calls, but two files
    have one each. A file with only `{}` has no known format, and the error says so.
    """
    expected = {"001": (2, 0), "002": (5, 1), "004": (3, 0), "005": (5, 1), "006": (3, 0), "007": (3, 0)}
    rows = map(json.loads, (shared_data / "index.jsonl").read_text(encoding="utf-8").splitlines())
    files = [row for row in rows if row["file"].startswith("goose/")]
    for row in files:
        path = shared_data / row["file"]
        number = path.name.split(".")[0].removeprefix("rec-")
        if number == "003":
            with pytest.raises(UnknownFormatError, match="matches no known format"):
                th.read_all(path)
            continue
        sessions = th.read_all(path)
        assert len(sessions) == row["sessions"]
        history = sessions[0].history
        assert (len(history), sum(1 for one in history for _ in one.calls)) == expected[number]
        assert not sessions[0].problems
        assert history.orphans == ()
        assert history[-1].usage
    assert len(files) == 7


# --- discovery -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("platform", "environment", "folders"),
    [
        ("linux", {}, [".local/share/goose/sessions"]),
        ("linux", {"XDG_DATA_HOME": "/data"}, ["/data/goose/sessions"]),
        ("linux", {"GOOSE_PATH_ROOT": "/root"}, ["/root/data/sessions"]),
        ("linux", {"GOOSE_PATH_ROOT": "not/absolute"}, [".local/share/goose/sessions"]),
        (
            "darwin",
            {},
            [
                ".local/share/goose/sessions",
                "Library/Application Support/Block/goose/data/sessions",
                "Library/Application Support/Block/goose/sessions",
            ],
        ),
        ("win32", {}, ["AppData/Roaming/Block/goose/data/sessions"]),
        ("win32", {"APPDATA": "/roaming"}, ["/roaming/Block/goose/data/sessions"]),
    ],
)
def test_homes_depend_on_platform_and_environment(
    platform: str, environment: dict[str, str], folders: list[str]
) -> None:
    home = Path("/home/user")
    found = find_goose_homes(environment, home, platform)
    assert [one.folder for one in found[::2]] == [home / folder for folder in folders]
    assert {one.pattern for one in found} == {"sessions.db", "*.jsonl"}


def test_reading_files_does_not_import_sqlite() -> None:
    code = "import sys, thresher.transcripts.goose.reader; sys.exit('sqlite3' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


# --- damage ----------------------------------------------------------------------------------------------------------


@contextmanager
def noted(mutation: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        error.add_note(mutation)
        raise


@pytest.mark.parametrize("kind", ["export", "recording"])
def test_damaged_files_are_read_or_refused(tmp_path: Path, kind: str) -> None:
    rows = [json.loads(line) for line in FIXTURE.read_text(encoding="utf-8").splitlines()]
    exported = rows[0] | {"extension_data": {}, "conversation": rows[1:]}
    made = {f"{n}": request(*rows[1:n], output=rows[n]) for n in (2, 4, 6, 8)}
    data = {
        "export": json.dumps(exported).encode(),
        "recording": json.dumps(made).encode(),
    }
    read_damaged(data[kind], tmp_path / "s.jsonl", Random(11), "goose")


def test_damaged_stores_are_read_or_refused(tmp_path: Path) -> None:
    path, random = tmp_path / "sessions.db", Random(13)
    with closing(store(path)) as connection:
        connection.execute("PRAGMA journal_mode=DELETE")
        rows = [json.loads(line) for line in FIXTURE.read_text(encoding="utf-8").splitlines()][1:]
        for number in range(9):
            add(connection, f"s{number}", *(message(row["role"], *row["content"]) for row in rows))
    data = path.read_bytes()
    for number in range(MUTANTS):
        damaged = bytearray(data)
        for _ in range(random.choice((1, 5, 50))):
            damaged[random.randrange(len(damaged))] = random.randrange(256)
        cut = random.choice((len(damaged), len(damaged), random.randrange(len(damaged))))
        path.write_bytes(damaged[:cut])
        with noted(f"number {number}"):
            fuzz.exercise(path)
            fuzz.exercise(path, format="goose")
