"""Collect the tool calls of a session and its sub-agents in order of time, each with its reason.

A sub-agent's calls are placed by time after the call that started it, or directly after that call if the format records
no times. They belong to the turn of the parent during which they ran.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import accumulate
from typing import NamedTuple

from thresher.model import History, Message, Place, Session, Text, ToolCall
from thresher.model.text import clip, to_printable_line
from thresher.model.tool_calls import ToolUse
from thresher.model.turns import is_prompt

LONGEST_REASON = 300
REASON_TAIL_CHARS = 4000
"""Number of characters at the end of a text that are searched for its last paragraph."""


class ToolStep(NamedTuple):
    """One tool call."""

    turn: int
    message: int
    time: datetime | None
    agent: str
    reason: str
    folder: str
    """The working folder, as far as the session records it."""
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


def collect_tool_steps(session: Session) -> SessionSteps:
    """Return every call of a session and its sub-agents, in order."""
    history, numbers = _flatten_segments(session)
    clock = list(accumulate((_seconds(message.time) for message in history), max))
    reasons = _reasons(history.messages)
    placed: list[_OrderedStep] = []
    for link in history.links:
        at = link.chain.call
        why = to_printable_line(link.use.intent) or reasons[at]
        turn, told = history.turn(at.message), history[at.message].time
        step = ToolStep(turn, numbers[at.message], told, "", clip(why, LONGEST_REASON), session.project, link)
        placed.append(_OrderedStep(at.message, False, 0.0, len(placed), step))
    spawned = {link.call.id: link.chain.call.message for link in history.links if link.call.id}
    for child in session.children:
        start = spawned.get(child.call_id) if child.call_id else None
        for step, time in _child_steps(child):
            least = start if start is not None else 0 if time else len(history)
            position = max(least, bisect_right(clock, time) - 1) if time else least
            placed.append(
                _OrderedStep(position, True, time, len(placed), _as_child_step(step, child, history.turn(position)))
            )
    ordered = sorted(placed, key=lambda one: one[:4])
    return SessionSteps(tuple(one.step for one in ordered), len(history.turns))


def _as_child_step(step: ToolStep, child: Session, turn: int) -> ToolStep:
    return step._replace(turn=turn, agent=step.agent or child.id or "sub-agent")


def _child_steps(child: Session) -> Iterator[tuple[ToolStep, float]]:
    """Yield a sub-agent's steps with non-decreasing times."""
    found = collect_tool_steps(child).steps
    return zip(found, accumulate((_seconds(step.time) for step in found), max), strict=True)


def _flatten_segments(session: Session) -> tuple[History, list[int]]:
    """Return every message once, and its number among all messages."""
    numbered = [
        (number, message)
        for number, message in enumerate(message for segment in session.segments for message in segment)
        if not message.carried
    ]
    if len(session.segments) == 1 and len(numbered) == len(session.history):
        return session.history, [number for number, _ in numbered]
    return History(tuple(message for _, message in numbered)), [number for number, _ in numbered]


def _seconds(time: datetime | None) -> float:
    """Return a time as seconds, with or without time zone; 0 if it is missing or out of range."""
    try:
        return time.timestamp() if time is not None else 0.0
    except (OverflowError, ValueError, OSError):
        return 0.0


def _reasons(messages: Sequence[Message]) -> dict[Place, str]:
    """Return for each call the agent's last text before it, since the last prompt."""
    reasons: dict[Place, str] = {}
    said = ""
    for number, message in enumerate(messages):
        if is_prompt(message):
            said = ""
        if message.role != "assistant":
            continue
        for place, part in enumerate(message.parts):
            if isinstance(part, Text) and part.text.strip():
                said = _last_paragraph(part.text)
            elif isinstance(part, ToolCall):
                reasons[Place(number, place)] = said
    return reasons


def _last_paragraph(text: str) -> str:
    """Return the last paragraph as one line: agents announce the next step there."""
    paragraphs = [one for one in text[-REASON_TAIL_CHARS:].strip().split("\n\n") if one.strip(" \n`#-*")]
    return to_printable_line(paragraphs[-1]).lstrip("#>*- ").rstrip(":") if paragraphs else ""
