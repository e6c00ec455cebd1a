"""Tests of the `cline` format: sidecar files, summaries and truncation, blocks of every version, malformed files."""

import gzip
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import recordings
import thresher as th
from thresher.model import Image, Message, Summary, Text, Thinking, ToolCall, ToolResult, Unknown, Usage
from thresher.model.jsontext import load_json
from thresher.transcripts.cline.homes import find_cline_homes
from thresher.transcripts.cline.reader import FORMAT
from thresher.transcripts.source import ReadLimits

Json = dict[str, Any]

FIXTURE = Path(__file__).parents[1] / "fixtures" / "cline.json"
START = 1_760_000_000_000
EDITOR = "<environment_details>\n# Current Cost\n$0.01\n</environment_details>"
READ = "I look.\n\n<read_file>\n<path>a.py</path>\n</read_file>"


def user(*content: Any, **row: Any) -> Json:
    return {"role": "user", "content": [said(one) if isinstance(one, str) else one for one in content], **row}


def assistant(*content: Any, **row: Any) -> Json:
    return user(*content, **row) | {"role": "assistant"}


def said(text: str) -> Json:
    return {"type": "text", "text": text}


def use(id_: Any, name: str = "read_file", **given: Any) -> Json:
    return {"type": "tool_use", "id": id_, "name": name, "input": given}


def result(id_: Any, content: Any = "done", **fields: Any) -> Json:
    return {"type": "tool_result", "tool_use_id": id_, "content": content, **fields}


def task(folder: Path, *rows: Any, **sidecars: Any) -> Path:
    """Write a task's folder in an editor's storage, with sidecar files by name."""
    root = folder / "globalStorage" / "ext"
    path = root / "tasks" / "t1" / "api_conversation_history.json"
    for name, value in (("tasks/t1/api_conversation_history", rows), *sidecars.items()):
        target = root / ("state/taskHistory" if name == "taskHistory" else f"tasks/t1/{Path(name).name}")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.with_suffix(".json").write_text(value if isinstance(value, str) else json.dumps(value))
    return path


def read(path: Path) -> th.Session:
    assert th.sniff(path) == "cline"
    session = th.read(path)
    assert isinstance(session, th.Session)
    return session


def listed(folder: Path, *rows: Any, **options: Any) -> th.Session:
    """A list of messages that stands alone."""
    path = folder / "list.json"
    path.write_text(json.dumps([user("<task>\nGo.\n</task>", EDITOR, ts=START), *rows], **options))
    return read(path)


def core(folder: Path, *rows: Any, name: str = "s1", **fields: Any) -> Path:
    """A session of the Cline CLI."""
    path = folder / "sessions" / "s1" / f"{name}.messages.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    head = {"version": 1, "updated_at": "2026-01-01T00:00:00Z", "agent": "lead", "sessionId": "s1"}
    path.write_text(json.dumps(head | fields | {"messages": rows}))
    return path


def texts(session: th.Session) -> list[list[str]]:
    """The words of each segment; what was only repeated in brackets."""
    return [[f"({m.text})" if m.carried else m.text for m in segment] for segment in session.segments]


def seconds(message: Message) -> float:
    assert message.time
    return message.time.timestamp() - START / 1000


# Sidecar files of a task


def request(at: int, *, last: int | None = None, **fields: Any) -> Json:
    index = {} if last is None else {"conversationHistoryIndex": last}
    return {"ts": START + at * 1000, "type": "say", "say": "api_req_started", "text": json.dumps(fields), **index}


ROWS = (user("<task>\nGo.\n</task>", EDITOR), assistant("One."), user("On.", EDITOR), assistant("Two."))


def test_times_usage_and_models_come_from_the_ui_messages(tmp_path: Path) -> None:
    seen = [
        {"ts": START, "type": "say", "say": "text", "text": "Go."},
        request(1, last=-1, tokensIn=10, tokensOut=2, cacheReads=3, cacheWrites=4, cost=0.1)
        | {"modelInfo": {"modelId": "m1"}},
        request(5, last=1, streamingFailedMessage="lost"),
        request(7, last=1, tokensIn=20, tokensOut=5),
    ]
    session = read(task(tmp_path, *ROWS, ui_messages=seen))
    assert [message.usage for message in session.history] == [None, Usage(10, 2, 3, 4), None, Usage(20, 5)]
    assert list(map(seconds, session.history)) == [1, 1, 7, 7]
    assert [message.model for message in session.history] == ["", "m1", "", ""]
    assert session.id == "t1"
    assert session.files == (str(tmp_path / "globalStorage/ext/tasks/t1/ui_messages.json"),)


def test_usage_is_matched_by_time(tmp_path: Path) -> None:
    rows = [row | {"ts": START + number * 10_000} for number, row in enumerate(ROWS)]
    seen = [
        request(1, tokensIn=10, tokensOut=1, cacheReads=6, apiProtocol="openai"),
        request(22, tokensIn=7, tokensOut=1, cacheReads=6, apiProtocol="anthropic"),
        request(99, tokensIn=1, tokensOut=1),
    ]
    session = read(task(tmp_path, *rows, ui_messages=seen))
    assert [message.usage for message in session.history][1::2] == [Usage(4, 1, 6), Usage(7, 1, 6)]


def test_usage_without_an_index_is_matched_in_order_if_the_counts_are_equal(tmp_path: Path) -> None:
    seen = [request(1, tokensIn=1, tokensOut=1), request(2, tokensIn=2, tokensOut=1)]
    assert [m.usage for m in read(task(tmp_path, *ROWS, ui_messages=seen)).history][1::2] == [Usage(1, 1), Usage(2, 1)]
    partial = read(task(tmp_path, *ROWS, ui_messages=seen[:1]))
    assert [message.usage for message in partial.history] == [None] * 4


def test_facts_of_a_task_come_from_the_task_history(tmp_path: Path) -> None:
    facts = {"id": "t1", "task": "Go on.", "cwdOnTaskInitialization": "/w", "modelId": "m0", "ts": START}
    metadata = {
        "model_usage": [{"ts": START + 5000, "model_id": "m2"}, {"ts": START, "model_id": "m1"}],
        "environment_history": [{"cline_version": "3.50.0"}, {"cline_version": "3.51.0"}],
    }
    path = task(tmp_path, *ROWS, taskHistory=[{"id": "t0", "task": "No."}, facts, 7], task_metadata=metadata)
    session = read(path)
    assert (session.project, session.title, session.version) == ("/w", "Go on.", "3.51.0")
    assert session.files == (str(path.with_name("task_metadata.json")),), "the list changes with every other task"
    assert session.history[1].model == "m0"
    timed = [row | {"ts": START + 6000 * number} for number, row in enumerate(ROWS)]
    assert [m.model for m in read(task(tmp_path, *timed)).history][1::2] == ["m2", "m2"]


def test_a_changed_task_history_is_read_again(tmp_path: Path) -> None:
    for title in ("First.", "The second."):
        assert read(task(tmp_path, *ROWS, taskHistory=[{"id": "t1", "task": title}])).title == title


def test_a_roo_task_has_a_parent(tmp_path: Path) -> None:
    item = {"id": "t1", "number": 2, "task": "Find it.", "workspace": "/w", "parentTaskId": "t0", "rootTaskId": "t0"}
    session = read(task(tmp_path, *ROWS, history_item=item))
    assert (session.parent, session.project, session.title) == ("t0", "/w", "Find it.")
    assert [message.author for message in session.history] == ["model", "model", "human", "model"]


def test_unreadable_sidecar_files_are_reported(tmp_path: Path) -> None:
    session = read(task(tmp_path, *ROWS, ui_messages="{torn", history_item="[" * 9, taskHistory="?"))
    assert [problem.what for problem in session.problems] == [
        "`ui_messages.json` in the same folder cannot be read",
        "`history_item.json` in the same folder cannot be read",
    ]
    assert len(session.history) == 4


def test_malformed_facts_are_ignored(tmp_path: Path) -> None:
    odd = [None, 7, {"say": "api_req_started", "text": "no", "ts": "no", "conversationHistoryDeletedRange": [None]}]
    session = read(task(tmp_path, *ROWS, ui_messages=odd, history_item=[7], task_metadata={"model_usage": [7]}))
    assert (len(session.segments), len(session.history), session.problems) == (1, 4, ())


def test_the_editor_state_has_the_folder_and_the_model(tmp_path: Path) -> None:
    state = (
        "<environment_details>\n<model>m1</model>\n# Current Workspace Directory (/w/a b) Files\n</environment_details>"
    )
    session = listed(tmp_path, assistant("Hm."), user(state), assistant("Hi."))
    assert (session.project, [message.model for message in session.history][1::2]) == ("/w/a b", ["", "m1"])


def test_the_last_segment_excludes_messages_that_cline_no_longer_sends(tmp_path: Path) -> None:
    rows = [row for n in range(4) for row in (user(f"q{n}", ts=START), assistant(f"a{n}"))]
    seen = [{"conversationHistoryDeletedRange": [2, 3]}, {"conversationHistoryDeletedRange": [2, 5]}, {"ts": START}]
    session = read(task(tmp_path, *rows, ui_messages=seen))
    assert texts(session) == [["q0", "a0", "q1", "a1", "q2", "a2"], ["(q0)", "(a0)", "q3", "a3"]]
    assert (session.compactions, len(list(session.messages()))) == (0, 8)
    whole = read(task(tmp_path, *rows, ui_messages=[{"conversationHistoryDeletedRange": [2, 7]}]))
    assert len(whole.segments) == 1


# Summaries and truncation


def test_a_summary_hides_the_summarized_messages(tmp_path: Path) -> None:
    session = listed(
        tmp_path,
        assistant("a", condenseParent="c1"),
        assistant("First sum.", isSummary=True, condenseId="c1", condenseParent="c2"),
        user("b", condenseParent="c2"),
        assistant("Second sum.", isSummary=True, condenseId="c2"),
        user("c"),
    )
    first = f"<task>\nGo.\n</task>\n{EDITOR}"
    assert texts(session) == [[first, "a"], ["First sum.", f"({first})", "b"], ["Second sum.", f"({first})", "c"]]
    assert session.compactions == 2
    assert [type(segment[0].parts[0]) for segment in session.segments[1:]] == [Summary, Summary]


def test_a_summary_in_a_user_message_is_the_first_message(tmp_path: Path) -> None:
    outline = "<system-reminder>\n## a.py\n</system-reminder>"
    rows = [user("<task>\nGo.\n</task>", EDITOR, condenseParent="c1", ts=START), assistant("a", condenseParent="c1")]
    summary = user("## Conversation Summary\nSum.", outline, isSummary=True, condenseId="c1")
    session = read(task(tmp_path, *rows, summary, assistant("b")))
    assert texts(session)[1:] == [[f"## Conversation Summary\nSum.\n{outline}", "b"]]
    assert session.history[0].parts == (Summary("## Conversation Summary\nSum."), Text(outline))


def test_calls_kept_with_a_summary_are_answered(tmp_path: Path) -> None:
    session = listed(
        tmp_path,
        assistant("a", use("u1", path="a.py"), condenseParent="c1"),
        assistant(
            {"type": "reasoning", "text": "Hm."}, "Sum.", use("u1", path="a.py"), isSummary=True, condenseId="c1"
        ),
        user(result("u1")),
        assistant("b"),
    )
    assert [(m.role, m.carried) for m in session.history] == [
        ("user", False),
        ("assistant", True),
        ("user", True),
        ("tool", False),
        ("assistant", False),
    ]
    assert session.history[0].parts == (Summary("Hm."), Summary("Sum."))
    assert len(list(session.messages())) == 5, "the call is counted once"


def test_only_the_last_truncation_starts_a_segment(tmp_path: Path) -> None:
    marker = {"isTruncationMarker": True}
    session = listed(
        tmp_path,
        assistant("a", truncationParent="x1"),
        user("cut 1", truncationId="x1", truncationParent="x2", **marker),
        user("b", truncationParent="x2"),
        user("cut 2", truncationId="x2", **marker),
        assistant("c"),
    )
    first = f"<task>\nGo.\n</task>\n{EDITOR}"
    assert texts(session) == [[first, "a", "cut 1", "b"], [f"({first})", "cut 2", "c"]]
    assert session.compactions == 0
    assert [m.author for m in session.history][:2] == ["human", "harness"]


def test_a_summary_at_the_start_leaves_no_empty_segment(tmp_path: Path) -> None:
    kind = {"metadata": {"kind": "compaction_summary", "summary": "Sum."}}
    session = read(core(tmp_path, user("Context summary:\n\nSum.", **kind), user("Hi.", ts=START)))
    assert texts(session) == [["Context summary:\n\nSum.", "Hi."]]
    assert (session.compactions, session.title) == (1, "Hi.")


def test_compaction_notices_are_summaries(tmp_path: Path) -> None:
    note = "<SYSTEM_NOTICE>\nEarlier context was compacted. Summary of your actions:\nnone</SYSTEM_NOTICE>"
    session = read(core(tmp_path, user("Go.", note, metadata={"kind": "compaction"}), assistant("a")))
    assert session.history[0].parts == (Text("Go."), Summary(note))
    assert (session.history[0].author, session.compactions, len(session.segments)) == ("human", 1, 1)


# Sessions of the core


def test_facts_of_a_session_come_from_its_sidecar_file(tmp_path: Path) -> None:
    path = core(tmp_path, user("Go."), assistant("a"), system_prompt="Be brief.")
    origin = {"fork": {"forkedFromSessionId": "s0"}, "sessionHistoryOrigin": {"version": "1.2"}}
    manifest = {"session_id": "s1", "cwd": "/w", "prompt": "Go.", "metadata": {"title": "Going"} | origin}
    path.with_name("s1.json").write_text(json.dumps(manifest))
    session = read(path)
    facts = (session.id, session.project, session.title, session.version, session.parent)
    assert facts == ("s1", "/w", "Going", "1.2", "s0")
    assert [(m.role, m.author) for m in session.history][:2] == [("system", "harness"), ("user", "human")]
    assert session.files == (str(path.with_name("s1.json")),)


def test_replacement_messages_come_from_the_compaction_file(tmp_path: Path) -> None:
    rows = [user("q1", id="m1"), assistant("a1", id="m2"), user("q2", id="m3"), assistant("a2", id="m4")]
    path = core(tmp_path, *rows, system_prompt="Be brief.")
    shown = [user("Sum.", metadata={"kind": "compaction_summary"}), rows[2]]
    state = {"version": 1, "source_message_count": 3, "messages": shown}
    beside = path.with_name("s1.compaction.json")
    beside.write_text(json.dumps(state))
    session = read(path)
    assert texts(session) == [["Be brief.", "q1", "a1", "q2"], ["(Be brief.)", "Sum.", "(q2)", "a2"]]
    assert (session.compactions, session.files) == (1, (str(beside),))
    assert session.history[1].source
    assert session.history[1].source.file == str(beside)
    beside.write_text(json.dumps(state | {"source_message_count": 9}))
    assert len(read(path).segments) == 1, "it belongs to another conversation"


def test_a_sub_agents_id_includes_its_owner(tmp_path: Path) -> None:
    core(tmp_path).with_name("s1.json").write_text(json.dumps({"cwd": "/w", "metadata": {"title": "Going"}}))
    session = read(core(tmp_path, user("Find it."), assistant("a"), name="agent_7", agent="subagent"))
    assert (session.id, session.parent, session.project, session.title) == ("s1__agent_7", "s1", "/w", "Find it.")
    assert session.history[0].author == "model"


def test_results_of_the_core_are_text(tmp_path: Path) -> None:
    done = {"query": "a.py", "result": "1 | x", "success": True}
    failed = {"query": "b.py", "result": "", "error": "not found", "success": False}
    packed = json.dumps({"query": "edit", "result": [1]}, separators=(",", ":"))
    rows = [
        assistant(use("u1"), use("u2"), use("u3")),
        user(result("u1", [done, failed]), result("u2", packed), result("u3", [said("ok"), 5])),
    ]
    found = [one for m in read(core(tmp_path, *rows)).history for one in m.results]
    assert [one.text for one in found] == ["a.py\n1 | x\nb.py\nnot found", "edit\n[1]", "ok"]
    assert [one.is_error for one in found] == [True, False, False]
    assert found[2].content[1] == Unknown("", "5")


def test_a_result_block_can_start_with_a_result_header(tmp_path: Path) -> None:
    denied = "[execute_command for 'x'] Result:\nThe user denied this operation."
    session = listed(tmp_path, assistant(use("u1", "execute_command")), user(result("u1", denied), EDITOR))
    [answered] = [one for m in session.history for one in m.results]
    assert (answered.text, answered.is_error) == (denied, True)


# Calls, thoughts and other blocks


def test_xml_calls_are_answered_by_the_next_message(tmp_path: Path) -> None:
    session = listed(
        tmp_path,
        assistant(READ),
        user("[read_file for 'a.py'] Result:", "x = 1", EDITOR, ts=START),
        assistant("<attempt_completion><result>Done.</result></attempt_completion>"),
    )
    assert [(m.role, m.author, m.id) for m in session.history][1:] == [
        ("assistant", "model", "2"),
        ("tool", "tool", "3-results"),
        ("user", "harness", "3"),
        ("assistant", "model", "4"),
    ]
    assert [chain.result is None for chain in session.history.chains] == [False, True]
    assert th.check(session.history) != (), "the last call waits"
    answered = session.history[2].parts[0]
    assert isinstance(answered, ToolResult)
    assert (answered.call_id, answered.name) == ("call-2-1", "read_file")


def test_a_conversation_with_call_blocks_has_no_xml_calls(tmp_path: Path) -> None:
    session = listed(
        tmp_path,
        assistant(READ),
        assistant(READ, use("u1")),
        user(result("u1"), "[read_file] Result:"),
        assistant(READ),
    )
    assert [[call.id for call in message.calls] for message in session.history] == [
        [],
        ["call-2-1"],
        ["u1"],
        [],
        [],
        [],
    ]


def test_calls_without_a_unique_id_get_one(tmp_path: Path) -> None:
    session = listed(
        tmp_path,
        assistant(use("same", path="a"), use(None, path="b"), use("call-2-2", path="c")),
        user(result("same", "a"), result(None, "b"), result("call-2-2", "c")),
        assistant(use("same", path="d")),
        user(result("same", "d"), result("other", "e")),
    )
    history = session.history
    pairs = [(history.part(chain.call), history.part(chain.result)) for chain in history.chains if chain.result]
    assert [(c.id, r.text) for c, r in pairs if isinstance(c, ToolCall) and isinstance(r, ToolResult)] == [
        ("same", "a"),
        ("call-2-1", "b"),
        ("call-2-2", "c"),
        ("call-4-1", "d"),
    ]
    assert len(history.orphans) == 1
    assert [problem.what for problem in session.problems] == ["2 calls have no unique id"]


def test_messages_with_the_same_id_get_unique_ids(tmp_path: Path) -> None:
    session = listed(tmp_path, user("a", id="4"), user("b", id="4"), user("c", id=7))
    assert [message.id for message in session.history] == ["1", "4", "3", "4-"]


def test_blocks_of_the_second_version_are_read(tmp_path: Path) -> None:
    rows = [
        user("<task>\nGo.\n</task>", ts=START),
        {"type": "reasoning", "encrypted_content": "e", "summary": [{"text": "Hm."}], "ts": START},
        assistant(
            {"type": "reasoning", "text": "So.", "providerOptions": {"anthropic": {"signature": "s"}}},
            {"type": "tool-call", "toolCallId": "u1", "toolName": "read_file", "input": {"path": "a"}},
        ),
        {
            "role": "tool",
            "content": [{"type": "tool-result", "toolCallId": "u1", "output": {"type": "error-text", "value": "no"}}],
        },
        user({"type": "image", "image": "data:image/png;base64,aGk="}),
    ]
    path = tmp_path / "v2.json"
    path.write_text(json.dumps({"version": 2, "messages": rows}))
    history = read(path).history
    assert history[1].parts == (Thinking("Hm.", "e"),)
    assert history[2].parts == (Thinking("So.", "s"), ToolCall("u1", "read_file", '{"path":"a"}'))
    assert history[3].parts == (ToolResult("u1", (Text("no"),), is_error=True),)
    assert history[4].parts == (Image("image/png", "aGk="),)


def test_thinking_is_read_from_every_field(tmp_path: Path) -> None:
    details = {"reasoning_details": [{"type": "reasoning.text", "text": "So.", "signature": "s"}, 7]}
    session = listed(
        tmp_path,
        assistant({"type": "thinking", "thinking": "So.", "signature": "s"}, "a", **details),
        assistant("a", **details),
        assistant(said("a") | details),
        assistant("a", reasoning_content="So."),
        assistant({"type": "redacted_thinking", "data": "s"}),
        assistant("<thinking>So.</thinking>"),
    )
    assert [m.parts[0] for m in session.history][1:] == [
        *[Thinking("So.", "s")] * 3,
        Thinking("So."),
        Thinking("", "s"),
        Thinking("So."),
    ]


def test_newer_messages_include_their_usage(tmp_path: Path) -> None:
    session = listed(
        tmp_path,
        assistant("a", metrics={"tokens": {"prompt": 10, "completion": 2, "cached": 4}}, modelInfo={"modelId": "m"}),
        assistant("b", metrics={"inputTokens": 10, "outputTokens": 2, "cacheReadTokens": 4, "cacheWriteTokens": 1}),
        assistant("c", metrics={"cost": 0}),
    )
    assert [message.usage for message in session.history][1:] == [Usage(6, 2, 4), Usage(5, 2, 4, 1), None]
    assert session.history[1].model == "m"


def test_images_and_files_are_read(tmp_path: Path) -> None:
    session = listed(
        tmp_path,
        user(
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}},
            {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}},
            {"type": "image", "data": "aGk=", "mediaType": "image/png"},
            {"type": "image"},
            {"type": "file", "path": "/w/a", "content": "x"},
            {"type": "hologram"},
        ),
    )
    assert session.history[1].parts == (
        Image("image/png", "aGk="),
        Image(url="https://example.org/a.png"),
        Image("image/png", "aGk="),
        Unknown("image", '{"type":"image"}'),
        Text('<file_content path="/w/a">\nx\n</file_content>'),
        Unknown("hologram", '{"type":"hologram"}'),
    )


# Malformed files


def test_malformed_messages_are_reported_and_the_rest_is_read(tmp_path: Path) -> None:
    odd: list[Any] = [None, 7, {"role": "user"}, user(), assistant(""), {"content": "x"}, user("y") | {"role": ["z"]}]
    session = listed(tmp_path, *odd, assistant("Still here."))
    assert [problem.line for problem in session.problems] == [2, 3, 4, 5, 6]
    assert [(m.text, m.author) for m in session.history][1:] == [
        ("x", "harness"),
        ("y", "harness"),
        ("Still here.", "model"),
    ]
    assert session.records == {"user": 3, "text": 5, "?": 4, "assistant": 2}


def test_a_deeply_nested_document_is_not_detected(tmp_path: Path) -> None:
    text = json.dumps([user("<task>\nGo.\n</task>"), assistant(use("u1", deep="@")), assistant("Still here.")])
    (tmp_path / "deep.json").write_text(text.replace('"@"', "[" * 5000 + "]" * 5000))
    assert th.sniff(tmp_path / "deep.json") is None


def test_a_compressed_file_reads_like_a_plain_one(tmp_path: Path) -> None:
    packed = tmp_path / "task.json.gz"
    packed.write_bytes(gzip.compress(FIXTURE.read_bytes()))
    assert [one.parts for one in read(packed).messages()] == [one.parts for one in read(FIXTURE).messages()]


def test_a_document_on_one_line_can_be_longer_than_a_record(tmp_path: Path) -> None:
    path = tmp_path / "list.json"
    path.write_text(json.dumps([user("<task>\nGo.\n</task>", EDITOR, ts=START), assistant("Done. " * 99)]))
    session = th.read(path, limits=ReadLimits(line=200))
    assert isinstance(session, th.Session)
    assert (session.agent, len(session.history)) == ("cline", 2)


def test_a_document_without_messages_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text('{"sessionId": "s1"}')
    with pytest.raises(th.ThresherError, match="Cline"):
        th.read(path, format="cline")


HI, HELLO = {"role": "user", "content": "Hi."}, {"role": "assistant", "content": [said("Hello.")]}
CLAIMED: dict[str, tuple[Any, str, int]] = {
    "messages": ([HI, HELLO], "a.json", 0),
    "messages with calls": ([HI, assistant(use("u1")), user(result("u1"))], "a.json", 0),
    "a request": ({"model": "m", "messages": [user(EDITOR)]}, "a.json", 0),
    "a session of another agent": ({"sessionId": "s1", "agent": "build", "messages": [HI]}, "a.json", 0),
    "words about the editor": ([user("What is <environment_details>?")], "a.json", 0),
    "nothing": ([], "a.json", 0),
    "an object": ({"messages": 7}, "a.json", 0),
    "a name on other things": ([1, 2], "api_conversation_history.json", 0),
    "messages by that name": ([HI, HELLO], "api_conversation_history.json", 3),
    "an empty task": ([], "api_conversation_history.json", 3),
    "times": ([HI | {"ts": START}], "a.json", 2),
    "a task": ([user("<task>\nGo.\n</task>")], "a.json", 2),
    "the editor's state": ([user("Hi.", EDITOR)], "a.json", 3),
    "a result": ([HI, HELLO, user("[read_file for 'a'] Result:")], "a.json", 3),
}


@pytest.mark.parametrize(("value", "name", "score"), CLAIMED.values(), ids=list(CLAIMED))
def test_only_clines_own_files_are_detected(tmp_path: Path, value: Any, name: str, score: int) -> None:
    path = tmp_path / name
    path.write_text(json.dumps(value))
    assert (th.sniff(path) == "cline") is (score > 0)


# Discovery


def test_tasks_of_every_editor_and_cli_are_discovered(tmp_path: Path) -> None:
    name = "api_conversation_history.json"
    kept = {
        ".config/Code/User/globalStorage/saoudrizwan.claude-dev/tasks/1/" + name,
        ".config/VSCodium/User/globalStorage/kilocode.kilo-code/tasks/2/" + name,
        ".config/Cursor/User/globalStorage/rooveterinaryinc.roo-cline/tasks/3/" + name,
        ".vscode-server/data/User/globalStorage/rooveterinaryinc.roo-cline/tasks/4/" + name,
        ".cline/data/tasks/5/" + name,
        ".cline/data/sessions/s1/s1.messages.json",
        ".cline/data/sessions/s1/agent_7.messages.json",
        ".kilocode/cli/global/tasks/6/" + name,
    }
    others = {".cline/data/sessions/s1/s1.json", ".config/Code/User/globalStorage/x/tasks/1/ui_messages.json"}
    for one in kept | others:
        (tmp_path / one).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / one).write_text("[]")
    if sys.platform == "linux":
        found = th.discover(environment={}, home=tmp_path, formats=["cline"])
        assert {one.path.relative_to(tmp_path).as_posix() for one in found} == kept


@pytest.mark.parametrize(
    ("platform", "environment", "folder"),
    [
        ("linux", {"XDG_CONFIG_HOME": "/c"}, "/c/Code/User/globalStorage"),
        ("darwin", {}, "/h/Library/Application Support/Windsurf/User/globalStorage"),
        ("win32", {"APPDATA": "/r"}, "/r/Code - Insiders/User/globalStorage"),
        ("win32", {}, "/h/AppData/Roaming/Code/User/globalStorage"),
        ("linux", {"CLINE_DIR": "/d"}, "/d/data/sessions"),
        ("linux", {"CLINE_DIR": "/d", "CLINE_DATA_DIR": "/e"}, "/e/sessions"),
        ("linux", {"CLINE_DATA_DIR": "/e", "CLINE_SESSION_DATA_DIR": "/s"}, "/s"),
    ],
)
def test_homes_depend_on_platform_and_environment(platform: str, environment: dict[str, str], folder: str) -> None:
    assert folder in {home.folder.as_posix() for home in find_cline_homes(environment, Path("/h"), platform)}
    assert all(home.folder.is_relative_to("/h") for home in find_cline_homes({}, Path("/h"), platform))


# Recordings

XML_COUNTS = {
    "roo-heavy-uncondensed": (27, 26),
    "roo-natural-already-condensed": (13, 11),
    "roo-synthetic-1-heavy-write": (29, 28),
    "roo-synthetic-3-tool-dedup": (46, 45),
}
"""Numbers of XML calls and results in the recordings. The last call of each ends the task and has no result. In one
recording, the user's next prompt answers the first of two such calls."""


def test_recordings_match_their_index(shared_data: Path) -> None:
    """Compare with the index, which counts neither XML calls, nor results in messages with other content, nor system
    prompts."""
    for row, sessions in recordings.indexed(shared_data, "cline_roo"):
        [session] = sessions
        messages = [message for message in session.messages() if message.role != "system"]
        assert (session.agent, session.problems) == (FORMAT.name, ())
        assert len({message.source.line for message in messages if message.source}) == row["msgs"]
        calls = sum(len(list(message.calls)) for message in messages)
        results = sum(len(list(message.results)) for message in messages)
        name = Path(row["file"]).name.rpartition("-")[0]
        assert (calls, results) == XML_COUNTS.get(name, (row["calls"], row["calls"]))
        assert all(not segment.orphans for segment in session.segments)
        assert session.compactions == {"cline-001": 1, "cline-002": 1}.get(
            Path(row["file"]).stem, int("already-condensed" in name)
        )


def words(text: str) -> set[str]:
    return set(re.findall(r"\w+", re.sub(r"</?[\w.\-]+>", " ", text)))


def leaves(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from leaves(inner)


def test_no_text_of_a_recording_is_lost(shared_data: Path) -> None:
    for path in sorted((shared_data / "cline_roo").glob("roo-*")):
        kept: dict[int, set[str]] = {}
        for message in read(path).messages():
            said = kept.setdefault(message.source.line if message.source else 0, set())
            for part in message.parts:
                leaf_texts = (
                    leaves(load_json(part.arguments)) if isinstance(part, ToolCall) else [getattr(part, "text", "")]
                )
                said.update(*map(words, leaf_texts))
        for number, row in enumerate(json.loads(gzip.decompress(path.read_bytes())), 1):
            assert set().union(*(words(one) for one in leaves(row["content"]))) - {"text"} <= kept[number]
