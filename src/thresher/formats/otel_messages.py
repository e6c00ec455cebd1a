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

from msgspec import structs

from thresher.formats.loose import fields, items, text
from thresher.formats.loose_messages import has_content, read_message, read_result, speaker
from thresher.formats.otel_spans import Event, Span, Tree
from thresher.formats.threads import Ask, Thread
from thresher.model import History, Message, ToolResult, Usage
from thresher.model.jsontext import dump, load

_GIVEN = ("gen_ai.input.messages", "ai.prompt.messages", "langfuse.observation.input", "pydantic_ai.all_messages")
_SAID = ("gen_ai.output.messages", "langfuse.observation.output")
_WHOLE_GIVEN = ("input.value", "gen_ai.prompt", "traceloop.entity.input", "ai.prompt", "gen_ai.request.prompt")
_WHOLE_SAID = ("output.value", "gen_ai.completion", "traceloop.entity.output", "gen_ai.output")
_TALKS = ("gen_ai.conversation.id", "session.id", "langfuse.session.id", "traceloop.association.properties.session_id")
_MODELS = ("llm.model_name", "gen_ai.response.model", "gen_ai.request.model", "ai.model.id")
_CALLS = ("gen_ai.tool.call.id", "tool_call.id", "tool.id", "ai.toolCall.id", "tool_call_id")
_TOOLS = ("tool.name", "gen_ai.tool.name", "ai.toolCall.name", "traceloop.entity.name")
_RESULTS = ("gen_ai.tool.call.result", "ai.toolCall.result", "tool_response", *_WHOLE_SAID)
_AGENTS = ("agent.name", "gen_ai.agent.name", "agent_name", "graph.node.name", "ai.telemetry.functionId")
_DETAILS = "gen_ai.client.inference.operation.details"
_COUNTS = {
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


class Told(NamedTuple):
    """What a span tells of a model's call."""

    given: list[Message]
    said: list[Message]
    is_cut: bool = False
    """Whether the first messages are missing."""
    others: Sequence[Message] = ()
    """Answers that were asked for beside the first."""


def told(span: Span) -> Told:
    """The messages of a span."""
    attributes = dict(span.attributes)
    for event in span.events:
        attributes |= event.attributes if event.name == _DETAILS else {}
    asked, answered = numbered(attributes, "llm.input_messages"), numbered(attributes, "llm.output_messages")
    given = _inference(asked) or _rows(_any_of(attributes, _GIVEN))
    given = given or _prompted(numbered(attributes, "gen_ai.prompt")) or [*_noted(span, choice=False)]
    said = _inference(answered) or _rows(_any_of(attributes, _SAID)) or [*_ai_sdk(attributes)]
    said = said or _prompted(numbered(attributes, "gen_ai.completion")) or [*_noted(span, choice=True)]
    given = given or _rows(_any_of(attributes, _WHOLE_GIVEN), plain="user")
    said = said or _rows(_any_of(attributes, _WHOLE_SAID), plain="assistant")
    system = _decoded(attributes.get("gen_ai.system_instructions"))
    if system and not any(speaker(row).role == "system" for row in given):
        given = [{"role": "system", "content": system}, *given]
    is_cut = _first_number(attributes, "llm.input_messages.") > 0
    read = [message for row in given if (message := read_message(row, "user")).parts]
    answers = [message for row in said if (message := read_message(row, "assistant")).parts]
    one = 1 if attributes.get("gen_ai.output.messages") else len(answers)  # there, each message is a choice
    return Told(read, answers[:one], is_cut, answers[one:])


def _any_of(attributes: Mapping[str, Any], keys: Iterable[str]) -> Any:
    return next((attributes[key] for key in keys if attributes.get(key) not in (None, "", [])), None)


def _decoded(value: Any) -> Any:
    """A value that may be told as JSON."""
    if not isinstance(value, str) or not value.lstrip().startswith(("[", "{")):
        return value
    try:
        return load(value)
    except (ValueError, RecursionError):
        return value


def _rows(value: Any, plain: str = "") -> list[dict[str, Any]]:
    """The messages in a value: a list of them, something that holds one, one alone, or plain text."""
    value = _decoded(value)
    if isinstance(value, list):
        return [row for row in map(_decoded, value) if isinstance(row, dict) and has_content(row)]
    if isinstance(value, dict):
        for key in ("messages", "input", "kwargs", "choices", "message", "response"):
            if isinstance(value.get(key), list | dict) and (found := _rows(value[key])):
                return found
        if has_content(value) and ("role" in value or plain):
            return [value]
    said = value if isinstance(value, str) else text(fields(value).get("task"))
    return [{"role": plain, "content": said}] if plain and said else []


# Numbered attributes


def numbered(attributes: Mapping[str, Any], prefix: str) -> list[Any]:
    """The list that stands under a name: as one, or with its places and fields in the names of attributes."""
    whole = _decoded(attributes.get(prefix))
    if isinstance(whole, list):
        return [_nested(item.items()) if isinstance(item, dict) else item for item in whole]
    found = _nested(_below(attributes, f"{prefix}."))
    return found if isinstance(found, list) else []


def _nested(entries: Iterable[tuple[str, Any]]) -> Any:
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
            holder[last] = [_nested(item.items()) for item in value] if whole else value
    return _listed(root)


def _listed(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if value and all(key.isdecimal() and len(key) < 9 for key in value):
        return [_listed(value[key]) for key in sorted(value, key=int)]
    return {key: _listed(inner) for key, inner in value.items()}


def _first_number(attributes: Mapping[str, Any], prefix: str) -> int:
    places = (key[len(prefix) :].partition(".")[0] for key in attributes if key.startswith(prefix))
    return min((int(place) for place in places if place.isdecimal() and len(place) < 9), default=0)


def _inference(rows: Iterable[Any]) -> list[dict[str, Any]]:
    """Messages as OpenInference has them."""
    found = []
    for row in map(fields, rows):
        message = dict(fields(row.get("message")) or row)
        pieces = [fields(fields(piece).get("message_content")) or piece for piece in items(message.get("contents"))]
        if pieces:
            message["content"] = pieces
        if name := text(message.get("function_call_name")):
            message["function_call"] = {"name": name, "arguments": message.get("function_call_arguments_json") or "{}"}
        found.append(message)
    return found


def _prompted(rows: Iterable[Any]) -> list[dict[str, Any]]:
    """Messages as OpenLLMetry has them: content may be a list of pieces as JSON."""
    return [{**row, "content": _decoded(row.get("content"))} for row in rows if isinstance(row, dict)]


def _ai_sdk(attributes: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    said, thought, calls = (attributes.get(f"ai.response.{key}") for key in ("text", "reasoning", "toolCalls"))
    said, calls = said or attributes.get("ai.response.object"), items(_decoded(calls))
    if said or thought or calls:
        yield {"role": "assistant", "content": said, "reasoning_content": thought, "tool_calls": calls}


# Events


def _noted(span: Span, *, choice: bool) -> Iterator[dict[str, Any]]:
    """Messages that were noted as events, each under its role."""
    attached = items(_decoded(span.attributes.get("events")))
    events = [Event(text(event.get("event.name")), event) for event in attached if isinstance(event, dict)]
    for name, attributes in (*span.events, *events):
        row = {key: _decoded(value) for key, value in attributes.items()}
        if name == "gen_ai.choice" and choice:
            inner = fields(row.get("message")) or fields(_nested(_below(row, "message.")))
            said = inner or {"content": row.get("message") or row.get("content"), "tool_calls": row.get("tool_calls")}
            yield {**said, "role": "assistant"}
        elif name.startswith("gen_ai.") and name.endswith(".message") and not choice:
            yield {"tool_call_id": row.get("id"), **row, "role": name.split(".")[1]}
        elif name == f"gen_ai.content.{'completion' if choice else 'prompt'}":
            yield from _rows(_any_of(attributes, _WHOLE_SAID if choice else _WHOLE_GIVEN))


def _below(row: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    return ((key.removeprefix(prefix), value) for key, value in row.items() if key.startswith(prefix))


# Facts


def definitions(span: Span) -> str:
    """The tools that the model was offered, as JSON."""
    found = [fields(fields(row).get("tool")).get("json_schema") for row in numbered(span.attributes, "llm.tools")]
    listed = _any_of(span.attributes, ("gen_ai.tool.definitions", "ai.prompt.tools"))
    told_here = [_decoded(one) for one in found or items(_decoded(listed))]
    return dump(told_here) if told_here and all(isinstance(one, dict) for one in told_here) else ""


def conversation(span: Span) -> str:
    """The id of the conversation that a span belongs to, if it tells one."""
    return text(_any_of(span.attributes, _TALKS)) or text(_any_of(span.resource, _TALKS))


def model_of(span: Span) -> str:
    """The model that was asked."""
    return text(_any_of(span.attributes, _MODELS))


def agent_of(span: Span) -> str:
    """The name of the agent."""
    return text(_any_of(span.attributes, _AGENTS))


def usage_of(span: Span) -> Usage | None:
    """The bill; what a cache served or took is a share of the input, unless it is more than all of it."""
    found = {name: _number(_any_of(span.attributes, keys)) for name, keys in _COUNTS.items()}
    if not (found["input"] or found["output"]):
        return None
    cached = found["cache_read"] + found["cache_write"]
    return Usage(**found | {"input": found["input"] - cached if found["input"] >= cached else found["input"]})


def _number(value: Any) -> int:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 16:
        return int(value)
    return int(value) if type(value) in (int, float) and 0 < value < 10**15 else 0  # a table's column may be of floats


# Tools


class Tools:
    """The spans of tools, by the calls that they may answer."""

    def __init__(self, tree: Tree) -> None:
        """In the order of time."""
        self._by_id: dict[tuple[str, str], Span] = {}
        self._waiting: dict[tuple[str, str], deque[Span]] = defaultdict(deque)
        for span in tree.spans:
            if span.kind != "tool":
                continue
            name, call_id = _tool(span)
            agents = tree.agents(span)
            if call_id:
                self._by_id[span.trace, call_id] = span
            else:
                self._waiting[agents[0].key if agents else span.trace, name].append(span)

    def given_to(self, thread: Thread) -> tuple[list[History], dict[str, str]]:
        """A thread with the results that tools gave, and the call that each span of a tool answers."""
        after = {ask.place: later for ask, later in zip(thread.asks, [*thread.asks[1:], None], strict=True)}
        calls: dict[str, str] = {}
        histories = []
        for history in thread.histories():
            ran: dict[str, Span] = {}
            for message in history:
                ask = thread.answers.get(message.id)
                if message.carried or not ask:
                    continue
                for call in message.calls:
                    span = self._by_id.get((ask.trace, call.id)) or self._next(ask, after[ask.place], call.name)
                    if span:
                        ran[call.id] = span
                        calls[span.key] = call.id
            histories.append(structs.replace(history, messages=tuple(_answered(history, ran))))
        return histories, calls

    def _next(self, ask: Ask, later: Ask | None, name: str) -> Span | None:
        """The next run of a tool between a call and the one after it."""
        waiting = self._waiting.get((ask.scope, name))
        while waiting and waiting[0].start and ask.start and waiting[0].start < ask.start:
            waiting.popleft()
        if not waiting:
            return None
        end = later.start if later else None
        return waiting.popleft() if not (end and waiting[0].start and waiting[0].start >= end) else None


def _answered(history: History, ran: Mapping[str, Span]) -> Iterator[Message]:
    given = {result.call_id for message in history for result in message.results}
    for message in history:
        failed = any(result.call_id in ran and ran[result.call_id].failed for result in message.results)
        parts = tuple(_failed(part, ran) for part in message.parts) if failed else message.parts
        yield structs.replace(message, parts=parts) if failed else message
        missing = [call for call in message.calls if call.id in ran and call.id not in given]
        results = [result for call in missing if (result := _result(ran[call.id], call.id, call.name))]
        if results:
            span = ran[missing[-1].id]
            place = structs.replace(message.source, line=span.line) if message.source else None
            yield Message("tool", tuple(results), author="tool", id=f"{span.place}", time=span.end, source=place)


def _failed(part: Any, ran: Mapping[str, Span]) -> Any:
    is_one = isinstance(part, ToolResult) and part.call_id in ran and ran[part.call_id].failed
    return structs.replace(part, is_error=True) if is_one else part


def _tool(span: Span) -> tuple[str, str]:
    """The name of a tool, and the id of the call, if it is told."""
    name = text(_any_of(span.attributes, _TOOLS)) or span.name.removeprefix("execute_tool ")
    return name, text(_any_of(span.attributes, _CALLS))


def _result(span: Span, call_id: str, name: str) -> ToolResult | None:
    """What a tool gave, by its span; the error where it gave none."""
    given = _any_of(span.attributes, _RESULTS)
    if given is None:
        given = next((row["content"] for row in _noted(span, choice=True) if row.get("content")), None)
    errors = (text(event.attributes.get("exception.message")) for event in span.events)
    failure = next(filter(None, errors), span.told)
    if given is None and not (span.failed and failure):
        return None
    content = read_result(given if given is not None else failure)
    return ToolResult(call_id, content, is_error=span.failed, name=name)
