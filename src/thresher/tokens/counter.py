"""What counts the tokens of a text: an exact counter where one is installed, else the estimator.

OpenAI publishes its vocabularies, and `splintr` carries them (extra `exact`). Nobody else does: for Claude and Gemini
the o200k count is the best there is, times a factor that the models table or a calibration knows. The exact
counter takes a text as plain text: `<|endoftext|>` in a transcript is seven tokens of data, not one of control. It is
linear in the text whatever the text is, so nothing is cut up before counting.
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Protocol

from thresher.errors import ThresherError
from thresher.tokens.estimate import estimate_text

EXACT_VOCABULARY = "o200k_base"
"""The vocabulary of GPT-4o and all that came after it."""


class CounterError(ThresherError):
    """A counter is not known, or not installed."""


class TokenCounter(Protocol):
    """Counts the tokens of a text; the name says how."""

    @property
    def name(self) -> str:
        """Which counter: two of one name count alike."""

    def __call__(self, text: str, /) -> int:
        """How many tokens."""


class TokenEstimator:
    """Counts bytes by their class; needs nothing installed."""

    name = "estimate"

    def __call__(self, text: str, /) -> int:
        """About how many tokens of o200k."""
        return estimate_text(text)


class ExactCounter:
    """Counts with a published vocabulary."""

    def __init__(self, name: str, encode: Callable[[str], Sequence[int]]) -> None:
        self.name = name
        self._encode = encode

    def __call__(self, text: str, /) -> int:
        """How many tokens."""
        try:
            return len(self._encode(text))
        except UnicodeEncodeError:
            return len(self._encode(_replace_surrogates(text)))


@cache
def get_counter(name: str = "auto") -> TokenCounter:
    """The counter of a name: `estimate`, `exact`, a vocabulary such as `cl100k_base`, or the best one installed."""
    if name == "estimate":
        return TokenEstimator()
    if name != "auto":
        return _load_exact_counter(EXACT_VOCABULARY if name == "exact" else name)
    try:
        return _load_exact_counter(EXACT_VOCABULARY)
    except CounterError:
        return TokenEstimator()


def _load_exact_counter(name: str) -> ExactCounter:
    try:
        from splintr import Tokenizer  # noqa: PLC0415 - an extra, and 40 MB that only counting needs
    except ImportError as error:
        raise CounterError(
            f"the counter {name!r} needs splintr: pip install 'thresher[exact]', or count with 'estimate'"
        ) from error
    try:
        return ExactCounter(name, Tokenizer.from_pretrained(name).encode_ordinary)
    except ValueError as error:
        raise CounterError(f"no counter {name!r}: use 'auto', 'exact', 'estimate' or a vocabulary. {error}") from error


def _replace_surrogates(text: str) -> str:
    """The text with halves of surrogate pairs joined, and a replacement character for those left over."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
