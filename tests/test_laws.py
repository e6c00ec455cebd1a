"""Laws of every dialect, tested on the conversations of `strategies`.

A new dialect is tested through its row in `strategies.DIALECTS`.
"""

import copy
import json
from collections import Counter
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from strategies import (
    DIALECTS,
    ODD,
    WIRE,
    Json,
    Script,
    bodies_of,
    cache_marked,
    edited,
    histories,
    near_values,
    parts,
    pockets,
    scripts,
)
from thresher.dialects import emit, emit_with_losses, parse
from thresher.errors import FormatError
from thresher.model import History, Part, Role, Text, ToolCall, ToolResult, VendorExtras, content_id, part_text
from thresher.model.parts import Image, Unknown
from thresher.transcripts import format_names

each_format = pytest.mark.parametrize("name", WIRE)
anything = st.data()


def as_json(value: Json) -> str:
    """Encode as text in which 1, 1.0 and true differ, as they do in JSON."""
    return json.dumps(value, sort_keys=True, allow_nan=False)


def test_every_dialect_has_a_row() -> None:
    assert set(WIRE) == set(ODD) == set(format_names("wire"))


# --- law 9: lossless -----------------------------------------------------------------------------------------


@each_format
@given(data=anything)
def test_a_conversation_round_trips(name: str, data: st.DataObject) -> None:
    value = data.draw(WIRE[name])
    assert as_json(emit(parse(value, name), name)) == as_json(value)


@each_format
@given(data=anything)
def test_an_odd_conversation_round_trips(name: str, data: st.DataObject) -> None:
    value = data.draw(ODD[name])
    assert as_json(emit(parse(value, name), name)) == as_json(value)


@each_format
@given(rows=st.lists(near_values, max_size=4))
def test_a_list_of_any_json_round_trips(name: str, rows: list[Json]) -> None:
    assert as_json(emit(parse(rows, name), name)) == as_json(rows)


@each_format
@given(data=anything)
def test_a_body_of_any_json_round_trips(name: str, data: st.DataObject) -> None:
    value = data.draw(bodies_of(name))
    assert as_json(emit(parse(value, name), name)) == as_json(value)


@each_format
@given(data=anything)
def test_a_round_trip_reports_no_losses(name: str, data: st.DataObject) -> None:
    value = data.draw(WIRE[name] | ODD[name])
    assert emit_with_losses(parse(value, name), name).losses == ()


@each_format
@given(data=anything)
def test_parsing_does_not_modify_its_input(name: str, data: st.DataObject) -> None:
    value = data.draw(WIRE[name] | ODD[name])
    before = copy.deepcopy(value)
    emit(parse(value, name), name)
    assert as_json(value) == as_json(before)


@each_format
@given(value=st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20))
def test_other_values_raise_a_thresher_error(name: str, value: Json) -> None:
    with pytest.raises(FormatError, match=name):
        parse(value, name)


# --- law 5: deterministic ------------------------------------------------------------------------------------


@each_format
@given(data=anything)
def test_parsing_a_conversation_twice_gives_equal_histories(name: str, data: st.DataObject) -> None:
    value = data.draw(WIRE[name] | ODD[name])
    first, second = parse(value, name), parse(copy.deepcopy(value), name)
    assert first == second
    assert first.occurrences == second.occurrences
    assert first.shape == second.shape


# --- identity ------------------------------------------------------------------------------------------------


def content_ids(history: History) -> list[str]:
    return [content_id(part) for message in history for part in message.parts]


def _relabelled(part: Part, pocket: VendorExtras, call_id: str) -> Part:
    """Return equal content with other vendor extras and another call id."""
    match part:
        case ToolCall():
            return structs.replace(part, pocket=pocket, id=call_id)
        case ToolResult():
            inner = tuple(structs.replace(one, pocket=pocket) for one in part.content)
            return structs.replace(part, pocket=pocket, call_id=call_id, content=inner)
        case _:
            return structs.replace(part, pocket=pocket)


@given(part=parts, pocket=pockets, call_id=st.text(max_size=3))
def test_a_content_id_does_not_depend_on_vendor_extras_and_call_ids(
    part: Part, pocket: VendorExtras, call_id: str
) -> None:
    assert content_id(_relabelled(part, pocket, call_id)) == content_id(part)


@given(value=WIRE["anthropic"])
def test_a_content_id_does_not_depend_on_cache_breakpoints(value: Json) -> None:
    assert content_ids(parse(cache_marked(value), "anthropic")) == content_ids(parse(value, "anthropic"))


@given(script=scripts(broken=False))
def test_one_conversation_has_the_same_content_ids_in_every_dialect(script: Script) -> None:
    told = {name: parse(dialect.tell(script), name) for name, dialect in DIALECTS.items()}
    expected = content_ids(told["anthropic"])
    assert len(expected) >= len(script)
    for name, history in told.items():
        assert content_ids(history) == expected, name


@given(history=histories)
def test_an_occurrence_is_unique_in_its_history(history: History) -> None:
    assert len(history.occurrences) == sum(len(message.parts) for message in history)
    assert len(set(history.occurrences)) == len(history.occurrences)


@each_format
@given(data=anything)
def test_an_occurrence_is_unique_in_a_parsed_history(name: str, data: st.DataObject) -> None:
    history = parse(data.draw(WIRE[name] | ODD[name]), name)
    assert len(set(history.occurrences)) == len(history.occurrences)


# --- conversion between dialects -----------------------------------------------------------------------------


class Facts(NamedTuple):
    """Content that must survive any conversion, in a form that every dialect can represent."""

    said: tuple[tuple[Role, str], ...]
    """All text by role; each dialect may split it differently into pieces and messages."""
    calls: tuple[tuple[str, str], ...]
    answers: tuple[str, ...]
    pairs: tuple[int | None, ...]
    """The result of each call."""


def facts(history: History) -> Facts:
    results = [(history_place, part) for history_place, part in _placed(history) if isinstance(part, ToolResult)]
    order = {place: number for number, (place, _) in enumerate(results)}
    chains = history.chains
    words: dict[Role, list[str]] = {"system": [], "user": [], "assistant": []}
    for message in history:
        for part in message.parts:
            if not isinstance(part, ToolResult | ToolCall | Unknown):
                words.setdefault(message.role, []).append(part_text(part))
    return Facts(
        said=tuple((role, "".join("".join(said).split())) for role, said in words.items()),
        calls=tuple((part.name, _arguments(part)) for _, part in _placed(history) if isinstance(part, ToolCall)),
        answers=tuple(_words(part) for _, part in results),
        pairs=tuple(None if chain.result is None else order[chain.result] for chain in chains),
    )


def _placed(history: History) -> list[tuple[tuple[int, int], Part]]:
    return [((i, j), part) for i, message in enumerate(history) for j, part in enumerate(message.parts)]


def _arguments(call: ToolCall) -> str:
    """Arguments as an object; free text becomes the field `input`, as the encoders document."""
    try:
        value: Any = json.loads(call.arguments, strict=False) if call.arguments.strip() else {}
    except ValueError:
        value = None
    return as_json(value if isinstance(value, dict) else {"input": call.arguments})


def _words(result: ToolResult) -> str:
    """Text of a result, with its failure as a flag or a prefix, without blank lines between pieces."""
    return _dense(_dense(result.text).removeprefix("Error: "))


def _dense(text: str) -> str:
    return "\n".join(line for line in text.split("\n") if line)


PLACEHOLDER = "[image: see the next user message]"


def _same_answers(before: History, after: History) -> None:
    """Check that the text of results is preserved; a result with only an image may refer to its new position."""
    olds = [part for _, part in _placed(before) if isinstance(part, ToolResult)]
    news = [part for _, part in _placed(after) if isinstance(part, ToolResult)]
    assert len(news) == len(olds)
    for old, new in zip(olds, news, strict=True):
        only_images = not old.text and any(isinstance(part, Image) for part in old.content)
        assert _words(new) == _words(old) or (only_images and _words(new) == PLACEHOLDER)


def others(name: str) -> list[str]:
    return [other for other in WIRE if other != name]


@each_format
@given(data=anything)
def test_conversion_preserves_calls_results_and_their_matches(name: str, data: st.DataObject) -> None:
    before = parse(data.draw(WIRE[name]), name)
    for target in others(name):
        after = parse(emit(before, target), target)
        assert facts(after).calls == facts(before).calls, target
        assert facts(after).pairs == facts(before).pairs, target
        _same_answers(before, after)


@each_format
@given(data=anything)
def test_conversion_reports_everything_that_it_removes(name: str, data: st.DataObject) -> None:
    before = parse(data.draw(WIRE[name]), name)
    for target in others(name):
        crossed = emit_with_losses(before, target)
        gone = _kinds(before) - _kinds(parse(crossed.value, target))
        assert not gone or crossed.losses, (target, gone)


def _kinds(history: History) -> Counter[type]:
    """Number of parts of each kind; texts may be merged."""
    inner = [one for _, part in _placed(history) if isinstance(part, ToolResult) for one in part.content]
    kinds = [type(part) for _, part in _placed(history)] + [type(part) for part in inner]
    return Counter(kind for kind in kinds if kind is not Text)


@each_format
@given(data=anything)
def test_conversion_preserves_all_text(name: str, data: st.DataObject) -> None:
    before = parse(data.draw(WIRE[name]), name)
    expected = {text for message in before for part in message.parts for text in _said(part)}
    for target in others(name):
        after = as_json(emit(before, target))
        for text in expected:
            assert json.dumps(text)[1:-1] in after, target


def _said(part: Part) -> list[str]:
    return [part.text] if isinstance(part, Text) else []


@each_format
@given(data=anything)
def test_conversion_of_an_odd_conversation_never_raises(name: str, data: st.DataObject) -> None:
    history = parse(data.draw(ODD[name]), name)
    for target in others(name):
        crossed = emit(history, target)
        assert as_json(emit(parse(crossed, target), target)) == as_json(crossed), target


@each_format
@given(rows=st.lists(near_values, max_size=4))
def test_conversion_of_any_json_never_raises(name: str, rows: list[Json]) -> None:
    history = parse(rows, name)
    for target in others(name):
        parse(emit(history, target), target)


@each_format
@given(data=anything)
def test_a_second_conversion_loses_nothing_more(name: str, data: st.DataObject) -> None:
    start = parse(data.draw(WIRE[name]), name)
    for target in others(name):
        once = _there_and_back(start, name, target)
        assert facts(_there_and_back(once, name, target)) == facts(once), target


def _there_and_back(history: History, home: str, away: str) -> History:
    return parse(emit(parse(emit(history, away), away), home), home)


# --- emitting histories that no parser produced --------------------------------------------------------------


@each_format
@given(history=histories, body=st.sampled_from((None, True, False)))
def test_any_history_can_be_emitted(name: str, history: History, body: bool | None) -> None:
    value = emit(history, name, body=body)
    assert body is None or isinstance(value, dict if body else list)
    assert as_json(emit(parse(value, name), name)) == as_json(value)


@each_format
@given(data=anything)
def test_an_edited_conversation_can_be_emitted_in_every_dialect(name: str, data: st.DataObject) -> None:
    history = data.draw(edited(parse(data.draw(WIRE[name] | ODD[name]), name)))
    for target in WIRE:
        value = emit(history, target)
        assert as_json(emit(parse(value, target), target)) == as_json(value), target


@each_format
@given(data=anything)
def test_the_vendor_extras_of_an_edited_part_reveal_no_old_text(name: str, data: st.DataObject) -> None:
    history = parse(data.draw(WIRE[name]), name)
    messages = tuple(structs.replace(message, parts=tuple(map(_rewritten, message.parts))) for message in history)
    again = parse(emit(structs.replace(history, messages=messages), name), name)
    assert {text for text in _all_texts(again) if text} <= {"new"}


def _rewritten(part: Part) -> Part:
    if isinstance(part, ToolResult):
        inner = tuple(structs.replace(one, text="new") if isinstance(one, Text) else one for one in part.content)
        return structs.replace(part, content=inner, is_error=False)
    return structs.replace(part, text="new") if isinstance(part, Text) else part


def _all_texts(history: History) -> list[str]:
    held = [part.content if isinstance(part, ToolResult) else (part,) for _, part in _placed(history)]
    return [part.text for content in held for part in content if isinstance(part, Text)]
