"""Token counts of parts, messages and histories."""

import gc

import pytest
from hypothesis import given

from strategies import histories, parts
from thresher.dialects.anthropic.dialect import DIALECT
from thresher.dialects.base import TokenFrame
from thresher.model import History, Image, Message, Part, Text, Thinking, ToolCall, ToolResult, Unknown
from thresher.tokens import TokenWeights, count, default_token_weights, estimate_part_tokens


class Words:
    """Counts words, and the number of times that it is called."""

    name = "words"

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self, text: str, /) -> int:
        self.asked += 1
        return len(text.split())


def scale(factor: float = 1.0, vendor: str = "") -> TokenWeights:
    return TokenWeights(Words(), factor=factor, vendor=vendor)


FRAME = TokenFrame()


@pytest.mark.parametrize(
    ("part", "weight"),
    [
        (Text("one two three"), 3),
        (Text(""), 0),
        (Thinking("one two"), 2),
        (Thinking("one two", "s" * 100), 2),
        (Thinking("", "s" * 780), 100),
        (Thinking("one two", "s" * 780), 100),
        (ToolCall("id", "Read", '{"path": "a b"}'), FRAME.call + 3),
        (ToolCall("id", "shell", "not json at all"), FRAME.call + 5),
        (ToolResult("id", (Text("one two"), Text("three"))), FRAME.result + 3),
        (ToolResult("id", (Text("one"), Image(url="https://example.org/a.png"))), FRAME.result + 1 + 1500),
        (ToolResult("id"), FRAME.result),
        (Unknown("odd", '{"type": "odd"}'), 1),
    ],
)
def test_tokens_of_a_part(part: Part, weight: int) -> None:
    assert scale().part(part) == weight


@given(parts)
def test_weights_are_integers_and_never_negative(part: Part) -> None:
    for vendor in ("", "anthropic", "openai", "gemini"):
        weight = default_token_weights(counter="estimate").part(part) if not vendor else scale(1.1, vendor).part(part)
        assert isinstance(weight, int)
        assert weight >= 0


@given(histories)
def test_a_history_weighs_the_sum_of_its_messages_and_parts(history: History) -> None:
    weigh = scale(1.37, "anthropic")
    frame = (DIALECT.token_frame or FRAME).message
    for message in history:
        assert weigh.parts(message) == tuple(weigh.part(part) for part in message.parts)
        assert weigh.message(message) == frame + sum(weigh.parts(message))
    assert weigh.history(history) == weigh.tools(history.tools) + sum(map(weigh.message, history))
    assert weigh.history(history) == scale(1.37, "anthropic").history(history)


def test_equal_content_weighs_the_same_in_any_encoding() -> None:
    apart, close = ToolCall("1", "Read", '{"b": 1, "a": "x"}'), ToolCall("2", "Read", '{"a":"x","b":1}')
    assert scale().part(apart) == scale().part(close)


def test_ids_and_vendor_extras_weigh_nothing() -> None:
    assert scale().part(ToolResult("a" * 500, (Text("x"),), name="Read")) == scale().part(ToolResult("b", (Text("x"),)))


@pytest.mark.parametrize(("factor", "weight"), [(1.0, 10), (1.1, 11), (1.11, 12), (0.5, 5), (1.45, 15)])
def test_the_factor_scales_and_rounds_up(factor: float, weight: int) -> None:
    assert scale(factor).text("word " * 10) == weight


def test_each_content_is_counted_once() -> None:
    words = Words()
    weigh = TokenWeights(words)
    first, again = Message("user", (Text("the same words"),)), Message("assistant", (Text("the same words"),))
    assert weigh.message(first) == weigh.message(again) == weigh.message(first)
    assert words.asked == 1


def test_a_deleted_message_leaves_the_cache() -> None:
    weigh = scale()
    for number in range(50):
        assert weigh.parts(Message("user", (Text("word " * number),))) == (number,)
    gc.collect()
    assert not weigh._message_cache


def test_tools_weigh_their_definitions_and_the_vendor_overhead() -> None:
    assert scale().tools("") == scale(vendor="anthropic").tools("") == 0
    assert scale().tools("[one two]") == 2
    assert scale(vendor="anthropic").tools("[one two]") == 2 + (DIALECT.token_frame or FRAME).tools


def test_weights_are_equal_if_they_measure_alike() -> None:
    assert scale(1.1, "anthropic") == scale(1.1, "anthropic")
    assert len({scale(1.1), scale(1.1), scale(1.2), scale(1.1, "openai")}) == 3
    assert scale() != TokenWeights(default_token_weights(counter="estimate").counter)


def test_the_default_weights_depend_on_the_model_and_are_cached() -> None:
    claude = default_token_weights("claude-sonnet-4-5-20250929", "estimate")
    assert (claude.vendor, claude.media) == ("anthropic", "anthropic")
    assert claude.factor > 1
    assert default_token_weights("claude-sonnet-4-5-20250929", counter="estimate") is claude
    assert default_token_weights("nobody-1", "estimate") == default_token_weights(counter="estimate")


def test_count_accepts_histories_and_messages() -> None:
    messages = (Message("user", (Text("Good morning."),)), Message("assistant", (Text("And to you."),)))
    assert 0 < count(messages) == count(History(messages)) < count(History(messages, tools='[{"name": "Read"}]'))
    assert estimate_part_tokens(Text("Good morning.")) > 0
