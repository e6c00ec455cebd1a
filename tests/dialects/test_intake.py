"""Every function accepts the same inputs: dicts, SDK objects, mixed and nested, bodies, histories, sessions."""

import json
from collections.abc import Callable
from typing import Any

import anthropic.types
import openai.types.chat
import openai.types.responses
import pytest
from google.genai import types as genai

import thresher as th
from thresher.errors import FormatError
from thresher.model import History, Session
from thresher.store import InMemoryContentStore

Json = Any
LONG = "a line of the log\n" * 1_500


def anthropic_objects() -> list[Json]:
    blocks = [
        anthropic.types.ThinkingBlock(type="thinking", thinking="hm", signature="c2ln"),
        anthropic.types.TextBlock(type="text", text="I look", citations=None),
        anthropic.types.ToolUseBlock(type="tool_use", id="toolu_1", name="Read", input={"path": "log"}),
    ]
    return [
        {"role": "user", "content": "what is in the log?"},
        {"role": "assistant", "content": blocks},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": LONG}]},
        {"role": "assistant", "content": [anthropic.types.TextBlock(type="text", text="nothing of note")]},
        {"role": "user", "content": "thanks; and now?"},
    ]


def openai_chat_objects() -> list[Json]:
    call = openai.types.chat.ChatCompletionMessageFunctionToolCall.model_validate(
        {"id": "call_1", "type": "function", "function": {"name": "Read", "arguments": '{"path":"log"}'}}
    )
    return [
        {"role": "user", "content": "what is in the log?"},
        openai.types.chat.ChatCompletionMessage(role="assistant", content=None, tool_calls=[call]),
        {"role": "tool", "tool_call_id": "call_1", "content": LONG},
        openai.types.chat.ChatCompletionMessage(role="assistant", content="nothing of note"),
        {"role": "user", "content": "thanks; and now?"},
    ]


def openai_responses_objects() -> list[Json]:
    return [
        {"role": "user", "content": "what is in the log?"},
        openai.types.responses.ResponseFunctionToolCall(
            type="function_call", call_id="call_1", name="Read", arguments='{"path":"log"}', id="fc_1"
        ),
        {"type": "function_call_output", "call_id": "call_1", "output": LONG},
        openai.types.responses.ResponseOutputMessage(
            id="msg_1",
            type="message",
            role="assistant",
            status="completed",
            content=[
                openai.types.responses.ResponseOutputText(type="output_text", text="nothing of note", annotations=[])
            ],
        ),
        {"role": "user", "content": "thanks; and now?"},
    ]


def gemini_objects() -> list[Json]:
    call = genai.Part(
        function_call=genai.FunctionCall(name="Read", args={"path": "log"}), thought_signature=b"\xfb\xff"
    )
    answer = genai.Part.from_function_response(name="Read", response={"output": LONG})
    return [
        genai.Content(role="user", parts=[genai.Part(text="what is in the log?")]),
        genai.Content(role="model", parts=[call]),
        {"role": "user", "parts": [answer]},
        genai.Content(role="model", parts=[genai.Part(text="nothing of note")]),
        {"role": "user", "parts": [{"text": "thanks; and now?"}]},
    ]


OBJECTS: dict[str, Callable[[], list[Json]]] = {
    "anthropic": anthropic_objects,
    "openai-chat": openai_chat_objects,
    "openai-responses": openai_responses_objects,
    "gemini": gemini_objects,
}
KEYS = {"anthropic": "messages", "openai-chat": "messages", "openai-responses": "input", "gemini": "contents"}
each_sdk = pytest.mark.parametrize("name", OBJECTS)


def forms(name: str) -> dict[str, Json]:
    """The same conversation in every accepted form."""
    history = th.parse(OBJECTS[name](), name)
    return {
        "objects": OBJECTS[name](),
        "dicts": th.emit(history, name),
        "tuple": tuple(OBJECTS[name]()),
        "body": {KEYS[name]: OBJECTS[name]()},
        "history": history,
        "session": Session(id="s1", agent="test", file="s1.json", segments=(history,)),
    }


@each_sdk
def test_every_function_accepts_every_form(name: str) -> None:
    store = InMemoryContentStore()
    sizes, plans = set(), set()
    for value in forms(name).values():
        assert th.parse(value, name)[0].role == "user"
        assert th.check(value, name) == ()
        assert th.repair(value, name).repairs == ()
        sizes.add(th.count(value))
        plans.add(
            th.plan(value, policy="mask", budget=2_000, dialect=name, store=store, counter="estimate").tokens_after
        )
        result = th.fit_with_plan(value, policy="mask", budget=2_000, dialect=name, store=store, counter="estimate")
        plans.add(result.plan.tokens_after)
    assert len(sizes) == 1
    assert len(plans) == 1


@each_sdk
@pytest.mark.parametrize("form", ["objects", "dicts", "tuple", "body", "history", "session"])
def test_fit_and_a_window_return_the_form_of_their_input(name: str, form: str) -> None:
    value = forms(name)[form]
    window = th.Window(budget=2_000, store=InMemoryContentStore(), counter="estimate", format=name)
    for small in (th.fit(value, budget=2_000, store=InMemoryContentStore(), format=name), window.fit(value)):
        assert th.count(small) < th.count(value)
        assert th.check(small, name) == ()
        expected = type(value) if isinstance(value, dict | History | Session) else list
        assert isinstance(small, expected)


@each_sdk
def test_objects_parse_like_their_dicts(name: str) -> None:
    values = forms(name)
    assert th.emit(th.parse(values["objects"]), name) == values["dicts"]
    json.dumps(values["dicts"])


def test_the_bytes_of_a_signature_round_trip() -> None:
    rows = th.emit(th.parse(gemini_objects()), "gemini")
    again = genai.Content.model_validate(rows[1])
    assert again.parts is not None
    assert again.parts[0].thought_signature == b"\xfb\xff"


NOT_MESSAGES: dict[str, tuple[Json, str]] = {
    "a str": ("hello", "got a str"),
    "None": (None, "got None"),
    "a generator": (iter(range(0)), "got a range_iterator; convert it to a list"),
    "a number": (5, "got a int"),
    "a tuple of texts": (("a", "b"), "message 1 is a str"),
    "an object of no SDK": ([{"role": "user", "content": object()}], "a message contains a object"),
}


@pytest.mark.parametrize("function", ["parse", "fit", "fit_with_plan", "plan", "check", "count", "repair", "window"])
@pytest.mark.parametrize("case", NOT_MESSAGES)
def test_other_values_are_errors_that_name_the_type(function: str, case: str) -> None:
    value, reason = NOT_MESSAGES[case]
    call = th.Window(budget=2_000).fit if function == "window" else getattr(th, function)
    with pytest.raises(FormatError, match=reason):
        call(value)


@pytest.mark.parametrize("function", ["parse", "count", "fit", "plan", "check", "window"])
def test_arguments_that_are_nested_too_deeply_are_rejected(function: str) -> None:
    arguments: dict[str, Json] = {}
    for _ in range(500):
        arguments = {"a": arguments}
    call = {"type": "tool_use", "id": "c1", "name": "Read", "input": arguments}
    messages = [{"role": "user", "content": "go"}, {"role": "assistant", "content": [call]}]
    use = th.Window(budget=2_000).fit if function == "window" else getattr(th, function)
    with pytest.raises(FormatError, match="nested too deeply"):
        use(messages)
