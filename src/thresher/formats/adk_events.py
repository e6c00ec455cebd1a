"""A session of the Agent Development Kit out of its events, whose contents are Gemini's in either spelling.

A compaction is an event, too: it covers the events of a span of time with a summary, which stands where the span ends.
A later one that covers an earlier one replaces it. A rewind takes back all from an invocation on.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from msgspec import structs

from thresher.formats.dialect import Pairing, author_for
from thresher.formats.gemini import parse_content
from thresher.formats.loose import count, fields, items, text
from thresher.formats.source import SourceFile
from thresher.formats.transcript import first_prompt, timestamp
from thresher.model import Branch, History, Message, Session, Source, Summary, Text, ToolCall, ToolResult, Usage
from thresher.model.parts import Part

NAME = "adk"
REQUESTS = "adk_request_"
"""Calls by which the kit asks a person for leave or a password: no model is shown them."""
MOST = 1_000_000
"""Messages that compactions may leave in view, all together: each is shown again."""
_HUMP = re.compile(r"_([a-z])")


def camel(key: str) -> str:
    """The other spelling of a key."""
    return _HUMP.sub(lambda found: found[1].upper(), key)


def told(value: Any, key: str) -> Any:
    """What an object tells under a key, in either spelling; what is null is not told."""
    there = fields(value)
    found = there.get(key)
    return there.get(camel(key)) if found is None else found


class Line(NamedTuple):
    """A message with the invocation it is of; a summary with the time it covers."""

    message: Message
    invocation: str
    span: tuple[datetime, datetime] | None = None


class Telling:
    """A session while its events are read."""

    def __init__(self, source: SourceFile, events: list[Any]) -> None:
        """Nothing yet."""
        self.source = source
        self.records: Counter[str] = Counter()
        self.lines: list[Line] = []
        self.segments: list[list[Line]] = []
        self.branches: list[Branch] = []
        self.ids: Counter[str] = Counter()
        self.first: dict[str, int] = {}
        """Where each invocation starts."""
        self.carried = 0
        self.times: list[datetime] = []
        self.heard = ""
        self._pairing = Pairing(_given_ids(events))

    def take(self, number: int, event: Any) -> None:
        """One event."""
        if not isinstance(event, dict):
            self.records["?"] += 1
            self.source.problem("an event is no object", "skipped", number)
            return
        self.records["partial" if event.get("partial") is True else text(event.get("author")) or "?"] += 1
        actions, time = told(event, "actions"), timestamp(event.get("timestamp"))
        self.times += [time] if time else []
        id_ = text(event.get("id")) or f"{number}"
        self.ids[id_] += 1
        own = id_ if self.ids[id_] == 1 else f"{id_}-{self.ids[id_]}"
        blank = Message("user", id=own, time=time, source=Source(str(self.source.path), number))
        if event.get("partial") is True:
            return
        if before := text(told(actions, "rewind_before_invocation_id")):
            self._rewind(before, number)
        elif isinstance(told(actions, "compaction"), dict):
            self._compact(told(actions, "compaction"), blank)
        else:
            invocation = text(told(event, "invocation_id"))
            for message in self._messages(event, blank):
                if message.parts:
                    self.first.setdefault(invocation, len(self.lines))
                    self.lines.append(Line(message, invocation))

    def _messages(self, event: dict[str, Any], blank: Message) -> Iterator[Message]:
        parts = self._parts(told(event, "content"))
        role = told(told(event, "content"), "role")
        is_user = event.get("author") == "user" or (not event.get("author") and role == "user")
        results = tuple(part for part in parts if isinstance(part, ToolResult))
        others = tuple(part for part in parts if not isinstance(part, ToolResult))
        id_ = f"{blank.id}-results" if others else blank.id
        yield structs.replace(blank, role="tool", parts=results, author="tool", id=id_)
        if is_user:
            yield structs.replace(blank, parts=others, author=author_for("user", others))
        else:
            model, usage = text(told(event, "model_version")), _usage(told(event, "usage_metadata"))
            yield structs.replace(blank, role="assistant", parts=others, author="model", model=model, usage=usage)
        if not parts:
            yield from self._spoken(event, blank)
        else:
            self.heard = ""

    def _parts(self, content: Any) -> tuple[Part, ...]:
        given = [{"text": content}] if isinstance(content, str) else items(told(content, "parts"))
        found = parse_content({"parts": [_plain(part) for part in given]}, self._pairing).parts
        return tuple(part for part in found if _is_shown(part))

    def _spoken(self, event: dict[str, Any], blank: Message) -> Iterator[Message]:
        """What was said aloud: piece by piece, and one message as long as the same one speaks."""
        for key in ("input_transcription", "output_transcription"):
            piece = text(told(told(event, key), "text"))
            last = self.lines[-1].message if self.lines else None
            if piece and last and self.heard == key:
                parts = (Text(last.text + piece),)
                self.lines[-1] = self.lines[-1]._replace(message=structs.replace(last, parts=parts))
            elif piece and key == "input_transcription":
                yield structs.replace(blank, parts=(Text(piece),), author="human")
            elif piece:
                yield structs.replace(blank, role="assistant", parts=(Text(piece),), author="model")
            self.heard = key if piece else self.heard

    def _rewind(self, invocation: str, number: int) -> None:
        place = self.first.get(invocation)
        if place is None:
            self.source.problem("the invocation that was gone back to is not here", "nothing was taken back", number)
            return
        removed = self.lines[place:]
        del self.lines[place:]
        for line in removed:
            self.first.pop(line.invocation, None)
        self.heard = ""
        if left := tuple(line.message for line in removed if not line.message.carried):
            self.branches.append(Branch(History(left), self.lines[-1].message.id if self.lines else ""))

    def _compact(self, compaction: Mapping[str, Any], blank: Message) -> None:
        if self.carried > MOST:
            return
        parts = self._parts(told(compaction, "compacted_content"))
        summary = "\n".join(part.text for part in parts if isinstance(part, Text))
        start, end = (timestamp(told(compaction, f"{name}_timestamp")) for name in ("start", "end"))
        span = (start, end) if start and end else None
        stay = [line for line in self.lines if span and not _is_covered(line, span)]
        self.carried += len(stay)
        if not summary or self.carried > MOST:
            what = "a compaction tells no summary" if not summary else "there are too many compactions to follow"
            self.source.problem(what, "what it covers stays in view", blank.source.line if blank.source else 0)
            return
        again = [line._replace(message=structs.replace(line.message, carried=True)) for line in stay]
        place = next((n for n, line in enumerate(again) if span and _is_later(line, span)), len(again))
        made = Line(structs.replace(blank, parts=(Summary(summary),), author="harness"), "", span)
        self.segments.append(self.lines)
        self.lines = [*again[:place], made, *again[place:]]
        self.first = {line.invocation: n for n, line in reversed([*enumerate(self.lines)])}
        self.heard = ""

    def session(self, id_: str, title: str = "", project: str = "") -> Session:
        """What came of it."""
        segments = [History(tuple(line.message for line in part)) for part in (*self.segments, self.lines)]
        return Session(
            agent=NAME,
            id=id_,
            file=str(self.source.path),
            segments=tuple(segments),
            branches=tuple(self.branches),
            problems=tuple(self.source.problems),
            compactions=len(self.segments),
            records=dict(self.records),
            project=project,
            title=first_prompt(segments) or title,
            started=min(self.times, default=None),
            ended=max(self.times, default=None),
        )


def _is_shown(part: Part) -> bool:
    if isinstance(part, ToolCall | ToolResult):
        return not part.name.startswith(REQUESTS)
    return not isinstance(part, Text) or bool(part.text)


def _is_covered(line: Line, span: tuple[datetime, datetime]) -> bool:
    if line.span:
        return span[0] <= line.span[0] and line.span[1] <= span[1]
    return line.message.time is not None and span[0] <= line.message.time <= span[1]


def _is_later(line: Line, span: tuple[datetime, datetime]) -> bool:
    time = line.span[1] if line.span else line.message.time
    return time is not None and time > span[1]


def _plain(part: Any) -> Any:
    """A part in the one spelling, without what is null."""
    if not isinstance(part, dict):
        return part
    plain = {camel(key): value for key, value in part.items() if value is not None}
    for key in ("inlineData", "fileData"):
        if isinstance(plain.get(key), dict):
            plain[key] = {camel(name): value for name, value in plain[key].items() if value is not None}
    return plain


def _given_ids(events: Iterable[Any]) -> Iterator[str]:
    for event in events:
        for part in items(told(told(event, "content"), "parts")):
            for key in ("function_call", "function_response"):
                if given := text(told(told(part, key), "id")):
                    yield given


def _usage(metadata: Any) -> Usage | None:
    names = ("prompt", "candidates", "cached_content", "thoughts", "tool_use_prompt")
    given, output, cached, thoughts, tools = (count(told(metadata, f"{name}_token_count")) for name in names)
    if not given and not output:
        return None
    return Usage(max(given - cached, 0) + tools, output + thoughts, cached, reasoning=thoughts)
