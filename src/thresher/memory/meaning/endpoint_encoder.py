"""Encode texts with an OpenAI-compatible embedding model that the user has configured.

The texts of sessions arrive redacted (see `building`); each request is redacted here again, since it may be a question.
A request that would exceed the spending cap is not sent.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from thresher.memory.ingest.redaction import redact
from thresher.memory.meaning.encoder import ChunkRules, EncodingStopped
from thresher.memory.model_endpoints import MeaningSettings, Spending, SpendingCapError, make_endpoint
from thresher.model import Text
from thresher.summarize.embeddings import request_embeddings
from thresher.summarize.endpoint import SummaryError
from thresher.tokens import estimate_part_tokens

if TYPE_CHECKING:
    from thresher.memory.meaning.encoder import Matrix


class EndpointEncoder:
    """An embedding model on a server."""

    rules = ChunkRules(frozenset(("human", "agent", "thinking", "summary")), 1500, 8)

    def __init__(self, settings: MeaningSettings, ledger: Path) -> None:
        """Send nothing yet; raise `OptionError` if the settings are invalid or the price is unknown."""
        self._endpoint = make_endpoint(settings)
        self.spending = Spending(settings, ledger)
        self.name = f"{self._endpoint.host} {settings.model}"
        self.batch = max(1, settings.batch)

    def encode(self, texts: Sequence[str]) -> "Matrix":
        """Return one row per text; raise `EncodingStopped` if the server or the cap refuses."""
        clean = [redact(text) for text in texts]
        estimate = sum(estimate_part_tokens(Text(text)) for text in clean)
        try:
            self.spending.require(self.spending.cost(estimate))
            reply = request_embeddings(self._endpoint, clean)
        except (SpendingCapError, SummaryError) as error:
            raise EncodingStopped(str(error)) from None
        self.spending.add(self.spending.cost(reply.tokens or estimate))
        matrix: Matrix = np.nan_to_num(np.asarray(reply.vectors, np.float32))
        matrix /= np.maximum(np.linalg.norm(matrix, axis=1, keepdims=True), 1e-9)
        return matrix
