"""OpenHands' events, of both generations, as facts: what was said, called, answered, or summed up.

Until 0.62 an event is an action or an observation, with the model's whole response beside every call; the oldest are
flat. Since 1.0 (the SDK) it has a `kind`. A fact says what an event means for the conversation; events that mean
nothing for it (state, pauses, tokens) have none.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from thresher.dialects.content import infer_message_author, parse_image_url
from thresher.model import Author, Message, Usage
from thresher.model.jsontext import dump_json
from thresher.model.parts import Image, Part, ResultPart, Text, Thinking, ToolCall, Unknown
from thresher.transcripts.base import parse_openai_chat_usage
from thresher.transcripts.coerce import as_dict, dict_at, first_text, list_at, text_at, value_at
from thresher.transcripts.content import text_parts, unknown_part

HARNESS_NUDGES = (
    "Your last response did not include a function call or a message",
    "The task appears incomplete (iteration ",
    "Please continue working on the task on whatever approach you think is suitable",
)
"""How messages begin that the harness sends in the user's name."""
HIDDEN_EVENT_NAMES = (
    "null recall start initialize change_agent_state pause resume stop push send_pr condensation_request",
    "loop_recovery agent_state_changed loop_detection success summarize",
)
"""Actions and observations that no model is shown."""
VISIBLE_EVENT_NAMES = (
    "message system read write edit run run_ipython browse browse_interactive call_tool_mcp mcp delegate think",
    "finish reject condensation condense task_tracking error user_rejected chat download",
)
"""Those that one is shown."""
NON_ARGUMENT_KEYS = (
    "action observation thought is_confirmed confirmation_state security_risk kernel_init_code hidden blocking",
    "keep_prompt is_static include_extra impl_source translated_ipython_code id timestamp source message cause timeout",
)
"""What stands among an action's arguments that the model did not give."""
_HIDDEN_NAMES, _KNOWN_NAMES, _NON_ARGUMENTS = (
    frozenset(" ".join(words).split())
    for words in (HIDDEN_EVENT_NAMES, (*HIDDEN_EVENT_NAMES, *VISIBLE_EVENT_NAMES), NON_ARGUMENT_KEYS)
)
_EVENT_KIND_SUFFIXES = ("Event", "Observation", "Condensation", "CondensationRequest")
STILL_RUNNING_EXIT_CODE = -1
"""The exit code of a command that has not come to an end."""


class MessageFact(NamedTuple):
    """A message of its own."""

    message: Message


class CallFact(NamedTuple):
    """A call; all calls of one response are one message."""

    response_id: str
    """The id of the model's response; empty where it is not told."""
    leading_parts: tuple[Part, ...]
    """What the model thought and said before its calls."""
    call: ToolCall
    model: str
    usage: Usage | None


class ResultFact(NamedTuple):
    """What a call gave."""

    call_keys: tuple[str, ...]
    """What names the call: the event that made it, or the call's id; the first that is known counts."""
    content: tuple[ResultPart, ...]
    is_error: bool
    fallback_author: Author | None
    """Who says it where there is no such call; None: nobody."""


class CondensationFact(NamedTuple):
    """Events are forgotten, and a summary may stand for them."""

    summary: str
    forgotten_ids: frozenset[str]
    first_forgotten: int
    last_forgotten: int
    """The numbers between which all are forgotten; none where the last is smaller."""

    def is_forgotten(self, event: str) -> bool:
        """Whether an event, by its id, is no longer shown."""
        if event in self.forgotten_ids:
            return True
        return (
            self.first_forgotten <= self.last_forgotten
            and event.isdecimal()
            and len(event) < 19
            and self.first_forgotten <= int(event) <= self.last_forgotten
        )


EventFact = MessageFact | CallFact | ResultFact | CondensationFact


class ModelFacts(NamedTuple):
    """What is known beside the events."""

    model: str
    usages: Mapping[str, Usage]
    """The bill of each response, by its id."""


def is_openhands_event(value: Any) -> bool:
    """Whether a value is an event of either generation."""
    if not isinstance(value, dict) or "role" in value:
        return False
    if isinstance(value.get("kind"), str):
        return {"id", "source", "timestamp"} <= value.keys() and value["kind"].endswith(_EVENT_KIND_SUFFIXES)
    told = [value[key] for key in ("action", "observation") if isinstance(value.get(key), str)]
    around = {"args", "extras", "thought", "content", "outputs"}
    return len(told) == 1 and told[0] in _KNOWN_NAMES and bool(around & value.keys())


def name_openhands_event(event: dict[str, Any]) -> str:
    """What an event is counted as."""
    for key in ("kind", "action", "observation"):
        if word := text_at(event, key):
            return word if key == "kind" else f"{key} {word}"
    return "?"


def parse_openhands_event(event: dict[str, Any], told: ModelFacts, *, has_spoken: bool) -> Iterator[EventFact]:
    """What an event means; `has_spoken` helps where it does not say who speaks."""
    if isinstance(event.get("kind"), str):
        yield from _parse_sdk_event(event, told)
    elif isinstance(event.get("action"), str):
        yield from _parse_action(event, told, has_spoken=has_spoken)
    elif isinstance(event.get("observation"), str):
        yield from _parse_observation(event)


# Until 0.62


def _parse_action(event: dict[str, Any], told: ModelFacts, *, has_spoken: bool) -> Iterator[EventFact]:
    name, source = event["action"], event.get("source")
    args = event["args"] if isinstance(event.get("args"), dict) else event
    if name == "system":
        yield MessageFact(Message("system", _parse_content(args.get("content")), author="harness"))
    elif name == "condensation":
        yield _parse_condensation(args)
    elif name == "message":
        is_users = source == "user" if source else not (has_spoken and args.get("wait_for_response") is True)
        pictures = list_at(args, "image_urls") or list_at(args, "images_urls")
        parts = (*_parse_content(args.get("content")), *map(parse_image_url, filter(_is_text, pictures)))
        spoken = (
            Message("user", parts, author="harness") if source == "environment" else _make_model_message(parts, told)
        )
        yield MessageFact(_make_user_message(parts) if is_users else spoken)
    elif name in _HIDDEN_NAMES:
        return
    elif source == "user":
        command = args.get("command") or dump_json(_select_call_arguments(args))
        yield MessageFact(Message("user", (Text(f"$ {command}"),), author="human"))
    else:
        yield _parse_action_call(event, name, args, told)


def _parse_condensation(args: dict[str, Any]) -> CondensationFact:
    first, last = args.get("forgotten_events_start_id"), args.get("forgotten_events_end_id")
    ids = frozenset(str(id_) for id_ in list_at(args, "forgotten_event_ids") if isinstance(id_, int | str))
    span = (first, last) if type(first) is int and type(last) is int else (0, -1)
    return CondensationFact(text_at(args, "summary"), ids, *span)


def _parse_action_call(event: dict[str, Any], name: str, args: dict[str, Any], told: ModelFacts) -> CallFact:
    metadata = dict_at(event, "tool_call_metadata")
    response = dict_at(metadata, "model_response")
    said = dict_at(next(iter(list_at(response, "choices")), None), "message")
    id_ = text_at(metadata, "tool_call_id")
    calls = (dict_at(one, "function") for one in list_at(said, "tool_calls") if value_at(one, "id") == id_)
    asked = next(calls, {}) if id_ else {}
    arguments = text_at(asked, "arguments") or dump_json(_select_call_arguments(args))
    thought = args.get("thought")
    plain = thought if isinstance(thought, str) else value_at(thought, "text")
    words = _parse_content(said.get("content")) or _parse_content(plain)
    thinking = _parse_thinking(said) or _parse_thinking(as_dict(thought))
    called = text_at(asked, "name") or text_at(metadata, "function_name") or name
    answered = text_at(response, "id")
    usage = parse_openai_chat_usage(response.get("usage")) or told.usages.get(answered)
    model = text_at(response, "model") or told.model
    return CallFact(answered, (*thinking, *words), ToolCall(id_, called, arguments), model, usage)


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
    shown = text_at(extras, "formatted_output_and_error") or event.get("content")
    shown = shown or text_at(extras, "outputs", "content")  # of a delegate
    if isinstance(shown, str):
        shown = f"{text_at(metadata, 'prefix')}{shown}{text_at(metadata, 'suffix')}"
    pictures = (parse_image_url(url) for url in list_at(extras, "image_urls") if _is_text(url) and url)
    cause = event.get("cause")
    keys = (str(cause) if type(cause) is int else "", text_at(event, "tool_call_metadata", "tool_call_id"))
    failed = name in ("error", "user_rejected") or code not in (None, 0, STILL_RUNNING_EXIT_CODE)
    yield ResultFact(keys, (*_parse_content(shown), *pictures), failed, "harness" if name == "error" else "tool")


def _parse_recall(extras: dict[str, Any]) -> Iterator[EventFact]:
    """Instructions of the project, and knowledge that a word called up."""
    named = ("repo_instructions", "conversation_instructions", "additional_agent_instructions")
    texts = [text_at(extras, key) for key in named]
    texts += [text_at(one, "content") for one in list_at(extras, "microagent_knowledge")]
    yield MessageFact(Message("user", tuple(Text(word) for word in texts if word.strip()), author="harness"))


# Since 1.0


def _parse_sdk_event(event: dict[str, Any], told: ModelFacts) -> Iterator[EventFact]:
    match event.get("kind"):
        case "SystemPromptEvent":
            shown = (event.get("system_prompt"), event.get("dynamic_context"))
            parts = tuple(part for one in shown for part in _parse_content(one))
            yield MessageFact(Message("system", parts, author="harness"))
        case "MessageEvent":
            yield from _parse_sdk_message(event, told)
        case "ActionEvent":
            yield _parse_sdk_call(event, told)
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


def _parse_sdk_message(event: dict[str, Any], told: ModelFacts) -> Iterator[EventFact]:
    wire = dict_at(event, "llm_message")
    parts = _parse_content(wire.get("content"))
    if event.get("source") == "agent":
        said = _make_model_message((*_parse_thinking(wire), *parts), told)
        usage = told.usages.get(text_at(event, "llm_response_id"))
        yield MessageFact(Message(said.role, said.parts, author="model", model=said.model, usage=usage))
        return
    asked = _make_user_message(parts)
    yield MessageFact(asked if event.get("source") == "user" else Message("user", parts, author="harness"))
    yield MessageFact(Message("user", _parse_content(event.get("extended_content")), author="harness"))


def _parse_sdk_call(event: dict[str, Any], told: ModelFacts) -> CallFact:
    wire = dict_at(event, "tool_call")
    inner = dict_at(wire, "function") or wire  # the first releases wrote it as OpenAI does
    given = inner.get("arguments")
    action = {key: value for key, value in dict_at(event, "action").items() if key != "kind"}
    arguments = given if isinstance(given, str) else dump_json(given if isinstance(given, dict) else action)
    id_ = text_at(event, "tool_call_id") or text_at(wire, "id")
    call = ToolCall(id_, text_at(event, "tool_name") or text_at(inner, "name"), arguments)
    response = text_at(event, "llm_response_id")
    words = (*_parse_thinking(event), *_parse_content(event.get("thought")))
    return CallFact(response, words, call, told.model, told.usages.get(response))


def _call_keys(event: dict[str, Any]) -> tuple[str, ...]:
    return text_at(event, "action_id"), text_at(event, "tool_call_id")


def _parse_sdk_observation(observation: dict[str, Any]) -> tuple[ResultPart, ...]:
    """What a tool shows; the first releases had no `content` yet."""
    metadata = dict_at(observation, "metadata")
    content = _parse_content(observation.get("content"))
    if not content and "content" not in observation:
        told = [text_at(observation, key) for key in ("output", "message", "error")]
        content = _parse_content("\n".join(word for word in told if word))
    lead, trail = text_at(metadata, "prefix"), text_at(metadata, "suffix")
    if len(content) == 1 and isinstance(content[0], Text):
        return (Text(f"{lead}{content[0].text}{trail}"),)
    return (*_parse_content(lead), *content, *_parse_content(trail))


def _has_failed(observation: dict[str, Any]) -> bool:
    code = observation.get("exit_code", value_at(observation, "metadata", "exit_code"))
    error = observation.get("error")
    return observation.get("is_error") is True or bool(error) or code not in (None, 0, STILL_RUNNING_EXIT_CODE)


# Parts


def _make_model_message(parts: tuple[Part, ...], told: ModelFacts) -> Message:
    return Message("assistant", parts, author="model", model=told.model)


def _make_user_message(parts: tuple[ResultPart, ...]) -> Message:
    words = next((part.text for part in parts if isinstance(part, Text)), "")
    author = "harness" if words.startswith(HARNESS_NUDGES) else infer_message_author("user", parts)
    return Message("user", parts, author=author)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _parse_content(value: Any) -> tuple[ResultPart, ...]:
    """Words, pieces, or one piece alone."""
    if isinstance(value, str):
        return text_parts(value)
    pieces = value if isinstance(value, list) else () if value is None else (value,)
    return tuple(part for piece in pieces for part in _parse_piece(piece))


def _parse_piece(piece: Any) -> Iterator[ResultPart]:
    match piece:
        case str(words) | {"type": "text", "text": str(words)}:
            if words:
                yield Text(words)
        case {"type": "image", "image_urls": list(urls)}:
            for url in urls:
                yield parse_image_url(url) if isinstance(url, str) else Unknown("image", dump_json(url))
        case {"type": "image", "data": str(data), **rest}:
            yield Image(text_at(rest, "mimeType"), data)
        case _:
            yield unknown_part(piece)


def _parse_thinking(wire: dict[str, Any]) -> tuple[Thinking, ...]:
    blocks = map(as_dict, list_at(wire, "thinking_blocks"))
    found = (Thinking(text_at(b, "thinking"), first_text(b, "signature", "data")) for b in blocks)
    signed = tuple(one for one in found if one.text or one.signature)
    item = dict_at(wire, "responses_reasoning_item")
    shown = text_at(wire, "reasoning_content") or "\n".join(filter(_is_text, list_at(item, "summary")))
    secret = text_at(item, "encrypted_content")
    return signed or ((Thinking(shown, secret),) if shown or secret else ())
