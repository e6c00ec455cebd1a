"""Tests of the `otel` format: every layout and vocabulary, and the stitching of calls to conversations."""

import io
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

import recordings
import thresher as th
from thresher.errors import UnknownFormatError
from thresher.model import Image, Message, Text, Thinking, ToolCall, ToolResult, Usage

Json = dict[str, Any]

SYSTEM: Json = {"role": "system", "content": "You count."}
ASKED: Json = {"role": "user", "content": "How many files are here?"}
CALLED: Json = {"role": "assistant", "tool_calls": [{"id": "c1", "name": "ls", "arguments": '{"path":"."}'}]}
GIVEN: Json = {"role": "tool", "tool_call_id": "c1", "content": "a.py\nb.py"}
ANSWERED: Json = {"role": "assistant", "content": "There are two of them."}


def said(words: str, role: str = "assistant") -> Json:
    return {"role": role, "content": words}


def span(
    number: int,
    parent: str = "",
    fields: Json | None = None,
    *,
    trace: str = "t1",
    failed: bool = False,
    **attributes: Any,
) -> Json:
    """A flat span, as Phoenix has them; `__` in a name is a dot."""
    return {
        "name": f"span {number}",
        "context": {"trace_id": trace, "span_id": f"s{number}"},
        "parent_id": parent or None,
        "start_time": f"2026-01-05T10:00:{number:02}+00:00",
        "end_time": f"2026-01-05T10:00:{number:02}.5+00:00",
        "status_code": "ERROR" if failed else "OK",
        "attributes": (fields or {}) | {key.replace("__", "."): value for key, value in attributes.items()},
        "events": [],
    }


def chat(number: int, given: Iterable[Json], answer: Json | None, parent: str = "", **more: Any) -> Json:
    fields: Json = {"gen_ai__operation__name": "chat", "gen_ai__input__messages": list(given)}
    fields |= {"gen_ai__output__messages": [answer]} if answer else {}
    return span(number, parent, **(fields | more))


def agent(number: int, parent: str = "", name: str = "counter", **more: Any) -> Json:
    return span(number, parent, gen_ai__operation__name="invoke_agent", gen_ai__agent__name=name, **more)


def tool(number: int, name: str, parent: str = "", **more: Any) -> Json:
    return span(number, parent, gen_ai__operation__name="execute_tool", gen_ai__tool__name=name, **more)


def read_all(folder: Path, *spans: Json, name: str = "trace.jsonl") -> list[th.Session]:
    path = folder / name
    path.write_text("".join(f"{json.dumps(one)}\n" for one in spans))
    assert th.sniff(path) == "otel"
    return th.read_all(path)


def read(folder: Path, *spans: Json) -> th.Session:
    [session] = read_all(folder, *spans)
    return session


def words(messages: Iterable[Message]) -> list[str]:
    """Return the text, calls and results of each message."""
    return [" ".join(map(_word, message.parts)) for message in messages]


def _word(part: Any) -> str:
    match part:
        case ToolCall():
            return f"{part.name}:{part.id}"
        case ToolResult():
            return f"{part.call_id}={part.text}" + "!" * part.is_error
        case Thinking():
            return f"({part.text})"
        case _:
            return getattr(part, "text", type(part).__name__)


WHOLE = ["You count.", "How many files are here?", "ls:c1", "c1=a.py\nb.py", "There are two of them."]


# Layouts


def two_calls() -> list[Json]:
    return [
        agent(1),
        chat(2, [SYSTEM, ASKED], CALLED, "s1", gen_ai__request__model="m", gen_ai__usage__input_tokens=9),
        chat(3, [SYSTEM, ASKED, CALLED, GIVEN], ANSWERED, "s1"),
    ]


def otlp(value: Any) -> Json:
    match value:
        case bool():
            return {"boolValue": value}
        case int():
            return {"intValue": str(value)}
        case list():
            return {"arrayValue": {"values": [otlp(item) for item in value]}}
        case dict():
            return {"kvlistValue": {"values": [{"key": key, "value": otlp(item)} for key, item in value.items()]}}
        case _:
            return {"stringValue": value}


def as_otlp(one: Json) -> Json:
    second = int(one["start_time"][17:19])
    return {
        "traceId": one["context"]["trace_id"],
        "spanId": one["context"]["span_id"],
        "parentSpanId": one["parent_id"] or "",
        "name": one["name"],
        "startTimeUnixNano": f"{1_767_607_200 + second}000000000",
        "endTimeUnixNano": f"{1_767_607_200 + second}500000000",
        "status": {"code": 2} if one["status_code"] == "ERROR" else {},
        "attributes": [{"key": key, "value": otlp(value)} for key, value in one["attributes"].items()],
    }


def as_export(spans: Iterable[Json]) -> Json:
    return {"resourceSpans": [{"resource": {}, "scopeSpans": [{"spans": [as_otlp(one) for one in spans]}]}]}


def in_snake_case(value: Any) -> Any:
    """Write a trace in protobuf's JSON mapping."""
    match value:
        case dict():
            return {
                re.sub("[A-Z]", lambda found: f"_{found[0].lower()}", k): in_snake_case(v) for k, v in value.items()
            }
        case list():
            return [in_snake_case(item) for item in value]
        case _:
            return value


def as_tree(one: Json, children: list[Json]) -> Json:
    return {
        "span_id": one["context"]["span_id"],
        "trace_id": "t1",
        "parent_span_id": one["parent_id"],
        "span_name": one["name"],
        "timestamp": one["start_time"],
        "duration": "PT0.5S",
        "status_code": "Ok",
        "span_attributes": one["attributes"],
        "child_spans": children,
    }


def nested(attributes: Json) -> Json:
    root: Json = {}
    for key, value in attributes.items():
        holder = root
        *path, last = key.split(".")
        for step in path:
            holder = holder.setdefault(step, {})
        holder[last] = value
    return root


def as_observation(one: Json) -> Json:
    attributes = one["attributes"]
    return {
        "id": one["context"]["span_id"],
        "traceId": "t1",
        "parentObservationId": one["parent_id"],
        "type": {"chat": "GENERATION", "invoke_agent": "AGENT"}[attributes["gen_ai.operation.name"]],
        "startTime": one["start_time"],
        "endTime": one["end_time"],
        "model": attributes.get("gen_ai.request.model"),
        "usageDetails": {"input": attributes.get("gen_ai.usage.input_tokens", 0)},
        "input": attributes.get("gen_ai.input.messages"),
        "output": next(iter(attributes.get("gen_ai.output.messages", [])), None),
        "level": "DEFAULT",
    }


def layouts() -> Iterator[tuple[str, str]]:
    """Yield the same trace in every layout."""
    spans = two_calls()
    yield "flat lines", "".join(f"{json.dumps(one)}\n" for one in spans)
    yield "flat list", json.dumps(spans, indent=1)
    yield "nested attributes", json.dumps([one | {"attributes": nested(one["attributes"])} for one in spans])
    flat = [{f"context.{key}": value for key, value in one["context"].items()} | one for one in spans]
    flattened = [{f"attributes.{key}": value for key, value in one.pop("attributes").items()} | one for one in flat]
    yield "a table's rows", json.dumps(flattened)
    spans = two_calls()
    yield "OTLP document", json.dumps(as_export(spans))
    yield "OTLP document with other names", json.dumps(in_snake_case(as_export(spans)))
    yield "OTLP lines", "".join(f"{json.dumps(as_export([one]))}\n" for one in reversed(spans))
    yield (
        "a tree",
        json.dumps({"trace_id": "t1", "spans": [as_tree(spans[0], [as_tree(one, []) for one in spans[1:]])]}),
    )
    yield "printed one after another", "\n".join(json.dumps(one, indent=4) for one in spans)
    yield "printed in one line and with a mark", "\ufeff" + "".join(json.dumps(one, indent=4) for one in spans)
    yield "Langfuse", json.dumps({"id": "t1", "observations": [as_observation(one) for one in spans]})


@pytest.mark.parametrize(("layout", "written"), [*layouts()], ids=[name for name, _ in layouts()])
def test_a_trace_is_read_in_every_layout(tmp_path: Path, layout: str, written: str) -> None:
    path = tmp_path / "trace.json"
    path.write_text(written)
    assert th.sniff(path) == "otel", layout
    [session] = th.read_all(path)
    assert words(session.history) == WHOLE
    answer = session.history[2]
    assert (answer.model, answer.usage and answer.usage.input) == ("m", 9)
    assert session.started is not None
    assert answer.time is not None
    assert f"{session.started:%H:%M:%S} {answer.time:%H:%M:%S.%f}" == "10:00:01 10:00:02.500000"
    assert session.problems == ()


def test_output_of_the_console_exporter_is_read(tmp_path: Path) -> None:
    trace = pytest.importorskip("opentelemetry.sdk.trace")
    export = pytest.importorskip("opentelemetry.sdk.trace.export")
    printed = io.StringIO()
    provider = trace.TracerProvider()
    provider.add_span_processor(export.SimpleSpanProcessor(export.ConsoleSpanExporter(out=printed)))
    tracer = provider.get_tracer("test")
    with tracer.start_as_current_span("run", attributes={"gen_ai.operation.name": "invoke_agent"}):
        for given, answer in (([SYSTEM, ASKED], CALLED), ([SYSTEM, ASKED, CALLED, GIVEN], ANSWERED)):
            messages = {"gen_ai.input.messages": json.dumps(given), "gen_ai.output.messages": json.dumps([answer])}
            with tracer.start_as_current_span("chat", attributes={"gen_ai.operation.name": "chat", **messages}):
                pass
    path = tmp_path / "console.log"
    path.write_text(printed.getvalue())
    assert th.sniff(path) == "otel"
    [session] = th.read_all(path)
    assert words(session.history) == WHOLE


def test_other_output_and_damaged_spans_are_skipped(tmp_path: Path) -> None:
    path = tmp_path / "console.log"
    printed = [json.dumps(one, indent=4) for one in two_calls()]
    path.write_text("\nStep done.\n".join(printed))
    [session] = th.read_all(path)
    assert words(session.history) == WHOLE
    assert session.problems[0].what == "2 pieces of the file are not JSON"
    path.write_text("\n".join([printed[0], printed[1][:90], *printed[1:]])[:-60])
    [session] = th.read_all(path)
    assert words(session.history) == WHOLE[:3]
    assert session.problems[0].what == "2 pieces of the file are not JSON"


def test_messages_can_be_log_records(tmp_path: Path) -> None:
    def log(name: str, **body: Any) -> Json:
        return {"spanId": "s2", "traceId": "t1", "eventName": name, "body": otlp(body)}

    records = [
        log("gen_ai.system.message", content="You count."),
        log("gen_ai.user.message", content="How many files are here?"),
        log("gen_ai.choice", index=0, message={"role": "assistant", "content": "There are two of them."}),
    ]
    spans = as_export([span(2, gen_ai__operation__name="chat")])
    logs = {"resourceLogs": [{"scopeLogs": [{"logRecords": records}]}]}
    assert words(read(tmp_path, logs, spans).history) == [WHOLE[0], WHOLE[1], WHOLE[4]]


# Vocabularies


def inference(prefix: str, *messages: Json) -> Json:
    """Flatten messages as OpenInference does."""
    flat: Json = {}
    for number, message in enumerate(messages):
        start = f"{prefix}.{number}.message"
        flat |= {f"{start}.{key}": value for key, value in message.items() if key != "tool_calls"}
        for place, call in enumerate(message.get("tool_calls", ())):
            inner = f"{start}.tool_calls.{place}.tool_call"
            flat |= {f"{inner}.id": call["id"], f"{inner}.function.name": call["name"]}
            flat[f"{inner}.function.arguments"] = call["arguments"]
    return flat


def test_openinference(tmp_path: Path) -> None:
    def call(number: int, *given: Json, answer: Json) -> Json:
        messages = inference("llm.input_messages", *given) | inference("llm.output_messages", answer)
        counts = {"prompt": "100", "completion": 7, "prompt_details.cache_read": 60, "prompt_details.cache_write": 10}
        tokens = {f"llm.token_count.{key}": value for key, value in counts.items()}
        schema = json.dumps({"type": "function", "function": {"name": "ls", "parameters": {"type": "object"}}})
        offered = {"llm.tools.0.tool.json_schema": schema, "llm.model_name": "m", "session.id": "talk"}
        return span(number, fields={"openinference.span.kind": "LLM", **messages, **tokens, **offered})

    twelve = [said(f"Line {number}.", "user") for number in range(12)]
    session = read(
        tmp_path, call(1, SYSTEM, *twelve, answer=CALLED), call(2, SYSTEM, *twelve, CALLED, GIVEN, answer=ANSWERED)
    )
    assert words(session.history) == ["You count.", *(f"Line {n}." for n in range(12)), *WHOLE[2:]]
    assert session.history[-1].usage == Usage(30, 7, 60, 10)
    assert session.id == "talk"
    assert "parameters" in session.history.tools


def test_contents_of_openinference(tmp_path: Path) -> None:
    given = {
        "llm.input_messages.0.message.role": "user",
        "llm.input_messages.0.message.contents.0.message_content.type": "text",
        "llm.input_messages.0.message.contents.0.message_content.text": "What is this?",
        "llm.input_messages.0.message.contents.1.message_content.type": "image",
        "llm.input_messages.0.message.contents.1.message_content.image.image.url": "data:image/png;base64,aGk=",
        "llm.output_messages.0.message.role": "assistant",
        "llm.output_messages.0.message.contents.0.message_content.type": "reasoning",
        "llm.output_messages.0.message.contents.0.message_content.text": "Hm.",
        "llm.output_messages.0.message.contents.0.message_content.signature": "sig",
        "llm.output_messages.0.message.contents.1.message_content.type": "text",
        "llm.output_messages.0.message.contents.1.message_content.text": "A picture.",
    }
    session = read(tmp_path, span(1, fields={"openinference.span.kind": "LLM", **given}))
    assert session.history[0].parts == (Text("What is this?"), Image("image/png", "aGk="))
    assert session.history[1].parts == (Thinking("Hm.", "sig"), Text("A picture."))


def test_genai_parts(tmp_path: Path) -> None:
    def parts(role: str, *pieces: Json) -> Json:
        return {"role": role, "parts": list(pieces)}

    call = {"type": "tool_call", "id": "c1", "name": "ls", "arguments": {"path": "."}}
    given = [
        parts(
            "user", {"type": "text", "content": "Look."}, {"type": "blob", "mime_type": "image/png", "content": "aGk="}
        ),
        parts("assistant", {"type": "reasoning", "content": "Hm."}, call),
        parts("tool", {"type": "tool_call_response", "id": "c1", "response": {"files": 2}}),
        parts(
            "user", {"type": "uri", "modality": "image", "uri": "https://example.org/a.png"}, {"type": "odd", "x": 1}
        ),
    ]
    system = [{"type": "text", "content": "You count."}]
    answer = parts("assistant", {"type": "text", "content": "Two."})
    messages = {"gen_ai.input.messages": json.dumps(given), "gen_ai.output.messages": json.dumps([answer])}
    one = span(
        1, fields={"gen_ai.operation.name": "chat", "gen_ai.system_instructions": json.dumps(system), **messages}
    )
    session = read(tmp_path, one)
    assert words(session.history) == [
        "You count.",
        "Look. Image",
        "(Hm.) ls:c1",
        'c1={"files":2}',
        "Image Unknown",
        "Two.",
    ]


def test_openllmetry(tmp_path: Path) -> None:
    fields = {
        "llm.request.type": "chat",
        "gen_ai.prompt.0.role": "user",
        "gen_ai.prompt.0.content": json.dumps([{"type": "text", "text": "How many files are here?"}]),
        "gen_ai.completion.0.role": "assistant",
        "gen_ai.completion.0.tool_calls.0.id": "c1",
        "gen_ai.completion.0.tool_calls.0.name": "ls",
        "gen_ai.completion.0.tool_calls.0.arguments": "{}",
        "gen_ai.usage.prompt_tokens": 5,
    }
    session = read(tmp_path, span(1, fields=fields))
    assert words(session.history) == WHOLE[1:3]
    assert session.history[1].usage == Usage(5)


def test_events(tmp_path: Path) -> None:
    def event(name: str, **attributes: Any) -> Json:
        return {"name": name, "attributes": attributes}

    one = span(1, gen_ai__operation__name="chat")
    calls = json.dumps([{"id": "c1", "function": {"name": "ls", "arguments": "{}"}}])
    one["events"] = [
        event("gen_ai.user.message", content="How many files are here?"),
        event("gen_ai.assistant.message", tool_calls=calls),
        event("gen_ai.tool.message", id="c1", content="a.py\nb.py"),
        event("gen_ai.choice", message=json.dumps({"content": "There are two of them."}), finish_reason="stop"),
    ]
    assert words(read(tmp_path, one).history) == WHOLE[1:]
    details = {"gen_ai.input.messages": [ASKED], "gen_ai.output.messages": [ANSWERED]}
    one["events"] = [event("gen_ai.client.inference.operation.details", **details)]
    assert words(read(tmp_path, one).history) == [WHOLE[1], WHOLE[4]]
    noted = [
        {"event.name": "gen_ai.user.message", "content": "Hi."},
        {"event.name": "gen_ai.choice", "message": {"content": "Ho."}},
    ]
    assert words(read(tmp_path, span(1, gen_ai__operation__name="chat", events=json.dumps(noted))).history) == [
        "Hi.",
        "Ho.",
    ]


def test_the_ai_sdk(tmp_path: Path) -> None:
    def ran(number: int, operation: str, parent: str = "", **fields: Any) -> Json:
        names = {f"ai.{key.replace('__', '.')}": value for key, value in fields.items()}
        return span(number, parent, fields={"ai.operationId": f"ai.{operation}", **names})

    given = [{"role": "user", "content": [{"type": "text", "text": "How many files are here?"}]}]
    calls = [{"type": "tool-call", "toolCallId": "c1", "toolName": "ls", "input": {"path": "."}}]
    output = {"type": "error-text", "value": "a.py\nb.py"}
    result = [{"type": "tool-result", "toolCallId": "c1", "toolName": "ls", "output": output}]
    more = [{"role": "assistant", "content": calls}, {"role": "tool", "content": result}]
    first = {
        "prompt__messages": json.dumps(given),
        "response__toolCalls": json.dumps(calls),
        "response__reasoning": "Hm.",
    }
    then = {"prompt__messages": json.dumps([*given, *more]), "response__object": "There are two of them."}
    again = [{"type": "tool-call", "toolCallId": "c2", "toolName": "ls", "input": {}}]
    session = read(
        tmp_path,
        ran(1, "generateText", telemetry__functionId="counter", response__text="There are two of them."),
        ran(2, "generateText.doGenerate", "s1", prompt__tools=[json.dumps({"name": "ls"})], **first),
        ran(3, "toolCall", "s1", toolCall__name="ls", toolCall__id="c1", toolCall__result="a.py"),
        ran(4, "generateText.doGenerate", "s1", response__toolCalls=json.dumps(again), **then),
        ran(5, "toolCall", "s1", toolCall__name="ls", toolCall__id="c2", toolCall__result="c.py"),
    )
    assert words(session.history) == [
        WHOLE[1],
        "(Hm.) ls:c1",
        "c1=a.py\nb.py!",
        "There are two of them. ls:c2",
        "c2=c.py",
    ]
    assert session.records == {"agent": 1, "llm": 2, "tool": 2}


def test_blocks_of_bedrock(tmp_path: Path) -> None:
    """Strands records each message as an event with Bedrock's content blocks."""

    def call(number: int, *noted: tuple[str, str, list[Json]]) -> Json:
        one = span(number, gen_ai__operation__name="chat")
        one["events"] = [{"name": f"gen_ai.{name}", "attributes": {key: json.dumps(v)}} for name, key, v in noted]
        return one

    asked = ("user.message", "content", [{"text": "Look."}])
    use: list[Json] = [{"text": "Yes."}, {"toolUse": {"toolUseId": "c1", "name": "ls", "input": {}}}]
    gave: Json = {"toolResult": {"toolUseId": "c1", "status": "error", "content": [{"text": "no such folder"}]}}
    thought: Json = {"reasoningContent": {"reasoningText": {"text": "Hm.", "signature": "sig"}}}
    session = read(
        tmp_path,
        call(1, asked, ("choice", "message", use)),
        call(
            2,
            asked,
            ("assistant.message", "content", use),
            ("tool.message", "content", [gave]),
            ("choice", "message", [thought, {"text": "None."}]),
        ),
    )
    assert words(session.history) == ["Look.", "Yes. ls:c1", "c1=no such folder!", "(Hm.) None."]


def test_spans_without_a_kind_are_recognized_by_their_attributes(tmp_path: Path) -> None:
    """Test older versions of Pydantic AI, with counts that a table export made floats."""
    session = read(
        tmp_path,
        span(1, agent_name="counter", pydantic_ai__all_messages="[]"),
        chat(2, [SYSTEM, ASKED], CALLED, "s1", gen_ai__usage__input_tokens=5.0),
        span(3, "s1", gen_ai__tool__name="ls", gen_ai__tool__call__id="c1", tool_response="a.py\nb.py"),
    )
    assert words(session.history) == WHOLE[:4]
    assert session.records == {"agent": 1, "llm": 1, "tool": 1}
    assert session.history[2].usage == Usage(5)


def test_messages_can_be_on_the_agent_span_only(tmp_path: Path) -> None:
    session = read(
        tmp_path,
        agent(1, **{"input.value": "How many files are here?", "output.value": "There are two of them."}),
        span(2, "s1", gen_ai__operation__name="chat", gen_ai__usage__input_tokens=4),
    )
    assert words(session.history) == [WHOLE[1], WHOLE[4]]
    assert "1 model calls have no messages" in session.problems[0].what


def test_an_answer_with_a_name_has_a_model_as_author(tmp_path: Path) -> None:
    session = read(tmp_path, chat(1, [ASKED], {"role": "Planner", "content": "Two."}))
    assert [message.role for message in session.history] == ["user", "assistant"]


# From calls to conversations


def test_a_repeated_answer_in_another_form_is_recognized(tmp_path: Path) -> None:
    trimmed = said("There are two of them. <end>")
    once_more = said("Are you sure?", "user")
    session = read(
        tmp_path,
        chat(1, [SYSTEM, ASKED], ANSWERED),
        chat(2, [SYSTEM, ASKED, trimmed, once_more], said("Yes.")),
        chat(3, [SYSTEM, ASKED, trimmed, once_more, said("Yes."), said("Good.", "user")], said("Bye.")),
    )
    assert words(session.history) == [*WHOLE[:2], WHOLE[4], "Are you sure?", "Yes.", "Good.", "Bye."]
    assert session.branches == ()


def test_repeated_calls_in_text_form_are_recognized(tmp_path: Path) -> None:
    """smolagents repeats calls as text rows, and the output before an error as a separate row."""
    calls_text = (
        "Calling tools:\n[{'id': 'c1', 'type': 'function', 'function': {'name': 'ls', 'arguments': {'path': '.'}}}]"
    )
    rows = [
        {"role": "tool-call", "content": calls_text},
        {"role": "tool-response", "content": "Call id: c1\nObservation:\na.py"},
        {"role": "tool-response", "content": "Call id: c1\nError:\nno more"},
    ]
    session = read(tmp_path, chat(1, [SYSTEM, ASKED], CALLED), chat(2, [SYSTEM, ASKED, *rows], ANSWERED))
    results = "c1=Call id: c1\nObservation:\na.py\nCall id: c1\nError:\nno more!"
    assert words(session.history) == [*WHOLE[:3], results, WHOLE[4]]


def test_a_retry_abandons_the_answer(tmp_path: Path) -> None:
    session = read(
        tmp_path,
        chat(1, [SYSTEM, ASKED], said("Three.")),
        chat(2, [SYSTEM, ASKED], ANSWERED),
        chat(3, [SYSTEM, ASKED, ANSWERED, said("Why?", "user")], said("I counted.")),
        chat(4, [SYSTEM, ASKED, ANSWERED, said("Name them.", "user")], said("a.py and b.py.")),
    )
    assert words(session.history) == [*WHOLE[:2], WHOLE[4], "Name them.", "a.py and b.py."]
    assert [words(branch.history) for branch in session.branches] == [["Three."], ["Why?", "I counted."]]
    ids = {message.id for message in session.messages(branches=True)}
    assert {branch.after_message_id for branch in session.branches} <= ids


def test_further_choices_are_abandoned(tmp_path: Path) -> None:
    one = chat(1, [SYSTEM, ASKED], None)
    one["attributes"]["gen_ai.output.messages"] = [ANSWERED, said("Three."), said("Four.")]
    session = read(tmp_path, one, chat(2, [SYSTEM, ASKED, ANSWERED, said("Why?", "user")], said("I counted.")))
    assert words(session.history) == [*WHOLE[:2], WHOLE[4], "Why?", "I counted."]
    assert [words(branch.history) for branch in session.branches] == [["Three."], ["Four."]]


def test_without_an_agent_every_prompt_has_a_human_as_author(tmp_path: Path) -> None:
    """Calls of one trace share only the system prompt; next to an agent, such calls belong to its harness."""
    calls = [chat(n, [SYSTEM, said(f"Question {n}.", "user")], said(f"Answer {n}.")) for n in (2, 3)]
    sessions = read_all(tmp_path, *calls)
    assert [session.title for session in sessions] == ["Question 2.", "Question 3."]
    assert {session.history[1].author for session in sessions} == {"human"}
    session = read(tmp_path, *calls, agent(4), chat(5, [SYSTEM, ASKED], ANSWERED, "s4"))
    assert words(session.history) == [*WHOLE[:2], WHOLE[4]]
    assert {child.history[1].author for child in session.children} == {"harness"}


def test_a_call_recorded_by_two_instruments_is_one(tmp_path: Path) -> None:
    inside = chat(2, [SYSTEM, ASKED], ANSWERED, "s1")
    session = read(tmp_path, chat(1, [SYSTEM, ASKED], ANSWERED), inside, chat(3, [SYSTEM, ASKED], ANSWERED))
    assert words(session.history) == [*WHOLE[:2], WHOLE[4]]
    assert (session.branches, session.children) == ((), ())


def test_a_failed_call_has_only_its_prompt(tmp_path: Path) -> None:
    session = read(tmp_path, chat(1, [SYSTEM, ASKED], None, failed=True), chat(2, [SYSTEM, ASKED], ANSWERED))
    assert words(session.history) == [*WHOLE[:2], WHOLE[4]]


def test_another_system_prompt_starts_a_side_conversation(tmp_path: Path) -> None:
    """A planner gets the same history with its own system prompt: the repeated messages are carried."""
    planner, plan = said("You plan.", "system"), said("Plan on.", "user")
    session = read(
        tmp_path,
        agent(1),
        chat(2, [SYSTEM, ASKED], CALLED, "s1"),
        chat(3, [planner, ASKED, CALLED, GIVEN, plan], said("Count them."), "s1"),
        chat(4, [SYSTEM, ASKED, CALLED, GIVEN], ANSWERED, "s1"),
    )
    assert words(session.history) == WHOLE
    [beside] = session.children
    assert words(beside.messages()) == ["You plan.", "Plan on.", "Count them."]
    assert len(beside.history) == 6
    assert (beside.parent, beside.call_id) == (session.id, "")
    assert {message.author for message in beside.history if message.role == "user"} == {"harness"}


def test_a_system_prompt_that_changes_after_its_start_is_the_same(tmp_path: Path) -> None:
    def prompt(minute: int) -> Json:
        return said(f"It is 10:{minute}. {'You count files. ' * 20} Open: {'a.py ' * minute}", "system")

    for start in ([agent(1)], []):
        session = read(
            tmp_path,
            *start,
            chat(2, [prompt(8), ASKED], CALLED, "s1"),
            chat(3, [prompt(9), ASKED, CALLED, GIVEN], ANSWERED, "s1"),
        )
        assert words(session.history)[1:] == WHOLE[1:]
        assert session.children == ()


def test_an_inner_agent_belongs_to_the_open_call(tmp_path: Path) -> None:
    """The tool span around the agent identifies the call; without one, only a single open call matches."""
    inner = [said("You look.", "system"), said("Look in .", "user")]
    for between in ([], [tool(3, "ls", "s1")]):
        session = read(
            tmp_path,
            agent(1),
            chat(2, [SYSTEM, ASKED], CALLED, "s1"),
            *between,
            agent(4, "s3" if between else "s1", "looker"),
            chat(5, inner, said("a.py\nb.py"), "s4"),
            chat(6, [SYSTEM, ASKED, CALLED, GIVEN], ANSWERED, "s1"),
        )
        [child] = session.children
        assert (child.parent, child.call_id, child.title) == (session.id, "c1", "looker")
        assert [message.author for message in child.history] == ["harness", "model", "model"]


def test_an_agent_that_inherits_the_history_is_a_child(tmp_path: Path) -> None:
    session = read(
        tmp_path,
        agent(1),
        chat(2, [SYSTEM, ASKED], CALLED, "s1"),
        agent(3, "s1", "fork"),
        chat(4, [SYSTEM, ASKED, CALLED, said("Go on.", "user")], said("I do."), "s3"),
    )
    assert words(session.history) == WHOLE[:3]
    assert len(session.children) == 1


def test_a_conversation_continues_in_later_traces(tmp_path: Path) -> None:
    """Match by the full history, or by conversation ID if a trace has only new messages."""
    more = said("Name them.", "user")
    whole = chat(2, [SYSTEM, ASKED, ANSWERED, more], said("a.py and b.py."), trace="t2")
    assert words(read(tmp_path, chat(1, [SYSTEM, ASKED], ANSWERED), whole).history)[3:] == [
        "Name them.",
        "a.py and b.py.",
    ]
    talk = {"gen_ai__conversation__id": "conv"}
    session = read(
        tmp_path,
        chat(1, [SYSTEM, ASKED], ANSWERED, **talk),
        chat(2, [SYSTEM, more], said("a.py and b.py."), trace="t2", **talk),
    )
    assert words(session.history)[2:] == [WHOLE[4], "Name them.", "a.py and b.py."]
    assert (session.id, session.records) == ("conv", {"llm": 2})
    other = chat(2, [SYSTEM, ASKED, ANSWERED, more], said("No."), trace="t2", gen_ai__conversation__id="other")
    assert len(read_all(tmp_path, chat(1, [SYSTEM, ASKED], ANSWERED, **talk), other)) == 2


def test_a_prompt_can_have_only_results(tmp_path: Path) -> None:
    session = read(tmp_path, chat(1, [SYSTEM, ASKED], CALLED), chat(2, [GIVEN], ANSWERED))
    assert words(session.history) == WHOLE


def test_runs_of_the_same_prompt_differ_by_agent(tmp_path: Path) -> None:
    runs = [(agent(n), chat(n + 1, [SYSTEM, ASKED], said(f"{n}."), f"s{n}")) for n in (1, 3, 5)]
    sessions = read_all(tmp_path, *(one for run in runs for one in run))
    assert [words(session.history)[-1] for session in sessions] == ["1.", "3.", "5."]
    assert len({session.id for session in sessions}) == 3


def test_a_conversation_continues_if_its_history_is_changed_or_truncated(tmp_path: Path) -> None:
    """Old results are masked, the oldest messages are dropped or lost to a limit on attributes: nothing is new."""
    masked = GIVEN | {"content": "[old output]"}
    talk = [SYSTEM, ASKED, CALLED, GIVEN, ANSWERED, said("Good.", "user")]
    thanks = said("You are welcome.")
    for given in (
        [SYSTEM, ASKED, CALLED, masked, ANSWERED, said("Good.", "user")],
        [SYSTEM, CALLED, GIVEN, ANSWERED, said("Good.", "user")],
    ):
        session = read(
            tmp_path,
            chat(1, [SYSTEM, ASKED], CALLED),
            chat(2, talk[:4], ANSWERED),
            chat(3, given, thanks),
            chat(4, [*given, thanks, said("Bye.", "user")], said("Bye.")),
        )
        assert words(session.history) == [*WHOLE, "Good.", "You are welcome.", "Bye.", "Bye."]
        assert (session.compactions, session.branches) == (0, ())
    kept = {key: value for key, value in inference("llm.input_messages", *talk).items() if key[19] not in "01"}
    first = {key: value for key, value in kept.items() if key != "llm.input_messages.2.message.role"}
    cut = span(3, fields={"openinference.span.kind": "LLM", **first, **inference("llm.output_messages", thanks)})
    session = read(tmp_path, chat(1, [SYSTEM, ASKED], CALLED), chat(2, talk[:4], ANSWERED), cut)
    assert words(session.history) == [*WHOLE, "Good.", "You are welcome."]
    assert "limit on attributes" in session.problems[0].what


def test_compactions(tmp_path: Path) -> None:
    """Either the last messages are kept, or the conversation continues from the task and a summary."""
    summary = said("So far: two files were found.", "user")
    before = [chat(1, [SYSTEM, ASKED], CALLED), chat(2, [SYSTEM, ASKED, CALLED, GIVEN], ANSWERED)]
    more = said("Name them.", "user")
    kept = [SYSTEM, summary, ANSWERED, more]
    anew = [SYSTEM, ASKED, summary]
    for given, carried in ((kept, ["You count.", WHOLE[4]]), (anew, ["You count.", WHOLE[1]])):
        session = read(
            tmp_path,
            *before,
            chat(3, given, said("a.py.")),
            chat(4, [*given, said("a.py."), said("And?", "user")], said("b.py.")),
        )
        assert session.compactions == 1
        assert words(session.segments[0]) == WHOLE
        assert [
            word for word, one in zip(words(session.history), session.history, strict=True) if one.carried
        ] == carried
        assert words(session.history)[-3:] == ["a.py.", "And?", "b.py."]
        assert sum(isinstance(part, th.model.Summary) for one in session.history for part in one.parts) == 1


def test_tool_spans_supply_missing_results(tmp_path: Path) -> None:
    """A tool span matches by call ID, or as the next run of that tool before the next model call."""
    again = {"role": "assistant", "tool_calls": [{"id": "c2", "name": "ls", "arguments": "{}"}]}
    session = read(
        tmp_path,
        agent(1),
        chat(2, [SYSTEM, ASKED], CALLED, "s1"),
        tool(3, "ls", "s1", failed=True, gen_ai__tool__call__result="a.py\nb.py"),
        chat(4, [SYSTEM, ASKED, CALLED, GIVEN], again, "s1"),
        tool(5, "ls", "s1", gen_ai__tool__call__id="c2", **{"output.value": "c.py"}),
    )
    assert words(session.history) == [*WHOLE[:3], "c1=a.py\nb.py!", "ls:c2", "c2=c.py"]
    failed = tool(3, "ls", "s1", failed=True)
    failed["events"] = [
        {"name": "started"},
        {"name": "exception", "attributes": {"exception.message": "no such folder"}},
    ]
    session = read(tmp_path, agent(1), chat(2, [SYSTEM, ASKED], CALLED, "s1"), failed)
    assert words(session.history)[3:] == ["c1=no such folder!"]


# Malformed files


def test_traces_can_use_the_same_ids(tmp_path: Path) -> None:
    def run(trace: str) -> list[Json]:
        ran = tool(3, "ls", "s1", gen_ai__tool__call__id="c1", gen_ai__tool__call__result=trace, trace=trace)
        return [agent(1, trace=trace), chat(2, [SYSTEM, ASKED], CALLED, "s1", trace=trace), ran]

    sessions = read_all(tmp_path, *run("t1"), *run("t2"))
    assert [words(session.history) for session in sessions] == [[*WHOLE[:3], f"c1={trace}"] for trace in ("t1", "t2")]
    assert [session.id for session in sessions] == ["t1", "t2"]


def test_spans_in_a_cycle_and_without_a_parent_are_read(tmp_path: Path) -> None:
    one, two = agent(1, "s2"), chat(2, [SYSTEM, ASKED], ANSWERED, "s1")
    lost = chat(3, [said("Hi.", "user")], said("Ho."), "gone", trace="t2")
    sessions = read_all(tmp_path, one, two, lost)
    assert [words(session.history)[-1] for session in sessions] == [WHOLE[4], "Ho."]


def test_malformed_spans_are_skipped(tmp_path: Path) -> None:
    odd: list[Any] = [{"level": "info"}, {"context": 3, "name": "x"}, {"attributes": []}]
    path = tmp_path / "trace.jsonl"
    rows = [*two_calls(), *odd, chat(9, [{"role": 7, "content": {"x": 1}}, 3, None], {"role": "assistant"})]  # type: ignore[list-item]
    path.write_text("".join(f"{json.dumps(one)}\n" for one in rows) + '{"torn": ')
    session = th.read_all(path)[0]
    assert words(session.history)[:5] == WHOLE
    assert "torn" in session.problems[0].what


def test_spans_without_a_model_call_are_an_error(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(as_export([span(1, fields={"http.method": "GET"})])))
    with pytest.raises(UnknownFormatError, match="1 spans, but no model messages"):
        th.read(path)
    path.write_text(json.dumps([span(1, fields={"http.method": "GET"})]))
    assert th.sniff(path) is None


def test_a_long_run_is_read_in_time(tmp_path: Path) -> None:
    """Read six hundred calls that each repeat a window of the history; all comparisons use hashes."""
    rows: list[Json] = []
    spans = []
    for number in range(600):
        rows += [said(f"Step {number}.", "user")]
        one = chat(1, [SYSTEM, *rows[-40:]], said(f"Done {number}."))
        context = {"trace_id": "t1", "span_id": f"s{number}"}
        spans.append(one | {"context": context, "start_time": 1_767_607_200_000 + number * 1000})
        rows += [said(f"Done {number}.")]
    session = read(tmp_path, *spans)
    assert len(session.history) == 1201


# Recordings


def family(session: th.Session) -> Iterator[th.Session]:
    yield session
    for child in session.children:
        yield from family(child)


def rows_before_answers(session: th.Session) -> set[int]:
    """Count the prompt's messages in each call, as stored in the file.

    A code agent's text and its call are two rows there, and so are the output of its code and the error at its end.
    """
    found, rows = set(), 0
    for message in session.history:
        found |= {rows} if message.usage else set()
        kinds = {type(part) for part in message.parts}
        results = sum(len(result.content) for result in message.results)
        rows += results or (2 if kinds >= {Text, ToolCall} else 1)
    return found


def test_recordings(shared_data: Path) -> None:
    """Read one session per file, with sub-agents and planners as children.

    The index counts the messages of one call of a model; tools by their spans, also those that a code agent's own code
    runs, which no model called; and every span that failed: the tool's, and the steps around it.
    """
    files = answered = asked = 0
    for row, sessions in recordings.indexed(shared_data, "trail_otel"):
        [session] = sessions
        every = list(family(session))
        assert row["msgs"] in {count for one in every for count in rows_before_answers(one)}, row["file"]
        assert session.records["tool"] == row["calls"], row["file"]
        messages = [message for one in every for message in one.messages(branches=True)]
        failed = sum(result.is_error for message in messages for result in message.results)
        assert (failed > 0, failed <= row["errors"]) == (row["errors"] > 0, True), row["file"]
        assert not any(one.history.orphans for one in every), row["file"]
        files += 1
        answered += sum(message.usage is not None for message in messages)
        asked += session.records["llm"]
    assert (files, asked, answered) == (20, 383, 382), "one call failed and has no answer"


@pytest.mark.parametrize("number", [1 << 64, -(1 << 70), 10**400])
def test_a_number_that_is_too_large_is_no_problem_for_the_rest(tmp_path: Path, number: int) -> None:
    spans = [chat(1, [ASKED], said("Two."), gen_ai__usage__input_tokens=number, gen_ai__request__seed=number)]
    [session] = read_all(tmp_path, *spans)
    assert words(session.history) == ["How many files are here?", "Two."]
