"""`MeaningIndex`: the vectors of an archive by every model in use, to build, to search and to forget.

Three encoders exist. The static word vectors serve English questions. The multilingual encoder serves questions in
other languages. A configured endpoint serves all questions; the static vectors replace it where its own are missing.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from heapq import nlargest
from pathlib import Path
from typing import NamedTuple

from msgspec import structs
from threadpoolctl import threadpool_limits

from thresher.memory.meaning.building import BuildReport, build_vectors, count_missing
from thresher.memory.meaning.encoder import Encoder, EncodingStopped
from thresher.memory.meaning.endpoint_encoder import EndpointEncoder
from thresher.memory.meaning.language import is_foreign
from thresher.memory.meaning.multilingual import MultilingualEncoder
from thresher.memory.meaning.scorer import score_by_meaning
from thresher.memory.meaning.static_words import StaticWordEncoder
from thresher.memory.meaning.vector_file import DamagedVectorsError, VectorFile, vector_file_name
from thresher.memory.model_endpoints import MeaningSettings
from thresher.memory.records import Progress, Stop, never_stop
from thresher.memory.session_store import SessionStore
from thresher.store.errors import StoreError

LEDGER_FILE = "spending.json"
MIN_COVERED = 0.25
"""Minimum share of the sessions that must have vectors of a model to score with this model."""
NEAR_SESSIONS = 20
"""Number of sessions to find by meaning alone, for a question in another language."""
QUESTION_TIMEOUT = 5.0
"""Seconds that a search waits for the vector of its question."""


class VectorStatus(NamedTuple):
    """State of the vectors of one model."""

    model: str
    missing: int
    """Number of blocks of the archive that lack vectors."""
    total: int
    """Number of blocks of the archive."""
    size: int
    """Size on disk in bytes."""
    spent: float = 0.0
    """Dollars spent so far; 0 for an embedded model."""


class MeaningIndex:
    """The vectors of a session store."""

    def __init__(self, store: SessionStore, settings: MeaningSettings, folder: Path) -> None:
        """Load no model yet."""
        self._store, self._settings, self.folder = store, settings, folder

    @cached_property
    def _static(self) -> Encoder:
        return StaticWordEncoder()

    @cached_property
    def _multilingual(self) -> Encoder:
        return MultilingualEncoder()

    @cached_property
    def _endpoint(self) -> EndpointEncoder:
        return EndpointEncoder(self._settings, self.folder / LEDGER_FILE)

    @cached_property
    def _question_endpoint(self) -> Encoder:
        timeout = min(self._settings.timeout, QUESTION_TIMEOUT)
        settings = structs.replace(self._settings, timeout=timeout, retries=0)
        return EndpointEncoder(settings, self.folder / LEDGER_FILE)

    def _encoders(self) -> list[Encoder]:
        """Return the encoders that need vectors, the fastest first."""
        return [self._static, self._endpoint if self._settings.is_configured else self._multilingual]

    def _file(self, encoder: Encoder) -> VectorFile:
        return VectorFile(self.folder / vector_file_name(encoder.name))

    def build(
        self,
        progress: Callable[[str], Progress | None] | None = None,
        stop: Stop = never_stop,
        *,
        only_fast: bool = False,
    ) -> list[BuildReport]:
        """Encode everything that lacks vectors; `progress` returns the progress callback of a model.

        With `only_fast`, build only the static vectors.
        """
        if not self._store.exists():
            return []
        reports = []
        with threadpool_limits(1):
            for encoder in self._encoders()[: 1 if only_fast else None]:
                callback = progress(encoder.name) if progress is not None else None
                reports.append(build_vectors(self._store, self._file(encoder), encoder, progress=callback, stop=stop))
        return reports

    def status(self) -> list[VectorStatus]:
        """Return the state of the vectors of each model."""
        total = len(self._store.archive.find_blocks()) if self._store.exists() else 0
        return [self._status(encoder, total) for encoder in self._encoders()]

    def _status(self, encoder: Encoder, total: int) -> VectorStatus:
        file = self._file(encoder)
        try:
            missing = count_missing(self._store, file)
        except (StoreError, DamagedVectorsError):
            missing = total
        spent = encoder.spending.spent if isinstance(encoder, EndpointEncoder) else 0.0
        return VectorStatus(encoder.name, missing, total, file.size(), spent)

    # --- searching -----------------------------------------------------------------------------------------------

    def question_scorer(self, typed: str = "") -> "QuestionScorer":
        """Return a scorer for one search. `typed` is the question before misspelled words were repaired."""
        return QuestionScorer(self, typed)

    def find_sessions(self, question: str) -> list[int]:
        """Return the sessions nearest to a question in another language, of all sessions; none for other questions."""
        if self._settings.is_configured or not is_foreign(question):
            return []
        scores = self.score_with(self._multilingual, question, None)
        return nlargest(NEAR_SESSIONS, scores, key=scores.__getitem__)

    def encoders_for(self, question: str) -> Iterator[Encoder]:
        """Yield the encoders for a question, the best first."""
        if self._settings.is_configured:
            yield self._question_endpoint
        elif is_foreign(question):
            yield self._multilingual
        yield self._static

    def score_with(self, encoder: Encoder, question: str, sessions: Sequence[int] | None) -> dict[int, float]:
        """Return the similarity of each session that has vectors of this model; of all sessions if None is given."""
        file = self._file(encoder)
        if not file.exists():
            return {}
        with threadpool_limits(1):
            found = score_by_meaning(file, encoder, question, sessions)
        return {key: similarity.score for key, similarity in found.items()}


class QuestionScorer:
    """Scores the sessions of one search; it implements the search's `MeaningScorer`."""

    def __init__(self, index: MeaningIndex, typed: str) -> None:
        """Score nothing yet."""
        self._index = index
        self._foreign_question = typed if is_foreign(typed) else ""  # its words look like misspelled English
        self.notes: list[str] = []
        """Reasons why meaning did not count, or not with the model of choice."""

    def score_sessions(self, question: str, sessions: Sequence[int]) -> dict[int, float]:
        """Return the similarity of each session that has vectors; empty if too many sessions lack them."""
        question = self._foreign_question or question
        for encoder in self._index.encoders_for(question):
            try:
                scores = self._index.score_with(encoder, question, sessions)
            except EncodingStopped as stopped:
                self.notes.append(f"{encoder.name} did not answer, so it did not influence the order: {stopped}")
            except (StoreError, DamagedVectorsError) as error:
                self.notes.append(f"{error}")
            else:
                if scores and len(scores) >= MIN_COVERED * len(sessions):
                    return scores
        if sessions:
            self.notes.append("most of these sessions lack vectors, so only words count; `thresher sync` builds them")
        return {}

    def find_sessions(self, question: str) -> list[int]:
        """Return sessions that are near in meaning, if the question is in another language."""
        try:
            return self._index.find_sessions(self._foreign_question or question)
        except (StoreError, DamagedVectorsError):  # `score_sessions` adds the note
            return []
