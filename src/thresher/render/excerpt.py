"""Render the messages around a search hit."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from thresher.model import History, Message, Session
from thresher.render.text import format_count
from thresher.render.transcript import _heading, _message, _rule, session_value

if TYPE_CHECKING:
    from rich.text import Text as RichText


def excerpt_lines(session: Session, at: int, context: int, *, full: bool = False) -> Iterator["RichText"]:
    """Yield the lines of the message with index `at` and of up to `context` messages on each side."""
    yield from _heading(session)
    numbered = list(_iter_messages(session))
    for number in _excerpt_range(len(numbered), at, context):
        message, history = numbered[number]
        calls = {part.id: part for another in history for part in another.calls}
        yield _rule(f"#{format_count(number)}{' ◀' if number == at else ''}")
        yield from _message(message, calls, full=full)
    yield _rule(f"{format_count(len(numbered))} messages in total, numbered from 0")


def excerpt_value(session: Session, at: int, context: int) -> dict[str, Any]:
    """Return the session as a JSON value, with the excerpt in `messages` instead of segments and branches."""
    value = session_value(session)
    messages = [message for history in (*value.pop("segments"), *value.pop("branches")) for message in history]
    numbers = _excerpt_range(len(messages), at, context)
    return value | {"around": at, "messages": [{"message_index": number, **messages[number]} for number in numbers]}


def message_count(session: Session) -> int:
    """Return the number of messages, including those that a compaction repeats."""
    return sum(1 for _ in _iter_messages(session))


def _iter_messages(session: Session) -> Iterator[tuple[Message, History]]:
    for history in (*session.segments, *(branch.history for branch in session.branches)):
        yield from ((message, history) for message in history)


def _excerpt_range(count: int, at: int, context: int) -> range:
    return range(max(0, at - context), min(count, at + context + 1))
