"""Token counters: the exact tokenizer if installed, otherwise the estimator.

OpenAI publishes its vocabularies, and `splintr` ships them (extra `exact`). Other vendors publish none. For Claude and
Gemini, the best count is the o200k count times a factor from the model catalog or from a calibration. The exact counter
encodes text as plain text: `<|endoftext|>` in a transcript is seven ordinary tokens, not a control token. Encoding
takes linear time for any text, so the text needs no splitting.
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Protocol

from thresher.dialects.surrogates import replace_lone_surrogates
from thresher.errors import ThresherError
from thresher.tokens.estimate import estimate_text

EXACT_VOCABULARY = "o200k_base"
"""Vocabulary of GPT-4o and all later OpenAI models."""


class CounterError(ThresherError):
    """A counter is unknown or not installed."""


class TokenCounter(Protocol):
    """Counts the tokens of a text."""

    @property
    def name(self) -> str:
        """Name of the counter; counters with the same name return the same counts."""

    def __call__(self, text: str, /) -> int:
        """Return the number of tokens."""


class TokenEstimator:
    """Estimates tokens from the classes of a text's bytes; needs no extra package."""

    name = "estimate"

    def __call__(self, text: str, /) -> int:
        """Return the estimated number of o200k tokens."""
        return estimate_text(text)


class ExactCounter:
    """Counts tokens with a published vocabulary."""

    def __init__(self, name: str, encode: Callable[[str], Sequence[int]]) -> None:
        self.name = name
        self._encode = encode

    def __call__(self, text: str, /) -> int:
        """Return the number of tokens."""
        try:
            return len(self._encode(text))
        except UnicodeEncodeError:
            return len(self._encode(replace_lone_surrogates(text)))


@cache
def get_counter(name: str = "auto") -> TokenCounter:
    """Return a counter by name: `estimate`, `exact`, `auto`, or a vocabulary such as `cl100k_base`.

    `auto` is the exact counter if it is installed, otherwise the estimator.
    """
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
        from splintr import Tokenizer  # noqa: PLC0415 - an optional extra that takes 40 MB
    except ImportError as error:
        raise CounterError(
            f"the counter `{name}` needs splintr: `pip install 'thresher[exact]'`, or use `estimate`"
        ) from error
    try:
        return ExactCounter(name, Tokenizer.from_pretrained(name).encode_ordinary)
    except ValueError as error:
        raise CounterError(
            f"unknown counter `{name}`; use `auto`, `exact`, `estimate` or a vocabulary. {error}"
        ) from error
