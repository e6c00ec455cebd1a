"""`Encoder`: the protocol of everything that turns texts into vectors, and the rules for the texts it receives."""

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Matrix = NDArray[np.float32]

    from thresher.memory.ingest.provenance import TextField

MISSING_EXTRA = "search by meaning needs the extra `meaning`: pip install 'thresher[meaning]'"

_BREAK = re.compile(r"\s")


class EncodingStopped(Exception):
    """An encoder stopped before the end, for example at its spending cap; the message says why."""


class ChunkRules(NamedTuple):
    """The texts of a session to encode, and the size of the chunks."""

    fields: frozenset["TextField"]
    chars: int
    """Maximum characters of a chunk."""
    per_text: int
    """Maximum number of chunks of one text; the rest of the text is ignored."""


class Encoder(Protocol):
    """Turns texts into vectors of length 1, so that a dot product is a cosine similarity."""

    name: str
    """Unique name of the model; vectors of different models are never compared."""
    rules: ChunkRules
    batch: int
    """Number of texts to encode at once."""

    def encode(self, texts: Sequence[str]) -> "Matrix":
        """Return one row per text. A text without any known word has a row of zeros."""


def split_chunks(text: str, rules: ChunkRules) -> Iterator[str]:
    """Split a text into chunks at whitespace; a longer word is split."""
    start = 0
    for _ in range(rules.per_text):
        stop = min(start + rules.chars, len(text))
        if stop < len(text):
            stop = next((at for at in range(stop, start + rules.chars // 2, -1) if _BREAK.match(text, at)), stop)
        chunk = text[start:stop].strip()
        if chunk:
            yield chunk
        start = stop
        if start >= len(text):
            return
