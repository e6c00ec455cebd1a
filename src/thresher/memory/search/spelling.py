"""Repair misspelled query words: replace a word that no text contains by the most frequent known word one edit away.

An edit inserts, removes or replaces a letter, or swaps two neighbors. The index contains stems only, so all words one
edit away are stemmed and looked up, instead of comparing stems, whose endings may differ by more.
"""

import string
from collections.abc import Callable, Iterable, Iterator

from msgspec import structs

from thresher.memory.index.tokenizer import tokenize_words
from thresher.memory.search.query import MOST_WORDS, Query, is_stop_word
from thresher.memory.session_store import SessionStore

SHORTEST_WORD = 5
"""Minimum length of a word to repair; shorter ones have too many neighbors."""
LONGEST_WORD = 24
MIN_TEXTS = 2
"""Minimum number of texts that contain a replacement: a word that occurs once may be misspelled itself."""
MIN_TEXTS_OF_OTHER = 20
"""The same for a replacement that removes or replaces a letter, which is a less common mistake than a missing letter or
two swapped ones."""
MAX_UNKNOWN_SHARE = 1 / 3
"""Maximum share of unknown words in a query to repair. A query with more is in another language."""


def repair_query(store: SessionStore, query: Query) -> tuple[Query, list[str]]:
    """Replace the misspelled words of a query, with a note about each."""
    # With a limit on projects, a repair would reveal the words of others. Tool output is not stemmed.
    if store.project_root or not query.words or not frozenset(query.fields).isdisjoint(("output", "paths")):
        return query, []
    words = query.words.split()
    repairs = find_repairs(words[:MOST_WORDS], store.document_frequency)
    if not repairs:
        return query, []
    repaired = structs.replace(query, words=" ".join(repairs.get(word, word) for word in words))
    return repaired, [f"no archived text contains `{word}`; searched for `{new}`" for word, new in repairs.items()]


def find_repairs(words: Iterable[str], frequency: Callable[[str], int]) -> dict[str, str]:
    """Return the repaired form of each misspelled word. `frequency` returns the number of texts with a stem."""
    content = (word for word in words if not is_stop_word(word.lower()))
    known = {word: any(map(frequency, stems)) for word in content if (stems := tokenize_words(word))}
    unknown = [word for word, is_known in known.items() if not is_known]
    if len(unknown) > max(1, MAX_UNKNOWN_SHARE * len(known)):
        return {}
    repaired = ((word, _find_neighbor(word, frequency)) for word in unknown)
    return {word: neighbor for word, neighbor in repaired if neighbor}


def _find_neighbor(word: str, frequency: Callable[[str], int]) -> str:
    plain = word.strip(string.punctuation).lower()
    if not (SHORTEST_WORD <= len(plain) <= LONGEST_WORD and plain.isascii() and plain.isalpha()):
        return ""
    for forms, least in ((_with_all_letters(plain), MIN_TEXTS), (_with_fewer_letters(plain), MIN_TEXTS_OF_OTHER)):
        neighbors = [*dict.fromkeys(forms)]
        # One call tokenizes all of them; each is one word and stays one.
        counts = [frequency(stem) for stem in tokenize_words(" ".join(neighbors))]
        most = max(counts)
        if most >= least:
            return neighbors[counts.index(most)]
    return ""


def _with_all_letters(word: str) -> Iterator[str]:
    """Yield the forms with one more letter, and those with two neighbors swapped."""
    for at in range(len(word) + 1):
        yield from (word[:at] + letter + word[at:] for letter in string.ascii_lowercase)
        if at > 1:
            yield word[: at - 2] + word[at - 1] + word[at - 2] + word[at:]


def _with_fewer_letters(word: str) -> Iterator[str]:
    """Yield the forms without one letter, and those with one letter replaced."""
    for at in range(len(word)):
        yield word[:at] + word[at + 1 :]
        yield from (word[:at] + letter + word[at + 1 :] for letter in string.ascii_lowercase)
