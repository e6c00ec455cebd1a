"""Weights and thresholds of the search.

The values marked *tuned* were selected on 306 commits in recorded Claude Code sessions, with each commit subject as the
query, and validated on held-out commits. `benchmarks/search.py tune` repeats this. The other values were set by hand.
"""

from msgspec import Struct

from thresher.memory.records import TextKind

KIND_VALUES: dict[TextKind, float] = {
    "human": 1.2,
    "agent": 1.1,
    "thinking": 0.8,
    "commands": 0.7,
    "edits": 0.6,
    "input": 0.6,
    "output": 0.3,
}
"""Relevance of a matching text by kind; 1.0 for other kinds."""


class RankingWeights(Struct, frozen=True, kw_only=True):
    """Ranking weights."""

    adjacent_words: float = 0.15
    """Weight of two adjacent query words that are also adjacent in the text."""
    extra_text: float = 0.15
    """Factor by which the weight decreases from each text of a message to the next best one; tuned."""
    message_shares: tuple[float, ...] = (1.0, 1 / 2, 1 / 3)
    """Weights of a session's best messages, best first; tuned."""
    title: float = 0.3
    """Score that a title with all query words adds. The messages of the best session score 1. Tuned."""
    session_words: float = 0.8
    """Weight of the score of all words of a session."""
    meaning: float = 0.8
    """Weight of the score by meaning, if there is a scorer."""
    foreign_meaning: float = 2.0
    """Weight of the score by meaning for a question in another language, whose words rarely occur in the sessions."""
    time_hint: float = 0.2
    """Score for a session of the time that the question mentions."""
    project_hint: float = 0.2
    """Score for a session of the project that the question names."""
    edit: float = 1.2
    """Weight of text written into a file, which is stronger evidence than a mention; tuned."""
    derived: float = 0.5
    """Weight of a text derived from a recall."""

    commit_maker: float = 1.5
    """Score for the session that made the commit, enough to rank it first (the other sessions score at most 1)."""
    earlier_session: float = 0.6
    """Score for the last session before the commit was listed; tuned."""
    earlier_decay: float = 0.7
    """Factor by which the score of an earlier session decreases with each session further back."""
    log_printer: float = 0.3
    """Score for the session that first listed the commit, as a share of `earlier_session`."""
    later_session: float = 0.5
    """Weight of a session that began after the commit was listed."""
    min_edits: int = 2
    """Minimum number of edits for a session that may have made the commit; tuned."""

    question_similarity: float = 0.6
    """Minimum share of a prompt's words that the query contains, to count the prompt as the same question."""
    min_answer: float = 0.5
    """Minimum score of an answer, relative to the prompt. With a lower score, a session counts as only the question."""
    question_only: float = 0.4
    """Weight of a session that only asked the question."""
    question_only_cap: float = 0.95
    """Maximum score of a session that only asked the question, as a share of the best other session's score."""
    min_other: float = 0.1
    """Score that the best other session must exceed for `question_only_cap` to apply."""

    min_recalled_terms: float = 0.34
    """Minimum share of a question's words that a session must contain for a recall to return excerpts."""


RANKING = RankingWeights()
