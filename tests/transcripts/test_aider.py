"""Aider histories: authors of lines, layouts of edits, their results, and runs that grow."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import recordings
import thresher as th
from thresher.model import Text, Thinking, ToolCall, Usage
from thresher.model.tool_calls import describe_tool_call
from thresher.timeline import Timeline
from thresher.transcripts.aider.reader import FORMAT

FIXTURE = Path(__file__).parents[1] / "fixtures" / "aider.md"
STARTED = "\n# aider chat started at 2025-03-04 09:15:00\n\n"


def asked(*lines: str) -> str:
    """Format a prompt as Aider does."""
    return "\n" + "".join(f"#### {line}".rstrip() + "  \n" for line in lines)


def told(*lines: str) -> str:
    """Format Aider's output as Aider does."""
    return "".join(f"> {line}".rstrip() + "  \n" for line in lines)


def said(text: str) -> str:
    """Format an answer as Aider does."""
    return f"\n{text.strip()}\n\n"


def read(folder: Path, *pieces: str, name: str = "history.md") -> list[th.Session]:
    path = folder / name
    path.write_bytes("".join(pieces).encode())
    assert th.sniff(path) == "aider"
    return th.read_all(path)


def one(folder: Path, *pieces: str, name: str = "history.md") -> th.Session:
    [session] = read(folder, STARTED, *pieces, name=name)
    return session


def spoken(session: th.Session) -> list[tuple[str, str]]:
    return [(message.author, message.text) for message in session.messages()]


def edits(session: th.Session) -> list[tuple[str, dict[str, Any]]]:
    calls = [call for message in session.messages() for call in message.calls]
    assert all(describe_tool_call(call).category == "file_edit" for call in calls)
    return [(call.name, json.loads(call.arguments)) for call in calls]


# --- runs ------------------------------------------------------------------------------------------------------------


def test_every_run_is_a_session_that_keeps_its_name_while_the_file_grows(tmp_path: Path) -> None:
    runs = [STARTED + asked(text) + said("Yes.") for text in ("One?", "Two?")]
    later = STARTED.replace("09:15", "09:16") + asked("Three?")
    before = read(tmp_path, runs[0])
    after = read(tmp_path, *runs, later)
    assert [session.id for session in after] == ["20250304-091500", "20250304-091500-2", "20250304-091600"]
    assert before == after[:1]
    assert [str(session.started) for session in after[1:]] == ["2025-03-04 09:15:00+00:00", "2025-03-04 09:16:00+00:00"]


def test_lines_before_the_first_header_are_a_run_if_not_blank(tmp_path: Path) -> None:
    first, second = read(tmp_path, "-*- mode: text -*-\n", told("warming up"), asked("Hello?"), said("Hi."), STARTED)
    assert (first.id, spoken(first), first.started) == ("beginning", [("human", "Hello?"), ("model", "Hi.")], None)
    assert (second.id, len(second.history)) == ("20250304-091500", 0)
    [only] = read(tmp_path, told("^C KeyboardInterrupt"), STARTED, asked("Hello?"))
    assert only.id == "20250304-091500"


def test_an_invalid_start_time_is_reported(tmp_path: Path) -> None:
    [session] = read(tmp_path, STARTED.replace("03-04", "13-44"), asked("Hello?"))
    assert (session.id, session.started) == ("20251344-091500", None)
    assert [(problem.line, problem.done) for problem in session.problems] == [(2, "ignored")]


def test_output_before_the_first_prompt_is_metadata(tmp_path: Path) -> None:
    facts = told(
        "Aider v0.50.1-dev", "Models: big⚡ with ♾️ diff edit format, weak model small", "Git working dir: /w/app"
    )
    session = one(tmp_path, facts, told("Added a.py to the chat."), asked("/add b.py"), asked("Go on."), said("Done."))
    assert (session.version, session.project, session.title) == ("0.50.1-dev", "/w/app", "Go on.")
    assert [message.model for message in session.messages()] == ["", "", "big"]
    assert session.records == {"tool": 1, "fact": 3, "start": 1, "user": 2, "assistant": 1}


def test_a_project_is_the_folder_of_its_history(tmp_path: Path) -> None:
    assert one(tmp_path, asked("Hello?"), name=".aider.chat.history.md").project == str(tmp_path)
    assert one(tmp_path, asked("Hello?"), name="copy.md").project == ""


# --- authors ---------------------------------------------------------------------------------------------------------


def test_headings_and_quotes_in_an_answer_belong_to_the_model(tmp_path: Path) -> None:
    answer = "#### First\n\n> They say so.\n\n```\n#### hash\n> mark\n```\nEnd."
    session = one(tmp_path, asked("Explain."), said(answer), told("Tokens: 10 sent, 20 received."), asked("Thanks."))
    assert spoken(session) == [("human", "Explain."), ("model", answer), ("human", "Thanks.")]


def test_unclosed_code_ends_at_the_next_user_line(tmp_path: Path) -> None:
    cut = "kettle.py\n```python\n<<<<<<< SEARCH\nLIMIT = 90\n======="
    session = one(tmp_path, asked("Go."), said(cut), asked("/clear"), asked("Again."), said("```\nLIMIT\n```"))
    assert [author for author, _ in spoken(session)] == ["human", "model", "human", "human", "model"]
    assert edits(session) == []


def test_only_the_first_line_of_an_output_has_the_prefix(tmp_path: Path) -> None:
    output = "> 3 tests  ran\n\n    def test():\n>       assert False\nodd  \nlines\n\nE  failed  \n"
    session = one(tmp_path, asked("/run pytest"), output, asked("Fix it."), said("Yes."))
    text = "3 tests  ran\n\n    def test():\n>       assert False\nodd\nlines"
    assert spoken(session)[1] == ("tool", text)


def test_usage_on_two_lines_ends_the_answer_before_it(tmp_path: Path) -> None:
    bill = "> Tokens: 1.2k sent, 9 received.\nCost: $0.01 message, $0.02 session.  \n"
    session = one(tmp_path, asked("Hello?"), said("Hi."), bill, asked("More?"), said("No."))
    assert [text for _, text in spoken(session)] == ["Hello?", "Hi.", "More?", "No."]
    assert session.history[1].usage == Usage(1200, 9)


def test_without_trailing_spaces_the_prefix_decides(tmp_path: Path) -> None:
    code = "Look:\n\n```\n\n> not a quote\n\n#### not a prompt\n```"
    pieces = (
        asked("Show me.", "", "Now."),
        said(code),
        told("Tokens: 10 sent, 20 received."),
        asked("/ls"),
        told("a.py"),
    )
    whole = one(tmp_path, *pieces)
    bare = one(tmp_path, *("\n".join(map(str.rstrip, piece.split("\n"))) for piece in pieces))
    assert bare == whole
    assert spoken(bare)[1] == ("model", code)
    cut = one(
        tmp_path, "\n#### Show me.\n\n```\ncode\n\n\n> Tokens: 10 sent, 20 received.\n\n#### On.\n\n```\nmore\n```\n"
    )
    assert spoken(cut) == [("human", "Show me."), ("model", "```\ncode"), ("human", "On."), ("model", "```\nmore\n```")]


def test_windows_line_breaks_and_invalid_bytes_are_read(tmp_path: Path) -> None:
    path = tmp_path / "history.md"
    text = STARTED + asked("Caf\u00e9?", "", "Yes.") + said("One.\n\nTwo.") + told("Tokens: 10 sent, 20 received.")
    path.write_bytes(b"\xef\xbb\xbf" + text.lstrip().replace("\n", "\r\n").encode())
    [session] = th.read_all(path)
    assert spoken(session) == [("human", "Caf\u00e9?\n\nYes."), ("model", "One.\n\nTwo.")]
    path.write_bytes(text.encode("latin-1") + b"a\0b\n")
    [session] = th.read_all(path)
    assert session.history[0].text == "Caf\ufffd?\n\nYes."
    assert [(problem.what, problem.line) for problem in session.problems] == [("1 lines are not UTF-8", 5)]


def test_a_question_that_a_command_repeats_is_read_once(tmp_path: Path) -> None:
    session = one(
        tmp_path, asked("/ask why", "so?"), asked(" why", "so?"), said("So."), asked("<blank>"), asked("why", "so?")
    )
    assert [text for _, text in spoken(session)] == ["/ask why\nso?", "So.", "why\nso?"]
    assert (session.title, session.records["repeated"], session.records["blank"]) == ("/ask why\nso?", 1, 1)


@pytest.mark.parametrize(
    "lines",
    [
        ("# Fix any errors below, if possible.", "", "a.py:1"),
        ("# Question: how?", "", "# Relevant docs:"),
        ("I ran this command:", "ls"),
    ],
)
def test_prompts_that_aider_generates_have_the_harness_as_author(tmp_path: Path, lines: tuple[str, ...]) -> None:
    session = one(tmp_path, asked("/lint"), asked(*lines), said("Done."))
    assert [author for author, _ in spoken(session)] == ["human", "harness", "model"]


@pytest.mark.parametrize(
    ("line", "usage"),
    [
        ("Tokens: 5,244 sent, 604 received. Cost: $0.02 request, $0.02 session.", Usage(5244, 604)),
        ("Tokens: 12k sent, 1.5k received.", Usage(12_000, 1500)),
        ("Tokens: 23,172 sent, 10,496 cache hit, 9 received.", Usage(12_676, 9, 10_496)),
        ("Tokens: 194 sent, 9,474 cached, 7 received.", Usage(194, 7, 9474)),
        ("Tokens: 202 sent, 2,728 cache write, 18 received.", Usage(202, 18, 0, 2728)),
        ("Tokens: 5.0k sent, 1.0k cache write, 3.0k cache hit, 1.2M received.", Usage(1000, 1_200_000, 3000, 1000)),
    ],
)
def test_usage_includes_cached_tokens(tmp_path: Path, line: str, usage: Usage) -> None:
    session = one(
        tmp_path,
        asked("Hello?"),
        told("Tokens: 1 sent, 1 received."),
        said("Hi."),
        told(line, "Tokens: 2 sent, 2 received."),
    )
    assert [message.usage for message in session.history] == [None, usage]


@pytest.mark.parametrize(
    ("text", "thought", "words"),
    [
        ("<think>\nHm.\n</think>\n\nYes.", "Hm.", "Yes."),
        ("<think>Hm.</think>Yes.", "Hm.", "Yes."),
        ("<thinking-content-0a1b>\n\nHm,\n\nhm.\n\n</thinking-content-0a1b>\n\nYes.", "Hm,\n\nhm.", "Yes."),
        ("<think>\nHm, cut", "Hm, cut", ""),
    ],
)
def test_thinking_is_separated_from_text(tmp_path: Path, text: str, thought: str, words: str) -> None:
    parts = one(tmp_path, asked("Hello?"), said(text)).history[1].parts
    assert parts == (Thinking(thought), *([Text(words)] if words else []))


# --- edits -----------------------------------------------------------------------------------------------------------

BLOCK = "<<<<<<< SEARCH\na\n=======\nb\n>>>>>>> REPLACE"
SWAP = {"path": "src/a.py", "search": "a\n", "replace": "b\n"}
LAYOUTS = {
    "the name above": f"src/a.py\n```python\n{BLOCK}\n```",
    "the name marked": f"**`src/a.py`**:\n```python\n{BLOCK}\n```",
    "the name as a heading": f"### src/a.py\n```\n{BLOCK}\n```",
    "the name in the code": f"```python\nsrc/a.py\n{BLOCK}\n```",
    "the name in code of its own": f"```python\nsrc/a.py\n```\n```python\n{BLOCK}\n```",
    "the name behind the fence": f"```src/a.py\n{BLOCK}\n```",
    "tags for fences": f"src/a.py\n<source>python\n{BLOCK}\n</source>",
    "no fence": f"src/a.py\n{BLOCK}",
    "older marks": f"src/a.py\n```\n{BLOCK.replace('SEARCH', 'ORIGINAL').replace('REPLACE', 'UPDATED')}\n```",
    "closed by its middle": f"src/a.py\n```\n{BLOCK.replace('>>>>>>> REPLACE', '=======')}\n```",
}


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=list(LAYOUTS))
def test_a_search_replace_block_is_an_edit(tmp_path: Path, layout: str) -> None:
    session = one(tmp_path, asked("Go."), said(f"Before.\n\n{layout}\n\nAfter."), told("Applied edit to src/a.py"))
    before, call, after = session.history[1].parts
    assert (before, after) == (Text("Before."), Text("After."))
    assert isinstance(call, ToolCall)
    assert (call.name, json.loads(call.arguments)) == ("search_replace", SWAP)
    assert [result.text for result in session.history[2].results] == ["Applied edit to src/a.py"]


def test_a_block_without_a_name_edits_the_previous_or_the_only_edited_file(tmp_path: Path) -> None:
    fenced = f"```\n{BLOCK}\n```"
    session = one(tmp_path, asked("Go."), said(f"src/a.py\n{fenced}\n\nAnd:\n\n{fenced}"))
    assert edits(session) == [("search_replace", SWAP)] * 2
    nameless = one(tmp_path, asked("Go."), said(f"Here it is:\n\n{fenced}"), told("Applied edit to src/a.py"))
    assert edits(nameless) == [("search_replace", SWAP)]
    assert edits(one(tmp_path, asked("Go."), said(f"Here it is:\n\n{fenced}"))) == []


def test_blocks_can_share_a_fence_and_contain_marks(tmp_path: Path) -> None:
    inner = "    <<<<<<< SEARCH\n    ..."
    text = f"doc.md\n```\n<<<<<<< SEARCH\n{inner}\n=======\nnew\n>>>>>>> REPLACE\n\n{BLOCK}\n```"
    found = [fields["search"] for _, fields in edits(one(tmp_path, asked("Go."), said(text)))]
    assert found == [f"{inner}\n", "a\n"]


WHOLE = "# Kettle\n\nBoils.\n"
DIFF_A = "--- a/a.py\n+++ b/a.py\n@@ -1,2 +1,2 @@\n x\n-a\n+b\n\n@@ ... @@\n-c\n"
DIFF = f"```diff\n{DIFF_A}--- b.py\n+++ b.py\n@@ ... @@\n+d\n```"
PATCH = "*** Begin Patch\n*** Update File: a.py\n@@\n-a\n+b\n*** End Patch"


def test_a_whole_file_is_an_edit_if_aider_reports_one(tmp_path: Path) -> None:
    text = f"README.md\n```\n{WHOLE}```\n\nother.py\n```\nprint()\n```"
    shown = one(tmp_path, asked("Show."), said(text))
    session = one(tmp_path, asked("Write."), said(text), told("Applied edit to README.md"))
    assert edits(shown) == []
    assert edits(session) == [("write_file", {"path": "README.md", "content": WHOLE})]
    assert session.history[1].text == "other.py\n```\nprint()\n```"
    assert Timeline(session).file_state_at("README.md").text == WHOLE


def test_a_diff_is_an_edit_of_each_file_that_aider_names(tmp_path: Path) -> None:
    session = one(
        tmp_path, asked("Go."), said(f"See:\n{DIFF}\nEnd."), told("Applied edit to a.py", "Applied edit to b.py")
    )
    swaps = [{"search": "x\na\n\n", "replace": "x\nb\n\n"}, {"search": "c\n", "replace": ""}]
    assert edits(session) == [
        ("apply_diff", {"path": "a.py", "edits": swaps}),
        ("apply_diff", {"path": "b.py", "edits": [{"search": "", "replace": "d\n"}]}),
    ]
    assert session.history[1].text == "See:\nEnd."
    assert len([*session.history[2].results]) == 2


def test_a_patch_is_an_edit_where_aider_names_one_of_its_files(tmp_path: Path) -> None:
    session = one(tmp_path, asked("Go."), said(f"```\n{PATCH}\n```"), told("Applied edit to a.py"))
    assert edits(session) == [("apply_patch", {"input": PATCH})]
    assert [event.path for event in Timeline(session).events()] == ["a.py"]
    assert edits(one(tmp_path, asked("Go."), said(PATCH), told("Applied edit to b.py"))) == []


TWO = f"a.py\n```\n{BLOCK}\n```\n\nb.py\n```\n{BLOCK}\n```"
CONFORM = "The LLM did not conform to the edit format."
OUTCOMES: dict[str, tuple[tuple[str, ...], list[tuple[str, bool]]]] = {
    "applied": (("Applied edit to a.py", "Applied edit to b.py"), [("a.py", False), ("b.py", False)]),
    "refused by the user": (
        ("b.py", "Skipping edits to b.py", "Applied edit to a.py"),
        [("a.py", False), ("b.py", True)],
    ),
    "not to be written": (("Did not apply edit to a.py (--dry-run)",), [("a.py", True)]),
    "ignored": (("Skipping edits to a.py that matches gitignore spec.",), [("a.py", True)]),
    "not made": (("Unable to create a.py, skipping edits.",), [("a.py", True)]),
    "not understood": ((CONFORM, "^^^ Expected `=======`"), [("a.py", True), ("b.py", True)]),
    "not found": (
        (
            CONFORM,
            "# 1 SEARCH/REPLACE block failed to match!",
            "## This SEARCH block failed to exactly match lines in b.py",
        ),
        [("b.py", True)],
    ),
    "others found": (
        (
            CONFORM,
            "## This SEARCH block failed to exactly match lines in b.py",
            "# The other 1 SEARCH/REPLACE block were applied successfully.",
        ),
        [("a.py", False), ("b.py", True)],
    ),
    "cut off": (("^C again to exit",), []),
}


@pytest.mark.parametrize(("lines", "expected"), OUTCOMES.values(), ids=list(OUTCOMES))
def test_aiders_report_on_an_edit_is_its_result(
    tmp_path: Path, lines: tuple[str, ...], expected: list[tuple[str, bool]]
) -> None:
    session = one(tmp_path, asked("Go."), said(TWO), told("Tokens: 1 sent, 1 received.", *lines), asked("Well?"))
    paths = {call.id: json.loads(call.arguments)["path"] for call in session.history[1].calls}
    results = [result for message in session.messages() for result in message.results]
    assert [(paths[result.call_id], result.is_error) for result in results] == expected
    assert session.history.orphans == ()
    assert session.history[-1].text == "Well?"


def test_the_block_that_aider_repeats_has_failed(tmp_path: Path) -> None:
    other = BLOCK.replace("\na\n", "\nz  y\n")
    failed = (
        CONFORM,
        "## This SEARCH block failed to exactly match lines in a.py",
        *other.replace("  ", " ").split("\n"),
    )
    session = one(tmp_path, asked("Go."), said(f"a.py\n```\n{BLOCK}\n{other}\n```"), told(*failed))
    first, second = session.history[1].calls
    assert [(result.call_id, result.is_error) for result in session.history[2].results] == [(second.id, True)]
    assert first.id != second.id


def test_other_output_is_a_message(tmp_path: Path) -> None:
    lines = ("Applied edit to a.py", "Commit 1a2b3c4 fix: b", "Applied edit to b.py")
    session = one(tmp_path, asked("Go."), said(TWO), told(*lines), asked("/run make"), told("ok", "done"))
    assert spoken(session)[-3:] == [("tool", "Commit 1a2b3c4 fix: b"), ("human", "/run make"), ("tool", "ok\ndone")]


def test_the_timeline_includes_the_edits(tmp_path: Path) -> None:
    first, second = read(tmp_path, FIXTURE.read_text(encoding="utf-8"))
    assert [(event.path, event.failed) for event in Timeline(first).events()] == [
        ("kettle.py", False),
        ("kettle.py", True),
        ("kettle.py", False),
    ]
    assert "100 degrees" in (Timeline(second).file_state_at("README.md").text or "")


# --- files -----------------------------------------------------------------------------------------------------------


def test_every_recorded_run_is_read(shared_data: Path) -> None:
    """The index counts marks in any position. The counts differ for these reasons.

    Sessions: one more, for the lines before the first header. Messages: the index has two for each block of `#### `
    lines below a header (982). Seven of these are headings or code in answers, and one without its two trailing spaces
    counts as such; 8 are empty prompts, and 57 are questions that a command repeats. Edits: the index counts each line
    with the mark of a search block; 37 of them are quotes in errors, 2 are in other code, and 29 are in blocks that are
    truncated, malformed, or inside another.
    """
    [(row, sessions)] = recordings.indexed(shared_data, "aider")
    messages = [message for session in sessions for message in session.messages()]
    authors = Counter((message.role, message.author) for message in messages)
    records = sum((Counter(session.records) for session in sessions), Counter[str]())
    assert len(sessions) == row["sessions"] + 1
    assert len({session.id for session in sessions}) == len(sessions)
    assert records["user"] == row["msgs"] // 2 + 1 - 7 - 1
    prompts = authors["user", "human"] + authors["user", "harness"]
    assert prompts == records["user"] - records["blank"] - records["repeated"] == 975 - 8 - 57
    assert authors["assistant", "model"] == records["assistant"] == 476
    calls = [call for message in messages for call in message.calls]
    assert len(calls) == row["calls"] - 37 - 2 - 29
    results = [result for message in messages for result in message.results]
    assert (len(results), sum(result.is_error for result in results)) == (351, 33)
    assert all(session.history.orphans == () and not session.problems for session in sessions)
    assert all(message.parts and message.source and message.id for message in messages)


@pytest.mark.parametrize(
    "text",
    [
        "# Notes\n\nMilk.\n",
        "# How Aider works\n\nIt writes this:\n\n```\n# aider chat started at 2025-03-04 09:15:00\n```\n",
        '{"a": 1}\n# aider chat started at 2025-03-04 09:15:00\n',
        "# aider chat started at some time\n",
    ],
)
def test_other_texts_are_not_detected_as_aider(tmp_path: Path, text: str) -> None:
    path = tmp_path / "notes.md"
    path.write_text(text)
    assert th.sniff(path) is None


@pytest.mark.parametrize(
    "text",
    [
        STARTED + asked("How many?") + said("42"),
        STARTED + asked("Which?") + said("[1, 2]\n\n{}"),
        asked("Where?") + said("[here](a.md)") + STARTED,
    ],
)
def test_json_below_the_first_line_is_text(tmp_path: Path, text: str) -> None:
    assert [message.author for message in read(tmp_path, text)[0].history] == ["human", "model"]


def test_any_file_is_read_with_an_explicit_format(tmp_path: Path) -> None:
    path = tmp_path / "empty.md"
    path.touch()
    [session] = th.read_all(path, format="aider")
    assert (len(session.history), len(session.problems)) == (0, 1)


def test_only_configured_files_are_discovered(tmp_path: Path) -> None:
    assert FORMAT.homes({}, tmp_path) == []
    named, here = FORMAT.homes({"PWD": "/w/app", "AIDER_CHAT_HISTORY_FILE": "log/chat[1].md"}, tmp_path)
    assert (named.folder, named.pattern) == (Path("/w/app/log"), "chat[[]1].md")
    assert (here.folder, here.pattern) == (Path("/w/app"), ".aider.chat.history.md")


def test_a_long_answer_takes_linear_time(tmp_path: Path) -> None:
    open_blocks = "<<<<<<< SEARCH\n```diff\n*** Begin Patch\na.py\n```python\n" * 20_000
    session = one(tmp_path, asked("Go."), said(open_blocks), told("Applied edit to a.py", *["- x"] * 20_000))
    assert edits(session) == []
