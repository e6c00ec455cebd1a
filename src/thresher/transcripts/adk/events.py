"""A session of the Agent Development Kit out of its events, whose contents are Gemini's in either spelling.

A compaction is an event, too: it covers the events of a span of time with a summary, which stands where the span ends.
A later one that covers an earlier one replaces it. A rewind takes back all from an invocation on.
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
from thresher.transcripts.base import make_session, parse_time, title_from_prompt
from thresher.transcripts.coerce import as_count, as_dict, as_list, as_text, text_at
from thresher.transcripts.content import split_results
from thresher.transcripts.source import SourceFile

NAME = "adk"
REQUEST_CALL_PREFIX = "adk_request_"
"""Calls by which the kit asks a person for leave or a password: no model is shown them."""
MAX_REPLAYED_MESSAGES = 1_000_000
"""Messages that compactions may leave in view, all together: each is shown again."""
_UNDERSCORE_LETTER = re.compile(r"_([a-z])")


def to_camel_case(key: str) -> str:
    """The other spelling of a key."""
    return _UNDERSCORE_LETTER.sub(lambda found: found[1].upper(), key)


def either_case(value: Any, key: str) -> Any:
    """What an object tells under a key, in either spelling; what is null is not told."""
    there = as_dict(value)
    found = there.get(key)
    return there.get(to_camel_case(key)) if found is None else found


class AdkMessage(NamedTuple):
    """A message with the invocation it is of; a summary with the time it covers."""

    message: Message
    invocation_id: str
    covered_span: tuple[datetime, datetime] | None = None


class AdkEventReader:
    """A session while its events are read."""

    def __init__(self, source: SourceFile, events: list[Any]) -> None:
        """Nothing yet."""
        self.source = source
        self.records: Counter[str] = Counter()
        self.entries: list[AdkMessage] = []
        self.segments: list[list[AdkMessage]] = []
        self.branches: list[AbandonedBranch] = []
        self.id_counts: Counter[str] = Counter()
        self.invocation_starts: dict[str, int] = {}
        """Where each invocation starts."""
        self.replayed_count = 0
        self.times: list[datetime] = []
        self.last_transcription = ""
        self._pairing = CallIdAssigner(_iter_call_ids(events))

    def read_event(self, number: int, event: Any) -> None:
        """One event."""
        if not isinstance(event, dict):
            self.records["?"] += 1
            self.source.report("an event is no object", "skipped", number)
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
        given = [{"text": content}] if isinstance(content, str) else as_list(either_case(content, "parts"))
        found = parse_gemini_content({"parts": [_normalize_part(part) for part in given]}, self._pairing).parts
        return tuple(part for part in found if _is_shown_to_model(part))

    def _read_transcriptions(self, event: dict[str, Any], blank: Message) -> Iterator[Message]:
        """What was said aloud: piece by piece, and one message as long as the same one speaks."""
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
        place = self.invocation_starts.get(invocation)
        if place is None:
            self.source.report("the invocation that was gone back to is not here", "nothing was taken back", number)
            return
        removed = self.entries[place:]
        del self.entries[place:]
        for line in removed:
            self.invocation_starts.pop(line.invocation_id, None)
        self.last_transcription = ""
        if left := tuple(line.message for line in removed if not line.message.carried):
            self.branches.append(AbandonedBranch(History(left), self.entries[-1].message.id if self.entries else ""))

    def _apply_compaction(self, compaction: Mapping[str, Any], blank: Message) -> None:
        if self.replayed_count > MAX_REPLAYED_MESSAGES:
            return
        parts = self._parse_parts(either_case(compaction, "compacted_content"))
        summary = "\n".join(part.text for part in parts if isinstance(part, Text))
        start, end = (parse_time(either_case(compaction, f"{name}_timestamp")) for name in ("start", "end"))
        span = (start, end) if start and end else None
        stay = [line for line in self.entries if span and not _is_covered(line, span)]
        self.replayed_count += len(stay)
        if not summary or self.replayed_count > MAX_REPLAYED_MESSAGES:
            what = "a compaction tells no summary" if not summary else "there are too many compactions to follow"
            self.source.report(what, "what it covers stays in view", blank.source.line if blank.source else 0)
            return
        again = [line._replace(message=replace(line.message, carried=True)) for line in stay]
        place = next((n for n, line in enumerate(again) if span and _is_later(line, span)), len(again))
        made = AdkMessage(replace(blank, parts=(Summary(summary),), author="harness"), "", span)
        self.segments.append(self.entries)
        self.entries = [*again[:place], made, *again[place:]]
        self.invocation_starts = {line.invocation_id: n for n, line in reversed([*enumerate(self.entries)])}
        self.last_transcription = ""

    def build_session(self, id_: str, title: str = "", project: str = "") -> Session:
        """What came of it."""
        segments = [[line.message for line in part] for part in (*self.segments, self.entries)]
        return make_session(
            NAME,
            self.source,
            id_,
            segments,
            branches=self.branches,
            records=self.records,
            project=project,
            title=title_from_prompt(segments) or title,
            times=self.times,
        )


def _is_shown_to_model(part: Part) -> bool:
    if isinstance(part, ToolCall | ToolResult):
        return not part.name.startswith(REQUEST_CALL_PREFIX)
    return not isinstance(part, Text) or bool(part.text)


def _is_covered(line: AdkMessage, span: tuple[datetime, datetime]) -> bool:
    if line.covered_span:
        return span[0] <= line.covered_span[0] and line.covered_span[1] <= span[1]
    return line.message.time is not None and span[0] <= line.message.time <= span[1]


def _is_later(line: AdkMessage, span: tuple[datetime, datetime]) -> bool:
    time = line.covered_span[1] if line.covered_span else line.message.time
    return time is not None and time > span[1]


def _normalize_part(part: Any) -> Any:
    """A part in the one spelling, without what is null."""
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
                if given := as_text(either_case(either_case(part, key), "id")):
                    yield given


def _parse_usage(metadata: Any) -> Usage | None:
    names = ("prompt", "candidates", "cached_content", "thoughts", "tool_use_prompt")
    given, output, cached, thoughts, tools = (as_count(either_case(metadata, f"{name}_token_count")) for name in names)
    if not given and not output:
        return None
    return Usage(max(given - cached, 0) + tools, output + thoughts, cached, reasoning=thoughts)
