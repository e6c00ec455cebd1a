"""Score sessions by the similarity of their most similar chunk to a question."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from thresher.memory.meaning.vector_file import VectorFile

if TYPE_CHECKING:
    from thresher.memory.meaning.encoder import Encoder


ROWS_AT_ONCE = 8192
"""Number of vectors to convert to floating point at once, to save memory."""


class SessionSimilarity(NamedTuple):
    """Similarity of a session to a question, and the index of its most similar message."""

    score: float
    message: int


def score_by_meaning(
    file: VectorFile, encoder: "Encoder", question: str, keys: Sequence[int] | None = None
) -> dict[int, SessionSimilarity]:
    """Return the cosine similarity of each session that has vectors; of all sessions without `keys`."""
    query = encoder.encode([question])[0]
    blocks = [block for block in file.read_sessions(keys) if block.matrix.shape[1] == len(query)]
    if not blocks:
        return {}
    matrix = np.concatenate([block.matrix for block in blocks])
    scores = np.empty(len(matrix), np.float32)
    for start in range(0, len(matrix), ROWS_AT_ONCE):
        scores[start : start + ROWS_AT_ONCE] = matrix[start : start + ROWS_AT_ONCE].astype(np.float32) @ query
    scores *= np.concatenate([block.scales for block in blocks])
    sessions = np.repeat([block.session for block in blocks], [len(block.places) for block in blocks])
    places = np.concatenate([block.places for block in blocks])
    order = np.lexsort((scores, sessions))
    best = order[np.flatnonzero(np.diff(sessions[order], append=-1))]  # the last of each session
    return {int(sessions[at]): SessionSimilarity(float(scores[at]), int(places[at])) for at in best}
