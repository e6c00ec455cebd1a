"""Convert goose's messages, and track which of them the model still sees.

A compaction removes nothing from a session. It hides the previous messages from the model and adds three messages: a
summary and an assistant message that asks to continue, both hidden from the user, then a copy of the last prompt. goose
can also replace a single call by a summary. The reader skips this summary and keeps the call, which has more detail.
The reader counts content that only the user sees (notices, confirmations, copies of results), but does not convert it.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from msgspec.structs import replace

from thresher.dialects.content import infer_message_author
from thresher.model import Author, History, Message, Session, Usage
from thresher.model.jsontext import dump_json
from thresher.model.parts import Image, Part, ResultPart, Summary, Text, Thinking, ToolCall, ToolResult, Unknown
from thresher.transcripts.base import make_session, parse_time, title_from_prompt, usage_with_cached_input
from thresher.transcripts.coerce import as_count, as_list, dict_at, first_text, list_at, text_at, value_at
from thresher.transcripts.content import json_text, mark_carried, split_results, unknown_part
from thresher.transcripts.source import SourceFile

NAME = "goose"
USER_ONLY_PARTS = frozenset({
    "systemNotification", "toolConfirmationRequest", "actionRequired", "conversationCompacted",
    "summarizationRequested", "contextLengthExceeded",
})  # fmt: skip
"""Types of parts that goose shows only to the user."""
CALL_SUMMARY_PREFIX = "[Historical tool call summary]"
DEFAULT_TITLE = re.compile(r"(?:CLI|ACP) Session|New (?:session|chat)\b.*", re.IGNORECASE)
"""Pattern of goose's default session names, which the reader does not use as titles."""
USAGE_FIELDS = (
    ("input_tokens", "inputTokens"),
    ("output_tokens", "outputTokens"),
    ("cache_read_tokens", "cache_read_input_tokens", "cacheReadTokens", "cacheReadInputTokens"),
    ("cache_write_tokens", "cache_write_input_tokens", "cacheWriteTokens", "cacheWriteInputTokens"),
)
"""All names of each usage field. The name depends on the version of goose and on the provider."""
INVALID_CALL_NAME = "invalid"
"""Name for calls that the model wrote with invalid syntax."""


class GooseMessage(NamedTuple):
    """A message record. `line` is its line in a file, its number in an export or its row id in a database."""

    line: int
    record: dict[str, Any]

    @property
    def is_hidden_from_user(self) -> bool:
        """True if the user does not see the message."""
        return value_at(self.record, "metadata", "userVisible") is False

    @property
    def is_shown_to_model(self) -> bool:
        """True if the next request includes the message."""
        return value_at(self.record, "metadata", "agentVisible") is not False

    def is_hidden_text(self, role: str) -> bool:
        """Return True if the message has this role, contains only text and is hidden from the user."""
        content = list_at(self.record, "content")
        is_text = bool(content) and all(value_at(part, "type") == "text" for part in content)
        return self.is_hidden_from_user and is_text and self.record.get("role") == role


class GooseFacts(NamedTuple):
    """Facts about a session, with unparsed times."""

    id: str
    title: str = ""
    project: str = ""
    model: str = ""
    is_subagent: bool = False
    parent: str = ""
    call_id: str = ""
    started: Any = None
    ended: Any = None


def parse_goose_facts(fields: dict[str, Any], fallback_id: str) -> GooseFacts:
    """Parse the facts of a session from an export, a file's first line or a database row."""
    return GooseFacts(
        text_at(fields, "id") or fallback_id,
        title=first_text(fields, "name", "description"),
        project=text_at(fields, "working_dir"),
        model=text_at(fields, "model_config", "model_name"),
        is_subagent=fields.get("session_type") == "sub_agent",
        parent=text_at(fields, "parent_session_id"),
        started=fields.get("created_at"),
        ended=fields.get("updated_at"),
    )


def build_goose_session(source: SourceFile, facts: GooseFacts, entries: Sequence[GooseMessage]) -> Session:
    """Build the session from its facts and messages."""
    records = _count_records(entries)
    segments = _build_segments(source, facts, entries, records)
    times = [message.time for segment in segments for message in segment if message.time]
    return make_session(
        NAME,
        source,
        facts.id,
        segments,
        records=+records,
        project=facts.project,
        title=facts.title if facts.title and not DEFAULT_TITLE.fullmatch(facts.title) else title_from_prompt(segments),
        parent=facts.parent,
        call_id=facts.call_id,
        started=parse_time(facts.started) or min(times, default=None),
        ended=max(times, default=None) or parse_time(facts.ended),
    )


def _build_segments(
    source: SourceFile, facts: GooseFacts, entries: Sequence[GooseMessage], records: Counter[str]
) -> tuple[History, ...]:
    builder = _MessageBuilder(source, facts, records)
    pairs = enumerate(pairwise(entries))
    summaries = {n for n, (entry, after) in pairs if entry.is_hidden_text("user") and after.is_hidden_text("assistant")}
    last = max(summaries, default=-1)
    segments: list[list[Message]] = [[]]
    for n, entry in enumerate(entries):
        if n in summaries:
            kept = [message for message, shown in builder.segment_messages if shown] if n == last else []
            segments.append([*builder.build_summary(entry), *mark_carried(kept)])
        elif n - 1 in summaries:
            records["continuation"] += 1
        elif _is_call_summary(entry):
            records["summary of a call"] += 1
        else:
            is_first, is_copied = n - 2 in summaries, n + 1 in summaries
            segments[-1] += builder.build_messages(entry, is_first=is_first, is_old=n < last, is_copied=is_copied)
    builder.report_duplicate_ids()
    return tuple(History(tuple(segment)) for segment in segments)


def _is_call_summary(entry: GooseMessage) -> bool:
    text = text_at(next(iter(list_at(entry.record, "content")), None), "text")
    return text.startswith(CALL_SUMMARY_PREFIX) and entry.is_hidden_text("user")


def _count_records(entries: Iterable[GooseMessage]) -> Counter[str]:
    """Count messages by role and parts by type."""
    records: Counter[str] = Counter()
    for entry in entries:
        records[text_at(entry.record, "role") or "?"] += 1
        for part in list_at(entry.record, "content"):
            records[text_at(part, "type") or "?"] += 1
    return records


class _MessageBuilder:
    """Converter that takes the messages of one session in order and makes their ids unique."""

    def __init__(self, source: SourceFile, facts: GooseFacts, records: Counter[str]) -> None:
        self.segment_messages: list[tuple[Message, bool]] = []
        """Messages since the last summary. The flag of a message is True if the next request includes the message."""
        self._source = source
        self._model = facts.model
        self._prompter: Author = "model" if facts.is_subagent else "human"
        self._records = records
        self._used_ids: set[str] = set()
        self._call_ids: dict[str, str] = {}
        self._duplicate_id_count = 0
        self._last_prompt = ""

    def report_duplicate_ids(self) -> None:
        """Report messages with a duplicate id and calls without a unique id, if there are any."""
        if count := self._duplicate_id_count:
            self._source.report(f"{count} messages and calls have no unique id", "ids are generated")

    def build_summary(self, entry: GooseMessage) -> list[Message]:
        """Return the summary in an entry as a message, and start a segment."""
        text = "\n".join(text_at(part, "text") for part in list_at(entry.record, "content"))
        self.segment_messages = []
        return self._with_source(entry, [Message("user", (Summary(text),), "harness")])

    def build_messages(self, entry: GooseMessage, *, is_first: bool, is_old: bool, is_copied: bool) -> list[Message]:
        """Convert an entry to messages.

        `is_first` is True for the first entry after a compaction, which can repeat the last prompt.
        `is_old` is True if a later compaction hides the entry.
        `is_copied` is True if the next entry is a summary. goose then hides this entry and repeats it later.
        """
        content = enumerate(list_at(entry.record, "content"), 1)
        try:
            parts = [part for index, wire in content if (part := self._parse_part(wire, entry.line, index))]
        except RecursionError:
            self._source.report("a message is nested too deeply", "skipped", entry.line)
            return []
        messages = self._with_source(entry, [*self._split_by_role(entry, parts, is_old=is_old, is_copied=is_copied)])
        if is_first and messages and messages[-1].author == "human" and messages[-1].text == self._last_prompt:
            messages = mark_carried(messages)
        self.segment_messages += [(message, entry.is_shown_to_model) for message in messages]
        prompts = (
            message.text for message in reversed(messages) if message.author == "human" and message.role == "user"
        )
        self._last_prompt = next(prompts, self._last_prompt)
        return messages

    def _split_by_role(
        self, entry: GooseMessage, parts: Sequence[Part], *, is_old: bool, is_copied: bool
    ) -> Iterator[Message]:
        results, rest = split_results(parts)
        role = entry.record.get("role")
        if role == "assistant":
            is_notice = not entry.is_shown_to_model and not is_old and all(isinstance(part, Text) for part in rest)
            is_goose = entry.is_hidden_from_user or is_notice
            model = "" if is_goose else self._model
            yield Message("assistant", rest, "harness" if is_goose else "model", model=model)
        if results:
            yield Message("tool", results, "tool")
        if role != "assistant":
            author = infer_message_author("user", rest)
            if role != "user" or (entry.is_hidden_from_user and not (is_copied and not entry.is_shown_to_model)):
                author = "harness"
            yield Message("user", rest, self._prompter if author == "human" else author)

    def _with_source(self, entry: GooseMessage, messages: Iterable[Message]) -> list[Message]:
        entry_id = text_at(entry.record, "id")
        id_ = entry_id if entry_id and entry_id not in self._used_ids else f"line-{entry.line}"
        self._duplicate_id_count += bool(entry_id) and entry_id != id_
        self._used_ids.add(id_)
        time, source = parse_time(entry.record.get("created")), self._source.at(entry.line)
        entry_usage = parse_goose_usage(value_at(entry.record, "metadata", "usage"))
        converted: list[Message] = []
        for message in filter(_has_content, messages):
            message_id = f"{id_}-{message.role}" if converted else id_
            usage = entry_usage if message.author == "model" and message.role == "assistant" else None
            converted.append(replace(message, id=message_id, time=time, source=source, usage=usage))
        return converted

    # Parts

    def _parse_part(self, wire: Any, line: int, index: int) -> Part | None:
        """Parse a part; return None for parts that no model sees."""
        kind = text_at(wire, "type")
        if kind in USER_ONLY_PARTS or not _is_for_model(wire):
            self._records["for the user alone"] += kind not in USER_ONLY_PARTS
            return None
        match wire:
            case {"type": "toolRequest" | "frontendToolRequest"}:
                return self._parse_call(wire, f"call-{line}-{index}")
            case {"type": "toolResponse"}:
                wire_id = text_at(wire, "id")
                return _parse_result(self._call_ids.get(wire_id, wire_id), dict_at(wire, "toolResult"), self._records)
            case {"type": "thinking", "thinking": str(text)} | {"type": "reasoning", "text": str(text)}:
                return Thinking(text, text_at(wire, "signature"))
            case {"type": "redactedThinking", "data": str(data)}:
                return Thinking("", data)
            case _:
                return _parse_content_item(wire)

    def _parse_call(self, wire: dict[str, Any], fallback_id: str) -> ToolCall:
        wire_id = text_at(wire, "id")
        id_ = wire_id if wire_id and wire_id not in self._used_ids else fallback_id
        self._duplicate_id_count += wire_id != id_
        self._used_ids.add(id_)
        self._call_ids[wire_id] = id_
        call = dict_at(wire, "toolCall")
        value = dict_at(call, "value")
        if call.get("status") == "error" or not text_at(value, "name"):
            return ToolCall(id_, INVALID_CALL_NAME, dump_json({"error": call.get("error", call.get("value"))}))
        arguments = value.get("arguments")
        return ToolCall(id_, value["name"], json_text("" if arguments == "" else arguments or {}))


def _has_content(message: Message) -> bool:
    return any(not isinstance(part, Text) or part.text for part in message.parts)


def _is_for_model(wire: Any) -> bool:
    """Return True for content that the model gets. A result often has one copy for the user and one for the model."""
    audience = value_at(wire, "annotations", "audience") or value_at(wire, "audience")
    return not isinstance(audience, list) or not audience or "assistant" in audience


def _parse_content_item(wire: Any) -> Text | Image | Unknown:
    """Parse an MCP content item of a message or a result."""
    match wire:
        case {"type": "text", "text": str(text)} | {"type": "resource", "resource": {"text": str(text)}}:
            return Text(text)
        case {"type": "image" | "audio", "data": str(data)}:
            return Image(text_at(wire, "mimeType"), data)
        case {"type": "resource", "resource": {"blob": str(data)}}:
            return Image(text_at(wire, "resource", "mimeType"), data)
        case _:
            return unknown_part(wire)


def _parse_result(call_id: str, wire: dict[str, Any], records: Counter[str]) -> ToolResult:
    """Parse a result. In older versions, `value` is the list of content items."""
    if wire.get("status") == "error":
        return ToolResult(call_id, (Text(json_text(wire.get("error"))),), is_error=True)
    value = wire.get("value")
    content = as_list(value) or list_at(value, "content")
    visible: tuple[ResultPart, ...] = tuple(_parse_content_item(item) for item in content if _is_for_model(item))
    records["for the user alone"] += len(content) - len(visible)
    if not content and value_at(value, "structuredContent") is not None:
        visible = (Text(dump_json(value_at(value, "structuredContent"))),)
    return ToolResult(call_id, visible, is_error=value_at(value, "isError") is True)


def parse_goose_usage(fields: Any) -> Usage | None:
    """Parse usage fields. The input in `fields` includes cached tokens."""
    if not isinstance(fields, dict):
        return None
    values = (next((fields[name] for name in names if fields.get(name) is not None), None) for names in USAGE_FIELDS)
    prompt, output, read, write = map(as_count, values)
    return usage_with_cached_input(prompt, output, read, write) if prompt or output else None
