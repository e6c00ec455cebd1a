"""Tests of the `gemini-cli` format: replaced lists, repeated calls, rewinds and sub-agents."""

import json
from pathlib import Path
from typing import Any

import pytest

import recordings
import thresher as th
from thresher.model import Image, Message, Summary, Text, Thinking, ToolCall, ToolResult, Usage

Json = dict[str, Any]
FACTS: Json = {"sessionId": "s-1", "projectHash": "ab12", "startTime": "2026-03-02T09:00:00Z", "kind": "main"}


def user(id_: Any, *content: Any, **more: Any) -> Json:
    return {"id": id_, "type": "user", "timestamp": "2026-03-02T09:01:00Z", "content": [*map(as_part, content)], **more}


def gemini(id_: Any, *content: Any, **more: Any) -> Json:
    return {
        "id": id_,
        "type": "gemini",
        "timestamp": "2026-03-02T09:01:02Z",
        "content": [*map(as_part, content)],
        **more,
    }


def as_part(given: Any) -> Any:
    return {"text": given} if isinstance(given, str) else given


def asked(id_: str, name: str = "read_file", **args: Any) -> Json:
    return {"functionCall": {"id": id_, "name": name, "args": args}}


def answered(id_: str, said: str, name: str = "read_file") -> Json:
    return {"functionResponse": {"id": id_, "name": name, "response": {"output": said}}}


def tool(id_: Any, *result: Any, name: str = "read_file", status: str = "success", **more: Any) -> Json:
    return {"id": id_, "name": name, "args": {}, "result": [*result], "status": status, **more}


def listed(*messages: Json) -> Json:
    return {"$set": {"messages": [*messages]}}


def log(folder: Path, *rows: Json, facts: Json | None = None, name: str = "session-1.jsonl") -> th.Session:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in (FACTS | (facts or {}), *rows)))
    return one(path)


def document(folder: Path, *messages: Any, **facts: Any) -> th.Session:
    path = folder / "session-1.json"
    path.write_text(json.dumps(FACTS | {"messages": messages} | facts, indent=2))
    return one(path)


def one(path: Path) -> th.Session:
    assert th.sniff(path) == "gemini-cli"
    session = th.read(path)
    assert isinstance(session, th.Session)
    return session


def texts(messages: Any) -> list[str]:
    return [message.text for message in messages]


def results(messages: Any) -> list[ToolResult]:
    return [result for message in messages for result in message.results]


# --- the document ----------------------------------------------------------------------------------------------------


def test_a_document_is_converted_to_messages(tmp_path: Path) -> None:
    tokens = {"input": 100, "output": 5, "cached": 60, "thoughts": 7, "tool": 3, "total": 115}
    thought = {"subject": "Looking", "description": "It is in a.py.", "timestamp": "2026-03-02T09:01:01Z"}
    calls = [tool("c1", answered("c1", "x = 1")), tool("c2", status="cancelled", resultDisplay="not now")]
    session = document(
        tmp_path,
        {"id": "u1", "type": "user", "content": "What is x?"},
        {"id": "i1", "type": "info", "content": "Update available."},
        {"id": "g1", "type": "gemini", "content": "", "thoughts": [thought], "toolCalls": calls, "tokens": tokens},
        {
            "id": "g2",
            "type": "gemini",
            "content": "One.",
            "tokens": dict.fromkeys(tokens, 0),
            "model": "gemini-2.5-pro",
        },
        {"id": "x1", "type": "hologram", "content": "?"},
    )
    assert [(one.role, one.author) for one in session.history] == [
        ("user", "human"),
        ("assistant", "model"),
        ("tool", "tool"),
        ("assistant", "model"),
    ]
    assert session.history[1].parts[0] == Thinking("**Looking**\nIt is in a.py.")
    assert session.history[1].usage == Usage(43, 12, 60, reasoning=7)
    assert session.history[3].usage is None
    assert [(one.text, one.is_error) for one in results(session.history)] == [("x = 1", False), ("not now", True)]
    assert session.records == {"user": 1, "info": 1, "gemini": 2, "hologram": 1}
    assert [one.source.line for one in session.history if one.source] == [1, 3, 3, 4]


def test_messages_and_calls_without_unique_ids_get_one(tmp_path: Path) -> None:
    calls = [tool(None, {"text": "one"}), tool("c", {"text": "two"}), tool("c", {"text": "three"})]
    session = document(
        tmp_path, {"type": "user", "content": "Hi."}, None, gemini("g", toolCalls=calls), gemini("g", "Hello.")
    )
    assert [one.id for one in session.history] == ["message-1", "g", "g-results", "message-4"]
    assert [call.id for call in session.history[1].calls] == ["g-call-1", "c", "g-call-3"]
    assert [result.call_id for result in results(session.history)] == ["g-call-1", "c", "g-call-3"]
    assert [problem.line for problem in session.problems] == [2, 4]


def test_a_damaged_document_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "session-1.json"
    path.write_text(json.dumps(FACTS | {"messages": [user("u", "Hi.")] * 99}, indent=2)[:-40])
    with pytest.raises(th.ThresherError, match="damaged"):
        th.read(path, format="gemini-cli")


# --- the log ---------------------------------------------------------------------------------------------------------


def test_a_line_with_a_known_id_replaces_the_message(tmp_path: Path) -> None:
    session = log(
        tmp_path,
        user("u1", "Go."),
        gemini("g1", "I go."),
        user("u2", "Well?"),
        gemini("g1", "I go.", toolCalls=[tool("c", answered("c", "gone"))]),
    )
    assert [one.role for one in session.history] == ["user", "assistant", "tool", "user"]
    assert [one.source.line for one in session.history if one.source] == [2, 5, 5, 4]


def test_a_repeated_result_is_read_once(tmp_path: Path) -> None:
    both = [answered("c1", "one"), answered("c2", "two")]
    calls = [tool("c1", *both), tool("c2", *both)]
    session = log(
        tmp_path,
        user("u1", "Look."),
        gemini("g1", asked("c1"), asked("c2"), toolCalls=calls),
        user("r1", *both, "User hint: look twice."),
    )
    assert [(one.call_id, one.text) for one in results(session.history)] == [("c1", "one"), ("c2", "two")]
    assert [call.id for call in session.history[1].calls] == ["c1", "c2"]
    assert texts(session.history)[-1] == "User hint: look twice."


def test_user_text_during_a_tool_call_is_not_part_of_the_result(tmp_path: Path) -> None:
    both: list[Any] = [as_part("User hints:\n- Stop."), answered("c1", "one")]
    session = log(tmp_path, gemini("g1", asked("c1"), toolCalls=[tool("c1", *both)]), user("r1", *both))
    assert [one.text for one in results(session.history)] == ["one"]
    assert (session.history[-1].author, session.history[-1].text) == ("human", "User hints:\n- Stop.")


def test_a_result_can_occur_only_in_a_user_record(tmp_path: Path) -> None:
    session = log(tmp_path, user("u1", "Look."), gemini("g1", asked("c1")), user("r1", answered("c1", "one")))
    assert [(one.role, one.author) for one in session.history][1:] == [("assistant", "model"), ("tool", "tool")]
    assert session.history.orphans == ()


def test_images_of_a_tool_are_messages(tmp_path: Path) -> None:
    picture = {"inlineData": {"mimeType": "image/png", "data": "aGk="}}
    shown = {"id": "i1", "type": "info", "content": [picture]}
    session = log(tmp_path, gemini("g1", toolCalls=[tool("c1", answered("c1", "a picture"), picture)]), shown)
    assert results(session.history)[0].content == (Text("a picture"), Image("image/png", "aGk="))
    assert (session.history[-1].author, session.history[-1].parts) == ("tool", (Image("image/png", "aGk="),))


def test_rewound_messages_are_a_branch(tmp_path: Path) -> None:
    session = log(
        tmp_path,
        user("u1", "One."),
        gemini("g1", "Yes."),
        user("u2", "Two."),
        gemini("g2", "No."),
        {"$rewindTo": "u2"},
        user("u3", "Three."),
        {"$rewindTo": "u3"},
        user("u4", "Four."),
    )
    assert texts(session.history) == ["One.", "Yes.", "Four."]
    assert [texts(branch.history) for branch in session.branches] == [["Two.", "No."], ["Three."]]
    assert [branch.after_message_id for branch in session.branches] == ["g1", "g1"]


def test_a_rewind_to_an_unknown_message_removes_everything(tmp_path: Path) -> None:
    session = log(tmp_path, user("u1", "One."), {"$rewindTo": "gone"}, user("u2", "Two."))
    assert (texts(session.history), texts(session.branches[0].history)) == (["Two."], ["One."])
    assert session.problems[0].line == 3


def test_an_identical_list_changes_nothing(tmp_path: Path) -> None:
    both = [answered("c1", "one"), answered("c2", "two")]
    called = [tool("c1", both[0]), tool("c2", both[1])]
    first = gemini("g1", "Looking.", toolCalls=called, tokens={"input": 9, "total": 9}, model="m")
    again = {**first, "content": [{"text": "Looking."}, asked("c1"), asked("c2")]}
    again["toolCalls"] = [tool("c1", *both), tool("c2", *both)]
    session = log(
        tmp_path,
        listed(user("u0", "<session_context>\nToday.\n</session_context>")),
        {"id": "u1", "type": "user", "content": "Look."},
        first,
        {"id": "i1", "type": "info", "content": "Update available."},
        listed(
            user("n0", "<session_context>\nToday.\n</session_context>"), user("u1", "Look."), again, user("r1", *both)
        ),
        gemini("g2", "Done."),
    )
    assert len(session.segments) == 1
    assert [one.author for one in session.history] == ["context", "human", "model", "tool", "model"]
    assert [one.usage.input for one in session.history if one.usage] == [9]
    assert not any(one.carried for one in session.history)


def test_masked_outputs_stay_complete_in_the_previous_segment(tmp_path: Path) -> None:
    def called(output: str) -> Json:
        return gemini("g1", toolCalls=[tool("c1", answered("c1", output))], model="m")

    session = log(tmp_path, user("u1", "Look."), called("long " * 50), listed(user("u1", "Look."), called("masked")))
    assert (len(session.segments), session.compactions) == (2, 0)
    assert results(session.history)[0].text == "masked"
    assert [one.text for one in results(session.messages())] == ["long " * 50]


def test_messages_are_matched_by_content_after_a_compaction(tmp_path: Path) -> None:
    session = log(
        tmp_path,
        user("u1", "One."),
        gemini("g1", "Yes.", model="m", tokens={"input": 9, "total": 9}),
        user("u2", "One."),
        gemini("g2", "", toolCalls=[tool("c1", answered("c1", "one"))], model="m"),
        user("r1", answered("c1", "one")),
        listed(
            user("n1", "<scratchpad/><state_snapshot>They said one.</state_snapshot>"),
            gemini("n2", "Got it."),
            user("n3", "One."),
            gemini("n4", asked("c1")),
            user("n5", answered("c1", "one")),
        ),
        gemini("n4", asked("c1"), "More.", toolCalls=[tool("c1", answered("c1", "one"))], model="m"),
    )
    assert session.compactions == 1
    assert isinstance(session.history[0].parts[0], Summary)
    assert [(one.author, one.carried) for one in session.history] == [
        ("harness", False),
        ("harness", False),
        ("human", True),
        ("model", True),
        ("tool", True),
    ]
    assert len([*session.messages()]) == 7
    assert session.history[3].text == "More."  # a line can replace a message of a list


def test_harness_prompts_in_the_users_name_have_the_harness_as_author(tmp_path: Path) -> None:
    session = log(
        tmp_path,
        listed(user("u0", "<session_context>\nToday.\n</session_context>"), gemini("g0", "Got it.")),
        user("u1", "Go."),
        user("u2", "System: Potential loop detected. Details: the same call again. Please take a step back."),
    )
    assert [one.author for one in session.history] == ["context", "harness", "human", "harness"]


def test_a_user_can_paste_a_snapshot(tmp_path: Path) -> None:
    said = "What is <state_snapshot>x</state_snapshot>?"
    session = log(tmp_path, user("u1", said), gemini("g1", "A tag."), listed(user("n1", said), gemini("n2", "A tag.")))
    assert (session.compactions, session.history[0].author, len(session.segments)) == (0, "human", 1)


# --- other files -----------------------------------------------------------------------------------------------------


def test_sub_agents_are_read_from_the_folder_of_their_session(tmp_path: Path) -> None:
    chats = tmp_path / "tmp" / "shop" / "chats"
    prompt, facts = user("c1", "Find it."), {"sessionId": "k3x9qa", "kind": "subagent"}
    alone = log(chats, prompt, facts=facts, name="s-1/k3x9qa.jsonl")
    assert (alone.parent, alone.history[0].author, alone.title) == ("s-1", "model", "Find it.")
    (chats / "s-1" / "torn.jsonl").write_text("{\n")
    (chats.parent / ".project_root").write_text("/work/shop\n")
    call = gemini("g1", toolCalls=[tool("c9", answered("c9", "Found."), name="invoke_agent", agentId="k3x9qa")])
    session = log(chats, user("u1", "Where is it?"), call)
    [child] = session.children
    assert (child.id, child.parent, child.call_id) == ("k3x9qa", "s-1", "c9")
    assert (session.project, child.project) == ("/work/shop", "/work/shop")
    assert session.files == (str(chats.parent / ".project_root"),)
    assert "cannot be read" in session.problems[0].what


def test_only_the_first_prompt_of_a_sub_agent_has_a_model_as_author(tmp_path: Path) -> None:
    warning = "You have exceeded the maximum number of turns. You have one final chance to complete the task."
    hint = "User hints:\n- Not there.\n\nInternal instruction: Re-evaluate the active plan."
    rows = [
        user("c1", "Find it."),
        gemini("g1", asked("a")),
        user("c2", answered("a", "no"), hint),
        user("c3", warning),
    ]
    session = log(tmp_path, *rows, facts={"kind": "subagent"})
    assert [one.author for one in session.history] == ["model", "model", "tool", "human", "harness"]


def test_a_log_in_the_folder_of_a_session_is_a_sub_agent(tmp_path: Path) -> None:
    (tmp_path / "s-1").mkdir()
    (tmp_path / "s-1" / "s-1").symlink_to(tmp_path / "s-1")
    log(tmp_path, user("c1", "Find it."), facts={"kind": None}, name="s-1/x.jsonl")
    session = log(tmp_path, user("u1", "Where is it?"))
    [child] = session.children
    assert (child.history[0].author, child.children) == ("model", ())


def test_links_out_of_the_folder_are_not_followed(tmp_path: Path) -> None:
    log(tmp_path / "other", user("c1", "Secret."), name="x.jsonl")
    (tmp_path / "chats").mkdir()
    (tmp_path / "chats" / "s-1").symlink_to(tmp_path / "other")
    assert log(tmp_path / "chats", user("u", "Hi.")).children == ()
    (tmp_path / "chats" / "s-2").mkdir()
    (tmp_path / "chats" / "s-2" / "x.jsonl").symlink_to(tmp_path / "other" / "x.jsonl")
    assert log(tmp_path / "chats", user("u", "Hi."), facts={"sessionId": "s-2"}).children == ()


def test_an_id_can_be_too_long_for_a_folder(tmp_path: Path) -> None:
    session = log(tmp_path, user("u", "Hi."), facts={"sessionId": "s" * 5000})
    assert (len(session.history), session.children) == (1, ())


def test_long_outputs_are_found_in_their_files(tmp_path: Path) -> None:
    def cut(id_: str, name: str) -> Json:
        said = "Output too large. Showing first 8 and last 32 characters. For full output see: /etc/passwd\nab"
        return tool(id_, answered(id_, said, name), name=name)

    outputs = tmp_path / "shop" / "tool-outputs" / "session-s-1"
    outputs.mkdir(parents=True)
    for name in ("run_shell_command_17_0", "run_shell_command_a_b", "grep_c"):
        (outputs / f"{name}.txt").write_text("all of it")
    calls = [cut("run_shell_command_17_0", "run_shell_command"), cut("A/b", "run_shell_command"), cut("gone", "grep")]
    session = log(tmp_path / "shop" / "chats", gemini("g1", toolCalls=[*calls, tool("c", answered("c", "x"))]))
    assert session.spilled == {
        "run_shell_command_17_0": str(outputs / "run_shell_command_17_0.txt"),
        "A/b": str(outputs / "run_shell_command_a_b.txt"),
    }
    assert session.problems[0].what == "1 long outputs are in missing files"


def test_an_id_cannot_leave_the_folder(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "x.jsonl").write_text(json.dumps(FACTS) + "\n")
    session = log(tmp_path / "chats", user("u", "Hi."), facts={"sessionId": "../other"})
    assert (session.id, session.children) == ("../other", ())


def test_the_project_can_come_from_the_log(tmp_path: Path) -> None:
    session = log(tmp_path, user("u", "Hi."), {"$set": {"directories": ["/work/a", "/work/b"], "summary": "Greeting"}})
    assert (session.project, session.title) == ("/work/a", "Greeting")


def test_sessions_are_discovered_in_the_agents_home(tmp_path: Path) -> None:
    for home in (tmp_path, tmp_path / "moved"):
        chats = home / ".gemini" / "tmp" / "shop" / "chats"
        log(chats, user("u", "Hi."))
        log(chats, user("u", "Hi."), name="s-1/k3x9qa.jsonl")
        document(chats, user("u", "Hi."))
        (chats / "checkpoint-1.json").write_text("{}")
    for environment, home in (({}, tmp_path), ({"GEMINI_CLI_HOME": str(tmp_path / "moved")}, tmp_path / "none")):
        found = th.discover(environment=environment, home=home, formats=["gemini-cli"])
        assert sorted(one.path.name for one in found) == ["session-1.jsonl"]


@pytest.mark.parametrize(
    "text",
    ['{"sessionId": "s", "messages": []}', '{"messages": [{"role": "user", "content": "Hi."}]}', '{"$schema": "x"}'],
)
def test_other_documents_are_not_claimed(text: str, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(text)
    assert th.sniff(tmp_path / "x.json") != "gemini-cli"


def test_a_session_can_be_converted_back_to_gemini(tmp_path: Path) -> None:
    signed = asked("c1") | {"thoughtSignature": "c2ln"}
    session = log(tmp_path, user("u1", "Look."), gemini("g1", signed), user("r1", answered("c1", "one")))
    assert th.emit(session.history, "gemini") == [
        {"role": "user", "parts": [{"text": "Look."}]},
        {"role": "model", "parts": [signed]},
        {"role": "user", "parts": [answered("c1", "one")]},
    ]


def test_the_recordings_agree_with_their_counts(shared_data: Path) -> None:
    """Compare with the index, which counts every record, including those for the screen."""
    found = [*recordings.indexed(shared_data, "gemini_cli")]
    assert len(found) == 6
    for expected, sessions in found:
        [session] = sessions
        messages: list[Message] = [*session.messages()]
        parts = [part for message in messages for part in message.parts]
        assert sum(session.records.values()) == expected["msgs"], expected["file"]
        assert sum(isinstance(part, ToolCall) for part in parts) == expected["calls"]
        assert sum(isinstance(part, ToolResult) for part in parts) == expected["calls"]
        assert sum(isinstance(part, Thinking) for part in parts) == expected["thinking"]
        assert session.history.orphans == ()
        assert session.problems == ()
