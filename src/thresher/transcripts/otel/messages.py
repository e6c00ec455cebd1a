"""Parse model calls and tool results from the attributes and events of spans.

OpenInference flattens messages to attributes with an index in the name. Older versions of OpenLLMetry do the same with
`gen_ai.prompt` and `gen_ai.completion`. The GenAI conventions of OpenTelemetry store messages as JSON. Their older
versions have one event per message. Vercel's AI SDK has its own attribute names. The fallback is the span's whole input
and output.

By default, SDKs keep at most 128 attributes per span, so a long history loses its first messages.

Tool spans supply results that are missing from later model calls, and show which calls failed. A tool span with a call
id answers the call with that id. A tool span without a call id answers a call of the same agent to the same tool. This
span must start between the model call that made the tool call and the next model call.
"""

from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from msgspec.structs import replace

from thresher.model import History, Message, Part, ToolResult, Usage
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


def make_model_call(span: OtelSpan, tree: SpanTree) -> LoggedCall:
    """Build a model call from its span."""
    agents = [agent.key for agent in tree.enclosing_agents(span)]
    conversation_ids = map(_get_conversation_id, (span, *tree.iter_ancestors(span)))
    agent_key, outer_agents = agents[0] if agents else span.trace_id, frozenset(agents[1:])
    conversation_id = next(filter(None, conversation_ids), "")
    call = LoggedCall(span.number, span.line, agent_key, outer_agents, conversation_id, span.trace_id)
    return _with_messages(call, span)._replace(
        start=span.start,
        end=span.end,
        model=as_text(_first_value(span.attributes, _MODEL_KEYS)),
        usage=_parse_usage(span),
        tools=_get_tool_definitions(span),
    )


def _with_messages(call: LoggedCall, span: OtelSpan) -> LoggedCall:
    attributes = dict(span.attributes)
    for event in span.events:
        attributes |= event.attributes if event.name == _DETAILS_EVENT else {}
    inputs = (
        _from_openinference(numbered_attributes(attributes, "llm.input_messages"))
        or _find_messages(_first_value(attributes, _INPUT_KEYS))
        or _from_openllmetry(numbered_attributes(attributes, "gen_ai.prompt"))
        or [*_from_events(span, choice=False)]
        or _find_messages(_first_value(attributes, _RAW_INPUT_KEYS), plain="user")
    )
    outputs = (
        _from_openinference(numbered_attributes(attributes, "llm.output_messages"))
        or _find_messages(_first_value(attributes, _OUTPUT_KEYS))
        or [*_from_ai_sdk(attributes)]
        or _from_openllmetry(numbered_attributes(attributes, "gen_ai.completion"))
        or [*_from_events(span, choice=True)]
        or _find_messages(_first_value(attributes, _RAW_OUTPUT_KEYS), plain="assistant")
    )
    system = _decode_json(attributes.get("gen_ai.system_instructions"))
    if system and not any(parse_speaker(row).role == "system" for row in inputs):
        inputs = [{"role": "system", "content": system}, *inputs]
    prompt = [message for row in inputs if (message := parse_lenient_message(row, "user")).parts]
    answers = [message for row in outputs if (message := parse_lenient_message(row, "assistant")).parts]
    used = 1 if attributes.get("gen_ai.output.messages") else len(answers)  # each output message is an alternative
    call = call._replace(input_messages=prompt, output_messages=answers[:used], alternatives=answers[used:])
    return call._replace(is_truncated=_lowest_index(attributes, "llm.input_messages.") > 0)


def _first_value(attributes: Mapping[str, Any], keys: Iterable[str]) -> Any:
    return next((attributes[key] for key in keys if attributes.get(key) not in (None, "", [])), None)


def _decode_json(value: Any) -> Any:
    """Decode a value if it is JSON text. Return other values unchanged."""
    if not isinstance(value, str) or not value.lstrip().startswith(("[", "{")):
        return value
    try:
        return load_json(value)
    except (ValueError, RecursionError):
        return value


def _find_messages(value: Any, plain: str = "") -> list[dict[str, Any]]:
    """Find messages in a value: a list, an object that contains a list, one message, or text with the role `plain`."""
    value = _decode_json(value)
    if isinstance(value, list):
        return [row for row in map(_decode_json, value) if isinstance(row, dict) and has_message_content(row)]
    if isinstance(value, dict):
        for key in ("messages", "input", "kwargs", "choices", "message", "response"):
            if isinstance(value.get(key), list | dict) and (found := _find_messages(value[key])):
                return found
        if has_message_content(value) and ("role" in value or plain):
            return [value]
    text = value if isinstance(value, str) else text_at(value, "task")
    return [{"role": plain, "content": text}] if plain and text else []


# Numbered attributes


def numbered_attributes(attributes: Mapping[str, Any], prefix: str) -> list[Any]:
    """Return the list under a prefix: a JSON value, or attributes with indexes and fields in their names."""
    value = _decode_json(attributes.get(prefix))
    if isinstance(value, list):
        return [_unflatten(item.items()) if isinstance(item, dict) else item for item in value]
    unflattened = _unflatten(_strip_prefix(attributes, f"{prefix}."))
    return unflattened if isinstance(unflattened, list) else []


def _unflatten(entries: Iterable[tuple[str, Any]]) -> Any:
    """Convert dotted names to nested objects. An object whose keys are numbers becomes a list."""
    root: dict[str, Any] = {}
    for key, value in entries:
        *path, last = key.split(".")
        parent = root
        for step in path:
            inner = parent.setdefault(step, {})
            if not isinstance(inner, dict):
                break
            parent = inner
        else:
            is_list = isinstance(value, list) and all(isinstance(item, dict) for item in value)
            parent[last] = [_unflatten(item.items()) for item in value] if is_list else value
    return _convert_numbered_keys(root)


def _convert_numbered_keys(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if value and all(key.isdecimal() and len(key) < 9 for key in value):
        return [_convert_numbered_keys(value[key]) for key in sorted(value, key=int)]
    return {key: _convert_numbered_keys(inner) for key, inner in value.items()}


def _lowest_index(attributes: Mapping[str, Any], prefix: str) -> int:
    indexes = (key[len(prefix) :].partition(".")[0] for key in attributes if key.startswith(prefix))
    return min((int(index) for index in indexes if index.isdecimal() and len(index) < 9), default=0)


def _from_openinference(rows: Iterable[Any]) -> list[dict[str, Any]]:
    """Convert OpenInference messages to the OpenAI schema."""
    messages = []
    for row in map(as_dict, rows):
        message = dict(dict_at(row, "message") or row)
        contents = [dict_at(item, "message_content") or item for item in list_at(message, "contents")]
        if contents:
            message["content"] = contents
        if name := text_at(message, "function_call_name"):
            message["function_call"] = {"name": name, "arguments": message.get("function_call_arguments_json") or "{}"}
        messages.append(message)
    return messages


def _from_openllmetry(rows: Iterable[Any]) -> list[dict[str, Any]]:
    """Decode the content of OpenLLMetry messages, which can be JSON text."""
    return [{**row, "content": _decode_json(row.get("content"))} for row in rows if isinstance(row, dict)]


def _from_ai_sdk(attributes: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    text, reasoning, calls = (attributes.get(f"ai.response.{key}") for key in ("text", "reasoning", "toolCalls"))
    content, calls = text or attributes.get("ai.response.object"), as_list(_decode_json(calls))
    if content or reasoning or calls:
        yield {"role": "assistant", "content": content, "reasoning_content": reasoning, "tool_calls": calls}


# Events


def _from_events(span: OtelSpan, *, choice: bool) -> Iterator[dict[str, Any]]:
    """Yield the messages in a span's events: the model's answers if `choice` is True, else the prompt."""
    attached = as_list(_decode_json(span.attributes.get("events")))
    events = [SpanEvent(text_at(event, "event.name"), event) for event in attached if isinstance(event, dict)]
    for name, attributes in (*span.events, *events):
        row = {key: _decode_json(value) for key, value in attributes.items()}
        if name == "gen_ai.choice" and choice:
            inner = dict_at(row, "message") or as_dict(_unflatten(_strip_prefix(row, "message.")))
            answer = inner or {"content": row.get("message") or row.get("content"), "tool_calls": row.get("tool_calls")}
            yield {**answer, "role": "assistant"}
        elif name.startswith("gen_ai.") and name.endswith(".message") and not choice:
            yield {"tool_call_id": row.get("id"), **row, "role": name.split(".")[1]}
        elif name == f"gen_ai.content.{'completion' if choice else 'prompt'}":
            yield from _find_messages(_first_value(attributes, _RAW_OUTPUT_KEYS if choice else _RAW_INPUT_KEYS))


def _strip_prefix(row: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    return ((key.removeprefix(prefix), value) for key, value in row.items() if key.startswith(prefix))


# Other fields


def _get_tool_definitions(span: OtelSpan) -> str:
    """Return the definitions of the tools that the model could call, as JSON."""
    tools = [value_at(row, "tool", "json_schema") for row in numbered_attributes(span.attributes, "llm.tools")]
    tools = tools or as_list(
        _decode_json(_first_value(span.attributes, ("gen_ai.tool.definitions", "ai.prompt.tools")))
    )
    definitions = [_decode_json(tool) for tool in tools]
    is_valid = all(isinstance(definition, dict) for definition in definitions)
    return dump_json(definitions) if definitions and is_valid else ""


def _get_conversation_id(span: OtelSpan) -> str:
    ids = (as_text(_first_value(attributes, _CONVERSATION_KEYS)) for attributes in (span.attributes, span.resource))
    return next(filter(None, ids), "")


def get_span_agent_name(span: OtelSpan) -> str:
    """Return the name of a span's agent, or an empty string."""
    return as_text(_first_value(span.attributes, _AGENT_NAME_KEYS))


def _parse_usage(span: OtelSpan) -> Usage | None:
    """Return the usage of a model call. An input count includes the cached tokens, unless it is smaller."""
    counts = {name: _parse_token_count(_first_value(span.attributes, keys)) for name, keys in _USAGE_KEYS.items()}
    if not (counts["input"] or counts["output"]):
        return None
    cached = counts["cache_read"] + counts["cache_write"]
    counts["input"] -= cached if counts["input"] >= cached else 0
    return Usage(**counts)


def _parse_token_count(value: Any) -> int:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 16:
        return int(value)
    return int(value) if type(value) in (int, float) and 0 < value < 10**15 else 0  # table exports contain floats


# Tools


class OtelToolSpans:
    """Tool spans, indexed for matching with calls."""

    def __init__(self, tree: SpanTree) -> None:
        """Index the tool spans of a tree in time order."""
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

    def attach_results(self, conversation: CallThread) -> tuple[list[History], dict[str, str]]:
        """Return the histories with results from tool spans, and the id of each span's call, by span key."""
        following = [*conversation.model_calls[1:], None]
        next_calls = {call.number: after for call, after in zip(conversation.model_calls, following, strict=True)}
        calls_by_span: dict[str, str] = {}
        histories = []
        for history in conversation.histories():
            spans_by_call: dict[str, OtelSpan] = {}
            for message in history:
                model_call = conversation.calls_by_message_id.get(message.id)
                if message.carried or not model_call:
                    continue
                for call in message.calls:
                    span = self._spans_by_call_id.get((model_call.trace_id, call.id))
                    span = span or self._next_span(model_call, next_calls[model_call.number], call.name)
                    if span:
                        spans_by_call[call.id] = span
                        calls_by_span[span.key] = call.id
            histories.append(replace(history, messages=tuple(_insert_results(history, spans_by_call))))
        return histories, calls_by_span

    def _next_span(self, call: LoggedCall, following: LoggedCall | None, name: str) -> OtelSpan | None:
        """Remove and return the next span of a tool that starts between a model call and the following one, or None."""
        waiting = self._unmatched_spans.get((call.agent_key, name))
        while waiting and waiting[0].start and call.start and waiting[0].start < call.start:
            waiting.popleft()
        if not waiting:
            return None
        end = following.start if following else None
        return waiting.popleft() if not (end and waiting[0].start and waiting[0].start >= end) else None


def _insert_results(history: History, spans: Mapping[str, OtelSpan]) -> Iterator[Message]:
    answered = {result.call_id for message in history for result in message.results}
    failed = {call_id for call_id, span in spans.items() if span.is_failed}
    for message in history:
        if any(result.call_id in failed for result in message.results):
            yield replace(message, parts=tuple(_mark_failed(part, failed) for part in message.parts))
        else:
            yield message
        missing = [call for call in message.calls if call.id in spans and call.id not in answered]
        results = [result for call in missing if (result := _make_result(spans[call.id], call.id, call.name))]
        if results:
            span = spans[missing[-1].id]
            source = replace(message.source, line=span.line) if message.source else None
            yield Message("tool", tuple(results), author="tool", id=f"{span.number}", time=span.end, source=source)


def _mark_failed(part: Part, failed: Collection[str]) -> Part:
    return replace(part, is_error=True) if isinstance(part, ToolResult) and part.call_id in failed else part


def _tool_identity(span: OtelSpan) -> tuple[str, str]:
    """Return the tool's name and the call id in a tool span. The id is empty if the span has no call id."""
    name = as_text(_first_value(span.attributes, _TOOL_NAME_KEYS)) or span.name.removeprefix("execute_tool ")
    return name, as_text(_first_value(span.attributes, _CALL_ID_KEYS))


def _make_result(span: OtelSpan, call_id: str, name: str) -> ToolResult | None:
    """Return the result in a tool span. If a failed span has no result, return its error."""
    content = _first_value(span.attributes, _RESULT_KEYS)
    if content is None:
        content = next((row["content"] for row in _from_events(span, choice=True) if row.get("content")), None)
    errors = (text_at(event.attributes, "exception.message") for event in span.events)
    error = next(filter(None, errors), span.status_message)
    if content is None and not (span.is_failed and error):
        return None
    parts = parse_lenient_result(content if content is not None else error)
    return ToolResult(call_id, parts, is_error=span.is_failed, name=name)
