"""What the wire formats share: lossless pockets, request bodies, and the way from one dialect to another.

A writer always renders a part from what the model knows, then puts back what the pocket holds. So an
untouched message comes out as it came in, and an edited part never shows its old text through the pocket:
fields that the model owns are kept out of it. A message in its own dialect is written one to one; one from
elsewhere is merged with its neighbours as the target wants it, and what the target cannot hold is said.
"""

import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

from msgspec import Struct, structs

from thresher.errors import FormatError
from thresher.model import History, Message, Pocket, Problem, Role
from thresher.model.jsontext import dump, load
from thresher.model.marks import author_of
from thresher.model.message import Author
from thresher.model.parts import Image, Part, Summary, Text, Thinking, ToolCall, ToolResult, Unknown

P = TypeVar("P", bound=Part)

_UNSAFE = re.compile(r"[^A-Za-z0-9_-]")
_GEMINI_TYPES = frozenset({"OBJECT", "STRING", "NUMBER", "INTEGER", "BOOLEAN", "ARRAY", "NULL"})


class ToolSpec(Struct, frozen=True):
    """A tool definition that every dialect can hold."""

    name: str
    description: str
    schema: Any


class Losses:
    """Collects what a target cannot hold, each kind of loss once with its places counted."""

    def __init__(self) -> None:
        """Start with none."""
        self._seen: dict[tuple[str, str], int] = {}

    def add(self, what: str, done: str) -> None:
        """Note one."""
        self._seen[what, done] = self._seen.get((what, done), 0) + 1

    def foreign(self, part: Thinking | Unknown) -> None:
        """Note a part that only its own vendor understands."""
        if isinstance(part, Thinking):
            self.add("thinking of another vendor's model", "left out: only its own vendor takes it back")
        else:
            self.add(f"part `{part.kind}` of another format", "left out")

    def problems(self) -> tuple[Problem, ...]:
        """All of them, in the order they were first met."""
        times = {1: ""}
        return tuple(Problem(what + times.get(n, f" ({n} times)"), done) for (what, done), n in self._seen.items())


def _differ(a: Any, b: Any) -> bool:
    return type(a) is not type(b) or a != b


def keep_rest(part: P, original: Mapping[str, Any], fresh: Mapping[str, Any], name: str) -> P | None:
    """The part with what `fresh`, its rendering, leaves out of `original`; None where they disagree."""
    rest = _rest(original, fresh)
    if not rest:
        return part if rest is not None else None
    return structs.replace(part, pocket=Pocket(name, dump(rest), shape=shape_of(part, name)))


def _rest(original: Mapping[str, Any], fresh: Mapping[str, Any]) -> dict[str, Any] | None:
    rest: dict[str, Any] = {}
    seen = 0
    for key, value in original.items():
        if key not in fresh:
            rest[key] = value
            continue
        seen += 1
        known = fresh[key]
        if isinstance(known, dict) and isinstance(value, dict):
            inner = _rest(value, known)
            if inner is None:
                return None
            if inner:
                rest[key] = inner
        elif _differ(known, value):
            return None
    return rest if seen == len(fresh) else None


def rest_of(part: Part | Message, name: str) -> dict[str, Any]:
    """What format `name` had written beside this."""
    pocket = part.pocket
    if pocket is None or pocket.format != name or not pocket.fields:
        return {}
    fields: dict[str, Any] = load(pocket.fields)
    return fields


def over_rest(fresh: dict[str, Any], rest: Mapping[str, Any]) -> dict[str, Any]:
    """`fresh` completed by `rest`, at every depth; where both speak, `fresh` is right."""
    for key, value in rest.items():
        if key not in fresh:
            fresh[key] = value
        elif isinstance(value, dict) and isinstance(fresh[key], dict):
            over_rest(fresh[key], value)
    return fresh


def shape_of(part: Part | Message, name: str) -> str:
    """The note that format `name` left on how it had written this."""
    return part.pocket.shape if part.pocket and part.pocket.format == name else ""


def noted(name: str, *words: str) -> Pocket | None:
    """A pocket with these words as its note; none where there is nothing to note."""
    shape = " ".join(word for word in words if word)
    return Pocket(name, shape=shape) if shape else None


def is_native(message: Message, name: str) -> bool:
    """Whether the message came from this very format."""
    return message.pocket is not None and message.pocket.format == name


def is_empty(message: Message) -> bool:
    """Whether a message holds nothing, or only texts without a word."""
    return all(isinstance(part, Text | Summary) and not part.text for part in message.parts)


def whole_message(name: str, value: Any) -> Message:
    """A message that is not as its format says: kept as it is, and written as it is."""
    kind = str(value.get("type") or value.get("role") or "") if isinstance(value, dict) else type(value).__name__
    return Message("user", (Unknown(kind, dump(value)),), author="harness", pocket=Pocket(name, shape="whole"))


def is_whole(message: Message, name: str) -> bool:
    """Whether the message is one that was kept as it is, and still is."""
    parts = message.parts
    return shape_of(message, name) == "whole" and len(parts) == 1 and isinstance(parts[0], Unknown)


def is_odd(message: Message, name: str) -> bool:
    """Whether the message is none that its format documents."""
    return is_whole(message, name) and message.author == "harness"


def whole_value(message: Message) -> Any:
    """What a message that `is_whole` was."""
    part = message.parts[0]
    return load(part.data) if isinstance(part, Unknown) else None


def author_for(role: Role, parts: tuple[Part, ...]) -> Author:
    """Who wrote a message of which only role and parts are known."""
    if role == "assistant":
        return "model"
    if role == "tool":
        return "tool"
    if role == "system":
        return "harness"
    said = [author_of(part.text) for part in parts if isinstance(part, Text)]
    if not said:
        return "harness" if any(isinstance(part, Summary) for part in parts) else "human"
    return "human" if "human" in said else said[0]


def split_body(name: str, value: Any, key: str) -> tuple[list[Any], dict[str, Any] | None]:
    """The messages of a request, and the body around them if it came as a whole one."""
    if isinstance(value, dict) and isinstance(value.get(key), list):
        return value[key], {k: v for k, v in value.items() if k != key}
    if isinstance(value, list):
        return value, None
    raise FormatError(
        f"`{name}` messages are a list, or a request body with a list under `{key}`; got {type(value).__name__}"
    )


def make_history(name: str, messages: list[Message], rest: dict[str, Any] | None) -> History:
    """A history with the body's other fields in its pocket and its tools at hand."""
    if rest is None:
        return History(tuple(messages), pocket=Pocket(name))
    tools = "" if rest.get("tools") is None else dump(rest.pop("tools"))
    return History(
        tuple(messages),
        tools=tools,
        pocket=Pocket(name, dump(rest) if rest else "", shape="body"),
    )


def body_rest(history: History, name: str, losses: Losses) -> dict[str, Any]:
    """The other fields of the body, where the history came in one of this format."""
    pocket = history.pocket
    if pocket is None or not pocket.fields:
        return {}
    if pocket.format == name:
        fields: dict[str, Any] = load(pocket.fields)
        return fields
    losses.add(f"request fields {', '.join(load(pocket.fields))} of `{pocket.format}`", "not carried over")
    return {}


def from_format(history: History, name: str) -> bool:
    """Whether the history's tools and body fields are in this dialect already."""
    return history.pocket is not None and history.pocket.format == name


_CHAT_FIELDS = frozenset({
    "response_format", "max_completion_tokens", "frequency_penalty", "presence_penalty", "logprobs", "logit_bias",
    "reasoning_effort", "modalities", "parallel_tool_calls", "stream_options", "functions", "function_call",
})  # fmt: skip
"""Fields of a request that Chat Completions has and Anthropic's Messages do not."""


def is_chat_body(value: Any) -> bool:
    """Whether a request names what only Chat Completions takes, or offers tools as it does."""
    if not isinstance(value, dict):
        return False
    tools = value.get("tools")
    offered = isinstance(tools, list) and any(isinstance(tool, dict) and "function" in tool for tool in tools)
    return offered or not _CHAT_FIELDS.isdisjoint(value)


def is_body(history: History) -> bool:
    """Whether the history came as a whole request."""
    return history.pocket is not None and history.pocket.shape == "body"


def wants_body(history: History, body: bool | None, losses: Losses, **needs: object) -> bool:
    """Whether to write a whole request; what `needs` one and gets none is a loss, by the name it is given."""
    if body is None:
        return is_body(history) or any(needs.values())
    for need in needs if not body else ():
        if needs[need]:
            losses.add(need.replace("_", " "), "left out: a plain list of messages has no place for it")
    return body


class Pairing:
    """Ids for calls that came without: from the name, unique in the history, the same at every reading."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        """Start with the ids that are `taken` by others."""
        self._taken = set(taken)
        self._counts: dict[str, int] = {}
        self._open: dict[int, str] = {}
        self._lines: dict[tuple[str, str, bool], deque[int]] = {}
        """Open calls in order, by id, by name, and all: what was answered meanwhile is dropped when it comes up."""
        self._made = 0

    def call(self, name: str, given: str = "") -> str:
        """The id of a call: the one it was given, or a new one."""
        call_id = given or self._new(name)
        self._taken.add(call_id)
        self._made += 1
        self._open[self._made] = call_id
        own = bool(given)
        for line in (("id", call_id, True), ("name", name, own), ("name", "", own)):
            self._lines.setdefault(line, deque()).append(self._made)
        return call_id

    def _oldest(self, *lines: tuple[str, str, bool]) -> int | None:
        heads = []
        for line in filter(None, map(self._lines.get, lines)):
            while line and line[0] not in self._open:
                line.popleft()
            heads += [line[0]] if line else []
        return min(heads, default=None)

    def answer(self, name: str, given: str = "") -> str:
        """The id of the call that a result answers.

        By its own id where a call has that; else the oldest open call of that name, which must itself be
        without an id if the result has one (Gemini CLI gives ids to responses alone); else one not there.
        """
        found = self._oldest(("id", given, True)) if given else None
        if found is None:
            found = self._oldest(("name", name, False), *([] if given else [("name", name, True)]))
        if found is not None:
            return self._open.pop(found)
        call_id = given or self._new(name)
        self._taken.add(call_id)
        return call_id

    def _new(self, name: str) -> str:
        """Safe for every dialect: Anthropic takes letters, digits, `_` and `-` only, OpenAI 40 characters."""
        stem = _UNSAFE.sub("_", name)[:32] or "call"
        while True:
            self._counts[stem] = count = self._counts.get(stem, 0) + 1
            if f"{stem}-{count}" not in self._taken:
                return f"{stem}-{count}"


def image_from_url(url: str) -> Image:
    """A picture by its address, or out of a `data:` address."""
    head, mark, data = url.partition(";base64,")
    return Image(head[5:], data) if mark and head.startswith("data:") else Image(url=url)


def image_url(image: Image) -> str:
    """The address of a picture; a `data:` one where it has no other."""
    return image.url or f"data:{image.media_type};base64,{image.data}"


def call_names(history: History) -> dict[str, str]:
    """Tool names by call id, for formats that repeat the name with the result."""
    return {part.id: part.name for message in history for part in message.parts if isinstance(part, ToolCall)}


def result_name(result: ToolResult, names: Mapping[str, str]) -> str:
    """The name of the tool that gave a result."""
    return result.name or names.get(result.call_id) or "tool"


def as_object(text: str) -> dict[str, Any] | None:
    """The JSON object that a text says, if it says one."""
    try:
        value = load(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def arguments_object(call: ToolCall, losses: Losses) -> dict[str, Any]:
    """A call's arguments for a format that wants an object."""
    value = as_object(call.arguments) if call.arguments.strip() else {}
    if value is None:
        losses.add(f"arguments of `{call.name}` are not a JSON object", "written as its field `input`")
        return {"input": call.arguments}
    return value


def arguments_text(call: ToolCall) -> str:
    """A call's arguments for a format that wants the text of an object."""
    if as_object(call.arguments) is not None:
        return call.arguments
    return dump({"input": call.arguments}) if call.arguments.strip() else "{}"


def error_text(result: ToolResult) -> str:
    """A failed result's words for a format that has no mark for failure."""
    text = result.text
    return text if not result.is_error or text.lstrip()[:5].lower() == "error" else f"Error: {text}"


def tool_specs(history: History, losses: Losses) -> list[ToolSpec]:
    """The tool definitions, from whichever dialect they came in."""
    if not history.tools:
        return []
    return list(_specs(load(history.tools), losses))


def _specs(tools: Any, losses: Losses) -> Iterator[ToolSpec]:
    for tool in tools if isinstance(tools, list) else []:
        if not isinstance(tool, dict):
            continue
        declared = tool.get("functionDeclarations") or tool.get("function_declarations")
        if isinstance(declared, list):
            yield from _specs(declared, losses)
            continue
        spec = tool["function"] if isinstance(tool.get("function"), dict) else tool
        schema = next((spec[k] for k in ("input_schema", "parameters", "parametersJsonSchema") if k in spec), None)
        if isinstance(spec.get("name"), str) and (schema is not None or "description" in spec):
            schema = _plain_schema(schema) if schema else {"type": "object"}
            yield ToolSpec(spec["name"], str(spec.get("description") or ""), schema)
        else:
            losses.add(f"tool definition `{tool.get('type') or next(iter(tool), '')}`", "left out")


def _plain_schema(schema: Any) -> Any:
    """JSON Schema writes `object` where Gemini writes `OBJECT`."""
    if isinstance(schema, list):
        return [_plain_schema(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    plain = {key: _plain_schema(value) for key, value in schema.items()}
    kind = plain.get("type")
    return plain | {"type": kind.lower()} if isinstance(kind, str) and kind in _GEMINI_TYPES else plain
