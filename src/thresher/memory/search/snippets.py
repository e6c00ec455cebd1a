"""Find query words in a text and build the snippet to show.

The index knows which message matches, but not the positions of the words. So a regex finds candidates by the first
letters that all forms of a word share, and the tokenizer of the index confirms each candidate. The best match is the
first word of the passage with the most distinct query words. A third of a snippet precedes the best match.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

from thresher.memory.index.tokenizer import split_unspaced_runs

MIN_STEM_LENGTH = 3
"""Minimum length of the prefix by which the regex finds a word, since word forms differ in their endings."""
MAX_MATCHES = 2000
"""Maximum number of matches per text."""
_SPACE = re.compile(r"\s+")


class TermMatch(NamedTuple):
    """A query word's position in a text."""

    start: int
    stop: int
    word: str


class Snippet(NamedTuple):
    """A passage of a text."""

    text: str
    marks: tuple[tuple[int, int], ...]
    cut: tuple[bool, bool]


class TermFinder:
    """Finds the words of a query in texts."""

    def __init__(self, terms: Iterable[str], phrases: Iterable[str], words: Callable[[str], list[str]]) -> None:
        """Prepare the regex. `terms` are tokens of the index, and `phrases` match literally."""
        self._terms = frozenset(terms)
        self._words = words
        prefixes = sorted({re.escape(term[: max(MIN_STEM_LENGTH, len(term) - 2)]) for term in self._terms}, key=len)
        literals = sorted({re.escape(phrase.lower()) for phrase in phrases if phrase}, key=len, reverse=True)
        self._pattern_text = "|".join([*literals, *(f"{prefix}[^\\W_]*" for prefix in reversed(prefixes))])
        self._checked: dict[str, str] = {}
        self._exact = frozenset(phrase.lower() for phrase in phrases)

    def find_matches(self, text: str) -> list[TermMatch]:
        """Return all matches in order."""
        if not self._pattern_text:
            return []
        confirmed: list[TermMatch] = []
        # A search in lower case is several times as fast, but only ASCII text always keeps its length.
        matches = self._in_lower_case.finditer(text.lower()) if text.isascii() else self._in_any_case.finditer(text)
        for match in matches:
            confirmed += self._confirm(text, match.start(), match.end())
            if len(confirmed) >= MAX_MATCHES:
                break
        return confirmed

    @cached_property
    def _in_lower_case(self) -> re.Pattern[str]:
        return re.compile(self._pattern_text)

    @cached_property
    def _in_any_case(self) -> re.Pattern[str]:
        return re.compile(self._pattern_text, re.IGNORECASE)

    def _confirm(self, text: str, start: int, stop: int) -> Iterator[TermMatch]:
        candidate = text[start:stop]
        if candidate.lower() in self._exact:
            yield TermMatch(start, stop, candidate.lower())
            return
        if start and text[start - 1].isalpha() and (text[start - 1].islower() == candidate[0].islower()):
            return  # inside another word
        end = _first_word_end(candidate)
        word = self._find_term(candidate[:end])
        if word:
            yield TermMatch(start, start + end, word)

    def _find_term(self, word: str) -> str:
        """Return the term that matches a form of a word, if any."""
        if word not in self._checked:
            self._checked[word] = next((token for token in self._words(word) if token in self._terms), "")
        return self._checked[word]


def _first_word_end(piece: str) -> int:
    """Return the end of the first word in an identifier, such as 5 for `tokenRefresh`."""
    for index in range(1, len(piece)):
        if piece[index].isupper() and not piece[index - 1].isupper():
            return index
    return len(piece)


def build_snippet(text: str, marks: Sequence[TermMatch], length: int) -> Snippet:
    """Build a snippet of at most `length` characters, on one line."""
    if len(text) <= length:
        return _flatten(text, marks, 0, len(text))
    best = _best(marks, length)
    start = max(0, min(best - length // 3, len(text) - length))
    stop = min(len(text), start + length)
    return _flatten(text, marks, _word_start(text, start), _word_stop(text, stop))


def _best(marks: Sequence[TermMatch], length: int) -> int:
    """Return the start of the first passage with the most distinct words."""
    best, most = marks[0].start if marks else 0, 0
    limit, first = length - length // 3, 0
    counts: dict[str, int] = {}
    for mark in marks:
        counts[mark.word] = counts.get(mark.word, 0) + 1
        while mark.stop - marks[first].start > limit and marks[first] is not mark:
            dropped = marks[first].word
            counts[dropped] -= 1
            if not counts[dropped]:
                del counts[dropped]
            first += 1
        if len(counts) > most:
            best, most = marks[first].start, len(counts)
    return best


def _word_start(text: str, start: int) -> int:
    space = _SPACE.search(text, start, start + 20) if start else None
    return space.end() if space else start


def _word_stop(text: str, stop: int) -> int:
    if stop >= len(text):
        return stop
    space = max(text.rfind(blank, stop - 20, stop) for blank in (" ", "\n", "\t"))
    return space if space > 0 else stop


def _flatten(text: str, marks: Collection[TermMatch], start: int, stop: int) -> Snippet:
    """Return a passage as one line, with adjusted marks."""
    pieces: list[str] = []
    moved: list[tuple[int, int]] = []
    position, size = start, 0
    for mark in marks:
        if mark.start < position or mark.stop > stop:
            continue
        between = _SPACE.sub(" ", text[position : mark.start])
        between = between.lstrip() if not size else between
        word = _SPACE.sub(" ", text[mark.start : mark.stop])
        pieces += [between, word]
        size += len(between)
        moved.append((size, size + len(word)))
        size += len(word)
        position = mark.stop
    rest = _SPACE.sub(" ", text[position:stop])
    pieces.append((rest if size else rest.lstrip()).rstrip())
    return Snippet("".join(pieces), tuple(moved), (start > 0, stop < len(text)))


def split_unspaced(text: str) -> list[str]:
    """Return pairs of adjacent characters from scripts without spaces; a character without a neighbor is single."""
    return [run[index : index + 2] for run in split_unspaced_runs(text)[1] for index in range(max(1, len(run) - 1))]
