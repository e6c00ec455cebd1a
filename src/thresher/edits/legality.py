"""Validate a history against a dialect's rules, in the layout in which the API would receive it.

A history is legal if the API accepts it.
"""

from thresher.dialects.intake import Messages, read_with_dialect
from thresher.dialects.layout import DialectLayout, HistoryIndex
from thresher.dialects.repairs.workspace import Violation
from thresher.dialects.table import dialect_names, find_dialect
from thresher.edits.legality_cache import extract_grown_tail, extract_unchecked_tail, iterate_unique_ids, remember_legal
from thresher.model import History


def check(messages: Messages, dialect: str | None = None) -> tuple[Violation, ...]:
    """Return all rule violations of a conversation; an empty tuple if it is legal.

    Without a `dialect`, messages are validated against the dialect they are written in, and a history or a session
    against all dialects.
    """
    history, dialect = read_with_dialect(messages, dialect)
    names = (dialect,) if dialect else tuple(dialect_names())
    new = extract_unchecked_tail(history, dialect)
    if new is None or _check(new, names):
        found = _check(history, names)
        if found:
            return found
    remember_legal(history, dialect)
    return ()


class LegalityTracker:
    """Validate a history that only grows: check new messages, and as much context as the rules need."""

    def __init__(self, dialect: str) -> None:
        self._dialect = dialect
        self._ids: set[str] = set()
        self._length = 0

    def accepts(self, history: History) -> bool:
        """Return whether the history is legal; it must start with the last accepted history."""
        new = history.messages[self._length :]
        ids = list(iterate_unique_ids(new))
        tail = extract_grown_tail(history.messages, self._length)
        fresh = len(set(ids)) == len(ids) and self._ids.isdisjoint(ids)
        if not (fresh and tail and not _check(tail, (self._dialect,))) and check(history, self._dialect):
            return False
        self._ids.update(ids)
        self._length = len(history)
        return True


def _check(history: History, dialects: tuple[str, ...]) -> tuple[Violation, ...]:
    index = HistoryIndex(history)
    return tuple([violation for name in dialects for violation in _find_violations(index, name)])


def is_legal(messages: Messages, dialect: str | None = None) -> bool:
    """Return whether a dialect's API accepts the conversation."""
    return not check(messages, dialect)


def _find_violations(index: HistoryIndex, name: str) -> list[Violation]:
    dialect = find_dialect(name)
    layout = DialectLayout(index, name, dialect.arrange)
    return [
        Violation(rule.name, name, found.message, found.part, found.detail, rule.documented)
        for rule in dialect.rules
        for found in rule.check(layout)
    ]
