"""Fit sections of lines into a limit of characters.

Sections are ordered by value. In a first pass each one may use half of the remaining room, so that a long list does not
displace the others; a second pass distributes the rest in the same order. A truncated section states how many items
are missing.
"""

from collections.abc import Sequence
from typing import NamedTuple

from thresher.model.text import clip

MIN_CLIPPED_CHARS = 16
"""Minimum useful length of a clipped line."""


class SummarySection(NamedTuple):
    """A title with items, on separate lines or inline."""

    title: str
    items: Sequence[str]
    inline: bool = False
    latest: bool = False
    """True if the last items are kept when not all fit; False: the first items."""

    def render(self, count: int) -> str:
        """Format the section with `count` of its items."""
        if not count:
            return ""
        missing = len(self.items) - count
        note = [f"… {missing} more"] if missing else []
        items = [*note, *self.items[missing:]] if self.latest else [*self.items[:count], *note]
        return f"\n{self.title}: " + ", ".join(items) if self.inline else "\n- ".join([f"\n{self.title}:", *items])


def fit_sections(head: str, sections: Sequence[SummarySection], limit: int) -> str:
    """Format the head and as many section items as fit into `limit` characters."""
    wanted = [section for section in sections if section.items]
    room = limit - len(head)
    if room <= 0 or not wanted:
        return clip(head, limit)
    # A part of the most valuable item is better than all of another section.
    if room > MIN_CLIPPED_CHARS and not _count_fitting_items(wanted[0], 0, room):
        return clip(f"{head}\n{wanted[0].title}: {wanted[0].items[0]}", limit)
    counts = [0] * len(wanted)
    for share in (2, 1):
        for index, section in enumerate(wanted):
            free = room + len(section.render(counts[index]))
            count = _count_fitting_items(section, free // share, free)
            if count > counts[index]:
                room = free - len(section.render(count))
                counts[index] = count
    return head + "".join(section.render(count) for section, count in zip(wanted, counts, strict=True))


def _count_fitting_items(section: SummarySection, share: int, free: int) -> int:
    """Count the items that fit into `share` characters; the first one may use all `free` characters."""
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
