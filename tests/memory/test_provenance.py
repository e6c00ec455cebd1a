"""Tests of provenance: the texts that a search covers, and the reasons to exclude others."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

import thresher as th
from thresher.errors import ThresherError
from thresher.memory.ingest.embedded_data import strip_embedded_data
from thresher.memory.ingest.memory_tools import (
    classify_recall,
    classify_recall_command,
    detect_memory_tool,
    find_recall_spans,
    is_memory_prompt,
    is_memory_tool,
)
from thresher.memory.ingest.provenance import (
    AttributedText,
    TextField,
    attribute_texts,
)
from thresher.memory.records import ExclusionReason
from thresher.model import Author, History, Image, Message, Session, Summary, Text, Thinking, ToolCall, ToolResult
from thresher.model.harness_text import RECALLED_TEXT_ELEMENTS
from thresher.model.parts import Part

RECALL = '<thresher-recall ids="a1b2c3d4 e5f6a7b8">\nWe rotated the token in March.\n</thresher-recall>'
ESCAPED = RECALL.replace("<", "&lt;").replace(">", "&gt;")
IN_JSON = json.dumps(RECALL).replace("<", "\\u003c").replace(">", "\\u003e")


def human(text: str, author: Author = "human") -> Message:
    return Message("user", (Text(text),), author)


def model(*parts: Part | str, author: Author = "model") -> Message:
    return Message("assistant", tuple(Text(part) if isinstance(part, str) else part for part in parts), author)


def bash(command: str, call_id: str = "1") -> ToolCall:
    return ToolCall(call_id, "Bash", json.dumps({"command": command}))


def result(text: str, call_id: str = "1") -> Message:
    return Message("tool", (ToolResult(call_id, (Text(text),)),), "tool")


def read(*messages: Message) -> list[list[AttributedText]]:
    found = list(attribute_texts(messages))
    assert [index for index, _ in found] == list(range(len(messages)))
    return [said for _, said in found]


def only(message: Message) -> list[AttributedText]:
    [said] = read(message)
    return said


def searched(said: Sequence[AttributedText]) -> str:
    return "".join(piece.text for piece in said if not piece.reason)


# Fields.


def test_each_part_has_its_field() -> None:
    arguments = '{"file_path": "a.py", "edits": [{"new": "x = 1"}, {"new": "y = 2"}], "count": 3, "all": true}'
    said = read(
        Message("system", (Text("You are a careful engineer."),), "harness"),
        human("Rename the field, please."),
        model(Thinking("It is in a.py only."), "Renaming it now.", ToolCall("1", "Edit", arguments)),
        result("The file was changed."),
        Message("user", (Summary("The field was renamed."), Image("image/png", "AAAA")), "harness"),
    )
    assert said == [
        [AttributedText("human", "You are a careful engineer.", "system")],
        [AttributedText("human", "Rename the field, please.")],
        [
            AttributedText("thinking", "It is in a.py only."),
            AttributedText("agent", "Renaming it now."),
            AttributedText("input", "a.py\nx = 1\ny = 2"),
        ],
        [AttributedText("output", "The file was changed.")],
        [AttributedText("summary", "The field was renamed.")],
    ]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ("*** Begin Patch\n*** Update File: a.py", "*** Begin Patch\n*** Update File: a.py"),
        ('{"command": ["bash", "-lc", "make test"]}', "bash\n-lc\nmake test"),
        ('{"broken": "json', '{"broken": "json'),
        ("[" * 200_000, "[" * 200_000),
        ('{"n": 1, "deep": {"flag": false, "text": "kept"}}', "kept"),
        ('"free text in quotes"', "free text in quotes"),
        ('{"password": "x9Kq72LmZ4vT", "note": "giraffe"}', "password: x9Kq72LmZ4vT\ngiraffe"),
        ('{"a": [{"headers": {"Authorization": "Bearer x9K"}}, "b"]}', "Authorization: Bearer x9K\nb"),
        ('{"api_key": ["x9Kq", {"value": "72Lm"}], "key": "v"}', "api_key: x9Kq\napi_key: 72Lm\nv"),
    ],
)
def test_the_text_of_a_call_contains_its_values(arguments: str, text: str) -> None:
    assert only(model(ToolCall("1", "Write", arguments))) == [AttributedText("input", text)]


def test_a_call_without_words_has_no_text() -> None:
    assert only(model(ToolCall("1", "TaskList", "{}"))) == []


def test_the_prompt_of_a_sub_agent_is_by_a_model() -> None:
    assert only(human("Find where the token is made.", author="model"))[0].field == "agent"


def test_output_of_user_commands_is_output() -> None:
    assert only(human("$ make\nall is built", author="tool")) == [AttributedText("output", "$ make\nall is built")]


def test_the_summary_after_a_compaction_is_a_summary() -> None:
    text = "This session is being continued from a previous conversation that ran out of context. We fixed the login."
    assert only(human(text, author="harness")) == [AttributedText("summary", text)]


# Noise.


@pytest.mark.parametrize(
    "text",
    [
        "How should we handle an API Error from Stripe?",
        "Caveat: the JWT refresh is not covered by these tests",
        "Set up a New environment variable",
        "New environment for staging, please: copy the one of production",
        "Why do I see API Error: 529 in the log?",
        "API Error: 529 keeps coming back in the worker, fix the retries",
        "The uploader says Limit reached, raise it",
        "Limit reached in the uploader: raise it to 50",
        "Upload limit reached",
        "what does [Request interrupted by user] mean?",
        "grep for <bash-stdout> and <ide_selection> in the logs",
        "why does the log end in </invoke>",
        "the reply ends in `</invoke>",
        "is <bash-123> a marker of yours?",
        "Why does it print <function_calls> as text?",
        "Is [1/5] abc1234 • a search result?",
        "I'll search for it myself, stay with the parser",
        "did you remember we talked about the memory search?",
        "/etc/hosts is not readable, why?",
        "/tmp is full again on the build machine",
        "what does <thresher-recall> do in this file? and </thresher-recall>?",
        "exactly 10",
        "修复登录错误",
        "  indented words\n\n\tand a tab \n",
    ],
)
@pytest.mark.parametrize("role", ["user", "assistant"])
def test_original_text_stays_unchanged(text: str, role: str) -> None:
    message = human(text) if role == "user" else model(text)
    field: TextField = "human" if role == "user" else "agent"
    assert only(message) == [AttributedText(field, text)]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("ok", "short"),
        ("thanks", "short"),
        ("  123456789\n", "short"),
        ("继续", "short"),
        ("[Request interrupted by user]", "interruption"),
        ("[Request interrupted by user for tool use]", "interruption"),
        ("<turn_aborted>\nThe user interrupted.\n</turn_aborted>", "interruption"),
        ('API Error: 529 {"type":"error","error":{"type":"overloaded_error"}}', "error"),
        ("API Error: Rate limit exceeded", "error"),
        ("API Error (Request timed out.)", "error"),
        ("Limit reached for model", "error"),
        ("Claude usage limit reached. Your limit will reset at 3pm (UTC).", "error"),
        ("Claude AI usage limit reached|1749924000", "error"),
        ("5-hour limit reached ∙ resets 3pm", "error"),
        ("New environment detected", "harness"),
        ("Caveat: The messages below were generated by the user while running local commands.", "command"),
        ("<bash-stdout>On branch main</bash-stdout><bash-stderr></bash-stderr>", "command"),
        ("<bash-123>", "command"),
        ("<bash-123>On branch main\nnothing to commit", "command"),
        ("<bash-123>\nOn branch main\n</bash-123>", "command"),
        ("<command-name>/clear</command-name>", "command"),
        ("/compact", "command"),
        ("<ide_opened_file>The user opened a.py.</ide_opened_file>", "editor"),
        ("<ide_file_opened path='/foo/bar.js'>", "editor"),
        ("<environment_details>\n# Tabs\n</environment_details>", "editor"),
        ("# AGENTS.md instructions for /repo\n\n<INSTRUCTIONS>\nBe terse.\n</INSTRUCTIONS>", "harness"),
        ('<function_calls><invoke name="Bash">ls</invoke></function_calls>', "syntax"),
        ("</invoke>", "syntax"),
        ("git status</parameter>\n</invoke>", "syntax"),
        ("git status --short</invoke>", "syntax"),
        ("[1/5] abc1234 • Dec 28\nThis session discussed JWT.\n\nAnd more of it.", "recall"),
    ],
)
def test_noise_is_excluded_with_its_reason(text: str, reason: ExclusionReason) -> None:
    said = only(human(text))
    assert {piece.reason for piece in said} == {reason}
    assert "".join(piece.text for piece in said) == text


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("API Error: 400 due to tool use concurrency issues.", "error"),
        ("You've hit your limit · resets 3pm", "error"),
        ("Prompt is too long", "error"),
        ("No response requested.", "harness"),
    ],
)
def test_harness_text_in_place_of_a_model_answer_is_excluded(text: str, reason: ExclusionReason) -> None:
    assert only(model(text, author="harness")) == [AttributedText("agent", text, reason)]


def test_text_that_a_format_attributes_to_the_harness_is_excluded() -> None:
    assert only(human("Review the code as an expert would.", author="harness"))[0].reason == "harness"


def test_a_prompt_next_to_harness_text_stays() -> None:
    said = only(human("<ide_selection>x = 1</ide_selection>\nWhy is this one?\n<system-reminder>a</system-reminder>"))
    assert said == [
        AttributedText("human", "\nWhy is this one?\n"),
        AttributedText("human", "<ide_selection>x = 1</ide_selection>", "editor"),
        AttributedText("human", "<system-reminder>a</system-reminder>", "harness"),
    ]


def test_the_length_limit_applies_to_the_whole_message() -> None:
    message = Message("user", (Text("yes, and"), Text("go on with it")))
    assert [piece.reason for piece in only(message)] == ["", ""]


def test_printed_calls_are_excluded_and_the_text_stays() -> None:
    printed = '<function_calls>\n<invoke name="Bash">\nls\n</invoke>\n</function_calls>'
    said = only(model(f"I will look.\n{printed}\nThat was it."))
    assert said == [AttributedText("agent", "I will look.\n\nThat was it."), AttributedText("agent", printed, "syntax")]


def test_printed_calls_in_code_blocks_stay() -> None:
    text = 'It is written so:\n```xml\n<function_calls>\n<invoke name="Bash"/>\n</function_calls>\n```'
    assert only(model(text)) == [AttributedText("agent", text)]


def test_reminders_after_output_are_excluded() -> None:
    reminder = "<system-reminder>\nThe file changed.\n</system-reminder>"
    said = read(model(bash("cat a")), result(f"x = 1\n{reminder}\n{reminder}\n"))[1]
    assert said[0] == AttributedText("output", "x = 1\n")
    assert {piece.reason for piece in said[1:]} == {"harness"}
    quoted = "'<system-reminder>x</system-reminder>'\n"
    assert searched(read(model(bash("cat a")), result(quoted))[1]) == quoted


# Data.

RUN = "iVBORw0KGgo" * 30


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (f"before {RUN}== after", "before  after"),
        (f"{RUN}\n{RUN}", "\n"),
        (f"x{'.' * 150}{RUN[:200]}.", f"x{'.' * 150}."),
        (RUN[:199], RUN[:199]),
        (f"{'-' * 37}{RUN[:199]}{'-' * 99}", f"{'-' * 37}{RUN[:199]}{'-' * 99}"),
        ('<img src="data:image/png;base64,iVBO/w=="> end', '<img src=""> end'),
        ("url(data:image/svg+xml,%3Csvg%3E) end", "url() end"),
        ("data: {}\n\ndata: [DONE]", "data: {}\n\ndata: [DONE]"),
    ],
)
def test_embedded_data_is_removed(text: str, left: str) -> None:
    assert strip_embedded_data(text) == left
    assert searched(only(human(f"some words {text}"))) == f"some words {left}"


@pytest.mark.parametrize("shift", range(0, 200, 7))
def test_base64_runs_are_found_at_any_offset(shift: int) -> None:
    text = "some words " * 20
    assert strip_embedded_data(f"{text[:shift]} {RUN[:200]} {text}") == f"{text[:shift]}  {text}"


# Memory tools.


@pytest.mark.parametrize(
    "name",
    [
        "mcp__thresher__search",
        "mcp__plugin_thresher_thresher__recall",
        "mcp__plugin_episodic-memory_episodic-memory__search",
        "mcp__episodic-memory__read",
        "mcp__plugin_claude-mem_mcp-search__get_observations",
        "mcp__claude_mem__timeline",
        "mcp__deja__deja",
        "mcp__agentsview__search_content",
        "mcp__claude-historian-mcp__search_conversations",
        "mcp__moraine__open",
        "mcp__polylogue__query",
        "mcp__memory__search_nodes",
        "mcp__memory__read_graph",
        "mcp_thresher_search",
        "memory__retrieve_memories",
        "conversation_search",
        "recall",
    ],
)
def test_tools_that_show_past_sessions(name: str) -> None:
    assert is_memory_tool(name)


@pytest.mark.parametrize(
    "name",
    [
        "mcp__memory__create_entities",
        "mcp__memory__add_observations",
        "mcp__deja__remember",
        "mcp__playwright__browser_click",
        "mcp__linear-server__list_issues",
        "mcp__context7__search",
        "mcp__in_memoriam__search",
        "memory",
        "save_memory",
        "search",
        "Grep",
        "web_search",
    ],
)
def test_tools_that_do_not_show_past_sessions(name: str) -> None:
    assert not is_memory_tool(name)


@pytest.mark.parametrize(
    "call",
    [
        ToolCall("1", "Skill", '{"skill": "episodic-memory:remembering-conversations"}'),
        ToolCall("1", "SlashCommand", '{"command": "/search-conversations jwt refresh"}'),
        ToolCall("1", "Task", '{"subagent_type": "search-conversations", "prompt": "jwt"}'),
        ToolCall("1", "use_mcp_tool", '{"server_name": "claude-mem", "tool_name": "search", "arguments": "{}"}'),
        ToolCall("1", "shell", '{"command": ["bash", "-lc", "thresher search jwt"]}'),
    ],
)
def test_calls_that_query_a_memory(call: ToolCall) -> None:
    assert classify_recall(call) == "alone"


@pytest.mark.parametrize(
    "call",
    [
        ToolCall("1", "Skill", '{"skill": "review"}'),
        ToolCall("1", "Task", '{"subagent_type": "explore", "prompt": "use recall and search-conversations"}'),
        ToolCall("1", "mcp__linear__create_issue", '{"name": "recall"}'),
        ToolCall("1", "Write", '{"file_path": "a.sh", "content": "thresher search jwt"}'),
    ],
)
def test_calls_that_do_not_query_a_memory(call: ToolCall) -> None:
    assert classify_recall(call) == ""


@pytest.mark.parametrize(
    ("command", "kind"),
    [
        ("thresher search jwt refresh", "alone"),
        ("thresher --json recall a1b2 'what broke?'", "alone"),
        ("thresher show a1b2 | head -50", "alone"),
        ("THRESHER_HOME=/tmp/x NO_COLOR=1 thresher related a1b2", "alone"),
        ("cd /repo && thresher search jwt", "among"),
        ("make test; deja search --json 'flaky'", "among"),
        ("make\nctx search 'retry'", "among"),
        ("echo jwt | xargs -I{} thresher search {}", "alone"),
        ("for id in a b; do thresher show $id; done", "among"),
        ("uvx --from thresher thresher search jwt", "alone"),
        ("uvx thresher@latest search jwt", "alone"),
        ("npx -y @vshulcz/deja-vu jwt", "alone"),
        ("pipx run cc-conversation-search search jwt", "alone"),
        ("python3 -m thresher search jwt", "alone"),
        ("/home/a/.local/bin/cass search 'auth' --robot", "alone"),
        ('"${CLAUDE_PLUGIN_ROOT}/cli/episodic-memory" search "jwt"', "alone"),
        ("timeout 30 claude-tools memory recall 'a1:why?'", "alone"),
        ("memory search 'jwt'", "alone"),
        ("fr 'jwt refresh'", "alone"),
        ("fast-resume jwt", "alone"),
        ("ccrecall search jwt", "alone"),
        ("memex search jwt", "alone"),
        ("aichat search jwt", "alone"),
        ("agentsview session search jwt", "alone"),
        ("polylogue jwt", "alone"),
        ("session-search jwt", "alone"),
        ("claude-mem search jwt", "alone"),
        ('found="$(thresher search jwt)"', "alone"),
        ("bash -c 'thresher search jwt'", "alone"),
        ('git add . # done\nthresher search "it\'s"', "among"),
        ("cat > a.md <<'EOF'\nit's text\nEOF\nthresher search jwt", "among"),
    ],
)
def test_commands_that_query_a_memory(command: str, kind: str) -> None:
    assert classify_recall_command(command) == kind


@pytest.mark.parametrize(
    "command",
    [
        'grep -rn "thresher search" docs/',
        "grep -rn 'a; thresher search' docs/",
        'rg "foo|deja search" src',
        r"grep -rn foo\;thresher\ search docs",
        "echo thresher search",
        "# thresher search jwt",
        "make # && thresher search jwt",
        "cat > a.md <<'EOF'\nthresher search jwt\ndeja jwt\nEOF",
        'git commit -m "Docs\n\nthresher search jwt"',
        "git commit -m \"$(cat <<'EOF'\nthresher search finds it\nEOF\n)\"",
        "thresher fit session.jsonl",
        "thresher sync",
        "cd thresher && search .",
        "pip install thresher deja fast-resume",
        "cat src/thresher/memory/recalls.py",
        "pytest tests/memory -k search",
        "free -m; memory_profiler search",
        "docker run memory search",
        "which deja",
        "npm run thresher",
        "ls fr de en",
        "",
    ],
)
def test_commands_that_do_not_query_a_memory(command: str) -> None:
    assert classify_recall_command(command) == ""


def test_a_recall_is_excluded_and_the_work_around_it_stays() -> None:
    said = read(
        human("Fix the token refresh, please."),
        model("I will run the tests first.", bash("make test", "1")),
        result("2 failed", "1"),
        model(bash("thresher search token refresh", "2")),
        result("[a1b2c3d4] we rotated it in March", "2"),
        model("We rotated it in March, so I do the same."),
        model(ToolCall("3", "Edit", '{"file_path": "a.py", "new_string": "rotate()"}')),
        result("changed", "3"),
        model("The refresh rotates the token now."),
    )
    flags = [[(piece.reason, piece.derived) for piece in message] for message in said]
    clean, echo, recall = ("", False), ("", True), ("recall", False)
    assert flags == [[clean], [clean, clean], [clean], [recall], [recall], [echo], [clean], [clean], [clean]]


def test_the_prompt_before_a_recall_is_derived() -> None:
    said = read(
        human("How did we fix the jwt refresh?"),
        model("Let me look into past sessions.", ToolCall("1", "mcp__thresher__search", '{"query": "jwt refresh"}')),
        result("a1b2: rotated", "1"),
        model("You rotated the token."),
        human("Now write a test for it."),
        model("I write the test now."),
    )
    assert [[piece.derived for piece in message] for message in said] == [
        [True],
        [True, False],
        [False],
        [True],
        [False],
        [False],
    ]
    assert said[1][1] == AttributedText("input", "jwt refresh", "recall")


def test_an_edit_parallel_to_a_recall_does_not_end_the_echo() -> None:
    both = model(bash("deja jwt", "1"), bash("make", "2"))
    for order in (("1", "2"), ("2", "1")):
        answers = [result("done by someone", call_id) for call_id in order]
        said = read(human("Look at it, please."), both, *answers, model("It was done by someone."))
        assert said[-1][0].derived
        assert searched(said[1]) == "make"


def test_a_slash_command_that_searches_is_a_recall() -> None:
    for text in ("/recall jwt refresh", "<command-name>/episodic-memory:search-conversations</command-name>"):
        assert is_memory_prompt(text)
        said = read(human(text), model("We rotated the token."))
        assert said[0] == [AttributedText("human", text, "recall")]
        assert said[1] == [AttributedText("agent", "We rotated the token.", derived=True)]


def test_a_recall_command_does_not_affect_the_previous_prompt() -> None:
    look = model(bash("thresher search jwt"))
    said = read(human("Explain the login, please."), model("It goes through a.py."), human("/recall jwt"), look)
    assert [piece.derived for message in said for piece in message] == [False, False, False, False]


def test_a_result_without_its_call_is_identified_by_name() -> None:
    message = Message("tool", (ToolResult("9", (Text("old words"),), name="mcp__deja__deja"),), "tool")
    assert only(message) == [AttributedText("output", "old words", "recall")]


def test_among_other_commands_only_the_tagged_block_is_excluded() -> None:
    output = f"3 passed\n{RECALL}\ndone\n"
    said = read(model(bash("make test && thresher search jwt")), result(output))[1]
    assert said == [AttributedText("output", "3 passed\n\ndone\n"), AttributedText("output", RECALL, "recall")]
    assert {piece.reason for piece in read(model(bash("make && fr jwt")), result("3 passed"))[1]} == {"recall"}


# Recalled text inside other text.

BEFORE, AFTER = "Work before stays.\n", "\nWork after stays.  \n"


@pytest.mark.parametrize(
    "block",
    [
        RECALL,
        ESCAPED,
        "<deja-recall>\n- Assistant: rotated\n</deja-recall>",
        "&lt;deja-recall&gt;\nold\n&lt;/deja-recall&gt;",
        "<claude-mem-context>\n# Recent\n</claude-mem-context>",
        "<relevant-memories>\n1. prefers tabs\n</relevant-memories>",
        f"  {RECALL}".lstrip(),
    ],
)
def test_a_tagged_block_is_excluded_in_any_text(block: str) -> None:
    text = f"{BEFORE}{block}{AFTER}"
    expected: dict[TextField, list[AttributedText]] = {}
    for field in ("human", "agent", "output", "thinking"):
        expected[field] = [AttributedText(field, BEFORE + AFTER), AttributedText(field, block, "recall")]
    assert only(human(text)) == expected["human"]
    assert only(model(text)) == expected["agent"]
    assert only(model(Thinking(text))) == expected["thinking"]
    assert read(model(bash("codex exec look")), result(text))[1] == expected["output"]


def test_a_block_in_printed_json_is_excluded() -> None:
    for printed in (IN_JSON, json.dumps(RECALL), json.dumps(IN_JSON)):
        text = f'{{"n": 1, "text": {printed}, "cost": 2}}'
        said = read(model(bash("codex exec look")), result(text))[1]
        assert "March" not in searched(said)
        assert searched(said).startswith('{"n": 1, "text": ')
        assert searched(said).endswith(', "cost": 2}')


def test_a_block_from_a_hook_is_excluded_and_the_prompt_stays() -> None:
    said = only(human(f"<hook_context>{ESCAPED}</hook_context>\n\nHow often does the token rotate?"))
    assert searched(said) == "\n\nHow often does the token rotate?"
    assert [piece.reason for piece in said] == ["", "recall", *(piece.reason for piece in said[2:])]


def test_our_truncated_block_extends_to_the_end() -> None:
    text = BEFORE + RECALL.removesuffix("</thresher-recall>")
    assert searched(read(model(bash("codex exec look")), result(text))[1]) == BEFORE
    hook = only(human(f"<local-command-stdout>\n{text}", author="harness"))
    assert [piece.reason for piece in hook] == ["command", "recall"]
    for said in (only(human(text)), only(model(text)), only(model(Thinking(text)))):
        assert searched(said) == text
    quoted = "docs.md:3: the mark `<thresher-recall ids>` opens a block\nmore work\n"
    assert searched(read(model(bash("grep -rn recall docs")), result(quoted))[1]) == quoted


OBJECT = {
    "mark": '<thresher-recall sessions="a1b2c3d4">',
    "text": 'It said "end": "</thresher-recall>" in March.',
    "end": "</thresher-recall>",
}


@pytest.mark.parametrize(
    "told",
    [
        json.dumps(OBJECT),
        json.dumps(OBJECT, indent=2),
        json.dumps(OBJECT, separators=(",", ":")),
        json.dumps(OBJECT).replace("<", "\\u003c").replace(">", "\\u003e"),
        json.dumps(json.dumps(OBJECT, indent=2))[1:-1],
        json.dumps(json.dumps(json.dumps(OBJECT)))[3:-3],
        json.dumps(OBJECT).replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;"),
    ],
)
def test_our_json_is_excluded_completely(told: str) -> None:
    text = f"{BEFORE}{told}{AFTER}"
    assert searched(read(model(bash("cat found.json")), result(text))[1]) == BEFORE + AFTER
    assert searched(only(human(text))) == BEFORE + AFTER
    half = text[: text.index("March")]
    assert searched(read(model(bash("head found.json")), result(half))[1]) == BEFORE


def test_json_that_only_mentions_our_tag_stays() -> None:
    for text in ('What does {"mark": "<thresher-recall>"} mean here?', '{"mark": "<b>", "end": "</thresher-recall>"}'):
        assert searched(only(human(text))) == text
        assert find_recall_spans(text.replace("thresher-recall", "thresher-x"), printed=True) == []


@pytest.mark.parametrize(
    "block",
    [
        "[1/5] abc1234 • Dec 28\nThis session discussed JWT.\n\n- rotated\n\n[2/5] abd1234 • Dec 29\nAnd this.",
        "~/project | abc-123-def-456 | 10 matches | 2024-12-28T10:40:00Z\n[user] How do I?\n... and 5 more matches",
        "Session: 5a4020c4-ab2c-42b6\nMatches: 12 | Latest: 2025-12-04\n[user] why?",
        "[claude]  proj · today  · 2fc1d1ef-59f — 287 matches\n  we rotated it",
        "ctx_session_id: 01900000-0000-7000\nprovider: codex\n\n[2026-07-30] user message\n  old words",
    ],
)
def test_hits_with_headers_are_excluded(block: str) -> None:
    said = read(model(bash("sh look.sh")), result(f"Work before.\n{block}\n\nWork after."))[1]
    assert said == [
        AttributedText("output", "Work before.\n\n\nWork after."),
        AttributedText("output", block, "recall"),
    ]


@pytest.mark.parametrize("name", [name for group in RECALLED_TEXT_ELEMENTS for name in group.split()])
@pytest.mark.parametrize(("opening", "closing"), [("<", ">"), ("&lt;", "&gt;"), ("\\u003c", "\\u003e")])
def test_every_tag_is_recognized(name: str, opening: str, closing: str) -> None:
    block = f"{opening}{name}{closing}old words{opening}/{name}{closing}"
    assert find_recall_spans(f"Before.\n{block}\nAfter.", printed=True) == [(8, 8 + len(block))]


# Sessions of memory tools.


def session(*messages: Message, project: str = "/repo", file: str = "a.jsonl") -> Session:
    return Session("claude-code", "a", file, (History(messages),), project=project, records={"queue-operation": 2})


@pytest.mark.parametrize(
    ("made", "tool"),
    [
        (session(project="/home/a/.claude-mem/observer-sessions"), "claude-mem"),
        (session(file="/home/a/.claude/projects/-home-a--claude-mem-observer-sessions/b.jsonl"), "claude-mem"),
        (session(human("You are a Claude-Mem, a specialized observer tool for …")), "claude-mem"),
        (session(human("Hello memory agent, you are continuing to observe …")), "claude-mem"),
        (session(human("Go on.\n\n<observed_from_primary_session>\n  <user_request>x")), "claude-mem"),
        (
            session(human("<INSTRUCTIONS-TO-EPISODIC-MEMORY>DO NOT INDEX THIS CHAT</INSTRUCTIONS-TO-EPISODIC-MEMORY>")),
            "episodic-memory",
        ),
        (
            session(human("Context: This summary will be shown in a list to help users and Claude choose which …")),
            "episodic-memory",
        ),
        (session(human("Why does the sidebar show `You are a Claude-Mem, a specialized observer tool`?")), ""),
        (session(human("What is <INSTRUCTIONS-TO-EPISODIC-MEMORY>DO NOT INDEX THIS CHAT for?")), ""),
        (session(human("Fix the login."), model("You are a Claude-Mem, it says.")), ""),
        (session(), ""),
    ],
)
def test_sessions_that_a_memory_tool_created(made: Session, tool: str) -> None:
    assert detect_memory_tool(made) == tool


# Hostile and recorded texts.


@pytest.mark.parametrize(
    "piece",
    [
        "<thresher-recall ",
        "\n<thresher-recall>\n",
        "\n<memory-hint>",
        "&lt;thresher-recall&gt;",
        '"\\u003cthresher-recall\\u003e',
        '{"mark": "<thresher-recall>',
        '{\\n\\\\"mark\\\\":\\\\"<thresher-recall>\\\\"end',
        "{\\\\n",
        "[1/1] abcdef0 •",
        "\n[1/1] abcdef0 • a\n\n",
        "a | 1234567 | 9 matches | ",
        "[a-b] x · ",
        "<system-reminder></system-reminder>",
        "\n<invoke>",
        "x <invoke> ",
        "data:a/b;",
        "A" * 150 + " ",
        "API Error: {}",
        "thresher search;",
        "A=1 thresher ",
        "{",
        ";A=",
        '\\"',
        "' \" ",
        "<<EOF\n",
        "npx --from ",
        "\n",
        " ",
        "/",
    ],
)
def test_hostile_text_takes_linear_time(piece: str) -> None:
    text = piece * (200_000 // len(piece))
    find_recall_spans(text, printed=True)
    classify_recall_command(f"thresher {text}")
    classify_recall_command(f"{text} thresher")
    read(human(text), model(text, Thinking(text), bash(f"fr\n{text}")), result(text), model(f"API Error: {text}"))


def test_recorded_sessions_are_attributed_completely(shared_data: Path) -> None:
    files = [file for kind in ("claude_code", "codex", "pi", "opencode") for file in (shared_data / kind).iterdir()]
    for file in sorted(files)[::4]:
        try:
            found = th.read(str(file))
        except ThresherError:
            continue
        assert isinstance(found, Session)
        messages = list(found.messages())
        said = list(attribute_texts(messages))
        assert [index for index, _ in said] == list(range(len(messages)))
        assert all(piece.text.strip() for _, all_of in said for piece in all_of)
        assert detect_memory_tool(found) == ""
