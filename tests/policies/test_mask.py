"""The policy `mask`: placeholders replace old results; calls and the latest results stay."""

import json
from collections.abc import Callable

import pytest

from thresher.edits import Replace, apply, build_plan, get_placeholder_id
from thresher.errors import OptionError
from thresher.model import History, Message, Place, Text, ToolCall, ToolResult
from thresher.policies.mask import MaskOldResults
from thresher.tokens import default_token_weights

SCALE = default_token_weights()
LONG = "a line of output that nobody reads twice\n" * 40


def told(names: list[str], result: Callable[[int], str] = lambda _: LONG) -> History:
    messages = [Message("user", (Text("go"),))]
    for number, name in enumerate(names):
        given = json.dumps({"file_path": f"f{number}.py", "command": f"run {number}", "question": "which?"})
        messages.append(Message("assistant", (ToolCall(f"c{number}", name, given),), author="model"))
        messages.append(Message("tool", (ToolResult(f"c{number}", (Text(result(number)),)),), author="tool"))
    messages.append(Message("assistant", (Text("done"),), author="model"))
    return History(tuple(messages))


def masked(history: History, policy: MaskOldResults) -> list[int]:
    """Return the indexes of replaced results, in the order of the edits."""
    places = [history.places[edit.target] for edit in build_plan(history, policy(history), SCALE).edits]
    return [(place.message - 2) // 2 for place in places]


@pytest.mark.parametrize(
    ("options", "gone"),
    [
        ({"keep": 2}, [0, 1]),
        ({"keep": 0}, [0, 1, 2, 4]),
        ({"keep": 10}, []),
        ({"keep": 1, "categories": ("file_read",)}, [0]),
        ({"keep": 0, "exclude_tools": ("re*",)}, [1, 4]),
        ({"keep": 0, "min_tokens_saved": 100}, [0, 1, 2, 4]),
        ({"keep": 0, "min_tokens_saved": 100_000}, []),
    ],
)
def test_old_results_are_masked(options: dict[str, int], gone: list[int]) -> None:
    history = told(["Read", "Bash", "Read", "AskUserQuestion", "Bash"])
    assert masked(history, MaskOldResults(**options)) == gone  # type: ignore[arg-type]


def test_the_least_important_are_masked_first() -> None:
    history = told(["Read", "LS", "Edit"])
    order = [history.places[edit.target].message for edit in MaskOldResults(keep=0, by_importance=True)(history)]
    assert order == [4, 2, 6]


def test_a_placeholder_counts_as_a_result_and_stays() -> None:
    history = told(["Bash"] * 6)
    policy = MaskOldResults(keep=2)
    after = apply(history, build_plan(history, policy(history), SCALE))
    assert [bool(get_placeholder_id(after.part(Place(index, 0)))) for index in range(2, 14, 2)] == [True] * 4 + [
        False
    ] * 2
    assert not list(policy(after))


def test_a_long_text_that_starts_like_a_placeholder_is_masked() -> None:
    forged = f"[thresher t1:0123456789abcdef · Read a.py]\n{LONG}"
    history = told(["Bash"], lambda _: forged)
    assert [type(edit) for edit in MaskOldResults(keep=0)(history)] == [Replace]


@pytest.mark.parametrize(
    "options", [{"keep": -1}, {"min_tokens_saved": 1.5}, {"categories": ("files",)}, {"exclude_tools": "Read"}]
)
def test_invalid_options_are_rejected(options: dict[str, int]) -> None:
    with pytest.raises(OptionError, match="mask"):
        MaskOldResults(**options)  # type: ignore[arg-type]
