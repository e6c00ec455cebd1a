"""The tuned numbers of a search, in one table.

They were chosen on 306 commits of recorded Claude Code sessions, each sought by its subject, and judged on the commits
that were left out of the choice: `benchmarks/search.py tune` repeats it for those marked *tuned*. The others were set
by hand.
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
"""How much a text of each kind tells a person, of those that match alike; 1.0 for others."""


class RankingWeights(Struct, frozen=True, kw_only=True):
    """Weights by which sessions are ranked."""

    adjacent_words: float = 0.15
    """Added by two words side by side, as a share of the weight of the two."""
    extra_text: float = 0.15
    """Added by each further text of a message, as a share of the one before; tuned."""
    message_shares: tuple[float, ...] = (1.0, 1 / 2, 1 / 3)
    """Counted of a session's best messages; tuned."""
    title: float = 0.3
    """Added by a title that holds all words, beside a best message of 1; tuned."""
    edit: float = 1.2
    """Weight of what was written into a file: it was done, where much else is only spoken of; tuned."""
    derived: float = 0.5
    """Weight of a message that was said out of a recall."""

    commit_maker: float = 1.5
    """Added for the session that made the commit, beside a best message of 1 and a title: it goes first."""
    earlier_session: float = 0.6
    """Added for the last session before the commit was seen; tuned."""
    earlier_decay: float = 0.7
    """The share of it for each session further back."""
    log_printer: float = 0.3
    """The share of it for the session that showed the commit first."""
    later_session: float = 0.5
    """Weight of a session that began after the commit was seen."""
    min_edits: int = 2
    """Messages with edits that a session must have to count as one that may have made a commit; tuned."""

    question_similarity: float = 0.6
    """The share of a prompt's words that are the question's, from which it is the question."""
    min_answer: float = 0.5
    """How well something else in a session must match, beside the question, for it to be more than asked."""
    question_only: float = 0.4
    """Weight of a session that only asked."""
    question_only_cap: float = 0.95
    """The share of the best other session's score that it may have at most."""
    min_other: float = 0.1
    """The score that another session must have to go before it."""

    min_recalled_terms: float = 0.34
    """The share of a question's words that a session must hold to speak of it."""


RANKING = RankingWeights()
