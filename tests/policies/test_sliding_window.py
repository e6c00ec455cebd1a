"""The policy `sliding-window`: the latest turns stay, and cut points are legal."""

import pytest

from thresher.edits import apply, build_plan, find_pins, is_legal
from thresher.errors import OptionError
from thresher.model import History, Message, Part, Summary, Text, ToolCall, ToolResult
from thresher.policies.sliding_window import SlidingWindow, find_cut_points
from thresher.tokens import default_token_weights

SCALE = default_token_weights()
WORDS = "some words that weigh a little more than nothing at all " * 8


def said(role: str, *parts: Part) -> Message:
    author = {"user": "human", "assistant": "model", "tool": "tool", "system": "harness"}[role]
    return Message(role, parts, author=author)  # type: ignore[arg-type]


def chain(number: int) -> list[Message]:
    call = ToolCall(f"c{number}", "Bash", '{"command":"ls"}')
    return [said("assistant", call), said("tool", ToolResult(call.id, (Text(f"{number} {WORDS}"),)))]


def talk(exchanges: int) -> History:
    messages = [said("system", Text("be brief"))]
    for number in range(exchanges):
        messages += [said("user", Text(f"request {number} {WORDS}")), *chain(2 * number), *chain(2 * number + 1)]
        messages.append(said("assistant", Text(f"answer {number}")))
    return History(tuple(messages))


def fitted(history: History, budget: int) -> History:
    policy = SlidingWindow(budget=budget)
    return apply(history, build_plan(history, policy(history), SCALE))


@pytest.mark.parametrize("share", [0.2, 0.4, 0.6, 0.8, 0.95])
def test_the_latest_turns_stay_and_fit(share: float) -> None:
    history = talk(6)
    budget = int(SCALE.history(history) * share)
    after = fitted(history, budget)
    assert SCALE.history(after) <= budget
    assert is_legal(after)
    assert after.messages[:2] == history.messages[:2]  # system text, and the first request
    free = [message for message in history.messages[2:] if message is not history.current]
    left = [message for message in after.messages[2:] if message is not history.current]
    assert left == free[len(free) - len(left) :]
    assert history.current in after.messages
    assert not build_plan(after, SlidingWindow(budget=budget)(after), SCALE).edits


def test_no_more_is_dropped_than_necessary() -> None:
    history = talk(6)
    whole = SCALE.history(history)
    assert fitted(history, whole) is history
    lighter = fitted(history, whole - 1)
    assert len(lighter) >= len(history) - 3


def test_the_oldest_turn_is_dropped_first() -> None:
    history = talk(3)
    *places, request = [history.places[edit.target] for edit in SlidingWindow(budget=0)(history)]
    assert places == sorted(places)
    assert request.message == 1  # the first request, last of all


def test_a_budget_of_zero_drops_everything_unpinned() -> None:
    history = talk(3)
    pinned = find_pins(history)
    going = {history.places[edit.target] for edit in SlidingWindow(budget=0)(history)}
    assert not going & pinned.keys()
    assert len(going) + len(pinned) == sum(len(message.parts) for message in history)


def test_summaries_are_dropped_last() -> None:
    summary = said("user", Summary(f"what was {WORDS}"))
    talked = talk(4)
    history = History((talked[0], summary, *talked.messages[1:]))
    after = fitted(history, SCALE.history(history) // 2)
    assert summary in after.messages
    assert summary not in fitted(history, 10).messages


def test_no_cut_point_separates_a_call_from_its_result() -> None:
    late = ToolCall("late", "Task", "{}")
    history = History(
        (
            said("user", Text("go")),
            said("assistant", late),
            *chain(1),
            said("user", Text("and?")),
            said("tool", ToolResult("late", (Text("found"),))),
            said("assistant", Text("done")),
            said("user", Text("thanks")),
        )
    )
    assert find_cut_points(history) == [0, 1, 6, 7, 8]


def test_a_missing_budget_is_an_error() -> None:
    with pytest.raises(OptionError, match="needs a budget"):
        list(SlidingWindow()(History()))


def test_an_empty_history_has_no_edits() -> None:
    assert list(SlidingWindow(budget=0)(History())) == []


@pytest.mark.parametrize("budget", [-1, 1.5, True])
def test_invalid_options_are_rejected(budget: object) -> None:
    with pytest.raises(OptionError, match="budget"):
        SlidingWindow(budget=budget)  # type: ignore[arg-type]
