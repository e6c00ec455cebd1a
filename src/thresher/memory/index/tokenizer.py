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
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af"
    "\uf900-\ufaff\U00020000-\U0003ffff]"
)


def separate_unspaced_scripts(text: str) -> str:
    """The text with spaces between the characters of scripts that have none."""
    if text.isascii():
        return text
    return _UNSPACED.sub(r" \g<0> ", normalize("NFKC", text.encode("utf-8", "replace").decode()))


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
