"""Tests of the `opencode` format: unique IDs, steps, reverts, stores and malformed files."""

import gzip
import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import thresher as th
from fixture_files import FIXTURES, ready
from thresher.model import Image, Text, Thinking, ToolCall, ToolResult, Unknown, Usage
from thresher.replay.trace import trace_history
from thresher.transcripts import ReadLimits, list_session_versions
from thresher.transcripts.opencode.reader import FORMAT
from thresher.transcripts.source import SourceFile

Json = dict[str, Any]

FIXTURE = FIXTURES / "opencode.json"
START: Json = {"type": "step-start"}


def said(text: str, **fields: Any) -> Json:
    return {"type": "text", "text": text, **fields}


def tool(call: Any, **state: Any) -> Json:
    ended = {"status": "completed", "input": {"command": "ls"}, "output": "a\nb", "metadata": {}}
    return {"type": "tool", "callID": call, "tool": "bash", "state": ended | state}


def message(role: str, *parts: Any, **info: Any) -> Json:
    return {"info": {"role": role, **info}, "parts": list(parts)}


def read(folder: Path, *messages: Any, name: str = "export.json", **info: Any) -> th.Session:
    path = folder / name
    path.write_text(json.dumps({"info": {"id": "ses_1", "directory": "/w"} | info, "messages": messages}))
    assert th.sniff(path) == "opencode"
    session = th.read(path)
    assert isinstance(session, th.Session)
    return session


def results(session: th.Session) -> Iterator[ToolResult]:
    return (result for one in session.messages() for result in one.results)


def problem_texts(session: th.Session) -> list[str]:
    return [problem.what for problem in session.problems]


def test_calls_with_the_same_id_get_unique_ids(tmp_path: Path) -> None:
    session = read(
        tmp_path,
        message("user", said("Look."), id="REDACTED"),
        message("assistant", START, tool("REDACTED", output="one"), tool("REDACTED", output="two"), id="REDACTED"),
        message("assistant", START, tool("REDACTED", output="three"), tool("own", output="four"), id="msg_3"),
    )
    answers = {
        call.id: session.history[chain.result.message].parts[chain.result.part] for call, chain in pairs(session)
    }
    assert {id_: result.text for id_, result in answers.items() if isinstance(result, ToolResult)} == {
        "call-2-2": "one",
        "call-2-3": "two",
        "call-3-2": "three",
        "own": "four",
    }
    assert [one.id for one in session.history if one.role != "tool"] == ["message-1", "message-2", "msg_3"]
    assert problem_texts(session) == ["2 messages and 3 calls have no unique id"]


def pairs(session: th.Session) -> Iterator[tuple[ToolCall, Any]]:
    for chain in session.history.chains:
        call = session.history[chain.call.message].parts[chain.call.part]
        assert isinstance(call, ToolCall)
        yield call, chain


def test_generated_ids_do_not_collide(tmp_path: Path) -> None:
    wire = (tool("call-1-2"), tool("same"), tool("same"), tool(None), tool("call-1-3"), tool("call-1-3-"))
    session = read(tmp_path, message("assistant", *wire, id="message-1"))
    names = [call.id for call in session.history[0].calls]
    assert names == ["call-1-2", "call-1-2-", "call-1-3--", "call-1-4", "call-1-3", "call-1-3-"]
    assert session.history.orphans == ()


def test_each_step_of_a_message_is_a_model_call_with_its_own_usage(tmp_path: Path) -> None:
    def finish(count: int) -> Json:
        return {"type": "step-finish", "tokens": {"input": count, "output": 1, "cache": {"read": 2, "write": 0}}}

    two = (START, tool("a"), finish(10), START, said("Done."), finish(20))
    session = read(
        tmp_path, message("user", said("Go.")), message("assistant", *two, tokens={"input": 30, "output": 2})
    )
    assert [one.role for one in session.history] == ["user", "assistant", "tool", "assistant"]
    assert [one.usage.input for one in session.history if one.usage] == [10, 20]
    assert len({one.id for one in session.history}) == 4
    assert len(trace_history(session.history).calls) == 2


@pytest.mark.parametrize(("total", "output"), [(18, 3), (20, 5), (None, 3)])
def test_output_tokens_include_thinking_in_every_version(tmp_path: Path, total: int | None, output: int) -> None:
    tokens = {"total": total, "input": 10, "output": 3, "reasoning": 2, "cache": {"read": 4, "write": 1}}
    session = read(tmp_path, message("assistant", START, said("Hi."), tokens=tokens))
    assert session.history[0].usage == Usage(10, output, 4, 1, reasoning=2)


def test_harness_commands_have_no_model(tmp_path: Path) -> None:
    session = read(
        tmp_path,
        message("user", {"type": "subtask", "prompt": "Review it.", "agent": "build"}),
        message("assistant", tool("t"), modelID="m", tokens={"input": 0, "output": 0}),
        message("user", said("Go on.", synthetic=True)),
        message("assistant", START, said("Done."), modelID="m", tokens={"input": 1, "output": 1}),
    )
    assert [one.author for one in session.history] == ["human", "harness", "tool", "harness", "model"]
    assert (session.history[1].model, session.history[1].usage) == ("", None)
    assert [call.stop for call in trace_history(session.history).calls] == [4]


def test_an_unfinished_call_has_no_result(tmp_path: Path) -> None:
    open_calls = [tool("a", status="pending"), tool("b", status="running"), {"type": "tool", "callID": "c", "state": 7}]
    session = read(tmp_path, message("assistant", START, *open_calls))
    assert len(list(session.history[0].calls)) == 3
    assert list(results(session)) == []


def test_failed_results_are_errors(tmp_path: Path) -> None:
    cut = {"interrupted": True, "output": "half"}
    wire = [
        tool("a", status="error", error="no such file"),
        tool("b", status="error", error="aborted", metadata=cut),
        tool("c", metadata={"exit": 1}),
        tool("d", metadata={"exit": 0}),
        tool("e") | {"tool": "invalid"},
        tool("f", output={"not": "text"}),
    ]
    found = list(results(read(tmp_path, message("assistant", START, *wire))))
    assert [one.is_error for one in found] == [True, True, True, False, True, False]
    assert [one.text for one in found] == ["no such file", "half", "a\nb", "a\nb", "a\nb", '{"not":"text"}']


def test_images_are_read(tmp_path: Path) -> None:
    photo = {"type": "file", "mime": "image/png", "url": "data:image/png;base64,aGk="}
    linked = {"type": "file", "mime": "application/pdf", "url": "https://example.org/a.pdf"}
    as_text = {"type": "file", "mime": "text/plain", "url": "file:///w/a.txt"}
    session = read(
        tmp_path,
        message("user", photo, linked, as_text),
        message("assistant", START, tool("a", attachments=[photo, as_text, 5])),
    )
    assert session.history[0].parts == (Image("image/png", "aGk="), Image("application/pdf", url=linked["url"]))
    assert next(results(session)).content == (Text("a\nb"), Image("image/png", "aGk="), Unknown("", "5"))


def test_thinking_signatures_of_every_provider_are_read(tmp_path: Path) -> None:
    def thought(metadata: Any) -> Json:
        return {"type": "reasoning", "text": "Hm.", "metadata": metadata}

    wire = [
        thought({"anthropic": {"signature": "s"}}),
        thought({"openai": {"reasoningEncryptedContent": "e"}}),
        thought(3),
    ]
    session = read(tmp_path, message("assistant", START, *wire))
    assert session.history[0].parts == (Thinking("Hm.", "s"), Thinking("Hm.", "e"), Thinking("Hm."))


def test_a_session_can_be_reverted_to_the_middle_of_a_message(tmp_path: Path) -> None:
    parts = [START, said("First.", id="p1"), said("Second.", id="p2")]
    session = read(
        tmp_path,
        message("user", said("Talk."), id="m1"),
        message("assistant", *parts, id="m2"),
        message("user", said("More."), id="m3"),
        revert={"messageID": "m2", "partID": "p2"},
    )
    assert [one.text for one in session.history] == ["Talk.", "First."]
    assert [[one.text for one in branch.history] for branch in session.branches] == [["Second.", "More."]]
    assert [branch.after_message_id for branch in session.branches] == ["m2"]


def test_a_revert_to_an_unknown_message_removes_nothing(tmp_path: Path) -> None:
    session = read(tmp_path, *[message("user", said("Hi."), id="REDACTED")] * 2, revert={"messageID": "REDACTED"})
    assert (len(session.history), session.branches) == (2, ())
    assert "the session was reverted to a message that does not exist" in problem_texts(session)


def test_a_failed_summary_starts_no_segment(tmp_path: Path) -> None:
    compaction = message("user", {"type": "compaction", "auto": True})
    failed = message("assistant", START, said("Half a"), summary=True, error={"name": "APIError"})
    session = read(tmp_path, message("user", said("Hi.")), compaction, failed)
    assert (session.compactions, [one.text for one in session.history]) == (0, ["Hi.", "Half a"])


def test_a_summary_carries_over_only_the_named_tail(tmp_path: Path) -> None:
    rows = [message("user", said(text), id=f"m{number}") for number, text in enumerate(("One.", "Two.", "Three."))]
    for tail, carried in (("m1", ["Two.", "Three."]), ("m9", []), (None, [])):
        compaction = message("user", {"type": "compaction", "tail_start_id": tail}, id="c")
        summary = message("assistant", START, said("One was said."), summary=True, id="s")
        session = read(tmp_path, *rows, compaction, summary, message("user", said("Four."), id="m4"))
        assert [one.text for one in session.history] == ["One was said.", *carried, "Four."]
        assert [one.text for one in session.messages()] == ["One.", "Two.", "Three.", "One was said.", "Four."]


def test_the_number_of_carried_messages_is_limited(tmp_path: Path) -> None:
    rows = [message("user", said("Hi."), id="first")]
    for number in range(60):
        rows.append(message("user", {"type": "compaction", "tail_start_id": "first"}, id=f"c{number}"))
        rows.append(message("assistant", said("So far."), summary=True, id=f"s{number}"))
    session = read(tmp_path, *rows)
    assert session.compactions == 60
    assert sum(map(len, session.segments)) < 10 * len(rows) + 100
    assert [problem.done for problem in session.problems] == ["the last compactions keep none"]


def test_a_sub_agents_prompt_has_a_model_as_author(tmp_path: Path) -> None:
    session = read(tmp_path, message("user", said("Find it.")), title="find it (@build subagent)", parentID="ses_0")
    assert (session.parent, session.history[0].author) == ("ses_0", "model")


def test_a_session_without_an_id_is_named_after_its_file(tmp_path: Path) -> None:
    assert read(tmp_path, message("user", said("Hi.")), name="nightly.json", id="REDACTED").id == "nightly"


def test_a_compressed_export_reads_like_a_plain_one(tmp_path: Path) -> None:
    packed = tmp_path / "export.json.gz"
    packed.write_bytes(gzip.compress(FIXTURE.read_bytes()))
    plain, again = th.read(FIXTURE), th.read(packed)
    assert isinstance(plain, th.Session)
    assert isinstance(again, th.Session)
    assert [one.parts for one in again.messages(branches=True)] == [one.parts for one in plain.messages(branches=True)]


def test_malformed_messages_are_reported_and_the_rest_is_read(tmp_path: Path) -> None:
    odd: list[Any] = [
        None,
        {"info": {}},
        {"info": 3, "parts": []},
        message("user", said("Hi."), 5, {"type": 7}, {}, id="m"),
    ]
    session = read(tmp_path, *odd, message("oracle", said("Beware."), id="n"))
    assert [problem.line for problem in session.problems] == [1, 2, 3]
    assert [one.author for one in session.history] == ["human", "harness"]
    assert session.records == {"?": 6, "user": 1, "text": 2, "oracle": 1}
    assert [part.data for part in session.history[0].parts if isinstance(part, Unknown)] == ["5", '{"type":7}', "{}"]


def test_a_document_without_messages_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "e.json"
    path.write_text('{"info": {"id": "ses_1"}}')
    with pytest.raises(th.ThresherError, match="opencode export"):
        th.read(path, format="opencode")


# --- folders ---------------------------------------------------------------------------------------------------------


def put(path: Path, value: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))
    return path


@pytest.mark.parametrize("id_", ["ses_1/../../../outside", "ses_1/..", "ses_1/../ses_2", "ses_1\\..\\ses_2", "ses_\0"])
@pytest.mark.parametrize("layout", ["session/p1", "session/info"])
def test_an_id_cannot_leave_the_store(tmp_path: Path, id_: str, layout: str) -> None:
    storage = tmp_path / "storage"
    facts = put(storage / layout / "ses_1.json", {"id": id_, "time": {}})
    for folder in ("outside", "storage/message/ses_1", "storage/message/ses_2", "storage/session/message/ses_1"):
        put(tmp_path / folder / "msg_1.json", {"role": "user"})
    assert th.sniff(facts) == "opencode"
    [session] = th.read_all(facts)
    assert (session.files, len(session.history)) == ((), 0)
    assert [problem.done for problem in session.problems] == ["its messages are not read"]


def test_pipes_in_a_store_do_not_block(tmp_path: Path) -> None:
    facts = put(tmp_path / "session" / "p1" / "ses_1.json", {"id": "ses_1", "time": {}})
    put(tmp_path / "message" / "ses_1" / "msg_1.json", {"id": "m", "role": "user"})
    put(tmp_path / "part" / "msg_1" / "prt_1.json", said("Hi."))
    (tmp_path / "message" / "ses_1" / "msg_2.json").mkdir()
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "part" / "msg_1" / "prt_2.json")
    [session] = th.read_all(facts)
    assert [one.text for one in session.history] == ["Hi."]
    [session] = th.read_all(facts, limits=ReadLimits(line=30))
    assert [problem.done for problem in session.problems] == ["skipped"]


# --- the database ----------------------------------------------------------------------------------------------------


def store(folder: Path, *statements: str) -> Path:
    folder.mkdir(exist_ok=True)
    path = ready(FIXTURES / "opencode.store.sql", folder)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)
    return path


def newer(folder: Path, *rows: tuple[str, Json], id_: str = "ses_9", parent: str | None = None) -> th.Session:
    """Read a session of newer rows."""
    path = store(folder)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        facts = (id_, "p1", parent, None, "s", "/w", "Count", "1", None, None, None, 9, 9)
        connection.execute("INSERT INTO session VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", facts)
        for number, (kind, data) in enumerate(rows):
            row = (f"msg_9{number}", id_, kind, number, 9, 9, json.dumps(data))
            connection.execute("INSERT INTO session_message VALUES (?, ?, ?, ?, ?, ?, ?)", row)
    [session] = th.read_all(path, is_wanted=lambda wanted: wanted == id_)
    return session


def test_newer_rows_have_signatures_without_a_provider(tmp_path: Path) -> None:
    content = [{"type": "reasoning", "text": "Hm.", key: {"signature": "s"}} for key in ("native", "state")]
    assert newer(tmp_path, ("assistant", {"content": content})).history[0].parts == (Thinking("Hm.", "s"),) * 2


def test_newer_rows_contain_their_files(tmp_path: Path) -> None:
    inline = {"mime": "image/png", "data": "aGk="}
    files = [
        inline,
        {"mime": "image/png", "uri": "data:image/png;base64,aGk="},
        {"mime": "text/plain", "data": "aGk=", "name": "a.txt"},
        {"mime": "text/plain", "uri": "file:///w/a.txt"},
        {"mime": "text/plain", "data": "?"},
    ]
    state = {
        "status": "completed",
        "input": {},
        "content": [{"type": "text", "text": "ok"}, {"type": "file", **inline}],
    }
    tool = {"type": "tool", "id": "c", "name": "read", "state": state}
    session = newer(tmp_path, ("user", {"text": "See:", "files": files}), ("assistant", {"content": [tool]}))
    picture = Image("image/png", "aGk=")
    assert session.history[0].parts[:4] == (Text("See:"), picture, picture, Text("Attached file: a.txt\n\nhi"))
    assert [type(part) for part in session.history[0].parts[4:]] == [Unknown, Unknown]
    assert next(results(session)).content == (Text("ok"), picture)


def test_newer_results_can_be_data_and_a_command_can_be_running(tmp_path: Path) -> None:
    state = {"status": "completed", "input": {}, "structured": {"n": 1}, "content": []}
    shell = {"command": "sleep 9", "shellID": "sh", "status": "running"}
    tool = {"type": "tool", "id": "c", "name": "count", "state": state}
    session = newer(tmp_path, ("assistant", {"content": [tool]}), ("shell", shell))
    assert [(result.call_id, result.text) for result in results(session)] == [("c", '{"n":1}')]
    assert [call.id for one in session.history for call in one.calls] == ["c", "sh"]


@pytest.mark.parametrize("key", ["metadata", "structured"])
def test_a_newer_sub_agent_has_the_call_that_started_it(tmp_path: Path, key: str) -> None:
    def call(id_: str) -> Json:
        state = {"status": "completed", "input": {"prompt": "Count."}, key: {"sessionID": "ses_9"}}
        return {"type": "tool", "id": id_, "name": "subagent", "state": state}

    newer(tmp_path, ("assistant", {"content": [call("first"), call("again")]}), id_="ses_8")
    with closing(sqlite3.connect(tmp_path / "opencode.store.db", isolation_level=None)) as connection:
        facts = ("ses_9", "p1", "ses_8", None, "s", "/w", "Count", "1", None, None, None, 9, 9)
        connection.execute("INSERT INTO session VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", facts)
        row = ("msg_8", "ses_9", "user", 1, 9, 9, '{"text": "Count."}')
        connection.execute("INSERT INTO session_message VALUES (?, ?, ?, ?, ?, ?, ?)", row)
    [child] = th.read_all(tmp_path / "opencode.store.db", is_wanted=lambda wanted: wanted == "ses_9")
    assert (child.parent, child.call_id, child.history[0].author) == ("ses_8", "first", "model")


def test_rows_use_their_own_ids_and_need_one(tmp_path: Path) -> None:
    path = store(
        tmp_path,
        "UPDATE session SET id = 'other' WHERE id = 'ses_s2CHILD'",
        "UPDATE session SET id = NULL WHERE id = 'ses_s3NEWER'",
    )
    assert [session.id for session in th.read_all(path)] == ["ses_s1MAIN", "other"]
    assert {*(list_session_versions(path) or {})} == {"ses_s1MAIN", "other"}


@pytest.mark.parametrize(
    "lost", ["session DROP COLUMN time_updated", "part DROP COLUMN message_id", "message RENAME TO m"]
)
def test_tables_without_required_columns_are_not_a_store(tmp_path: Path, lost: str) -> None:
    path = store(tmp_path, f"ALTER TABLE {lost}", "DROP TABLE session_message")
    assert th.sniff(path) is None
    with pytest.raises(th.ThresherError):
        th.read_all(path)


def test_a_store_that_was_briefly_unreadable_is_not_treated_as_empty(tmp_path: Path) -> None:
    source = SourceFile(store(tmp_path))
    source.tables = {}
    assert [len(session.history) > 0 for session in FORMAT.read(source)] == [True] * 3
    other = store(tmp_path / "other", "DROP TABLE message", "DROP TABLE session_message")
    with pytest.raises(th.ThresherError, match="has no opencode tables"):
        th.read_all(other, format="opencode")


def test_the_environment_can_name_a_database(tmp_path: Path) -> None:
    data = tmp_path / ".local" / "share" / "opencode"
    for named, folder in (("mine[1].db", data), ("/srv/mine[1].db", Path("/srv"))):
        first = FORMAT.homes({"OPENCODE_DB": named}, tmp_path)[0]
        assert (first.folder, first.pattern) == (folder, "mine[[]1].db")
    assert FORMAT.homes({}, tmp_path)[0].folder == data
