"""Check a history against an API's rules: those of its dialect, over the rows it would be sent.

Legal is what the API accepts, not what is good style.
"""

from thresher.dialects.intake import Messages, read_with_dialect
from thresher.dialects.layout import DialectLayout, HistoryIndex
from thresher.dialects.repairs.workspace import Violation
from thresher.dialects.table import dialect_names, find_dialect
from thresher.edits.legality_cache import extract_grown_tail, extract_unchecked_tail, iterate_unique_ids, remember_legal
from thresher.model import History


def check(messages: Messages, dialect: str | None = None) -> tuple[Violation, ...]:
    """Return every rule that a conversation breaks; none where it is legal.

    The rules are those of the `dialect`; without one, those of the API that the messages are for, and for a history
    or a session those of all dialects.
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
    """Whether a history that only grows stays legal: looks at what is new, and as far back as the rules do."""

    def __init__(self, dialect: str) -> None:
        self._dialect = dialect
        self._ids: set[str] = set()
        self._length = 0

    def accepts(self, history: History) -> bool:
        """Whether the history is legal; what it held at the last time it was is taken for granted."""
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
    facts = HistoryIndex(history)
    return tuple([one for name in dialects for one in _violations(facts, name)])


def is_legal(messages: Messages, dialect: str | None = None) -> bool:
    """Whether an API would take the history as it is written for it."""
    return not check(messages, dialect)


def _violations(facts: HistoryIndex, name: str) -> list[Violation]:
    dialect = find_dialect(name)
    view = DialectLayout(facts, name, dialect.arrange)
    return [
        Violation(rule.name, name, found.message, found.part, found.detail, rule.documented)
        for rule in dialect.rules
        for found in rule.check(view)
    ]
