"""Build an OpenHands session from its events: the active path, abandoned branches and delegates.

Each model response becomes one message, followed by the results of its calls. A response can make several calls, and a
result can come before the event of the next call. So the builder groups calls by response id and matches each result
with its call by event id or call id. A condensation that forgets messages starts a segment. The other messages are
carried over, and the summary replaces the first forgotten message.
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
"""Value of `parent_id` for an event without a parent."""
NON_TREE_EVENT_KINDS = ("ConversationStateUpdateEvent", "ConversationErrorEvent")
"""Kinds of events that the reader never chooses as the head, the last event of the active path."""
_TASK_DESCRIPTION = re.compile(r"<(?:issue|pr)_description>\s*(\S[^\n]*)")
MAX_DELEGATE_DEPTH = 8
"""Maximum depth of nested delegates and sub-agents."""
MAX_REVIEWED_MESSAGES = 1_000_000
"""Number of checked messages and calls after which condensations are ignored. Each condensation checks all of them."""


class OpenHandsEvent(NamedTuple):
    """An event with its location."""

    id: str
    """Unique id: the original id, or a generated one if the original is missing or a duplicate."""
    record: dict[str, Any]
    source: SourceLocation
    time: datetime | None


class OpenHandsRun(NamedTuple):
    """Facts about a session, read from data outside its events."""

    id: str
    model_info: ModelFacts = ModelFacts("", {})
    title: str = ""
    project: str = ""
    git_branch: str = ""
    head_event_id: str = ""
    """Id of the last event on the active path. If empty, the path ends at the last event of the session."""
    is_head_empty: bool = False
    """True if the active path is empty."""
    parent: str = ""
    call_id: str = ""
    files: tuple[str, ...] = ()
    depth: int = 0

    @property
    def can_delegate(self) -> bool:
        """True if sub-agents of this session are still within the nesting limit."""
        return self.depth < MAX_DELEGATE_DEPTH


def build_openhands_session(source: SourceFile, run: OpenHandsRun, events: Sequence[OpenHandsEvent]) -> Session:
    """Build the session from its events. The caller must add the problems of the source."""
    own, delegated = _split_delegates(events) if run.can_delegate else ([*events], [])
    prompter: Author = "model" if run.parent else "human"
    conversation = OpenHandsConversation(source, run.model_info, prompter)
    active, abandoned = _select_active_events(source, run, own)
    latest = conversation.add_events(active)
    segments = conversation.histories()
    branches = []
    for after, branch_events in abandoned:
        branch = OpenHandsConversation(source, run.model_info, prompter)
        branch.add_events(branch_events)
        branches += [AbandonedBranch(history, latest.get(after, "")) for history in branch.histories() if len(history)]
    callers = ((conversation.calls_by_event_id.get(caller.id), inner) for caller, inner in delegated)
    children = [_build_delegate_session(source, run, call, inner) for call, inner in callers]
    return make_session(
        NAME,
        source,
        run.id,
        segments,
        branches=branches,
        children=children,
        files=run.files,
        compactions=conversation.compactions,
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
    """Return the first line of an evaluation's task description, else a title made from the first prompt."""
    prompts = (message.text for segment in segments for message in segment if message.author == "human")
    match = _TASK_DESCRIPTION.search(next(prompts, ""))
    return match[1].strip()[:MAX_TITLE_CHARS] if match else title_from_prompt(segments)


def _working_directory(event: OpenHandsEvent) -> str:
    """Return the folder in which a command ran."""
    legacy = text_at(event.record, "extras", "metadata", "working_dir")
    return legacy or text_at(event.record, "observation", "metadata", "working_dir")


def _select_active_events(
    source: SourceFile, run: OpenHandsRun, events: Sequence[OpenHandsEvent]
) -> tuple[list[OpenHandsEvent], list[tuple[str, list[OpenHandsEvent]]]]:
    """Return the events on the path to the head, and the other events, grouped by the event where they branch off."""
    if not run.is_head_empty and not any(isinstance(event.record.get("parent_id"), str) for event in events):
        return list(events), []
    by_id = {event.id: event for event in events}
    parents: dict[str, str | None] = {}
    before: str | None = None
    for event in events:
        parent = text_at(event.record, "parent_id")
        if parent and parent != ROOT_PARENT_ID and parent not in by_id:
            problem = f"an event's parent `{parent}` does not exist"
            source.report(problem, "the previous event is used", event.source.line)
            parent = ""
        parents[event.id] = None if parent == ROOT_PARENT_ID else parent or before
        before = event.id
    nodes = [event.id for event in events if event.record.get("kind") not in NON_TREE_EVENT_KINDS]
    head = run.head_event_id if run.head_event_id in by_id else next(reversed(nodes), "")
    ids, cycle = trace_path("" if run.is_head_empty else head, parents)
    if cycle:
        source.report("the parents of events form a cycle", "the cycle is cut")
    used = set(ids)
    branches = group_branches([event.id for event in events if event.id not in used], used, parents)
    return [by_id[id_] for id_ in ids], [(after, [by_id[id_] for id_ in off]) for (after, _), off in branches.items()]


def _split_delegates(
    events: Sequence[OpenHandsEvent],
) -> tuple[list[OpenHandsEvent], list[tuple[OpenHandsEvent, list[OpenHandsEvent]]]]:
    """Return the session's own events and, for each delegate, the event that started it and the delegate's events."""
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
        end = ends.get(event.id, 0) if event.record.get("action") == "delegate" else 0
        if end > n + 1:
            delegated.append((event, list(events[n + 1 : end])))
            until = end
    return own, delegated


def _build_delegate_session(
    source: SourceFile, run: OpenHandsRun, call: ToolCall | None, events: list[OpenHandsEvent]
) -> Session:
    """Build the session of a delegate. If its events contain no prompt, take the prompt from the call."""
    id_, call_id = f"{run.id}-{events[0].id}", call.id if call else ""
    inner = OpenHandsRun(id_, run.model_info, project=run.project, parent=run.id, call_id=call_id, depth=run.depth + 1)
    session = build_openhands_session(source, inner, events)
    if call is None or any(message.role == "user" for message in session.segments[0]):
        return session
    task = text_at(load_json_object(call.arguments), "inputs", "task") or call.arguments
    first = events[0]
    prompt = Message("user", (Text(task),), author="model", id=f"{first.id}-task", time=first.time, source=first.source)
    history = History((prompt, *session.segments[0]))
    return replace(session, segments=(history, *session.segments[1:]))


# Conversation


class ReplyGroup:
    """A message with its calls and their results. Only model messages have calls."""

    def __init__(self, message: Message) -> None:
        """Start a group with `message`, which is complete except for its calls."""
        self.message = message
        self.calls: list[ToolCall] = []
        self.results_by_call_id: dict[str, Message] = {}

    def messages(self) -> list[Message]:
        """Return the message, then the results of its calls."""
        parts = (*self.message.parts, *self.calls)
        return [replace(self.message, parts=parts), *self.results_by_call_id.values()]

    def as_carried(self) -> "ReplyGroup":
        """Return a copy with all messages marked as carried."""
        carried = ReplyGroup(replace(self.message, carried=True))
        carried.calls = [*self.calls]
        results = mark_carried(self.results_by_call_id.values())
        carried.results_by_call_id = dict(zip(self.results_by_call_id, results, strict=True))
        return carried


class PendingCall(NamedTuple):
    """A call that a later event can answer, with its group."""

    group: ReplyGroup
    call: ToolCall


class OpenHandsConversation:
    """Builder of a conversation, event by event."""

    def __init__(self, source: SourceFile, model_info: ModelFacts, prompter: Author) -> None:
        """Start without messages. `prompter` is the author of the prompt: `human`, or `model` for a sub-agent."""
        self.compactions = 0
        self.calls_by_event_id: dict[str, ToolCall] = {}
        self.last_message_id = ""
        self._source = source
        self._model_info = model_info
        self._prompter = prompter
        self._segments: list[list[Message]] = []
        self._groups: list[ReplyGroup] = []
        self._groups_by_response_id: dict[str, ReplyGroup] = {}
        self._pending_calls: dict[str, PendingCall] = {}
        self._call_ids: set[str] = set()
        self._has_spoken = False
        self._reviewed_count = 0

    def histories(self) -> list[History]:
        """Return the segments of all events added so far."""
        return [History(tuple(segment)) for segment in (*self._segments, self._current_messages())]

    def _current_messages(self) -> list[Message]:
        return [message for group in self._groups for message in group.messages()]

    def add_events(self, events: Iterable[OpenHandsEvent]) -> dict[str, str]:
        """Add events. Return the id of the conversation's last message after each event, by event id."""
        latest: dict[str, str] = {}
        for event in events:
            try:
                facts = list(parse_openhands_event(event.record, self._model_info, has_spoken=self._has_spoken))
            except RecursionError:
                self._source.report("an event is nested too deeply", "skipped", event.source.line)
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
            if "kind" not in event.record:  # until 0.62, a user could also talk to a delegate
                self._prompter = "human"
        self._has_spoken = self._has_spoken or message.role == "assistant"
        self._append_message(message, event, id_)

    def _add_call(self, fact: CallFact, event: OpenHandsEvent, id_: str) -> None:
        given_id = fact.call.id
        own = given_id if given_id and given_id not in self._call_ids else f"call-{event.id}"
        self._call_ids.add(own)
        call = replace(fact.call, id=own)
        group = self._groups_by_response_id.get(fact.response_id) if fact.response_id else None
        if group is None:
            answer = Message("assistant", fact.leading_parts, author="model", model=fact.model, usage=fact.usage)
            group = self._append_message(answer, event, id_)
        group.calls.append(call)
        self._groups_by_response_id[fact.response_id] = group
        for key in filter(None, (event.id, given_id)):
            self._pending_calls[key] = PendingCall(group, call)
        self._pending_calls[""] = self._pending_calls[event.id]
        self.calls_by_event_id[event.id] = call
        self._has_spoken = True

    def _add_result(self, fact: ResultFact, event: OpenHandsEvent, id_: str) -> None:
        """Add a result to its call. A result without a key answers the last call.

        If the call is unknown or already has a result, the content becomes a message of its fallback author, if any.
        """
        keys = [key for key in fact.call_keys if key] or [""]
        pending = next((self._pending_calls[key] for key in keys if key in self._pending_calls), None)
        if pending and pending.call.id not in pending.group.results_by_call_id:
            result = ToolResult(pending.call.id, fact.content, is_error=fact.is_error, name=pending.call.name)
            message = Message("tool", (result,), author="tool")
            pending.group.results_by_call_id[pending.call.id] = self._locate_message(message, event, id_)
        elif fact.content and fact.fallback_author:
            self._append_message(Message("user", fact.content, author=fact.fallback_author), event, id_)

    def _apply_condensation(self, fact: CondensationFact, event: OpenHandsEvent, id_: str) -> None:
        if self._reviewed_count > MAX_REVIEWED_MESSAGES:
            return
        self._reviewed_count += len(self._groups) + len(self._pending_calls)
        if self._reviewed_count > MAX_REVIEWED_MESSAGES:
            self._source.report(
                "the session has too many condensations", "the other condensations are ignored", event.source.line
            )
            return
        message = Message("user", (Summary(fact.summary),), author="harness")
        summary = [ReplyGroup(self._locate_message(message, event, id_))] if fact.summary else []
        forgotten = {n for n, group in enumerate(self._groups) if fact.is_forgotten(group.message.id)}
        if forgotten:
            self.compactions += 1
            self._start_segment_without(forgotten, summary)
        else:
            self._groups += summary

    def _start_segment_without(self, forgotten: set[int], summary: list[ReplyGroup]) -> None:
        """Start a segment with the remaining groups. The summary replaces the forgotten groups and older summaries."""
        self._segments.append(self._current_messages())
        previous, self._groups = self._groups, []
        first, carried = min(forgotten), dict[int, ReplyGroup]()
        for n, group in enumerate(previous):
            self._groups += summary if n == first else []
            if n not in forgotten and not (summary and _is_summary(group.message)):
                carried[id(group)] = group.as_carried()
                self._groups.append(carried[id(group)])
        responses, pending_calls = self._groups_by_response_id.items(), self._pending_calls.items()
        self._groups_by_response_id = {key: carried[id(group)] for key, group in responses if id(group) in carried}
        self._pending_calls = {
            key: PendingCall(carried[id(group)], call) for key, (group, call) in pending_calls if id(group) in carried
        }


def _is_summary(message: Message) -> bool:
    return bool(message.parts) and isinstance(message.parts[0], Summary)
