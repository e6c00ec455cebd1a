"""The policy `thinking`: thinking blocks and thinking tags are removed; text about such tags stays."""

import pytest
from hypothesis import given

from strategies import histories
from thresher.edits import apply, build_plan
from thresher.errors import OptionError
from thresher.model import History, Message, Text, ToolCall, ToolResult
from thresher.model import Thinking as Thought
from thresher.policies.thinking import DropThinking
from thresher.tokens import default_token_weights

SCALE = default_token_weights(counter="estimate")


def user(text: str = "do it") -> Message:
    return Message("user", (Text(text),))


def model(*parts: Text | Thought | ToolCall) -> Message:
    return Message("assistant", parts, author="model")


def after(policy: DropThinking, history: History) -> History:
    return apply(history, build_plan(history, policy(history), SCALE))


def thoughts(history: History) -> list[str]:
    return [part.text for message in history for part in message.parts if isinstance(part, Thought)]


LONG = History(
    tuple(message for n in range(4) for message in (user(), model(Thought(f"thought {n}", "sig"), Text(f"said {n}"))))
)


@pytest.mark.parametrize(
    ("keep_last", "left"),
    [
        (0, []),
        (1, ["thought 3"]),
        (2, ["thought 2", "thought 3"]),
        (9, ["thought 0", "thought 1", "thought 2", "thought 3"]),
    ],
)
def test_the_latest_turns_keep_their_thinking(keep_last: int, left: list[str]) -> None:
    smaller = after(DropThinking(keep_last=keep_last), LONG)
    assert thoughts(smaller) == left
    assert [message.text for message in smaller] == [message.text for message in LONG]


def test_thinking_of_an_open_loop_stays() -> None:
    loop = History(
        (
            user(),
            model(Thought("why", "sig"), ToolCall("c1", "Bash", "{}")),
            Message("tool", (ToolResult("c1", (Text("ok"),)),), author="tool"),
        )
    )
    plan = build_plan(loop, DropThinking()(loop), SCALE)
    assert not plan.edits
    assert [(one.reason, one.parts) for one in plan.refused] == [("pinned: active", 1)]


@pytest.mark.parametrize(
    ("said", "left"),
    [
        ("<thinking>\nhm, what now\n</thinking>\n\nThe answer.", "The answer."),
        ("<think>first of all</think> <think>then this</think>So it is.", "So it is."),
        ("One.\n<thinking>let me see\nagain</thinking>\nTwo.", "One.\nTwo."),
        ("<anythingllm:thinking>a long way round</anythingllm:thinking>Yes.", "Yes."),
    ],
)
def test_thinking_in_tags_is_removed(said: str, left: str) -> None:
    history = History((user(), model(Text(said)), user("next")))
    assert after(DropThinking(), history)[1].text == left


@pytest.mark.parametrize(
    "said",
    [
        "<thinking>never closed, so it may be anything",
        "Put your reasoning into <thinking>…</thinking> tags first.",
        "```\n<thinking>\nan example of a prompt\n</thinking>\n```",
        "~~~ xml\n<thinking>an example</thinking>\nand no end",
        "<thinking>one\n<thinking>inside another</thinking>\n</thinking>",
        "<thinking>of two kinds</think>",
    ],
)
def test_text_about_thinking_tags_stays(said: str) -> None:
    history = History((user(), model(Text(said)), user("next")))
    assert list(DropThinking()(history)) == []


def test_tags_that_a_human_wrote_stay() -> None:
    history = History((user("<thinking>I wonder</thinking>"), model(Text("yes")), user("next")))
    assert list(DropThinking()(history)) == []


@pytest.mark.parametrize("end", ["</thinking>", "</think>"])
def test_only_a_closed_tag_counts(end: str) -> None:
    said = "<thinking>\n" * 50_000 + end
    history = History((user(), model(Text(said)), user()))
    assert len(list(DropThinking()(history))) == (end == "</thinking>")


@pytest.mark.parametrize("wrong", [-1, True, "3", 1.5, None])
def test_invalid_options_are_rejected(wrong: int) -> None:
    with pytest.raises(OptionError, match="keep_last"):
        DropThinking(keep_last=wrong)


@given(histories)
def test_a_second_run_changes_nothing(history: History) -> None:
    for policy in (DropThinking(), DropThinking(keep_last=1)):
        once = after(policy, history)
        assert after(policy, once) == once
