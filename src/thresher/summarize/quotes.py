"""Select sentences to quote from agent text, without paraphrasing.

Most agent text only announces the next call. A few patterns find the useful sentences: questions, decisions, findings
and open tasks. Code is skipped.
"""

import re
from collections.abc import Iterable, Iterator
from heapq import nlargest

from thresher.model.text import clip, to_printable_line

MAX_QUOTE_CHARS = 200
"""Maximum characters of a quotation."""
_CODE_FENCE = re.compile(r"^[ \t]*(?:```|~~~).*?(?:^[ \t]*(?:```|~~~)|\Z)", re.DOTALL | re.MULTILINE)
_SENTENCE_END = re.compile(r"(?<=[.!?。？！])[ \t]+|\n+")
_BULLET = re.compile(r"(?:[-*•>]|\d{1,2}[.)])\s+|#+\s+|\|")
_FINDING = re.compile(
    r"\b(?:decided?|decision|instead|because|root cause|turns out|found (?:that|the)|fixed|todo|must not|blocked"
    r"|the (?:problem|issue|bug|cause|reason|fix|solution)|remains|still (?:fails?|missing|need)|unfortunately)\b",
    re.IGNORECASE,
)
_INTENT = re.compile(r"\b(?:i'll|i’ll|i will|going to|next(?: step)?|plan is|need(?:s)? to|should)\b", re.IGNORECASE)


def split_sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a text, without code, headings and tables."""
    for piece in _SENTENCE_END.split(_CODE_FENCE.sub("\n", text)):
        mark = _BULLET.match(piece.lstrip())
        if mark and mark[0].startswith(("#", "|")):
            continue
        sentence = to_printable_line(piece.lstrip()[mark.end() :] if mark else piece)
        if any(map(str.isalnum, sentence)):
            yield sentence


def quote_opening(text: str) -> str:
    """Quote the first sentences of a text, as many as fit into `MAX_QUOTE_CHARS`."""
    kept = ""
    for sentence in split_sentences(text):
        longer = f"{kept} {sentence}".lstrip()
        if kept and len(longer) > MAX_QUOTE_CHARS:
            break
        kept = longer
    return clip(kept, MAX_QUOTE_CHARS)


def select_quotes(texts: Iterable[str], *, limit: int) -> list[str]:
    """Return the sentences with the highest scores, in their original order; a later sentence wins a tie."""
    found: dict[str, tuple[int, int]] = {}
    last = ""
    for text in texts:
        for sentence in split_sentences(text):
            weight = _score_sentence(sentence)
            if weight:
                found[clip(sentence, MAX_QUOTE_CHARS)] = (weight, len(found))
        last = quote_opening(text) or last
    if not found and last:
        return [last]
    chosen = nlargest(limit, found, key=lambda sentence: found[sentence])
    return sorted(chosen, key=lambda sentence: found[sentence][1])


def _score_sentence(sentence: str) -> int:
    """Score a sentence; very short and introductory sentences score lower, because they depend on their context."""
    if len(sentence) < 12:
        return 0
    is_complete = len(sentence) >= 24 and not sentence.endswith((":", "："))
    if sentence.endswith(("?", "？")) or _FINDING.search(sentence):
        return 2 if is_complete else 1
    return 1 if is_complete and _INTENT.search(sentence) else 0
