"""Find references: verbatim pieces of earlier text that a call reuses in its output.

An agent's output consists of its text and tool arguments. A candidate in this output is a reference if a text that
is visible to the call contains the candidate:
- E: a line of the old text of an edit, stripped, with at least 12 characters and two words;
- G: a phrase of ten consecutive words, at least five of them with three letters or more, in text that the call writes,
  runs or says. Phrases do not overlap, and text that the same call quotes as old text is excluded;
- I: an identifier of at least six characters with an underscore, a digit or an inner capital (but not all capitals), a
  hexadecimal number of at least seven digits, or a decimal number of at least four. Only arguments count;
- P: the last two components of a path with a file extension.
A candidate is ignored if more than 15 % of the blocks (and more than six) contain it, since it then identifies nothing.
A candidate of kind G, I or P is also ignored if the agent wrote it first. This is definition v1. Published results
depend on it, so any change needs a new version.

In a patch, removed and added lines count as the old and new text of an edit. The index is keyed by word: a block that
contains a reference contains all words of the reference, and few blocks contain the rarest word.
"""

import re
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import Literal

from msgspec import Struct

from thresher.model import ToolCall
from thresher.model.file_changes import NEW_TEXT_KEYS, OLD_TEXT_KEYS, PAIR_LIST_KEYS, PATCH_KEYS, WHOLE_TEXT_KEYS
from thresher.model.jsontext import load_json_object
from thresher.model.tool_calls import describe_tool_call
from thresher.replay.trace import Trace, TraceBlock, argument_values

REFERENCE_DEFINITION = "v1"
ReferenceKind = Literal["E", "G", "I", "P"]

SHORTEST_LINE = 12
PHRASE_WORDS = 10
CONTENT_WORDS = 5
MAX_SOURCE_SHARE = 0.15
ALWAYS_ALLOWED_SOURCES = 6
"""Maximum number of blocks that may contain a reference, regardless of the share."""


class Reference(Struct, frozen=True):
    """A piece of earlier text that a call reuses."""

    kind: ReferenceKind
    text: str
    """The text as the sources contain it; for G, its words joined by single spaces."""
    call: int
    sources: frozenset[int]
    """Numbers of the visible blocks that contain the text."""
    age: int
    """Number of calls since the newest source became visible."""


def find_references(trace: Trace) -> tuple[tuple[Reference, ...], ...]:
    """Return the references of each call."""
    index = ReferenceIndex()
    written: list[list[TraceBlock]] = [[] for _ in trace.calls]
    for block in trace.blocks:
        if block.kind in "AC" and block.visible:
            written[block.visible - 1].append(block)
    references: list[tuple[Reference, ...]] = []
    for number in range(len(trace.calls)):
        while len(index) < len(trace.blocks) and trace.blocks[len(index)].visible <= number:
            index.add(trace.blocks[len(index)].text)
        references.append(tuple(_select_references(trace, index, number, written[number])))
    return tuple(references)


def _select_references(
    trace: Trace, index: "ReferenceIndex", number: int, written: Sequence[TraceBlock]
) -> Iterator[Reference]:
    limit = max(ALWAYS_ALLOWED_SOURCES, MAX_SOURCE_SHARE * len(index))
    candidates = (candidate for block in written for candidate in find_reference_candidates(trace, block))
    for kind, text in dict.fromkeys(candidates):
        sources = index.find_holders(kind, text)
        if 0 < len(sources) <= limit and (kind == "E" or trace.blocks[min(sources)].kind in "UR"):
            age = number - trace.blocks[max(sources)].visible
            yield Reference(kind, text, number, frozenset(sources), age)


# Reference candidates


def find_reference_candidates(trace: Trace, block: TraceBlock) -> Iterator[tuple[ReferenceKind, str]]:
    """Yield every piece of an agent's block that is a reference if earlier text contains it."""
    part = trace.history.part(block.place)
    if not isinstance(part, ToolCall):
        yield from (("G", phrase) for phrase in split_phrases(block.text))
        yield from (("P", path) for path in find_path_tails(block.text))
        return
    old, new = _extract_call_texts(part)
    yield from (("E", line) for text in old for line in find_quotable_lines(text))
    quoted = _normalize_words("\n".join(old))
    yield from (("G", phrase) for text in new for phrase in split_phrases(text) if f" {phrase} " not in quoted)
    for value in argument_values(part.arguments):
        yield from (("I", word) for word in _WORD.findall(value) if is_distinctive_word(word))
        yield from (("P", path) for path in find_path_tails(value))


_PATCH_HEADER = re.compile(r"^(?:\*\*\* (?:Update|Add|Delete) File: |@@)", re.MULTILINE)


def _extract_call_texts(call: ToolCall) -> tuple[Sequence[str], Sequence[str]]:
    """Return the texts that a call removes, and the texts that it writes or runs."""
    use = describe_tool_call(call)
    if use.category != "file_edit":
        return (), (use.command,)
    fields = load_json_object(call.arguments)
    patch = next(iter(_string_values(fields, PATCH_KEYS)), "") or use.command or ("" if fields else call.arguments)
    if _PATCH_HEADER.search(patch):
        lines = [line for line in patch.splitlines() if not line.startswith(("--- ", "+++ "))]
        old = "\n".join(line[1:] for line in lines if line[:1] in ("-", " "))
        return (old,), ("\n".join(line[1:] for line in lines if line.startswith("+")),)
    listed = [item for key in PAIR_LIST_KEYS if isinstance(items := fields.get(key), list) for item in items]
    pairs = [fields, *(item for item in listed if isinstance(item, dict))]
    removed = [text for pair in pairs for text in _string_values(pair, OLD_TEXT_KEYS)]
    return removed, [text for pair in pairs for text in _string_values(pair, (*NEW_TEXT_KEYS, *WHOLE_TEXT_KEYS))]


def _string_values(fields: dict[str, object], keys: Sequence[str]) -> Iterator[str]:
    return (value for key in keys if isinstance(value := fields.get(key), str) and value)


_WORD = re.compile(r"\w+")
_PATH = re.compile(r"(?<![\w.@+-])[\w.@+-]+/[\w.@+-]*\w\.[A-Za-z]\w{0,9}(?![\w/])")
_HEX = re.compile(r"(?=[a-f]*\d)[\da-f]{7,}|(?=[A-F]*\d)[\dA-F]{7,}")


def find_quotable_lines(text: str) -> Iterator[str]:
    """Yield the lines that are long enough to identify their source."""
    for line in map(str.strip, text.split("\n")):
        if len(line) >= SHORTEST_LINE and sum(any(map(str.isalnum, word)) for word in _WORD.findall(line)) >= 2:
            yield line


def split_phrases(text: str) -> Iterator[str]:
    """Yield non-overlapping phrases of ten words. Skip phrases with fewer than five longer words."""
    words = _WORD.findall(text)
    for start in range(0, len(words) - PHRASE_WORDS + 1, PHRASE_WORDS):
        window = words[start : start + PHRASE_WORDS]
        if sum(sum(map(str.isalpha, word)) >= 3 for word in window) >= CONTENT_WORDS:
            yield " ".join(window)


def is_distinctive_word(word: str) -> bool:
    """Report whether a word is unlikely to occur by chance: an identifier, a hash or a number."""
    if word.isdecimal():
        return len(word) >= 4
    if _HEX.fullmatch(word):
        return True
    if len(word) < 6 or word[0].isdecimal() or not any(map(str.isalpha, word)):
        return False
    mixed = any(map(str.isupper, word[1:])) and not word.isupper()
    return mixed or "_" in word or any(map(str.isdecimal, word))


def find_path_tails(text: str) -> list[str]:
    """Return the last two components of each path with a file extension."""
    return _PATH.findall(text) if "/" in text else []


# Reference index


class ReferenceIndex:
    """Find the indexed texts that contain a reference."""

    def __init__(self) -> None:
        """Start with an empty index."""
        self._texts: list[str] = []
        self._normalized_texts: dict[int, str] = {}
        self._where: dict[str, set[int]] = {}

    def __len__(self) -> int:
        return len(self._texts)

    def add(self, text: str) -> int:
        """Add a text and return its number."""
        number = len(self._texts)
        self._texts.append(text)
        for key in {*_WORD.findall(text), *find_path_tails(text)}:
            self._where.setdefault(key, set()).add(number)
        return number

    def find_holders(self, kind: ReferenceKind, text: str, among: AbstractSet[int] | None = None) -> AbstractSet[int]:
        """Return the numbers of the texts that contain a reference, among all texts or the given ones."""
        keys = _required_keys(kind, text)
        known = [where for key in keys if (where := self._where.get(key))]
        if len(known) < len(keys):
            return frozenset()
        known.sort(key=len)
        holders: AbstractSet[int] = known[0].intersection(*known[1:]) if len(known) > 1 else known[0]
        if among is not None:
            holders = holders & among
        if kind == "E":
            return {number for number in holders if text in self._texts[number]}
        return (
            {number for number in holders if f" {text} " in self._normalized_text(number)} if kind == "G" else holders
        )

    def _normalized_text(self, number: int) -> str:
        if number not in self._normalized_texts:
            self._normalized_texts[number] = _normalize_words(self._texts[number])
        return self._normalized_texts[number]


def _required_keys(kind: ReferenceKind, text: str) -> set[str]:
    """Return the index keys that every match has. The outer words of a line may be parts of longer words in a match."""
    if kind in "IP":
        return {text}
    words = _WORD.findall(text)
    return set(words[1:-1] or words) if kind == "E" else set(words)


def _normalize_words(text: str) -> str:
    """Return the words of a text, separated and surrounded by single spaces."""
    return f" {' '.join(_WORD.findall(text))} "
