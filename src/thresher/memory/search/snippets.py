"""Find query words in a text and build the snippet to show.

The index knows which message matches, but not where. So a regex finds candidates by the first letters that all forms
of a word share, and the tokenizer of the index confirms each of them. A snippet has a third of its length before its
best match and two thirds after it. The best match starts the passage with the most distinct words.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

from thresher.memory.index.tokenizer import split_unspaced_runs

MIN_STEM_LENGTH = 3
"""Minimum prefix of a word to search for; word forms differ in their ends."""
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
        """`terms` are words of the index; `phrases` match literally (text without spaces, quoted words)."""
        self._terms = frozenset(terms)
        self._words = words
        begins = sorted({re.escape(term[: max(MIN_STEM_LENGTH, len(term) - 2)]) for term in self._terms}, key=len)
        exact = sorted({re.escape(phrase.lower()) for phrase in phrases if phrase}, key=len, reverse=True)
        self._pattern_text = "|".join([*exact, *(f"{begin}[^\\W_]*" for begin in reversed(begins))])
        self._checked: dict[str, str] = {}
        self._exact = frozenset(phrase.lower() for phrase in phrases)

    def find_matches(self, text: str) -> list[TermMatch]:
        """Return all matches in order."""
        if not self._pattern_text:
            return []
        found: list[TermMatch] = []
        # A search in lower case is several times as fast, but only ASCII keeps its length.
        matches = self._in_lower_case.finditer(text.lower()) if text.isascii() else self._in_any_case.finditer(text)
        for match in matches:
            found += self._confirm(text, match.start(), match.end())
            if len(found) >= MAX_MATCHES:
                break
        return found

    @cached_property
    def _in_lower_case(self) -> re.Pattern[str]:
        return re.compile(self._pattern_text)

    @cached_property
    def _in_any_case(self) -> re.Pattern[str]:
        return re.compile(self._pattern_text, re.IGNORECASE)

    def _confirm(self, text: str, start: int, stop: int) -> Iterator[TermMatch]:
        piece = text[start:stop]
        if piece.lower() in self._exact:
            yield TermMatch(start, stop, piece.lower())
            return
        if start and text[start - 1].isalpha() and (text[start - 1].islower() == piece[0].islower()):
            return  # inside another word
        hump = _first_word_end(piece)
        word = self._find_term(piece[:hump])
        if word:
            yield TermMatch(start, start + hump, word)

    def _find_term(self, piece: str) -> str:
        """Return the term that matches a form of a word, if any."""
        if piece not in self._checked:
            self._checked[piece] = next((word for word in self._words(piece) if word in self._terms), "")
        return self._checked[piece]


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
    reach, first = length - length // 3, 0
    inside: dict[str, int] = {}
    for mark in marks:
        inside[mark.word] = inside.get(mark.word, 0) + 1
        while mark.stop - marks[first].start > reach and marks[first] is not mark:
            left = marks[first].word
            inside[left] -= 1
            if not inside[left]:
                del inside[left]
            first += 1
        if len(inside) > most:
            best, most = marks[first].start, len(inside)
    return best


def _word_start(text: str, start: int) -> int:
    space = _SPACE.search(text, start, start + 20) if start else None
    return space.end() if space else start


def _word_stop(text: str, stop: int) -> int:
    if stop >= len(text):
        return stop
    space = max(text.rfind(sign, stop - 20, stop) for sign in (" ", "\n", "\t"))
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
    """Return pairs of adjacent characters in scripts without spaces, and single characters."""
    return [run[at : at + 2] for run in split_unspaced_runs(text)[1] for at in range(max(1, len(run) - 1))]
