"""Search by regex: read every text, newest session first.

The index contains words and cannot match a regex. So the time grows with the archive, and the search stops when the
requested page is complete. It uses the `regex` package (extra `patterns`), which supports a timeout.
"""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import islice
from time import perf_counter
from typing import Any

from thresher.errors import OptionError
from thresher.memory.archive.block_codec import is_damaged
from thresher.memory.ingest.provenance import attribute_texts
from thresher.memory.ingest.redaction import redact
from thresher.memory.results import SearchHit, SearchResults, SessionHit
from thresher.memory.search.damage import describe_damage
from thresher.memory.search.query import Query
from thresher.memory.search.query_compiler import CompiledQuery, compile_query
from thresher.memory.search.rank import RankedSession
from thresher.memory.search.search import FIELD_BY_KIND, SearchScope, SearchView, build_search_hit, build_session_hit
from thresher.memory.search.snippets import TermMatch, build_snippet
from thresher.memory.search.subagent_owners import find_owners
from thresher.memory.session_store import SessionStore
from thresher.model import Message

TEXT_TIMEOUT_SECONDS = 1.0
"""Timeout for one text."""
SCAN_SECONDS, CHARACTERS_PER_SECOND = 2.0, 2_000_000
"""Time limit for all texts: a base, plus one second for each two million characters. A reasonable regex is ten times as
fast."""
MAX_PATTERN_LENGTH = 10_000
"""Maximum length of a regex."""
MARKS = 200
"""Maximum number of matches to return per text."""
MAX_FILTERED_MESSAGES = 10_000
"""Maximum number of messages per session to request from the index by the other conditions."""
UNSCANNED_FIELDS = ("paths", "title", "annotation")
"""Fields that are not part of a message's text."""


def search_by_regex(store: SessionStore, query: Query, view: SearchView) -> SearchResults:
    """Return the newest sessions with messages that match the regex and all other conditions."""
    compile_pattern(query.regex)
    if query.cutoff or not set(query.fields) - set(UNSCANNED_FIELDS):
        fields = " or ".join(UNSCANNED_FIELDS)
        raise OptionError(f"a regex cannot search only {fields}, and cannot be combined with `cutoff`; remove these")
    scope = SearchScope(store, query)
    conditions = _prepare_other_conditions(store, query, scope)
    wanted = view.page * view.sessions
    pattern = TimedPattern(query.regex)
    sessions: dict[tuple[str, str], SessionHit] = {}
    damaged: list[int] = []
    for facts in scope.newest_sessions():
        family = (facts.agent, facts.root)
        if family in sessions:
            continue
        indexes: set[int] | None = None
        if conditions is not None:
            indexes = {hit.at for hit in conditions.best_matches(MAX_FILTERED_MESSAGES, [facts.key])}
        messages = store.messages(facts.key) if indexes != set() else []
        damaged += [facts.key] if any(map(is_damaged, messages)) else []
        hits = tuple(_scan_session(messages, query, view, indexes, pattern))
        if hits:
            ranked = RankedSession(facts, float(len(hits)), len(hits))
            owner = find_owners(store, [facts]).get(facts.key)
            sessions[family] = build_session_hit(ranked, hits[: view.messages], view, owner)
        if len(sessions) > wanted:
            break
    page = tuple(sessions.values())[wanted - view.sessions : wanted]
    more = len(sessions) > wanted
    notes = ("newest sessions first; the search has not read older ones",) if more else ()
    notes = (*notes, *scope.notes, *describe_damage(store, damaged))
    return SearchResults(query.words, page, len(sessions), view.page, more, notes=notes)


def _prepare_other_conditions(store: SessionStore, query: Query, scope: SearchScope) -> CompiledQuery | None:
    """Compile the conditions that the index can answer, if any."""
    asks = query.words or query.phrases or query.prefixes or query.require or query.exclude or query.file
    return compile_query(store, query, only=scope.allowed, excluded=scope.excluded) if asks else None


def _scan_session(
    messages: Sequence[Message], query: Query, view: SearchView, indexes: set[int] | None, pattern: "TimedPattern"
) -> Iterator[SearchHit]:
    """Yield the matching messages of a session in order."""
    fields = {FIELD_BY_KIND.get(field, field) for field in query.fields}
    for index, texts in attribute_texts(messages):
        message = messages[index]
        if message.carried or (indexes is not None and index not in indexes) or not _matches_filters(message, query):
            continue
        for attributed in texts:
            if attributed.field in fields and (query.everything or not attributed.reason):
                text = attributed.text if view.reveal else redact(attributed.text)
                if marks := pattern.find_matches(text):
                    snippet = build_snippet(text, marks, view.context)
                    yield build_search_hit(message, index, attributed.field, snippet, float(len(marks)))
                    break


def _matches_filters(message: Message, query: Query) -> bool:
    if query.role and message.role != query.role:
        return False
    if not (query.since or query.until):
        return True
    time = message.time
    return bool(time and (not query.since or time >= query.since) and (not query.until or time <= query.until))


class TimedPattern:
    """A regex with a time limit over all texts."""

    def __init__(self, pattern: str) -> None:
        self._source, self._pattern = pattern, compile_pattern(pattern)
        self._seconds, self._characters = 0.0, 0

    def find_matches(self, text: str) -> list[TermMatch]:
        """Return the matches in a text."""
        started = perf_counter()
        try:
            matches = islice(self._pattern.finditer(text, timeout=TEXT_TIMEOUT_SECONDS), MARKS)
            marks = [TermMatch(match.start(), match.end(), self._source) for match in matches]
        except (TimeoutError, MemoryError, RecursionError) as error:
            raise self._timeout_error(f"one text of {len(text):,} characters") from error
        self._seconds += perf_counter() - started
        self._characters += len(text)
        if self._seconds > SCAN_SECONDS + self._characters / CHARACTERS_PER_SECOND:
            raise self._timeout_error(f"{self._characters:,} characters")
        return marks

    def _timeout_error(self, over: str) -> OptionError:
        advice = "simplify it, without nested repetitions"
        return OptionError(f"the regex {self._source[:60]!r} needs too much time or memory for {over}; {advice}")


_LARGE_REPEAT = re.compile(r"[{,]0*[1-9]\d{4,}[,}]")
"""Regex for a large repeat count, which no timeout can interrupt."""


@lru_cache(maxsize=8)
def compile_pattern(pattern: str) -> Any:
    """Compile a regex."""
    try:
        import regex  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise OptionError("searching by regex needs the `regex` package: pip install 'thresher[patterns]'") from error
    if len(pattern) > MAX_PATTERN_LENGTH or _LARGE_REPEAT.search(pattern):
        raise OptionError(f"the regex {pattern[:60]!r} is too long or has too large a repeat count; simplify it")
    try:
        return regex.compile(pattern)
    except (regex.error, RecursionError, OverflowError, MemoryError) as error:
        raise OptionError(f"invalid regex {pattern[:60]!r}: {error}") from error
