"""What Gemini CLI's records say, as messages.

A record of the model's holds its calls with their results. Newer builds repeat both: the calls among the parts of its
content, the results as a record of the user's. They are read once, from where they stand with their outcome.
"""

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from thresher.dialects.content import infer_message_author
from thresher.dialects.gemini.codec import parse_gemini_content
from thresher.dialects.pairing import CallIdAssigner
from thresher.model import Message, Usage
from thresher.model.jsontext import dump_json
from thresher.model.parts import Part, ResultPart, Summary, Text, Thinking, ToolCall, ToolResult
from thresher.transcripts.base import parse_time
from thresher.transcripts.coerce import as_dict, count_at, dict_at, list_at, text_at, value_at
from thresher.transcripts.content import json_text, result_content, split_results
from thresher.transcripts.source import SourceFile

FAILED_STATUSES = ("error", "cancelled")
HARNESS_PROMPT_PREFIXES = ("System: Potential loop detected", "System: Please continue.")
"""How messages begin that the harness sends in the user's name."""


class GeminiRecordContent(NamedTuple):
    """What a record says, however it is written."""

    text: str
    calls: tuple[str, ...]
    answers: tuple[str, ...]


class GeminiRecord(Struct, frozen=True, dict=True):
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
    def content(self) -> GeminiRecordContent:
        """What it says; few are ever asked."""
        return extract_gemini_content(self.wire)

    @property
    def content_key(self) -> tuple[str, ...]:
        """What it is known by once its id is lost."""
        return (text_at(self.wire, "type"), self.content.text, *self.content.calls)

    def has_same_content(self, other: "GeminiRecord") -> bool:
        """Whether it says what another does, tools and all."""
        return self.content == other.content


def extract_gemini_content(wire: dict[str, Any]) -> GeminiRecordContent:
    """What a record says."""
    parts = _as_part_list(wire.get("content"))
    texts = (text_at(part, "text") for part in map(as_dict, parts) if part.get("thought") is not True)
    words = "\n".join([*(part for part in parts if isinstance(part, str)), *texts]).strip()
    named = [as_dict(part)["functionCall"] for part in parts if isinstance(value_at(part, "functionCall"), dict)]
    tools = [as_dict(tool) for tool in list_at(wire, "toolCalls")]
    calls = tuple(f"{call.get('name')} {dump_json(call.get('args'))}" for call in named or tools)
    told = [part for part in parts if "functionResponse" in as_dict(part)]
    answers = [dump_json(part) for part in told] or [dump_json(_result_parts(tool)) for tool in tools]
    return GeminiRecordContent(words, calls, tuple(answers))


def map_subagent_calls(segments: Iterable[Iterable[GeminiRecord]]) -> dict[str, str]:
    """Sub-agents, each with the call that started it."""
    tools = (as_dict(tool) for entries in segments for entry in entries for tool in list_at(entry.wire, "toolCalls"))
    return {text_at(tool, "agentId"): text_at(tool, "id") for tool in tools if text_at(tool, "agentId")}


def build_gemini_messages(source: SourceFile, entries: Iterable[GeminiRecord]) -> list[Message]:
    """What a model is shown of these records; what only the screen shows is left out."""
    writer = _MessageBuilder()
    found: list[Message] = []
    for entry in entries:
        try:
            made = [message for message in writer.build_messages(entry) if message.parts]
        except RecursionError:
            source.report("a message is nested too deep to follow", "skipped", entry.line)
            continue
        place, records = source.at(entry.line), (entry.record,) if entry.record else ()
        found += [replace(one, source=place, carried=entry.carried, records=records) for one in made]
    return found


class _MessageBuilder:
    """Messages so far: which calls there are, which have their result, and what their results are made of."""

    def __init__(self) -> None:
        self._pairing = CallIdAssigner()
        self._call_ids: set[str] = set()
        self._answered_call_ids: set[str] = set()
        self._known_result_parts: set[str] = set()
        self._is_after_harness = False

    def build_messages(self, entry: GeminiRecord) -> Iterator[Message]:
        """What one record says; a message may be left without parts."""
        parts, time = _as_part_list(entry.wire.get("content")), parse_time(entry.wire.get("timestamp"))
        match entry.wire.get("type"):
            case "gemini":
                found = [*self._build_model_messages(entry, parts)]
            case "user" if entry.is_summary:
                found = [Message("user", (Summary(entry.content.text),), author="harness", id=entry.id)]
            case "user":
                found = [*self._build_user_messages(entry, parts)]
            case "info" if any("text" not in as_dict(part) for part in parts if not isinstance(part, str)):
                # The pictures that a tool gave, which the model is shown as if the user had sent them.
                found = [Message("user", self._parse_parts("user", parts), author="tool", id=entry.id)]
            case _:
                return
        self._is_after_harness = found[-1].author == "harness"
        yield from (one if one.time else replace(one, time=time) for one in found)

    def _parse_parts(self, role: str, parts: list[Any]) -> tuple[Part, ...]:
        found = parse_gemini_content({"role": role, "parts": parts}, self._pairing).parts
        return tuple(part for part in found if not (isinstance(part, Text) and not part.text))

    def _build_model_messages(self, entry: GeminiRecord, parts: list[Any]) -> Iterator[Message]:
        wire = entry.wire
        tools = [as_dict(tool) for tool in list_at(wire, "toolCalls")]
        told = {(key, tool[key]) for tool in tools for key in ("id", "name") if isinstance(tool.get(key), str)}
        own = [part for part in parts if not _is_repeated_call(part, told)]
        thoughts = [Thinking(told) for told in map(_format_thought, list_at(wire, "thoughts")) if told]
        calls = [self._build_call(entry, tool, number) for number, tool in enumerate(tools, 1)]
        # The harness answers itself where it has put a text into a list.
        is_made = entry.is_listed and self._is_after_harness and not wire.get("model") and not tools
        yield Message(
            "assistant",
            (*thoughts, *self._parse_parts("model", own), *calls),
            author="harness" if is_made else "model",
            id=entry.id,
            model=text_at(wire, "model"),
            usage=_parse_usage(wire.get("tokens")),
        )
        results = tuple(one for call, tool in zip(calls, tools, strict=True) if (one := _build_result(call, tool)))
        self._answered_call_ids |= {self._pairing.match_result(result.name, result.call_id) for result in results}
        self._known_result_parts = {dump_json(part) for tool in tools for part in _result_parts(tool)}
        ends = [time for tool in tools if (time := parse_time(tool.get("timestamp")))]
        yield Message("tool", results, author="tool", id=f"{entry.id}-results", time=max(ends, default=None))

    def _build_call(self, entry: GeminiRecord, tool: dict[str, Any], number: int) -> ToolCall:
        id_, name, given = text_at(tool, "id"), text_at(tool, "name"), tool.get("args", {})
        if not id_ or id_ in self._call_ids:
            id_ = f"{entry.id}-call-{number}"
        self._call_ids.add(id_)
        return ToolCall(self._pairing.assign_call_id(name, id_), name, json_text(given))

    def _build_user_messages(self, entry: GeminiRecord, parts: list[Any]) -> Iterator[Message]:
        rest = [part for part in parts if not self._is_repeated_result(part)]
        found = self._parse_parts("user", rest)
        results, others = split_results(found)
        self._answered_call_ids |= {result.call_id for result in results}
        yield Message("tool", results, author="tool", id=f"{entry.id}-results" if others else entry.id)
        is_nudge = entry.content.text.startswith(HARNESS_PROMPT_PREFIXES)
        author = "harness" if is_nudge else infer_message_author("user", others)
        yield Message("user", others, author=author, id=entry.id)

    def _is_repeated_result(self, part: Any) -> bool:
        """Whether a part of the user's is a result that stands with its call, or came along with one."""
        answer = dict_at(part, "functionResponse")
        return text_at(answer, "id") in self._answered_call_ids or (
            bool(self._known_result_parts) and dump_json(part) in self._known_result_parts
        )


def _as_part_list(content: Any) -> list[Any]:
    """A text, a part, or a list of either, as a list."""
    return content if isinstance(content, list) else [content] if isinstance(content, str | dict) else []


def _is_repeated_call(part: Any, told: set[tuple[str, str]]) -> bool:
    """Whether a part is a call that stands among the record's calls: by its id, else by its name."""
    call = dict_at(part, "functionCall")
    key = "id" if call.get("id") else "name"
    return (key, text_at(call, key)) in told


def _format_thought(thought: Any) -> str:
    told = as_dict(thought)
    subject = text_at(told, "subject")
    return "\n".join(filter(None, (f"**{subject}**" if subject else "", text_at(told, "description"))))


def _result_parts(tool: dict[str, Any]) -> list[Any]:
    """What answers a call: where the answers of several are kept with each, its own and what follows it.

    What stands before all answers is what a person said meanwhile.
    """
    parts, id_ = _as_part_list(tool.get("result")), tool.get("id")
    owners: list[Any] = []
    for part in parts:
        answer = value_at(part, "functionResponse")
        owners.append(answer.get("id") if isinstance(answer, dict) else owners[-1] if owners else None)
    return [part for part, owner in zip(parts, owners, strict=True) if owner == id_] if id_ and id_ in owners else parts


def _build_result(call: ToolCall, tool: dict[str, Any]) -> ToolResult | None:
    """What a call gave, if it came to an end."""
    failed = tool.get("status") in FAILED_STATUSES
    found = parse_gemini_content({"role": "user", "parts": _result_parts(tool)}, CallIdAssigner()).parts
    if not found and not failed:
        return None
    answers = [part for part in found if isinstance(part, ToolResult)]
    content: list[ResultPart] = [inner for answer in answers for inner in answer.content]
    content += result_content(found)
    if not content and text_at(tool, "resultDisplay"):
        content.append(Text(tool["resultDisplay"]))
    return ToolResult(
        call.id,
        tuple(content),
        is_error=failed or any(answer.is_error for answer in answers),
        name=call.name,
        pocket=answers[0].pocket if len(answers) == 1 else None,
    )


def _parse_usage(tokens: Any) -> Usage | None:
    """A bill; one of nothing is none. The prompt is counted with what a cache served, thinking beside the output."""
    told = as_dict(tokens)
    given, cached, thoughts = (count_at(told, key) for key in ("input", "cached", "thoughts"))
    if not given and not count_at(told, "total"):
        return None
    return Usage(
        input=max(given - cached, 0) + count_at(told, "tool"),
        output=count_at(told, "output") + thoughts,
        cache_read=cached,
        reasoning=thoughts,
    )
