"""OpenHands' events, of both generations, as facts: what was said, called, answered, or summed up.

Until 0.62 an event is an action or an observation, with the model's whole response beside every call; the oldest are
flat. Since 1.0 (the SDK) it has a `kind`. A fact says what an event means for the conversation; events that mean
nothing for it (state, pauses, tokens) have none.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from thresher.formats.dialect import author_for, image_from_url
from thresher.formats.loose import at, fields, items, text
from thresher.formats.transcript import chat_usage
from thresher.model import Author, Image, Message, Text, Thinking, ToolCall, Unknown, Usage
from thresher.model.jsontext import dump
from thresher.model.parts import Part, ResultPart

NUDGES = (
    "Your last response did not include a function call or a message",
    "The task appears incomplete (iteration ",
    "Please continue working on the task on whatever approach you think is suitable",
)
"""How messages begin that the harness sends in the user's name."""
ASIDE = (
    "null recall start initialize change_agent_state pause resume stop push send_pr condensation_request",
    "loop_recovery agent_state_changed loop_detection success summarize",
)
"""Actions and observations that no model is shown."""
SHOWN = (
    "message system read write edit run run_ipython browse browse_interactive call_tool_mcp mcp delegate think",
    "finish reject condensation condense task_tracking error user_rejected chat download",
)
"""Those that one is shown."""
NOT_ARGUMENTS = (
    "action observation thought is_confirmed confirmation_state security_risk kernel_init_code hidden blocking",
    "keep_prompt is_static include_extra impl_source translated_ipython_code id timestamp source message cause timeout",
)
"""What stands among an action's arguments that the model did not give."""
_ASIDE, _KNOWN, _AROUND = (frozenset(" ".join(words).split()) for words in (ASIDE, (*ASIDE, *SHOWN), NOT_ARGUMENTS))
_KINDS = ("Event", "Observation", "Condensation", "CondensationRequest")
STILL_RUNNING = -1
"""The exit code of a command that has not come to an end."""


class Said(NamedTuple):
    """A message of its own."""

    message: Message


class Called(NamedTuple):
    """A call; all calls of one response are one message."""

    response: str
    """The id of the model's response; empty where it is not told."""
    words: tuple[Part, ...]
    """What the model thought and said before its calls."""
    call: ToolCall
    model: str
    usage: Usage | None


class Answered(NamedTuple):
    """What a call gave."""

    keys: tuple[str, ...]
    """What names the call: the event that made it, or the call's id; the first that is known counts."""
    content: tuple[ResultPart, ...]
    is_error: bool
    otherwise: Author | None
    """Who says it where there is no such call; None: nobody."""


class Condensed(NamedTuple):
    """Events are forgotten, and a summary may stand for them."""

    summary: str
    forgotten: frozenset[str]
    first: int
    last: int
    """The numbers between which all are forgotten; none where the last is smaller."""

    def forgets(self, event: str) -> bool:
        """Whether an event, by its id, is no longer shown."""
        if event in self.forgotten:
            return True
        return (
            self.first <= self.last and event.isdecimal() and len(event) < 19 and self.first <= int(event) <= self.last
        )


Fact = Said | Called | Answered | Condensed


class Told(NamedTuple):
    """What is known beside the events."""

    model: str
    bills: Mapping[str, Usage]
    """The bill of each response, by its id."""


def is_event(value: Any) -> bool:
    """Whether a value is an event of either generation."""
    if not isinstance(value, dict) or "role" in value:
        return False
    if isinstance(value.get("kind"), str):
        return {"id", "source", "timestamp"} <= value.keys() and value["kind"].endswith(_KINDS)
    told = [value[key] for key in ("action", "observation") if isinstance(value.get(key), str)]
    around = {"args", "extras", "thought", "content", "outputs"}
    return len(told) == 1 and told[0] in _KNOWN and bool(around & value.keys())


def name_of(event: dict[str, Any]) -> str:
    """What an event is counted as."""
    for key in ("kind", "action", "observation"):
        if word := text(event.get(key)):
            return word if key == "kind" else f"{key} {word}"
    return "?"


def facts_of(event: dict[str, Any], told: Told, *, has_spoken: bool) -> Iterator[Fact]:
    """What an event means; `has_spoken` helps where it does not say who speaks."""
    if isinstance(event.get("kind"), str):
        yield from _of_sdk(event, told)
    elif isinstance(event.get("action"), str):
        yield from _of_action(event, told, has_spoken=has_spoken)
    elif isinstance(event.get("observation"), str):
        yield from _of_observation(event)


# Until 0.62


def _of_action(event: dict[str, Any], told: Told, *, has_spoken: bool) -> Iterator[Fact]:
    name, source = event["action"], event.get("source")
    args = event["args"] if isinstance(event.get("args"), dict) else event
    if name == "system":
        yield Said(Message("system", _content(args.get("content")), author="harness"))
    elif name == "condensation":
        yield _condensed(args)
    elif name == "message":
        is_users = source == "user" if source else not (has_spoken and args.get("wait_for_response") is True)
        pictures = items(args.get("image_urls")) or items(args.get("images_urls"))
        parts = (*_content(args.get("content")), *map(image_from_url, filter(_is_text, pictures)))
        spoken = Message("user", parts, author="harness") if source == "environment" else _spoken(parts, told)
        yield Said(_asked(parts) if is_users else spoken)
    elif name in _ASIDE:
        return
    elif source == "user":
        yield Said(Message("user", (Text(f"$ {args.get('command') or dump(_arguments(args))}"),), author="human"))
    else:
        yield _called(event, name, args, told)


def _condensed(args: dict[str, Any]) -> Condensed:
    first, last = args.get("forgotten_events_start_id"), args.get("forgotten_events_end_id")
    ids = frozenset(str(id_) for id_ in items(args.get("forgotten_event_ids")) if isinstance(id_, int | str))
    span = (first, last) if type(first) is int and type(last) is int else (0, -1)
    return Condensed(text(args.get("summary")), ids, *span)


def _called(event: dict[str, Any], name: str, args: dict[str, Any], told: Told) -> Called:
    metadata = fields(event.get("tool_call_metadata"))
    response = fields(metadata.get("model_response"))
    said = fields(fields(next(iter(items(response.get("choices"))), None)).get("message"))
    id_ = text(metadata.get("tool_call_id"))
    calls = (
        fields(fields(one).get("function")) for one in items(said.get("tool_calls")) if fields(one).get("id") == id_
    )
    asked = next(calls, {}) if id_ else {}
    arguments = text(asked.get("arguments")) or dump(_arguments(args))
    thought = args.get("thought")
    words = _content(said.get("content")) or _content(thought if isinstance(thought, str) else at(thought, "text"))
    thinking = _thinking(said) or _thinking(fields(thought))
    called = text(asked.get("name")) or text(metadata.get("function_name")) or name
    answered = text(response.get("id"))
    usage = chat_usage(response.get("usage")) or told.bills.get(answered)
    model = text(response.get("model")) or told.model
    return Called(answered, (*thinking, *words), ToolCall(id_, called, arguments), model, usage)


def _arguments(args: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in args.items() if key not in _AROUND}


def _of_observation(event: dict[str, Any]) -> Iterator[Fact]:
    name = event["observation"]
    extras = event["extras"] if isinstance(event.get("extras"), dict) else event
    if name == "recall":
        yield from _recalled(extras)
        return
    if name in _ASIDE:
        return
    metadata = fields(extras.get("metadata"))
    code = metadata.get("exit_code", extras.get("exit_code"))
    shown = text(extras.get("formatted_output_and_error")) or event.get("content")
    shown = shown or text(at(extras, "outputs", "content"))  # of a delegate
    if isinstance(shown, str):
        shown = f"{text(metadata.get('prefix'))}{shown}{text(metadata.get('suffix'))}"
    pictures = (image_from_url(url) for url in items(extras.get("image_urls")) if _is_text(url) and url)
    cause = event.get("cause")
    keys = (str(cause) if type(cause) is int else "", text(at(event, "tool_call_metadata", "tool_call_id")))
    failed = name in ("error", "user_rejected") or code not in (None, 0, STILL_RUNNING)
    yield Answered(keys, (*_content(shown), *pictures), failed, "harness" if name == "error" else "tool")


def _recalled(extras: dict[str, Any]) -> Iterator[Fact]:
    """Instructions of the project, and knowledge that a word called up."""
    named = ("repo_instructions", "conversation_instructions", "additional_agent_instructions")
    texts = [text(extras.get(key)) for key in named]
    texts += [text(fields(one).get("content")) for one in items(extras.get("microagent_knowledge"))]
    yield Said(Message("user", tuple(Text(word) for word in texts if word.strip()), author="harness"))


# Since 1.0


def _of_sdk(event: dict[str, Any], told: Told) -> Iterator[Fact]:
    match event.get("kind"):
        case "SystemPromptEvent":
            shown = (event.get("system_prompt"), event.get("dynamic_context"))
            yield Said(Message("system", tuple(part for one in shown for part in _content(one)), author="harness"))
        case "MessageEvent":
            yield from _of_message(event, told)
        case "ActionEvent":
            yield _of_call(event, told)
        case "ObservationEvent":
            observation = fields(event.get("observation"))
            content = (*_observed(observation), *_content(event.get("extended_content")))
            yield Answered(_call_keys(event), content, _has_failed(observation), "tool")
        case "AgentErrorEvent":
            yield Answered(_call_keys(event), _content(event.get("error")), True, "harness")
        case "UserRejectObservation":
            reason = text(event.get("rejection_reason")) or "the user rejected it"
            yield Answered(_call_keys(event), (Text(f"Action rejected: {reason}"),), True, None)
        case "Condensation":
            yield _condensed(event)
        case "CondensationSummaryEvent":
            yield Condensed(text(event.get("summary")), frozenset(), 0, -1)


def _of_message(event: dict[str, Any], told: Told) -> Iterator[Fact]:
    wire = fields(event.get("llm_message"))
    parts = _content(wire.get("content"))
    if event.get("source") == "agent":
        said = _spoken((*_thinking(wire), *parts), told)
        usage = told.bills.get(text(event.get("llm_response_id")))
        yield Said(Message(said.role, said.parts, author="model", model=said.model, usage=usage))
        return
    asked = _asked(parts)
    yield Said(asked if event.get("source") == "user" else Message("user", parts, author="harness"))
    yield Said(Message("user", _content(event.get("extended_content")), author="harness"))


def _of_call(event: dict[str, Any], told: Told) -> Called:
    wire = fields(event.get("tool_call"))
    inner = fields(wire.get("function")) or wire  # the first releases wrote it as OpenAI does
    given = inner.get("arguments")
    action = {key: value for key, value in fields(event.get("action")).items() if key != "kind"}
    arguments = given if isinstance(given, str) else dump(given if isinstance(given, dict) else action)
    id_ = text(event.get("tool_call_id")) or text(wire.get("id"))
    call = ToolCall(id_, text(event.get("tool_name")) or text(inner.get("name")), arguments)
    response = text(event.get("llm_response_id"))
    words = (*_thinking(event), *_content(event.get("thought")))
    return Called(response, words, call, told.model, told.bills.get(response))


def _call_keys(event: dict[str, Any]) -> tuple[str, ...]:
    return text(event.get("action_id")), text(event.get("tool_call_id"))


def _observed(observation: dict[str, Any]) -> tuple[ResultPart, ...]:
    """What a tool shows; the first releases had no `content` yet."""
    metadata = fields(observation.get("metadata"))
    content = _content(observation.get("content"))
    if not content and "content" not in observation:
        told = [text(observation.get(key)) for key in ("output", "message", "error")]
        content = _content("\n".join(word for word in told if word))
    lead, trail = text(metadata.get("prefix")), text(metadata.get("suffix"))
    if len(content) == 1 and isinstance(content[0], Text):
        return (Text(f"{lead}{content[0].text}{trail}"),)
    return (*_content(lead), *content, *_content(trail))


def _has_failed(observation: dict[str, Any]) -> bool:
    code = observation.get("exit_code", at(observation, "metadata", "exit_code"))
    error = observation.get("error")
    return observation.get("is_error") is True or bool(error) or code not in (None, 0, STILL_RUNNING)


# Parts


def _spoken(parts: tuple[Part, ...], told: Told) -> Message:
    return Message("assistant", parts, author="model", model=told.model)


def _asked(parts: tuple[ResultPart, ...]) -> Message:
    words = next((part.text for part in parts if isinstance(part, Text)), "")
    author = "harness" if words.startswith(NUDGES) else author_for("user", parts)
    return Message("user", parts, author=author)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _content(value: Any) -> tuple[ResultPart, ...]:
    """Words, pieces, or one piece alone."""
    if isinstance(value, str):
        return (Text(value),) if value else ()
    pieces = value if isinstance(value, list) else () if value is None else (value,)
    return tuple(part for piece in pieces for part in _parts(piece))


def _parts(piece: Any) -> Iterator[ResultPart]:
    match piece:
        case str(words) | {"type": "text", "text": str(words)}:
            if words:
                yield Text(words)
        case {"type": "image", "image_urls": list(urls)}:
            yield from (image_from_url(url) if isinstance(url, str) else Unknown("image", dump(url)) for url in urls)
        case {"type": "image", "data": str(data), **rest}:
            yield Image(text(rest.get("mimeType")), data)
        case {"type": str(kind)}:
            yield Unknown(kind, dump(piece))
        case _:
            yield Unknown("", dump(piece))


def _thinking(wire: dict[str, Any]) -> tuple[Thinking, ...]:
    blocks = map(fields, items(wire.get("thinking_blocks")))
    found = (Thinking(text(b.get("thinking")), text(b.get("signature")) or text(b.get("data"))) for b in blocks)
    signed = tuple(one for one in found if one.text or one.signature)
    item = fields(wire.get("responses_reasoning_item"))
    shown = text(wire.get("reasoning_content")) or "\n".join(filter(_is_text, items(item.get("summary"))))
    secret = text(item.get("encrypted_content"))
    return signed or ((Thinking(shown, secret),) if shown or secret else ())
