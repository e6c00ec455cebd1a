"""The extractive summary: its content, and its priorities under a small limit."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_sessions import agent, call, everything, history, human, result, step

import thresher as th
from strategies import histories, jumbled_histories
from thresher.model import History, Message, Place, Summary, Text, Thinking, ToolResult
from thresher.model.text import clip, clip_path
from thresher.summarize import ExtractiveSummarizer, Summarizer, extractive_summarizer

summarise: Summarizer = extractive_summarizer


def edit(id: str, path: str, new: str, **more: Any) -> list[Message]:
    return step(id, "replace", {"file_path": path, "old_string": "x", "new_string": new, **more}, "ok")


WORK = history(
    human("Fix the flaky login test. It fails one time in ten.\n\nHere is the log: …"),
    step("1", "Read", {"file_path": "src/login.py"}, "1\n2\n3\n"),
    step("2", "Grep", {"pattern": "refresh", "path": "src"}, "src/login.py"),
    step("3", "Bash", {"command": "pytest -q tests/login.py"}, "Exit code 1\nE  AssertionError: late\n1 failed"),
    agent("Let me look at it. The root cause is a race between two refreshes.\n```\nbecause code\n```\nOn it."),
    edit("4", "src/login.py", "y\nz", instruction="lock the refresh"),
    edit("5", "src/login.py", "w"),
    step("6", "Write", {"file_path": "tests/new.py", "content": "1\n2\n"}, "ok"),
    step("7", "Bash", {"command": "pytest -x -q tests/login.py"}, "1 passed"),
    step("8", "Read", {"file_path": "src/login.py"}, "1\n2\n3\n4\n"),
    step("9", "Bash", {"command": "ruff check"}, "Exit code 1\nE501 line too long\nFound 1 error.", failed=True),
    step("10", "WebSearch", {"query": "asyncio lock"}, "…"),
    step("11", "Task", {"description": "review the lock", "prompt": "…"}, "fine"),
    step("12", "TodoWrite", {"todos": [{"content": "fix", "status": "completed"}, {"content": "lint"}]}),
    step("13", "AskUserQuestion", {"questions": [{"question": "Keep the old test?"}]}, "yes"),
    step("14", "mcp__db__query", {"sql": "select 1"}, "1"),
    step("15", "Bash", {"command": "git status"}, "clean"),
    step("16", "Bash", {"command": "git status"}, "clean"),
    agent("Should the lock be shared between processes?"),
)  # fmt: skip


def test_a_session_is_summarized() -> None:
    assert (
        summarise(WORK, everything(WORK), limit=4000)
        == """\
Turns 1-17: 16 tool calls
Changed:
- src/login.py: 2 edits (+3 −2 lines): lock the refresh
- tests/new.py: written (2 lines)
Failed:
- ruff check → exit 1: Found 1 error.
Said:
- "The root cause is a race between two refreshes."
- "Should the lock be shared between processes?"
Asked the user:
- "Keep the old test?" → yes
Plan: [x] fix, [ ] lint
Asked:
- "Fix the flaky login test. It fails one time in ten. Here is the log: …"
Sub-agents:
- "review the lock"
Ran:
- pytest -x -q tests/login.py → ok
- git status → ok (2 times)
Failed, made good later:
- pytest -q tests/login.py → exit 1: E AssertionError: late
Read: src/login.py (4 lines, 2 times)
Searched: "refresh" in src, "asyncio lock"
Other tools: mcp__db__query"""
    )


def test_a_small_limit_keeps_the_most_valuable_lines() -> None:
    assert (
        summarise(WORK, everything(WORK), limit=250)
        == """\
Turns 1-17: 16 tool calls
Changed:
- src/login.py: 2 edits (+3 −2 lines): lock the refresh
- tests/new.py: written (2 lines)
Failed:
- ruff check → exit 1: Found 1 error.
Said:
- … 1 more
- "Should the lock be shared between processes?\""""
    )
    assert (
        summarise(WORK, everything(WORK), limit=60)
        == """\
Turns 1-17: 16 tool calls
Changed: src/login.py: 2 edits (+…"""
    )


def test_only_the_members_are_summarized() -> None:
    read, answer = Place(1, 0), Place(2, 0)
    assert summarise(WORK, [read, answer], limit=400) == "Turn 1: 1 tool call\nRead: src/login.py (3 lines)"
    assert summarise(WORK, [read], limit=400) == "Turn 1: 1 tool call\nRead: src/login.py"
    failed = Place(5, 0)
    assert summarise(WORK, [failed], limit=400) == "Turn 3: 1 tool call\nRan:\n- pytest -q tests/login.py"
    assert summarise(WORK, [Place(0, 0)], limit=400).startswith("Turn 1: 1 part\nAsked:")
    assert summarise(WORK, [], limit=400) == "Turn 1: 0 parts"


def test_a_failure_is_open_until_a_retry_succeeds() -> None:
    def told(command: str) -> str:
        of = history(
            step("1", "Bash", {"command": "make test"}, "Exit code 2\nboom", failed=True),
            step("2", "Bash", {"command": command}, "fine"),
        )
        return summarise(of, everything(of), limit=400)

    assert "\nFailed, made good later:\n- make test → exit 2: boom" in told("make -j4 test")
    assert "\nFailed:\n- make test → exit 2: boom" in told("make lint")


def test_a_repeated_failure_is_listed_once_with_its_last_error() -> None:
    def failing(n: int) -> list[Message]:
        return step(str(n), "Edit", {"file_path": "a.py", "old_string": "x"}, f"no match {n}", failed=True)

    of = history(*map(failing, range(3)))
    assert (
        summarise(of, everything(of), limit=400)
        == "Turns 1-3: 3 tool calls\nFailed:\n- Edit a.py (3 times) → no match 2"
    )


def test_a_search_that_found_nothing_did_not_fail() -> None:
    of = history(step("1", "Bash", {"command": "grep -r x src"}, "Exit code 1", failed=True))
    assert summarise(of, everything(of), limit=400) == "Turn 1: 1 tool call\nRan:\n- grep -r x src → exit 1, no output"


def test_a_common_folder_is_named_once() -> None:
    of = history(*(step(str(n), "Read", {"file_path": f"/home/user/project/src/{n}.py"}, "x") for n in range(3)))
    assert summarise(of, everything(of), limit=400) == (
        "Turns 1-3: 3 tool calls, under /home/user/project/src/\nRead: 0.py (1 line), 1.py (1 line), 2.py (1 line)"
    )


def test_all_files_of_a_patch_are_listed() -> None:
    patch = "*** Begin Patch\n*** Update File: a\n-x\n+y\n*** Delete File: b\n*** End Patch"
    of = history(step("1", "apply_patch", patch, "ok"))
    assert summarise(of, everything(of), limit=400).splitlines()[1:] == [
        "Changed:",
        "- a: 1 edit (+1 −1 lines)",
        "- b: deleted",
    ]


def test_an_earlier_summary_is_kept_before_all_else() -> None:
    of = History((Message("user", (Summary("It began\nwith a bug."),), author="harness"), *WORK.messages))
    assert summarise(of, everything(of), limit=4000).splitlines()[1:3] == [
        "Summarised before:",
        "- It began with a bug.",
    ]


def test_agent_text_is_quoted_and_thinking_only_without_any() -> None:
    thought = agent(Thinking("I decided to wait for the lock."))
    of = history(thought)
    assert summarise(of, everything(of), limit=400) == 'Turn 1: 1 part\nSaid:\n- "I decided to wait for the lock."'
    of = history(thought, agent("All is well here."))
    assert summarise(of, everything(of), limit=400) == 'Turn 1: 2 parts\nSaid:\n- "All is well here."'


def test_harness_text_is_not_a_request() -> None:
    of = history(human("<system-reminder>Be brief.</system-reminder>\nFix it."), agent("ok"))
    assert '"Fix it."' in summarise(of, everything(of), limit=400)
    assert "Be brief" not in summarise(of, everything(of), limit=400)


def test_a_failed_result_without_its_call_is_listed() -> None:
    of = history(agent("hm"), result("9", "no such table", failed=True))
    assert summarise(of, [Place(1, 0)], limit=400) == "Turn 1: 1 part\nFailed:\n- no such table"


def test_the_number_of_quotations_is_an_option() -> None:
    of = history(agent(*(f"Why is number {n} so?" for n in range(9))))
    told = ExtractiveSummarizer(quotations=2)(of, everything(of), limit=4000)
    assert told.splitlines()[2:] == ['- "Why is number 7 so?"', '- "Why is number 8 so?"']


def test_a_very_long_section_leaves_room_for_the_others() -> None:
    of = history(*(edit(str(n), f"src/{n}.py", "y") for n in range(500)), agent("It fails because of the lock."))
    told = summarise(of, everything(of), limit=1000)
    assert 900 < len(told) <= 1000
    assert '- "It fails because of the lock."' in told
    assert "\n- … " in told


@given(histories, st.integers(40, 600), st.data())
def test_the_limit_holds_for_any_members_of_any_history(of: History, limit: int, data: st.DataObject) -> None:
    places = everything(of)
    members = data.draw(st.lists(st.sampled_from(places), unique=True)) if places else []
    told = summarise(of, members, limit=limit)
    assert 0 < len(told) <= limit
    assert told == summarise(of, members, limit=limit)
    told.encode()


@given(jumbled_histories, st.integers(-1, 45))
def test_even_a_tiny_limit_holds(of: History, limit: int) -> None:
    assert len(summarise(of, everything(of), limit=limit)) <= max(limit, 0)


@given(histories)
def test_the_order_of_the_members_does_not_matter(of: History) -> None:
    places = everything(of)
    assert summarise(of, places, limit=500) == summarise(of, places[::-1], limit=500)


@given(st.text(max_size=30), st.integers(0, 30))
def test_clipping_keeps_its_width(text: str, width: int) -> None:
    for clipped in (clip(text, width), clip_path(text, width)):
        assert len(clipped) <= width
        assert clipped == text or len(text) > width


@pytest.mark.parametrize(
    ("text", "width", "expected"),
    [("cafe\u0301 au lait", 5, "caf…"), ("ab👩\u200d🚀cd", 5, "ab…"), ("ab👍🏽cd", 4, "ab…"), ("abcdef", 4, "abc…")],
)
def test_clipping_splits_no_character(text: str, width: int, expected: str) -> None:
    assert clip(text, width) == expected


@pytest.mark.parametrize("kind", ["claude_code", "codex"])
def test_recordings_are_summarized_within_the_limit(kind: str, shared_data: Path) -> None:
    files = sorted(path for path in (shared_data / kind).iterdir() if path.is_file())[:12]
    sessions = [session for path in files if isinstance(session := th.read(path), th.Session)]
    assert sessions
    called = 0
    for one in (segment for session in sessions for segment in session.segments):
        told = summarise(one, everything(one), limit=2000)
        assert len(told) <= 2000
        called += len(one.chains)
        assert one.chains == () or f"{len(one.chains)} tool call" in told
    assert called > 100


def test_images_and_unusual_results_are_accepted() -> None:
    odd = Message("tool", (ToolResult("1"), Text("stray")), author="tool")
    of = history(agent(call("1", "Read", {"path": "a"})), odd)
    assert summarise(of, everything(of), limit=200) == "Turn 1: 1 tool call\nRead: a (0 lines)"
