"""Estimate the probability that the best session is the one that the question is about.

A question that no session answers usually has words that no session contains together. So the measure is the
information of the question's words in the best of the first sessions: the rarer a word, the more it says. One unit is
what identifies one text. A logistic function was fitted to questions, with and without an answer;
`benchmarks/search.py questions` repeats this.
"""

import math
from collections.abc import Collection, Mapping

from thresher.memory.search.query_compiler import CompiledQuery

CONFIDENCE_SESSIONS = 20
"""Number of best sessions to look for the words of the question."""
SLOPE, OFFSET = 1.05, -1.9
"""Parameters of the logistic function; fitted."""
DOUBTFUL = 0.5
"""Confidence below which the best session is probably not the one."""


def estimate_confidence(compiled: CompiledQuery, best: Collection[int]) -> float:
    """Return the confidence from 0 to 1 that one of the sessions is the right one.

    If a session contains all words, nothing speaks against it.
    """
    words, total = compiled.words_by_session(best), compiled.text_count()
    confidence = compute_confidence(max((measure_information(one, total) for one in words.values()), default=0.0))
    is_complete = any(len(one) == len(compiled.terms) for one in words.values())
    return max(confidence, DOUBTFUL) if is_complete else confidence


def measure_information(frequencies: Mapping[str, int], total: int) -> float:
    """Return the information of words; 1 is enough to identify one of `total` texts."""
    rarities = (math.log(1 + max(total - count + 0.5, 0.5) / (count + 0.5)) for count in frequencies.values())
    return sum(rarities) / math.log(total + 2)


def compute_confidence(information: float) -> float:
    """Return the confidence for the information of the words that a session contains."""
    return 1 / (1 + math.exp(-(SLOPE * information + OFFSET)))


def confidence_notes(confidence: float | None) -> list[str]:
    """Return a note if the best session is probably not the one that the question is about."""
    if confidence is None or confidence >= DOUBTFUL:
        return []
    reason = "no session contains enough of the question's words together"
    return [f"the best result is probably not what you look for (confidence {confidence:.0%}): {reason}"]
