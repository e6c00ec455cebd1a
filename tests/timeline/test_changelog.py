"""Changelogs over several sessions, and their rendering."""

from datetime import UTC, datetime

from msgspec import structs
from talks import PROJECT, Talk

from thresher.dialects import parse
from thresher.model import History, Message, Session, Text, ToolCall, ToolResult
from thresher.render.timeline import changelog_markdown, changelog_value, escape_markdown, file_event_lines, files_lines
from thresher.timeline import Timeline, build_changelog


def told(talk: Talk, **facts: str) -> list[str]:
    return changelog_markdown(build_changelog([talk.session(**facts)])).split("\n")


def test_changes_are_listed_per_file_with_reasons() -> None:
    talk = Talk()
    talk.read(f"{PROJECT}/b.py", "x\n")
    talk.call("Write", {"file_path": f"{PROJECT}/b.py", "content": "1\n", "intent": "Begin"})
    talk.call("Edit", {"file_path": f"{PROJECT}/a.py", "old_string": "1", "new_string": "2"}, say="Mend `a`.")
    talk.call("Edit", {"file_path": f"{PROJECT}/a.py", "old_string": "2", "new_string": "3\n4"})
    talk.call("Edit", {"file_path": f"{PROJECT}/a.py", "old_string": "2", "new_string": "3"}, "no", error=True)
    assert told(talk) == [
        "# Changes", "", "## `a.py`", "", "- edited: Mend `a`. (2026-03-01, turns 3-4, +3 −2)",
        "", "## `b.py`", "", "- wrote: Begin (2026-03-01, turn 2, +1 −1)",
    ]  # fmt: skip


def test_move_shows_its_target() -> None:
    talk = Talk()
    talk.bash("git mv a.py b.py", description="Rename it")
    assert "- moved to `b.py`: Rename it (2026-03-01, turn 1)" in told(talk)


def test_changelog_without_changes_says_so() -> None:
    assert told(Talk())[-1] == "No file was changed."


def test_sub_agents_are_listed_once() -> None:
    helper, talk = Talk(), Talk()
    helper.write(f"{PROJECT}/a.py", "1\n")
    talk.call("Task", {"description": "help"})
    kid = helper.session(id="kid", call_id="call_1")
    log = build_changelog([kid, talk.session(children=(kid,))])
    (file,) = log.files
    assert [(entry.session, entry.agent) for entry in file.entries] == [("one", "kid")]


def test_sessions_of_a_project_are_merged_in_order_of_time() -> None:
    first, second = Talk(), Talk()
    first.write(f"{PROJECT}/a.py", "1\n")
    second.edit(f"{PROJECT}/a.py", "1", "2")
    early = structs.replace(first.session(), started=first.messages[1].time)
    late = structs.replace(second.session(id="two"), started=second.messages[2].time)
    log = build_changelog([early, late])
    assert [entry.session for entry in log.files[0].entries] == ["one", "two"]
    assert log.sessions == ("one", "two")
    later = first.messages[1].time
    assert later is not None
    assert build_changelog([early], since=later).files
    assert not build_changelog([early], until=later.replace(year=2025)).files
    assert changelog_value(log)["files"][0]["path"] == "a.py"


def test_a_limit_excludes_changes_without_a_time() -> None:
    talk = Talk()
    talk.write(f"{PROJECT}/a.py", "1\n")
    timeless = History(tuple(structs.replace(message, time=None) for message in talk.messages))
    assert build_changelog(timeless).files
    assert not build_changelog(timeless, since=datetime(1990, 1, 1, tzinfo=UTC)).files
    assert not build_changelog(timeless, until=datetime(2090, 1, 1, tzinfo=UTC)).files


def test_a_history_is_enough() -> None:
    talk = Talk()
    talk.write("a.py", "1\n")
    history = talk.session().history
    assert Timeline(history).file_state_at("a.py").text == "1\n"
    for log in (build_changelog(history), build_changelog([history])):
        assert [file.path for file in log.files] == ["a.py"]
        assert log.sessions == ()


def test_transcript_text_controls_neither_terminal_nor_markdown() -> None:
    talk = Talk()
    path = "/x/\x1b[31m`evil`\n\u202e.py"
    talk.call(
        "Write",
        {"file_path": path, "content": "1"},
        say="![p](http://t/x) <img src=x> \x1b]0;t\x07 `<ok>`" + "y" * 9999,
    )
    timeline = Timeline(talk.session())
    lines = [*told(talk), *(line.text for line in files_lines(timeline.files(), ""))]
    lines += [line.text for line in file_event_lines(timeline.events(), timeline.file_state_at(path), "")]
    assert not any(sign in line for line in lines for sign in "\x1b\x07\n\u202e")
    markdown = "\n".join(told(talk))
    assert "![" not in markdown.replace("!\\[", "")
    assert "<img" not in markdown.replace("\\<img", "")
    assert max(map(len, lines)) < 600


def test_markdown_escapes_text_and_keeps_code() -> None:
    assert escape_markdown("a_b `x<y>` <b> [l](u) __init__") == r"a_b `x<y>` \<b> \[l\](u) \_\_init\_\_"


def test_a_call_in_a_message_of_any_role_is_listed() -> None:
    """A broken history may hold a call in a user message."""
    call = ToolCall("call_1", "Write", '{"file_path": "/x/a.py", "content": "hi"}')
    result = Message("tool", (ToolResult("call_1", (Text("ok"),)),), "tool")
    messages = (Message("user", (Text("Please do it."), call)), result)
    timeline = Timeline(Session("generic", "one", "one.json", (History(messages),)))
    assert [(event.path, event.operation) for event in timeline.events()] == [("/x/a.py", "write")]


def test_a_call_in_a_user_message_is_listed() -> None:
    """No API allows it, but files have it."""
    call = {"type": "tool_use", "id": "a", "name": "Write", "input": {"file_path": "/shop/a.py", "content": "1\n"}}
    result = {"type": "tool_result", "tool_use_id": "a", "content": "done"}
    history = parse([{"role": "user", "content": [call]}, {"role": "user", "content": [result]}], "anthropic")
    assert [file.path for file in Timeline(history).files()] == ["/shop/a.py"]
    assert "/shop/a.py" in str(changelog_value(build_changelog([history])))
