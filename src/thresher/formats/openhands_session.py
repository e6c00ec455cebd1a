"""A session of OpenHands, from its events: what is on the way to its head, what was taken back, what a delegate did.

One message stands for each response of the model, its results after it. A response may make several calls, and each
may be answered before the next is told of: so a response is found again by its id, and a result by the event that it
answers. A condensation begins a new segment: what it does not forget is carried, and the summary stands where the first
thing stood that it forgets.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from msgspec import structs

from thresher.formats.loose import at, text
from thresher.formats.openhands_events import Answered, Called, Condensed, Said, Told, facts_of, name_of
from thresher.formats.source import SourceFile
from thresher.formats.transcript import TITLE, first_prompt, group_branches, way_to_root
from thresher.model import Author, Branch, History, Message, Session, Source, Summary, Text, ToolCall, ToolResult
from thresher.model.jsontext import load_fields

NAME = "openhands"
ROOT = "__root__"
"""What an event names as its parent that starts anew."""
ARTIFACTS = ("ConversationStateUpdateEvent", "ConversationErrorEvent")
"""Events that are written down, and no part of the tree."""
_TASK = re.compile(r"<(?:issue|pr)_description>\s*(\S[^\n]*)")
DEEPEST = 8
"""How far delegates of delegates are followed."""
MOST = 1_000_000
"""Messages that condensations may look through, all together: each may show all of them again."""


class Event(NamedTuple):
    """An event with its place."""

    id: str
    """The one it came with, if no other has the same."""
    wire: dict[str, Any]
    place: Source
    time: datetime | None


class Run(NamedTuple):
    """What is known of a session beside its events."""

    id: str
    told: Told = Told("", {})
    title: str = ""
    project: str = ""
    git_branch: str = ""
    head: str = ""
    """The event that the conversation stands at; empty: the last."""
    is_empty: bool = False
    """Whether it stands before the first."""
    parent: str = ""
    call_id: str = ""
    files: tuple[str, ...] = ()
    depth: int = 0


def session_of(source: SourceFile, run: Run, events: Sequence[Event]) -> Session:
    """The session that events tell of; the problems met are left to whoever asked."""
    own, delegated = _apart(events, run.depth)
    prompter: Author = "model" if run.parent else "human"
    talk = Talk(source, run.told, prompter)
    way, left = _way(source, run, own)
    latest = talk.listen(way)
    segments = talk.histories()
    branches = []
    for after, off in left:
        taken_back = Talk(source, run.told, prompter)
        taken_back.listen(off)
        branches += [Branch(history, latest.get(after, "")) for history in taken_back.histories() if len(history)]
    children = [_delegate(source, run, talk.calls.get(caller.id), inner) for caller, inner in delegated]
    times = [event.time for event in events if event.time]
    return Session(
        agent=NAME,
        id=run.id,
        file=str(source.path),
        segments=tuple(segments),
        branches=tuple(branches),
        children=tuple(children),
        files=run.files,
        compactions=talk.compactions,
        records=dict(Counter(name_of(event.wire) for event in own)),
        project=run.project or next(filter(None, map(_folder_of, own)), ""),
        git_branch=run.git_branch,
        title=run.title or _title(segments),
        version=next((found for event in own if (found := text(at(event.wire, "args", "openhands_version")))), ""),
        parent=run.parent,
        call_id=run.call_id,
        started=min(times, default=None),
        ended=max(times, default=None),
    )


def _title(segments: Sequence[History]) -> str:
    """What is to be done: an evaluation puts it into a frame."""
    prompts = (message.text for segment in segments for message in segment if message.author == "human")
    found = _TASK.search(next(prompts, ""))
    return found[1].strip()[:TITLE] if found else first_prompt(segments)


def _folder_of(event: Event) -> str:
    """Where a command ran."""
    old = text(at(event.wire, "extras", "metadata", "working_dir"))
    return old or text(at(event.wire, "observation", "metadata", "working_dir"))


def _way(source: SourceFile, run: Run, events: Sequence[Event]) -> tuple[list[Event], list[tuple[str, list[Event]]]]:
    """The events on the way to the head, and the others by where they left it."""
    if not run.is_empty and not any(isinstance(event.wire.get("parent_id"), str) for event in events):
        return list(events), []
    by_id = {event.id: event for event in events}
    parents: dict[str, str | None] = {}
    before: str | None = None
    for event in events:
        named = text(event.wire.get("parent_id"))
        if named and named != ROOT and named not in by_id:
            source.problem(
                f"the parent `{named}` of an event is not here", "it follows the one before", event.place.line
            )
            named = ""
        parents[event.id] = None if named == ROOT else named or before
        before = event.id
    nodes = [event.id for event in events if event.wire.get("kind") not in ARTIFACTS]
    head = run.head if run.head in by_id else next(reversed(nodes), "")
    ids, cycle = way_to_root("" if run.is_empty else head, parents)
    if cycle:
        source.problem("events are each other's parents", "followed until the circle closes")
    used = set(ids)
    left = group_branches([event.id for event in events if event.id not in used], used, parents)
    return [by_id[id_] for id_ in ids], [(after, [by_id[id_] for id_ in off]) for (after, _), off in left.items()]


def _apart(events: Sequence[Event], depth: int) -> tuple[list[Event], list[tuple[Event, list[Event]]]]:
    """The events of a session, and those of each delegate with the call that started it."""
    ends = {
        str(event.wire["cause"]): n
        for n, event in enumerate(events)
        if event.wire.get("observation") == "delegate" and type(event.wire.get("cause")) is int
    }
    own: list[Event] = []
    delegated: list[tuple[Event, list[Event]]] = []
    until = 0
    for n, event in enumerate(events):
        if n < until:
            continue
        own.append(event)
        end = ends.get(event.id, 0) if event.wire.get("action") == "delegate" and depth < DEEPEST else 0
        if end > n + 1:
            delegated.append((event, list(events[n + 1 : end])))
            until = end
    return own, delegated


def _delegate(source: SourceFile, run: Run, call: ToolCall | None, events: list[Event]) -> Session:
    """What another agent did; its prompt is the call's where it is not told again."""
    inner = Run(
        f"{run.id}-{events[0].id}",
        run.told,
        project=run.project,
        parent=run.id,
        call_id=call.id if call else "",
        depth=run.depth + 1,
    )
    session = session_of(source, inner, events)
    if call is None or any(message.role == "user" for message in session.segments[0]):
        return session
    task = text(at(load_fields(call.arguments), "inputs", "task")) or call.arguments
    first = events[0]
    prompt = Message("user", (Text(task),), author="model", id=f"{first.id}-task", time=first.time, source=first.place)
    history = History((prompt, *session.segments[0]))
    return structs.replace(session, segments=(history, *session.segments[1:]))


# The conversation


class Row:
    """A message; one of the model's with its calls, and their results by call."""

    def __init__(self, message: Message) -> None:
        """As it was said."""
        self.message = message
        self.calls: list[ToolCall] = []
        self.results: dict[str, Message] = {}

    def messages(self) -> list[Message]:
        """The message, and the results after it."""
        parts = (*self.message.parts, *self.calls)
        return [structs.replace(self.message, parts=parts), *self.results.values()]

    def carried(self) -> "Row":
        """The same, shown once more."""
        again = Row(structs.replace(self.message, carried=True))
        again.calls = [*self.calls]
        again.results = {call: structs.replace(result, carried=True) for call, result in self.results.items()}
        return again


class Asked(NamedTuple):
    """A call that may still be answered."""

    row: Row
    call: ToolCall


class Talk:
    """A conversation that grows event by event."""

    def __init__(self, source: SourceFile, told: Told, prompter: Author) -> None:
        """`prompter` is who wrote the prompt: a model, for a sub-agent."""
        self.compactions = 0
        self.calls: dict[str, ToolCall] = {}
        """The calls by the event that made each."""
        self.last = ""
        """The id of the message that came last."""
        self._source = source
        self._told = told
        self._prompter = prompter
        self._segments: list[list[Message]] = []
        self._rows: list[Row] = []
        self._responses: dict[str, Row] = {}
        self._asked: dict[str, Asked] = {}
        self._ids: set[str] = set()
        self._has_spoken = False
        self._reviewed = 0

    def histories(self) -> list[History]:
        """The segments so far."""
        return [History(tuple(segment)) for segment in (*self._segments, self._shown())]

    def _shown(self) -> list[Message]:
        return [message for row in self._rows for message in row.messages()]

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

    def _placed(self, message: Message, event: Event, id_: str) -> Message:
        self.last = id_
        return structs.replace(message, id=id_, time=event.time, source=event.place)

    def _put(self, message: Message, event: Event, id_: str) -> Row:
        self._rows.append(Row(self._placed(message, event, id_)))
        return self._rows[-1]

    def _say(self, message: Message, event: Event, id_: str) -> None:
        if not message.parts:
            return
        if message.role == "user" and message.author == "human":
            message = structs.replace(message, author=self._prompter)
            if "kind" not in event.wire:  # until 0.62 a person could speak to a delegate, too
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
        row.calls.append(call)
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
        if asked and asked.call.id not in asked.row.results:
            result = ToolResult(asked.call.id, fact.content, is_error=fact.is_error, name=asked.call.name)
            message = Message("tool", (result,), author="tool")
            asked.row.results[asked.call.id] = self._placed(message, event, id_)
        elif fact.content and fact.otherwise:
            self._put(Message("user", fact.content, author=fact.otherwise), event, id_)

    def _condense(self, fact: Condensed, event: Event, id_: str) -> None:
        if self._reviewed > MOST:
            return
        self._reviewed += len(self._rows) + len(self._asked)
        if self._reviewed > MOST:
            what = "there are too many condensations to follow"
            self._source.problem(what, "what they forget stays in view", event.place.line)
            return
        summary = [Row(self._placed(_summary(fact.summary), event, id_))] if fact.summary else []
        gone = {n for n, row in enumerate(self._rows) if fact.forgets(row.message.id)}
        if gone:
            self.compactions += 1
            self._begin_without(gone, summary)
        else:
            self._rows += summary

    def _begin_without(self, gone: set[int], summary: list[Row]) -> None:
        """Begin a segment with what is left, and the summary in the place of what is gone, older ones among it."""
        self._segments.append(self._shown())
        old, self._rows = self._rows, []
        first, carried = min(gone), dict[int, Row]()
        for n, row in enumerate(old):
            self._rows += summary if n == first else []
            if n not in gone and not (summary and _is_summary(row.message)):
                carried[id(row)] = row.carried()
                self._rows.append(carried[id(row)])
        self._responses = {key: carried[id(row)] for key, row in self._responses.items() if id(row) in carried}
        self._asked = {
            key: Asked(carried[id(asked.row)], asked.call)
            for key, asked in self._asked.items()
            if id(asked.row) in carried
        }


def _summary(words: str) -> Message:
    return Message("user", (Summary(words),), author="harness")


def _is_summary(message: Message) -> bool:
    return bool(message.parts) and isinstance(message.parts[0], Summary)
