"""Score whole sessions for the words of a query: BM25 with the session as the document.

The score by best messages misses a question whose words are spread over a session. Here the frequency of a word is the
number of texts that contain it in speech, thought, summaries and titles, and the length of a session is the
number of such texts. Only the best sessions by messages are scored, so the cost does not grow with the archive.
"""

import math
from collections import defaultdict
from collections.abc import Collection

from thresher.memory.search.query_compiler import CompiledQuery

SATURATION = 1.2
LENGTH_SHARE = 0.75
"""The usual parameters of BM25, `k1` and `b`."""


def score_session_words(compiled: CompiledQuery, candidates: Collection[int]) -> dict[int, float]:
    """Return scores of the candidate sessions, relative to the highest one."""
    if not candidates:
        return {}
    number, average = compiled.conversation_size()
    lengths = compiled.conversation_lengths(candidates)
    scores: dict[int, float] = defaultdict(float)
    for spread, texts in compiled.word_counts(candidates):
        rarity = math.log(1 + max(number - spread + 0.5, 0.5) / (spread + 0.5))
        for session, count in texts.items():
            length = 1 - LENGTH_SHARE + LENGTH_SHARE * lengths.get(session, 0) / average
            scores[session] += rarity * count * (SATURATION + 1) / (count + SATURATION * length)
    highest = max(scores.values(), default=0.0) or 1.0
    return {session: score / highest for session, score in scores.items()}
