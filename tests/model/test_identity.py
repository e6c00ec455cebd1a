"""Content ids and occurrences."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strategies import LONE, histories, json_values, parts
from thresher.model import (
    History,
    Image,
    Message,
    Occurrence,
    Part,
    Summary,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Unknown,
    VendorExtras,
    content_id,
)

POCKET = VendorExtras("anthropic", '{"cache_control":{"type":"ephemeral"}}', ("id",), "list")

SAME: list[tuple[str, Part, Part]] = [
    ("pockets", Text("a"), Text("a", POCKET)),
    ("ids of calls", ToolCall("1", "Read", "{}"), ToolCall("2", "Read", "{}", POCKET)),
    ("the order of keys", ToolCall("1", "Read", '{"a":1,"b":2}'), ToolCall("1", "Read", '{"b":2,"a":1}')),
    ("blanks in JSON", ToolCall("1", "Read", '{"a":[1]}'), ToolCall("1", "Read", '{ "a" : [ 1 ] }\n')),
    ("escapes in JSON", ToolCall("1", "Read", '{"a":"é"}'), ToolCall("1", "Read", '{"a":"\\u00e9"}')),
    ("escapes of half a pair", ToolCall("1", "R", '{"a":"\\ud83d"}'), ToolCall("1", "R", f'{{"a":"{LONE}"}}')),
    ("ids of results", ToolResult("1", (Text("a"),)), ToolResult("2", (Text("a", POCKET),), name="Read")),
    ("keys of unknown parts", Unknown("x", '{"a":1,"b":2}'), Unknown("x", '{"b":2,"a":1}')),
]

DIFFERENT: list[tuple[str, Part, Part]] = [
    ("kinds", Text("a"), Summary("a")),
    ("thinking and text", Text("a"), Thinking("a")),
    ("words", Text("a"), Text("a ")),
    ("signatures", Thinking("a", "x"), Thinking("a", "y")),
    ("where one field ends", Thinking("ab", "c"), Thinking("a", "bc")),
    ("names", ToolCall("1", "Read", "{}"), ToolCall("1", "Write", "{}")),
    ("arguments", ToolCall("1", "Read", '{"a":1}'), ToolCall("1", "Read", '{"a":"1"}')),
    ("numbers and truth", ToolCall("1", "Read", '{"a":1}'), ToolCall("1", "Read", '{"a":true}')),
    ("free text", ToolCall("1", "exec", "ls"), ToolCall("1", "exec", "ls ")),
    ("failure", ToolResult("1", (Text("a"),)), ToolResult("1", (Text("a"),), is_error=True)),
    ("where one piece ends", ToolResult("1", (Text("ab"),)), ToolResult("1", (Text("a"), Text("b")))),
    ("a result and a text", ToolResult("1", (Text("a"),)), Text("a")),
    ("no piece and an empty one", ToolResult("1"), ToolResult("1", (Text(""),))),
    ("images", Image("image/png", "QQ=="), Image("image/jpeg", "QQ==")),
    ("data and addresses", Image(data="a"), Image(url="a")),
    ("kinds of unknown parts", Unknown("x", "{}"), Unknown("y", "{}")),
]

GOLDEN: list[tuple[Part, str]] = [
    (Text("naïve ☃"), "t1:0985eebee92e2e9800d45fb7f872871f"),
    (Text(LONE), "t1:d486195ee53c94ab13c18b604e8ab277"),
    (Thinking("hm", "sig"), "t1:ad02565c9555d1e46b8b98142a098540"),
    (ToolCall("1", "Read", '{"b":[1,2.5,null],"a":"é"}'), "t1:3414f86c1df55edac0d139d9a74aad5c"),
    (ToolCall("1", "exec", "ls -la"), "t1:09bb705f400fb051e60fc80b3d945145"),
    (
        ToolResult("1", (Text("ok"), Image("image/png", "QUJD")), is_error=True),
        "t1:c3ddad05a2808979e01a79124b866a82",
    ),
    (Image(url="https://a.example/b.png"), "t1:932c0bef8cc7bc7a8ab75d3c7a953aad"),
    (Summary("what was"), "t1:93f0fa82522db4959430365143ba1243"),
    (Unknown("x", '{"b":1,"a":2}'), "t1:f05d05d53ea98f8ed78f2cc727461fe6"),
]


@pytest.mark.parametrize(("one", "other"), [pytest.param(a, b, id=why) for why, a, b in SAME])
def test_a_content_id_depends_only_on_the_content(one: Part, other: Part) -> None:
    assert content_id(one) == content_id(other)


@pytest.mark.parametrize(("one", "other"), [pytest.param(a, b, id=why) for why, a, b in DIFFERENT])
def test_different_content_has_another_id(one: Part, other: Part) -> None:
    assert content_id(one) != content_id(other)


@pytest.mark.parametrize(("part", "expected"), GOLDEN)
def test_ids_stay_the_same_from_release_to_release(part: Part, expected: str) -> None:
    """Stores use them as keys: if this fails, the canonical form has changed and `ID_VERSION` must change too."""
    assert content_id(part) == expected


@given(part=parts)
def test_every_part_has_an_id_that_can_be_written_anywhere(part: Part) -> None:
    tag, _, digest = content_id(part).partition(":")
    assert tag == "t1"
    assert len(digest) == 32
    assert digest.isalnum()
    assert digest.isascii()


@given(one=parts, other=parts)
def test_equal_parts_have_equal_ids_and_different_texts_do_not(one: Part, other: Part) -> None:
    if one == other:
        assert content_id(one) == content_id(other)
    if content_id(one) == content_id(other):
        assert type(one) is type(other)


@given(value=json_values, other=json_values)
def test_arguments_are_compared_as_json(value: object, other: object) -> None:
    written = [
        ToolCall("1", "Read", json.dumps(value, indent=2, sort_keys=True)),
        ToolCall("1", "Read", json.dumps(value, ensure_ascii=False)),
    ]
    assert content_id(written[0]) == content_id(written[1])
    same = json.dumps(value, sort_keys=True) == json.dumps(other, sort_keys=True)
    assert (content_id(ToolCall("1", "Read", json.dumps(other))) == content_id(written[0])) is same


def test_equal_parts_differ_in_their_ordinal() -> None:
    again = ToolResult("2", (Text("same"),))
    history = History(
        (
            Message("tool", (ToolResult("1", (Text("same"),)), Text("else")), author="tool"),
            Message("tool", (again, again), author="tool"),
        )
    )
    same, other = content_id(again), content_id(Text("else"))
    assert history.occurrences == (
        Occurrence(same, 0),
        Occurrence(other, 0),
        Occurrence(same, 1),
        Occurrence(same, 2),
    )


@given(history=histories, cut=st.integers(0, 6))
def test_an_occurrence_does_not_change_when_the_history_grows(history: History, cut: int) -> None:
    shorter = History(history.messages[:cut])
    assert history.occurrences[: len(shorter.occurrences)] == shorter.occurrences


@given(history=histories)
def test_ordinals_count_from_zero_without_a_gap(history: History) -> None:
    seen: dict[str, list[int]] = {}
    for content, ordinal in history.occurrences:
        seen.setdefault(content, []).append(ordinal)
    assert all(ordinals == list(range(len(ordinals))) for ordinals in seen.values())
