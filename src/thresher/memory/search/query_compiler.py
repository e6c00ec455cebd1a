"""Compile a query for the tantivy index.

Plain words are alternatives, and rare words have a higher weight. Adjacent words of the query add a small score
where they are adjacent in the text. This also ranks `refreshToken` higher for `refresh token`, since the index
splits identifiers. A single text must meet all other conditions: phrases, required words, kinds and times.

Scripts without spaces are indexed by character; a query matches pairs of adjacent characters.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import pairwise

from tantivy import FieldType, Occur
from tantivy import Query as IndexQuery

from thresher.memory.index.documents import RECALL_REASON, path_suffixes
from thresher.memory.index.tantivy_index import IndexHit, TantivyIndex
from thresher.memory.index.tokenizer import normalize_text, split_unspaced_runs, tokenize_output, tokenize_words
from thresher.memory.ingest.git_commits import normalize_subject
from thresher.memory.records import ROLES, TEXT_KINDS, TextKind
from thresher.memory.search.query import Query, content_words, is_stop_word
from thresher.memory.search.weights import RANKING, RankingWeights
from thresher.memory.session_store import SessionStore

MAIN_FIELD_KINDS = frozenset(TEXT_KINDS) - {"output"}
CONVERSATION_KINDS: tuple[TextKind, ...] = ("human", "agent", "thinking", "summary", "title", "annotation")
"""Kinds of speech and thought, as opposed to actions."""
MAX_COUNTED_TEXTS = 50_000
"""Number of texts with a word from which on it is not worth counting by session: it is in almost every session."""
MOST_PAIRS = 24
MAX_PREFIX_TERMS = 64
"""Maximum number of words that a prefix matches."""
TITLES = 50
RECALL_ANNOUNCEMENTS = (
    ("I'll search",),
    ("memory search",),
    ("did you remember", "talked about"),
    ("go back to a memory",),
    ("memory recall",),
)
"""Phrases of people and models that announce a recall. A search with `cutoff` also cuts off at these."""
Pair = tuple[str, str]


class CompiledQuery:
    """A query compiled for one index, limited to some sessions."""

    def __init__(
        self,
        query: Query,
        index: TantivyIndex,
        *,
        only: Collection[int] | None = None,
        without: Collection[int] = (),
        weights: RankingWeights = RANKING,
    ) -> None:
        self.query, self._index, self.weights = query, index, weights
        self._only, self._excluded = None if only is None else frozenset(only), without
        text = " ".join((query.words, *query.phrases))
        spaced_text, unspaced = split_unspaced_runs(normalize_text(text))
        words, runs = tokenize_words(spaced_text), [*map(tokenize_words, unspaced)]
        self.terms = content_words([*words, *(characters[0] for characters in runs if len(characters) == 1)])
        neighbors = (pair for pair in pairwise(words) if not any(map(is_stop_word, pair)))
        self._adjacent_pairs: list[Pair] = list(dict.fromkeys(neighbors))[:MOST_PAIRS]
        character_pairs = dict.fromkeys(pair for characters in runs for pair in pairwise(characters))
        self._character_pairs: list[Pair] = list(character_pairs)[:MOST_PAIRS]
        self._kinds = MAIN_FIELD_KINDS.intersection(query.fields)
        if query.file:
            touching = frozenset(index.count_by_field(self._file_query()))
            self._only = touching if self._only is None else touching & self._only
        self._cut_off_queries = list(self._before_recalls()) if query.cutoff else []

    def covers(self, session: int) -> bool:
        """Return whether the query's filters on sessions include a session."""
        return session not in self._excluded and (self._only is None or session in self._only)

    def match_counts(self) -> dict[int, int]:
        """Return the number of matching texts by session."""
        return self._index.count_by_field(self._build_query(self._only, ranked=False))

    def message_matches(
        self, sessions: Collection[int], best: int = 0, each: int = 0
    ) -> tuple[dict[int, int], list[IndexHit]]:
        """Count matching messages by session; also return the best texts (see `TantivyIndex.search_messages`)."""
        return self._index.search_messages(self._build_query(sessions), best, each) if sessions else ({}, [])

    def excluded_counts(self) -> dict[int, int]:
        """Return the number of matches that are excluded by default, by reason code."""
        return self._index.count_by_field(self._build_query(self._only, ranked=False, left_out=True), "reason")

    def count_in_sessions(self, sessions: Collection[int]) -> int:
        """Return the number of matching messages in these excluded sessions."""
        included = sessions if self._only is None else self._only.intersection(sessions)
        if not included:
            return 0
        return self._index.search_messages(self._build_query(included, barred=False))[0].total()

    def count_cut_off(self) -> int:
        """Return the number of matches that the cut-off excludes."""
        if not self._cut_off_queries:
            return 0
        matching = self._build_query(self._only, ranked=False, barred=False)
        taken = _all([matching, _either(self._cut_off_queries)], self._excluded_session_queries())
        return sum(self._index.count_by_field(taken).values())

    def best_matches(self, limit: int, sessions: Collection[int] | None = None) -> list[IndexHit]:
        """Return the best matching texts in these or all sessions."""
        return self._index.search(self._build_query(self._only if sessions is None else sessions), limit)

    def title_matches(self) -> list[IndexHit]:
        """Return the titles that contain any of the words."""
        words = _either(list(self._alternatives("said", ranked=True)))
        is_title = IndexQuery.const_score_query(self._kind("title"), 0.0)
        required = [words, is_title, *self._session_queries(self._only)]
        return self._index.search(_all(required, self._exclusion_queries()), TITLES)

    def commits_made(self, *, barred: bool = True) -> Collection[int]:
        """Return the sessions that made a commit with the query as its subject; `barred` omits excluded sessions."""
        made = self._term("made", normalize_subject(self.query.full_text))
        if barred:
            made = _all([made, *self._session_queries(self._only)], self._exclusion_queries())
        return self._index.count_by_field(made)

    def commits_seen(self) -> dict[int, int]:
        """Return the time at which each session first listed a commit with the query as its subject, if known."""
        first = self._index.times_by_session(self._term("logged", normalize_subject(self.query.full_text)), "min")
        return {session: time for session, time in first.items() if time}

    def edit_counts(self) -> dict[int, int]:
        """Return the number of edit documents by session."""
        return self._index.count_by_field(self._kind("edits"))

    def conversation_size(self) -> tuple[int, float]:
        """Return the number of all sessions, and the average number of conversation texts in one."""
        sessions = max(self._index.kind_frequency("title"), 1)
        return sessions, max(sum(map(self._index.kind_frequency, CONVERSATION_KINDS)) / sessions, 1.0)

    def conversation_lengths(self, sessions: Collection[int]) -> dict[int, int]:
        """Return the number of conversation texts in these sessions."""
        query = self.query
        if query.everything or query.role or query.since or query.until:
            return self._index.count_by_field(_all(self._conversation_queries(sessions)))
        known = self._index.session_lengths
        if missing := [session for session in sessions if session not in known]:
            counted = self._index.count_by_field(_all(self._conversation_queries(missing)))
            known |= {session: counted.get(session, 0) for session in missing}
        return {session: known[session] for session in sessions}

    def text_count(self) -> int:
        """Return the number of all texts except tool output."""
        return sum(map(self._index.kind_frequency, MAIN_FIELD_KINDS))

    def word_counts(self, sessions: Collection[int]) -> Iterator[tuple[float, dict[int, int]]]:
        """Yield the number of all sessions with a word, and its texts in these sessions, for each word of the query.

        Words in very many texts are skipped.
        """
        frequencies = ((term, self._index.document_frequency(term)) for term in self.terms)
        words = [self._term("said", term) for term, frequency in frequencies if 0 < frequency < MAX_COUNTED_TEXTS]
        words += [self._adjacent_query("said", pair) for pair in self._character_pairs]
        for word in words:
            spread = self._index.count_sessions(_all([word, *self._conversation_queries()]))
            if spread:
                yield spread, self._index.count_by_field(_all([word, *self._conversation_queries(sessions)]))

    def words_by_session(self, sessions: Collection[int]) -> dict[int, dict[str, int]]:
        """Return the words that each of these sessions contains, each with the number of all texts that contain it."""
        words: dict[int, dict[str, int]] = {session: {} for session in sessions}
        for term in self.terms:
            frequency = self._index.document_frequency(term)
            searched = [self._term("said", term), self._term("reason", 0), *self._session_queries(sessions)]
            for session in self._index.count_by_field(_all(searched)) if frequency else ():
                words[session][term] = frequency
        return words

    def _conversation_queries(self, sessions: Collection[int] | None = None) -> list[IndexQuery]:
        kinds = self._any_of_query("kind", [TEXT_KINDS.index(kind) for kind in CONVERSATION_KINDS])
        searched = [] if self.query.everything else [self._term("reason", 0)]
        return [*self._session_queries(sessions), *self._filter_queries(), kinds, *searched]

    def _build_query(
        self, sessions: Collection[int] | None, *, ranked: bool = True, left_out: bool = False, barred: bool = True
    ) -> IndexQuery:
        """Build the query for these sessions.

        Without `ranked`, scores are arbitrary. With `left_out`, match only texts that are excluded by default. Without
        `barred`, also match excluded sessions.
        """
        query = self.query
        fields = [field for field in ("output", "paths") if field in query.fields]
        field_queries = [self._field_query(field, ranked=ranked) for field in fields]
        if self._kinds:
            field_queries.insert(0, self._field_query("said", MAIN_FIELD_KINDS - self._kinds, ranked=ranked))
        excluded = self._range("reason", 1, None)
        # Filters come first, so that index segments without a match skip the word search.
        required = [excluded] if left_out else []
        required += [*self._session_queries(sessions), *self._filter_queries(), _either(field_queries)]
        forbidden = [] if left_out or query.everything else [excluded]
        return _all(required, [*forbidden, *(self._exclusion_queries() if barred else ())])

    def _field_query(self, field: str, others: Iterable[TextKind] = (), *, ranked: bool) -> IndexQuery:
        """Build the conditions that one text must meet in an index field; `others` are kinds to exclude."""
        query = self.query
        required = [self._phrase(field, text) for text in (*query.require, *query.phrases)]
        required += [self._prefix_query(field, prefix) for prefix in query.prefixes]
        required += [_either(list(self._alternatives(field, ranked=ranked)))] if query.words else []
        required += [self._file_query()] if query.file and not required else []
        # Few kinds are forbidden, so this is much faster than requiring the rest.
        forbidden = [self._kind(kind) for kind in sorted(others)]
        forbidden += [self._phrase(field, text) for text in query.exclude if tokenize_words(text)]
        if not required:  # a regex query, which the index cannot answer
            return _all([IndexQuery.all_query()], forbidden) if field == "said" else IndexQuery.empty_query()
        return _all(required, forbidden)

    def _alternatives(self, field: str, *, ranked: bool) -> Iterator[IndexQuery]:
        if field == "output":  # output is neither stemmed nor indexed with positions
            characters = (character for pair in self._character_pairs for character in pair)
            words = content_words(tokenize_output(self.query.words))
            yield from (self._term(field, word) for word in [*words, *characters])
            return
        yield from (self._term(field, term) for term in self.terms)
        for pair in self._adjacent_pairs:
            if not ranked and any(word in self.terms for word in pair):
                continue  # a single word already matches
            yield IndexQuery.boost_query(self._adjacent_query(field, pair), self.weights.adjacent_words)
        yield from (self._adjacent_query(field, pair) for pair in self._character_pairs)

    def _phrase(self, field: str, text: str) -> IndexQuery:
        """Build the query for a word or phrase; a text without words matches nothing."""
        words = tokenize_output(text) if field == "output" else tokenize_words(text)
        if not words:
            return IndexQuery.empty_query()
        if field == "output":
            return _all([self._term(field, word) for word in words])
        return self._adjacent_query(field, words)

    def _prefix_query(self, field: str, prefix: str) -> IndexQuery:
        terms = {*self._index.terms_with_prefix(field, prefix.lower(), MAX_PREFIX_TERMS), *tokenize_words(prefix)[:1]}
        return _either([self._term(field, word) for word in sorted(terms)])

    def _file_query(self) -> IndexQuery:
        return self._term("file", next(iter(path_suffixes(self.query.file)), ""))

    def _filter_queries(self) -> Iterator[IndexQuery]:
        query = self.query
        if query.role:
            yield self._term("role", ROLES.index(query.role))
        if query.since or query.until:
            since = int(query.since.timestamp()) if query.since else 1
            yield self._range("time", since, int(query.until.timestamp()) if query.until else None)

    def _session_queries(self, sessions: Collection[int] | None) -> Iterator[IndexQuery]:
        if sessions is not None:
            yield IndexQuery.const_score_query(self._any_of_query("session", sessions), 0.0)

    def _exclusion_queries(self) -> Iterator[IndexQuery]:
        yield from self._excluded_session_queries()
        yield from self._cut_off_queries

    def _excluded_session_queries(self) -> Iterator[IndexQuery]:
        if self._excluded:
            yield self._any_of_query("session", self._excluded)

    def _before_recalls(self) -> Iterator[IndexQuery]:
        """Yield one query for each session with a recall. The query matches all texts up to the last recall."""
        conversation = _either([self._kind("human"), self._kind("agent")])
        announced = _either([_all([self._phrase("said", text) for text in texts]) for texts in RECALL_ANNOUNCEMENTS])
        recalls = _either([self._range("reason", RECALL_REASON, RECALL_REASON), _all([conversation, announced])])
        for session, time in self._index.times_by_session(recalls, "max").items():
            yield _all([self._term("session", session), self._range("time", 1, time)])

    def _kind(self, kind: TextKind) -> IndexQuery:
        return self._term("kind", TEXT_KINDS.index(kind))

    def _any_of_query(self, field: str, numbers: Collection[int]) -> IndexQuery:
        return IndexQuery.term_set_query(self._index.schema, field, sorted(numbers))

    def _range(self, field: str, low: int, high: int | None) -> IndexQuery:
        query = IndexQuery.range_query(self._index.schema, field, FieldType.Integer, low, high)
        return IndexQuery.const_score_query(query, 0.0)

    def _term(self, field: str, value: str | int) -> IndexQuery:
        return IndexQuery.term_query(self._index.schema, field, value)

    def _adjacent_query(self, field: str, words: Sequence[str]) -> IndexQuery:
        if len(words) == 1:
            return self._term(field, words[0])
        return IndexQuery.phrase_query(self._index.schema, field, list(words))


def _either(parts: Sequence[IndexQuery]) -> IndexQuery:
    return IndexQuery.boolean_query([(Occur.Should, part) for part in parts]) if parts else IndexQuery.empty_query()


def _all(parts: Iterable[IndexQuery], forbidden: Iterable[IndexQuery] = ()) -> IndexQuery:
    required = [(Occur.Must, part) for part in parts]
    return IndexQuery.boolean_query(required + [(Occur.MustNot, part) for part in forbidden])


def compile_query(
    store: SessionStore,
    query: Query,
    *,
    only: Collection[int] | None = None,
    excluded: Collection[int] = (),
    weights: RankingWeights = RANKING,
) -> CompiledQuery | None:
    """Compile a query for a store's index, limited to some sessions; return None without an index."""
    index = store.open_index()
    return None if index is None else CompiledQuery(query, index, only=only, without=excluded, weights=weights)
