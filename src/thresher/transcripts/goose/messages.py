"""What goose calls a message, to messages: words, calls and results, and whom goose still shows them to.

Nothing is taken out of a session when it is compacted. What was said stays, hidden from the model; a summary follows
that is hidden from the user, then a line in the assistant's name that asks to go on, and the last prompt again. A
summary that stands for a single call is hidden in the same way: there the call itself is read, which says more.
Much is kept for the user's eyes alone (notices, confirmations, copies of results): no model saw it, and it is counted.
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
from thresher.transcripts.coerce import as_count, as_list, dict_at, list_at, text_at, value_at
from thresher.transcripts.content import json_text, mark_carried, split_results, unknown_part
from thresher.transcripts.source import SourceFile

NAME = "goose"
USER_ONLY_PARTS = frozenset({
    "systemNotification", "toolConfirmationRequest", "actionRequired", "conversationCompacted",
    "summarizationRequested", "contextLengthExceeded",
})  # fmt: skip
"""Parts that goose shows to its user alone."""
CALL_SUMMARY_PREFIX = "[Historical tool call summary]"
DEFAULT_TITLE = re.compile(r"(?:CLI|ACP) Session|New (?:session|chat)\b.*", re.IGNORECASE)
"""Names that goose gives before it has a better one."""
USAGE_FIELDS = (
    ("input_tokens", "inputTokens"),
    ("output_tokens", "outputTokens"),
    ("cache_read_tokens", "cache_read_input_tokens", "cacheReadTokens", "cacheReadInputTokens"),
    ("cache_write_tokens", "cache_write_input_tokens", "cacheWriteTokens", "cacheWriteInputTokens"),
)
"""What is billed, each by any of its names: versions and providers differ."""
INVALID_CALL_NAME = "invalid"
"""The name of a call that the model wrote wrong."""


class GooseMessage(NamedTuple):
    """A message as goose keeps it, and its place."""

    line: int
    record: dict[str, Any]

    @property
    def is_hidden_from_user(self) -> bool:
        """Whether it is kept from the user."""
        return value_at(self.record, "metadata", "userVisible") is False

    @property
    def is_shown_to_model(self) -> bool:
        """Whether the model would see it next."""
        return value_at(self.record, "metadata", "agentVisible") is not False

    def is_hidden_text(self, role: str) -> bool:
        """Whether it is nothing but words that are kept from the user."""
        content = list_at(self.record, "content")
        is_text = bool(content) and all(value_at(part, "type") == "text" for part in content)
        return self.is_hidden_from_user and is_text and self.record.get("role") == role


class GooseFacts(NamedTuple):
    """What is known of a session beside its messages; times as they are written."""

    id: str
    title: str = ""
    project: str = ""
    model: str = ""
    is_subagent: bool = False
    parent: str = ""
    call_id: str = ""
    started: Any = None
    ended: Any = None


def build_goose_session(source: SourceFile, facts: GooseFacts, entries: Sequence[GooseMessage]) -> Session:
    """The session that these messages are."""
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
    teller = _MessageBuilder(source, facts, records)
    summaries = {
        place
        for place, (entry, after) in enumerate(pairwise(entries))
        if entry.is_hidden_text("user") and after.is_hidden_text("assistant")
    }
    last = max(summaries, default=-1)
    segments: list[list[Message]] = [[]]
    for place, entry in enumerate(entries):
        if place in summaries:
            kept = [message for message, shown in teller.segment_messages if shown] if place == last else []
            segments.append([*teller.build_summary(entry), *mark_carried(kept)])
        elif place - 1 in summaries:
            records["continuation"] += 1
        elif entry.is_hidden_text("user") and text_at(entry.record["content"][0], "text").startswith(
            CALL_SUMMARY_PREFIX
        ):
            records["summary of a call"] += 1
        else:
            is_first = place - 2 in summaries
            segments[-1] += teller.build_messages(
                entry, is_first=is_first, is_old=place < last, is_copied=place + 1 in summaries
            )
    teller.report_duplicate_ids()
    return tuple(History(tuple(segment)) for segment in segments)


def _count_records(entries: Iterable[GooseMessage]) -> Counter[str]:
    """Messages by role, parts by type."""
    records: Counter[str] = Counter()
    for entry in entries:
        records[text_at(entry.record, "role") or "?"] += 1
        for part in list_at(entry.record, "content"):
            records[text_at(part, "type") or "?"] += 1
    return records


class _MessageBuilder:
    """One session at work: ids of calls, and what was said since the last summary."""

    def __init__(self, source: SourceFile, facts: GooseFacts, records: Counter[str]) -> None:
        self.segment_messages: list[tuple[Message, bool]] = []
        """Messages of this segment, and whether the model would still see them."""
        self._source = source
        self._model = facts.model
        self._prompter: Author = "model" if facts.is_subagent else "human"
        self._records = records
        self._used_ids: set[str] = set()
        self._call_ids: dict[str, str] = {}
        self._duplicate_id_count = 0
        self._last_prompt = ""

    def report_duplicate_ids(self) -> None:
        """Name the ids that were not of one call or message alone."""
        if self._duplicate_id_count:
            what = f"{self._duplicate_id_count} messages and calls have no id of their own"
            self._source.report(what, "named by their place")

    def build_summary(self, entry: GooseMessage) -> list[Message]:
        """The summary that a new segment begins with."""
        words = "\n".join(text_at(part, "text") for part in list_at(entry.record, "content"))
        message = Message("user", (Summary(words),), "harness")
        self.segment_messages = []
        return self._with_source(entry, [message])

    def build_messages(self, entry: GooseMessage, *, is_first: bool, is_old: bool, is_copied: bool) -> list[Message]:
        """The messages of an entry.

        `is_first`: it follows a summary, so that it may repeat the last prompt; `is_old`: a compaction came later,
        which hid all before it; `is_copied`: the summary stands next, so that it was hidden when it was repeated.
        """
        content = enumerate(list_at(entry.record, "content"), 1)
        try:
            parts = [part for place, wire in content if (part := self._parse_part(wire, entry.line, place))]
        except RecursionError:
            self._source.report("a message is nested too deep to follow", "skipped", entry.line)
            return []
        found = self._with_source(entry, [*self._split_by_role(entry, parts, is_old=is_old, is_copied=is_copied)])
        if is_first and found and found[-1].author == "human" and found[-1].text == self._last_prompt:
            found = mark_carried(found)
        self.segment_messages += [(message, entry.is_shown_to_model) for message in found]
        prompts = (message.text for message in reversed(found) if message.author == "human" and message.role == "user")
        self._last_prompt = next(prompts, self._last_prompt)
        return found

    def _split_by_role(
        self, entry: GooseMessage, parts: Sequence[Part], *, is_old: bool, is_copied: bool
    ) -> Iterator[Message]:
        results, rest = split_results(parts)
        role = entry.record.get("role")
        if role == "assistant":
            for_user = not entry.is_shown_to_model and not is_old and all(isinstance(part, Text) for part in rest)
            is_goose = entry.is_hidden_from_user or for_user
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
        found = [message for message in messages if _has_content(message)]
        given = text_at(entry.record, "id")
        id_ = given if given and given not in self._used_ids else f"line-{entry.line}"
        self._duplicate_id_count += bool(given) and given != id_
        self._used_ids.add(id_)
        time, place = parse_time(entry.record.get("created")), self._source.at(entry.line)
        usage = parse_goose_usage(value_at(entry.record, "metadata", "usage"))
        return [
            replace(
                message,
                id=id_ if number == 0 else f"{id_}-{message.role}",
                time=time,
                source=place,
                usage=usage if message.author == "model" and message.role == "assistant" else None,
            )
            for number, message in enumerate(found)
        ]

    # --- parts ---

    def _parse_part(self, wire: Any, line: int, place: int) -> Part | None:
        """A part; None for what no model is shown."""
        kind = text_at(wire, "type")
        if kind in USER_ONLY_PARTS or not _is_for_model(wire):
            self._records["for the user alone"] += kind not in USER_ONLY_PARTS
            return None
        match wire:
            case {"type": "toolRequest" | "frontendToolRequest"}:
                return self._parse_call(wire, f"call-{line}-{place}")
            case {"type": "toolResponse"}:
                given = text_at(wire, "id")
                return _parse_result(self._call_ids.get(given, given), dict_at(wire, "toolResult"), self._records)
            case {"type": "thinking", "thinking": str(words)} | {"type": "reasoning", "text": str(words)}:
                return Thinking(words, text_at(wire, "signature"))
            case {"type": "redactedThinking", "data": str(data)}:
                return Thinking("", data)
            case _:
                return _parse_content_item(wire)

    def _parse_call(self, wire: dict[str, Any], place: str) -> ToolCall:
        given = text_at(wire, "id")
        id_ = given if given and given not in self._used_ids else place
        self._duplicate_id_count += given != id_
        self._used_ids.add(id_)
        self._call_ids[given] = id_
        told = dict_at(wire, "toolCall")
        value = dict_at(told, "value")
        if told.get("status") == "error" or not text_at(value, "name"):
            return ToolCall(id_, INVALID_CALL_NAME, dump_json({"error": told.get("error", told.get("value"))}))
        arguments = value.get("arguments")
        return ToolCall(id_, value["name"], json_text("" if arguments == "" else arguments or {}))


def _has_content(message: Message) -> bool:
    return any(not isinstance(part, Text) or part.text for part in message.parts)


def _is_for_model(wire: Any) -> bool:
    """A piece may be for one reader: a result often comes once for the model, and once for the user."""
    audience = value_at(wire, "annotations", "audience") or value_at(wire, "audience")
    return not isinstance(audience, list) or not audience or "assistant" in audience


def _parse_content_item(wire: Any) -> Text | Image | Unknown:
    """A piece of what is said or found, as MCP has them."""
    match wire:
        case {"type": "text", "text": str(words)} | {"type": "resource", "resource": {"text": str(words)}}:
            return Text(words)
        case {"type": "image" | "audio", "data": str(data)}:
            return Image(text_at(wire, "mimeType"), data)
        case {"type": "resource", "resource": {"blob": str(data)}}:
            return Image(text_at(wire, "resource", "mimeType"), data)
        case _:
            return unknown_part(wire)


def _parse_result(call_id: str, told: dict[str, Any], records: Counter[str]) -> ToolResult:
    """What a tool answered; older versions have its content where newer ones have an object around it."""
    if told.get("status") == "error":
        return ToolResult(call_id, (Text(json_text(told.get("error"))),), is_error=True)
    value = told.get("value")
    content = as_list(value) or list_at(value, "content")
    shown: tuple[ResultPart, ...] = tuple(_parse_content_item(piece) for piece in content if _is_for_model(piece))
    records["for the user alone"] += len(content) - len(shown)
    if not content and value_at(value, "structuredContent") is not None:
        shown = (Text(dump_json(value_at(value, "structuredContent"))),)
    return ToolResult(call_id, shown, is_error=value_at(value, "isError") is True)


def parse_goose_usage(told: Any) -> Usage | None:
    """A bill; what a cache served or took is a share of the input."""
    if not isinstance(told, dict):
        return None
    given, output, read, write = (
        as_count(next((told[name] for name in names if told.get(name) is not None), None)) for names in USAGE_FIELDS
    )
    return usage_with_cached_input(given, output, read, write) if given or output else None
