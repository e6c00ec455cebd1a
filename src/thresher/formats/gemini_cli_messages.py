"""What Gemini CLI's records say, as messages.

A record of the model's holds its calls with their results. Newer builds repeat both: the calls among the parts of its
content, the results as a record of the user's. They are read once, from where they stand with their outcome.
"""

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any, NamedTuple

from msgspec import Struct, structs

from thresher.formats.dialect import Pairing, author_for
from thresher.formats.gemini import parse_content
from thresher.formats.loose import count, fields, items, text
from thresher.formats.source import SourceFile
from thresher.formats.transcript import timestamp
from thresher.model import (
    Image,
    Message,
    Source,
    Summary,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Unknown,
    Usage,
)
from thresher.model.jsontext import dump
from thresher.model.parts import Part, ResultPart

FAILED = ("error", "cancelled")
NUDGES = ("System: Potential loop detected", "System: Please continue.")
"""How messages begin that the harness sends in the user's name."""


class Said(NamedTuple):
    """What a record says, however it is written."""

    text: str
    calls: tuple[str, ...]
    answers: tuple[str, ...]


class Entry(Struct, frozen=True, dict=True):
    """A record of a message, with its place in the file."""

    id: str
    wire: dict[str, Any]
    line: int
    record: bytes
    is_listed: bool = False
    """Whether it came in a list, and not on a line of its own before."""
    is_summary: bool = False
    carried: bool = False

    @cached_property
    def said(self) -> Said:
        """What it says; few are ever asked."""
        return said(self.wire)

    @property
    def key(self) -> tuple[str, ...]:
        """What it is known by once its id is lost."""
        return (text(self.wire.get("type")), self.said.text, *self.said.calls)

    def says_what(self, other: "Entry") -> bool:
        """Whether it says what another does, tools and all."""
        return self.said == other.said


def said(wire: dict[str, Any]) -> Said:
    """What a record says."""
    parts = _content(wire.get("content"))
    texts = (text(part.get("text")) for part in map(fields, parts) if part.get("thought") is not True)
    words = "\n".join([*(part for part in parts if isinstance(part, str)), *texts]).strip()
    named = [fields(part)["functionCall"] for part in parts if isinstance(fields(part).get("functionCall"), dict)]
    tools = [fields(tool) for tool in items(wire.get("toolCalls"))]
    calls = tuple(f"{call.get('name')} {dump(call.get('args'))}" for call in named or tools)
    told = [part for part in parts if "functionResponse" in fields(part)]
    answers = [dump(part) for part in told] or [dump(_own_parts(tool)) for tool in tools]
    return Said(words, calls, tuple(answers))


def started(segments: Iterable[Iterable[Entry]]) -> dict[str, str]:
    """Sub-agents, each with the call that started it."""
    tools = (fields(tool) for entries in segments for entry in entries for tool in items(entry.wire.get("toolCalls")))
    return {text(tool.get("agentId")): text(tool.get("id")) for tool in tools if text(tool.get("agentId"))}


def messages_of(source: SourceFile, entries: Iterable[Entry]) -> list[Message]:
    """What a model is shown of these records; what only the screen shows is left out."""
    writer = _Writer()
    found: list[Message] = []
    for entry in entries:
        try:
            made = [message for message in writer.messages(entry) if message.parts]
        except RecursionError:
            source.problem("a message is nested too deep to follow", "skipped", entry.line)
            continue
        place, records = Source(str(source.path), entry.line), (entry.record,) if entry.record else ()
        found += [structs.replace(one, source=place, carried=entry.carried, records=records) for one in made]
    return found


class _Writer:
    """Messages so far: which calls there are, which have their result, and what their results are made of."""

    def __init__(self) -> None:
        self._pairing = Pairing()
        self._calls: set[str] = set()
        self._answered: set[str] = set()
        self._told: set[str] = set()
        self._is_harness = False

    def messages(self, entry: Entry) -> Iterator[Message]:
        """What one record says; a message may be left without parts."""
        parts, time = _content(entry.wire.get("content")), timestamp(entry.wire.get("timestamp"))
        match entry.wire.get("type"):
            case "gemini":
                found = [*self._model(entry, parts)]
            case "user" if entry.is_summary:
                found = [Message("user", (Summary(entry.said.text),), author="harness", id=entry.id)]
            case "user":
                found = [*self._user(entry, parts)]
            case "info" if any("text" not in fields(part) for part in parts if not isinstance(part, str)):
                # The pictures that a tool gave, which the model is shown as if the user had sent them.
                found = [Message("user", self._parsed("user", parts), author="tool", id=entry.id)]
            case _:
                return
        self._is_harness = found[-1].author == "harness"
        yield from (one if one.time else structs.replace(one, time=time) for one in found)

    def _parsed(self, role: str, parts: list[Any]) -> tuple[Part, ...]:
        found = parse_content({"role": role, "parts": parts}, self._pairing).parts
        return tuple(part for part in found if not (isinstance(part, Text) and not part.text))

    def _model(self, entry: Entry, parts: list[Any]) -> Iterator[Message]:
        wire = entry.wire
        tools = [fields(tool) for tool in items(wire.get("toolCalls"))]
        told = {(key, tool[key]) for tool in tools for key in ("id", "name") if isinstance(tool.get(key), str)}
        own = [part for part in parts if not _is_repeated(part, told)]
        thoughts = [Thinking(told) for told in map(_thought, items(wire.get("thoughts"))) if told]
        calls = [self._call(entry, tool, number) for number, tool in enumerate(tools, 1)]
        # The harness answers itself where it has put a text into a list.
        is_made = entry.is_listed and self._is_harness and not wire.get("model") and not tools
        yield Message(
            "assistant",
            (*thoughts, *self._parsed("model", own), *calls),
            author="harness" if is_made else "model",
            id=entry.id,
            model=text(wire.get("model")),
            usage=_usage(wire.get("tokens")),
        )
        results = tuple(one for call, tool in zip(calls, tools, strict=True) if (one := _result(call, tool)))
        self._answered |= {self._pairing.answer(result.name, result.call_id) for result in results}
        self._told = {dump(part) for tool in tools for part in _own_parts(tool)}
        ends = [time for tool in tools if (time := timestamp(tool.get("timestamp")))]
        yield Message("tool", results, author="tool", id=f"{entry.id}-results", time=max(ends, default=None))

    def _call(self, entry: Entry, tool: dict[str, Any], number: int) -> ToolCall:
        id_, name, given = text(tool.get("id")), text(tool.get("name")), tool.get("args", {})
        if not id_ or id_ in self._calls:
            id_ = f"{entry.id}-call-{number}"
        self._calls.add(id_)
        return ToolCall(self._pairing.call(name, id_), name, given if isinstance(given, str) else dump(given))

    def _user(self, entry: Entry, parts: list[Any]) -> Iterator[Message]:
        rest = [part for part in parts if not self._is_told(part)]
        found = self._parsed("user", rest)
        results = tuple(part for part in found if isinstance(part, ToolResult))
        self._answered |= {result.call_id for result in results}
        yield Message(
            "tool", results, author="tool", id=f"{entry.id}-results" if len(results) < len(found) else entry.id
        )
        others = tuple(part for part in found if not isinstance(part, ToolResult))
        author = "harness" if entry.said.text.startswith(NUDGES) else author_for("user", others)
        yield Message("user", others, author=author, id=entry.id)

    def _is_told(self, part: Any) -> bool:
        """Whether a part of the user's is a result that stands with its call, or came along with one."""
        answer = fields(fields(part).get("functionResponse"))
        return text(answer.get("id")) in self._answered or (bool(self._told) and dump(part) in self._told)


def _content(content: Any) -> list[Any]:
    """A text, a part, or a list of either, as a list."""
    return content if isinstance(content, list) else [content] if isinstance(content, str | dict) else []


def _is_repeated(part: Any, told: set[tuple[str, str]]) -> bool:
    """Whether a part is a call that stands among the record's calls: by its id, else by its name."""
    call = fields(fields(part).get("functionCall"))
    key = "id" if call.get("id") else "name"
    return (key, text(call.get(key))) in told


def _thought(thought: Any) -> str:
    told = fields(thought)
    subject = text(told.get("subject"))
    return "\n".join(filter(None, (f"**{subject}**" if subject else "", text(told.get("description")))))


def _own_parts(tool: dict[str, Any]) -> list[Any]:
    """What answers a call: where the answers of several are kept with each, its own and what follows it.

    What stands before all answers is what a person said meanwhile.
    """
    parts, id_ = _content(tool.get("result")), tool.get("id")
    owners: list[Any] = []
    for part in parts:
        answer = fields(part).get("functionResponse")
        owners.append(answer.get("id") if isinstance(answer, dict) else owners[-1] if owners else None)
    return [part for part, owner in zip(parts, owners, strict=True) if owner == id_] if id_ and id_ in owners else parts


def _result(call: ToolCall, tool: dict[str, Any]) -> ToolResult | None:
    """What a call gave, if it came to an end."""
    failed = tool.get("status") in FAILED
    found = parse_content({"role": "user", "parts": _own_parts(tool)}, Pairing()).parts
    if not found and not failed:
        return None
    answers = [part for part in found if isinstance(part, ToolResult)]
    content: list[ResultPart] = [inner for answer in answers for inner in answer.content]
    content += [part for part in found if isinstance(part, Text | Image | Unknown)]
    if not content and text(tool.get("resultDisplay")):
        content.append(Text(tool["resultDisplay"]))
    return ToolResult(
        call.id,
        tuple(content),
        is_error=failed or any(answer.is_error for answer in answers),
        name=call.name,
        pocket=answers[0].pocket if len(answers) == 1 else None,
    )


def _usage(tokens: Any) -> Usage | None:
    """A bill; one of nothing is none. The prompt is counted with what a cache served, thinking beside the output."""
    told = fields(tokens)
    given, cached, thoughts = (count(told.get(key)) for key in ("input", "cached", "thoughts"))
    if not given and not count(told.get("total")):
        return None
    return Usage(
        input=max(given - cached, 0) + count(told.get("tool")),
        output=count(told.get("output")) + thoughts,
        cache_read=cached,
        reasoning=thoughts,
    )
