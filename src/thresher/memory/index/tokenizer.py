"""Tokenizer for the index and for queries.

The tokenizer splits `refreshToken`, `HTMLParser` and `refresh_token` into words. Each character of a script without
spaces is a word, and a query matches adjacent ones as a phrase. English words are stemmed. The index itself splits only
at characters other than letters and digits. So this module first inserts a space at all other word boundaries. A regex
tokenizer in the index would double the total time.

Most text is tool output, which contains mostly names and numbers. Its words are neither stemmed nor split at capitals.
"""

import re
from functools import cache
from unicodedata import normalize

import tantivy

STEMMED, PLAIN = "words", "plain"
"""Names of the two analyzers."""
MAX_WORD_BYTES = 80
"""Maximum size of a word to index; a longer one is probably data. A digest of 64 digits is below the limit."""

# The upper-case letter comes first, so that the regex engine finds candidates quickly.
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
    """Return the text in Unicode normalization form NFKC."""
    return text if text.isascii() else normalize("NFKC", text.encode("utf-8", "replace").decode())


def separate_unspaced_scripts(text: str) -> str:
    """Normalize the text and put spaces around characters of scripts without spaces."""
    return text if text.isascii() else _UNSPACED_CHARACTER.sub(r" \g<0> ", normalize_text(text))


def split_unspaced_runs(text: str) -> tuple[str, list[str]]:
    """Return the text without the runs of characters from scripts without spaces, and these runs."""
    return _UNSPACED_RUN.sub(" ", text), _UNSPACED_RUN.findall(text)


def separate_words(text: str) -> str:
    """Insert a space at each word boundary that the index would not recognize."""
    return _CAMEL_BOUNDARY.sub(_prepend_space, separate_unspaced_scripts(text))


def _prepend_space(found: re.Match[str]) -> str:
    return f" {found[0]}"


def tokenize_words(text: str) -> list[str]:
    """Tokenize a text as the index does for everything except tool output."""
    return analyzer(STEMMED).analyze(separate_words(text))


def tokenize_output(text: str) -> list[str]:
    """Tokenize a text as the index does for tool output."""
    return analyzer(PLAIN).analyze(separate_unspaced_scripts(text))


@cache
def analyzer(name: str) -> tantivy.TextAnalyzer:
    """Return the text analyzer of this name."""
    builder = tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.simple())
    builder = builder.filter(tantivy.Filter.remove_long(MAX_WORD_BYTES)).filter(tantivy.Filter.lowercase())
    return builder.filter(tantivy.Filter.stemmer("english")).build() if name == STEMMED else builder.build()
