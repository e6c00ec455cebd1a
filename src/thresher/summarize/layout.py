"""Sections of lines, fitted into a number of characters.

Sections come most valuable first. Each may first take half of the room that is left, so that one long list does
not push out all the others; what is then still free goes to them in the same order. Where a section is not whole,
it says how much is missing.
"""

from collections.abc import Sequence
from typing import NamedTuple

from thresher.model.text import clip

MIN_CLIPPED_CHARS = 16
"""Characters under which a clipped line says nothing."""


class SummarySection(NamedTuple):
    """A title and its items: each on its own line, or one after the other."""

    title: str
    items: Sequence[str]
    inline: bool = False
    latest: bool = False
    """Of too many items the last are kept, not the first."""

    def render(self, count: int) -> str:
        """The section with so many of its items."""
        if not count:
            return ""
        missing = len(self.items) - count
        note = [f"… {missing} more"] if missing else []
        items = [*note, *self.items[missing:]] if self.latest else [*self.items[:count], *note]
        return f"\n{self.title}: " + ", ".join(items) if self.inline else "\n- ".join([f"\n{self.title}:", *items])


def fit_sections(head: str, sections: Sequence[SummarySection], limit: int) -> str:
    """The head and as much of the sections as fits; never more than `limit` characters."""
    wanted = [section for section in sections if section.items]
    room = limit - len(head)
    if room <= 0 or not wanted:
        return clip(head, limit)
    if room > MIN_CLIPPED_CHARS and not _count_fitting_items(
        wanted[0], 0, room
    ):  # better the beginning of the best than all of another
        return clip(f"{head}\n{wanted[0].title}: {wanted[0].items[0]}", limit)
    counts = [0] * len(wanted)
    for share in (2, 1):
        for place, section in enumerate(wanted):
            free = room + len(section.render(counts[place]))
            count = _count_fitting_items(section, free // share, free)
            if count > counts[place]:
                room = free - len(section.render(count))
                counts[place] = count
    return head + "".join(section.render(count) for section, count in zip(wanted, counts, strict=True))


def _count_fitting_items(section: SummarySection, share: int, free: int) -> int:
    """How many items fit into a share; the first one may take all that is free."""
    size = len(section.title) + 2
    best = 0
    for count, item in enumerate(reversed(section.items) if section.latest else section.items, 1):
        size += len(item) + (2 if section.inline else 3)
        missing = len(section.items) - count
        whole = size + (len(f", … {missing} more") + 1 if missing else 0)
        if whole <= (free if count == 1 else share):
            best = count
        elif size > free:
            break
    return best
