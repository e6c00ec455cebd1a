"""Text to the words that are searched for: the same for what is indexed and for what is asked.

`refreshToken`, `HTMLParser` and `refresh_token` are several words, each character of a script without spaces is
a word of its own (so they are looked for as phrases), and English endings go. The index cuts at everything
that is no letter or digit; what it cannot see is made visible to it by spaces first. A pattern that does all of it
inside the index takes twice the time of the whole.

Outputs of tools are mostly names and numbers, and most of all text: their words are taken as they stand.
"""

import re
from functools import cache
from unicodedata import normalize

import tantivy

STEMMED, PLAIN = "words", "plain"
"""The names of the two analyzers."""
MAX_WORD_BYTES = 80
"""Bytes from which a word is taken for data; a digest of 64 digits is none."""

# An upper-case letter comes first, so that the search for a place to begin is one fast scan.
_CAMEL_BOUNDARY = re.compile(r"[A-Z](?<=[A-Za-z0-9][A-Z])(?:(?<![A-Z][A-Z])|(?=[a-z]))")
_UNSPACED_RANGES = (
    "\u0e00-\u0eff"  # Thai, Lao
    "\u1000-\u109f\ua9e0-\ua9ff\uaa60-\uaa7f"  # Burmese
    "\u1780-\u17ff"  # Khmer
    "\u1950-\u19df\u1a20-\u1aaf\uaa80-\uaadf"  # other Tai scripts
    "\u1100-\u11ff\uac00-\ud7af"  # Korean
    "\u3040-\u30ff\u3100-\u312f\u31a0-\u31bf\u31f0-\u31ff"  # Japanese, Bopomofo
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # Chinese characters
)
_UNSPACED_CHARACTER = re.compile(f"[{_UNSPACED_RANGES}]")
_UNSPACED_RUN = re.compile(f"[{_UNSPACED_RANGES}]+")


def normalize_text(text: str) -> str:
    """Return the text with one form for characters that Unicode holds to be the same."""
    return text if text.isascii() else normalize("NFKC", text.encode("utf-8", "replace").decode())


def separate_unspaced_scripts(text: str) -> str:
    """Return the normalized text with spaces between the characters of scripts that have none."""
    return text if text.isascii() else _UNSPACED_CHARACTER.sub(r" \g<0> ", normalize_text(text))


def split_unspaced_runs(text: str) -> tuple[str, list[str]]:
    """Return the text without its runs in scripts without spaces, and these runs."""
    return _UNSPACED_RUN.sub(" ", text), _UNSPACED_RUN.findall(text)


def separate_words(text: str) -> str:
    """The text with spaces wherever a word ends."""
    return _CAMEL_BOUNDARY.sub(_prepend_space, separate_unspaced_scripts(text))


def _prepend_space(found: re.Match[str]) -> str:
    return f" {found[0]}"


def tokenize_words(text: str) -> list[str]:
    """The words of a text as the index has them."""
    return analyzer(STEMMED).analyze(separate_words(text))


def tokenize_output(text: str) -> list[str]:
    """The words of a text as the index has those of outputs."""
    return analyzer(PLAIN).analyze(separate_unspaced_scripts(text))


@cache
def analyzer(name: str) -> tantivy.TextAnalyzer:
    """What makes words out of text."""
    builder = (
        tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.simple())
        .filter(tantivy.Filter.remove_long(MAX_WORD_BYTES))
        .filter(tantivy.Filter.lowercase())
    )
    return builder.filter(tantivy.Filter.stemmer("english")).build() if name == STEMMED else builder.build()
