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

from msgspec import structs

from thresher.formats.dialect import author_for
from thresher.formats.loose import at, count, fields, items, text
from thresher.formats.source import SourceFile
from thresher.formats.transcript import first_prompt, timestamp
from thresher.model import (
    Author,
    History,
    Image,
    Message,
    Session,
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

NAME = "goose"
ASIDE = frozenset({
    "systemNotification", "toolConfirmationRequest", "actionRequired", "conversationCompacted",
    "summarizationRequested", "contextLengthExceeded",
})  # fmt: skip
"""Parts that goose shows to its user alone."""
OF_ONE_CALL = "[Historical tool call summary]"
UNNAMED = re.compile(r"(?:CLI|ACP) Session|New (?:session|chat)\b.*", re.IGNORECASE)
"""Names that goose gives before it has a better one."""
BILLED = (
    ("input_tokens", "inputTokens"),
    ("output_tokens", "outputTokens"),
    ("cache_read_tokens", "cache_read_input_tokens", "cacheReadTokens", "cacheReadInputTokens"),
    ("cache_write_tokens", "cache_write_input_tokens", "cacheWriteTokens", "cacheWriteInputTokens"),
)
"""What is billed, each by any of its names: versions and providers differ."""
INVALID = "invalid"
"""The name of a call that the model wrote wrong."""


class Entry(NamedTuple):
    """A message as goose keeps it, and its place."""

    line: int
    wire: dict[str, Any]

    @property
    def is_hidden(self) -> bool:
        """Whether it is kept from the user."""
        return at(self.wire, "metadata", "userVisible") is False

    @property
    def is_shown(self) -> bool:
        """Whether the model would see it next."""
        return at(self.wire, "metadata", "agentVisible") is not False

    def is_hidden_text(self, role: str) -> bool:
        """Whether it is nothing but words that are kept from the user."""
        content = items(self.wire.get("content"))
        is_text = bool(content) and all(at(part, "type") == "text" for part in content)
        return self.is_hidden and is_text and self.wire.get("role") == role


class Facts(NamedTuple):
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


def session_of(source: SourceFile, facts: Facts, entries: Sequence[Entry]) -> Session:
    """The session that these messages are."""
    records = _records(entries)
    segments = _segments(source, facts, entries, records)
    times = [message.time for segment in segments for message in segment if message.time]
    return Session(
        agent=NAME,
        id=facts.id,
        file=str(source.path),
        segments=segments,
        problems=tuple(source.problems),
        compactions=len(segments) - 1,
        records=dict(+records),
        project=facts.project,
        title=facts.title if facts.title and not UNNAMED.fullmatch(facts.title) else first_prompt(segments),
        parent=facts.parent,
        call_id=facts.call_id,
        started=timestamp(facts.started) or min(times, default=None),
        ended=max(times, default=None) or timestamp(facts.ended),
    )


def _segments(source: SourceFile, facts: Facts, entries: Sequence[Entry], records: Counter[str]) -> tuple[History, ...]:
    teller = _Teller(source, facts, records)
    summaries = {
        place
        for place, (entry, after) in enumerate(pairwise(entries))
        if entry.is_hidden_text("user") and after.is_hidden_text("assistant")
    }
    last = max(summaries, default=-1)
    segments: list[list[Message]] = [[]]
    for place, entry in enumerate(entries):
        if place in summaries:
            kept = [message for message, shown in teller.since if shown] if place == last else []
            segments.append([*teller.summary(entry), *(structs.replace(message, carried=True) for message in kept)])
        elif place - 1 in summaries:
            records["continuation"] += 1
        elif entry.is_hidden_text("user") and text(at(entry.wire["content"][0], "text")).startswith(OF_ONE_CALL):
            records["summary of a call"] += 1
        else:
            is_first = place - 2 in summaries
            segments[-1] += teller.told(entry, is_first=is_first, is_old=place < last, is_copied=place + 1 in summaries)
    teller.note_doubles()
    return tuple(History(tuple(segment)) for segment in segments)


def _records(entries: Iterable[Entry]) -> Counter[str]:
    """Messages by role, parts by type."""
    records: Counter[str] = Counter()
    for entry in entries:
        records[text(entry.wire.get("role")) or "?"] += 1
        for part in items(entry.wire.get("content")):
            records[text(at(part, "type")) or "?"] += 1
    return records


class _Teller:
    """One session at work: ids of calls, and what was said since the last summary."""

    def __init__(self, source: SourceFile, facts: Facts, records: Counter[str]) -> None:
        self.since: list[tuple[Message, bool]] = []
        """Messages of this segment, and whether the model would still see them."""
        self._source = source
        self._model = facts.model
        self._prompter: Author = "model" if facts.is_subagent else "human"
        self._records = records
        self._ids: set[str] = set()
        self._calls: dict[str, str] = {}
        self._doubles = 0
        self._prompt = ""

    def note_doubles(self) -> None:
        """Name the ids that were not of one call or message alone."""
        if self._doubles:
            self._source.problem(f"{self._doubles} messages and calls have no id of their own", "named by their place")

    def summary(self, entry: Entry) -> list[Message]:
        """The summary that a new segment begins with."""
        words = "\n".join(text(at(part, "text")) for part in items(entry.wire.get("content")))
        message = Message("user", (Summary(words),), "harness")
        self.since = []
        return self._placed(entry, [message])

    def told(self, entry: Entry, *, is_first: bool, is_old: bool, is_copied: bool) -> list[Message]:
        """The messages of an entry.

        `is_first`: it follows a summary, so that it may repeat the last prompt; `is_old`: a compaction came later,
        which hid all before it; `is_copied`: the summary stands next, so that it was hidden when it was repeated.
        """
        content = enumerate(items(entry.wire.get("content")), 1)
        try:
            parts = [part for place, wire in content if (part := self._part(wire, entry.line, place))]
        except RecursionError:
            self._source.problem("a message is nested too deep to follow", "skipped", entry.line)
            return []
        found = self._placed(entry, [*self._messages(entry, parts, is_old=is_old, is_copied=is_copied)])
        if is_first and found and found[-1].author == "human" and found[-1].text == self._prompt:
            found = [structs.replace(message, carried=True) for message in found]
        self.since += [(message, entry.is_shown) for message in found]
        for message in found:
            self._prompt = message.text if message.author == "human" and message.role == "user" else self._prompt
        return found

    def _messages(self, entry: Entry, parts: Sequence[Part], *, is_old: bool, is_copied: bool) -> Iterator[Message]:
        results = tuple(part for part in parts if isinstance(part, ToolResult))
        rest = tuple(part for part in parts if not isinstance(part, ToolResult))
        role = entry.wire.get("role")
        if role == "assistant":
            for_user = not entry.is_shown and not is_old and all(isinstance(part, Text) for part in rest)
            is_goose = entry.is_hidden or for_user
            model = "" if is_goose else self._model
            yield Message("assistant", rest, "harness" if is_goose else "model", model=model)
        if results:
            yield Message("tool", results, "tool")
        if role != "assistant":
            author = author_for("user", rest)
            if role != "user" or (entry.is_hidden and not (is_copied and not entry.is_shown)):
                author = "harness"
            yield Message("user", rest, self._prompter if author == "human" else author)

    def _placed(self, entry: Entry, messages: Iterable[Message]) -> list[Message]:
        found = [message for message in messages if _says(message)]
        given = text(entry.wire.get("id"))
        id_ = given if given and given not in self._ids else f"line-{entry.line}"
        self._doubles += bool(given) and given != id_
        self._ids.add(id_)
        time, place = timestamp(entry.wire.get("created")), Source(str(self._source.path), entry.line)
        usage = usage_of(at(entry.wire, "metadata", "usage"))
        return [
            structs.replace(
                message,
                id=id_ if number == 0 else f"{id_}-{message.role}",
                time=time,
                source=place,
                usage=usage if message.author == "model" and message.role == "assistant" else None,
            )
            for number, message in enumerate(found)
        ]

    # --- parts ---

    def _part(self, wire: Any, line: int, place: int) -> Part | None:
        """A part; None for what no model is shown."""
        kind = text(at(wire, "type"))
        if kind in ASIDE or not _is_for_model(wire):
            self._records["for the user alone"] += kind not in ASIDE
            return None
        match wire:
            case {"type": "toolRequest" | "frontendToolRequest"}:
                return self._call(wire, f"call-{line}-{place}")
            case {"type": "toolResponse"}:
                given = text(wire.get("id"))
                return _result(self._calls.get(given, given), fields(wire.get("toolResult")), self._records)
            case {"type": "thinking", "thinking": str(words)} | {"type": "reasoning", "text": str(words)}:
                return Thinking(words, text(wire.get("signature")))
            case {"type": "redactedThinking", "data": str(data)}:
                return Thinking("", data)
            case _:
                return _shown(wire)

    def _call(self, wire: dict[str, Any], place: str) -> ToolCall:
        given = text(wire.get("id"))
        id_ = given if given and given not in self._ids else place
        self._doubles += given != id_
        self._ids.add(id_)
        self._calls[given] = id_
        told = fields(wire.get("toolCall"))
        value = fields(told.get("value"))
        if told.get("status") == "error" or not text(value.get("name")):
            return ToolCall(id_, INVALID, dump({"error": told.get("error", told.get("value"))}))
        arguments = value.get("arguments")
        return ToolCall(id_, value["name"], arguments if isinstance(arguments, str) else dump(arguments or {}))


def _says(message: Message) -> bool:
    return any(not isinstance(part, Text) or part.text for part in message.parts)


def _is_for_model(wire: Any) -> bool:
    """A piece may be for one reader: a result often comes once for the model, and once for the user."""
    audience = at(wire, "annotations", "audience") or fields(wire).get("audience")
    return not isinstance(audience, list) or not audience or "assistant" in audience


def _shown(wire: Any) -> Text | Image | Unknown:
    """A piece of what is said or found, as MCP has them."""
    match wire:
        case {"type": "text", "text": str(words)} | {"type": "resource", "resource": {"text": str(words)}}:
            return Text(words)
        case {"type": "image" | "audio", "data": str(data)}:
            return Image(text(wire.get("mimeType")), data)
        case {"type": "resource", "resource": {"blob": str(data)}}:
            return Image(text(at(wire, "resource", "mimeType")), data)
        case _:
            return Unknown(text(at(wire, "type")), dump(wire))


def _result(call_id: str, told: dict[str, Any], records: Counter[str]) -> ToolResult:
    """What a tool answered; older versions have its content where newer ones have an object around it."""
    if told.get("status") == "error":
        error = told.get("error")
        return ToolResult(call_id, (Text(error if isinstance(error, str) else dump(error)),), is_error=True)
    value = told.get("value")
    content = items(value) or items(at(value, "content"))
    shown: tuple[ResultPart, ...] = tuple(_shown(piece) for piece in content if _is_for_model(piece))
    records["for the user alone"] += len(content) - len(shown)
    if not content and at(value, "structuredContent") is not None:
        shown = (Text(dump(at(value, "structuredContent"))),)
    return ToolResult(call_id, shown, is_error=at(value, "isError") is True)


def usage_of(told: Any) -> Usage | None:
    """A bill; what a cache served or took is a share of the input."""
    if not isinstance(told, dict):
        return None
    given, output, read, write = (
        count(next((told[name] for name in names if told.get(name) is not None), None)) for names in BILLED
    )
    if not (given or output):
        return None
    return Usage(max(given - read - write, 0), output, read, write)
