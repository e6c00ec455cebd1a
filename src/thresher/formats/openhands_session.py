"""A session of OpenHands, from its events: what is on the way to its head, what was taken back, what a delegate did."""

import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from msgspec import structs

from thresher.formats.loose import at, text
from thresher.formats.openhands_events import Told, name_of
from thresher.formats.openhands_talk import Event, Talk
from thresher.formats.source import SourceFile
from thresher.formats.transcript import TITLE, first_prompt, group_branches, way_to_root
from thresher.model import Author, Branch, History, Message, Session, Text, ToolCall
from thresher.model.jsontext import load_fields

NAME = "openhands"
ROOT = "__root__"
"""What an event names as its parent that starts anew."""
ARTIFACTS = ("ConversationStateUpdateEvent", "ConversationErrorEvent")
"""Events that are written down, and no part of the tree."""
_TASK = re.compile(r"<(?:issue|pr)_description>\s*(\S[^\n]*)")
DEEPEST = 8
"""How far delegates of delegates are followed."""


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
        taken_back = Talk(source, run.told)
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
