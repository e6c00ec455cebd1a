"""Tests of the `adk` format beyond its fixtures: layouts, both key spellings, compactions and the older store."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import recordings
import thresher as th
from thresher.model import Image, Summary, Text, Thinking, ToolCall, ToolResult, Unknown, Usage
from thresher.transcripts import list_session_versions

Json = dict[str, Any]


def event(author: str, *parts: Any, invocation: str = "e-1", time: float = 1.0, **more: Any) -> Json:
    content = {"role": "user" if author == "user" else "model", "parts": [*map(as_part, parts)]}
    return {"author": author, "invocation_id": invocation, "timestamp": 1000.0 + time, "content": content, **more}


def as_part(given: Any) -> Any:
    return {"text": given} if isinstance(given, str) else given


def compaction(said: str, start: float, end: float, **more: Any) -> Json:
    span = {"start_timestamp": 1000.0 + start, "end_timestamp": 1000.0 + end}
    return event("agent", actions={"compaction": {**span, "compacted_content": {"parts": [{"text": said}]}}}, **more)


def query(text: str, *tools: str, reference: str = "Done.") -> Json:
    uses = [{"tool_name": name, "tool_input": {"x": 1}} for name in tools]
    return {"query": text, "expected_tool_use": uses, "reference": reference}


def write(folder: Path, value: Any, name: str = "run.test.json") -> Path:
    path = folder / name
    path.write_text(json.dumps(value))
    assert th.sniff(path) == "adk"
    return path


def read(folder: Path, value: Any) -> th.Session:
    session = th.read(write(folder, value))
    assert isinstance(session, th.Session)
    return session


def session_of(*events: Any, **facts: Any) -> Json:
    return {"id": "s-1", "app_name": "shop", "user_id": "user", "events": [*events]} | facts


def texts_of(session: th.Session) -> list[str]:
    return [
        message.text or " ".join([*(call.name for call in message.calls), *(f"={one.name}" for one in message.results)])
        for message in session.history
    ]


LAYOUTS: dict[str, tuple[Any, list[tuple[str, list[str]]]]] = {
    "a session": (session_of(event("user", "Hi."), event("shop", "Hello.")), [("s-1", ["Hi.", "Hello."])]),
    "a session in the other spelling": (
        {
            "id": "s",
            "appName": "a",
            "events": [{"author": "user", "invocationId": "e", "content": {"parts": [{"text": "Hi."}]}}],
        },
        [("s", ["Hi."])],
    ),
    "sessions": (
        [session_of(event("user", "Hi.")), session_of(event("user", "Ho."), id="s-2")],
        [("s-1", ["Hi."]), ("s-2", ["Ho."])],
    ),
    "events": ([event("user", "Hi."), event("shop", "Hello.")], [("run", ["Hi.", "Hello."])]),
    "queries": (
        [query("Light?", "switch"), query("Dark?")],
        [("run", ["Light?", "switch", "Done.", "Dark?", "Done."])],
    ),
    "rows of queries": (
        [[query("One?")], [query("Two?")]],
        [("run-1", ["One?", "Done."]), ("run-2", ["Two?", "Done."])],
    ),
    "named queries": ([{"name": "n", "data": [query("One?")], "initial_session": {}}], [("n", ["One?", "Done."])]),
    "one row of named queries": ({"name": "n", "data": [query("One?")]}, [("n", ["One?", "Done."])]),
    "one query": (query("One?"), [("run", ["One?", "Done."])]),
    "an eval set": (
        {
            "evalSetId": "e",
            "evalCases": [{"evalId": "c", "conversation": [{"userContent": {"parts": [{"text": "Hi."}]}}]}],
        },
        [("c", ["Hi."])],
    ),
    "what an eval set gave": (
        {
            "eval_set_id": "e",
            "eval_case_results": [{"eval_id": "c", "session_details": session_of(event("user", "Hi."))}],
        },
        [("s-1", ["Hi."])],
    ),
}


@pytest.mark.parametrize(("value", "expected"), LAYOUTS.values(), ids=list(LAYOUTS))
def test_every_layout_is_read(value: Any, expected: list[tuple[str, list[str]]], tmp_path: Path) -> None:
    path = write(tmp_path, value)
    assert [(one.id, texts_of(one)) for one in th.read_all(path)] == expected


def test_events_can_be_one_per_line(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text("".join(json.dumps(event("user", text)) + "\n" for text in ("One.", "Two.")))
    session = th.read(path)
    assert isinstance(session, th.Session)
    assert (session.agent, texts_of(session)) == ("adk", ["One.", "Two."])


def test_an_expected_call_has_no_result(tmp_path: Path) -> None:
    session = read(tmp_path, [query("Light?", "switch", "switch")])
    assert [call.id for call in session.history[1].calls] == ["switch-1", "switch-2"]
    assert not any(message.role == "tool" for message in session.history)


def test_an_invocation_includes_its_intermediate_events(tmp_path: Path) -> None:
    between = {
        "tool_uses": [{"id": "c1", "name": "switch", "args": {}}],
        "tool_responses": [{"id": "c1", "name": "switch", "response": {"result": "on"}}],
        "intermediate_responses": [["helper", [{"text": "It is on."}]]],
    }
    case = {"user_content": {"parts": [{"text": "Light?"}]}, "intermediate_data": between}
    session = read(tmp_path, {"eval_set_id": "e", "eval_cases": [{"eval_id": "c", "conversation": [case, 7]}]})
    assert texts_of(session) == ["Light?", "switch", "=switch", "It is on."]
    assert session.history.orphans == ()
    assert [problem.what for problem in session.problems] == ["an event is not a JSON object"]


def test_parts_are_read_in_either_spelling(tmp_path: Path) -> None:
    nulls = dict.fromkeys(("text", "thought", "function_call", "function_response", "inline_data"))
    picture = {"mime_type": "image/png", "data": "aGk=", "display_name": None}
    session = read(
        tmp_path,
        session_of(
            event("user", "Look.", nulls | {"inline_data": picture}),
            event("shop", {"text": "Hm.", "thought": True, "thought_signature": "c2ln"}, {"mood": "calm"}),
            event("shop", nulls | {"function_call": {"id": "c", "name": "f", "args": {"old_path": "a"}}}),
            event("shop", nulls | {"function_response": {"id": "c", "name": "f", "response": {"error": "no"}}}),
        ),
    )
    assert session.history[0].parts == (Text("Look."), Image("image/png", "aGk="))
    assert session.history[1].parts == (Thinking("Hm.", "c2ln"), Unknown("", '{"mood":"calm"}'))
    assert session.history[2].parts == (ToolCall("c", "f", '{"old_path":"a"}'),)
    assert (session.history[3].role, next(session.history[3].results).is_error) == ("tool", True)
    contents = th.emit(session.history, "gemini")
    assert contents[2] == {
        "role": "user",
        "parts": [{"functionResponse": {"id": "c", "name": "f", "response": {"error": "no"}}}],
    }


def test_usage_and_model_are_read(tmp_path: Path) -> None:
    bill = {
        "prompt_token_count": 100,
        "cached_content_token_count": 40,
        "candidates_token_count": 5,
        "thoughts_token_count": 2,
    }
    session = read(tmp_path, session_of(event("shop", "Hi.", usage_metadata=bill, model_version="gemini-2.5-pro")))
    assert session.history[0].usage == Usage(60, 7, 40, reasoning=2)
    assert session.history[0].model == "gemini-2.5-pro"


def test_content_that_no_model_sees_is_skipped(tmp_path: Path) -> None:
    leave = {"function_call": {"id": "r", "name": "adk_request_confirmation", "args": {}}}
    session = read(
        tmp_path,
        session_of(
            event("user", "Pay."),
            event("shop", "Pa", partial=True),
            event("shop", leave),
            {"author": "shop", "invocation_id": "e-1", "error_code": "429", "error_message": "too many"},
            {"author": "shop", "invocation_id": "e-1", "actions": {"state_delta": {"paid": True}}},
            event("shop", "Paid.", {"text": ""}),
        ),
    )
    assert texts_of(session) == ["Pay.", "Paid."]
    assert session.records == {"user": 1, "partial": 1, "shop": 4}


def test_transcriptions_by_one_speaker_are_one_message(tmp_path: Path) -> None:
    def transcription(key: str, said: str) -> Json:
        return {"author": "shop", "invocation_id": "e-1", "timestamp": 1.0, key: {"text": said}}

    user, model = "input_transcription", "output_transcription"
    rows = (transcription(user, "What "), transcription(user, "now?"), transcription(model, "Noth"))
    session = read(tmp_path, session_of(*rows, transcription(model, "ing.")))
    assert [(one.author, one.text) for one in session.history] == [("human", "What now?"), ("model", "Nothing.")]


# --- compactions and rewinds -----------------------------------------------------------------------------------------


def test_a_summary_is_placed_where_its_span_ends(tmp_path: Path) -> None:
    session = read(
        tmp_path,
        session_of(
            event("user", "One.", time=1),
            event("shop", "Two.", time=2),
            event("user", "Three.", time=3),
            compaction("One and two.", 1, 2, time=4),
            event("shop", "Four.", time=5),
            compaction("Two to four.", 2, 5, time=6),
            event("user", "Five.", time=7),
        ),
    )
    assert [[one.text for one in segment] for segment in session.segments] == [
        ["One.", "Two.", "Three."],
        ["One and two.", "Three.", "Four."],
        ["One and two.", "Two to four.", "Five."],
    ]
    assert session.compactions == 2
    assert [one.text for one in session.messages()][-1] == "Five."
    assert len([*session.messages()]) == 7
    assert isinstance(session.history[1].parts[0], Summary)


def test_a_summary_that_covers_another_replaces_it(tmp_path: Path) -> None:
    rows = [event("user", "One.", time=1), compaction("One.", 1, 1, time=2), event("user", "Two.", time=3)]
    assert texts_of(read(tmp_path, session_of(*rows, compaction("Both.", 1, 3, time=4)))) == ["Both."]


def test_a_summary_without_a_span_covers_everything_and_an_empty_one_nothing(tmp_path: Path) -> None:
    spanless = event("shop", actions={"compaction": {"compacted_content": {"parts": [{"text": "All."}]}}})
    assert texts_of(read(tmp_path, session_of(event("user", "One."), spanless))) == ["All."]
    empty = read(tmp_path, session_of(event("user", "One."), compaction("", 0, 9)))
    assert (texts_of(empty), empty.compactions, len(empty.problems)) == (["One."], 0, 1)


def test_a_rewind_moves_invocations_to_a_branch(tmp_path: Path) -> None:
    def rewind(invocation: str) -> Json:
        return event("user", invocation="e-9", actions={"rewind_before_invocation_id": invocation})

    rows = [
        event("user", "One.", id="a"),
        event("user", "Two.", invocation="e-2"),
        event("shop", "Three.", invocation="e-2"),
    ]
    session = read(tmp_path, session_of(*rows, rewind("e-2"), event("user", "Four.", invocation="e-3"), rewind("e-2")))
    assert texts_of(session) == ["One.", "Four."]
    assert [(branch.after_message_id, len(branch.history)) for branch in session.branches] == [("a", 2)]
    assert "does not exist" in session.problems[0].what


# --- the store -------------------------------------------------------------------------------------------------------

OLDER = """
CREATE TABLE sessions (app_name TEXT, user_id TEXT, id TEXT, state TEXT, create_time DATETIME, update_time DATETIME);
CREATE TABLE events (id TEXT, app_name TEXT, user_id TEXT, session_id TEXT, invocation_id TEXT, author TEXT,
  actions BLOB, timestamp DATETIME, content TEXT, usage_metadata TEXT);
INSERT INTO sessions VALUES ('shop', 'u', 's-1', '{}', '2026-01-01 10:00:00', '2026-01-01 10:00:01');
INSERT INTO events VALUES ('e1', 'shop', 'u', 's-1', 'i', 'user', x'8004', '2026-01-01 10:00:00.5',
  '{"role": "user", "parts": [{"text": "Hi."}]}', NULL);
INSERT INTO events VALUES ('e2', 'shop', 'u', 's-1', 'i', 'shop', x'8004', '2026-01-01 10:00:01', '{torn', NULL);
"""


def store(folder: Path, script: str) -> Path:
    path = folder / "session.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(script)
    return path


def test_the_older_store_is_read_without_unpickling(tmp_path: Path) -> None:
    (tmp_path / "shop" / ".adk").mkdir(parents=True)
    path = store(tmp_path / "shop" / ".adk", OLDER)
    assert th.sniff(path) == "adk"
    session = th.read(path)
    assert isinstance(session, th.Session)
    assert (session.id, texts_of(session), session.project) == ("s-1", ["Hi."], str(tmp_path / "shop"))
    assert session.history[0].time


def test_a_store_lists_its_sessions_and_reads_only_the_wanted_ones(tmp_path: Path) -> None:
    more = "INSERT INTO sessions VALUES ('shop', 'u', 's-2', '{}', '2026-01-02', '2026-01-02');"
    path = store(tmp_path, OLDER + more)
    before = list_session_versions(path)
    assert before
    assert [*before] == ["s-1", "s-2"]
    assert [one.id for one in th.read_all(path, is_wanted=lambda id_: id_ == "s-2")] == ["s-2"]
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("INSERT INTO events VALUES ('e3','shop','u','s-2','i','user',NULL,1,'{}',NULL)")
        connection.commit()
    after = list_session_versions(path)
    assert after
    assert (after["s-1"] == before["s-1"], after["s-2"] == before["s-2"]) == (True, False)


def test_sessions_with_the_same_id_get_unique_ids(tmp_path: Path) -> None:
    case = {"eval_id": "c", "conversation": [{"user_content": {"parts": [{"text": "Hi."}]}}]}
    cases = [case | {"eval_id": "c-3"}, case, case]
    sessions = th.read_all(write(tmp_path, {"eval_set_id": "e", "eval_cases": cases}))
    assert [one.id for one in sessions] == ["c-3", "c", "c-3-3"]
    more = """
INSERT INTO sessions VALUES ('shop', 'w', 's-1', '{}', '2026-01-02', '2026-01-02');
INSERT INTO events VALUES ('e1', 'shop', 'w', 's-1', 'i', 'user', NULL, 1, '{"parts": [{"text": "Ho."}]}', NULL);
"""
    path = store(tmp_path, OLDER + more)
    found = {one.id: texts_of(one) for one in th.read_all(path)}
    assert found == {"shop/u/s-1": ["Hi."], "shop/w/s-1": ["Ho."]}
    assert [*(list_session_versions(path) or ())] == [*found]


def test_another_database_is_not_claimed(tmp_path: Path) -> None:
    path = store(tmp_path, "CREATE TABLE sessions (id TEXT); CREATE TABLE events (id TEXT);")
    assert th.sniff(path) is None
    with pytest.raises(th.ThresherError, match="tables"):
        th.read(path, format="adk")


@pytest.mark.parametrize(
    "value",
    [
        [{"query": "What?", "reference": "That."}],
        [{"role": "user", "parts": [{"text": "Hi."}]}],
        [{"author": "someone", "content": "Hi."}],
        {"events": [], "id": "x"},
        {"data": [{"id": 1}]},
        {"conversation": []},
    ],
)
def test_other_documents_are_not_claimed(value: Any, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(json.dumps(value))
    assert th.sniff(tmp_path / "x.json") != "adk"


def test_an_unrelated_document_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text('{"name": "x"}')
    with pytest.raises(th.ThresherError, match="Agent Development Kit"):
        th.read(tmp_path / "x.json", format="adk")


def test_the_recordings_agree_with_their_counts(shared_data: Path) -> None:
    """Compare with the index, which counts prompts and answers of eval sets, not tools or intermediate responses."""
    found = [*recordings.indexed(shared_data, "adk")]
    assert len(found) == 17
    for expected, sessions in found:
        assert len(sessions) == expected["sessions"], expected["file"]
        [session] = sessions
        spoken = [message for message in session.messages() if message.text]
        human = [message for message in spoken if message.author == "human"]
        between = sum(count for author, count in session.records.items() if author not in ("user", "agent"))
        assert len(spoken) == 2 * len(human) + between, expected["file"]
        assert expected["msgs"] in (2 * len(human), 0), expected["file"]
        assert session.problems == ()
    messages = [message for _, sessions in found for session in sessions for message in session.messages()]
    calls = [part for message in messages for part in message.parts if isinstance(part, ToolCall)]
    assert (len(messages), len(calls)) == (138, 49)
    assert not any(isinstance(part, ToolResult) for message in messages for part in message.parts)
