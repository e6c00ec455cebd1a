"""The policy `thinking`: drop the model's reasoning.

Some models return separate thinking blocks; others put thinking into tags in their text. A tag counts only if it starts
a line outside fenced code, has an end tag, and contains no second start tag. If the rest of the text would still
contain tagged thinking, the whole text stays unchanged, because it is probably a text about such tags.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from thresher.edits import Drop, Edit, Elision, Truncate, apply_elisions
from thresher.model import History, Message, Place, Text
from thresher.model import Thinking as Thought
from thresher.model.message_cache import cached_per_message
from thresher.policies.base import check_count

POLICY_NAME = "thinking"
_TAG = r"[ \t]*<(?P<name>(?:anythingllm:)?think(?:ing)?)>"
_NEXT_TAG = re.compile(_TAG, re.IGNORECASE)
_OPENING_TAG = re.compile(rf"^(?:(?P<fence>[ \t]*(?:```|~~~))|{_TAG})", re.IGNORECASE | re.MULTILINE)
_SPACE = re.compile(r"\s*")


@dataclass(frozen=True, kw_only=True)
class DropThinking:
    """Drop thinking, which the model rarely needs again.

    `DropThinking()` drops all thinking that no API rule requires; `DropThinking(keep_last=3)` keeps that of the last
    3 turns.
    """

    keep_last: int = 0
    """Number of latest turns that keep their thinking."""

    def __post_init__(self) -> None:
        check_count(POLICY_NAME, keep_last=self.keep_last)

    def __call__(self, history: History) -> Iterator[Edit]:
        """Propose edits, oldest first."""
        for i in range(self._find_first_kept(history)):
            message = history[i]
            tagged = _find_tagged_thinking(message)
            for j, part in enumerate(message.parts):
                if isinstance(part, Thought):
                    yield Drop(history.occurrence(Place(i, j)), POLICY_NAME, "thinking")
                elif j in tagged:
                    yield Truncate(history.occurrence(Place(i, j)), POLICY_NAME, "thinking in tags", tagged[j])

    def _find_first_kept(self, history: History) -> int:
        """Return the index of the first message that keeps its thinking."""
        kept = history.turns[-self.keep_last :] if self.keep_last else ()
        return kept[0].start if kept else len(history)


@cached_per_message
def _find_tagged_thinking(message: Message) -> dict[int, tuple[Elision, ...]]:
    """Return the spans of tagged thinking in each text of a message."""
    if message.role != "assistant":
        return {}
    found = {j: _find_removable(part.text) for j, part in enumerate(message.parts) if isinstance(part, Text)}
    return {j: gaps for j, gaps in found.items() if gaps}


def _find_removable(text: str) -> tuple[Elision, ...]:
    gaps = _find_tag_spans(text) if "</" in text else ()
    return gaps if gaps and not _find_tag_spans(apply_elisions(text, gaps)) else ()


def _find_tag_spans(text: str) -> tuple[Elision, ...]:
    """Find thinking in tags, with the whitespace after it. No part of the text is searched twice for an end tag."""
    gaps: list[Elision] = []
    ends: dict[str, int] = {}
    position = 0
    while found := (_NEXT_TAG.match(text, position) if gaps else None) or _OPENING_TAG.search(text, position):
        position = found.end()
        fence = found.groupdict().get("fence")
        closing = f"\n{fence}" if fence else f"</{found['name']}>"
        if 0 <= ends.get(closing, 0) < position:
            ends[closing] = text.find(closing, position)
        stop = ends[closing]
        if fence:
            position = len(text) if stop < 0 else stop + len(closing)
        elif stop >= 0 and text.find(f"<{found['name']}>", position, stop) < 0:
            position = _skip_whitespace(text, stop + len(closing))
            gaps.append(Elision(found.start(), position))
    return tuple(gaps)


def _skip_whitespace(text: str, position: int) -> int:
    space = _SPACE.match(text, position)
    return space.end() if space else position
