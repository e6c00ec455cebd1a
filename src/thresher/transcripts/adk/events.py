"""Parse the events of a Google ADK session.

Event contents are Gemini contents, with keys in camel case or snake case. A compaction is an event with a summary of
all events in a time span. The reader inserts the summary where the span ends. A later compaction whose span covers an
earlier summary replaces that summary. A rewind event removes everything from one invocation onward.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from msgspec.structs import replace

from thresher.dialects.content import infer_message_author
from thresher.dialects.gemini.codec import parse_gemini_content
from thresher.dialects.pairing import CallIdAssigner
from thresher.model import AbandonedBranch, History, Message, Session, Usage
from thresher.model.parts import Part, Summary, Text, ToolCall, ToolResult
from thresher.transcripts.base import SessionFacts, make_session, parse_time, title_from_prompt
from thresher.transcripts.coerce import as_count, as_dict, as_list, as_text, text_at
from thresher.transcripts.content import split_results
from thresher.transcripts.source import SourceFile

NAME = "adk"
REQUEST_CALL_PREFIX = "adk_request_"
"""Prefix of the names of calls that ask a user for approval or credentials. Models never see these calls."""
MAX_REPLAYED_MESSAGES = 1_000_000
"""Maximum number of messages that the compactions of a session together carry over, against hostile files."""
_UNDERSCORE_LETTER = re.compile(r"_([a-z])")


def to_camel_case(key: str) -> str:
    """Convert a snake-case key to camel case."""
    return _UNDERSCORE_LETTER.sub(lambda match: match[1].upper(), key)


def either_case(value: Any, key: str) -> Any:
    """Return the value under a snake-case key or its camel-case form. Treat null as missing."""
    fields = as_dict(value)
    value = fields.get(key)
    return fields.get(to_camel_case(key)) if value is None else value


class AdkMessage(NamedTuple):
    """A message with the id of its invocation. For a summary, also the time span that the summary covers."""

    message: Message
    invocation_id: str
    covered_span: tuple[datetime, datetime] | None = None

    @property
    def span(self) -> tuple[datetime, datetime] | None:
        """Time span of the message: the span that a summary covers, else the message's time as start and end."""
        time = self.message.time
        return self.covered_span or ((time, time) if time else None)


class AdkEventReader:
    """Reader that builds one session from the events of the session."""

    def __init__(self, source: SourceFile, events: list[Any]) -> None:
        """Start with an empty session. `events` are all events: generated call ids differ from the call ids in them."""
        self.source = source
        self.records: Counter[str] = Counter()
        self.entries: list[AdkMessage] = []
        self.segments: list[list[AdkMessage]] = []
        self.branches: list[AbandonedBranch] = []
        self.id_counts: Counter[str] = Counter()
        self.invocation_starts: dict[str, int] = {}
        """Index of the first message of each invocation."""
        self.replayed_count = 0
        self.times: list[datetime] = []
        self.last_transcription = ""
        self._pairing = CallIdAssigner(_iter_call_ids(events))

    def read_event(self, number: int, event: Any) -> None:
        """Add one event to the session."""
        if not isinstance(event, dict):
            self.records["?"] += 1
            self.source.report("an event is not a JSON object", "skipped", number)
            return
        self.records["partial" if event.get("partial") is True else text_at(event, "author") or "?"] += 1
        actions, time = either_case(event, "actions"), parse_time(event.get("timestamp"))
        self.times += [time] if time else []
        id_ = text_at(event, "id") or f"{number}"
        self.id_counts[id_] += 1
        own = id_ if self.id_counts[id_] == 1 else f"{id_}-{self.id_counts[id_]}"
        blank = Message("user", id=own, time=time, source=self.source.at(number))
        if event.get("partial") is True:
            return
        if before := as_text(either_case(actions, "rewind_before_invocation_id")):
            self._apply_rewind(before, number)
        elif isinstance(either_case(actions, "compaction"), dict):
            self._apply_compaction(either_case(actions, "compaction"), blank)
        else:
            invocation = as_text(either_case(event, "invocation_id"))
            for message in self._build_messages(event, blank):
                if message.parts:
                    self.invocation_starts.setdefault(invocation, len(self.entries))
                    self.entries.append(AdkMessage(message, invocation))

    def _build_messages(self, event: dict[str, Any], blank: Message) -> Iterator[Message]:
        parts = self._parse_parts(either_case(event, "content"))
        role = either_case(either_case(event, "content"), "role")
        is_user = event.get("author") == "user" or (not event.get("author") and role == "user")
        results, others = split_results(parts)
        id_ = f"{blank.id}-results" if others else blank.id
        yield replace(blank, role="tool", parts=results, author="tool", id=id_)
        if is_user:
            yield replace(blank, parts=others, author=infer_message_author("user", others))
        else:
            model = as_text(either_case(event, "model_version"))
            usage = _parse_usage(either_case(event, "usage_metadata"))
            yield replace(blank, role="assistant", parts=others, author="model", model=model, usage=usage)
        if not parts:
            yield from self._read_transcriptions(event, blank)
        else:
            self.last_transcription = ""

    def _parse_parts(self, content: Any) -> tuple[Part, ...]:
        wires = [{"text": content}] if isinstance(content, str) else as_list(either_case(content, "parts"))
        parsed = parse_gemini_content({"parts": [_normalize_part(part) for part in wires]}, self._pairing).parts
        return tuple(part for part in parsed if _is_shown_to_model(part))

    def _read_transcriptions(self, event: dict[str, Any], blank: Message) -> Iterator[Message]:
        """Yield the messages of an audio transcription. If the speaker stays the same, extend the last message."""
        for key in ("input_transcription", "output_transcription"):
            piece = as_text(either_case(either_case(event, key), "text"))
            last = self.entries[-1].message if self.entries else None
            if piece and last and self.last_transcription == key:
                parts = (Text(last.text + piece),)
                self.entries[-1] = self.entries[-1]._replace(message=replace(last, parts=parts))
            elif piece and key == "input_transcription":
                yield replace(blank, parts=(Text(piece),), author="human")
            elif piece:
                yield replace(blank, role="assistant", parts=(Text(piece),), author="model")
            self.last_transcription = key if piece else self.last_transcription

    def _apply_rewind(self, invocation: str, number: int) -> None:
        start = self.invocation_starts.get(invocation)
        if start is None:
            self.source.report("a rewind names an invocation that does not exist", "the rewind is ignored", number)
            return
        removed = self.entries[start:]
        del self.entries[start:]
        for entry in removed:
            self.invocation_starts.pop(entry.invocation_id, None)
        self.last_transcription = ""
        if abandoned := tuple(entry.message for entry in removed if not entry.message.carried):
            parent = self.entries[-1].message.id if self.entries else ""
            self.branches.append(AbandonedBranch(History(abandoned), parent))

    def _apply_compaction(self, compaction: Mapping[str, Any], blank: Message) -> None:
        if self.replayed_count > MAX_REPLAYED_MESSAGES:
            return
        parts = self._parse_parts(either_case(compaction, "compacted_content"))
        summary = "\n".join(part.text for part in parts if isinstance(part, Text))
        start, end = (parse_time(either_case(compaction, f"{name}_timestamp")) for name in ("start", "end"))
        span = (start, end) if start and end else None
        kept = [entry for entry in self.entries if span and not _covers(span, entry.span)]
        self.replayed_count += len(kept)
        if not summary or self.replayed_count > MAX_REPLAYED_MESSAGES:
            problem = "a compaction has no summary" if not summary else "the session has too many compactions"
            self.source.report(problem, "the compaction is ignored", blank.source.line if blank.source else 0)
            return
        carried = [entry._replace(message=replace(entry.message, carried=True)) for entry in kept]
        later = (n for n, entry in enumerate(carried) if span and entry.span and entry.span[1] > span[1])
        index = next(later, len(carried))
        summary_entry = AdkMessage(replace(blank, parts=(Summary(summary),), author="harness"), "", span)
        self.segments.append(self.entries)
        self.entries = [*carried[:index], summary_entry, *carried[index:]]
        self.invocation_starts = {entry.invocation_id: n for n, entry in reversed([*enumerate(self.entries)])}
        self.last_transcription = ""

    def build_session(self, id_: str, title: str = "", project: str = "") -> Session:
        """Return the session of all events read so far."""
        segments = [[entry.message for entry in segment] for segment in (*self.segments, self.entries)]
        title = title_from_prompt(segments) or title
        facts: SessionFacts = {"branches": self.branches, "records": self.records, "project": project, "title": title}
        return make_session(NAME, self.source, id_, segments, self.times, **facts)


def _is_shown_to_model(part: Part) -> bool:
    if isinstance(part, ToolCall | ToolResult):
        return not part.name.startswith(REQUEST_CALL_PREFIX)
    return not isinstance(part, Text) or bool(part.text)


def _covers(span: tuple[datetime, datetime], inner: tuple[datetime, datetime] | None) -> bool:
    return inner is not None and span[0] <= inner[0] and inner[1] <= span[1]


def _normalize_part(part: Any) -> Any:
    """Convert the keys of a part to camel case, and remove fields whose value is null."""
    if not isinstance(part, dict):
        return part
    plain = {to_camel_case(key): value for key, value in part.items() if value is not None}
    for key in ("inlineData", "fileData"):
        if isinstance(plain.get(key), dict):
            plain[key] = {to_camel_case(name): value for name, value in plain[key].items() if value is not None}
    return plain


def _iter_call_ids(events: Iterable[Any]) -> Iterator[str]:
    for event in events:
        for part in as_list(either_case(either_case(event, "content"), "parts")):
            for key in ("function_call", "function_response"):
                if call_id := as_text(either_case(either_case(part, key), "id")):
                    yield call_id


def _parse_usage(metadata: Any) -> Usage | None:
    names = ("prompt", "candidates", "cached_content", "thoughts", "tool_use_prompt")
    prompt, output, cached, thoughts, tools = (as_count(either_case(metadata, f"{key}_token_count")) for key in names)
    if not prompt and not output:
        return None
    return Usage(max(prompt - cached, 0) + tools, output + thoughts, cached, reasoning=thoughts)
