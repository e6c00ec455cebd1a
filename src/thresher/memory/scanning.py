"""A search by a pattern: every text is read, the newest session first.

An index knows words, not patterns. So this takes time in proportion to what is kept, and stops as soon as a page is
full. The pattern runs in the `regex` package (extra `patterns`), because that can stop one which runs away.
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice
from time import perf_counter
from typing import Any

from thresher.errors import OptionError
from thresher.memory.base import Question, Store
from thresher.memory.finding import FIELD_OF, Scope, View, hit_of, session_hit
from thresher.memory.hits import Answer, Hit, SessionHit
from thresher.memory.provenance import pieces
from thresher.memory.query import Query
from thresher.memory.ranking import Scored
from thresher.memory.secrets import redact
from thresher.memory.snippets import Mark, snippet
from thresher.model import Message

SECONDS = 1.0
"""How long one text may take."""
PATIENCE, PACE = 2.0, 2_000_000
"""Seconds that all texts may take, and one more for so many characters: an honest pattern reads ten times as fast."""
LONGEST = 10_000
"""Characters of a pattern."""
MARKS = 200
"""Matches in one text that are told."""
MOST = 10_000
"""Messages of one session that other conditions may leave to look at."""
UNREAD = ("paths", "title")
"""Fields that are no text of a message."""


def find_pattern(store: Store, query: Query, view: View) -> Answer:
    """The newest sessions in which a pattern is found, in messages that all other conditions hold for."""
    compiled(query.regex)
    if query.cutoff or not set(query.fields) - set(UNREAD):
        raise OptionError(
            f"a pattern cannot be looked for in {' or '.join(UNREAD)} alone, nor with a cut-off; leave these out"
        )
    scope = Scope(store, query)
    others = _others(store, query, scope)
    wanted = view.page * view.sessions
    watch = Watch(query.regex)
    found: dict[tuple[str, str], SessionHit] = {}
    for facts in scope.facts():
        family = (facts.agent, facts.root)
        places = None if others is None else {one.at for one in others.best(MOST, [facts.key])}
        if family in found or (places is not None and not places):
            continue
        hits = tuple(_scan(store, facts.key, query, view, places, watch))
        if hits:
            found[family] = session_hit(Scored(facts, float(len(hits)), len(hits)), hits[: view.messages], view)
        if len(found) > wanted:
            break
    page = tuple(found.values())[wanted - view.sessions : wanted]
    notes = ("the newest first: older ones were not looked at yet",) if len(found) > wanted else ()
    return Answer(query.words, page, len(found), page=view.page, notes=(*notes, *scope.notes), more=len(found) > wanted)


def _others(store: Store, query: Query, scope: Scope) -> Question | None:
    """What else is asked, if an index can tell it."""
    asks = query.words or query.phrases or query.prefixes or query.require or query.exclude or query.file
    return store.ask(query, only=scope.only, without=scope.without) if asks else None


def _scan(store: Store, key: int, query: Query, view: View, places: set[int] | None, watch: "Watch") -> Iterator[Hit]:
    """Every message of a session in which the pattern is found, in order."""
    messages = store.messages(key)
    fields = {FIELD_OF.get(field, field) for field in query.fields}
    for at, said in pieces(messages):
        message = messages[at]
        if message.carried or (places is not None and at not in places) or not _asked_for(message, query):
            continue
        for piece in said:
            if piece.field in fields and (query.everything or not piece.reason):
                text = piece.text if view.reveal else redact(piece.text)
                if marks := watch.marks(text):
                    yield hit_of(message, at, piece.field, snippet(text, marks, view.context), float(len(marks)))
                    break


def _asked_for(message: Message, query: Query) -> bool:
    if query.role and message.role != query.role:
        return False
    if not (query.since or query.until):
        return True
    time = message.time
    return bool(time and (not query.since or time >= query.since) and (not query.until or time <= query.until))


class Watch:
    """A pattern, and how long it took so far."""

    def __init__(self, pattern: str) -> None:
        self._told, self._pattern = pattern, compiled(pattern)
        self._seconds, self._characters = 0.0, 0

    def marks(self, text: str) -> list[Mark]:
        """Where the pattern is found in a text."""
        began = perf_counter()
        try:
            found = islice(self._pattern.finditer(text, timeout=SECONDS), MARKS)
            marks = [Mark(match.start(), match.end(), self._told) for match in found]
        except (TimeoutError, MemoryError, RecursionError) as error:
            raise self._too_slow(f"one text of {len(text):,} characters") from error
        self._seconds += perf_counter() - began
        self._characters += len(text)
        if self._seconds > PATIENCE + self._characters / PACE:
            raise self._too_slow(f"{self._characters:,} characters")
        return marks

    def _too_slow(self, over: str) -> OptionError:
        advice = "make it simpler: no repetition inside a repetition"
        return OptionError(f"the pattern {self._told[:60]!r} took too long, or too much memory, over {over}; {advice}")


_MANY_TIMES = re.compile(r"[{,]0*[1-9]\d{4,}[,}]")


"""Nothing can stop the engine while it counts that far."""


@lru_cache(maxsize=8)
def compiled(pattern: str) -> Any:
    """The pattern, ready to run."""
    try:
        import regex  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise OptionError(
            "a search by a pattern needs the regex package, which can stop one that runs away: "
            "pip install 'thresher[patterns]'"
        ) from error
    if len(pattern) > LONGEST or _MANY_TIMES.search(pattern):
        raise OptionError(f"the pattern {pattern[:60]!r} is too long, or repeats something too often; make it simpler")
    try:
        return regex.compile(pattern)
    except (regex.error, RecursionError, OverflowError, MemoryError) as error:
        raise OptionError(f"{pattern[:60]!r} is no pattern: {error}") from error
