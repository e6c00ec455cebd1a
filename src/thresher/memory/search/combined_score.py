"""Combine the scores of a session: by its best messages, by all its words, and by the meaning of the question.

The combination is linear. A question that is a commit's subject is about one action, so its best messages decide alone.

`MeaningScorer` is the interface of a scorer that compares meanings, such as one with vectors. The search works the same
without one.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from heapq import nlargest
from typing import NamedTuple, Protocol

from thresher.memory.index.tantivy_index import IndexHit
from thresher.memory.records import ArchivedSession
from thresher.memory.search.commit_attribution import adjust_for_commits
from thresher.memory.search.confidence import CONFIDENCE_SESSIONS, estimate_confidence
from thresher.memory.search.query import Query, is_stop_word
from thresher.memory.search.query_compiler import CompiledQuery
from thresher.memory.search.question_hints import find_hints, hint_notes
from thresher.memory.search.rank import has_message_conditions, score_sessions
from thresher.memory.search.session_words import score_session_words
from thresher.memory.session_store import SessionStore

_SUBJECT_PREFIX = re.compile(r"(?:build|chore|ci|docs|feat|fix|perf|refactor|revert|style|test)(?:\([^)]*\))?!?: ")
"""Beginning of a conventional commit's subject."""
_FLAG = re.compile(r"\s--?[A-Za-z]")
"""Option of a command."""
WORD_CANDIDATES = 60
"""Number of sessions, best first by their messages, to score by all their words."""
FULL_WORDS_SCORE = 0.6
"""Score by messages from which on the score by all words counts in full. So words that are spread over a session do not
outweigh one message that contains them all."""
MEANING_CANDIDATES = 60
"""Number of sessions, best first by words, to score by meaning."""


class MeaningScorer(Protocol):
    """Scores sessions by how close they are in meaning to a question.

    `Memory` passes one scorer to each search, which calls it at most once, from one thread.
    """

    def score_sessions(self, question: str, sessions: Sequence[int]) -> Mapping[int, float]:
        """Return a similarity for each session key, for example the highest cosine of any of its texts.

        `sessions` has at most `MEANING_CANDIDATES` keys and those of `find_sessions`, best first; sub-agents have keys
        of their own. Only the differences between values matter: the search scales them to 0 (worst) to 1 (best) and
        multiplies them by the weight `RankingWeights.meaning`. A session without vectors is missing from the result;
        it counts as an average one. Return an empty mapping if no score is possible. The method must not raise because
        of missing or outdated vectors. `question` is the text as typed and may contain quotes and asterisks.
        """
        ...

    def find_sessions(self, question: str) -> Collection[int]:
        """Return sessions to consider although they may lack all the words; empty if words suffice.

        This is for a question in another language than the sessions. Meaning then has the weight
        `RankingWeights.foreign_meaning`.
        """
        ...


class CombinedScores(NamedTuple):
    """Session scores, the sessions that made the commit, notes for the user, and the confidence in the best session.

    `loaded` contains sessions that were read for the scores, which the caller need not read again.
    """

    scores: dict[int, float]
    makers: frozenset[int] = frozenset()
    notes: tuple[str, ...] = ()
    confidence: float | None = None
    loaded: tuple[ArchivedSession, ...] = ()


def combine_scores(
    compiled: CompiledQuery,
    store: SessionStore,
    matches: Mapping[int, int],
    texts: Iterable[IndexHit],
    *,
    now: datetime,
    meaning: MeaningScorer | None = None,
) -> CombinedScores:
    """Return the scores of all matching sessions. `now` is the time of the question, for words such as "yesterday"."""
    by_messages = score_sessions(compiled, matches, texts)
    adjusted = adjust_for_commits(by_messages, compiled, store)
    if adjusted.makers or adjusted.notes or _is_quotation(compiled.query) or compiled.query.rank != "best":
        return CombinedScores(*adjusted)
    scores, weights = by_messages, compiled.weights
    by_words = score_session_words(compiled, nlargest(WORD_CANDIDATES, scores, key=scores.__getitem__))
    by_words = {key: score * min(1.0, scores[key] / FULL_WORDS_SCORE) for key, score in by_words.items()}
    scores = _add(scores, by_words, weights.session_words)
    question = compiled.query.full_text
    loaded = store.find_sessions(nlargest(WORD_CANDIDATES, scores, key=scores.__getitem__))
    scores, notes = _add_hints(scores, question, now, compiled, loaded)
    near: Collection[int] = ()
    if meaning is not None and question:
        candidates = nlargest(MEANING_CANDIDATES, scores, key=scores.__getitem__)
        if not has_message_conditions(compiled.query):
            near = meaning.find_sessions(question)
        added = [key for key in near if key not in scores and compiled.covers(key)]
        scores = {**scores, **dict.fromkeys(added, 0.0)}
        candidates = [*candidates, *(key for key in near if key in scores and key not in candidates)]
        by_meaning = _scale(meaning.score_sessions(question, candidates), candidates)
        scores = _add(scores, by_meaning, weights.foreign_meaning if near else weights.meaning)
    best = nlargest(CONFIDENCE_SESSIONS, scores, key=scores.__getitem__)
    # Words say nothing about the answer to a question in another language.
    is_rated = compiled.terms and not near and not has_message_conditions(compiled.query)
    confidence = estimate_confidence(compiled, best) if is_rated else None
    return CombinedScores(scores, notes=notes, confidence=confidence, loaded=tuple(loaded))


def _is_quotation(query: Query) -> bool:
    """Return True for a commit's subject or a command: its words matter in the message that has them."""
    text = query.full_text
    is_command = _FLAG.search(text) is not None and not is_stop_word(text.split()[0].lower())
    return is_command or _SUBJECT_PREFIX.match(text) is not None


def _add_hints(
    scores: Mapping[int, float],
    question: str,
    now: datetime,
    compiled: CompiledQuery,
    sessions: Sequence[ArchivedSession],
) -> tuple[dict[int, float], tuple[str, ...]]:
    """Raise the scores of those of the best `sessions` that fit the times and projects in the question."""
    hints = find_hints(question, now, sessions)
    fits = {session.key: hints.score(session) for session in sessions}
    weights = compiled.weights
    gains = {key: weights.time_hint * time + weights.project_hint * project for key, (time, project) in fits.items()}
    shifted = [session for session in sessions if gains[session.key]]
    return _add(scores, gains, 1.0), tuple(hint_notes(hints, shifted))


def _add(scores: Mapping[int, float], more: Mapping[int, float], weight: float) -> dict[int, float]:
    return {**scores, **{key: scores[key] + weight * score for key, score in more.items()}}


def _scale(similarities: Mapping[int, float], candidates: Collection[int]) -> dict[int, float]:
    """Scale similarities to 0 to 1; a candidate without one is average."""
    known = [similarities[key] for key in candidates if key in similarities]
    low, high = min(known, default=0.0), max(known, default=0.0)
    if high <= low:
        return {}
    average = sum(known) / len(known)
    return {key: (similarities.get(key, average) - low) / (high - low) for key in candidates}
