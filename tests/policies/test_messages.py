"""The policy `messages`: empty messages, messages of a role, long text, and pattern matches."""

import json
import re
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import thresher as th
from strategies import LONE, histories
from thresher.edits import Truncate, apply, apply_elisions, build_plan, find_verified_placeholders
from thresher.errors import OptionError
from thresher.model import Author, History, Message, Part, Place, Role, Summary, Text, ToolCall, ToolResult, part_text
from thresher.policies.messages import FilterMessages, find_pattern_matches
from thresher.tokens import default_token_weights

SCALE = default_token_weights(counter="estimate")
LONG = "".join(f"line {n}: the quick brown fox\n" for n in range(400))


def say(role: Role, text: str, author: Author = "human") -> Message:
    return Message(role, (Text(text),), author=author)


def talk(*middle: Message) -> History:
    return History((say("user", "first"), *middle, say("assistant", "done", "model"), say("user", "last")))


def chain(text: str) -> tuple[Message, Message]:
    call = Message("assistant", (ToolCall("c1", "Bash", '{"command": "make"}'),), author="model")
    return call, Message("tool", (ToolResult("c1", (Text(text),)),), author="tool")


def after(policy: FilterMessages, history: History) -> History:
    return apply(history, build_plan(history, policy(history), SCALE))


def again(policy: FilterMessages, history: History) -> History:
    """Run a policy again, with the placeholders of the first run verified."""
    stand_ins: frozenset[Place] = find_verified_placeholders(history, set)
    return apply(history, build_plan(history, policy(history), SCALE, placeholders=stand_ins))


def test_blank_text_is_dropped() -> None:
    history = talk(
        say("assistant", " \n", "model"),
        Message("assistant", (Text(""), ToolCall("c1", "Bash", "{}")), author="model"),
        Message("tool", (ToolResult("c1", ()),), author="tool"),
        say("user", "\t"),
        say("assistant", LONE, "model"),
    )
    smaller = after(FilterMessages(empty=True), history)
    assert [message.parts for message in smaller] == [
        (Text("first"),),
        (ToolCall("c1", "Bash", "{}"),),
        (ToolResult("c1", ()),),
        (Text(LONE),),
        (Text("done"),),
        (Text("last"),),
    ]


@pytest.mark.parametrize(
    ("roles", "left"),
    [
        (("system",), ["first", "reminder", "summary", "call", "result", "done", "last"]),
        (("tool",), ["rules", "first", "reminder", "summary", "done", "last"]),
        (("assistant",), ["rules", "first", "reminder", "summary", "last"]),
        (("user",), ["rules", "first", "summary", "call", "result", "done", "last"]),
    ],
)
def test_a_role_is_dropped_except_the_current_message_and_summaries(roles: tuple[str, ...], left: list[str]) -> None:
    history = History(
        (
            say("system", "rules", "harness"),
            say("user", "first"),
            say("user", "reminder", "harness"),
            Message("user", (Summary("summary"),), author="harness"),
            Message("assistant", (ToolCall("c1", "Bash", "call"),), author="model"),
            Message("tool", (ToolResult("c1", (Text("result"),)),), author="tool"),
            say("assistant", "done", "model"),
            say("user", "last"),
        )
    )
    expected = [word for word in left if word != "first"] if "user" in roles else left
    smaller = after(FilterMessages(roles=roles), history)
    words = [_word(message) for message in smaller]
    assert [word for word in words if not word.startswith("[thresher")] == expected


def _word(message: Message) -> str:
    call = next(message.calls, None)
    result = next(message.results, None)
    return call.arguments if call else result.text if result else message.text


def test_lifted_pins_are_counted() -> None:
    history = talk(say("system", "rules", "harness"), say("user", "a note " * 9, "context"))
    assert build_plan(history, FilterMessages(roles=("system",))(history), SCALE).unpinned == 1
    assert build_plan(history, FilterMessages(patterns=("note",))(history), SCALE).unpinned == 1


@pytest.mark.parametrize("limit", [100, 500, 10_000])
def test_long_texts_and_results_keep_head_and_tail(limit: int) -> None:
    policy = FilterMessages(longer_than=limit)
    history = talk(say("user", LONG), say("assistant", LONG, "model"), *chain(LONG))
    plan = build_plan(history, policy(history), SCALE)
    smaller = apply(history, plan)
    texts = [smaller[1].text, smaller[2].text, next(smaller[4].results).text]
    assert all(len(text) <= limit for text in texts)
    assert all(f"{len(LONG):,} chars" in text for text in texts)
    assert {edit.why for edit in plan.edits} == {f"message longer than {limit:,}"}
    assert again(policy, smaller) == smaller


def _length(message: Message) -> int:
    return sum(len(part_text(part)) for part in message.parts)


def _write(*lengths: int) -> ToolCall:
    fields = {f"field {n}": "é" * (length // 2) + '"\n' * (length // 4) for n, length in enumerate(lengths)}
    return ToolCall("w", "Write", json.dumps({"path": "a.py", **fields}))


@pytest.mark.parametrize(
    "parts",
    [
        (Text(LONG), Text(LONG[:900])),
        (Text(LONG), _write(4_000)),
        (Text("I write it."), _write(4_000, 200, 3_000)),
        (Text(LONG), Text(LONG), _write(4_000)),
        (_write(9_000),),
    ],
)
@pytest.mark.parametrize("limit", [1_000, 2_000, 3_000])
def test_the_limit_applies_to_the_whole_message_with_its_arguments(parts: tuple[Part, ...], limit: int) -> None:
    policy = FilterMessages(longer_than=limit)
    calls = [part for part in parts if isinstance(part, ToolCall)]
    answers = tuple([ToolResult(call.id, (Text("ok"),)) for call in calls])
    results = [Message("tool", answers, author="tool")] if answers else []
    smaller = after(policy, talk(Message("assistant", parts, author="model"), *results))
    assert limit // 2 < _length(smaller[1]) <= limit
    assert all(isinstance(json.loads(call.arguments), dict) for call in smaller[1].calls)
    assert again(policy, smaller) == smaller


def test_parallel_results_share_the_limit_and_short_ones_stay_whole() -> None:
    calls = tuple([ToolCall(f"c{n}", "Bash", "{}") for n in range(3)])
    texts = ("short", LONG, LONG)
    answers = tuple([ToolResult(f"c{n}", (Text(text),)) for n, text in enumerate(texts)])
    history = talk(Message("assistant", calls, author="model"), Message("tool", answers, author="tool"))
    smaller = after(FilterMessages(longer_than=2_000), history)
    assert 1_700 < _length(smaller[2]) <= 2_000
    assert [len(result.text) < 1_000 for result in smaller[2].results] == [True, True, True]
    assert next(smaller[2].results).text == "short"


def test_texts_keep_their_length_while_arguments_are_long() -> None:
    text = LONG[:1_400]
    done = Message("tool", (ToolResult("w", (Text("ok"),)),), author="tool")
    smaller = after(FilterMessages(longer_than=2_000), talk(Message("assistant", (Text(text), _write(9_000))), done))
    assert smaller[1].text == text


def test_matches_are_removed_from_arguments_which_stay_json() -> None:
    policy = FilterMessages(patterns=(r"(?m)^DEBUG .*\n?", "secret-[0-9]+", "line"))
    fields = {
        "line": 1,
        "script": 'a "line"\nDEBUG é 😀 x\nb\ttoken=secret-12',
        "more": ["secret-3", {"line": "line 2"}],
    }
    asked = [
        Message("assistant", (ToolCall("c1", "Bash", json.dumps(fields)),), author="model"),
        Message("tool", (ToolResult("c1", (Text("ok"),)),), author="tool"),
        Message("assistant", (ToolCall("c2", "apply_patch", "*** secret-4 \\ line"),), author="model"),
        Message("tool", (ToolResult("c2", (Text("ok"),)),), author="tool"),
    ]
    smaller = after(policy, talk(*asked))
    (first,), (second,) = smaller[1].calls, smaller[3].calls
    assert json.loads(first.arguments) == {"line": 1, "script": 'a ""\nb\ttoken=', "more": ["", {"line": " 2"}]}
    assert second.arguments == "***  \\ "
    assert again(policy, smaller) == smaller


@pytest.mark.parametrize(
    ("text", "author", "is_dropped"),
    [
        ('API Error: 529 {"type":"error","error":{"type":"overloaded_error"}}', "model", True),
        ("API Error: Rate limit exceeded", "model", True),
        ("Claude AI usage limit reached|1751000000", "model", True),
        ("Prompt is too long", "harness", True),
        ("API Error: Connection error. Check your network and try again.", "harness", True),
        ("API Error: 529 means that the server is overloaded, so I added a retry.", "model", False),
        ("No response requested.", "harness", False),
    ],
)
def test_api_errors_are_dropped_and_text_about_them_stays(text: str, author: Author, is_dropped: bool) -> None:
    asked = say("user", "API Error: Rate limit exceeded")
    history = talk(say("assistant", text, author), asked)
    smaller = after(FilterMessages(api_errors=True), history)
    assert smaller == (History((history[0], *history.messages[2:])) if is_dropped else history)


def test_the_current_message_is_never_truncated() -> None:
    history = History((say("user", LONG),))
    assert after(FilterMessages(longer_than=100, patterns=("fox",)), history) == history


def test_matches_are_removed_from_text_and_results() -> None:
    policy = FilterMessages(patterns=(r"(?m)^DEBUG .*\n?", "secret-[0-9]+"))
    history = talk(say("assistant", "DEBUG a\nkeep secret-12!", "model"), *chain("DEBUG x\nDEBUG y\nok"))
    smaller = after(policy, history)
    assert smaller[1].text == "keep !"
    assert next(smaller[3].results).text == "ok"


def test_a_full_match_drops_a_text_and_replaces_a_result() -> None:
    history = talk(say("assistant", LONG, "model"), *chain(LONG))
    smaller = after(FilterMessages(patterns=("(?s)line 0.*",)), history)
    assert len(smaller) == len(history) - 1
    assert next(smaller[2].results).text.startswith("[thresher ")


@pytest.mark.parametrize("content", ["id-77", [{"type": "text", "text": "id-77"}, {"type": "text", "text": "id-78"}]])
@pytest.mark.parametrize("dialect", ["anthropic", "openai-chat", "openai-responses", "gemini"])
def test_a_short_result_that_matches_completely_becomes_empty(dialect: str, content: Any) -> None:
    """A placeholder would have more tokens than the result, so the match would stay."""
    rows: list[dict[str, Any]] = [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "whoami", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": content}]},
        {"role": "assistant", "content": "Done."},
    ]
    messages = rows if dialect == "anthropic" else th.emit(th.parse(rows), dialect)
    fitted = th.fit(messages, policy="none", custom_patterns=(r"id-\d+",), dialect=dialect)
    assert th.check(fitted, dialect) == ()
    history = th.parse(fitted, dialect)
    assert [result.text for message in history for result in message.results] == [""]
    assert '"text": ""' not in json.dumps(fitted)


def test_patterns_and_a_limit_make_one_truncation() -> None:
    policy = FilterMessages(patterns=("quick ",), longer_than=1000)
    history = talk(say("assistant", LONG, "model"))
    (edit,) = policy(history)
    assert isinstance(edit, Truncate)
    left = apply_elisions(LONG, edit.gaps)
    assert len(left) <= 1000
    assert "quick" not in left
    assert left.startswith("line 0: the brown fox\n")
    assert left.endswith("line 399: the brown fox\n")


def test_a_match_created_by_a_removal_is_removed_as_well() -> None:
    history = talk(say("assistant", "x aabb y aaabbb z", "model"))
    assert after(FilterMessages(patterns=("ab",)), history)[1].text == "x  y  z"


def test_a_text_with_endless_matches_is_unchanged() -> None:
    history = History((say("assistant", "a text of more than eight bites", "model"),))
    assert list(FilterMessages(patterns=(r"\A.",))(history)) == []


def test_a_slow_pattern_times_out() -> None:
    with pytest.raises(OptionError, match=r"\(\?:a\|aa\)\+\$"):
        find_pattern_matches(("(?:a|aa)+$",), "a" * 70 + "b", timeout=0.05)


def test_lone_surrogates_are_accepted() -> None:
    history = talk(say("assistant", f"{LONE}drop{LONE}", "model"))
    assert after(FilterMessages(patterns=("drop",)), history)[1].text == LONE * 2


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"patterns": ("(a",)}, "missing ) at character 2"),
        ({"patterns": ("*",)}, "at character 0"),
        ({"patterns": "a"}, "list of strings"),
        ({"roles": ("robot",)}, "robot"),
        ({"longer_than": 99}, "100 or more"),
        ({"longer_than": -1}, "longer_than"),
        ({"longer_than": "many"}, "longer_than"),
    ],
)
def test_invalid_options_are_rejected(options: dict[str, object], said: str) -> None:
    with pytest.raises(OptionError, match=re.escape(said)):
        FilterMessages(**options)  # type: ignore[arg-type]


def test_a_missing_regex_package_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "regex", None)
    with pytest.raises(OptionError, match=r"thresher\[patterns\]"):
        FilterMessages(patterns=("a pattern not seen before",))
    assert FilterMessages(longer_than=100).patterns == ()


@given(st.text("ab\n", max_size=40), st.lists(st.sampled_from(("ab", "a+", "^b", "(?m)a$", "b?")), max_size=3))
def test_the_remaining_text_has_no_match(text: str, patterns: list[str]) -> None:
    policy = FilterMessages(patterns=tuple(patterns))
    for edit in policy(History((say("assistant", text, "model"),))):
        assert isinstance(edit, Truncate)
        left = apply_elisions(text, edit.gaps)
        assert not any(found.group() for pattern in patterns for found in re.finditer(pattern, left))


@given(histories)
def test_a_second_run_changes_nothing(history: History) -> None:
    for policy in (
        FilterMessages(empty=True, longer_than=100, patterns=("e",)),
        FilterMessages(roles=("user", "system", "tool")),
    ):
        once = after(policy, history)
        assert again(policy, once) == once
