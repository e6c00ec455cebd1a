"""The policy `edit-history`: old edits of a file are summarized in very long sessions."""

import re
from typing import Any

import pytest
from hypothesis import given
from tool_chains import Did, body, closed, results, told, touched

import thresher as th
from strategies import histories
from thresher.edits import Summarize
from thresher.errors import OptionError
from thresher.model import History, Summary
from thresher.policies import PolicyLike
from thresher.policies.edit_history import SummarizeOldEdits

OLD = SummarizeOldEdits(keep_all_edits=False, keep_newest=2)


def edit(path: str, intent: str = "", *, is_error: bool = False) -> Did:
    arguments = {"file_path": path, "old_string": body("old", 20), "new_string": body("new", 20)}
    return Did("Edit", arguments | ({"intent": intent} if intent else {}), is_error=is_error)


def summaries(history: History) -> list[str]:
    return [part.text for message in history for part in message.parts if isinstance(part, Summary)]


def test_all_edits_stay_in_a_session_of_ordinary_length() -> None:
    assert list(SummarizeOldEdits()(told(*(edit("a.py") for _ in range(40))))) == []


def test_all_edits_stay_if_the_option_is_set_by_hand() -> None:
    history = told(*(edit("a.py") for _ in range(60)))
    assert list(SummarizeOldEdits(keep_all_edits=True)(history)) == []


def test_a_very_long_session_keeps_the_latest_edits() -> None:
    history = told(*(edit("a.py") for _ in range(41)))
    plan, smaller = closed(history, SummarizeOldEdits())
    assert touched(history, plan.edits) == list(range(31))
    assert len(smaller.chains) == 10
    (text,) = summaries(smaller)
    assert "· Edits to a.py: 31 changes, turns 1-31]\n" in text


def test_all_old_edits_of_a_file_are_summarized() -> None:
    names = ("/p/a.py", "/p/b.py", "/p/a.py", "/p/c.py", "/q/a.py", "/p/b.py", "/p/./a.py")
    history = told(*map(edit, names), edit("z.py"), edit("z.py"))
    plan, smaller = closed(history, OLD)
    assert [touched(history, [one]) for one in plan.edits if isinstance(one, Summarize)] == [[0, 2, 6], [1, 5]]
    first, second = summaries(smaller)
    assert "Edits to a.py: 3 changes, turns 1-7]" in first
    assert "Edits to b.py: 2 changes, turns 2-6]" in second
    assert "/p/a.py" in first
    assert smaller.messages[1].parts[0] == Summary(first), "the list stands where its first edit stood"


def test_a_summary_keeps_intents() -> None:
    history = told(edit("a.py", "Raise the limit"), edit("a.py", "Name the limit"), edit("z.py"), edit("z.py"))
    (text,) = summaries(closed(history, OLD)[1])
    assert "Raise the limit" in text
    assert "Name the limit" in text


def test_equal_intents_are_one_item_in_the_place_of_the_latest() -> None:
    intents = ("Modify the prompt", "Name the limit", "Modify the prompt", "Modify the prompt")
    history = told(*(edit("a.py", intent) for intent in intents), edit("z.py"), edit("z.py"))
    (text,) = summaries(closed(history, OLD)[1])
    assert text.count("Modify the prompt") == 1
    assert "4 changes" in text
    one = re.search(r"Name the limit \(\+(\d+) −(\d+)\); Modify the prompt 3x \(\+(\d+) −(\d+)\)", text)
    assert one
    assert [int(one[3]), int(one[4])] == [3 * int(one[1]), 3 * int(one[2])]


def test_omitted_items_count_their_changes() -> None:
    intents = [f"Reason {number // 2:03} " + "x" * 90 for number in range(60)]
    history = told(*(edit("a.py", intent) for intent in intents), edit("z.py"), edit("z.py"))
    (text,) = summaries(closed(history, OLD)[1])
    earlier = re.search(r"… (\d+) earlier; ", text)
    assert earlier
    assert int(earlier[1]) + 2 * text.count("2x") == 60


def test_a_failed_edit_does_not_count() -> None:
    history = told(edit("a.py"), edit("a.py", is_error=True), edit("a.py"), edit("z.py"), edit("z.py"))
    (text,) = summaries(closed(history, OLD)[1])
    assert "Edits to a.py: 2 changes, turns 1-3]" in text


def test_other_files_of_a_patch_are_listed() -> None:
    lines = "\n".join(f"+{line}" for line in body("new").splitlines())
    patch = f"*** Begin Patch\n*** Update File: a.py\n{lines}\n*** Update File: b.py\n+x\n*** End Patch"
    history = told(Did("apply_patch", {"input": patch}), edit("a.py"), edit("z.py"), edit("z.py"))
    (text,) = summaries(closed(history, OLD)[1])
    assert text.endswith("\nalso changed with them: b.py\n[/thresher]")


def test_reads_and_commands_are_not_edits() -> None:
    chains = [Did("Read", {"file_path": "a.py"}, body("a")), Did("Bash", {"command": "ls"}, body("b"))] * 30
    assert list(SummarizeOldEdits(compress_after=0, keep_newest=0)(told(*chains))) == []


@pytest.mark.parametrize("options", [{"compress_after": -1}, {"keep_newest": None}])
def test_invalid_options_are_rejected(options: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match="whole number"):
        SummarizeOldEdits(**options)


@given(histories)
def test_any_history_is_accepted(history: History) -> None:
    closed(history, SummarizeOldEdits(keep_all_edits=False, keep_newest=0))


@pytest.mark.parametrize("policy", ["tool-retention", "edit-history", SummarizeOldEdits(keep_all_edits=True)])
@pytest.mark.parametrize("share", [0.7, 0.5, 0.3, 0.2, 0.1])
def test_under_a_budget_reads_go_before_edits(policy: PolicyLike, share: float) -> None:
    chains = [(Did("Read", {"file_path": f"{n}.py"}, body(f"file {n}")), edit(f"{n}.py")) for n in range(30)]
    history = told(*(did for pair in chains for did in pair))
    smaller = th.fit(history, policy=policy, budget=int(th.count(history) * share))
    edits = [call for message in smaller for call in message.calls if call.name == "Edit"]
    reads = [text for text in results(smaller) if text.startswith("file ")]
    assert len(edits) == 30 or not reads
