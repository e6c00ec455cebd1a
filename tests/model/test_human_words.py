"""A person's words inside tool results."""

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import thresher as th
from fixture_files import fixtures, own_fixture, ready
from thresher.budget import PRESETS, fit_with_plan
from thresher.dialects import emit
from thresher.model import History, Message, Part, Session, Text, ToolCall, ToolResult, part_text
from thresher.model.human_words import extract_human_words, find_human_words
from thresher.model.tool_catalog import find_tool_kind
from thresher.policies import POLICIES, make_policy
from thresher.policies.exchanges import SummarizeExchanges
from thresher.store import InMemoryContentStore
from thresher.transcripts import format_names, read_all

WORDS = "No, bind it to port 8123 instead."
DENIED = f"The user denied this operation and provided the following feedback:\n<feedback>\n{WORDS}\n</feedback>"
LOG = "".join(f"line {number} of the log\n" for number in range(300))
APPROVED = f"The user approved this operation and provided the following context:\n<feedback>\n{WORDS}\n</feedback>"
CLAUDE_DENIED = (
    "The user doesn't want to proceed with this tool use. The tool use was rejected (eg. if it was a file edit, the "
    f"new_string was NOT written to the file). To tell you how to proceed, the user said:\n{WORDS}"
)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("write_to_file", DENIED),
        ("write_to_file", f"[write_to_file for 'a.py'] Result:\n{DENIED}"),
        ("write_to_file", f"{LOG}\n{APPROVED}"),
        ("write_to_file", json.dumps({"status": "denied", "message": "The user denied it", "feedback": WORDS})),
        ("read_file", f"{LOG}\n{APPROVED}\n"),
        ("execute_command", f"{APPROVED}\n\n{LOG}"),
        ("Bash", CLAUDE_DENIED),
        (
            "Bash",
            f"Error: The user rejected permission to use this specific tool call with the following feedback: {WORDS}",
        ),
        ("edit", f"User rejected: {WORDS}"),
        ("ExitPlanMode", f"User has approved your plan.\n\nThe user adds: {WORDS}\n\n## Approved Plan:\n1. Do it."),
        ("ExitPlanMode", f"User has approved your plan.\n\n## Approved Plan (edited by user):\n{WORDS}"),
        ("plan_mode_respond", f"<user_message>\n{WORDS}\n</user_message>"),
        ("attempt_completion", f"[attempt_completion] Result:\n<feedback>\n{WORDS}\n</feedback>"),
        (
            "attempt_completion",
            f"<user_message>\n{WORDS}\n</user_message>\n<environment_details>\n</environment_details>",
        ),
        ("finish", WORDS),
        ("final_answer", WORDS),
        ("AskUserQuestion", f'User has answered your questions: "Which port?"="{WORDS}".'),
        ("ask_followup_question", f"<answer>\n{WORDS}\n</answer>"),
    ],
)
def test_a_persons_words_are_found(name: str, text: str) -> None:
    found = find_human_words(ToolResult("1", (Text(text),)), name, find_tool_kind(name).category)
    assert found is not None
    assert WORDS in text[slice(*found)]
    assert LOG not in text[slice(*found)]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("read_file", f"<h1>Form</h1>\n<feedback>\n{WORDS}\n</feedback>"),
        ("read_file", f"def reply():\n    return '{APPROVED!r}'\n"),
        ("Bash", f"$ cat notes\nthe client says: the user said: {WORDS}"),
        ("Bash", "users: 12\nfeedback: 3\n"),
        ("Bash", "User-agent: *\nDisallow: /"),
        ("Read", "1\tThe users guide\n2\tanswers: all"),
        ("ExitPlanMode", "\n"),
        ("Grep", ""),
    ],
)
def test_output_that_only_looks_like_a_persons_words_is_output(name: str, text: str) -> None:
    assert find_human_words(ToolResult("1", (Text(text),)), name, find_tool_kind(name).category) is None


@pytest.mark.parametrize(
    ("name", "text", "quoted"),
    [
        ("Bash", CLAUDE_DENIED, WORDS),
        ("write_to_file", DENIED, WORDS),
        ("write_to_file", f"{LOG}\n{APPROVED}", WORDS),
        ("write_to_file", json.dumps({"status": "denied", "message": "The user denied it", "feedback": WORDS}), WORDS),
        ("attempt_completion", f"<user_message>\n{WORDS}\n</user_message>", WORDS),
        ("finish", WORDS, WORDS),
        ("edit", f"User rejected: {WORDS}", WORDS),
        (
            "AskUserQuestion",
            f'User has answered your questions: "{"Which port? " * 20}"="{WORDS}", "Where?"="say \\"here\\"". Go on.',
            f'{WORDS}; say \\"here\\"',
        ),
        (
            "ExitPlanMode",
            "User has approved your plan. You can now start coding. Start with updating your todo list if needed\n\n"
            "Your plan has been saved to: /home/me/.claude/plans/a-plan-with-a-long-name.md\n"
            f"You can refer back to it if needed during implementation.\n\n{WORDS}\n\n## Approved Plan:\n1. Do it.",
            WORDS,
        ),
        ("AskUserQuestion", "User has answered your questions: .", "."),
        ("ExitPlanMode", "User has approved your plan.", "User has approved your plan."),
    ],
)
def test_a_quote_has_only_the_persons_words(name: str, text: str, quoted: str) -> None:
    span = find_human_words(ToolResult("1", (Text(text),)), name, find_tool_kind(name).category)
    assert span is not None
    assert extract_human_words(text[slice(*span)]) == quoted


def test_the_copy_of_an_approved_plan_is_not_a_persons_text() -> None:
    text = "User has approved your plan. You can now start coding.\n\n## Approved Plan:\n1. Do it."
    found = find_human_words(ToolResult("1", (Text(text),)), "ExitPlanMode", "plan")
    assert found is not None
    assert "Do it" not in text[slice(*found)]


# --- law 2, for a person's words in every transcript format and dialect -----------------------------------------

OPTIONS: dict[str, dict[str, Any]] = {
    "batch-summary": {"older_than": 1, "min_calls": 1},
    "edit-history": {"keep_all_edits": False, "keep_newest": 1},
    "mask": {"keep": 1},
    "messages": {"empty": True, "longer_than": 300},
    "output": {"truncate_above": 2_000, "head": 300, "tail": 300},
    "tools": {"categories": ("file_edit", "file_read", "execution", "plan", "other")},
}
"""Options with which policies remove much."""
PRESSURES = (0.9, 0.6, 0.3, 0.1)
"""Budgets as shares of the history, and free shares of the window for the policy `exchanges`."""
WHOLE_TURNS = "sliding-window"
"""The policy that removes whole old turns, with all words of people in them."""
CASES: dict[str, tuple[Any, float | None]] = {
    **{f"preset {name}": (name, None) for name in PRESETS},
    **{f"policy {name}": (name, None) for name in POLICIES if name != WHOLE_TURNS},
    **{f"auto at {share}": ("auto", share) for share in PRESSURES},
    **{f"exchanges at pressure {share}": (SummarizeExchanges(pressure=1 - share), None) for share in PRESSURES},
}
"""Every preset and policy, and every pressure: a policy and the budget as a share of the history."""
WITHOUT_RESULTS = {"aider": "its transcripts have no tool results"}


def check_words_stay(history: History) -> None:
    """Fit a history by every policy and under every pressure, also in a window; the words stay."""
    size = th.count(history)
    for name, (policy, share) in CASES.items():
        chosen = make_policy(policy, **OPTIONS.get(policy, {})) if name.startswith("policy ") else policy
        budget = None if share is None else int(size * share)
        options: dict[str, Any] = {"policy": chosen, "store": InMemoryContentStore()}
        try:
            after = fit_with_plan(history, budget=budget, **options).history
        except th.BudgetError as error:
            after = fit_with_plan(history, budget=error.smallest, **options).history
        assert _contains_words(after), name
    for share in PRESSURES[::2]:
        window = th.Window(budget=max(1, int(size * share)), store=InMemoryContentStore())
        assert _contains_words(window.fit(history)), f"window at {share}"


def conversation(name: str, arguments: dict[str, Any], result: str) -> History:
    """A conversation with a person's words in an old result, and ten more calls after it."""
    return History((Message("user", (Text("Start the server."),)), *_call(0, name, arguments, result), *later_calls()))


def later_calls() -> list[Message]:
    """Ten calls with long results, an answer and the next prompt."""
    messages: list[Message] = []
    for number in range(1, 11):
        messages += _call(number, "Read", {"file_path": f"src/{number}.py"}, LOG)
    return [*messages, Message("assistant", (Text("It runs."),), author="model"), Message("user", (Text("Test it."),))]


def _call(number: int, name: str, arguments: dict[str, Any], result: str) -> list[Message]:
    call: Part = ToolCall(f"call_{number}", name, json.dumps(arguments))
    return [
        Message("assistant", (call,), author="model"),
        Message("tool", (ToolResult(f"call_{number}", (Text(result),)),), author="tool"),
    ]


@pytest.mark.parametrize("dialect", format_names("wire"))
@pytest.mark.parametrize(
    ("name", "arguments", "result"),
    [
        ("write_to_file", {"path": "a.py", "content": LOG}, f"The content was saved.\n\n{APPROVED}"),
        ("execute_command", {"command": "make"}, f"{LOG}\n{APPROVED}"),
        ("attempt_completion", {"result": "Done."}, f"<feedback>\n{WORDS}\n</feedback>"),
        ("finish", {"message": "Done."}, WORDS),
        ("plan_mode_respond", {"response": "My plan."}, f"<user_message>\n{WORDS}\n</user_message>"),
        ("ExitPlanMode", {"plan": LOG}, f"User has approved your plan.\n\n{WORDS}\n\n## Approved Plan:\n{LOG}"),
        ("Bash", {"command": "make"}, CLAUDE_DENIED),
    ],
)
def test_words_in_results_stay_in_every_dialect(
    dialect: str, name: str, arguments: dict[str, Any], result: str
) -> None:
    check_words_stay(th.parse(emit(conversation(name, arguments, result), dialect), dialect))


@pytest.mark.parametrize("name", format_names("transcript"))
def test_words_in_results_stay_in_every_transcript_format(name: str, tmp_path: Path) -> None:
    if name in WITHOUT_RESULTS:
        pytest.skip(WITHOUT_RESULTS[name])
    for fixture in (own_fixture(name), *fixtures(name)):
        if history := _with_feedback(fixture, name, tmp_path):
            check_words_stay(History((*history, *later_calls())))
            return
    pytest.fail(f"no fixture of {name} has a result that can be changed")


def _with_feedback(fixture: Path, name: str, folder: Path) -> History | None:
    """Read a fixture after adding a person's feedback to the end of one result in the file."""
    text = fixture.read_text("utf-8")
    path = folder / f"changed-{fixture.name}"
    for result in _results(read_all(ready(fixture, folder), format=name)):
        for encode in (_once_encoded, _twice_encoded):
            old = encode(result)
            if len(result) > 3 and old in text:
                path.write_text(text.replace(old, encode(f"{result}\n\n{APPROVED}")), "utf-8")
                changed = read_all(ready(path, folder), format=name)
                found = (one for session in changed for one in session.segments if _contains_words(one))
                if history := next(found, None):
                    return history
    return None


def _results(sessions: Sequence[Session]) -> Iterator[str]:
    for session in sessions:
        links = (link for segment in session.segments for link in segment.links if link.result is not None)
        yield from (link.result.text for link in links if link.result and link.use.category != "question")


def _contains_words(history: History) -> bool:
    return any(WORDS in part_text(part) for message in history for part in message.parts)


def _once_encoded(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]


def _twice_encoded(text: str) -> str:
    return _once_encoded(_once_encoded(text))


# --- the latest words, and the rest of the model ---------------------------------------------------------------


def test_the_latest_words_are_pinned() -> None:
    messages = conversation("attempt_completion", {"result": "Done."}, f"<feedback>\n{WORDS}\n</feedback>").messages
    before = History(messages[:-2])
    assert _contains_words(th.fit(before, policy=[_drop_everything], store=InMemoryContentStore()))
    answered = History((*messages, Message("assistant", (Text("Tested."),), author="model")))
    assert not _contains_words(th.fit(answered, policy=[_drop_everything], store=InMemoryContentStore()))


def _drop_everything(history: History) -> list[th.Edit]:
    return [th.Drop(occurrence, "everything", "test", removes_human_words=True) for occurrence in history.occurrences]


@pytest.mark.parametrize(("name", "result"), [("write_to_file", APPROVED), ("Bash", CLAUDE_DENIED)])
def test_a_bridge_quotes_a_persons_words(name: str, result: str) -> None:
    messages = conversation(name, {"path": "a.py", "content": LOG}, result).messages
    done = th.plan(History((*messages, Message("user", (Text("Next."),)))), policy=["exchanges"], budget=2_500)
    texts = [edit.text for edit in done.edits if isinstance(edit, th.Summarize)]
    assert any(WORDS in text for text in texts), texts


def test_a_named_tool_is_removed_with_the_words() -> None:
    history = conversation("AskUserQuestion", {"question": "Which port?"}, WORDS)
    after = th.fit(history, exclude_tools=("AskUserQuestion",), policy="none")
    assert not _contains_words(after)


def test_completions_stay_under_every_preset() -> None:
    history = conversation("attempt_completion", {"result": f"The final answer. {LOG}"}, "")
    for preset in ("minimal", "moderate", "smart", "aggressive", "mask", "batch-summary"):
        after = th.fit(history, policy=preset)
        calls = [call for message in after for call in message.calls if call.name == "attempt_completion"]
        assert [re.search("The final answer", call.arguments) is not None for call in calls] == [True], preset
