"""Lists of messages that match no dialect: their keys, their speakers, and lists that are not conversations."""

import gzip
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

import recordings
import thresher as th
from thresher.errors import UnknownFormatError
from thresher.model import Image, Message, Text, Thinking, ToolCall, ToolResult, Unknown, Usage
from thresher.transcripts.lenient_parser import parse_calls_as_text, parse_python_call

Json = dict[str, Any]

HUMAN: Json = {"role": "human", "content": "How many files are here?"}
MODEL: Json = {"role": "ai", "content": "Two."}


def write(folder: Path, value: Any, name: str = "talk.json") -> Path:
    path = folder / name
    lines = name.endswith(".jsonl")
    path.write_text("".join(f"{json.dumps(row)}\n" for row in value) if lines else json.dumps(value, indent=1))
    return path


def read_all(folder: Path, value: Any, name: str = "talk.json") -> list[th.Session]:
    path = write(folder, value, name)
    assert th.sniff(path) == "generic"
    return th.read_all(path)


def read(folder: Path, *rows: Any, **facts: Any) -> th.Session:
    [session] = read_all(folder, {"history": list(rows)} | facts)
    return session


def roles(messages: Iterable[Message]) -> list[str]:
    return [f"{message.role} {message.author}" for message in messages]


def texts(messages: Iterable[Message]) -> list[str]:
    return [message.text for message in messages]


# Keys of conversations


@pytest.mark.parametrize(
    "value",
    [
        [HUMAN, MODEL],
        {"messages": [HUMAN, MODEL]},
        {"history": [HUMAN, MODEL], "question": "How many?"},
        {"conversations": [{"from": "human", "value": HUMAN["content"]}, {"from": "gpt", "value": "Two."}]},
        {"turns": [[HUMAN, MODEL]]},
        {"data": [{"conversation": [HUMAN, MODEL]}]},
        {"chat_history": [{"speaker": "user", "text": HUMAN["content"]}, {"speaker": "bot", "utterance": "Two."}]},
        [{"type": "human", "data": {"content": HUMAN["content"]}}, {"type": "ai", "data": {"content": "Two."}}],
        [
            {"lc": 1, "type": "constructor", "id": ["schema", "HumanMessage"], "kwargs": {"content": HUMAN["content"]}},
            {"lc": 1, "type": "constructor", "id": ["schema", "AIMessage"], "kwargs": {"content": "Two."}},
        ],
        {"messages": [{"role": {"value": "user"}, "contents": [{"type": "text", "text": HUMAN["content"]}]}, MODEL]},
        {"messages": [{"source": "user", "content": HUMAN["content"], "type": "TextMessage"}, MODEL]},
        {"dialog": [{"text": HUMAN["content"], "id": "Speaker 1"}, {"text": "Two.", "id": "Speaker 2"}]},
        {"dialog": [{"text": HUMAN["content"]}, {"text": "Two."}]},
        {"transcript": [{"speaker": "Host", "text": HUMAN["content"]}, {"speaker": "Guest", "text": "Two."}]},
    ],
)
def test_a_conversation_is_found_under_any_known_key(tmp_path: Path, value: Any) -> None:
    [session] = read_all(tmp_path, value)
    assert texts(session.history) == [HUMAN["content"], "Two."]
    assert roles(session.history) == ["user human", "assistant model"]
    assert session.title == HUMAN["content"]


def test_lines_are_conversations_or_messages(tmp_path: Path) -> None:
    two = read_all(tmp_path, [{"id": n, "messages": [HUMAN, MODEL]} for n in (7, 8)] + [{"no": "talk"}], "talk.jsonl")
    assert [(session.id, len(session.history)) for session in two] == [("7", 2), ("8", 2)]
    assert [message.source and message.source.line for message in two[1].history] == [2, 2]
    assert [(problem.line, problem.what) for problem in two[0].problems] == [(3, "a line has no conversation")]
    [one] = read_all(tmp_path, [HUMAN, {"no": "message"}, MODEL, HUMAN], "talk.jsonl")
    assert (one.id, [message.source and message.source.line for message in one.history]) == ("talk", [1, 3, 4])


def test_a_conversation_can_look_like_a_message(tmp_path: Path) -> None:
    line = {"id": True, "source": "web", "text": "A talk.", "conversations": [HUMAN, MODEL]}
    two = read_all(tmp_path, [line, line], "talk.jsonl")
    assert [(session.id, texts(session.history)) for session in two] == [
        (f"talk-{n}", [HUMAN["content"], "Two."]) for n in (1, 2)
    ]


def test_sessions_of_one_file_have_unique_ids(tmp_path: Path) -> None:
    rows = [{"id": "same", "messages": [HUMAN, MODEL]}] * 2 + [{"messages": [HUMAN, MODEL]}]
    assert [session.id for session in read_all(tmp_path, rows)] == ["same-1", "same-2", "talk-3"]


def test_dates_in_a_separate_list_are_used(tmp_path: Path) -> None:
    value = {
        "question_id": "q",
        "haystack_session_ids": ["a", "b"],
        "haystack_dates": ["2023/07/12 (Wed) 10:14", "2023/08/02"],
        "haystack_sessions": [[HUMAN, MODEL], [HUMAN]],
    }
    sessions = read_all(tmp_path, [value])
    assert [(session.id, len(session.history)) for session in sessions] == [("a", 2), ("b", 1)]
    assert f"{sessions[0].started:%Y-%m-%d %H:%M}" == "2023-07-12 10:14"


def test_a_list_that_matches_a_dialect_is_parsed_as_that_dialect(tmp_path: Path) -> None:
    """Calls, results and images have the API's layout, also inside a document that is not a request."""
    contents = [
        {"role": "user", "parts": [{"text": "Look."}]},
        {"role": "model", "parts": [{"functionCall": {"name": "ls", "args": {}}}]},
        {"role": "user", "parts": [{"functionResponse": {"name": "ls", "response": {"output": "a.py"}}}]},
    ]
    [session] = read_all(tmp_path, {"scenarioId": "s1", "history": contents, "questions": []})
    assert (session.id, session.agent) == ("s1", "generic")
    assert [type(part) for message in session.history for part in message.parts] == [Text, ToolCall, ToolResult]
    chat = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Look."},
        {
            "role": "assistant",
            "tool_calls": [{"id": "c", "type": "function", "function": {"name": "ls", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "c", "content": "a.py"},
    ]
    [session] = read_all(tmp_path, [{"task_id": 3, "traj": chat}])
    assert th.emit(session.history, "openai-chat") == chat


@pytest.mark.parametrize(
    "value",
    [
        [{"role": "user", "content": "Hi."}, {"role": "assistant", "content": "Ho."}],
        {"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi."}], "model": "m"},
        [{"role": "user", "parts": [{"text": "Hi."}]}, {"role": "model", "parts": [{"text": "Ho."}]}],
        {"input": [{"role": "user", "content": "Hi."}]},
    ],
)
def test_a_file_that_matches_a_dialect_is_not_generic(tmp_path: Path, value: Any) -> None:
    assert th.sniff(write(tmp_path, value)) in ("openai-chat", "anthropic", "gemini", "openai-responses")
    assert (
        th.sniff(write(tmp_path, [value], "lines.jsonl") if isinstance(value, dict) else write(tmp_path, value))
        != "generic"
    )


@pytest.mark.parametrize(
    "value",
    [
        {"messages": []},
        {"messages": [HUMAN]},
        {"name": "x", "version": 3, "dependencies": {"a": "1"}},
        [{"name": "PATH", "value": "/bin"}, {"name": "HOME", "value": "/root"}],
        [{"type": "error", "text": "no"}, {"type": "info", "text": "yes"}],
        {"users": [{"role": "admin", "content": "x"}, {"role": "guest", "content": "y"}]},
        {"messages": [{"role": "admin", "content": "x"}, {"role": "guest", "content": "y"}]},
        {"history": [1, 2, 3], "messages": {"a": "b"}, "question": [["a"], ["b"]]},
        [{"name": "add", "description": "Adds.", "parameters": {"type": "dict"}, "response": {"type": "dict"}}] * 3,
        [[1, 2], [3, 4]],
        {"ground_truth": [["a"], ["b"]], "question": "Which?"},
    ],
)
def test_other_json_is_not_a_conversation(tmp_path: Path, value: Any) -> None:
    path = write(tmp_path, value)
    assert th.sniff(path) != "generic"
    with pytest.raises(UnknownFormatError, match="contains no list of messages"):
        th.read(path, format="generic")


# Speakers


def test_several_agents_are_named(tmp_path: Path) -> None:
    """Each message begins with the name. A speaker with a system prompt is an agent, in any role."""
    session = read(
        tmp_path,
        {"role": "assistant", "name": "Coder", "content": "I am done."},
        {"role": "user", "name": "Checker", "content": "So it is."},
        {"role": "user", "name": "somebody", "content": "Thank you."},
        system_prompt={"Coder": "You write.", "Checker": "You check."},
    )
    assert texts(session.history) == [
        "[Coder]\nYou write.\n[Checker]\nYou check.",
        "[Coder]\nI am done.",
        "[Checker]\nSo it is.",
        "Thank you.",
    ]
    assert roles(session.history) == ["system harness", "assistant model", "assistant model", "user human"]
    assert [message.id for message in session.history] == ["0", "1 Coder", "2 Checker", "3 somebody"]


def test_one_agent_needs_no_name(tmp_path: Path) -> None:
    session = read(tmp_path, HUMAN, MODEL | {"name": "Helper"}, system_prompt="Be brief.")
    assert texts(session.history) == ["Be brief.", HUMAN["content"], "Two."]


def test_notes_after_names_are_parsed(tmp_path: Path) -> None:
    session = read(
        tmp_path,
        HUMAN,
        {"role": "Leader (thought)", "content": "Ask the other."},
        {"role": "Leader (-> Looker)", "content": "Look."},
        {"role": "Looker", "content": "Two files."},
        {"role": "Leader (end)", "content": "Done."},
    )
    assert session.history[1].parts == (Thinking("Ask the other."),)
    assert texts(session.history)[2:] == ["[Leader -> Looker]\nLook.", "[Looker]\nTwo files.", "[Leader (end)]\nDone."]
    assert session.history[1].id == "2 Leader (thought)"


def test_a_terminal_answers_the_only_code_block_before_it(tmp_path: Path) -> None:
    """With several code blocks or none, the output stays text of a tool."""
    code = "Run it:\n```python\nprint(1)\n```\nThen we know."
    session = read(
        tmp_path,
        HUMAN,
        {"role": "assistant", "name": "Coder", "content": code},
        {"role": "user", "name": "Computer_terminal", "content": "exitcode: 0 (execution succeeded)\nCode output: 1"},
        {"role": "assistant", "name": "Coder", "content": code + code},
        {"role": "user", "name": "Computer_terminal", "content": "exitcode: 1 (execution failed)"},
    )
    call = session.history[1].parts[-1]
    assert isinstance(call, ToolCall)
    assert (call.name, json.loads(call.arguments)) == ("python", {"code": "print(1)\n"})
    assert session.history[1].text == "Run it:\nThen we know."
    [result] = session.history[2].results
    assert (result.call_id, result.is_error) == (call.id, False)
    assert roles(session.history)[3:] == ["assistant model", "user tool"]


# Calls and results


def test_smolagents_calls_and_results_are_paired(tmp_path: Path) -> None:
    """Calls are in the file twice, as text. One response answers all calls of a step; one before any call is text."""
    told = (
        "Calling tools:\n[{'id': 'a', 'type': 'function', 'function': {'name': 'ls', 'arguments': {'deep': True}}},"
        " {'id': 'b', 'type': 'function', 'function': {'name': 'pwd', 'arguments': {}}}]"
    )
    steps = [
        {"role": "system", "content": [{"type": "text", "text": "You act."}]},
        {"role": "tool-response", "content": [{"type": "text", "text": "Error:\nno such tool"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "Tool call a: calling 'ls' with arguments: {}"}]},
        {"role": "tool-call", "content": [{"type": "text", "text": told}]},
        {"role": "tool-response", "content": [{"type": "text", "text": "Observation:\na.py"}]},
    ]
    [session] = read_all(tmp_path, [{"model_id": "m", "intermediate_steps": steps}], "run.jsonl")
    assert roles(session.history) == ["system harness", "user tool", "assistant model", "tool tool"]
    calls = [*session.history[2].calls]
    assert [(call.id, call.name, call.arguments) for call in calls] == [
        ("a", "ls", '{"deep":true}'),
        ("b", "pwd", "{}"),
    ]
    assert len(session.history[2].parts) == 2
    results = [*session.history[3].results]
    assert [(result.call_id, result.text) for result in results] == [("a", "Observation:\na.py"), ("b", "")]
    assert session.history[2].model == "m"


def test_calls_as_source_are_parsed(tmp_path: Path) -> None:
    turns = [[{"role": "user", "content": "Make a folder."}], [{"role": "user", "content": "Go there."}]]
    truth = [["mkdir(name='x')", "ls()"], ["cd('x', deep=[1, {'a': None}])"]]
    [asked] = read_all(tmp_path, [{"id": "q1", "question": turns}], "q.jsonl")
    assert (asked.id, texts(asked.history)) == ("q1", ["Make a folder.", "Go there."])
    [answers] = read_all(tmp_path, [{"id": "q1", "ground_truth": truth}], "a.jsonl")
    calls = [(call.name, call.arguments) for message in answers.history for call in message.calls]
    assert calls == [("mkdir", '{"name":"x"}'), ("ls", "{}"), ("cd", '{"deep":[1,{"a":null}],"args":["x"]}')]
    [both] = read_all(tmp_path, [{"question": turns, "ground_truth": truth}], "b.jsonl")
    assert [message.role for message in both.history] == ["user", "assistant", "user", "assistant"]


@pytest.mark.parametrize("source", ["", "1 + 1", "f(", "f(" * 5000, "f(x)\ng(y)", "lambda: 0", "x" * 500_000, "f(\0)"])
def test_source_that_is_not_a_call_is_rejected(source: str) -> None:
    assert parse_python_call(source) is None


def test_source_is_parsed_and_never_run() -> None:
    called = parse_python_call("open(__import__('os').getcwd() + '/x', mode=1j)")
    assert called is not None
    assert json.loads(called.arguments) == {"mode": "1j", "args": ["__import__('os').getcwd() + '/x'"]}
    assert parse_calls_as_text("Calling tools:\n[__import__('os')]") is None
    assert parse_calls_as_text("[" * 100_000) is None
    assert parse_calls_as_text('[{"a": true}]') == [{"a": True}]


@pytest.mark.filterwarnings("error")
def test_an_invalid_escape_raises_no_warning() -> None:
    called = parse_python_call(r"grep(pattern='\d+')")
    assert called is not None
    assert json.loads(called.arguments) == {"pattern": r"\d+"}
    assert parse_calls_as_text(r"[{'a': '\d'}]") == [{"a": r"\d"}]


def test_calls_and_results_under_other_names_are_parsed(tmp_path: Path) -> None:
    session = read(
        tmp_path,
        {
            "role": "human",
            "content": [{"text": "Look."}, {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}],
        },
        {
            "role": "ai",
            "reasoning_content": "Hm.",
            "content": [
                {"type": "thinking", "thinking": "So.", "signature": "s"},
                {"type": "tool_use", "id": "a", "name": "ls", "input": {}},
            ],
            "tool_calls": [
                {"name": "pwd", "args": {"x": 1}, "id": "b"},
                {"function": {"name": "id", "arguments": ""}},
                7,
            ],
            "usage": {"input_tokens": 5, "output_tokens": 2},
            "timestamp": "2026-01-05T10:00:00Z",
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "a", "content": "a.py", "is_error": True},
                {"text": "And?"},
            ],
        },
        {"role": "tool", "contents": [{"type": "function_result", "call_id": "b", "result": {"y": 2}}]},
        {"role": "function", "name": "id", "content": "me"},
    )
    assert session.history[0].parts == (Text("Look."), Image("image/png", "aGk="))
    answer = session.history[1]
    assert [type(part) for part in answer.parts] == [Thinking, Thinking, ToolCall, ToolCall, ToolCall, Unknown]
    assert (answer.usage, answer.time and answer.time.hour) == (Usage(5, 2), 10)
    results = [
        (result.call_id, result.text, result.is_error) for message in session.history for result in message.results
    ]
    named = [*answer.calls][2].id
    assert results == [("a", "a.py", True), ("b", '{"y":2}', False), (named, "me", False)]
    assert session.history[3].text == "And?"
    assert session.history.orphans == ()


def test_a_call_id_takes_precedence_over_an_item_id(tmp_path: Path) -> None:
    call = {"type": "function_call", "id": "item-1", "call_id": "a", "name": "ls", "arguments": "{}"}
    output = {"type": "function_call_output", "id": "item-2", "call_id": "a", "output": "a.py"}
    session = read(tmp_path, HUMAN, {"role": "ai", "content": [call]}, {"role": "tool", "content": [output]})
    assert [call.id for message in session.history for call in message.calls] == ["a"]
    assert session.history.orphans == ()


def test_duplicate_call_ids_become_unique(tmp_path: Path) -> None:
    def call(id_: str) -> Json:
        return {"role": "ai", "tool_calls": [{"id": id_, "name": "ls", "arguments": "{}"}]}

    def result(words: str) -> Json:
        return {"role": "tool", "tool_call_id": "same", "content": words}

    session = read(
        tmp_path, HUMAN, call("same"), result("one"), call("same"), result("two"), call(""), call("call-6-1")
    )
    ids = [part.id for message in session.history for part in message.calls]
    assert ids == ["same", "call-4-1", "call-6-1", "call-7-1"]
    answers = {result.call_id: result.text for message in session.history for result in message.results}
    assert answers == {"same": "one", "call-4-1": "two"}


# Request logs


def request(*rows: Json, **fields: Any) -> Json:
    return {"type": "request", "messages": list(rows), "model": "m", "timestamp": "2026-01-05T10:00:00"} | fields


def test_a_request_log_becomes_one_conversation(tmp_path: Path) -> None:
    asked = {"role": "user", "content": "How many?"}
    called = {"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "ls", "arguments": "{}"}}]}
    result = {"role": "tool", "tool_call_id": "c", "content": "a.py"}
    log = [
        request(asked),
        {"type": "response", "outputs": [{"message": "", "tool_calls": called["tool_calls"]}], "input_tokens": 4},
        request(asked, called, result),
        request(asked, called, result),
        {
            "type": "response",
            "response": {"choices": [{"message": {"content": "One."}}], "usage": {"prompt_tokens": 9}},
        },
    ]
    [session] = read_all(tmp_path, log, "log.jsonl")
    assert [message.role for message in session.history] == ["user", "assistant", "tool", "assistant"]
    assert [message.usage for message in session.history if message.usage] == [Usage(4), Usage(9)]
    assert session.records == {"request": 3}
    assert session.problems == ()
    [session] = read_all(tmp_path, [*log, log[-1], {"type": "end"}], "log.jsonl")
    assert session.problems[0].what == "2 lines are neither requests nor responses to a request"
    nested = [{"request": row, "response": {"choices": [{"message": {"content": "x"}}]}} for row in (request(asked),)]
    [session] = read_all(tmp_path, nested * 2, "log.jsonl")
    assert texts(session.history) == ["How many?", "x"]


# Damage


def test_rows_that_are_not_messages_are_counted_and_the_rest_is_read(tmp_path: Path) -> None:
    odd: list[Any] = [None, 3, {"note": 1}, {"role": "ai", "content": ""}, {"role": 5, "content": {"deep": 1}}]
    session = read(tmp_path, HUMAN, MODEL, *odd, HUMAN, {"role": "oracle", "content": [3, {"type": "hologram"}]}, MODEL)
    assert texts(session.history)[:2] == [HUMAN["content"], "Two."]
    assert session.problems[0].what == "4 of 10 rows are not messages, or are empty"
    assert [part.kind for message in session.history for part in message.parts if isinstance(part, Unknown)] == [
        "",
        "int",
        "hologram",
    ]
    assert session.records["oracle"] == 1


def test_a_row_nested_too_deeply_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "talk.json"
    deep = '{"type":"odd","x":' * 900 + "1" + "}" * 900
    rows = [json.dumps(HUMAN), f'{{"role":"ai","content":[{deep}]}}', json.dumps(MODEL)]
    path.write_text('{"messages":[' + ",".join(rows) + "]}")
    try:
        session = th.read(path)
    except th.ThresherError:
        return
    assert isinstance(session, th.Session)
    assert texts(session.history)[-1] == "Two."


def test_a_compressed_file_reads_like_a_plain_one(tmp_path: Path) -> None:
    path = tmp_path / "talk.jsonl.gz"
    path.write_bytes(gzip.compress(json.dumps({"messages": [HUMAN, MODEL]}).encode() * 1 + b"\n"))
    session = th.read(path)
    assert isinstance(session, th.Session)
    assert (session.id, len(session.history)) == ("talk", 2)


# Recordings


def calls(sessions: Iterable[th.Session]) -> int:
    return sum(1 for session in sessions for message in session.messages() for _ in message.calls)


def messages(sessions: Iterable[th.Session]) -> int:
    return sum(len(session.history) for session in sessions)


def test_multi_agent_recordings_are_read(shared_data: Path) -> None:
    """One session per file. System prompts of agents are one more message; two rows are empty.

    88 of 147 terminal outputs follow a message with one code block, and are its result.
    """
    answered = lost = files = 0
    for row, [session] in recordings.indexed(shared_data, "multi_agent"):
        rows = [message for message in session.history if message.role != "system"]
        lost += row["msgs"] - len(rows)
        answered += sum(message.role == "tool" for message in rows)
        assert session.history.orphans == (), row["file"]
        assert session.title, row["file"]
        files += 1
    assert (files, lost) == (88, 2)
    assert answered == 88


def test_smolagents_recordings_are_read(shared_data: Path) -> None:
    """One session per line. An answer and the row with its calls are one message."""
    for row, sessions in recordings.indexed(shared_data, "smolagents"):
        assert len(sessions) == row["sessions"]
        call_rows = sum(session.records["tool-call"] for session in sessions)
        assert messages(sessions) == row["msgs"] - call_rows
        assert calls(sessions) >= call_rows
        results = sum(1 for session in sessions for message in session.history for _ in message.results)
        assert results == calls(sessions)


def test_bfcl_recordings_are_read(shared_data: Path) -> None:
    """The index counts a file as one session with one message per line. Here each line is a session.

    Function definitions are not a conversation.
    """
    rows = map(json.loads, (shared_data / "index.jsonl").read_text(encoding="utf-8").splitlines())
    for row in (row for row in rows if row["file"].startswith("bfcl/")):
        path = shared_data / row["file"]
        if "/doc-" in row["file"]:
            with pytest.raises(UnknownFormatError):
                th.read_all(path)
            continue
        sessions = th.read_all(path)
        assert len(sessions) == row["msgs"], row["file"]
        assert len({session.id for session in sessions}) == len(sessions)
        assert (calls(sessions) > 1000) == ("/ans-" in row["file"])


def test_other_recordings_are_read(shared_data: Path) -> None:
    """Runs of tau-bench, Google's compression scenarios, dialogs and haystacks have the counts of the index.

    The index counts a question's haystack, and a dialog with those before it, as one session; here each is one.
    """
    more = {"memory/longmemeval-s-001.json.gz": 80, "memory/msc-001.jsonl.gz": 15}
    for kind in ("compression_evals", "memory"):
        for row, sessions in recordings.indexed(shared_data, kind):
            assert len(sessions) == more.get(row["file"], row["sessions"]), row["file"]
            assert (messages(sessions), calls(sessions)) == (row["msgs"], row["calls"]), row["file"]
    for row, sessions in recordings.indexed(shared_data, "openai_tools"):
        if "swea-llmlog" in row["file"]:  # each request repeats the one before; together they are one conversation
            assert [session.records["request"] for session in sessions] == [row["sessions"]]
        elif sessions[0].agent == "generic":
            assert (len(sessions), messages(sessions)) == (row["sessions"], row["msgs"]), row["file"]
            assert calls(sessions) == row["calls"]
