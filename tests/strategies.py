"""Hypothesis strategies for conversations: as values of the model, and as each dialect's JSON.

`HISTORIES` covers everything that can go wrong with calls and results. `WIRE` covers what each API documents, plus
unknown fields. `ODD` adds wrong types and missing fields. To add a dialect, add a row to `DIALECTS`. Texts are short
and few on purpose: a law fails on the structure of a conversation, not on its length.
"""

import copy
import json
from collections.abc import Callable
from typing import Any, NamedTuple

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from msgspec import structs

from thresher.model import (
    Author,
    History,
    Image,
    Message,
    Part,
    Role,
    Summary,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Unknown,
    Usage,
    VendorExtras,
)

Json = Any
Row = dict[str, Any]

# --- words and JSON ------------------------------------------------------------------------------------------


def _seldom(rare: SearchStrategy[Any], common: SearchStrategy[Any]) -> SearchStrategy[Any]:
    """Mostly `common`, which is cheap to draw."""
    return st.one_of(common, common, common, rare)


LONE = "\ud83d"
"""A lone surrogate: truncated transcripts contain them, and UTF-8 cannot encode them."""
_WORDS = ("a", "fix it", "naïve — ☃", "😀", LONE, "one\ntwo", "Error: no", "error", " ", '{"a": 1}', "\x00\u2028")

_any_word = st.text(st.characters(), min_size=1, max_size=4)
words: SearchStrategy[str] = _seldom(_any_word, st.sampled_from(_WORDS))
texts: SearchStrategy[str] = _seldom(_any_word, st.sampled_from(("", *_WORDS)))


def _objects(values: SearchStrategy[Json]) -> SearchStrategy[Row]:
    return st.dictionaries(st.sampled_from(_KNOWN), values, max_size=4)


def _each(names: str) -> tuple[str, ...]:
    return tuple(names.split())


_KNOWN = _each(
    "type role content text id name input arguments call_id tool_use_id tool_call_id tool_calls function custom"
    " function_call parts functionCall functionResponse args response output error thought thoughtSignature"
    " signature thinking data source media_type url image_url is_error summary encrypted_content refusal"
    " inlineData fileData mimeType fileUri action reasoning_content cache_control tools system instructions"
)
_KINDS = _each(
    "text tool_use tool_result thinking redacted_thinking image document base64 user assistant system tool model"
    " function function_call function_call_output message reasoning input_text output_text custom_tool_call"
    " local_shell_call local_shell_call_output input_image developer"
)

_leaves: SearchStrategy[Json] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.sampled_from((2**53 + 1, 2**70, -(2**64))),
    st.floats(allow_nan=False, allow_infinity=False, width=32),
    texts,
)
json_values: SearchStrategy[Json] = st.recursive(
    _leaves, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(texts, inner, max_size=2), max_leaves=4
)
"""Any JSON value."""

_known_keys = st.sampled_from(_KNOWN)
_kinds = st.sampled_from(_KINDS)
_roles = st.sampled_from(("user", "assistant", "system", "developer", "tool", "function", "model", "critic"))
near_values: SearchStrategy[Json] = st.recursive(
    _leaves | _kinds,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(_known_keys | texts, inner, max_size=4),
        st.builds(lambda kind, rest: {**rest, "type": kind}, _kinds, _objects(inner)),
        st.builds(lambda role, said: {"role": role, "content": said}, _roles, texts | inner),
        st.builds(lambda role, said: {"role": role, "parts": said}, _roles, st.lists(inner, max_size=2)),
    ),
    max_leaves=8,
)
"""Any JSON value with the dialects' own keys and words, so that it resembles a message."""

arguments: SearchStrategy[Row] = _seldom(
    st.dictionaries(st.sampled_from(("path", "command", "ключ", LONE)), json_values, max_size=2),
    st.sampled_from(
        (
            {},
            {"path": "a.py"},
            {"command": "ls", "description": "☃"},
            {"prompt": LONE, "n": [1, 1.0, True, None, 2**70]},
            {"path": {"z": 0, "a": ""}},
        )
    ),
)


# --- rounds: what calls and results can do -------------------------------------------------------------------

NAMES = ("Bash", "Read", "Task", "Agent", "mcp__db__query")


class Called(NamedTuple):
    """A call without vendor extras."""

    id: str
    name: str
    arguments: Row


class Answered(NamedTuple):
    """A result without vendor extras."""

    id: str
    name: str
    text: str


class Round(NamedTuple):
    """A prompt, the model's reply, its calls, and their results."""

    prompt: str
    said: str
    calls: tuple[Called, ...]
    answers: tuple[Answered, ...]


Script = list[Round]


@st.composite
def scripts(draw: st.DrawFn, *, broken: bool = True) -> Script:
    """Parallel calls and results out of order; with `broken`, also missing, late, orphan and repeated ones."""
    anew = draw(st.booleans())
    rounds: Script = []
    late: list[Answered] = []
    number = 0
    for _ in range(draw(_lengths)):
        calls: list[Called] = []
        number = 0 if anew else number  # some models reuse `call_0`, `call_1` in every turn
        for _ in range(draw(_widths)):
            calls.append(Called(f"call_{number}", draw(_names), draw(arguments)))
            number += 1
        answers = [*late, *(Answered(call.id, call.name, draw(texts)) for call in calls)]
        late = []
        fate = draw(_fates) if broken else "turned"
        kept = len(answers) // 2
        if fate == "turned":
            answers.reverse()
        elif fate == "lost":
            answers = answers[:kept]
        elif fate == "late":  # like the results of a sub-agent
            answers, late = answers[kept:], answers[:kept]
        elif fate == "orphan":
            answers.insert(kept, Answered("orphan", "Read", draw(texts)))
        elif fate == "repeated":
            answers += answers[:1]
        rounds.append(Round(draw(words), draw(texts), tuple(calls), tuple(answers)))
    return rounds


_lengths = st.integers(1, 3)
_widths = st.integers(0, 3)
_names = st.sampled_from(NAMES)
_fates = st.sampled_from(("", "turned", "lost", "late", "orphan", "repeated"))
_scripts = scripts()


# --- the model -----------------------------------------------------------------------------------------------

pockets: SearchStrategy[VendorExtras] = st.builds(
    VendorExtras,
    st.sampled_from(("anthropic", "openai-chat", "openai-responses", "gemini")),
    st.sampled_from(("", "{}", '{"cache_control":{"type":"ephemeral"}}', '{"x_trace":1}')),
) | st.builds(VendorExtras, st.just("elsewhere"), st.just("{}"), st.just(("id",)), st.sampled_from(("list", "whole")))
"""Extras without a layout note: notes belong to a format and come only from its own parser (see `edited`)."""
_pocket = st.none() | pockets
_call_ids = st.sampled_from(("call_0", "call_1", "toolu_9", ""))
_argument_texts = st.builds(json.dumps, arguments) | st.sampled_from(("", "ls -la", "[1]", '{"a":', LONE))
_unknown = st.builds(Unknown, words, st.builds(json.dumps, json_values), _pocket)

text_parts = st.builds(Text, texts, _pocket)
summary_parts = st.builds(Summary, texts, _pocket)
thinking_parts = st.builds(Thinking, texts, texts, _pocket)
image_parts = st.builds(
    Image, st.sampled_from(("", "image/png", "application/pdf", "audio/wav")), st.just("QUJD"), pocket=_pocket
) | st.builds(Image, st.just(""), st.just(""), st.just("https://a.example/b.png"), _pocket)
call_parts = st.builds(ToolCall, _call_ids, st.sampled_from(NAMES), _argument_texts, _pocket)
result_parts = st.builds(
    ToolResult,
    _call_ids,
    st.lists(text_parts | image_parts | _unknown, max_size=3).map(tuple),
    st.booleans(),
    st.sampled_from(("", *NAMES)),
    _pocket,
)
parts: SearchStrategy[Part] = st.one_of(
    text_parts, summary_parts, thinking_parts, image_parts, call_parts, result_parts, _unknown
)

_AUTHORS: tuple[tuple[Role, Author], ...] = (
    ("system", "harness"),
    ("user", "human"),
    ("user", "harness"),
    ("user", "recall"),
    ("user", "model"),
    ("assistant", "model"),
    ("tool", "tool"),
)
messages: SearchStrategy[Message] = st.builds(
    lambda who, said, usage, carried, pocket: Message(
        who[0], tuple(said), author=who[1], usage=usage, carried=carried, pocket=pocket
    ),
    st.sampled_from(_AUTHORS),
    st.lists(parts, max_size=3),
    st.none() | st.just(Usage(input=1, output=1)),
    st.booleans(),
    _pocket,
)


@st.composite
def told_histories(draw: st.DrawFn) -> History:
    """A history as an agent produces it: rounds of prompt, thinking, calls and results."""
    said: list[Message] = []
    if draw(st.booleans()):
        said.append(Message("system", (Text("be brief"),), author="harness"))
    for round_ in draw(_scripts):
        said.append(Message("user", (Text(round_.prompt),)))
        if draw(st.booleans()):
            reminder = "<system-reminder>go on</system-reminder>"
            said.append(Message("user", (Text(reminder),), author="harness"))
        if draw(st.integers(0, 4)) == 0:
            said.append(Message("user", (Summary("what was"),), author="harness", carried=draw(st.booleans())))
        spoken: list[Part] = [draw(thinking_parts)] if draw(st.booleans()) else []
        spoken += [Text(round_.said)] if round_.said else []
        spoken += [ToolCall(call.id, call.name, json.dumps(call.arguments)) for call in round_.calls]
        said.append(Message("assistant", tuple(spoken), author="model"))
        results: list[Part] = [ToolResult(one.id, (Text(one.text),)) for one in round_.answers]
        if draw(st.booleans()):
            said += [Message("tool", (result,), author="tool") for result in results]
        elif results:
            said.append(Message("tool", tuple(results), author="tool"))
    if draw(st.booleans()):
        said.append(Message("assistant", (Text("done"),), author="model"))
    return History(tuple(said))


jumbled_histories: SearchStrategy[History] = st.builds(
    lambda said, tools: History(tuple(said), tools=tools),
    st.lists(messages, max_size=6),
    st.sampled_from(("", '[{"name":"Read","description":"reads","input_schema":{"type":"object"}}]')),
)
"""Any messages in any order."""

histories: SearchStrategy[History] = told_histories() | jumbled_histories

# --- the wire: what the dialects share -----------------------------------------------------------------------
# Plain functions of `draw` over a few prepared strategies; building strategies on the fly costs ten times as much.

Draw = st.DrawFn

CACHED = {"type": "ephemeral"}
URL = "https://a.example/b.png"
PNG = "data:image/png;base64,QUJD"
PDF = "data:application/pdf;base64,QUJD"
REMINDER = "<system-reminder>go on</system-reminder>"

_extras: SearchStrategy[Row] = _seldom(
    st.dictionaries(words, json_values, max_size=2),
    st.sampled_from(({}, {}, {}, {"x_trace": 1}, {"🏷": [LONE, None]}, {"_meta": {"a": {}}, "vendorField": True})),
)
"""Undocumented fields, with names that match no known field."""
_coins = st.booleans()
_upto: tuple[SearchStrategy[int], ...] = tuple(st.integers(0, most) for most in range(12))


def _extended(draw: Draw, value: Row, **optional: Json) -> Row:
    """Add some of the optional fields, or some unknown ones, to `value`."""
    if bool(optional) and draw(_coins):
        key = _either(draw, *optional)
        return {**value, key: optional[key]}
    return {**draw(_extras), **value}


def _either(draw: Draw, *values: Json) -> Json:
    return values[draw(_upto[len(values) - 1])]


def _seldom_true(draw: Draw) -> bool:
    return draw(_upto[5]) == 5


def _some(draw: Draw, *makers: Callable[[Draw], Json], most: int = 2) -> list[Json]:
    return [_either(draw, *makers)(draw) for _ in range(draw(_upto[most]))]


_SCHEMAS: tuple[Row, ...] = (
    {"type": "object"},
    {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
)


def _fields(draw: Draw, **fields: Callable[[Draw], Json]) -> Row:
    return {key: make(draw) for key, make in fields.items() if draw(_coins)}


# --- anthropic -----------------------------------------------------------------------------------------------

_A_MEDIA: tuple[Row, ...] = (
    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "QUJD"}},
    {"type": "image", "source": {"type": "url", "url": URL}},
    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "QUJD", "x": 1}},
    {"type": "image", "source": {"type": "file", "file_id": "f1"}},
    {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "QUJD"}},
    {"type": "document", "source": {"type": "url", "url": URL}, "title": "a"},
    {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "words"}},
)
_A_OTHERS: tuple[Row, ...] = (
    {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "q"}},
    {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []},
    {"type": "search_result", "source": URL, "title": "t", "content": []},
    {"type": "kind_of_tomorrow"},
)


def _a_text(draw: Draw) -> Row:
    text = {"type": "text", "text": draw(texts)}
    return _extended(draw, text, cache_control=CACHED, citations=[{"start": 0}])


def _a_media(draw: Draw) -> Row:
    return _extended(draw, _either(draw, *_A_MEDIA), cache_control=CACHED)


def _a_other(draw: Draw) -> Row:
    return _extended(draw, _either(draw, *_A_OTHERS), cache_control=CACHED)


def _a_thinking(draw: Draw) -> Row:
    thinking = {"type": "thinking", "thinking": draw(texts), "signature": draw(texts)}
    unsigned = {"type": "thinking", "thinking": "hm"}
    redacted = {"type": "redacted_thinking", "data": "abc"}
    return _extended(draw, _either(draw, thinking, unsigned, redacted))


def _a_call(draw: Draw, call: Called) -> Row:
    block = {"type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments}
    return _extended(draw, block, cache_control=CACHED, caller={"type": "direct"})


def _a_result(draw: Draw, answer: Answered) -> Row:
    content = _either(draw, answer.text, answer.text, [{"type": "text", "text": answer.text}], [], None)
    if isinstance(content, list):
        content = [*content, *_some(draw, _a_text, _a_media, _a_other, most=1)]
    block: Row = {"type": "tool_result", "tool_use_id": answer.id}
    block |= {} if content is None else {"content": content}
    return _extended(draw, block | _either(draw, {}, {"is_error": True}, {"is_error": False}), cache_control=CACHED)


@st.composite
def _anthropic_rows(draw: Draw) -> list[Json]:
    rows: list[Json] = []
    for round_ in draw(_scripts):
        said = round_.prompt if draw(_coins) else _some(draw, _a_text, _a_media, _a_other)
        rows.append(_extended(draw, {"role": "user", "content": said}))
        blocks = [*_some(draw, _a_thinking, most=1), *_some(draw, _a_text, _a_other, most=1)]
        blocks += [_a_call(draw, call) for call in round_.calls]
        rows.append(_extended(draw, {"role": "assistant", "content": blocks or round_.said}))
        if round_.answers:
            results = [_a_result(draw, answer) for answer in round_.answers]
            rows.append({"role": "user", "content": [*results, *_some(draw, _a_text, most=1)]})
    return rows


@st.composite
def _anthropic_fields(draw: Draw) -> Row:
    return _fields(
        draw,
        system=lambda draw: draw(texts) if draw(_coins) else _some(draw, _a_text),
        tools=lambda draw: _some(draw, _a_tool),
        model=lambda _: "claude",
        x_trace=lambda draw: draw(json_values),
    )


def _a_tool(draw: Draw) -> Row:
    tool = {"name": "Read", "description": "reads", "input_schema": _either(draw, *_SCHEMAS)}
    return _extended(draw, _either(draw, tool, {"type": "web_search_20250305", "name": "web"}), cache_control=CACHED)


def _tell_anthropic(script: Script) -> list[Json]:
    rows: list[Json] = []
    for round_ in script:
        blocks: list[Json] = [{"type": "text", "text": round_.said}] if round_.said else []
        blocks += [{"type": "tool_use", "id": c.id, "name": c.name, "input": c.arguments} for c in round_.calls]
        rows += [{"role": "user", "content": round_.prompt}, {"role": "assistant", "content": blocks}]
        if round_.answers:
            results = [{"type": "tool_result", "tool_use_id": a.id, "content": a.text} for a in round_.answers]
            rows.append({"role": "user", "content": results})
    return rows


# --- openai-chat ---------------------------------------------------------------------------------------------

_C_MEDIA: tuple[Row, ...] = (
    {"type": "image_url", "image_url": {"url": URL}},
    {"type": "image_url", "image_url": {"url": PNG, "detail": "low"}},
    {"type": "input_audio", "input_audio": {"data": "QUJD", "format": "mp3"}},
    {"type": "file", "file": {"file_data": PDF, "filename": "a.pdf"}},
    {"type": "file", "file": {"file_id": "f1"}},
    {"type": "kind_of_tomorrow"},
)


def _c_text(draw: Draw) -> Row:
    return _extended(draw, {"type": "text", "text": draw(texts)})


def _c_media(draw: Draw) -> Row:
    return _extended(draw, _either(draw, *_C_MEDIA))


def _c_refusal(draw: Draw) -> Row:
    return {"type": "refusal", "refusal": draw(texts)}


def _c_call(draw: Draw, call: Called) -> Row:
    entry: Row = {"id": call.id, "type": "function"}
    function: Row = {"name": call.name, "arguments": json.dumps(call.arguments)}
    written = {**entry, "function": function}
    call_ = _either(
        draw,
        written,
        written,
        {**entry, "function": {**function, "x_trace": 1}},
        {"id": call.id, "function": function},
        {**entry, "function": {**function, "arguments": call.arguments}},
        {**entry, "function": {**function, "arguments": _either(draw, "", "not JSON", "[1]")}},
        {"id": call.id, "type": "custom", "custom": {"name": call.name, "input": "*** Begin Patch"}},
    )
    return _extended(draw, call_, index=0)


def _c_assistant(draw: Draw, round_: Round) -> Row:
    content = _either(draw, round_.said, round_.said, None, [])
    row: Row = {"role": "assistant"}
    if isinstance(content, list):
        content = _some(draw, _c_text, _c_refusal)
    if content is not None or draw(_coins):
        row["content"] = content
    if round_.calls:
        row["tool_calls"] = [_c_call(draw, call) for call in round_.calls]
    beside = {"reasoning_content": draw(texts), "reasoning": "hm", "refusal": _either(draw, None, "no")}
    return _extended(draw, row, **beside, name="helper", audio=None, annotations=[])


def _c_result(draw: Draw, answer: Answered) -> Row:
    content = answer.text if draw(_coins) else _some(draw, _c_text, _c_media)
    return _extended(draw, {"role": "tool", "tool_call_id": answer.id, "content": content}, name=answer.name)


@st.composite
def _chat_rows(draw: Draw) -> list[Json]:
    rows: list[Json] = []
    if draw(_coins):
        told = draw(texts) if draw(_coins) else _some(draw, _c_text)
        rows.append(_extended(draw, {"role": _either(draw, "system", "developer"), "content": told}))
    for round_ in draw(_scripts):
        said = round_.prompt if draw(_coins) else _some(draw, _c_text, _c_media)
        rows.append(_extended(draw, {"role": "user", "content": said}))
        if _seldom_true(draw):
            rows.append({"role": _either(draw, "system", "user"), "content": REMINDER})
        if _seldom_true(draw):  # the legacy `function_call`
            rows.append({"role": "assistant", "content": None, "function_call": {"name": "old", "arguments": "{}"}})
            rows.append({"role": "function", "name": "old", "content": draw(texts)})
        rows.append(_c_assistant(draw, round_))
        rows += [_c_result(draw, answer) for answer in round_.answers]
    return rows


@st.composite
def _chat_fields(draw: Draw) -> Row:
    return _fields(
        draw,
        tools=lambda draw: _some(draw, _c_tool),
        model=lambda _: "gpt",
        temperature=lambda _: 0.5,
        x_trace=lambda draw: draw(json_values),
    )


def _c_tool(draw: Draw) -> Row:
    function = {"name": "Read", "description": "reads", "parameters": _either(draw, *_SCHEMAS), "strict": True}
    custom = {"type": "custom", "custom": {"name": "patch"}}
    return _extended(draw, _either(draw, {"type": "function", "function": function}, custom))


def _tell_chat(script: Script) -> list[Json]:
    rows: list[Json] = []
    for round_ in script:
        rows.append({"role": "user", "content": round_.prompt})
        calls = [
            {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": json.dumps(c.arguments)}}
            for c in round_.calls
        ]
        spoken: Row = {"role": "assistant", "content": round_.said or None}
        rows.append(spoken | ({"tool_calls": calls} if calls else {}))
        # This API encodes missing content as an empty string, so an empty text is a piece.
        rows += [
            {"role": "tool", "tool_call_id": a.id, "content": a.text or [{"type": "text", "text": ""}]}
            for a in round_.answers
        ]
    return rows


# --- openai-responses ----------------------------------------------------------------------------------------

_R_MEDIA: tuple[Row, ...] = (
    {"type": "input_image", "image_url": URL},
    {"type": "input_image", "image_url": PNG, "detail": "auto"},
    {"type": "input_image", "file_id": "f1"},
    {"type": "input_file", "file_data": PDF, "filename": "a.pdf"},
    {"type": "input_file", "file_url": URL},
    {"type": "input_audio", "input_audio": {"data": "QUJD", "format": "wav"}},
)
_R_OTHERS: tuple[Row, ...] = (
    {"type": "item_reference", "id": "msg_1"},
    {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search"}},
    {"type": "compaction", "encrypted_content": "abc"},
    {"type": "computer_call_output", "call_id": "c1", "output": {"type": "computer_screenshot"}},
    {"type": "kind_of_tomorrow"},
)


def _r_text(draw: Draw) -> Row:
    return _extended(draw, {"type": _either(draw, "input_text", "input_text", "text"), "text": draw(texts)})


def _r_media(draw: Draw) -> Row:
    return _extended(draw, _either(draw, *_R_MEDIA))


def _r_spoken(draw: Draw) -> Row:
    said = {"type": "output_text", "text": draw(texts), "annotations": []}
    return _extended(draw, _either(draw, said, said, {"type": "refusal", "refusal": "no"}), logprobs=[])


def _r_reasoning(draw: Draw) -> Row:
    summary = [{"type": "summary_text", "text": draw(texts)} for _ in range(draw(_upto[2]))]
    shown = [{"type": "reasoning_text", "text": "hm"}]
    item = {"type": "reasoning", "summary": summary} | _either(draw, {}, {"encrypted_content": draw(texts)})
    return _extended(draw, item, id="rs_1", content=_either(draw, None, shown), encrypted_content=None)


def _r_other(draw: Draw) -> Row:
    return _extended(draw, _either(draw, *_R_OTHERS))


def _r_call(draw: Draw, call: Called) -> Row:
    text = json.dumps(call.arguments)
    function = {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": text}
    free = {"type": "custom_tool_call", "call_id": call.id, "name": call.name, "input": "*** Begin Patch"}
    shell = {"type": "local_shell_call", "call_id": call.id, "action": {"type": "exec", "command": ["ls"]}}
    return _extended(draw, _either(draw, function, function, free, shell), id="fc_1", status="completed")


def _r_result(draw: Draw, answer: Answered) -> Row:
    kind = _either(draw, "function_call", "function_call", "custom_tool_call", "local_shell_call")
    output = answer.text if draw(_coins) else _some(draw, _r_text, _r_media)
    item = {"type": f"{kind}_output", "call_id": answer.id, "output": output}
    return _extended(draw, item, id="o_1", status="completed")


@st.composite
def _response_rows(draw: Draw) -> list[Json]:
    rows: list[Json] = []
    for round_ in draw(_scripts):
        role = _either(draw, "user", "user", "user", "developer", "system")
        said = round_.prompt if draw(_coins) else _some(draw, _r_text, _r_media)
        message = {"role": role, "content": said} | _either(draw, {}, {"type": "message"})
        rows.append(_extended(draw, message, id="msg_0"))
        rows += _some(draw, _r_reasoning, _r_other, most=1)
        if round_.said:
            spoken: Json = round_.said if _seldom_true(draw) else _some(draw, _r_spoken)
            item = {"type": "message", "role": "assistant", "content": spoken}
            rows.append(_extended(draw, item, id="msg_1", status="completed", phase="final"))
        rows += [_r_call(draw, call) for call in round_.calls]
        rows += [_r_result(draw, answer) for answer in round_.answers]
    return rows


@st.composite
def _response_fields(draw: Draw) -> Row:
    return _fields(
        draw,
        instructions=lambda draw: _either(draw, None, draw(texts)),
        tools=lambda draw: _some(draw, _r_tool),
        model=lambda _: "gpt",
        x_trace=lambda draw: draw(json_values),
    )


def _r_tool(draw: Draw) -> Row:
    schema = _either(draw, *_SCHEMAS)
    function = {"type": "function", "name": "Read", "description": "reads", "parameters": schema}
    custom = {"type": "custom", "name": "patch", "description": "patches"}
    return _extended(draw, _either(draw, function, custom, {"type": "web_search"}))


def _tell_responses(script: Script) -> list[Json]:
    rows: list[Json] = []
    for round_ in script:
        rows.append({"type": "message", "role": "user", "content": [{"type": "input_text", "text": round_.prompt}]})
        if round_.said:
            said = [{"type": "output_text", "text": round_.said}]
            rows.append({"type": "message", "role": "assistant", "content": said})
        rows += [
            {"type": "function_call", "call_id": c.id, "name": c.name, "arguments": json.dumps(c.arguments)}
            for c in round_.calls
        ]
        rows += [{"type": "function_call_output", "call_id": a.id, "output": a.text} for a in round_.answers]
    return rows


# --- gemini --------------------------------------------------------------------------------------------------

_G_MEDIA: tuple[Row, ...] = (
    {"inlineData": {"mimeType": "image/png", "data": "QUJD"}},
    {"inline_data": {"mime_type": "image/png", "data": "QUJD"}},
    {"inlineData": {"mimeType": "image/png", "data": "QUJD", "displayName": "a.png"}},
    {"fileData": {"mimeType": "application/pdf", "fileUri": URL}},
    {"fileData": {"fileUri": URL}, "videoMetadata": {"fps": 1}},
    {"executableCode": {"language": "PYTHON", "code": "1"}},
    {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1"}},
    {"partOfTomorrow": {}},
)


def _g_text(draw: Draw) -> Row:
    return _extended(draw, {"text": draw(texts)}, thoughtSignature="abc", thought=None, functionCall=None)


def _g_media(draw: Draw) -> Row:
    return _extended(draw, _either(draw, *_G_MEDIA))


def _g_thought(draw: Draw) -> Row:
    part = {"text": draw(texts), "thought": True}
    return _extended(draw, part, thoughtSignature=draw(texts), thought_signature="abc")


def _g_call(draw: Draw, call: Called, given: Row) -> Row:
    inner: Row = {**given, "name": call.name, "args": call.arguments}
    part = _either(
        draw,
        {"functionCall": inner},
        {"functionCall": inner},
        {"function_call": {**inner, "x_trace": 1}},
        {"functionCall": {**given, "name": call.name}},
        {"functionCall": {**inner, "id": None}} if not given else {"functionCall": inner, "text": None},
    )
    return _extended(draw, part, thoughtSignature="abc")


def _g_result(draw: Draw, answer: Answered, given: Row) -> Row:
    said = _either(
        draw,
        {"response": {"output": answer.text}},
        {"response": {"output": answer.text}},
        {"response": {"result": answer.text}},
        {"response": {"content": answer.text}},
        {"response": {"error": answer.text}},
        {"response": {"error": {"code": 5}}},
        {"response": {"output": answer.text, "exit": 0}},
        {"response": {"output": answer.text}, "parts": [_G_MEDIA[0]]},
        {"response": {"output": answer.text}, "willContinue": False},
        {"response": {}},
        {},
    )
    key = _either(draw, "functionResponse", "functionResponse", "function_response")
    return _extended(draw, {key: {**given, "name": answer.name, **said}})


@st.composite
def _gemini_rows(draw: Draw) -> list[Json]:
    rows: list[Json] = []
    with_ids = draw(_coins)
    for round_ in draw(_scripts):
        said = [{"text": round_.prompt}, *_some(draw, _g_text, _g_media)]
        rows.append(_extended(draw, {"parts": said} | _either(draw, {"role": "user"}, {"role": "user"}, {})))
        spoken = _some(draw, _g_text, _g_thought, _g_media)
        spoken += [_g_call(draw, call, {"id": call.id} if with_ids else {}) for call in round_.calls]
        rows.append({"role": "model", "parts": spoken})
        if round_.answers:
            results = [_g_result(draw, one, {"id": one.id} if with_ids else {}) for one in round_.answers]
            role = _either(draw, "user", "user", "function")
            rows.append(_extended(draw, {"role": role, "parts": results}))
    return rows


@st.composite
def _gemini_fields(draw: Draw) -> Row:
    fields = _fields(
        draw,
        tools=lambda draw: _some(draw, _g_tool),
        generationConfig=lambda _: {"temperature": 0},
        x_trace=lambda draw: draw(json_values),
    )
    system = {"parts": _some(draw, _g_text)} | _either(draw, {}, {"role": "system"})
    told: tuple[Row, ...] = ({}, {"systemInstruction": system}, {"system_instruction": system})
    return {**fields, **_either(draw, *told, {"systemInstruction": "be brief"})}


def _g_tool(draw: Draw) -> Row:
    schema = _either(draw, *_SCHEMAS, {"type": "OBJECT"})
    declaration = {"name": "Read", "description": "reads", "parameters": schema}
    return _extended(draw, _either(draw, {"functionDeclarations": [declaration]}, {"googleSearch": {}}))


def _tell_gemini(script: Script) -> list[Json]:
    rows: list[Json] = []
    for round_ in script:
        spoken: list[Json] = [{"text": round_.said}] if round_.said else []
        spoken += [{"functionCall": {"id": c.id, "name": c.name, "args": c.arguments}} for c in round_.calls]
        rows += [{"role": "user", "parts": [{"text": round_.prompt}]}, {"role": "model", "parts": spoken}]
        if round_.answers:
            answers = [
                {"functionResponse": {"id": a.id, "name": a.name, "response": {"output": a.text}}}
                for a in round_.answers
            ]
            rows.append({"role": "user", "parts": answers})
    return rows


# --- the table -----------------------------------------------------------------------------------------------


class Dialect(NamedTuple):
    """A dialect's strategies for testing the laws."""

    key: str
    """Field of a request body that holds the messages."""
    rows: SearchStrategy[list[Json]]
    fields: SearchStrategy[Row]
    """Other fields of a request body."""
    tell: Callable[[Script], list[Json]]
    """Emit a script in this dialect in its simplest form."""
    others: SearchStrategy[Json] = st.nothing()
    """Alternative layouts of a whole request."""


_input_text = st.builds(lambda text, fields: {**fields, "input": text}, texts, _response_fields())

DIALECTS: dict[str, Dialect] = {
    "anthropic": Dialect("messages", _anthropic_rows(), _anthropic_fields(), _tell_anthropic),
    "openai-chat": Dialect("messages", _chat_rows(), _chat_fields(), _tell_chat),
    "openai-responses": Dialect("input", _response_rows(), _response_fields(), _tell_responses, _input_text),
    "gemini": Dialect("contents", _gemini_rows(), _gemini_fields(), _tell_gemini),
}


def _well_formed(dialect: Dialect) -> SearchStrategy[Json]:
    whole = st.builds(lambda rows, fields: {**fields, dialect.key: rows}, dialect.rows, dialect.fields)
    return st.one_of(dialect.rows, whole, dialect.others)


def _mutated(draw: Draw, value: Json) -> Json:
    """Damage `value` in one place, at any depth."""
    step = draw(_upto[5])
    if isinstance(value, dict) and value and step < 5:
        key = _either(draw, *list(value)[:12])
        if step == 0:
            return {k: v for k, v in value.items() if k != key}
        if step == 1:
            return {**value, draw(_known_keys): draw(near_values)}
        return {**value, key: _mutated(draw, value[key])}
    if isinstance(value, list) and value and step < 5:
        place = draw(_upto[min(len(value), 12) - 1])
        if step == 0:
            return [*value[:place], *value[place + 1 :]]
        if step == 1:
            return [*value[:place], draw(near_values), *value[place:]]
        return [*value[:place], _mutated(draw, value[place]), *value[place + 1 :]]
    return draw(_kinds if isinstance(value, str) and step < 3 else near_values)


@st.composite
def _odd(draw: Draw, dialect: Dialect) -> Json:
    """Rows of a conversation, some of them damaged, possibly in a damaged body."""
    rows = draw(dialect.rows)
    for _ in range(1 + draw(_upto[2])):
        place = draw(_upto[min(len(rows), 12) - 1])
        rows[place] = _mutated(draw, rows[place])
    if draw(_coins):
        return rows
    fields = _mutated(draw, draw(dialect.fields))
    return {**(fields if isinstance(fields, dict) else {}), dialect.key: rows}


def bodies_of(name: str) -> SearchStrategy[Json]:
    """Bodies of that dialect with any content, except for the list of messages."""
    key = DIALECTS[name].key
    rows = st.lists(near_values, max_size=3)
    return st.builds(lambda fields, rows: {**fields, key: rows}, _objects(near_values), rows)


WIRE: dict[str, SearchStrategy[Json]] = {name: _well_formed(one) for name, one in DIALECTS.items()}
"""Well-formed conversations by dialect: plain lists and whole request bodies."""

ODD: dict[str, SearchStrategy[Json]] = {name: _odd(one) for name, one in DIALECTS.items()}
"""The same with wrong types and missing fields."""


@st.composite
def edited(draw: Draw, history: History) -> History:
    """A history after edits: messages and parts removed, texts replaced, parts in new messages."""
    said: list[Message] = []
    for message in history:
        fate = draw(_upto[6])
        kept = message.parts
        if fate == 0:
            continue
        if fate == 1:
            kept = tuple(part for part in kept if draw(_coins))
        elif fate == 2:
            kept = tuple(structs.replace(part, text="new") if isinstance(part, Text) else part for part in kept)
        elif fate == 3:
            kept = tuple(Summary("stands in") if isinstance(part, Text | Unknown) else part for part in kept)
        elif fate == 4:
            kept = tuple(reversed(kept))
        elif fate == 5 and said:  # merge two messages
            said[-1] = structs.replace(said[-1], parts=(*said[-1].parts, *kept))
            continue
        said.append(structs.replace(message, parts=kept, pocket=message.pocket if draw(_coins) else None))
    return structs.replace(history, messages=tuple(said))


def cache_marked(value: Json) -> Json:
    """An Anthropic conversation with a cache breakpoint on every block that accepts one."""
    marked = copy.deepcopy(value)
    rows = marked["messages"] if isinstance(marked, dict) else marked
    for row in rows:
        for block in row["content"] if isinstance(row["content"], list) else ():
            if block["type"] not in ("thinking", "redacted_thinking"):
                block["cache_control"] = dict(CACHED)
    return marked
