"""Pins: declared context stays always, attachments until the next prompt."""

from typing import Any

import pytest

import thresher as th
from thresher.dialects import emit
from thresher.edits import find_pins
from thresher.model import History, Message, Place, Text, Unknown
from thresher.model.context_marks import mark_context
from thresher.store import InMemoryContentStore
from thresher.transcripts import format_names

CONTEXT = 'SYSTEM CONTEXT (JSON):\n{"branch": "main"}'
SKILL = "Base directory for this skill: /skills/review\n\n# Review\n\n" + "Read every line.\n" * 200
MARKED = "PROJECT FACTS\nThe port is 8123.\n" + "And it stays.\n" * 200
REMINDER = "<system-reminder>\nThe file changed.\n</system-reminder>"


def rows(*texts: str) -> list[dict[str, str]]:
    """User messages, each answered."""
    found: list[dict[str, str]] = []
    for text in texts:
        found += [{"role": "user", "content": text}, {"role": "assistant", "content": "ok"}]
    return found


def pinned_texts(history: History) -> list[str]:
    return [th.part_text(history.part(place)) for place in sorted(find_pins(history))]


@pytest.mark.parametrize("dialect", format_names("wire"))
@pytest.mark.parametrize("position", [0, 1, 3])
def test_declared_context_is_pinned_and_no_prompt_wherever_it_is(dialect: str, position: int) -> None:
    texts = ["one", "two", "three"]
    history = th.parse(rows(*texts[:position], CONTEXT, *texts[position:]), "openai-chat")
    history = th.parse(emit(history, dialect), dialect)
    assert pinned_texts(history) == ([CONTEXT, "three"] if position < 3 else ["three", CONTEXT])
    assert history.current is not None
    assert history.current.text == "three"


def test_an_attachment_is_pinned_until_the_next_prompt() -> None:
    history = th.parse(rows("review it", SKILL), "openai-chat")
    assert pinned_texts(history) == ["review it", SKILL]
    later = th.parse(rows("review it", SKILL, "thanks"), "openai-chat")
    assert pinned_texts(later) == ["thanks"]


def test_an_attachment_directly_before_a_prompt_belongs_to_it() -> None:
    messages = [*rows("hello"), {"role": "user", "content": SKILL}, {"role": "user", "content": "review it"}]
    assert pinned_texts(th.parse(messages, "openai-chat")) == [SKILL, "review it"]


def test_declared_context_next_to_a_prompt_stays_pinned() -> None:
    blocks = [{"type": "text", "text": CONTEXT}, {"type": "text", "text": "one"}]
    messages: list[Any] = [{"role": "user", "content": blocks}, {"role": "assistant", "content": "ok"}, *rows("two")]
    assert pinned_texts(th.parse(messages, "anthropic")) == [CONTEXT, "two"]


def test_tool_definitions_and_developer_rows_inside_the_input_are_pinned() -> None:
    items: list[Any] = [
        {"type": "additional_tools", "tools": [{"type": "function", "name": "ls"}]},
        {"type": "message", "role": "developer", "content": "be careful"},
        {"type": "message", "role": "user", "content": "go"},
        {"type": "mcp_list_tools", "server_label": "x", "tools": []},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "ok"}]},
    ]
    history = th.parse(items, "openai-responses")
    kinds = [type(history.part(place)) for place in sorted(find_pins(history))]
    assert kinds == [Unknown, Text, Text, Unknown]
    assert len(history.turns) == 1
    assert emit(history, "openai-responses") == items


# --- the user's own marks ------------------------------------------------------------------------------------------


def contents(messages: list[Any]) -> list[str]:
    return [row["content"] for row in messages]


def dropped(history: History) -> list[th.Edit]:
    """Edits that drop everything."""
    return [th.Drop(occurrence, "everything", "test") for occurrence in history.occurrences]


def test_a_marked_message_is_never_removed() -> None:
    messages = rows("one", MARKED, "two")
    without = th.fit(messages, policy=[dropped], store=InMemoryContentStore())
    assert MARKED not in contents(without)
    marked = th.fit(messages, policy=[dropped], store=InMemoryContentStore(), context_marks=("PROJECT FACTS",))
    assert [row["content"] for row in marked] == [MARKED, "two"]


def test_a_marked_message_is_never_the_current_prompt() -> None:
    messages = rows("one", MARKED)
    marked = th.fit(messages, policy=[dropped], store=InMemoryContentStore(), context_marks=("PROJECT FACTS",))
    assert [row["content"] for row in marked] == ["one", MARKED]


def test_marks_come_from_the_environment_and_the_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("THRESHER_CONTEXT_MARKS", "PROJECT FACTS,OTHER FACTS")
    assert MARKED in contents(th.fit(rows("one", MARKED, "two"), policy=[dropped], store=InMemoryContentStore()))
    monkeypatch.delenv("THRESHER_CONTEXT_MARKS")
    (tmp_path / "thresher.toml").write_text('context_marks = ["PROJECT FACTS"]\n')
    assert MARKED in contents(th.fit(rows("one", MARKED, "two"), policy=[dropped], store=InMemoryContentStore()))


def test_a_window_keeps_marked_messages() -> None:
    messages = rows("one", MARKED, "two " * 2_000, "three")
    options: Any = {"store": InMemoryContentStore(), "budget": 1_500, "counter": "estimate"}
    assert MARKED not in contents(th.Window(**options).fit(messages))
    assert MARKED in contents(th.Window(**options, context_marks=("PROJECT FACTS",)).fit(messages))


def test_a_marked_text_next_to_a_prompt_is_pinned() -> None:
    message = Message("user", (Text(MARKED), Text("go")))
    history = History((message, Message("assistant", (Text("ok"),), author="model"), Message("user", (Text("on"),))))
    marked = mark_context(history, ("PROJECT FACTS",))
    assert find_pins(marked) == {Place(0, 0): "injection", Place(2, 0): "current"}
    assert find_pins(history) == {Place(2, 0): "current"}
    assert mark_context(history, ("PROJECT FACTS",)).messages[0] is marked.messages[0]


# --- something is left -------------------------------------------------------------------------------------------

LONG_ANSWER = "Here is the plan. " * 400
ASSISTANT_ONLY: dict[str, list[Any]] = {
    "anthropic": [{"role": "assistant", "content": LONG_ANSWER}],
    "openai-chat": [{"role": "assistant", "content": LONG_ANSWER}],
    "openai-responses": [
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": LONG_ANSWER}]}
    ],
    "gemini": [{"role": "model", "parts": [{"text": LONG_ANSWER}]}],
}
CALLS_ONLY = [
    {"type": "function_call", "call_id": "c1", "name": "ls", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c1", "output": "a.py"},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": ""}]},
]


@pytest.mark.parametrize("policy", [dropped, "sliding-window", "auto"])
@pytest.mark.parametrize("dialect", format_names("wire"))
def test_a_conversation_without_a_prompt_does_not_become_an_empty_request(dialect: str, policy: Any) -> None:
    messages = ASSISTANT_ONLY[dialect]
    store = InMemoryContentStore()
    after = th.fit(messages, policy=policy, budget=200, format=dialect, store=store)
    assert after
    assert th.check(after, dialect) == ()
    assert th.fit(after, policy=policy, budget=200, format=dialect, store=store) == after


def test_the_last_parts_stay_if_there_is_no_text() -> None:
    after = th.fit(CALLS_ONLY, policy=[dropped], format="openai-responses", store=InMemoryContentStore())
    assert after
    assert th.check(after, "openai-responses") == ()
