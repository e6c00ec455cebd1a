"""Represent a recording as a sequence of model calls and the text that was visible to each.

Every request of a history is a prefix of the history: it ends before the first message that the call produced. A trace
therefore consists of the history, the end of each request, and one block per text with the number of the first call
that sees the text. Text that a compaction carried over is visible to all calls of its segment and belongs to no call.
Blocks exclude the line numbers that reading tools add, because they are not part of the file.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import Any, Literal, NamedTuple

from msgspec import Struct

from thresher.model import History, Message, Part, Place, Session, Summary, Text, Thinking, ToolCall, ToolResult, Turn
from thresher.model.jsontext import load_json
from thresher.model.message_cache import cached_per_message

TraceBlockKind = Literal["U", "R", "A", "K", "C"]
"""User, system or harness text (U), tool result (R), agent text (A), thinking (K), call arguments (C)."""


class TraceBlock(Struct, frozen=True, gc=False):
    """One text of a history, in the form in which it is searched."""

    kind: TraceBlockKind
    text: str
    place: Place
    visible: int
    """The number of the first call that sees the text, or the number of calls if none does."""


class RecordedCall(NamedTuple):
    """One request to a model."""

    time: float | None
    """Time of the response in seconds since 1970, if recorded."""
    stop: int
    """Number of messages in the request, which is `history.messages[:stop]`."""


class Trace(Struct, frozen=True):
    """One segment of a session and its model calls. Blocks are in the order of the history."""

    name: str
    history: History
    calls: tuple[RecordedCall, ...]
    blocks: tuple[TraceBlock, ...]


def trace_session(session: Session) -> list[Trace]:
    """Return the trace of each segment that has model calls, then the traces of the sub-agents."""
    name = f"{PurePath(session.file).name}#{session.id}"
    own = [trace_history(history, f"{name}/{number}") for number, history in enumerate(session.segments, 1)]
    inner = [trace for child in session.children for trace in trace_session(child)]
    return [trace for trace in own if trace.calls] + inner


def trace_history(history: History, name: str = "") -> Trace:
    """Return the calls and blocks of one history."""
    turns = [turn for turn in history.turns if _is_model_call(history, turn)]
    calls = tuple([RecordedCall(_time(history, turn), turn.start) for turn in turns])
    stops = [call.stop for call in calls]
    blocks = [
        TraceBlock(kind, text, Place(i, j), bisect_right(stops, i))
        for i, message in enumerate(history)
        for j, kind, text in _extract_texts(message)
    ]
    return Trace(name, history, calls, tuple(blocks))


def list_request_texts(messages: Sequence[Message]) -> list[str]:
    """Return the texts of a request, one per part, in the same form as blocks."""
    return [text for message in messages for _, _, text in _extract_texts(message)]


def _is_model_call(history: History, turn: Turn) -> bool:
    """Report whether a model wrote the turn, rather than the harness or a compaction."""
    written = history.messages[turn.start : turn.stop]
    return any(message.author not in ("harness", "context") and not message.carried for message in written)


def _time(history: History, turn: Turn) -> float | None:
    times = (message.time for message in history.messages[turn.start : turn.stop])
    return next((time.timestamp() for time in times if time is not None), None)


@cached_per_message
def _extract_texts(message: Message) -> tuple[tuple[int, TraceBlockKind, str], ...]:
    texts = ((j, _kind(message, part), block_text(part)) for j, part in enumerate(message.parts))
    return tuple([(j, kind, text) for j, kind, text in texts if text and not text.isspace()])


def _kind(message: Message, part: Part) -> TraceBlockKind:
    match part:
        case ToolResult():
            return "R"
        case ToolCall():
            return "C"
        case Thinking():
            return "K"
        case _:
            return "A" if message.role == "assistant" and message.author != "harness" else "U"


def block_text(part: Part) -> str:
    """Return the text of a part, in the form in which it is searched; images and unknown parts have none."""
    match part:
        case ToolResult():
            return strip_line_numbers(part.text)
        case ToolCall():
            return "\n".join((part.name, *argument_values(part.arguments)))
        case Text() | Thinking() | Summary():
            return part.text
        case _:
            return ""


def argument_values(arguments: str) -> list[str]:
    """Return the strings and numbers in a call's arguments, unescaped. Arguments that are not JSON are one value."""
    try:
        return list(_leaves(load_json(arguments)))
    except (ValueError, RecursionError):
        return [arguments]


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _leaves(inner)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield str(value)


_ARROW_NUMBER = re.compile(r"^ *\d+→", re.MULTILINE)
_LINE_NUMBER = re.compile(r" *(\d+)(?:\t|: |\| )")
_NUMBERED_LINE = re.compile(rf"^{_LINE_NUMBER.pattern}", re.MULTILINE)


def strip_line_numbers(text: str) -> str:
    """Remove line numbers that a reading tool added: `12→` always, `12: ` and similar only if they count up."""
    if "→" in text:
        text = _ARROW_NUMBER.sub("", text)
    return _strip_sequential_numbers(text) if _NUMBERED_LINE.search(text) else text


def _strip_sequential_numbers(text: str) -> str:
    """Remove numbers only where they count up from line to line: the lines of a table may start with numbers too."""
    lines = text.split("\n")
    matches = [_LINE_NUMBER.match(line) for line in lines]
    counts = [None if match is None else _parse_line_number(match[1]) for match in matches]
    before, after = [None, *counts], [*counts[1:], None]
    for n, (match, count) in enumerate(zip(matches, counts, strict=True)):
        if match is not None and count is not None and (before[n] == count - 1 or after[n] == count + 1):
            lines[n] = lines[n][match.end() :]
    return "\n".join(lines)


def _parse_line_number(digits: str) -> int | None:
    return int(digits) if len(digits) < 10 else None
