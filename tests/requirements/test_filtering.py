"""Filtering: what the presets and the options remove from a conversation, and what they never remove."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from fitted_conversations import (
    Conversation,
    Row,
    arguments,
    fit,
    fit_and_plan,
    has,
    results,
    said,
    text_of,
    tools,
)

import thresher as th
from command_line import run

PRESETS = ("none", "minimal", "moderate", "smart", "aggressive")
REPORT = text_of("report")
REMINDER = "<system-reminder>\nThe todo list is empty.\n</system-reminder>"


def working_session() -> Conversation:
    """Return a session with one of everything, and a short exchange at the end."""
    talk = Conversation().human("Make the parser faster.")
    talk.thinks("Perhaps a table helps.", "I decided to use a lookup table.")
    talk.uses("Task", REPORT, description="Survey the parser", prompt=text_of("prompt"))
    talk.uses("TodoWrite", "ok", todos=[{"content": "write the lookup table", "status": "pending"}])
    talk.uses("Read", text_of("source"), file_path="/app/parser.py")
    talk.uses("Bash", "Error: timer not found", failed=True, command="make timer")
    talk.uses("Bash", "the timer is set up", command="make timer")
    talk.uses("Edit", "done", file_path="/app/parser.py", old_string=text_of("slow"), new_string=text_of("fast"))
    talk.uses("Bash", "Ran 12 tests: OK", command="make test")
    talk.uses("WebSearch", text_of("hit"), query="fast lookup")
    talk.agent("The parser is twice as fast: " + text_of("answer", 200))
    return talk.human(f"{REMINDER}\nThank you. Commit it.").agent("It is committed.").human("And push.")


def after(*steps: tuple[str, Row, str]) -> Conversation:
    """Return a finished exchange that made some calls, and a new prompt."""
    talk = Conversation().human("Begin.")
    for tool, inputs, result in steps:
        talk.uses(tool, result, **inputs)
    return talk.agent("Done.").human("Go on.").agent("Fine.")


# Sub-agents.


@pytest.mark.parametrize("tool", ["Task", "Agent", "task", "new_task", "spawn_agent", "delegate_to_agent"])
def test_a_call_of_a_tool_that_starts_an_agent_is_a_sub_agent(tool: str) -> None:
    talk = after((tool, {"prompt": "Count the files."}, REPORT))
    assert tools(fit(talk, exclude_subagent_calls=True, exclude_subagent_responses=True)) == []


@pytest.mark.parametrize("tool", ["Read", "Write", "Bash", "Grep", "WebSearch", "TaskList", "TaskCreate"])
def test_other_tools_are_no_sub_agents(tool: str) -> None:
    talk = after((tool, {"prompt": "Count the files."}, REPORT))
    assert fit(talk, exclude_subagent_calls=True, exclude_subagent_responses=True) == talk.messages


def test_the_calls_of_sub_agents_can_be_excluded_alone() -> None:
    """The call itself stays without its arguments, because every API refuses a result whose call is missing."""
    left = fit(after(("Task", {"prompt": text_of("prompt")}, REPORT)), exclude_subagent_calls=True)
    assert not has(left, "prompt gag")
    assert results(left) == [REPORT]


def test_the_reports_of_sub_agents_can_be_excluded_alone() -> None:
    """A placeholder takes the place of the report, because every API refuses a call whose result is missing."""
    inputs = {"prompt": text_of("prompt")}
    left = fit(after(("Task", inputs, REPORT)), exclude_subagent_responses=True)
    assert arguments(left) == [inputs]
    assert not has(left, "report gag")


@pytest.mark.parametrize("preset", ["smart", "minimal"])
@pytest.mark.parametrize("half", ["exclude_subagent_calls", "exclude_subagent_responses"])
def test_each_option_for_sub_agents_decides_only_about_its_half(preset: str, half: str) -> None:
    left = fit(after(("Task", {"prompt": text_of("prompt")}, REPORT)), policy=preset, **{half: False})
    assert has(left, "prompt gag") is (half == "exclude_subagent_calls")
    assert has(left, "report gag") is (half == "exclude_subagent_responses")


def test_each_of_several_sub_agents_is_removed_and_text_and_calls_beside_them_stay() -> None:
    talk = Conversation().human("Begin.").uses("Task", REPORT, prompt="a", says="I ask a colleague first.")
    talk.uses_in_parallel(
        ("Task", {"prompt": "b"}, "The report of b."),
        ("Bash", {"command": "ls"}, "a.py"),
        ("Agent", {"prompt": "c"}, "The report of c."),
        order=(2, 0, 1),
    )
    left = fit(talk.agent("Done.").human("Go on."), policy="minimal")
    assert tools(left) == ["Bash"]
    assert results(left) == ["a.py"]
    assert "I ask a colleague first." in said(left, "assistant")


def test_a_sub_agent_that_still_runs_stays() -> None:
    """It is not removed with the others, because the model needs its id to get the report."""
    launched = "Async agent launched successfully.\nagentId: a1b2c3d4 (the agent works in the background)"
    talk = after(("Task", {"prompt": "Count the files."}, launched))
    assert fit(talk, policy="minimal") == talk.messages


def transcript(folder: Path, *rows: Row) -> Path:
    """Write a session file of Claude Code, whose rows form one chain."""
    path, lines = folder / "session.jsonl", []
    for number, row in enumerate(rows):
        role = row.get("role", "user")
        fields = {"type": role, "uuid": f"u{number}", "parentUuid": f"u{number - 1}" if number else None}
        fields |= {"sessionId": "s1", "cwd": "/app", "timestamp": f"2026-03-01T10:00:{number:02d}Z"}
        message = {"role": role, "content": row["content"]} | ({"id": f"m{number}"} if role == "assistant" else {})
        extra = {key: value for key, value in row.items() if key not in ("role", "content")}
        lines.append(json.dumps(fields | {"message": message} | extra))
    path.write_text("\n".join(lines))
    return path


def words_of(session: th.Session) -> list[str]:
    return [message.text for message in session.history if message.text]


CALL = {"type": "tool_use", "id": "t1", "name": "Task", "input": {"prompt": "Count the files."}}


@pytest.mark.parametrize(
    ("metrics", "is_error"),
    [
        ({"totalDurationMs": 22310, "totalTokens": 34580, "totalToolUseCount": 2}, False),
        ({"totalDurationMs": 5, "totalTokens": 0, "totalToolUseCount": 0}, False),  # interrupted at once
        ({"totalDurationMs": 900, "totalTokens": 300, "totalToolUseCount": 0}, True),  # failed
        ("[Request interrupted by user for tool use]", True),  # a text in place of the figures
    ],
)
def test_failed_and_interrupted_sub_agents_are_removed_as_well(tmp_path: Path, metrics: Any, is_error: bool) -> None:
    answer = {"type": "tool_result", "tool_use_id": "t1", "content": "There are two.", "is_error": is_error}
    path = transcript(
        tmp_path,
        {"content": "How many files?"},
        {"role": "assistant", "content": [CALL]},
        {"content": [answer], "toolUseResult": metrics},
        {"role": "assistant", "content": [{"type": "text", "text": "Two files."}]},
        {"content": "Thanks."},
    )
    left = th.fit(th.read(path), policy="minimal")
    assert [part for message in left.history for part in message.parts if not isinstance(part, th.Text)] == []
    assert words_of(left) == ["How many files?", "Two files.", "Thanks."]


def test_a_report_is_recognized_by_its_figures_when_its_call_is_missing(tmp_path: Path) -> None:
    answer = {"type": "tool_result", "tool_use_id": "lost", "content": "There are two."}
    figures = {"totalDurationMs": 22310, "totalTokens": 34580, "totalToolUseCount": 2}
    path = transcript(
        tmp_path,
        {"content": "How many files?"},
        {"role": "assistant", "content": [{"type": "text", "text": "I ask a colleague."}]},
        {"content": [answer], "toolUseResult": figures},
        {"role": "assistant", "content": [{"type": "text", "text": "Two files."}]},
        {"content": "Thanks."},
    )
    kept = words_of(th.fit(th.read(path), policy="none"))
    assert any("There are two." in text for text in kept)
    left = words_of(th.fit(th.read(path), policy="minimal"))
    assert left == ["How many files?", "I ask a colleague.", "Two files.", "Thanks."]


def test_figures_in_the_result_of_another_tool_make_no_sub_agent(tmp_path: Path) -> None:
    call = {"type": "tool_use", "id": "t1", "name": "Read", "input": {"file_path": "/app/a.py"}}
    file = {"type": "text", "file": {"filePath": "/app/a.py", "content": "x = 1", "numLines": 1}}
    path = transcript(
        tmp_path,
        {"content": "What is x?"},
        {"role": "assistant", "content": [call]},
        {"content": [{"type": "tool_result", "tool_use_id": "t1", "content": "x = 1"}], "toolUseResult": file},
        {"role": "assistant", "content": [{"type": "text", "text": "One."}]},
        {"content": "Thanks."},
    )
    assert th.fit(th.read(path), policy="minimal").history == th.read(path).history


def test_everything_inside_a_sub_agent_goes_with_it(tmp_path: Path) -> None:
    inner = {"isSidechain": True, "agentId": "a1b2c3"}
    read = {"type": "tool_use", "id": "t2", "name": "Read", "input": {"file_path": "/app/a.py"}}
    path = transcript(
        tmp_path,
        {"content": "How many files?"},
        {"role": "assistant", "content": [CALL]},
        {"content": "Count the files, please.", **inner},
        {"role": "assistant", "content": [{"type": "text", "text": "I count."}, read], **inner},
        {"content": [{"type": "tool_result", "tool_use_id": "t2", "content": "x = 1"}], **inner},
        {"content": [{"type": "tool_result", "tool_use_id": "t1", "content": "There are two."}]},
        {"role": "assistant", "content": [{"type": "text", "text": "Two files."}]},
        {"content": "Thanks."},
    )
    session = th.fit(th.read(path), policy="minimal")
    assert words_of(session) == ["How many files?", "Two files.", "Thanks."]


def test_filtering_saves_at_least_sixty_percent_of_a_session_with_several_sub_agents() -> None:
    talk = Conversation().human("Survey the code.")
    for number in range(4):
        talk.uses("Task", text_of(f"report{number}", 80), prompt=text_of("prompt", 5))
        talk.uses("Bash", text_of("output", 12), command=f"make step{number}").agent(f"Step {number} is done.")
    talk.human("And now?")
    assert th.count(fit(talk, policy="smart")) <= 0.4 * th.count(talk.messages)


# Presets.


def test_smart_is_the_default_when_nothing_else_is_asked_for() -> None:
    talk = working_session()
    assert th.fit(talk.messages) == fit(talk, policy="smart")


@pytest.mark.parametrize("preset", ["none", "development"])
@pytest.mark.filterwarnings("ignore:.*is deprecated:DeprecationWarning")
def test_a_preset_for_debugging_removes_nothing(preset: str) -> None:
    talk = working_session()
    assert th.fit(talk.messages, policy=preset) is talk.messages


def test_minimal_removes_thinking_and_sub_agents_and_nothing_else() -> None:
    talk = working_session()
    left = fit(talk, policy="minimal")
    assert tools(left) == [name for name in tools(talk.messages) if name != "Task"]
    assert results(left) == results(talk.messages)[1:]
    assert [said(left, role) for role in ("user", "assistant")] == [
        said(talk.messages, role) for role in ("user", "assistant")
    ]
    assert not has(left, "Perhaps a table helps.")


def test_each_stronger_preset_leaves_fewer_tokens() -> None:
    sizes = [th.count(fit(working_session(), policy=preset)) for preset in PRESETS]
    assert sizes == sorted(set(sizes), reverse=True)


@pytest.mark.parametrize(
    "text",
    [
        "Perhaps a table helps.",  # thinking
        "The todo list is empty.",  # a reminder that a harness adds
        "report gag",  # what a sub-agent reported
        "prompt gag",  # how it was started
        "slow aaa",  # the mechanics of an edit
        "fast aaa",
        "timer not found",  # a failed attempt that a later one repaired
        "write the lookup table",  # project management
        "source cac",  # the text of a file
        "hit aaa",  # what a search found
    ],
)
def test_smart_removes_what_a_sub_agent_does_not_need(text: str) -> None:
    talk = working_session()
    assert text in json.dumps(talk.messages)
    assert text not in json.dumps(fit(talk, policy="smart"))


@pytest.mark.parametrize(
    "text",
    [
        "Make the parser faster.",  # what was requested
        "Commit it.",
        "I decided to use a lookup table.",  # what was decided
        "/app/parser.py",  # which code was examined and changed
        "make test",  # which commands ran
        "Ran 12 tests: OK",  # and with what result
        "fast lookup",  # which search ran
        "It is committed.",
    ],
)
def test_smart_keeps_the_context_that_a_sub_agent_needs(text: str) -> None:
    assert has(fit(working_session(), policy="smart"), text)


def test_smart_keeps_calls_and_replaces_bulky_results() -> None:
    talk = after(("Read", {"file_path": "/app/a.py"}, text_of("source")), ("Grep", {"pattern": "x"}, text_of("hit")))
    left = fit(talk, policy="smart")
    assert arguments(left) == [{"file_path": "/app/a.py"}, {"pattern": "x"}]
    assert [len(text) < 200 for text in results(left)] == [True, True]


def test_smart_keeps_the_results_of_commands_with_head_and_tail() -> None:
    """To drop all results and to keep the results of commands contradict each other, so long output is shortened."""
    short, long = "Ran 12 tests: OK", f"first line\n{text_of('output', 200)}\nlast line"
    left = results(fit(after(("Bash", {"command": "a"}, short), ("Bash", {"command": "b"}, long)), policy="smart"))
    assert left[0] == short
    assert left[1].startswith("first line")
    assert left[1].endswith("last line")
    assert len(left[1]) < 2_500


def test_smart_removes_a_failure_that_was_repaired_and_keeps_the_others() -> None:
    """To drop failed attempts and to keep errors contradict each other: an error matters until it is repaired."""
    talk = Conversation().human("Build it.")
    talk.uses("Bash", "Error: no rule to make lexer", failed=True, command="make lexer")
    talk.uses("Bash", "the lexer is built", command="make lexer")
    talk.uses("Bash", "Error: no rule to make linker", failed=True, command="make linker")
    left = fit(talk.agent("It does not link.").human("Why?").agent("No rule."), policy="smart")
    assert not has(left, "no rule to make lexer")
    assert has(left, "no rule to make linker")


@pytest.mark.parametrize(("preset", "longest"), [("moderate", 20_000), ("smart", 10_000), ("aggressive", 2_000)])
def test_a_preset_truncates_very_long_messages(preset: str, longest: int) -> None:
    talk = Conversation().human("Tell me.").agent(text_of("answer", 800)).human("More.").agent("That is all.")
    first, second = said(fit(talk, policy=preset), "assistant")
    assert 0.9 * longest < len(first) <= longest
    assert second == "That is all."


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_keeps_every_word_of_a_person_in_order(preset: str) -> None:
    left = said(fit(working_session(), policy=preset), "user")
    assert [text.removeprefix(REMINDER).strip() for text in left] == [
        "Make the parser faster.",
        "Thank you. Commit it.",
        "And push.",
    ]


@pytest.mark.parametrize("preset", PRESETS)
def test_a_second_run_of_a_preset_changes_nothing(preset: str) -> None:
    once = th.fit(working_session().messages, policy=preset)
    assert th.fit(once, policy=preset) == once


@pytest.mark.parametrize("preset", PRESETS)
def test_calls_and_results_stay_paired_by_id_when_they_are_parallel(preset: str) -> None:
    calls = [(name, {"n": name}, text_of(name)) for name in ("Read", "Task", "Bash", "Edit", "lookup")]
    talk = Conversation().human("Begin.").uses_in_parallel(*calls, order=(3, 0, 4, 2, 1)).agent("Done.").human("Go on.")
    left = fit(talk, policy=preset)
    asked = [block["id"] for row in left for block in row["content"] if "input" in block]
    answered = [block["tool_use_id"] for row in left for block in row["content"] if "tool_use_id" in block]
    assert sorted(asked) == sorted(answered)


def test_blocks_that_are_not_known_pass_through_every_filter() -> None:
    talk = Conversation().human("Begin.")
    block = {"type": "hologram", "data": [1, 2, 3]}
    talk.messages.append({"role": "assistant", "content": [{"type": "text", "text": "Here."}, block]})
    talk.human("Thanks.")
    assert has(th.fit(talk.messages, policy="aggressive"), "hologram")


def test_removed_text_can_be_restored_byte_for_byte() -> None:
    left = th.fit(working_session().messages, policy="smart")
    (shown,) = (text for text in results(left) if text.startswith("[thresher") and "parser.py" in text)
    (part_id,) = re.findall(r"t1:[0-9a-f]{16}", shown)
    assert th.restore(part_id) == text_of("source")


# Options for content.


def test_thinking_can_be_excluded() -> None:
    assert not has(fit(working_session(), exclude_thinking=True), "Perhaps a table helps.")
    assert has(fit(working_session(), policy="smart", exclude_thinking=False), "Perhaps a table helps.")


@pytest.mark.parametrize(("policy", "option", "stays"), [("none", True, False), ("smart", False, True)])
def test_reminders_of_the_harness_can_be_excluded_and_kept(policy: str, option: bool, stays: bool) -> None:
    left = fit(working_session(), policy=policy, exclude_system_reminders=option)
    assert has(left, "The todo list is empty.") is stays
    assert has(left, "Thank you. Commit it.")


def test_errors_can_be_excluded_with_the_rows_in_which_a_request_failed() -> None:
    talk = Conversation().human("Build it.").uses("Bash", "Error: no rule", failed=True, command="make")
    talk.agent('API Error: 529 {"type":"error","error":{"type":"overloaded_error"}}').human("Again.").agent("Built.")
    left = fit(talk, exclude_errors=True)
    assert tools(left) == []
    assert said(left, "assistant") == ["Built."]
    assert fit(talk) == talk.messages


@pytest.mark.parametrize(("errors", "failed"), [(False, True), (True, False)])
def test_the_option_for_failed_calls_wins_over_the_one_for_errors(errors: bool, failed: bool) -> None:
    talk = Conversation().human("Build it.").uses("Bash", "Error: no rule", failed=True, command="make").agent("No.")
    left = fit(talk.human("Why?"), exclude_errors=errors, exclude_failed_tools=failed)
    assert has(left, "Error: no rule") is not failed


def test_text_that_matches_a_pattern_is_removed_from_words_arguments_and_results() -> None:
    talk = Conversation().human("Begin.").uses("Bash", "id-77 is up", command="start id-12").agent("I started id-12.")
    left = fit(talk.human("Go on with id-12."), custom_patterns=(r"id-\d+", "is up"))
    assert arguments(left) == [{"command": "start "}]
    assert said(left, "assistant") == ["I started ."]
    assert not has(left, "id-77")
    assert said(left, "user")[-1] == "Go on with id-12."


def test_an_invalid_pattern_is_an_error() -> None:
    """It is not skipped silently: whoever excludes a secret must know that the pattern does nothing."""
    with pytest.raises(th.OptionError, match="not a valid pattern"):
        fit(working_session(), custom_patterns=("(",))


# Options for tools.


@pytest.mark.parametrize(
    ("category", "names"),
    [
        ("file_edit", ("Edit", "MultiEdit", "Write", "NotebookEdit", "apply_patch")),
        ("file_read", ("Read", "Glob", "Grep", "LS")),
        ("execution", ("Bash", "executeCode", "mcp__ide__executeCode")),
        ("web", ("WebSearch", "WebFetch")),
        ("analysis", ("Task", "Agent")),
        ("project", ("TodoWrite", "git_commit", "git_status")),
        ("mcp", ("mcp__ide__getDiagnostics", "mcp__github__create_issue", "use_mcp_tool")),
    ],
)
def test_a_category_of_tools_can_be_excluded(category: str, names: tuple[str, ...]) -> None:
    others = ("lookup", "Read" if category != "file_read" else "Bash")
    talk = after(*((name, {"x": 1}, "a result") for name in (*names, *others)))
    assert tools(fit(talk, exclude_tool_categories=(category,))) == list(others)


def test_git_commands_in_a_shell_belong_to_the_project() -> None:
    """A shell runs everything, so the command decides: git is project work, all else is execution."""
    talk = after(("Bash", {"command": "git commit -m x"}, "ok"), ("Bash", {"command": "make"}, "ok"))
    assert arguments(fit(talk, exclude_tool_categories=("project",))) == [{"command": "make"}]
    assert arguments(fit(talk, exclude_tool_categories=("execution",))) == [{"command": "git commit -m x"}]


def test_several_categories_can_be_excluded_together() -> None:
    talk = after(*((name, {}, "a result") for name in ("Edit", "Read", "WebSearch")))
    assert tools(fit(talk, exclude_tool_categories=("file_edit", "web"))) == ["Read"]


@pytest.mark.parametrize(
    ("option", "left"), [(("Edit", "websearch"), ["Read", "web_fetch"]), (("web*",), ["Edit", "Read"])]
)
def test_tools_can_be_excluded_by_name(option: tuple[str, ...], left: list[str]) -> None:
    talk = after(*((name, {}, "a result") for name in ("Edit", "Read", "WebSearch", "web_fetch")))
    assert tools(fit(talk, exclude_tools=option)) == left


def test_an_excluded_call_goes_with_its_result() -> None:
    talk = after(("Read", {"file_path": "a.py"}, text_of("source")))
    assert (
        fit(talk, exclude_tools=("Read",))
        == Conversation().human("Begin.").agent("Done.").human("Go on.").agent("Fine.").messages
    )


@pytest.mark.parametrize("named", [{}, {"exclude_tools": ("Read",)}, {"exclude_tool_categories": ("file_read",)}])
def test_results_can_be_excluded_alone(named: dict[str, Any]) -> None:
    """Without a name or a category, all tools are meant: the rule to keep the intent and drop the bulk needs it."""
    talk = after(("Read", {"file_path": "a.py"}, text_of("source")), ("lookup", {"key": "a"}, text_of("value")))
    left = fit(talk, exclude_tool_results_only=True, **named)
    assert arguments(left) == [{"file_path": "a.py"}, {"key": "a"}]
    assert not has(left, "source aaa")
    assert has(left, "value aaa") is bool(named)


def test_calls_can_be_excluded_alone() -> None:
    talk = after(("Write", {"file_path": "a.py", "content": text_of("source")}, "written: a.py"))
    left = fit(talk, exclude_tool_calls_only=True, exclude_tools=("Write",))
    assert not has(left, "source aaa")
    assert results(left) == ["written: a.py"]


FAILURES = (
    ("Bash", "Exit code 2\nno rule to make it"),
    ("Bash", "bash: maek: command not found"),
    ("lookup", '{"error": "unknown key"}'),
    ("lookup", '{"success": false}'),
    ("lookup", "Traceback (most recent call last):\n  File x\nKeyError: 1"),
    ("Read", "[Request interrupted by user]"),
)


@pytest.mark.parametrize("dialect", ["anthropic", "openai-chat", "openai-responses", "gemini"])
@pytest.mark.parametrize(("tool", "result"), FAILURES)
def test_failed_calls_can_be_excluded_in_every_dialect_without_a_flag(dialect: str, tool: str, result: str) -> None:
    talk = after((tool, {"command": "make"}, result), ("Bash", {"command": "ls"}, "Exit code 0\nError: 0"))
    messages = th.emit(th.parse(talk.messages), dialect)
    left = th.parse(th.fit(messages, policy="none", exclude_failed_tools=True, dialect=dialect), dialect)
    assert [call.arguments for message in left for call in message.calls] == ['{"command":"ls"}']


def test_a_failed_call_is_found_by_its_flag_and_goes_with_its_result() -> None:
    talk = Conversation().human("Begin.").uses("lookup", "All keys are in use.", failed=True, key="a").agent("No.")
    assert said(fit(talk.human("Go on."), exclude_failed_tools=True), "assistant") == ["No."]
    assert results(fit(talk, exclude_failed_tools=True)) == []


def test_failed_calls_stay_if_the_option_says_so() -> None:
    talk = Conversation().human("Begin.").uses("Bash", "Error: no rule", failed=True, command="make")
    talk.uses("Bash", "built", command="make").agent("Built.").human("Go on.")
    assert not has(fit(talk, policy="smart"), "Error: no rule")
    assert has(fit(talk, policy="smart", exclude_failed_tools=False), "Error: no rule")


# Options for messages.


def test_the_maximum_length_applies_to_a_whole_message() -> None:
    """Head and tail stay, not only the head, because answers and errors stand at the end."""
    long = f"first line\n{text_of('answer', 120)}\nlast line"
    talk = Conversation().human("Begin.").uses("Write", long, says=long, content=long).agent("Done.").human("Go on.")
    left = fit(talk, max_message_length=5_000)
    text, call = left[1]["content"]
    assert 4_000 < len(text["text"]) + len(json.dumps(call["input"])) <= 5_100
    assert text["text"].startswith("first line")
    assert text["text"].endswith("last line")
    assert len(results(left)[0]) <= 5_000
    assert left[3:] == talk.messages[3:]


def test_the_current_message_is_never_truncated() -> None:
    talk = Conversation().human("Begin.").agent("Yes?").human(text_of("request", 200))
    assert fit(talk, max_message_length=1_000) == talk.messages


@pytest.mark.parametrize("how", ["option", "environment", "smart"])
def test_empty_messages_can_be_excluded(monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    talk = Conversation().human("Begin.").agent(" \n ").human("Again.").agent("Yes.").messages
    assert th.fit(talk, policy="none", dialect="openai-chat") == talk
    monkeypatch.setenv("THRESHER_EXCLUDE_EMPTY", "true" if how == "environment" else "")
    options: Any = {"exclude_empty": True} if how == "option" else {}
    left = th.fit(talk, policy="smart" if how == "smart" else "none", dialect="openai-chat", **options)
    assert said(left, "assistant") == ["Yes."]


@pytest.mark.parametrize(
    ("role", "left"),
    [
        ("system", ["Begin.", "Yes.", "More.", "No.", "Go on."]),
        ("assistant", ["Be brief.", "Begin.", "More.", "Go on."]),
        ("user", ["Be brief.", "Begin.", "Yes.", "No.", "Go on."]),
    ],
)
def test_messages_can_be_excluded_by_role(role: str, left: list[str]) -> None:
    """The first and the current message of the person stay under every option: they are the task."""
    rows = Conversation().human("Begin.").agent("Yes.").human("More.").agent("No.").human("Go on.").messages
    chat = [{"role": "system", "content": "Be brief."}, *rows]
    assert [row["content"] for row in th.fit(chat, policy="none", exclude_roles=(role,))] == left


# Where options come from.

SETTINGS: list[tuple[str, str, dict[str, Any]]] = [
    ("EXCLUDE_THINKING", "true", {"exclude_thinking": True}),
    ("EXCLUDE_SYSTEM_REMINDERS", "true", {"exclude_system_reminders": True}),
    ("EXCLUDE_ERRORS", "true", {"exclude_errors": True}),
    ("CUSTOM_PATTERNS", "lookup,parser", {"custom_patterns": ("lookup", "parser")}),
    ("EXCLUDE_SUBAGENT_CALLS", "true", {"exclude_subagent_calls": True}),
    ("EXCLUDE_SUBAGENT_RESPONSES", "true", {"exclude_subagent_responses": True}),
    ("EXCLUDE_TOOL_CATEGORIES", "file_edit,web", {"exclude_tool_categories": ("file_edit", "web")}),
    ("EXCLUDE_TOOLS", "Edit,Write, WebSearch", {"exclude_tools": ("Edit", "Write", "WebSearch")}),
    ("EXCLUDE_TOOL_CALLS_ONLY", "true", {"exclude_tool_calls_only": True}),
    ("EXCLUDE_TOOL_RESULTS_ONLY", "true", {"exclude_tool_results_only": True}),
    ("EXCLUDE_FAILED_TOOLS", "true", {"exclude_failed_tools": True}),
    ("MAX_MESSAGE_LENGTH", "500", {"max_message_length": 500}),
    ("EXCLUDE_ROLES", "assistant", {"exclude_roles": ("assistant",)}),
]


@pytest.mark.parametrize("prefix", ["THRESHER_", "CLAUDIST_"])
@pytest.mark.parametrize(("name", "value", "options"), SETTINGS)
def test_every_option_has_an_environment_variable(
    monkeypatch: pytest.MonkeyPatch, prefix: str, name: str, value: str, options: dict[str, Any]
) -> None:
    expected = fit(working_session(), **options)
    assert expected != working_session().messages
    monkeypatch.setenv(prefix + name, value)
    assert fit(working_session()) == expected


@pytest.mark.parametrize("name", ["THRESHER_POLICY", "CLAUDIST_FILTER_PRESET"])
def test_the_preset_has_an_environment_variable(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "aggressive")
    assert fit(working_session(), policy=None) == fit(working_session(), policy="aggressive")


def test_the_call_wins_over_the_environment_and_the_environment_over_the_preset(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("THRESHER_EXCLUDE_THINKING", "false")
    assert has(fit(working_session(), policy="smart"), "Perhaps a table helps.")
    assert not has(fit(working_session(), policy="smart", exclude_thinking=True), "Perhaps a table helps.")


@pytest.mark.parametrize(("name", "value"), [("EXCLUDE_THINKING", "perhaps"), ("MAX_MESSAGE_LENGTH", "long")])
def test_an_invalid_value_is_an_error(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    """It does not silently mean no, or no limit."""
    monkeypatch.setenv(f"THRESHER_{name}", value)
    with pytest.raises(th.OptionError, match=name):
        fit(working_session())


def test_the_command_line_filters_as_the_library_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, out = tmp_path / "messages.json", tmp_path / "smaller.json"
    file.write_text(json.dumps(working_session().messages))
    monkeypatch.setenv("THRESHER_EXCLUDE_TOOLS", "Bash")
    result = run("fit", str(file), "--policy", "minimal", "--to", "anthropic", "-o", str(out))
    assert result.exit_code == 0, result.output
    assert json.loads(out.read_text()) == fit(working_session(), policy="minimal", exclude_tools=("Bash",))


def test_the_plan_reports_how_much_each_filter_removes() -> None:
    left, plan = fit_and_plan(working_session(), policy="smart")
    assert (plan.tokens_before, plan.tokens_after) == (th.count(working_session().messages), th.count(left))
    assert {"thinking", "reminders", "subagents", "tools", "messages"} <= {edit.policy for edit in plan.edits}
