"""Search the archive and build the results to show.

Excluded sessions (the current one and its family, and those that a filter excludes) are removed before
counting and truncation, so they never replace another result. Then the sessions are ranked, and only messages of the
requested page are read from the archive.

A session that only asked the same question may contain the words of the question more often than the session that
answers it. So a session gets a lower score if its best message is little more than the question, nothing else in it is
relevant, and no action followed.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import NamedTuple

from thresher.memory.archive.protocol import SessionFilter
from thresher.memory.index.tantivy_index import IndexHit
from thresher.memory.index.tokenizer import tokenize_words
from thresher.memory.ingest.memory_tools import classify_recall
from thresher.memory.ingest.provenance import AttributedText, attribute_texts
from thresher.memory.ingest.redaction import redact
from thresher.memory.records import EXCLUSION_REASONS, ROLES, TEXT_KINDS, ArchivedSession, to_storable_text
from thresher.memory.results import SearchHit, SearchResults, SessionHit
from thresher.memory.search.combined_score import MeaningScorer, combine_scores
from thresher.memory.search.confidence import confidence_notes
from thresher.memory.search.copies import group_copies
from thresher.memory.search.damage import describe_damage
from thresher.memory.search.query import MOST_WORDS, Query, content_words
from thresher.memory.search.query_compiler import CompiledQuery, compile_query
from thresher.memory.search.rank import MAX_RANKED_TEXTS, RankedSession, rank_sessions
from thresher.memory.search.resume_command import build_resume_command
from thresher.memory.search.snippets import Snippet, TermFinder, TermMatch, build_snippet, split_unspaced
from thresher.memory.search.spelling import repair_query
from thresher.memory.search.subagent_owners import find_owners
from thresher.memory.search.weights import KIND_VALUES, RANKING, RankingWeights
from thresher.memory.session_store import SessionStore
from thresher.model import Message
from thresher.model.tool_calls import describe_tool_call
from thresher.store.errors import AmbiguousIdError

FIELD_BY_KIND = {"commands": "input", "edits": "input"}
"""Kinds that exist only in the index, with the field of their texts."""
KIND_WEIGHTS = [KIND_VALUES.get(kind, 1.0) for kind in TEXT_KINDS]
CANDIDATES = 120
"""Minimum number of best sessions to load and rank."""
LOOKAHEAD_SESSIONS = 10
"""Number of sessions after the page that reranking may move into it."""
MESSAGES_PER_SESSION = 12
"""Average number of messages per session to fetch at once."""
MAX_FOLLOW_UP_MESSAGES = 12
"""Number of messages after a prompt to check for actions."""


class SearchView(NamedTuple):
    """Number and size of the results to build, and whether to reveal secrets."""

    sessions: int = 10
    messages: int = 5
    context: int = 300
    page: int = 1
    reveal: bool = False
    now: datetime | None = None
    """Time of the question, for words such as "yesterday"; default: the current time."""


def search_archive(
    store: SessionStore,
    query: Query,
    view: SearchView,
    weights: RankingWeights = RANKING,
    meaning: MeaningScorer | None = None,
) -> SearchResults:
    """Return one page of the sessions that match a query; a `meaning` scorer, if given, reranks the best ones."""
    with store.message_reader() as message:  # keep the connection open, since SQLite cleans up when the last one closes
        scope = SearchScope(store, query)
        query, spelling_notes = repair_query(store, query)
        compiled = compile_query(store, query, only=scope.allowed, excluded=scope.excluded, weights=weights)
        if compiled is None:
            return SearchResults(query.words, (), 0, view.page, notes=("the archive is empty",))
        matches = compiled.match_counts()
        if query.rank == "matches":
            matches, _ = compiled.message_matches(matches.keys())
        texts = compiled.best_matches(MAX_RANKED_TEXTS)
        combined = combine_scores(compiled, store, matches, texts, now=view.now or datetime.now(UTC), meaning=meaning)
        scores = combined.scores
        best_keys = sorted(scores, key=Counter(matches).__getitem__, reverse=True)
        best_keys.sort(key=scores.__getitem__, reverse=True)
        if query.rank == "matches":
            best_keys = sorted(matches, key=matches.__getitem__, reverse=True)
        start, stop = (view.page - 1) * view.sessions, view.page * view.sessions
        loaded = max(CANDIDATES, start + 2 * view.sessions)
        candidates = _load_sessions(store, best_keys[:loaded], combined.loaded)
        ranked = rank_sessions(candidates, scores, matches, compiled)
        near = stop + LOOKAHEAD_SESSIONS
        ranked = [*group_copies(ranked[:near], message.peek), *ranked[near:]]
        builder = HitBuilder(message, compiled, view)
        page = builder.rerank(ranked, stop, texts, combined.makers)[start:stop]
        match_counts = builder.prefetch([one.session.key for one in page])
        page = [one._replace(matches=match_counts.get(one.session.key, 0)) for one in page]
        owners = find_owners(store, (one.session for one in page))
        sessions = tuple(builder.build_session(one, owners.get(one.session.key)) for one in page)
        return SearchResults(
            query=query.words,
            sessions=sessions,
            found=len(ranked) if len(best_keys) <= loaded else len(best_keys),
            more=len(ranked) > stop,
            page=view.page,
            excluded=_count_excluded(compiled, scope),
            confidence=combined.confidence,
            notes=(
                *scope.notes,
                *(confidence_notes(combined.confidence) if sessions else ()),
                *combined.notes,
                *spelling_notes,
                *_unknown_word_notes(store, query),
                *describe_damage(store, message.damaged_sessions),
            ),
        )


def _load_sessions(
    store: SessionStore, keys: Collection[int], loaded: Iterable[ArchivedSession]
) -> list[ArchivedSession]:
    """Return the sessions in the order of their keys; read only those that are not loaded yet."""
    known = {session.key: session for session in loaded}
    known |= {session.key: session for session in store.find_sessions([key for key in keys if key not in known])}
    return [known[key] for key in sorted(keys) if key in known]


def _unknown_word_notes(store: SessionStore, query: Query) -> list[str]:
    """Return a note about query words that no text contains, which are often misspelled."""
    if store.project_root:  # the note would reveal the words of other projects
        return []
    words = [word for word in query.words.split() if tokenize_words(word)]
    missing = [word for word in words[:MOST_WORDS] if not any(map(store.document_frequency, tokenize_words(word)))]
    return (
        [f"no archived text except tool output contains {', '.join(f'`{word}`' for word in missing[:5])}"]
        if missing
        else []
    )


class SearchScope:
    """Sessions that a query includes and excludes."""

    def __init__(self, store: SessionStore, query: Query) -> None:
        self.allowed: frozenset[int] | None = None
        self.notes: list[str] = []
        self._store, self._query = store, query
        agent, project, branch = map(to_storable_text, (query.agent, query.project, query.branch))
        self._filter = store.visible_sessions(agent=agent, project=project, branch=branch)
        if query.agent or query.project or query.branch or store.project_root:
            self.allowed = frozenset(store.archive.find_keys(self._filter))
        hidden = not (query.subagents or query.everything)
        subagents = store.archive.find_keys(SessionFilter(subagent=True)) if hidden else ()
        self.hidden_subagents = frozenset(subagents)
        self.current_family: frozenset[int] = frozenset()
        if query.current and not query.everything:
            self.current_family = _find_family_keys(store, query.current)
            if not self.current_family:
                self.notes.append(f"the current session {query.current} is not archived yet, so it is not excluded")

    def newest_sessions(self) -> list[ArchivedSession]:
        """Return the included sessions, newest first."""
        included = (
            row.session for row in self._store.archive.find_sessions(self._filter) if row.key not in self.excluded
        )
        searched = (one for one in included if self._query.everything or not one.made_by)
        return sorted(searched, key=lambda one: one.ended.timestamp() if one.ended else 0.0, reverse=True)

    @property
    def excluded(self) -> frozenset[int]:
        """Keys of excluded sessions."""
        return self.hidden_subagents | self.current_family


def _find_family_keys(store: SessionStore, id: str) -> frozenset[int]:
    """Return the sessions of the family of an id; if no session has exactly this id, it is a prefix of an id."""
    matches = store.find_sessions(id=to_storable_text(id))
    matches = [one for one in matches if one.id == id] or matches
    families = {(one.agent, one.root) for one in matches}
    if len(families) > 1 and not any(one.id == id for one in matches):
        ids = ", ".join(one.id for one in matches[:5])
        raise AmbiguousIdError(f"`{id}` matches {len(matches)} sessions: {ids}; give more characters of the id")
    return frozenset(one.key for agent, root in families for one in store.find_sessions(agent=agent, root=root))


def _count_excluded(compiled: CompiledQuery, scope: SearchScope) -> dict[str, int]:
    """Return the number of excluded matches by reason."""
    counts: dict[str, int] = {}
    if not compiled.query.everything:
        counts |= {EXCLUSION_REASONS[code]: count for code, count in compiled.excluded_counts().items()}
    for name, sessions in (("sub-agent", scope.hidden_subagents), ("current session", scope.current_family)):
        if sessions:
            counts[name] = compiled.count_in_sessions(sessions)
    counts["before a recall"] = compiled.count_cut_off()
    return {reason: count for reason, count in counts.items() if count}


class MatchedMessage(NamedTuple):
    """A matching message with its best text."""

    hit: IndexHit
    message: Message
    best_text: AttributedText
    marks: list[TermMatch]


class HitBuilder:
    """Builds search results and caches each message."""

    def __init__(self, message: Callable[[int, int], Message], asked: CompiledQuery, view: SearchView) -> None:
        """Prepare the search for words. `message` returns a message by session key and index."""
        self._read_message, self._runner, self._view = message, asked, view
        self._weights = asked.weights
        query = asked.query
        spoken = (query.words, *query.phrases, *query.require, *query.prefixes)
        terms = [*asked.terms, *(word for text in (*query.require, *query.prefixes) for word in tokenize_words(text))]
        self._finder = TermFinder(terms, [sign for text in spoken for sign in split_unspaced(text)], tokenize_words)
        self._texts_per_session = 3 * view.messages
        self._best: dict[int, list[IndexHit]] = {}
        self._matched: dict[IndexHit, MatchedMessage] = {}

    def rerank(
        self, ranked: Sequence[RankedSession], wanted: int, texts: Sequence[IndexHit], makers: Collection[int]
    ) -> list[RankedSession]:
        """Lower the scores of sessions that only ask the same question, except `makers`, which made the commit."""
        if self._runner.query.rank == "matches":
            return list(ranked)
        head = list(ranked[: wanted + LOOKAHEAD_SESSIONS])
        facts = {one.session.key: one.session for one in head}
        best_texts: dict[int, list[IndexHit]] = {key: [] for key in facts}
        for text in _sort_by_value(text for text in texts if text.session in best_texts):
            best_texts[text.session].append(text)
        asking = {key for key in best_texts.keys() - makers if self._is_question_only(facts[key], best_texts[key])}
        highest = max((one.score for one in head if one.session.key not in asking), default=0.0)
        score_cap = self._weights.question_only_cap * highest if highest > self._weights.min_other else 1.0
        for index, one in enumerate(head):
            if one.session.key in asking:
                head[index] = one._replace(score=min(score_cap, self._weights.question_only * one.score))
        return [*sorted(head, key=lambda one: -one.score), *ranked[len(head) :]]

    def _is_question_only(self, facts: ArchivedSession, best: Sequence[IndexHit]) -> bool:
        """Return whether only the question itself matches: the best match is a prompt without a follow-up action."""
        prompts = [hit for hit in best[:2] if ROLES[hit.role] == "user" and hit.at >= 0]
        others = max((hit.score for hit in best if ROLES[hit.role] != "user" and not hit.derived), default=0.0)
        return any(
            others < self._weights.min_answer * hit.score
            and self.is_question(self._load_match(hit))
            and not self._is_acted_on(hit, facts.messages)
            for hit in prompts
        )

    def _is_acted_on(self, prompt: IndexHit, messages: int) -> bool:
        """Return whether an edit or command follows a prompt, before the next prompt."""
        for at in range(prompt.at + 1, min(prompt.at + 1 + MAX_FOLLOW_UP_MESSAGES, messages)):
            message = self._read_message(prompt.session, at)
            if message.role == "user" and message.author == "human":
                return False
            calls = (describe_tool_call(call) for call in message.calls if not classify_recall(call))
            if any(call.category in ("file_edit", "execution") for call in calls):
                return True
        return False

    def is_question(self, match: MatchedMessage) -> bool:
        """Return whether a prompt says little more than the question.

        Many prompts contain the same one or two words. So for such a short query, the prompt must end with a question
        mark.
        """
        if match.message.author != "human" or match.message.role != "user":
            return False
        if len(self._runner.terms) < 3 and not match.best_text.text.rstrip().endswith(("?", "？")):
            return False
        prompt_words = frozenset(content_words(tokenize_words(match.best_text.text[:2000])))
        shared = prompt_words.intersection(self._runner.terms)
        return len(shared) >= self._weights.question_similarity * len(prompt_words)

    def best_messages(self, key: int, matches: int) -> list[MatchedMessage]:
        """Return the best matching messages of a session, best first."""
        if key not in self._best:
            self._best[key] = _sort_by_value(self._runner.best_matches(self._texts_per_session, [key]))
        by_message: dict[int, IndexHit] = {}
        for hit in self._best[key]:
            if hit.at >= 0:
                by_message.setdefault(hit.at, hit)
        best = islice(by_message.values(), min(self._view.messages, matches))
        return [match for match in map(self._load_match, best) if match.message.parts]

    def prefetch(self, keys: Collection[int]) -> Mapping[int, int]:
        """Find the best hits of several sessions at once; return the number of matching messages in each session."""
        limit = MESSAGES_PER_SESSION * len(keys)
        matches, texts = self._runner.message_matches(keys, limit, self._texts_per_session)
        best, hits_by_session = _by_session(texts[:limit]), _by_session(texts)
        for key in keys:
            is_enough = len({hit.at for hit in best[key]}) >= min(self._view.messages, matches.get(key, 0))
            hits = best[key] if is_enough else hits_by_session[key][: self._texts_per_session]
            self._best[key] = _sort_by_value(hits)
        return matches

    def _load_match(self, hit: IndexHit) -> MatchedMessage:
        if hit not in self._matched:
            self._matched[hit] = self._match_message(hit, self._read_message(hit.session, hit.at))
        return self._matched[hit]

    def _match_message(self, hit: IndexHit, message: Message) -> MatchedMessage:
        texts = [text for _, message_texts in attribute_texts([message]) for text in message_texts]
        field = FIELD_BY_KIND.get(TEXT_KINDS[hit.kind], TEXT_KINDS[hit.kind])
        fitting = [text for text in texts if text.field == field and EXCLUSION_REASONS.index(text.reason) == hit.reason]
        redacted = [text if self._view.reveal else text._replace(text=redact(text.text)) for text in fitting or texts]
        marked = [(text, self._finder.find_matches(text.text)) for text in redacted or [AttributedText("human", "")]]
        text, marks = max(marked, key=lambda pair: len({mark.word for mark in pair[1]}))
        return MatchedMessage(hit, message, text, marks)

    def build_session(self, ranked: RankedSession, owner: ArchivedSession | None = None) -> SessionHit:
        """Build the result of a session, or of the `owner` of a sub-agent."""
        hits = tuple(self._hit(match) for match in self.best_messages(ranked.session.key, ranked.matches))
        return build_session_hit(ranked, hits, self._view, owner)

    def _hit(self, match: MatchedMessage) -> SearchHit:
        snippet = build_snippet(match.best_text.text, match.marks, self._view.context)
        hit = match.hit
        return build_search_hit(match.message, hit.at, TEXT_KINDS[hit.kind], snippet, round(hit.score, 4))


def build_search_hit(message: Message, at: int, kind: str, snippet: Snippet, score: float) -> SearchHit:
    """Build the hit for a message with its snippet."""
    return SearchHit(
        role=message.role,
        author=message.author,
        kind=kind,
        text=snippet.text,
        marks=snippet.marks,
        at=at,
        line=message.source.line if message.source else 0,
        time=message.time,
        score=score,
        cut=snippet.cut,
    )


def _by_session(hits: Iterable[IndexHit]) -> Mapping[int, list[IndexHit]]:
    by_session: dict[int, list[IndexHit]] = defaultdict(list)
    for hit in hits:
        by_session[hit.session].append(hit)
    return by_session


def _sort_by_value(hits: Iterable[IndexHit]) -> list[IndexHit]:
    """Sort by value: human and agent texts have the highest weight, and derived texts have a lower one."""
    weights = (1.0, RANKING.derived)
    return sorted(hits, key=lambda hit: hit.score * KIND_WEIGHTS[hit.kind] * weights[hit.derived], reverse=True)


def build_session_hit(
    ranked: RankedSession, hits: tuple[SearchHit, ...], view: SearchView, owner: ArchivedSession | None = None
) -> SessionHit:
    """Build the result of a session from its hits. A sub-agent appears as a part of its `owner`."""
    source = ranked.session
    facts = owner or source
    clean = str if view.reveal else redact
    return SessionHit(
        id=clean(facts.id),
        agent=facts.agent,
        project=clean(facts.project),
        branch=clean(facts.branch),
        title=clean(facts.title),
        file=clean(source.file),
        line=hits[0].line if hits else 0,
        score=round(ranked.score, 4),
        matches=ranked.matches,
        time=source.ended or source.started,
        hits=hits,
        family=tuple(clean(id) for id in ranked.family if id != facts.id),
        parent=clean(facts.parent) if facts.subagent else "",
        subagent=clean(source.id) if owner else "",
        gone=facts.gone,
        resume=build_resume_command(facts, clean),
    )
