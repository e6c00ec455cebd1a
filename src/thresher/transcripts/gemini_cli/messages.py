"""Convert Gemini CLI's records to messages.

A model record contains its calls with their results. Newer builds store calls and results a second time: calls in the
content of the record, results in a user record. The reader keeps the calls with their results and skips the other copy.
"""

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from thresher.dialects.content import infer_message_author
from thresher.dialects.gemini.codec import parse_gemini_content
from thresher.dialects.pairing import CallIdAssigner
from thresher.model import Author, Message, Usage
from thresher.model.jsontext import dump_json
from thresher.model.parts import Part, ResultPart, Summary, Text, Thinking, ToolCall, ToolResult
from thresher.transcripts.base import parse_time
from thresher.transcripts.coerce import as_dict, count_at, dict_at, list_at, text_at, value_at
from thresher.transcripts.content import json_text, result_content, split_results
from thresher.transcripts.source import SourceFile

FAILED_STATUSES = ("error", "cancelled")
HARNESS_PROMPT_PREFIXES = ("System: Potential loop detected", "System: Please continue.")
"""Prefixes of messages that the harness sends in the user's name."""


class GeminiRecordContent(NamedTuple):
    """Content of a record, for comparison with other records."""

    text: str
    calls: tuple[str, ...]
    answers: tuple[str, ...]


class GeminiRecord(Struct, frozen=True, dict=True):
    """A message record with its line in the file."""

    id: str
    wire: dict[str, Any]
    line: int
    record: bytes
    is_listed: bool = False
    """True if the message first occurs in the list of a `$set` line, not on its own line."""
    is_summary: bool = False
    carried: bool = False

    @cached_property
    def content(self) -> GeminiRecordContent:
        """Content of the record, extracted on first use: most records never need it."""
        parts = _as_part_list(self.wire.get("content"))
        texts = (text_at(part, "text") for part in map(as_dict, parts) if part.get("thought") is not True)
        text = "\n".join([*(part for part in parts if isinstance(part, str)), *texts]).strip()
        call_parts = [
            as_dict(part)["functionCall"] for part in parts if isinstance(value_at(part, "functionCall"), dict)
        ]
        tools = [as_dict(tool) for tool in list_at(self.wire, "toolCalls")]
        calls = tuple(f"{call.get('name')} {dump_json(call.get('args'))}" for call in call_parts or tools)
        responses = [part for part in parts if "functionResponse" in as_dict(part)]
        answers = [dump_json(part) for part in responses] or [dump_json(_result_parts(tool)) for tool in tools]
        return GeminiRecordContent(text, calls, tuple(answers))

    @property
    def content_key(self) -> tuple[str, ...]:
        """Key that identifies the record even if its id changes."""
        return (text_at(self.wire, "type"), self.content.text, *self.content.calls)


def map_subagent_calls(segments: Iterable[Iterable[GeminiRecord]]) -> dict[str, str]:
    """Map each sub-agent's id to the id of the call that started the sub-agent."""
    tools = (as_dict(tool) for entries in segments for entry in entries for tool in list_at(entry.wire, "toolCalls"))
    return {text_at(tool, "agentId"): text_at(tool, "id") for tool in tools if text_at(tool, "agentId")}


def build_gemini_messages(source: SourceFile, entries: Iterable[GeminiRecord]) -> list[Message]:
    """Convert records to messages. Skip records that only the user sees."""
    builder = _MessageBuilder()
    messages: list[Message] = []
    for entry in entries:
        try:
            built = [message for message in builder.build_messages(entry) if message.parts]
        except RecursionError:
            source.report("a message is nested too deeply", "skipped", entry.line)
            continue
        location, records = source.at(entry.line), (entry.record,) if entry.record else ()
        messages += [replace(m, source=location, carried=entry.carried, records=records) for m in built]
    return messages


class _MessageBuilder:
    """Converter that takes records in order and skips repeated calls and results."""

    def __init__(self) -> None:
        self._pairing = CallIdAssigner()
        self._call_ids: set[str] = set()
        self._answered_call_ids: set[str] = set()
        self._known_result_parts: set[str] = set()
        self._is_after_harness = False

    def build_messages(self, entry: GeminiRecord) -> Iterator[Message]:
        """Yield the messages of a record; some may have no parts."""
        parts, time = _as_part_list(entry.wire.get("content")), parse_time(entry.wire.get("timestamp"))
        match entry.wire.get("type"):
            case "gemini":
                messages = [*self._build_model_messages(entry, parts)]
            case "user" if entry.is_summary:
                messages = [Message("user", (Summary(entry.content.text),), author="harness", id=entry.id)]
            case "user":
                messages = [*self._build_user_messages(entry, parts)]
            case "info" if any("text" not in as_dict(part) for part in parts if not isinstance(part, str)):
                # Images from a tool, which the model gets as a user message.
                messages = [Message("user", self._parse_parts("user", parts), author="tool", id=entry.id)]
            case _:
                return
        self._is_after_harness = messages[-1].author in ("harness", "context")
        yield from (message if message.time else replace(message, time=time) for message in messages)

    def _parse_parts(self, role: str, parts: list[Any]) -> tuple[Part, ...]:
        parsed = parse_gemini_content({"role": role, "parts": parts}, self._pairing).parts
        return tuple(part for part in parsed if not (isinstance(part, Text) and not part.text))

    def _build_model_messages(self, entry: GeminiRecord, parts: list[Any]) -> Iterator[Message]:
        wire = entry.wire
        tools = [as_dict(tool) for tool in list_at(wire, "toolCalls")]
        known = {(key, tool[key]) for tool in tools for key in ("id", "name") if isinstance(tool.get(key), str)}
        own_parts = [part for part in parts if not _is_repeated_call(part, known)]
        thinking = [Thinking(text) for text in map(_format_thought, list_at(wire, "thoughts")) if text]
        calls = [self._build_call(entry, tool, number) for number, tool in enumerate(tools, 1)]
        # In a `$set` list, the harness writes the answer to its own prompt: no model wrote this answer.
        is_synthetic = entry.is_listed and self._is_after_harness and not wire.get("model") and not tools
        content = (*thinking, *self._parse_parts("model", own_parts), *calls)
        author: Author = "harness" if is_synthetic else "model"
        model, usage = text_at(wire, "model"), _parse_usage(wire.get("tokens"))
        yield Message("assistant", content, author=author, id=entry.id, model=model, usage=usage)
        pairs = zip(calls, tools, strict=True)
        results = tuple(result for call, tool in pairs if (result := _build_result(call, tool)))
        self._answered_call_ids |= {self._pairing.match_result(result.name, result.call_id) for result in results}
        self._known_result_parts = {dump_json(part) for tool in tools for part in _result_parts(tool)}
        ends = [time for tool in tools if (time := parse_time(tool.get("timestamp")))]
        yield Message("tool", results, author="tool", id=f"{entry.id}-results", time=max(ends, default=None))

    def _build_call(self, entry: GeminiRecord, tool: dict[str, Any], number: int) -> ToolCall:
        id_, name = text_at(tool, "id"), text_at(tool, "name")
        if not id_ or id_ in self._call_ids:
            id_ = f"{entry.id}-call-{number}"
        self._call_ids.add(id_)
        return ToolCall(self._pairing.assign_call_id(name, id_), name, json_text(tool.get("args", {})))

    def _build_user_messages(self, entry: GeminiRecord, parts: list[Any]) -> Iterator[Message]:
        rest = [part for part in parts if not self._is_repeated_result(part)]
        results, others = split_results(self._parse_parts("user", rest))
        self._answered_call_ids |= {result.call_id for result in results}
        yield Message("tool", results, author="tool", id=f"{entry.id}-results" if others else entry.id)
        is_nudge = entry.content.text.startswith(HARNESS_PROMPT_PREFIXES)
        author = "harness" if is_nudge else infer_message_author("user", others)
        yield Message("user", others, author=author, id=entry.id)

    def _is_repeated_result(self, part: Any) -> bool:
        """Return True for a result that the record of its call already contains."""
        call_id, known = text_at(part, "functionResponse", "id"), self._known_result_parts
        return call_id in self._answered_call_ids or (bool(known) and dump_json(part) in known)


def _as_part_list(content: Any) -> list[Any]:
    """Return content as a list of parts: it can be one text, one part or a list."""
    return content if isinstance(content, list) else [content] if isinstance(content, str | dict) else []


def _is_repeated_call(part: Any, known: set[tuple[str, str]]) -> bool:
    """Return True if `known` contains the call in a part: by id or, for a call without an id, by name."""
    call = dict_at(part, "functionCall")
    key = "id" if call.get("id") else "name"
    return (key, text_at(call, key)) in known


def _format_thought(thought: Any) -> str:
    subject = text_at(thought, "subject")
    return "\n".join(filter(None, (f"**{subject}**" if subject else "", text_at(thought, "description"))))


def _result_parts(tool: dict[str, Any]) -> list[Any]:
    """Return the parts of a call's own result.

    If a model makes several calls, each call can contain the results of all calls. Then a call's own parts are its
    response and the parts up to the next response. Parts before the first response are text that the user sent while
    the tools ran: they belong to no call.
    """
    parts, id_ = _as_part_list(tool.get("result")), tool.get("id")
    owners: list[Any] = []
    for part in parts:
        answer = value_at(part, "functionResponse")
        owners.append(answer.get("id") if isinstance(answer, dict) else owners[-1] if owners else None)
    return [part for part, owner in zip(parts, owners, strict=True) if owner == id_] if id_ and id_ in owners else parts


def _build_result(call: ToolCall, tool: dict[str, Any]) -> ToolResult | None:
    """Return the result of a call, or None if the call has not finished."""
    failed = tool.get("status") in FAILED_STATUSES
    parts = parse_gemini_content({"role": "user", "parts": _result_parts(tool)}, CallIdAssigner()).parts
    if not parts and not failed:
        return None
    answers = [part for part in parts if isinstance(part, ToolResult)]
    content: list[ResultPart] = [inner for answer in answers for inner in answer.content]
    content += result_content(parts)
    if not content and text_at(tool, "resultDisplay"):
        content.append(Text(tool["resultDisplay"]))
    failed = failed or any(answer.is_error for answer in answers)
    pocket = answers[0].pocket if len(answers) == 1 else None
    return ToolResult(call.id, tuple(content), is_error=failed, name=call.name, pocket=pocket)


def _parse_usage(tokens: Any) -> Usage | None:
    """Return the usage of one model call. The recorded input includes cached tokens; the output excludes thinking."""
    prompt, cached, thoughts = (count_at(tokens, key) for key in ("input", "cached", "thoughts"))
    if not prompt and not count_at(tokens, "total"):
        return None
    uncached = max(prompt - cached, 0) + count_at(tokens, "tool")
    return Usage(uncached, count_at(tokens, "output") + thoughts, cached, reasoning=thoughts)
