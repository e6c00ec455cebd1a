"""Render some messages of a session: those around a search hit, or the last ones."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from thresher.model import History, Message, Session
from thresher.render.text import plural
from thresher.render.transcript import heading_lines, message_lines, rule_line, session_value

if TYPE_CHECKING:
    from rich.text import Text as RichText


def excerpt_lines(
    session: Session, numbers: Iterable[int], *, marked: int | None = None, full: bool = False
) -> Iterator["RichText"]:
    """Yield the lines of the messages with these numbers; point to the message `marked`."""
    yield from heading_lines(session)
    numbered = list(_iter_messages(session))
    for number in numbers:
        message, history = numbered[number]
        calls = {part.id: part for another in history for part in another.calls}
        yield from message_lines(message, calls, number, full=full, is_marked=number == marked)
    yield rule_line(f"{plural(len(numbered), 'message')} in total, numbered from 0")


def excerpt_value(session: Session, numbers: Iterable[int], *, marked: int | None = None) -> dict[str, Any]:
    """Return the session as a JSON value, with these messages in `messages` instead of segments and branches."""
    value = session_value(session)
    messages = [message for history in (*value.pop("segments"), *value.pop("branches")) for message in history]
    excerpt = [{"message_index": number, **messages[number]} for number in numbers]
    return value | {"around": marked, "messages": excerpt}


def message_count(session: Session) -> int:
    """Return the number of messages, including those that a compaction repeats."""
    return sum(1 for _ in _iter_messages(session))


def numbers_around(session: Session, at: int, context: int) -> Sequence[int]:
    """Return the number of a message, and those of up to `context` messages on each side."""
    return range(max(0, at - context), min(message_count(session), at + context + 1))


def last_numbers(session: Session, count: int) -> Sequence[int]:
    """Return the numbers of the last messages, without rewound ones and those that a compaction repeats."""
    messages = (message for segment in session.segments for message in segment)
    return [number for number, message in enumerate(messages) if not message.carried][-count:]


def _iter_messages(session: Session) -> Iterator[tuple[Message, History]]:
    for history in (*session.segments, *(branch.history for branch in session.branches)):
        yield from ((message, history) for message in history)
