"""Repair makes every history legal, reports its changes, and leaves legal messages unchanged."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import oracle
from strategies import ODD, WIRE, edited, histories
from thresher.dialects import emit, parse
from thresher.dialects.extras import is_opaque_message
from thresher.dialects.gemini.repairs import SKIP_SIGNATURE_VALIDATION
from thresher.dialects.repairs.content_repairs import EARLIER_CONVERSATION_NOTE
from thresher.dialects.repairs.tool_repairs import INTERRUPTED, REPEATED_RESULT_LABEL
from thresher.dialects.table import DIALECTS
from thresher.edits.legality import check
from thresher.edits.repair_history import repair
from thresher.errors import ReadError
from thresher.model import History, Message, Part, Text, Thinking, ToolCall, ToolResult, VendorExtras, part_text
from thresher.model.harness_text import ORPHAN_RESULT_LABEL
from thresher.transcripts import read_all

each_dialect = pytest.mark.parametrize("dialect", DIALECTS)
anything = st.data()


def is_legal_everywhere(history: History, *dialects: str) -> None:
    """Check a history by the rules and by the independent oracle."""
    for dialect in dialects:
        assert check(history, dialect) == (), dialect
        assert oracle.violations(emit(history, dialect), dialect) == [], dialect


@each_dialect
@given(history=histories)
def test_any_history_is_legal_in_a_dialect_after_repair(dialect: str, history: History) -> None:
    is_legal_everywhere(repair(history, dialect).history, dialect)


@given(history=histories)
def test_any_history_is_legal_in_all_dialects_after_repair(history: History) -> None:
    is_legal_everywhere(repair(history).history, *DIALECTS)


@each_dialect
@given(data=anything)
def test_any_request_is_legal_in_its_own_dialect_after_repair(dialect: str, data: st.DataObject) -> None:
    history = parse(data.draw(WIRE[dialect] | ODD[dialect]), dialect)
    is_legal_everywhere(repair(history, dialect).history, dialect)


@each_dialect
@given(data=anything)
def test_any_edited_request_is_legal_in_all_dialects_after_repair(dialect: str, data: st.DataObject) -> None:
    before = parse(data.draw(WIRE[dialect] | ODD[dialect]), dialect)
    history = data.draw(edited(before))
    # Edits may replace a message that only its vendor can interpret by anything; such a result cannot be validated.
    wholes = {message.parts for message in before if is_opaque_message(message, dialect)}
    assume(all(message.parts in wholes for message in history if is_opaque_message(message, dialect)))
    is_legal_everywhere(repair(history).history, *DIALECTS)
    for target in DIALECTS:
        is_legal_everywhere(repair(history, target).history, target)


@given(history=histories, dialect=st.sampled_from((None, *DIALECTS)))
def test_a_second_repair_finds_nothing(history: History, dialect: str | None) -> None:
    once = repair(history, dialect)
    again = repair(once.history, dialect)
    assert again.repairs == ()
    assert again.history is once.history
    assert repair(history, dialect) == once


@given(history=histories, dialect=st.sampled_from((None, *DIALECTS)))
def test_every_change_is_reported_and_legal_messages_are_the_same_objects(
    history: History, dialect: str | None
) -> None:
    repaired = repair(history, dialect)
    assert (repaired.history is history) == (not repaired.repairs) == (not check(history, dialect))
    parts = {(one.message, one.part) for one in repaired.repairs}
    kept = {id(message) for message in repaired.history}
    kept |= {id(part) for message in repaired.history for part in message.parts}
    for index, message in enumerate(history):
        touched = {number for place, number in parts if place == index}
        for number, part in enumerate(message.parts):
            assert id(part) in kept or number in touched or None in touched
        # A message may gain or lose a result; any other message stays the same object unless a repair names it.
        assert id(message) in kept or touched or any(isinstance(part, ToolResult | ToolCall) for part in message.parts)


@given(history=histories, dialect=st.sampled_from((None, *DIALECTS)))
def test_a_repair_names_a_place_of_the_input_history(history: History, dialect: str | None) -> None:
    for one in repair(history, dialect).repairs:
        assert 0 <= one.message < len(history)
        assert one.part is None or 0 <= one.part < len(history[one.message].parts)
        assert one.detail


# --- what each repair does ------------------------------------------------------------------------------------

HELLO = Message("user", (Text("hello"),))
NATIVE = VendorExtras("anthropic")


def said(*parts: Part, pocket: VendorExtras | None = None) -> Message:
    return Message("assistant", parts, author="model", pocket=pocket)


def answered(*results: ToolResult, pocket: VendorExtras | None = None) -> Message:
    return Message("tool", results, author="tool", pocket=pocket)


def call(call_id: str) -> ToolCall:
    return ToolCall(call_id, "Read", "{}")


def result(call_id: str, text: str = "done") -> ToolResult:
    return ToolResult(call_id, (Text(text),))


def shown(history: History) -> list[str]:
    """Describe a history in short form: the first letter of each role, then calls, results and text."""
    return [f"{message.role[0]}: " + ", ".join(map(_word, message.parts)) for message in history]


def _word(part: Part) -> str:
    match part:
        case ToolCall():
            return f"call {part.id}"
        case ToolResult():
            return f"result {part.call_id} {part.text}"
        case _:
            return part_text(part)


CASES: dict[str, tuple[str | None, tuple[Message, ...], list[str], list[tuple[str, int, int | None]]]] = {
    "a lost result": (
        None,
        (HELLO, said(call("a"), call("b")), answered(result("b"))),
        ["u: hello", "a: call a, call b", f"t: result a {INTERRUPTED}, result b done"],
        [("unanswered-call", 1, 0)],
    ),
    "a call at the end": (
        None,
        (HELLO, said(call("a"))),
        ["u: hello", "a: call a", f"t: result a {INTERRUPTED}"],
        [("unanswered-call", 1, 0)],
    ),
    "a late result": (
        None,
        (HELLO, said(call("a")), HELLO, answered(result("a"))),
        ["u: hello", "a: call a", "t: result a done", "u: hello"],
        [("result-place", 3, 0)],
    ),
    "an orphan": (
        None,
        (HELLO, answered(result("a"))),
        ["u: hello", f"u: {ORPHAN_RESULT_LABEL} done"],
        [("orphan-result", 1, 0)],
    ),
    "a second result": (
        None,
        (HELLO, said(call("a")), answered(result("a")), answered(result("a", "again"))),
        ["u: hello", "a: call a", "t: result a done", f"u: {REPEATED_RESULT_LABEL} again"],
        [("repeated-result", 3, 0)],
    ),
    "results in messages of their own": (
        "anthropic",
        (HELLO, said(call("a"), call("b")), answered(result("a"), pocket=NATIVE), answered(result("b"), pocket=NATIVE)),
        ["u: hello", "a: call a, call b", "t: result a done, result b done"],
        [("result-place", 3, 0)],
    ),
    "words before a result": (
        "anthropic",
        (HELLO, said(call("a")), Message("user", (Text("look"), result("a")))),
        ["u: hello", "a: call a", "u: result a done, look"],
        [("results-first", 2, 1)],
    ),
    "ids counted anew in every turn": (
        "anthropic",
        (HELLO, said(call("a")), answered(result("a")), said(call("a")), answered(result("a", "more"))),
        ["u: hello", "a: call a", "t: result a done", "a: call a-2", "t: result a-2 more"],
        [("repeated-id", 3, 0), ("repeated-id", 4, 0)],
    ),
    "ids counted anew, and one result lost": (
        None,
        (HELLO, said(call("a")), HELLO, said(call("a")), answered(result("a", "second"))),
        ["u: hello", "a: call a", f"t: result a {INTERRUPTED}", "u: hello", "a: call a-2", "t: result a-2 second"],
        [("unanswered-call", 1, 0), ("repeated-id", 3, 0), ("repeated-id", 4, 0)],
    ),
    "an id of two ids": (
        None,
        (HELLO, said(call("a|b")), answered(result("a|b"))),
        ["u: hello", "a: call a_b", "t: result a_b done"],
        [("id-form", 1, 0), ("id-form", 2, 0)],
    ),
    "the model first": (
        "gemini",
        (Message("system", (Text("be brief"),)), said(Text("hi")), HELLO),
        ["s: be brief", f"u: {EARLIER_CONVERSATION_NOTE}", "a: hi", "u: hello"],
        [("first-role", 1, None)],
    ),
    "two messages of the model's": (
        "gemini",
        (HELLO, said(Text("so"), pocket=VendorExtras("gemini")), said(call("a")), answered(result("a"))),
        ["u: hello", "a: so, call a", "t: result a done"],
        [("call-after-model", 1, None), ("call-after-model", 2, None)],
    ),
    "only thinking": (
        "anthropic",
        (HELLO, said(Thinking("hm", "proof"), pocket=NATIVE), HELLO),
        ["u: hello", "u: hello"],
        [("thinking-last", 1, 0)],
    ),
    "half a pair": (
        None,
        (Message("user", (Text("a\ud83d"),)),),
        ["u: a\ufffd"],
        [("lone-surrogate", 0, 0)],
    ),
    "space at the end": (
        "anthropic",
        (HELLO, said(Text("so \n"))),
        ["u: hello", "a: so"],
        [("trailing-space", 1, 0)],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_repair_makes_the_smallest_change(name: str) -> None:
    dialect, messages, expected, told = CASES[name]
    repaired = repair(History(messages), dialect)
    assert shown(repaired.history) == expected
    assert [(one.rule, one.message, one.part) for one in repaired.repairs] == told


def test_a_moved_result_is_the_same_message() -> None:
    late = answered(result("a"))
    repaired = repair(History((HELLO, said(call("a")), HELLO, late)))
    assert repaired.history[2] is late


def test_an_interrupted_result_has_the_kind_of_its_call() -> None:
    items = [
        {"role": "user", "content": "go"},
        {"type": "custom_tool_call", "call_id": "a", "name": "patch", "input": "*** Begin"},
        {"role": "user", "content": "stop"},
    ]
    written = emit(repair(parse(items, "openai-responses")).history, "openai-responses")
    assert written[2]["type"] == "custom_tool_call_output"
    assert written[2]["call_id"] == "a"


def test_a_missing_thought_signature_is_replaced_by_the_skip_marker() -> None:
    signed = ToolCall("a", "Read", "{}", VendorExtras("gemini", '{"thoughtSignature":"abc"}'))
    history = History((HELLO, said(signed), answered(result("a")), said(call("b")), answered(result("b"))))
    written = emit(repair(history, "gemini").history, "gemini")
    assert written[1]["parts"][0]["thoughtSignature"] == "abc"
    assert written[3]["parts"][0]["thoughtSignature"] == SKIP_SIGNATURE_VALIDATION


# --- recorded conversations -------------------------------------------------------------------------------------

RECORDED = ("claude_code", "codex", "openai_tools", "gemini_contents", "mini_swe", "opencode", "pi", "cline_roo")
MOST = 25
"""Return the recorded files of one kind, smallest first."""


@pytest.mark.parametrize("folder", RECORDED)
def test_recorded_conversations_become_legal(shared_data: Path, folder: str) -> None:
    files = sorted((path for path in (shared_data / folder).rglob("*.js*") if path.is_file()), key=_size)[:MOST]
    if not files:
        pytest.skip(f"no recordings in {shared_data / folder}")
    found: Counter[str] = Counter()
    for path in files:
        for history in _recorded(path):
            found.update({one.rule for one in check(history)})
            repaired = repair(history)
            is_legal_everywhere(repaired.history, *DIALECTS)
            assert bool(repaired.repairs) == bool(check(history))
    print(folder, len(files), dict(found))  # noqa: T201 - shows the counts with `pytest -s`


def _size(path: Path) -> int:
    return path.stat().st_size


def _recorded(path: Path) -> list[History]:
    try:
        return [segment for session in read_all(path) for segment in session.segments]
    except ReadError:
        return []


# --- what looks legal but is not ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fields",
    [
        {"content": "done", "is_error": None},
        {"content": None},
        {"content": None, "is_error": None},
        {"content": "done", "is_error": "no"},
        {"content": {"text": "done"}},
    ],
)
def test_a_result_with_a_field_of_another_type_stays_the_only_one(fields: dict[str, Any]) -> None:
    messages: list[Any] = [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "Read", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", **fields}]},
    ]
    history = parse(messages, "anthropic")
    assert emit(history, "anthropic") == messages
    assert repair(history, "anthropic").history is history


@pytest.mark.parametrize(
    ("dialect", "messages"),
    [
        ("anthropic", [{"role": "user", "content": []}]),
        ("anthropic", [{"role": "user", "content": ""}]),
        ("openai-chat", [{"role": "user", "content": None}]),
        ("openai-chat", [{"role": "system", "content": "be brief"}, {"role": "user", "content": None}]),
        ("gemini", [{"role": "user", "parts": []}]),
    ],
)
def test_a_conversation_of_empty_messages_does_not_become_an_empty_request(dialect: str, messages: list[Any]) -> None:
    repaired = repair(parse(messages, dialect), dialect)
    emitted = emit(repaired.history, dialect)
    assert [row["role"] for row in emitted] == [row["role"] for row in messages]
    assert EARLIER_CONVERSATION_NOTE in str(emitted)
    assert [one.rule for one in repaired.repairs][-1] == "empty-message"
    assert repair(repaired.history, dialect).repairs == ()


def test_an_empty_list_of_calls_is_removed() -> None:
    messages = [{"role": "user", "content": "go"}, {"role": "assistant", "content": "hi", "tool_calls": []}]
    repaired = repair(messages, "openai-chat")
    assert emit(repaired.history, "openai-chat") == [messages[0], {"role": "assistant", "content": "hi"}]
    assert [one.rule for one in repaired.repairs] == ["empty-calls"]
