"""Collect the tool calls of a session and its sub-agents in order of time, each with its reason.

A sub-agent's calls are placed by time after the call that started it, or directly after that call if the format records
no times. They belong to the turn of the parent during which they ran.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import accumulate, chain
from typing import NamedTuple

from thresher.model import History, Message, Place, Session, Text, ToolCall
from thresher.model.text import clip, to_printable_line
from thresher.model.tool_calls import ToolUse
from thresher.model.turns import is_prompt

LONGEST_REASON = 300
REASON_TAIL_CHARS = 4000
"""Number of characters at the end of a text in which to search for its last paragraph."""


class ToolStep(NamedTuple):
    """One tool call."""

    turn: int
    message: int
    time: datetime | None
    agent: str
    reason: str
    folder: str
    """The working folder, if the session records it."""
    link: ToolUse


class _OrderedStep(NamedTuple):
    """A step with its sort key: message of the parent, parents first, time, original order."""

    position: int
    is_child: bool
    time: float
    order: int
    step: ToolStep


class SessionSteps(NamedTuple):
    """All steps of a session and its number of turns."""

    steps: tuple[ToolStep, ...]
    turns: int


def to_session(source: Session | History) -> Session:
    """Return a session; a history becomes a session without an id, a project and sub-agents."""
    return Session("", "", "", (source,)) if isinstance(source, History) else source


def collect_tool_steps(session: Session) -> SessionSteps:
    """Return every call of a session and its sub-agents, in order."""
    history, numbers = _flatten_segments(session)
    times = list(accumulate((seconds_of(message.time) for message in history), max))
    reasons = _reasons(history.messages)
    steps: list[_OrderedStep] = []
    for link in history.links:
        place = link.chain.call
        reason = clip(to_printable_line(link.use.intent) or reasons[place], LONGEST_REASON)
        turn, time = history.turn(place.message), history[place.message].time
        step = ToolStep(turn, numbers[place.message], time, "", reason, session.project, link)
        steps.append(_OrderedStep(place.message, False, 0.0, len(steps), step))
    spawned = {link.call.id: link.chain.call.message for link in history.links if link.call.id}
    for child in session.children:
        start = spawned.get(child.call_id) if child.call_id else None
        for step, seconds in _child_steps(child):
            first = start if start is not None else 0 if seconds else len(history)
            position = max(first, bisect_right(times, seconds) - 1) if seconds else first
            step = step._replace(turn=history.turn(position), agent=step.agent or child.id or "sub-agent")  # noqa: PLW2901
            steps.append(_OrderedStep(position, True, seconds, len(steps), step))
    ordered = sorted(steps, key=lambda ordered_step: ordered_step[:4])
    return SessionSteps(tuple(ordered_step.step for ordered_step in ordered), len(history.turns))


def _child_steps(child: Session) -> Iterator[tuple[ToolStep, float]]:
    """Yield a sub-agent's steps with non-decreasing times."""
    steps = collect_tool_steps(child).steps
    return zip(steps, accumulate((seconds_of(step.time) for step in steps), max), strict=True)


def _flatten_segments(session: Session) -> tuple[History, list[int]]:
    """Return every message once, and its number among all messages."""
    messages = enumerate(chain.from_iterable(session.segments))
    numbered = [(number, message) for number, message in messages if not message.carried]
    is_same = len(session.segments) == 1 and len(numbered) == len(session.history)
    history = session.history if is_same else History(tuple(message for _, message in numbered))
    return history, [number for number, _ in numbered]


def seconds_of(time: datetime | None) -> float:
    """Return a time as seconds, with or without time zone; 0 if it is missing or invalid."""
    try:
        return time.timestamp() if time is not None else 0.0
    except (OverflowError, ValueError, OSError):
        return 0.0


def _reasons(messages: Sequence[Message]) -> dict[Place, str]:
    """Return for each call the agent's last text before it, since the last prompt."""
    reasons: dict[Place, str] = {}
    reason = ""
    for number, message in enumerate(messages):
        if is_prompt(message):
            reason = ""
        for index, part in enumerate(message.parts):
            if isinstance(part, Text) and message.role == "assistant" and part.text.strip():
                reason = _last_paragraph(part.text)
            elif isinstance(part, ToolCall):  # in a broken history, of any role
                reasons[Place(number, index)] = reason
    return reasons


def _last_paragraph(text: str) -> str:
    """Return the last paragraph as one line: agents announce the next step there."""
    paragraphs = [
        paragraph for paragraph in text[-REASON_TAIL_CHARS:].strip().split("\n\n") if paragraph.strip(" \n`#-*")
    ]
    return to_printable_line(paragraphs[-1]).lstrip("#>*- ").rstrip(":") if paragraphs else ""
