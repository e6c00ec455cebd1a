"""A search by a pattern: every text is read, the newest session first.

An index knows words, not patterns. So this takes time in proportion to what is kept, and stops as soon as a page is
full. The pattern runs in the `regex` package (extra `patterns`), because that can stop one which runs away.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from thresher.errors import OptionError
from thresher.memory.asking import Asked
from thresher.memory.embedded import EmbeddedStore
from thresher.memory.finding import Scope, View, session_hit
from thresher.memory.hits import Answer, Hit, SessionHit
from thresher.memory.provenance import Piece, pieces
from thresher.memory.query import Query
from thresher.memory.ranking import Scored
from thresher.memory.secrets import redact
from thresher.memory.snippets import Mark, snippet
from thresher.model import Message

SECONDS = 1.0
"""How long one text may take."""


def find_pattern(store: EmbeddedStore, query: Query, view: View) -> Answer:
    """The newest sessions in which a pattern is found; with words too, only those that the words find."""
    compiled(query.regex)
    scope = Scope(store, query)
    index = store.index()
    worded = Asked(query, index).counts() if query.words and index else None
    wanted = view.page * view.sessions
    found: dict[str, SessionHit] = {}
    for facts in scope.facts():
        if (worded is not None and facts.key not in worded) or facts.root in found:
            continue
        hits = tuple(scan(store, facts.key, query, context=view.context, reveal=view.reveal))
        if hits:
            found[facts.root] = session_hit(Scored(facts, float(len(hits)), len(hits)), hits[: view.messages], view)
        if len(found) >= wanted:
            break
    page = tuple(found.values())[wanted - view.sessions :]
    notes = ("the newest first; older ones were not looked at",) if len(found) >= wanted else ()
    return Answer(query.words, page, len(found), view.page, {}, (*notes, *scope.notes))


def scan(store: EmbeddedStore, key: int, query: Query, *, context: int, reveal: bool) -> Iterator[Hit]:
    """Every message of a session in which the pattern is found, in order."""
    pattern = compiled(query.regex)
    messages = store.messages(key)
    for at, said in pieces(messages):
        fitting = (piece for piece in said if piece.field in query.fields and (query.everything or not piece.reason))
        for piece in fitting:
            text = piece.text if reveal else redact(piece.text)
            marks = _marks(pattern, text, query.regex)
            if marks and _asked_for(messages[at], query):
                yield _hit(messages[at], at, piece._replace(text=text), marks, context)
                break


def _asked_for(message: Message, query: Query) -> bool:
    if query.role and message.role != query.role:
        return False
    if not (query.since or query.until):
        return True
    time = message.time
    return bool(time and (not query.since or time >= query.since) and (not query.until or time <= query.until))


def _marks(pattern: Any, text: str, told: str) -> list[Mark]:
    try:
        return [Mark(match.start(), match.end(), told) for match in pattern.finditer(text, timeout=SECONDS)][:200]
    except TimeoutError as error:
        raise OptionError(
            f"the pattern {told[:60]!r} took more than {SECONDS:g} second over {len(text):,} characters; make it "
            "simpler: no repetition inside a repetition"
        ) from error


def _hit(message: Message, at: int, piece: Piece, marks: list[Mark], context: int) -> Hit:
    shown = snippet(piece.text, marks, context)
    return Hit(
        role=message.role,
        author=message.author,
        kind=piece.field,
        text=shown.text,
        marks=shown.marks,
        at=at,
        line=message.source.line if message.source else 0,
        time=message.time,
        score=float(len(marks)),
        cut=shown.cut,
    )


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
    try:
        return regex.compile(pattern)
    except (regex.error, RecursionError, OverflowError) as error:
        raise OptionError(f"{pattern[:60]!r} is no pattern: {error}") from error
