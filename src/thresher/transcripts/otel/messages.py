"""What a model was given and what it said, from the attributes of a span: two vocabularies, and others.

OpenInference numbers messages in the names of attributes, and so did OpenLLMetry with `gen_ai.prompt`. The GenAI
conventions of OpenTelemetry have lists of messages as JSON, and before that an event a message. Where none of these is
there, what is told of the input and the output as a whole is taken. The AI SDK of Vercel has names of its own.

SDKs keep 128 attributes a span unless told otherwise: a long history loses its first messages.

Tools' spans give the results that no later call of a model was given, and say which failed. Such a span answers the
call whose id it names. Most name none: then it is the next run of that tool, by the same agent, between the answer that
asks for it and the next call of the model.
"""

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from thresher.model import History, Message, ToolResult, Usage
from thresher.model.jsontext import dump_json, load_json
from thresher.transcripts.coerce import as_dict, as_list, as_text, dict_at, list_at, text_at, value_at
from thresher.transcripts.lenient_parser import (
    has_message_content,
    parse_lenient_message,
    parse_lenient_result,
    parse_speaker,
)
from thresher.transcripts.model_calls import LoggedCall
from thresher.transcripts.otel.spans import OtelSpan, SpanEvent, SpanTree
from thresher.transcripts.stitching import CallThread

_INPUT_KEYS = ("gen_ai.input.messages", "ai.prompt.messages", "langfuse.observation.input", "pydantic_ai.all_messages")
_OUTPUT_KEYS = ("gen_ai.output.messages", "langfuse.observation.output")
_RAW_INPUT_KEYS = ("input.value", "gen_ai.prompt", "traceloop.entity.input", "ai.prompt", "gen_ai.request.prompt")
_RAW_OUTPUT_KEYS = ("output.value", "gen_ai.completion", "traceloop.entity.output", "gen_ai.output")
_CONVERSATION_KEYS = (
    *("gen_ai.conversation.id", "session.id", "langfuse.session.id"),
    "traceloop.association.properties.session_id",
)
_MODEL_KEYS = ("llm.model_name", "gen_ai.response.model", "gen_ai.request.model", "ai.model.id")
_CALL_ID_KEYS = ("gen_ai.tool.call.id", "tool_call.id", "tool.id", "ai.toolCall.id", "tool_call_id")
_TOOL_NAME_KEYS = ("tool.name", "gen_ai.tool.name", "ai.toolCall.name", "traceloop.entity.name")
_RESULT_KEYS = ("gen_ai.tool.call.result", "ai.toolCall.result", "tool_response", *_RAW_OUTPUT_KEYS)
_AGENT_NAME_KEYS = ("agent.name", "gen_ai.agent.name", "agent_name", "graph.node.name", "ai.telemetry.functionId")
_DETAILS_EVENT = "gen_ai.client.inference.operation.details"
_USAGE_KEYS = {
    "input": ("llm.token_count.prompt", "gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens"),
    "output": ("llm.token_count.completion", "gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens"),
    "cache_read": (
        *("llm.token_count.prompt_details.cache_read", "gen_ai.usage.cache_read.input_tokens"),
        *("gen_ai.usage.cache_read_input_tokens", "gen_ai.usage.cached_tokens"),
        *("gen_ai.usage.details.cache_read_tokens", "ai.usage.cachedInputTokens"),
    ),
    "cache_write": (
        *("llm.token_count.prompt_details.cache_write", "gen_ai.usage.cache_creation.input_tokens"),
        *("gen_ai.usage.cache_creation_input_tokens", "gen_ai.usage.details.cache_write_tokens"),
        "gen_ai.usage.cache_write_input_tokens",
    ),
    "reasoning": (
        *("llm.token_count.completion_details.reasoning", "gen_ai.usage.reasoning.output_tokens"),
        *("gen_ai.usage.details.reasoning_tokens", "ai.usage.reasoningTokens"),
    ),
}


class SpanMessages(NamedTuple):
    """What a span tells of a model's call."""

    input_messages: list[Message]
    output_messages: list[Message]
    is_truncated: bool = False
    """Whether the first messages are missing."""
    alternatives: Sequence[Message] = ()
    """Answers that were asked for beside the first."""


def parse_span_messages(span: OtelSpan) -> SpanMessages:
    """The messages of a span."""
    attributes = dict(span.attributes)
    for event in span.events:
        attributes |= event.attributes if event.name == _DETAILS_EVENT else {}
    asked, answered = (
        numbered_attributes(attributes, "llm.input_messages"),
        numbered_attributes(attributes, "llm.output_messages"),
    )
    given = _from_openinference(asked) or _find_messages(_first_value(attributes, _INPUT_KEYS))
    given = (
        given
        or _from_openllmetry(numbered_attributes(attributes, "gen_ai.prompt"))
        or [*_from_events(span, choice=False)]
    )
    said = (
        _from_openinference(answered)
        or _find_messages(_first_value(attributes, _OUTPUT_KEYS))
        or [*_from_ai_sdk(attributes)]
    )
    said = (
        said
        or _from_openllmetry(numbered_attributes(attributes, "gen_ai.completion"))
        or [*_from_events(span, choice=True)]
    )
    given = given or _find_messages(_first_value(attributes, _RAW_INPUT_KEYS), plain="user")
    said = said or _find_messages(_first_value(attributes, _RAW_OUTPUT_KEYS), plain="assistant")
    system = _decode_json(attributes.get("gen_ai.system_instructions"))
    if system and not any(parse_speaker(row).role == "system" for row in given):
        given = [{"role": "system", "content": system}, *given]
    is_cut = _lowest_index(attributes, "llm.input_messages.") > 0
    read = [message for row in given if (message := parse_lenient_message(row, "user")).parts]
    answers = [message for row in said if (message := parse_lenient_message(row, "assistant")).parts]
    one = 1 if attributes.get("gen_ai.output.messages") else len(answers)  # there, each message is a choice
    return SpanMessages(read, answers[:one], is_cut, answers[one:])


def _first_value(attributes: Mapping[str, Any], keys: Iterable[str]) -> Any:
    return next((attributes[key] for key in keys if attributes.get(key) not in (None, "", [])), None)


def _decode_json(value: Any) -> Any:
    """A value that may be told as JSON."""
    if not isinstance(value, str) or not value.lstrip().startswith(("[", "{")):
        return value
    try:
        return load_json(value)
    except (ValueError, RecursionError):
        return value


def _find_messages(value: Any, plain: str = "") -> list[dict[str, Any]]:
    """The messages in a value: a list of them, something that holds one, one alone, or plain text."""
    value = _decode_json(value)
    if isinstance(value, list):
        return [row for row in map(_decode_json, value) if isinstance(row, dict) and has_message_content(row)]
    if isinstance(value, dict):
        for key in ("messages", "input", "kwargs", "choices", "message", "response"):
            if isinstance(value.get(key), list | dict) and (found := _find_messages(value[key])):
                return found
        if has_message_content(value) and ("role" in value or plain):
            return [value]
    said = value if isinstance(value, str) else text_at(value, "task")
    return [{"role": plain, "content": said}] if plain and said else []


# Numbered attributes


def numbered_attributes(attributes: Mapping[str, Any], prefix: str) -> list[Any]:
    """The list that stands under a name: as one, or with its places and fields in the names of attributes."""
    whole = _decode_json(attributes.get(prefix))
    if isinstance(whole, list):
        return [_unflatten(item.items()) if isinstance(item, dict) else item for item in whole]
    found = _unflatten(_strip_prefix(attributes, f"{prefix}."))
    return found if isinstance(found, list) else []


def _unflatten(entries: Iterable[tuple[str, Any]]) -> Any:
    """Dotted names to objects, numbers in them to lists."""
    root: dict[str, Any] = {}
    for key, value in entries:
        *path, last = key.split(".")
        holder = root
        for step in path:
            inner = holder.setdefault(step, {})
            if not isinstance(inner, dict):
                break
            holder = inner
        else:
            whole = isinstance(value, list) and all(isinstance(item, dict) for item in value)
            holder[last] = [_unflatten(item.items()) for item in value] if whole else value
    return _convert_numbered_keys(root)


def _convert_numbered_keys(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if value and all(key.isdecimal() and len(key) < 9 for key in value):
        return [_convert_numbered_keys(value[key]) for key in sorted(value, key=int)]
    return {key: _convert_numbered_keys(inner) for key, inner in value.items()}


def _lowest_index(attributes: Mapping[str, Any], prefix: str) -> int:
    places = (key[len(prefix) :].partition(".")[0] for key in attributes if key.startswith(prefix))
    return min((int(place) for place in places if place.isdecimal() and len(place) < 9), default=0)


def _from_openinference(rows: Iterable[Any]) -> list[dict[str, Any]]:
    """Messages as OpenInference has them."""
    found = []
    for row in map(as_dict, rows):
        message = dict(dict_at(row, "message") or row)
        pieces = [dict_at(piece, "message_content") or piece for piece in list_at(message, "contents")]
        if pieces:
            message["content"] = pieces
        if name := text_at(message, "function_call_name"):
            message["function_call"] = {"name": name, "arguments": message.get("function_call_arguments_json") or "{}"}
        found.append(message)
    return found


def _from_openllmetry(rows: Iterable[Any]) -> list[dict[str, Any]]:
    """Messages as OpenLLMetry has them: content may be a list of pieces as JSON."""
    return [{**row, "content": _decode_json(row.get("content"))} for row in rows if isinstance(row, dict)]


def _from_ai_sdk(attributes: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    said, thought, calls = (attributes.get(f"ai.response.{key}") for key in ("text", "reasoning", "toolCalls"))
    said, calls = said or attributes.get("ai.response.object"), as_list(_decode_json(calls))
    if said or thought or calls:
        yield {"role": "assistant", "content": said, "reasoning_content": thought, "tool_calls": calls}


# Events


def _from_events(span: OtelSpan, *, choice: bool) -> Iterator[dict[str, Any]]:
    """Messages that were noted as events, each under its role."""
    attached = as_list(_decode_json(span.attributes.get("events")))
    events = [SpanEvent(text_at(event, "event.name"), event) for event in attached if isinstance(event, dict)]
    for name, attributes in (*span.events, *events):
        row = {key: _decode_json(value) for key, value in attributes.items()}
        if name == "gen_ai.choice" and choice:
            inner = dict_at(row, "message") or as_dict(_unflatten(_strip_prefix(row, "message.")))
            said = inner or {"content": row.get("message") or row.get("content"), "tool_calls": row.get("tool_calls")}
            yield {**said, "role": "assistant"}
        elif name.startswith("gen_ai.") and name.endswith(".message") and not choice:
            yield {"tool_call_id": row.get("id"), **row, "role": name.split(".")[1]}
        elif name == f"gen_ai.content.{'completion' if choice else 'prompt'}":
            yield from _find_messages(_first_value(attributes, _RAW_OUTPUT_KEYS if choice else _RAW_INPUT_KEYS))


def _strip_prefix(row: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    return ((key.removeprefix(prefix), value) for key, value in row.items() if key.startswith(prefix))


# Facts


def get_span_tool_definitions(span: OtelSpan) -> str:
    """The tools that the model was offered, as JSON."""
    found = [value_at(row, "tool", "json_schema") for row in numbered_attributes(span.attributes, "llm.tools")]
    listed = _first_value(span.attributes, ("gen_ai.tool.definitions", "ai.prompt.tools"))
    told_here = [_decode_json(one) for one in found or as_list(_decode_json(listed))]
    return dump_json(told_here) if told_here and all(isinstance(one, dict) for one in told_here) else ""


def get_span_conversation_id(span: OtelSpan) -> str:
    """The id of the conversation that a span belongs to, if it tells one."""
    told = (as_text(_first_value(found, _CONVERSATION_KEYS)) for found in (span.attributes, span.resource))
    return next(filter(None, told), "")


def get_span_model(span: OtelSpan) -> str:
    """The model that was asked."""
    return as_text(_first_value(span.attributes, _MODEL_KEYS))


def get_span_agent_name(span: OtelSpan) -> str:
    """The name of the agent."""
    return as_text(_first_value(span.attributes, _AGENT_NAME_KEYS))


def parse_span_usage(span: OtelSpan) -> Usage | None:
    """The bill; what a cache served or took is a share of the input, unless it is more than all of it."""
    found = {name: _parse_token_count(_first_value(span.attributes, keys)) for name, keys in _USAGE_KEYS.items()}
    if not (found["input"] or found["output"]):
        return None
    cached = found["cache_read"] + found["cache_write"]
    return Usage(**found | {"input": found["input"] - cached if found["input"] >= cached else found["input"]})


def _parse_token_count(value: Any) -> int:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 16:
        return int(value)
    return int(value) if type(value) in (int, float) and 0 < value < 10**15 else 0  # a table's column may be of floats


# Tools


class OtelToolSpans:
    """The spans of tools, by the calls that they may answer."""

    def __init__(self, tree: SpanTree) -> None:
        """In the order of time."""
        self._spans_by_call_id: dict[tuple[str, str], OtelSpan] = {}
        self._unmatched_spans: dict[tuple[str, str], deque[OtelSpan]] = defaultdict(deque)
        for span in tree.spans:
            if span.kind != "tool":
                continue
            name, call_id = _tool_identity(span)
            agents = tree.enclosing_agents(span)
            if call_id:
                self._spans_by_call_id[span.trace_id, call_id] = span
            else:
                self._unmatched_spans[agents[0].key if agents else span.trace_id, name].append(span)

    def attach_results(self, thread: CallThread) -> tuple[list[History], dict[str, str]]:
        """A thread with the results that tools gave, and the call that each span of a tool answers."""
        later = [*thread.model_calls[1:], None]
        after = {ask.number: following for ask, following in zip(thread.model_calls, later, strict=True)}
        calls: dict[str, str] = {}
        histories = []
        for history in thread.histories():
            ran: dict[str, OtelSpan] = {}
            for message in history:
                ask = thread.calls_by_message_id.get(message.id)
                if message.carried or not ask:
                    continue
                for call in message.calls:
                    span = self._spans_by_call_id.get((ask.trace_id, call.id)) or self._next_span(
                        ask, after[ask.number], call.name
                    )
                    if span:
                        ran[call.id] = span
                        calls[span.key] = call.id
            histories.append(replace(history, messages=tuple(_insert_results(history, ran))))
        return histories, calls

    def _next_span(self, ask: LoggedCall, later: LoggedCall | None, name: str) -> OtelSpan | None:
        """The next run of a tool between a call and the one after it."""
        waiting = self._unmatched_spans.get((ask.agent_key, name))
        while waiting and waiting[0].start and ask.start and waiting[0].start < ask.start:
            waiting.popleft()
        if not waiting:
            return None
        end = later.start if later else None
        return waiting.popleft() if not (end and waiting[0].start and waiting[0].start >= end) else None


def _insert_results(history: History, ran: Mapping[str, OtelSpan]) -> Iterator[Message]:
    given = {result.call_id for message in history for result in message.results}
    for message in history:
        failed = any(result.call_id in ran and ran[result.call_id].is_failed for result in message.results)
        parts = tuple(_mark_failed(part, ran) for part in message.parts) if failed else message.parts
        yield replace(message, parts=parts) if failed else message
        missing = [call for call in message.calls if call.id in ran and call.id not in given]
        results = [result for call in missing if (result := _make_result(ran[call.id], call.id, call.name))]
        if results:
            span = ran[missing[-1].id]
            place = replace(message.source, line=span.line) if message.source else None
            yield Message("tool", tuple(results), author="tool", id=f"{span.number}", time=span.end, source=place)


def _mark_failed(part: Any, ran: Mapping[str, OtelSpan]) -> Any:
    is_one = isinstance(part, ToolResult) and part.call_id in ran and ran[part.call_id].is_failed
    return replace(part, is_error=True) if is_one else part


def _tool_identity(span: OtelSpan) -> tuple[str, str]:
    """The name of a tool, and the id of the call, if it is told."""
    name = as_text(_first_value(span.attributes, _TOOL_NAME_KEYS)) or span.name.removeprefix("execute_tool ")
    return name, as_text(_first_value(span.attributes, _CALL_ID_KEYS))


def _make_result(span: OtelSpan, call_id: str, name: str) -> ToolResult | None:
    """What a tool gave, by its span; the error where it gave none."""
    given = _first_value(span.attributes, _RESULT_KEYS)
    if given is None:
        given = next((row["content"] for row in _from_events(span, choice=True) if row.get("content")), None)
    errors = (text_at(event.attributes, "exception.message") for event in span.events)
    failure = next(filter(None, errors), span.status_message)
    if given is None and not (span.is_failed and failure):
        return None
    content = parse_lenient_result(given if given is not None else failure)
    return ToolResult(call_id, content, is_error=span.is_failed, name=name)
