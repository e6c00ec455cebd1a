"""Whether an API would take a conversation, and where not: the rules of a dialect over the rows it would be sent.

Legal is what the API accepts, not what is good style: a rule here has a page of the vendor's and an error behind it.
"""

from msgspec import Struct

from thresher.edits.layout import DIALECTS, DialectLayout, HistoryIndex, LegalityRule
from thresher.edits.legality_cache import extract_grown_tail, extract_unchecked_tail, iterate_unique_ids, remember_legal
from thresher.edits.rules import LEGALITY_RULES, RULES_BY_DIALECT
from thresher.errors import FormatError
from thresher.model import History

__all__ = [
    "DIALECTS",
    "LEGALITY_RULES",
    "LegalityRule",
    "LegalityTracker",
    "Violation",
    "check",
    "dialects_for",
    "is_legal",
]


class Violation(Struct, frozen=True):
    """One rule broken in one place."""

    rule: str
    dialect: str
    message: int
    """Counted from 0 in the history."""
    part: int | None
    """None: the message as a whole."""
    detail: str
    documented: str
    """The vendor's page on it."""


def check(history: History, dialect: str | None = None) -> tuple[Violation, ...]:
    """Every rule that the history breaks in a dialect, or in any of the four; none where it is legal."""
    names = dialects_for(dialect)
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


def is_legal(history: History, dialect: str | None = None) -> bool:
    """Whether an API would take the history as it is written for it."""
    return not check(history, dialect)


def dialects_for(dialect: str | None) -> tuple[str, ...]:
    """The dialects that a name stands for: itself, or all of them for None."""
    if dialect is None:
        return DIALECTS
    if dialect not in RULES_BY_DIALECT:
        raise FormatError(f"no rules are known for `{dialect}`; the dialects are {', '.join(DIALECTS)}")
    return (dialect,)


def _violations(facts: HistoryIndex, dialect: str) -> list[Violation]:
    view = DialectLayout(facts, dialect)
    return [
        Violation(rule.name, dialect, found.message, found.part, found.detail, rule.documented)
        for rule in RULES_BY_DIALECT[dialect]
        for found in rule.check(view)
    ]
