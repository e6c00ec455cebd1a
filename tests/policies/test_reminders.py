"""The policy `reminders`: harness text is removed; human text stays byte for byte."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strategies import histories
from thresher.edits import apply, build_plan
from thresher.model import Author, History, Image, Message, Summary, Text, ToolCall, ToolResult
from thresher.model.harness_text import find_harness_offsets
from thresher.policies.reminders import StripReminders
from thresher.tokens import default_token_weights

SCALE = default_token_weights(counter="estimate")
REMINDER = "<system-reminder>\nThe list of things to do is empty.\n</system-reminder>"
MEMORY = "<thresher-memory>\nwe used port 8080 last time\n</thresher-memory>"
SKILL = "Base directory for this skill: /skills/review\n\n# Review\nLook at every file."
RULES = "# AGENTS.md instructions for /work\n\n<INSTRUCTIONS>\nRun the tests.\n</INSTRUCTIONS>"


def user(text: str, author: Author = "human") -> Message:
    return Message("user", (Text(text),), author=author)


def model(*parts: Text | ToolCall) -> Message:
    return Message("assistant", parts or (Text("fine"),), author="model")


def after(policy: StripReminders, history: History) -> History:
    return apply(history, build_plan(history, policy(history), SCALE))


def left_of(text: str, author: Author = "human", policy: StripReminders | None = None) -> str | None:
    """Return what remains of an old user message, or None."""
    history = History((user("first"), model(), user(text, author), model(Text("then")), user("last")))
    smaller = after(policy or StripReminders(), history)
    assert after(policy or StripReminders(), smaller) == smaller
    return smaller[2].text if len(smaller) == len(history) else None


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (f"{REMINDER}\nfix the test", "\nfix the test"),
        (f"fix the test \n\n{REMINDER}", "fix the test \n\n"),
        (f"{REMINDER}{REMINDER}\n  keep\tthis  ", "\n  keep\tthis  "),
        ("<user_query>\nwhy?\n</user_query>", "\nwhy?\n"),
        ("what does <system-reminder> mean?", "what does <system-reminder> mean?"),
        ("<system-reminder>never closed", "<system-reminder>never closed"),
        ("plain words", "plain words"),
        (f"{MEMORY}\nand now?", f"{MEMORY}\nand now?"),
    ],
)
def test_human_text_is_unchanged(text: str, left: str) -> None:
    assert left_of(text) == left


@pytest.mark.parametrize(
    "text",
    [
        REMINDER,
        "<local-command-stdout>Goodbye!</local-command-stdout>",
        "<command-name>/clear</command-name>\n<command-message>clear</command-message>\n<command-args></command-args>",
        "[Request interrupted by user for tool use]",
        "Stop hook feedback:\nrun the linter",
        "<bash-stdout></bash-stdout><bash-stderr></bash-stderr>",
    ],
)
def test_noise_is_removed(text: str) -> None:
    assert left_of(text, "harness") is None


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (
            "<command-message>fix is running…</command-message>\n<command-name>/fix</command-name>\n"
            "<command-args>the parser</command-args>",
            "\n<command-name>/fix</command-name>\n<command-args>the parser</command-args>",
        ),
        ("<bash-input>git pull</bash-input>", "<bash-input>git pull</bash-input>"),
        ("<bash-stdout>3 failed</bash-stdout><bash-stderr></bash-stderr>", "<bash-stdout>3 failed</bash-stdout>"),
        (
            "<user-memory-input>always use tabs</user-memory-input>",
            "<user-memory-input>always use tabs</user-memory-input>",
        ),
    ],
)
def test_command_arguments_of_the_user_stay(text: str, left: str) -> None:
    assert left_of(text, "harness") == left
    assert left_of(text, "harness", StripReminders(keep_context=False, keep_recall=False)) == left


@pytest.mark.parametrize(
    "text",
    [
        "<task-notification>\n<task-id>a1b2c3d</task-id>\n<result>Found it.</result>\n</task-notification>",
        "[read_file for 'a.py'] Result:\n1 | import os",
        "This session is being continued from a previous conversation that ran out of context. Summary: …",
        "<state_snapshot>\nwhat was done\n</state_snapshot>",
    ],
)
def test_work_and_summaries_stay_with_any_options(text: str) -> None:
    assert left_of(text, "harness", StripReminders(keep_context=False, keep_recall=False)) == text


@pytest.mark.parametrize(
    ("text", "author"),
    [
        (SKILL, "harness"),
        (RULES, "harness"),
        ("SYSTEM CONTEXT (JSON):\n{}", "harness"),
        ("Review the branch and list what is wrong.", "harness"),
        ("<environment_context>\n<cwd>/work</cwd>\n</environment_context>", "harness"),
        ("<system-reminder>\nUse this context:\n# claudeMd\nRun the tests.\n</system-reminder>", "harness"),
    ],
)
def test_context_is_removed_only_on_request(text: str, author: Author) -> None:
    assert left_of(text, author) == text
    assert left_of(text, author, StripReminders(keep_context=False)) is None


def test_recalled_text_is_removed_only_on_request() -> None:
    assert left_of(MEMORY, "recall") == MEMORY
    assert left_of(MEMORY, "recall", StripReminders(keep_recall=False)) is None
    assert left_of(f"{MEMORY}\nand now?", "human", StripReminders(keep_recall=False)) == "\nand now?"


def test_summaries_images_and_system_text_stay() -> None:
    picture = Image("image/png", "QUJD")
    history = History(
        (
            Message("system", (Text(REMINDER),), author="harness"),
            Message("user", (Summary("what was done"), Text(REMINDER)), author="harness"),
            Message("user", (picture, Text(REMINDER)), author="harness"),
            user("last"),
        )
    )
    smaller = after(StripReminders(keep_context=False, keep_recall=False), history)
    assert [message.parts for message in smaller] == [
        (Text(REMINDER),),
        (Summary("what was done"),),
        (picture,),
        (Text("last"),),
    ]


def test_only_harness_text_is_removed_from_the_current_message() -> None:
    history = History((Message("user", (Text(REMINDER), Text(f"{REMINDER}\nfix it"))),))
    plan = build_plan(history, StripReminders()(history), SCALE)
    assert [part.text for part in apply(history, plan)[0].parts if isinstance(part, Text)] == ["\nfix it"]
    assert plan.unpinned == 2
    assert "pinned, but edited by reminders: 2" in plan.explain()


@pytest.mark.parametrize(
    "text",
    [
        f"{REMINDER}\n<goal>ship it</goal>",
        f"{REMINDER}\nStop hook feedback: is what I see, why?",
        "<task>\n<goal>ship it</goal>\n</task>",
    ],
)
def test_human_text_never_turns_into_noise(text: str) -> None:
    assert left_of(text, policy=StripReminders(keep_context=False)) == text


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (f"     1→import os\n\n{REMINDER}\n", "     1→import os"),
        (f"ok\n{REMINDER}\n\n{REMINDER}", "ok"),
        (REMINDER, REMINDER),
        (f"{REMINDER}\nimport os", f"{REMINDER}\nimport os"),
        (f"     1→{REMINDER}", f"     1→{REMINDER}"),
        ("</system-reminder>", "</system-reminder>"),
    ],
)
def test_results_lose_reminders_at_their_end(text: str, left: str) -> None:
    history = History(
        (
            user("read it"),
            model(ToolCall("c1", "Read", '{"file_path": "a.py"}')),
            Message("tool", (ToolResult("c1", (Text(text),)),), author="tool"),
            model(),
        )
    )
    (result,) = after(StripReminders(), history)[2].results
    assert result.text == left


PIECES = (
    REMINDER,
    MEMORY,
    SKILL,
    "fix it",
    "\n",
    " ",
    "<goal>x</goal>",
    "<task>",
    "</task>",
    "[Request interrupted by user]",
)


@given(st.lists(st.sampled_from(PIECES), max_size=6).map("".join))
def test_no_human_text_is_lost(text: str) -> None:
    bounds = [0, *(place for span in find_harness_offsets(text) for place in span), len(text)]
    words = [text[start:stop] for start, stop in zip(bounds[::2], bounds[1::2], strict=True)]
    history = History((user("first"), model(), user(text), model(Text("then")), user("last")))
    for policy in (StripReminders(), StripReminders(keep_context=False, keep_recall=False)):
        smaller = after(policy, history)
        left = smaller[2].text if len(smaller) == len(history) else ""
        assert [word for word in words if word.strip() and word not in left] == []
        assert after(policy, smaller) == smaller


@given(histories)
def test_a_second_run_changes_nothing(history: History) -> None:
    for policy in (StripReminders(), StripReminders(keep_context=False, keep_recall=False)):
        once = after(policy, history)
        assert after(policy, once) == once
