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

from msgspec.structs import replace

from thresher.model import AbandonedBranch, Author, History, Message, Session, SourceLocation
from thresher.model.jsontext import load_json_object
from thresher.model.parts import Summary, Text, ToolCall, ToolResult
from thresher.transcripts.base import MAX_TITLE_CHARS, group_branches, make_session, title_from_prompt, trace_path
from thresher.transcripts.coerce import text_at
from thresher.transcripts.content import mark_carried
from thresher.transcripts.openhands.events import (
    CallFact,
    CondensationFact,
    EventFact,
    MessageFact,
    ModelFacts,
    ResultFact,
    name_openhands_event,
    parse_openhands_event,
)
from thresher.transcripts.source import SourceFile

NAME = "openhands"
ROOT_PARENT_ID = "__root__"
"""What an event names as its parent that starts anew."""
NON_TREE_EVENT_KINDS = ("ConversationStateUpdateEvent", "ConversationErrorEvent")
"""Events that are written down, and no part of the tree."""
_TASK_DESCRIPTION = re.compile(r"<(?:issue|pr)_description>\s*(\S[^\n]*)")
MAX_DELEGATE_DEPTH = 8
"""How far delegates of delegates are followed."""
MAX_REVIEWED_MESSAGES = 1_000_000
"""Messages that condensations may look through, all together: each may show all of them again."""


class OpenHandsEvent(NamedTuple):
    """An event with its place."""

    id: str
    """The one it came with, if no other has the same."""
    record: dict[str, Any]
    source: SourceLocation
    time: datetime | None


class OpenHandsRun(NamedTuple):
    """What is known of a session beside its events."""

    id: str
    model_info: ModelFacts = ModelFacts("", {})
    title: str = ""
    project: str = ""
    git_branch: str = ""
    head_event_id: str = ""
    """The event that the conversation stands at; empty: the last."""
    is_head_empty: bool = False
    """Whether it stands before the first."""
    parent: str = ""
    call_id: str = ""
    files: tuple[str, ...] = ()
    depth: int = 0


def build_openhands_session(source: SourceFile, run: OpenHandsRun, events: Sequence[OpenHandsEvent]) -> Session:
    """The session that events tell of; the problems met are left to whoever asked."""
    own, delegated = _split_delegates(events, run.depth)
    prompter: Author = "model" if run.parent else "human"
    talk = OpenHandsConversation(source, run.model_info, prompter)
    way, left = _select_active_events(source, run, own)
    latest = talk.add_events(way)
    segments = talk.histories()
    branches = []
    for after, off in left:
        taken_back = OpenHandsConversation(source, run.model_info, prompter)
        taken_back.add_events(off)
        branches += [AbandonedBranch(one, latest.get(after, "")) for one in taken_back.histories() if len(one)]
    callers = ((talk.calls_by_event_id.get(caller.id), inner) for caller, inner in delegated)
    children = [_build_delegate_session(source, run, call, inner) for call, inner in callers]
    return make_session(
        NAME,
        source,
        run.id,
        segments,
        branches=branches,
        children=children,
        files=run.files,
        compactions=talk.compactions,
        records=Counter(name_openhands_event(event.record) for event in own),
        project=run.project or next(filter(None, map(_working_directory, own)), ""),
        git_branch=run.git_branch,
        title=run.title or _make_title(segments),
        version=next(filter(None, (text_at(event.record, "args", "openhands_version") for event in own)), ""),
        parent=run.parent,
        call_id=run.call_id,
        problems=(),
        times=(event.time for event in events),
    )


def _make_title(segments: Sequence[History]) -> str:
    """What is to be done: an evaluation puts it into a frame."""
    prompts = (message.text for segment in segments for message in segment if message.author == "human")
    found = _TASK_DESCRIPTION.search(next(prompts, ""))
    return found[1].strip()[:MAX_TITLE_CHARS] if found else title_from_prompt(segments)


def _working_directory(event: OpenHandsEvent) -> str:
    """Where a command ran."""
    old = text_at(event.record, "extras", "metadata", "working_dir")
    return old or text_at(event.record, "observation", "metadata", "working_dir")


def _select_active_events(
    source: SourceFile, run: OpenHandsRun, events: Sequence[OpenHandsEvent]
) -> tuple[list[OpenHandsEvent], list[tuple[str, list[OpenHandsEvent]]]]:
    """The events on the way to the head, and the others by where they left it."""
    if not run.is_head_empty and not any(isinstance(event.record.get("parent_id"), str) for event in events):
        return list(events), []
    by_id = {event.id: event for event in events}
    parents: dict[str, str | None] = {}
    before: str | None = None
    for event in events:
        named = text_at(event.record, "parent_id")
        if named and named != ROOT_PARENT_ID and named not in by_id:
            what = f"the parent `{named}` of an event is not here"
            source.report(what, "it follows the one before", event.source.line)
            named = ""
        parents[event.id] = None if named == ROOT_PARENT_ID else named or before
        before = event.id
    nodes = [event.id for event in events if event.record.get("kind") not in NON_TREE_EVENT_KINDS]
    head = run.head_event_id if run.head_event_id in by_id else next(reversed(nodes), "")
    ids, cycle = trace_path("" if run.is_head_empty else head, parents)
    if cycle:
        source.report("events are each other's parents", "followed until the circle closes")
    used = set(ids)
    left = group_branches([event.id for event in events if event.id not in used], used, parents)
    return [by_id[id_] for id_ in ids], [(after, [by_id[id_] for id_ in off]) for (after, _), off in left.items()]


def _split_delegates(
    events: Sequence[OpenHandsEvent], depth: int
) -> tuple[list[OpenHandsEvent], list[tuple[OpenHandsEvent, list[OpenHandsEvent]]]]:
    """The events of a session, and those of each delegate with the call that started it."""
    ends = {
        str(event.record["cause"]): n
        for n, event in enumerate(events)
        if event.record.get("observation") == "delegate" and type(event.record.get("cause")) is int
    }
    own: list[OpenHandsEvent] = []
    delegated: list[tuple[OpenHandsEvent, list[OpenHandsEvent]]] = []
    until = 0
    for n, event in enumerate(events):
        if n < until:
            continue
        own.append(event)
        end = ends.get(event.id, 0) if event.record.get("action") == "delegate" and depth < MAX_DELEGATE_DEPTH else 0
        if end > n + 1:
            delegated.append((event, list(events[n + 1 : end])))
            until = end
    return own, delegated


def _build_delegate_session(
    source: SourceFile, run: OpenHandsRun, call: ToolCall | None, events: list[OpenHandsEvent]
) -> Session:
    """What another agent did; its prompt is the call's where it is not told again."""
    inner = OpenHandsRun(
        f"{run.id}-{events[0].id}",
        run.model_info,
        project=run.project,
        parent=run.id,
        call_id=call.id if call else "",
        depth=run.depth + 1,
    )
    session = build_openhands_session(source, inner, events)
    if call is None or any(message.role == "user" for message in session.segments[0]):
        return session
    task = text_at(load_json_object(call.arguments), "inputs", "task") or call.arguments
    first = events[0]
    prompt = Message("user", (Text(task),), author="model", id=f"{first.id}-task", time=first.time, source=first.source)
    history = History((prompt, *session.segments[0]))
    return replace(session, segments=(history, *session.segments[1:]))


# The conversation


class ReplyGroup:
    """A message; one of the model's with its calls, and their results by call."""

    def __init__(self, message: Message) -> None:
        """As it was said."""
        self.message = message
        self.calls: list[ToolCall] = []
        self.results_by_call_id: dict[str, Message] = {}

    def messages(self) -> list[Message]:
        """The message, and the results after it."""
        parts = (*self.message.parts, *self.calls)
        return [replace(self.message, parts=parts), *self.results_by_call_id.values()]

    def as_replayed(self) -> "ReplyGroup":
        """The same, shown once more."""
        again = ReplyGroup(replace(self.message, carried=True))
        again.calls = [*self.calls]
        shown = mark_carried(self.results_by_call_id.values())
        again.results_by_call_id = dict(zip(self.results_by_call_id, shown, strict=True))
        return again


class PendingCall(NamedTuple):
    """A call that may still be answered."""

    group: ReplyGroup
    call: ToolCall


class OpenHandsConversation:
    """A conversation that grows event by event."""

    def __init__(self, source: SourceFile, told: ModelFacts, prompter: Author) -> None:
        """`prompter` is who wrote the prompt: a model, for a sub-agent."""
        self.compactions = 0
        self.calls_by_event_id: dict[str, ToolCall] = {}
        """The calls by the event that made each."""
        self.last_message_id = ""
        """The id of the message that came last."""
        self._source = source
        self._model_info = told
        self._prompter = prompter
        self._segments: list[list[Message]] = []
        self._groups: list[ReplyGroup] = []
        self._groups_by_response_id: dict[str, ReplyGroup] = {}
        self._pending_calls: dict[str, PendingCall] = {}
        self._call_ids: set[str] = set()
        self._has_spoken = False
        self._reviewed_count = 0

    def histories(self) -> list[History]:
        """The segments so far."""
        return [History(tuple(segment)) for segment in (*self._segments, self._current_messages())]

    def _current_messages(self) -> list[Message]:
        return [message for row in self._groups for message in row.messages()]

    def add_events(self, events: Iterable[OpenHandsEvent]) -> dict[str, str]:
        """Take in events; which message came last as of each."""
        latest: dict[str, str] = {}
        for event in events:
            try:
                facts = list(parse_openhands_event(event.record, self._model_info, has_spoken=self._has_spoken))
            except RecursionError:
                self._source.report("an event is nested too deep to follow", "skipped", event.source.line)
                facts = []
            for number, fact in enumerate(facts):
                self._add_fact(fact, event, f"{event.id}-{number}" if number else event.id)
            latest[event.id] = self.last_message_id
        return latest

    def _add_fact(self, fact: EventFact, event: OpenHandsEvent, id_: str) -> None:
        match fact:
            case MessageFact(message):
                self._add_message(message, event, id_)
            case CallFact():
                self._add_call(fact, event, id_)
            case ResultFact():
                self._add_result(fact, event, id_)
            case CondensationFact():
                self._apply_condensation(fact, event, id_)

    def _locate_message(self, message: Message, event: OpenHandsEvent, id_: str) -> Message:
        self.last_message_id = id_
        return replace(message, id=id_, time=event.time, source=event.source)

    def _append_message(self, message: Message, event: OpenHandsEvent, id_: str) -> ReplyGroup:
        self._groups.append(ReplyGroup(self._locate_message(message, event, id_)))
        return self._groups[-1]

    def _add_message(self, message: Message, event: OpenHandsEvent, id_: str) -> None:
        if not message.parts:
            return
        if message.role == "user" and message.author == "human":
            message = replace(message, author=self._prompter)
            if "kind" not in event.record:  # until 0.62 a person could speak to a delegate, too
                self._prompter = "human"
        self._has_spoken = self._has_spoken or message.role == "assistant"
        self._append_message(message, event, id_)

    def _add_call(self, fact: CallFact, event: OpenHandsEvent, id_: str) -> None:
        given = fact.call.id
        own = given if given and given not in self._call_ids else f"call-{event.id}"
        self._call_ids.add(own)
        call = replace(fact.call, id=own)
        row = self._groups_by_response_id.get(fact.response_id) if fact.response_id else None
        if row is None:
            answer = Message("assistant", fact.leading_parts, author="model", model=fact.model, usage=fact.usage)
            row = self._append_message(answer, event, id_)
        row.calls.append(call)
        self._groups_by_response_id[fact.response_id] = row
        for key in filter(None, (event.id, given)):
            self._pending_calls[key] = PendingCall(row, call)
        self._pending_calls[""] = self._pending_calls[event.id]
        self.calls_by_event_id[event.id] = call
        self._has_spoken = True

    def _add_result(self, fact: ResultFact, event: OpenHandsEvent, id_: str) -> None:
        """A result goes to its call; what names none goes to the last, if that has none yet."""
        named = [key for key in fact.call_keys if key]
        asked = next((self._pending_calls[key] for key in named or [""] if key in self._pending_calls), None)
        if asked and asked.call.id not in asked.group.results_by_call_id:
            result = ToolResult(asked.call.id, fact.content, is_error=fact.is_error, name=asked.call.name)
            message = Message("tool", (result,), author="tool")
            asked.group.results_by_call_id[asked.call.id] = self._locate_message(message, event, id_)
        elif fact.content and fact.fallback_author:
            self._append_message(Message("user", fact.content, author=fact.fallback_author), event, id_)

    def _apply_condensation(self, fact: CondensationFact, event: OpenHandsEvent, id_: str) -> None:
        if self._reviewed_count > MAX_REVIEWED_MESSAGES:
            return
        self._reviewed_count += len(self._groups) + len(self._pending_calls)
        if self._reviewed_count > MAX_REVIEWED_MESSAGES:
            what = "there are too many condensations to follow"
            self._source.report(what, "what they forget stays in view", event.source.line)
            return
        message = Message("user", (Summary(fact.summary),), author="harness")
        summary = [ReplyGroup(self._locate_message(message, event, id_))] if fact.summary else []
        gone = {n for n, row in enumerate(self._groups) if fact.is_forgotten(row.message.id)}
        if gone:
            self.compactions += 1
            self._start_segment_without(gone, summary)
        else:
            self._groups += summary

    def _start_segment_without(self, gone: set[int], summary: list[ReplyGroup]) -> None:
        """Begin a segment with what is left, and the summary in the place of what is gone, older ones among it."""
        self._segments.append(self._current_messages())
        old, self._groups = self._groups, []
        first, carried = min(gone), dict[int, ReplyGroup]()
        for n, row in enumerate(old):
            self._groups += summary if n == first else []
            if n not in gone and not (summary and _is_summary(row.message)):
                carried[id(row)] = row.as_replayed()
                self._groups.append(carried[id(row)])
        self._groups_by_response_id = {
            key: carried[id(row)] for key, row in self._groups_by_response_id.items() if id(row) in carried
        }
        self._pending_calls = {
            key: PendingCall(carried[id(asked.group)], asked.call)
            for key, asked in self._pending_calls.items()
            if id(asked.group) in carried
        }


def _is_summary(message: Message) -> bool:
    return bool(message.parts) and isinstance(message.parts[0], Summary)
