"""Choose how much fits on one screen."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from thresher.render.memory import StyledLine
from thresher.render.text import display_width


class ScreenSize(NamedTuple):
    """Size of a terminal in lines and characters."""

    lines: int
    columns: int

    def height(self, lines: Iterable[StyledLine]) -> int:
        """Return how many lines of the screen these lines take, with their wrapped rest."""
        return sum(self._height(line) for line in lines)

    def _height(self, line: StyledLine) -> int:
        more = display_width(line.text) - self.columns
        room = self.columns if line.no_wrap else self.columns - line.hanging_indent - WRAP_LOSS
        return 1 if more <= 0 else 1 - (-more // max(room, 1))


WRAP_LOSS = 8
"""Characters at the end of a line that stay empty on average, because words are not split."""


def count_fitting_blocks(blocks: Iterable[Sequence[StyledLine]], screen: ScreenSize, reserved: int) -> int:
    """Return how many blocks of lines fit on a screen above `reserved` lines; at least one, if there is one."""
    room = screen.lines - reserved
    count = 0
    for block in blocks:
        room -= screen.height(block)
        if count and room < 0:
            break
        count += 1
    return count
