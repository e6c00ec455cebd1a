"""Score sessions by the similarity of their most similar chunk to a question."""

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from thresher.memory.meaning.vector_file import VectorFile

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from thresher.memory.meaning.encoder import Encoder


class SessionSimilarity(NamedTuple):
    """Similarity of a session to a question, and the index of its most similar message."""

    score: float
    message: int


def score_by_meaning(
    file: VectorFile, encoder: "Encoder", question: str, keys: Sequence[int] | None = None
) -> dict[int, SessionSimilarity]:
    """Return the cosine similarity of each session that has vectors; of all sessions without `keys`."""
    query = encoder.encode([question])[0]
    scores: dict[int, list[NDArray[np.float32]]] = defaultdict(list)
    places: dict[int, list[NDArray[np.int32]]] = defaultdict(list)
    for block in file.read_sessions(keys):
        if block.matrix.shape[1] == len(query):
            scores[block.session].append((block.matrix.astype(np.float32) @ query) * block.scales)
            places[block.session].append(block.places)
    return {key: _find_best(np.concatenate(some), np.concatenate(places[key])) for key, some in scores.items()}


def _find_best(scores: "NDArray[np.float32]", places: "NDArray[np.int32]") -> SessionSimilarity:
    best = int(scores.argmax())
    return SessionSimilarity(float(scores[best]), int(places[best]))
