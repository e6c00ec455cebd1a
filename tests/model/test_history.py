"""A history is an immutable sequence of messages, and its derived values are cached."""

import pickle
from typing import Any

import msgspec
import pytest
from hypothesis import given

from strategies import histories, messages
from thresher.model import (
    History,
    Image,
    Message,
    Part,
    Summary,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Unknown,
    part_text,
)


def test_an_empty_history_has_a_structure() -> None:
    empty = History()
    assert len(empty) == 0
    assert list(empty) == []
    assert empty.current is None
    assert {*empty.turns, *empty.exchanges, *empty.chains, *empty.orphans, *empty.spawns} == set()
    assert empty.occurrences == ()


@given(history=histories)
def test_a_history_is_the_sequence_of_its_messages(history: History) -> None:
    assert tuple(history) == history.messages
    assert len(history) == len(history.messages)
    assert all(history.messages[index] is message for index, message in enumerate(history))
    assert [history[index] for index in range(len(history))] == list(history)


@given(history=histories)
def test_derived_values_are_cached_and_not_part_of_the_value(history: History) -> None:
    twin = History(history.messages, tools=history.tools, pocket=history.pocket)
    assert history.shape is history.shape
    assert history.occurrences is history.occurrences
    assert history == twin
    assert hash(history) == hash(twin)
    assert twin.shape == history.shape


@given(history=histories)
def test_a_history_survives_serialization_and_pickling(history: History) -> None:
    assert msgspec.msgpack.decode(_packable(history), type=History) == _clean(history)
    assert pickle.loads(pickle.dumps(history)) == history


def _clean(history: History) -> History:
    """Remove lone surrogates, which UTF-8 cannot encode."""
    return msgspec.convert(_scrubbed(msgspec.to_builtins(history)), History)


def _packable(history: History) -> bytes:
    return msgspec.msgpack.encode(_scrubbed(msgspec.to_builtins(history)))


def _scrubbed(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {key: _scrubbed(inner) for key, inner in value.items()}
    return [_scrubbed(inner) for inner in value] if isinstance(value, list | tuple) else value


@pytest.mark.parametrize("value", [History(), Message("user"), Text("a"), ToolCall("1", "Read", "{}")])
def test_values_are_frozen(value: object) -> None:
    field = value.__struct_fields__[0]  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match="immutable"):
        setattr(value, field, None)


def test_the_current_message_is_the_humans_own() -> None:
    mine = Message("user", (Text("mine"),))
    reminder = Message("user", (Text("<system-reminder>x</system-reminder>"),), author="harness")
    recalled = Message("user", (Text("old"),), author="recall")
    assert History((mine, Message("assistant", author="model"), reminder, recalled)).current is mine


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        ((), ""),
        ((Text("a"), Summary("b")), "a\nb"),
        ((Thinking("hm"), Text("a"), ToolCall("1", "Read", "{}"), ToolResult("1", (Text("r"),))), "a"),
    ],
)
def test_the_text_of_a_message_excludes_tools(parts: tuple[Part, ...], text: str) -> None:
    assert Message("assistant", parts).text == text


@given(message=messages)
def test_a_message_knows_its_calls_and_results(message: Message) -> None:
    assert list(message.calls) == [part for part in message.parts if isinstance(part, ToolCall)]
    assert list(message.results) == [part for part in message.parts if isinstance(part, ToolResult)]


@pytest.mark.parametrize(
    ("part", "text"),
    [
        (Text("a"), "a"),
        (Summary("a"), "a"),
        (Thinking("a", "signed"), "a"),
        (ToolCall("1", "Read", '{"path":"a"}'), '{"path":"a"}'),
        (ToolResult("1"), ""),
        (ToolResult("1", (Text("a"),)), "a"),
        (ToolResult("1", (Text("a"), Image("image/png", "QQ=="), Text("b"))), "a\nb"),
        (Image("image/png", "QQ=="), ""),
        (Unknown("x", '{"y":1}'), '{"y":1}'),
    ],
)
def test_every_part_has_text_to_read_and_to_search(part: Part, text: str) -> None:
    assert part_text(part) == text
