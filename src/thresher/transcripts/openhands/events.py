"""Parse OpenHands events of both generations into facts: messages, calls, results and condensations.

Until 0.62, an event is an action or an observation, and every call includes the model's whole response. The oldest
events have all fields at the top level. Since 1.0 (the SDK), an event has a `kind`. A fact is the effect of an event
on the conversation. Events without an effect (state, pauses, tokens) have no fact.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from thresher.dialects.content import infer_message_author, parse_image_url
from thresher.model import Author, Message, Usage
from thresher.model.jsontext import dump_json
from thresher.model.parts import Image, Part, ResultPart, Text, Thinking, ToolCall, Unknown
from thresher.transcripts.base import parse_openai_chat_usage
from thresher.transcripts.coerce import as_dict, dict_at, list_at, text_at, value_at
from thresher.transcripts.content import json_text, parse_thinking_blocks, text_parts, unknown_part

HARNESS_NUDGES = (
    "Your last response did not include a function call or a message",
    "The task appears incomplete (iteration ",
    "Please continue working on the task on whatever approach you think is suitable",
)
"""Prefixes of messages that the harness sends in the user's name."""
HIDDEN_EVENT_NAMES = (
    "null recall start initialize change_agent_state pause resume stop push send_pr condensation_request",
    "loop_recovery agent_state_changed loop_detection success summarize",
)
"""Names of actions and observations that no model sees."""
VISIBLE_EVENT_NAMES = (
    "message system read write edit run run_ipython browse browse_interactive call_tool_mcp mcp delegate think",
    "finish reject condensation condense task_tracking error user_rejected chat download",
)
"""Names of actions and observations that the model sees."""
NON_ARGUMENT_KEYS = (
    "action observation thought is_confirmed confirmation_state security_risk kernel_init_code hidden blocking",
    "keep_prompt is_static include_extra impl_source translated_ipython_code id timestamp source message cause timeout",
)
"""Keys among an action's arguments that the model did not write."""
_HIDDEN_NAMES, _KNOWN_NAMES, _NON_ARGUMENTS = (
    frozenset(" ".join(words).split())
    for words in (HIDDEN_EVENT_NAMES, (*HIDDEN_EVENT_NAMES, *VISIBLE_EVENT_NAMES), NON_ARGUMENT_KEYS)
)
_EVENT_KIND_SUFFIXES = ("Event", "Observation", "Condensation", "CondensationRequest")
STILL_RUNNING_EXIT_CODE = -1
"""Recorded exit code of a command that is still running."""


class MessageFact(NamedTuple):
    """A complete message."""

    message: Message


class CallFact(NamedTuple):
    """A call; all calls of one response form one message."""

    response_id: str
    """Id of the model's response, or empty if unknown."""
    leading_parts: tuple[Part, ...]
    """Thinking and text before the calls."""
    call: ToolCall
    model: str
    usage: Usage | None


class ResultFact(NamedTuple):
    """The result of a call."""

    call_keys: tuple[str, ...]
    """Possible keys of the call: the id of the event with the call, and the call id. The first known key applies."""
    content: tuple[ResultPart, ...]
    is_error: bool
    fallback_author: Author | None
    """Author of the content if the call is unknown or already has a result. If None, the content is skipped."""


class CondensationFact(NamedTuple):
    """Removal of events from the context, with an optional summary of them."""

    summary: str
    forgotten_ids: frozenset[str]
    first_forgotten: int
    """Number of the first event in the range of removed events."""
    last_forgotten: int
    """Number of the last event in the range of removed events. Less than `first_forgotten` if the range is empty."""

    def is_forgotten(self, event: str) -> bool:
        """Return True if the condensation removes the event with this id."""
        is_number = event.isdecimal() and len(event) < 19
        is_in_range = is_number and self.first_forgotten <= int(event) <= self.last_forgotten
        return is_in_range or event in self.forgotten_ids


EventFact = MessageFact | CallFact | ResultFact | CondensationFact


class ModelFacts(NamedTuple):
    """The model's name and the usage of its responses, read from data outside the events."""

    model: str
    usages: Mapping[str, Usage]
    """Usage of each response, by response id."""


def is_openhands_event(value: Any) -> bool:
    """Return True for an event of either generation."""
    if not isinstance(value, dict) or "role" in value:
        return False
    if isinstance(value.get("kind"), str):
        return {"id", "source", "timestamp"} <= value.keys() and value["kind"].endswith(_EVENT_KIND_SUFFIXES)
    names = [value[key] for key in ("action", "observation") if isinstance(value.get(key), str)]
    content_keys = {"args", "extras", "thought", "content", "outputs"}
    return len(names) == 1 and names[0] in _KNOWN_NAMES and bool(content_keys & value.keys())


def name_openhands_event(event: dict[str, Any]) -> str:
    """Return the name of an event for the counts in `Session.records`."""
    for key in ("kind", "action", "observation"):
        if name := text_at(event, key):
            return name if key == "kind" else f"{key} {name}"
    return "?"


def parse_openhands_event(event: dict[str, Any], model_info: ModelFacts, *, has_spoken: bool) -> Iterator[EventFact]:
    """Yield the facts of an event.

    `has_spoken` is True if the model has already answered. The parser uses this to infer the author of a message
    without a source.
    """
    if isinstance(event.get("kind"), str):
        yield from _parse_sdk_event(event, model_info)
    elif isinstance(event.get("action"), str):
        yield from _parse_action(event, model_info, has_spoken=has_spoken)
    elif isinstance(event.get("observation"), str):
        yield from _parse_observation(event)


# Until 0.62


def _parse_action(event: dict[str, Any], model_info: ModelFacts, *, has_spoken: bool) -> Iterator[EventFact]:
    name, source = event["action"], event.get("source")
    args = event["args"] if isinstance(event.get("args"), dict) else event
    if name == "system":
        yield MessageFact(Message("system", _parse_content(args.get("content")), author="harness"))
    elif name == "condensation":
        yield _parse_condensation(args)
    elif name == "message":
        is_user = source == "user" if source else not (has_spoken and args.get("wait_for_response") is True)
        urls = list_at(args, "image_urls") or list_at(args, "images_urls")
        parts = (*_parse_content(args.get("content")), *map(parse_image_url, filter(_is_text, urls)))
        if is_user:
            yield MessageFact(_make_user_message(parts))
        elif source == "environment":
            yield MessageFact(Message("user", parts, author="harness"))
        else:
            yield MessageFact(Message("assistant", parts, author="model", model=model_info.model))
    elif name in _HIDDEN_NAMES:
        return
    elif source == "user":
        command = args.get("command") or dump_json(_select_call_arguments(args))
        yield MessageFact(Message("user", (Text(f"$ {command}"),), author="human"))
    else:
        yield _parse_action_call(event, name, args, model_info)


def _parse_condensation(args: dict[str, Any]) -> CondensationFact:
    first, last = args.get("forgotten_events_start_id"), args.get("forgotten_events_end_id")
    ids = frozenset(str(id_) for id_ in list_at(args, "forgotten_event_ids") if isinstance(id_, int | str))
    span = (first, last) if type(first) is int and type(last) is int else (0, -1)
    return CondensationFact(text_at(args, "summary"), ids, *span)


def _parse_action_call(event: dict[str, Any], name: str, args: dict[str, Any], model_info: ModelFacts) -> CallFact:
    metadata = dict_at(event, "tool_call_metadata")
    response = dict_at(metadata, "model_response")
    message = dict_at(next(iter(list_at(response, "choices")), None), "message")
    id_ = text_at(metadata, "tool_call_id")
    functions = (dict_at(wire, "function") for wire in list_at(message, "tool_calls") if value_at(wire, "id") == id_)
    function = next(functions, {}) if id_ else {}
    arguments = text_at(function, "arguments") or dump_json(_select_call_arguments(args))
    thought = args.get("thought")
    thought_text = thought if isinstance(thought, str) else value_at(thought, "text")
    content = _parse_content(message.get("content")) or _parse_content(thought_text)
    thinking = _parse_thinking(message) or _parse_thinking(as_dict(thought))
    call_name = text_at(function, "name") or text_at(metadata, "function_name") or name
    response_id = text_at(response, "id")
    usage = parse_openai_chat_usage(response.get("usage")) or model_info.usages.get(response_id)
    model = text_at(response, "model") or model_info.model
    return CallFact(response_id, (*thinking, *content), ToolCall(id_, call_name, arguments), model, usage)


def _select_call_arguments(args: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in args.items() if key not in _NON_ARGUMENTS}


def _parse_observation(event: dict[str, Any]) -> Iterator[EventFact]:
    name = event["observation"]
    extras = event["extras"] if isinstance(event.get("extras"), dict) else event
    if name == "recall":
        yield from _parse_recall(extras)
        return
    if name in _HIDDEN_NAMES:
        return
    metadata = dict_at(extras, "metadata")
    code = metadata.get("exit_code", extras.get("exit_code"))
    output = text_at(extras, "formatted_output_and_error") or event.get("content")
    output = output or text_at(extras, "outputs", "content")  # the output of a delegate
    if isinstance(output, str):
        output = f"{text_at(metadata, 'prefix')}{output}{text_at(metadata, 'suffix')}"
    images = (parse_image_url(url) for url in list_at(extras, "image_urls") if _is_text(url) and url)
    cause = event.get("cause")
    keys = (str(cause) if type(cause) is int else "", text_at(event, "tool_call_metadata", "tool_call_id"))
    failed = name in ("error", "user_rejected") or code not in (None, 0, STILL_RUNNING_EXIT_CODE)
    yield ResultFact(keys, (*_parse_content(output), *images), failed, "harness" if name == "error" else "tool")


def _parse_recall(extras: dict[str, Any]) -> Iterator[EventFact]:
    """Yield a message with the project's instructions and the knowledge that keywords triggered."""
    keys = ("repo_instructions", "conversation_instructions", "additional_agent_instructions")
    texts = [text_at(extras, key) for key in keys]
    texts += [text_at(knowledge, "content") for knowledge in list_at(extras, "microagent_knowledge")]
    yield MessageFact(Message("user", tuple(Text(text) for text in texts if text.strip()), author="harness"))


# Since 1.0


def _parse_sdk_event(event: dict[str, Any], model_info: ModelFacts) -> Iterator[EventFact]:
    match event.get("kind"):
        case "SystemPromptEvent":
            prompts = (event.get("system_prompt"), event.get("dynamic_context"))
            parts = tuple(part for prompt in prompts for part in _parse_content(prompt))
            yield MessageFact(Message("system", parts, author="harness"))
        case "MessageEvent":
            yield from _parse_sdk_message(event, model_info)
        case "ActionEvent":
            yield _parse_sdk_call(event, model_info)
        case "ObservationEvent":
            observation = dict_at(event, "observation")
            content = (*_parse_sdk_observation(observation), *_parse_content(event.get("extended_content")))
            yield ResultFact(_call_keys(event), content, _has_failed(observation), "tool")
        case "AgentErrorEvent":
            yield ResultFact(_call_keys(event), _parse_content(event.get("error")), True, "harness")
        case "UserRejectObservation":
            reason = text_at(event, "rejection_reason") or "the user rejected it"
            yield ResultFact(_call_keys(event), (Text(f"Action rejected: {reason}"),), True, None)
        case "Condensation":
            yield _parse_condensation(event)
        case "CondensationSummaryEvent":
            yield CondensationFact(text_at(event, "summary"), frozenset(), 0, -1)


def _parse_sdk_message(event: dict[str, Any], model_info: ModelFacts) -> Iterator[EventFact]:
    wire = dict_at(event, "llm_message")
    parts: tuple[Part, ...] = _parse_content(wire.get("content"))
    if event.get("source") == "agent":
        parts = (*_parse_thinking(wire), *parts)
        usage = model_info.usages.get(text_at(event, "llm_response_id"))
        yield MessageFact(Message("assistant", parts, author="model", model=model_info.model, usage=usage))
        return
    is_user = event.get("source") == "user"
    yield MessageFact(_make_user_message(parts) if is_user else Message("user", parts, author="harness"))
    yield MessageFact(Message("user", _parse_content(event.get("extended_content")), author="harness"))


def _parse_sdk_call(event: dict[str, Any], model_info: ModelFacts) -> CallFact:
    wire = dict_at(event, "tool_call")
    function = dict_at(wire, "function") or wire  # the first releases used OpenAI's schema
    wire_arguments = function.get("arguments")
    if not isinstance(wire_arguments, str | dict):
        wire_arguments = {key: value for key, value in dict_at(event, "action").items() if key != "kind"}
    id_ = text_at(event, "tool_call_id") or text_at(wire, "id")
    name = text_at(event, "tool_name") or text_at(function, "name")
    response = text_at(event, "llm_response_id")
    content = (*_parse_thinking(event), *_parse_content(event.get("thought")))
    call = ToolCall(id_, name, json_text(wire_arguments))
    return CallFact(response, content, call, model_info.model, model_info.usages.get(response))


def _call_keys(event: dict[str, Any]) -> tuple[str, ...]:
    return text_at(event, "action_id"), text_at(event, "tool_call_id")


def _parse_sdk_observation(observation: dict[str, Any]) -> tuple[ResultPart, ...]:
    """Return the content of an SDK observation; the first releases had no `content` field."""
    metadata = dict_at(observation, "metadata")
    content = _parse_content(observation.get("content"))
    if not content and "content" not in observation:
        texts = (text_at(observation, key) for key in ("output", "message", "error"))
        content = _parse_content("\n".join(filter(None, texts)))
    prefix, suffix = text_at(metadata, "prefix"), text_at(metadata, "suffix")
    if len(content) == 1 and isinstance(content[0], Text):
        return (Text(f"{prefix}{content[0].text}{suffix}"),)
    return (*_parse_content(prefix), *content, *_parse_content(suffix))


def _has_failed(observation: dict[str, Any]) -> bool:
    code = observation.get("exit_code", value_at(observation, "metadata", "exit_code"))
    error = observation.get("error")
    return observation.get("is_error") is True or bool(error) or code not in (None, 0, STILL_RUNNING_EXIT_CODE)


# Parts


def _make_user_message(parts: tuple[Part, ...]) -> Message:
    text = next((part.text for part in parts if isinstance(part, Text)), "")
    author = "harness" if text.startswith(HARNESS_NUDGES) else infer_message_author("user", parts)
    return Message("user", parts, author=author)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _parse_content(value: Any) -> tuple[ResultPart, ...]:
    """Parse content: text, a list of content items or a single item."""
    if isinstance(value, str):
        return text_parts(value)
    items = value if isinstance(value, list) else () if value is None else (value,)
    return tuple(part for item in items for part in _parse_content_item(item))


def _parse_content_item(item: Any) -> Iterator[ResultPart]:
    match item:
        case str(text) | {"type": "text", "text": str(text)}:
            if text:
                yield Text(text)
        case {"type": "image", "image_urls": list(urls)}:
            for url in urls:
                yield parse_image_url(url) if isinstance(url, str) else Unknown("image", dump_json(url))
        case {"type": "image", "data": str(data), **rest}:
            yield Image(text_at(rest, "mimeType"), data)
        case _:
            yield unknown_part(item)


def _parse_thinking(wire: dict[str, Any]) -> tuple[Thinking, ...]:
    item = dict_at(wire, "responses_reasoning_item")
    text = text_at(wire, "reasoning_content") or "\n".join(filter(_is_text, list_at(item, "summary")))
    encrypted = text_at(item, "encrypted_content")
    return tuple(parse_thinking_blocks(wire)) or ((Thinking(text, encrypted),) if text or encrypted else ())
