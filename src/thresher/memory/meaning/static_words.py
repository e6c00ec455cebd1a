"""Encode texts with static word vectors: a text is the mean of its words' vectors.

The vectors are the 256-dimensional `l2_supercat` model, which the package `wordllama` contains. Only its two data files
are read. The package itself is not imported, because its loader downloads what it does not find.

Tokenizing is the slow part, and most words repeat. So each distinct word is tokenized once.
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from thresher.errors import OptionError
from thresher.memory.meaning.encoder import MISSING_EXTRA, ChunkRules

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from tokenizers import Tokenizer

    from thresher.memory.meaning.encoder import Matrix

PACKAGE = "wordllama"
WEIGHTS, TOKENIZER = "weights/l2_supercat_256.safetensors", "tokenizers/l2_supercat_tokenizer_config.json"
MAX_CACHED_WORDS = 60_000
"""Number of distinct words whose vectors stay in memory: 60 MB."""
MAX_WORD_CHARS = 40
_WORD = re.compile(r"[^\W_]+|[^\w\s]|_")


def find_data_folder() -> Path | None:
    """Return the folder of the package with the data files; None if it is not installed."""
    spec = find_spec(PACKAGE)
    folders = list(spec.submodule_search_locations or ()) if spec is not None else []
    return next((Path(folder) for folder in folders if (Path(folder) / WEIGHTS).is_file()), None)


class StaticWordEncoder:
    """The embedded static vectors: fast, English, without a network."""

    name = "wordllama-l2-supercat-256"
    rules = ChunkRules(frozenset(("human", "agent", "thinking", "summary")), 1500, 8)
    batch = 512

    def __init__(self, folder: Path | None = None) -> None:
        """Load nothing yet; raise `OptionError` if the extra is not installed."""
        folder = folder or find_data_folder()
        if folder is None:
            raise OptionError(MISSING_EXTRA)
        self._folder = folder
        self._rows: dict[str, int] = {}
        self._vectors: Matrix | None = None
        self._lock = Lock()

    def encode(self, texts: Sequence[str]) -> "Matrix":
        """Return one row per text."""
        import numpy as np  # noqa: PLC0415 - an extra

        table, _ = _open_tables(self._folder)
        matrix: Matrix = np.zeros((len(texts), table.shape[1]), np.float32)
        with self._lock:
            for row, words in enumerate(map(_split_words, texts)):
                if words:
                    matrix[row] = self._word_vectors(words).sum(axis=0)
        lengths = np.linalg.norm(matrix, axis=1, keepdims=True)
        matrix /= np.maximum(lengths, 1e-9)
        return matrix

    def _word_vectors(self, words: Sequence[str]) -> "Matrix":
        import numpy as np  # noqa: PLC0415 - an extra

        rows = self._rows
        new = [word for word in dict.fromkeys(words) if word not in rows]
        if len(rows) + len(new) > MAX_CACHED_WORDS:
            rows.clear()
            new = [*dict.fromkeys(words)]
        if self._vectors is None or len(rows) + len(new) > len(self._vectors):
            size = max(4096, 2 * len(rows), len(rows) + len(new))
            grown = np.empty((size, _open_tables(self._folder)[0].shape[1]), np.float32)
            if self._vectors is not None:
                grown[: len(rows)] = self._vectors[: len(rows)]
            self._vectors = grown
        for word, vector in zip(new, self._encode_words(new), strict=True):
            self._vectors[len(rows)] = vector
            rows[word] = len(rows)
        return self._vectors[[rows[word] for word in words]]

    def _encode_words(self, words: Sequence[str]) -> "Iterator[NDArray[np.float32]]":
        """Yield the sum of the token vectors of each word."""
        import numpy as np  # noqa: PLC0415 - an extra

        table, tokenizer = _open_tables(self._folder)
        for encoding in tokenizer.encode_batch([*words], add_special_tokens=False):
            yield table[encoding.ids].astype(np.float32).sum(axis=0)


def _split_words(text: str) -> list[str]:
    return [word[:MAX_WORD_CHARS] for word in _WORD.findall(text)]


@cache
def _open_tables(folder: Path) -> "tuple[NDArray[np.float16], Tokenizer]":
    """Map the weights into memory and load the tokenizer."""
    try:
        import numpy as np  # noqa: PLC0415 - an extra
        from tokenizers import Tokenizer  # noqa: PLC0415 - an extra
    except ImportError:
        raise OptionError(MISSING_EXTRA) from None
    with (folder / WEIGHTS).open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(size))
    (tensor,) = _tensors(header.items())
    table = np.memmap(
        folder / WEIGHTS, np.float16, "r", offset=8 + size + tensor["data_offsets"][0], shape=tuple(tensor["shape"])
    )
    tokenizer = Tokenizer.from_file(str(folder / TOKENIZER))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return table, tokenizer


def _tensors(header: Iterable[tuple[str, dict[str, object]]]) -> "Iterator[dict[str, list[int]]]":
    """Yield the tensors that the header of a safetensors file describes."""
    for name, tensor in header:
        if name != "__metadata__":
            if tensor.get("dtype") != "F16":
                raise OptionError(f"the vectors of `{PACKAGE}` have an unknown type; reinstall the extra `meaning`")
            yield tensor  # type: ignore[misc]
