"""The facts of OpenHands' events put together: one message for each response of the model, its results after it.

A response may make several calls, and each may be answered before the next is told of: so a response is found again by
its id, and a result by the event that it answers. A condensation begins a new segment: what it does not forget is
carried, and the summary stands where the first thing stood that it forgets.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Any, NamedTuple

from msgspec import structs

from thresher.formats.openhands_events import Answered, Called, Condensed, Said, Told, facts_of
from thresher.formats.source import SourceFile
from thresher.model import Author, History, Message, Source, Summary, ToolCall, ToolResult

Row = list[Message]
"""A message, and after an answer of the model its results."""


class Event(NamedTuple):
    """An event with its place."""

    id: str
    """The one it came with, if no other has the same."""
    wire: dict[str, Any]
    place: Source
    time: datetime | None


class Asked(NamedTuple):
    """A call that may still be answered."""

    row: Row
    call: ToolCall


class Talk:
    """A conversation that grows event by event."""

    def __init__(self, source: SourceFile, told: Told, prompter: Author = "human") -> None:
        """`prompter` is who wrote the first prompt: a model, for a sub-agent."""
        self.compactions = 0
        self.calls: dict[str, ToolCall] = {}
        """The calls by the event that made each."""
        self.last = ""
        """The id of the message that came last."""
        self._source = source
        self._told = told
        self._prompter = prompter
        self._segments: list[Row] = []
        self._rows: list[Row] = []
        self._responses: dict[str, Row] = {}
        self._asked: dict[str, Asked] = {}
        self._ids: set[str] = set()
        self._has_spoken = False

    def histories(self) -> list[History]:
        """The segments so far."""
        rows = [*self._segments, [message for row in self._rows for message in row]]
        return [History(tuple(row)) for row in rows]

    def listen(self, events: Iterable[Event]) -> dict[str, str]:
        """Take in events; which message came last as of each."""
        latest: dict[str, str] = {}
        for event in events:
            try:
                facts = list(facts_of(event.wire, self._told, has_spoken=self._has_spoken))
            except RecursionError:
                self._source.problem("an event is nested too deep to follow", "skipped", event.place.line)
                facts = []
            for number, fact in enumerate(facts):
                self._take(fact, event, f"{event.id}-{number}" if number else event.id)
            latest[event.id] = self.last
        return latest

    def _take(self, fact: Said | Called | Answered | Condensed, event: Event, id_: str) -> None:
        match fact:
            case Said(message):
                self._say(message, event, id_)
            case Called():
                self._call(fact, event, id_)
            case Answered():
                self._answer(fact, event, id_)
            case Condensed():
                self._condense(fact, event, id_)

    def _put(self, message: Message, event: Event, id_: str, row: Row | None = None) -> Row:
        self.last = id_
        placed = structs.replace(message, id=id_, time=event.time, source=event.place)
        if row is None:
            row = []
            self._rows.append(row)
        row.append(placed)
        return row

    def _say(self, message: Message, event: Event, id_: str) -> None:
        if not message.parts:
            return
        if message.role == "user" and message.author == "human":
            message = structs.replace(message, author=self._prompter)
            self._prompter = "human"
        self._has_spoken = self._has_spoken or message.role == "assistant"
        self._put(message, event, id_)

    def _call(self, fact: Called, event: Event, id_: str) -> None:
        given = fact.call.id
        own = given if given and given not in self._ids else f"call-{event.id}"
        self._ids.add(own)
        call = structs.replace(fact.call, id=own)
        row = self._responses.get(fact.response) if fact.response else None
        if row is None:
            answer = Message("assistant", fact.words, author="model", model=fact.model, usage=fact.usage)
            row = self._put(answer, event, id_)
        row[0] = structs.replace(row[0], parts=(*row[0].parts, call))
        self._responses[fact.response] = row
        for key in filter(None, (event.id, given)):
            self._asked[key] = Asked(row, call)
        self._asked[""] = self._asked[event.id]
        self.calls[event.id] = call
        self._has_spoken = True

    def _answer(self, fact: Answered, event: Event, id_: str) -> None:
        """A result goes to its call; what names none goes to the last, if that has none yet."""
        named = [key for key in fact.keys if key]
        asked = next((self._asked[key] for key in named or [""] if key in self._asked), None)
        if asked and not any(result.call_id == asked.call.id for one in asked.row for result in one.results):
            result = ToolResult(asked.call.id, fact.content, is_error=fact.is_error, name=asked.call.name)
            self._put(Message("tool", (result,), author="tool"), event, id_, asked.row)
        elif fact.content and fact.otherwise:
            self._put(Message("user", fact.content, author=fact.otherwise), event, id_)

    def _condense(self, fact: Condensed, event: Event, id_: str) -> None:
        gone = [n for n, row in enumerate(self._rows) if fact.forgets(row[0].id)]
        summary = Message("user", (Summary(fact.summary),), author="harness")
        if not gone:
            if fact.summary:
                self._put(summary, event, id_)
            return
        self.compactions += 1
        self._segments.append([message for row in self._rows for message in row])
        old, self._rows = self._rows, []
        forgotten = {*gone, *(n for n, row in enumerate(old) if fact.summary and _is_summary(row[0]))}
        carried: dict[int, Row] = {}
        for n, row in enumerate(old):
            if n == gone[0] and fact.summary:
                self._put(summary, event, id_)
            if n not in forgotten:
                carried[id(row)] = [structs.replace(message, carried=True) for message in row]
                self._rows.append(carried[id(row)])
        self._responses = {key: carried[id(row)] for key, row in self._responses.items() if id(row) in carried}
        self._asked = {
            key: Asked(carried[id(asked.row)], asked.call)
            for key, asked in self._asked.items()
            if id(asked.row) in carried
        }


def _is_summary(message: Message) -> bool:
    return bool(message.parts) and isinstance(message.parts[0], Summary)
