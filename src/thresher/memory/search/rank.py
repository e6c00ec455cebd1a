"""Rank sessions.

A message scores by its best text, and its other texts add a little. A session scores by its best messages: the first
counts in full, the second half and the third a third, so a session of a thousand messages has no advantage. Matching
words in the title and branch add a little. Time only decides between equal scores. The alternative order `matches`
sorts by the number of matching messages, then by time.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from operator import mul
from typing import NamedTuple

from thresher.memory.index.tantivy_index import IndexHit
from thresher.memory.index.tokenizer import tokenize_words
from thresher.memory.records import TEXT_KINDS, ArchivedSession
from thresher.memory.search.query import DEFAULT_SEARCH_FIELDS, Query
from thresher.memory.search.query_compiler import CompiledQuery
from thresher.memory.search.weights import RankingWeights

MAX_RANKED_TEXTS = 1000
"""Number of best texts that determine the scores."""
_EDITS = TEXT_KINDS.index("edits")
_NEVER = datetime.min.replace(tzinfo=UTC)


class RankedSession(NamedTuple):
    """A session with its score."""

    session: ArchivedSession
    score: float
    matches: int
    relatives: "tuple[RankedSession, ...]" = ()
    """Other found sessions of its family."""

    @property
    def family(self) -> tuple[str, ...]:
        """Ids of the relatives."""
        return tuple(one.session.id for one in self.relatives)


def has_message_conditions(query: Query) -> bool:
    """Return whether a query has conditions on messages, which a title cannot meet."""
    special = (query.phrases, query.prefixes, query.require, query.exclude, query.file, query.role)
    return any(special) or bool(query.since or query.until) or query.fields != DEFAULT_SEARCH_FIELDS


def score_sessions(compiled: CompiledQuery, matches: Mapping[int, int], texts: Iterable[IndexHit]) -> dict[int, float]:
    """Score sessions by their best texts, at most 1; sessions that match only by title score 0."""
    scores = dict.fromkeys(matches, 0.0) | _score_texts(texts, compiled.weights)
    if compiled.terms and not has_message_conditions(compiled.query):
        scores |= {hit.session: 0.0 for hit in compiled.title_matches() if hit.session not in scores}
    return scores


def _score_texts(hits: Iterable[IndexHit], weights: RankingWeights) -> dict[int, float]:
    """Return session scores relative to the highest one."""
    messages: dict[tuple[int, int], list[float]] = defaultdict(list)
    for hit in hits:
        weight = (weights.derived if hit.derived else 1.0) * (weights.edit if hit.kind == _EDITS else 1.0)
        messages[hit.session, hit.at].append(hit.score * weight)
    sessions: dict[int, list[float]] = defaultdict(list)
    text_shares = [weights.extra_text**rank for rank in range(len(TEXT_KINDS))]
    for (session, _), texts in messages.items():
        sessions[session].append(_weighted_sum(texts, text_shares))
    sums = {session: _weighted_sum(many, weights.message_shares) for session, many in sessions.items()}
    highest = max(sums.values(), default=0.0) or 1.0
    return {session: score / highest for session, score in sums.items()}


def _weighted_sum(scores: list[float], shares: Sequence[float]) -> float:
    """Sum the scores, best first, each weighted by its share."""
    return scores[0] if len(scores) == 1 else sum(map(mul, shares, sorted(scores, reverse=True)))


def rank_sessions(
    sessions: Iterable[ArchivedSession],
    scores: Mapping[int, float],
    matches: Mapping[int, int],
    compiled: CompiledQuery,
) -> list[RankedSession]:
    """Return one entry per family, best first."""
    wanted = frozenset(compiled.terms)
    ranked: list[RankedSession] = []
    for session in sessions:
        score = scores[session.key] + compiled.weights.title * _score_title(session, wanted)
        ranked.append(RankedSession(session, score, matches.get(session.key, 0)))
    ranked.sort(key=lambda one: (not one.session.gone, one.session.ended or _NEVER), reverse=True)
    by_matches = compiled.query.rank == "matches"
    ranked.sort(key=lambda one: one.matches if by_matches else round(one.score, 3), reverse=True)
    families: dict[tuple[str, str], list[RankedSession]] = defaultdict(list)
    for one in ranked:
        families[one.session.agent, one.session.root or one.session.id].append(one)
    return [first._replace(relatives=tuple(others)) for first, *others in families.values()]


def _score_title(facts: ArchivedSession, wanted: Collection[str]) -> float:
    return len(_tokenize_title(facts.title, facts.branch).intersection(wanted)) / len(wanted) if wanted else 0.0


@lru_cache(maxsize=4096)
def _tokenize_title(title: str, branch: str) -> frozenset[str]:
    return frozenset(tokenize_words(f"{title} {branch}"))
