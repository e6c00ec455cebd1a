"""What was said, in the speaker's own words: the sentences that are worth keeping, quoted and never reworded.

Of what an agent says, most only announces its next call. Questions, decisions, findings and open ends are what a
later reader misses; a few plain marks find them. Code is left aside.
"""

import re
from collections.abc import Iterable, Iterator
from heapq import nlargest

from thresher.summarise.words import clip, line

QUOTED = 200
"""Characters of one quotation."""
_FENCED = re.compile(r"^[ \t]*(?:```|~~~).*?(?:^[ \t]*(?:```|~~~)|\Z)", re.DOTALL | re.MULTILINE)
_BETWEEN = re.compile(r"(?<=[.!?。？！])[ \t]+|\n+")
_BULLET = re.compile(r"(?:[-*•>]|\d{1,2}[.)])\s+|#+\s+|\|")
_FINDING = re.compile(
    r"\b(?:decided?|decision|instead|because|root cause|turns out|found (?:that|the)|fixed|todo|must not|blocked"
    r"|the (?:problem|issue|bug|cause|reason|fix|solution)|remains|still (?:fails?|missing|need)|unfortunately)\b",
    re.IGNORECASE,
)
_INTENT = re.compile(r"\b(?:i'll|i’ll|i will|going to|next(?: step)?|plan is|need(?:s)? to|should)\b", re.IGNORECASE)


def sentences(text: str) -> Iterator[str]:
    """The sentences of a text, code and tables left out."""
    for piece in _BETWEEN.split(_FENCED.sub("\n", text)):
        mark = _BULLET.match(piece.lstrip())
        if mark and mark[0].startswith(("#", "|")):
            continue
        said = line(piece.lstrip()[mark.end() :] if mark else piece)
        if any(map(str.isalnum, said)):
            yield said


def opening(text: str) -> str:
    """How a text begins: as many of its first sentences as fit a quotation."""
    kept = ""
    for sentence in sentences(text):
        longer = f"{kept} {sentence}".lstrip()
        if kept and len(longer) > QUOTED:
            break
        kept = longer
    return clip(kept, QUOTED)


def worth_keeping(texts: Iterable[str], *, most: int) -> list[str]:
    """The most telling sentences, in the order in which they were said; of equals the later ones."""
    found: dict[str, tuple[int, int]] = {}
    last = ""
    for text in texts:
        for sentence in sentences(text):
            weight = _weight(sentence)
            if weight:
                found[clip(sentence, QUOTED)] = (weight, len(found))
        last = opening(text) or last
    if not found and last:
        return [last]
    chosen = nlargest(most, found, key=lambda sentence: found[sentence])
    return sorted(chosen, key=lambda sentence: found[sentence][1])


def _weight(sentence: str) -> int:
    """How much a sentence tells; what is very short, or only leads up to something, needs what stands around it."""
    if len(sentence) < 12:
        return 0
    whole = len(sentence) >= 24 and not sentence.endswith((":", "："))
    if sentence.endswith(("?", "？")) or _FINDING.search(sentence):
        return 2 if whole else 1
    return 1 if whole and _INTENT.search(sentence) else 0
