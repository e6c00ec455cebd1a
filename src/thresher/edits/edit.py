"""One proposed change, as data.

A policy proposes edits; `close` (in `plan`) decides which of them hold, fills in what stands in and what it
saves, and `apply` carries them out. An edit names its occurrence, so it means the same part when the history has
grown, and equal texts elsewhere stay as they are.
"""

from typing import Literal, NamedTuple

from msgspec import Struct

from thresher.model import Occurrence

Pin = Literal["", "system", "injection", "current", "active"]
"""Why a part may not change: it is system text, injected context, the human's latest words, or of an open chain."""


class Elision(NamedTuple):
    """A span of a text, and the words that come in its place."""

    start: int
    stop: int
    note: str = ""


class Drop(Struct, frozen=True, gc=False, tag="drop", tag_field="kind"):
    """A part goes; a call and its result go together."""

    target: Occurrence
    policy: str
    why: str
    over: Pin = ""
    """The pin that the user's own choice lifts for this edit."""
    before: int = 0
    saved: int = 0


class Replace(Struct, frozen=True, gc=False, tag="replace", tag_field="kind"):
    """A pointer stands in for a part: what it was, how large, how it ended, and the id to ask for."""

    target: Occurrence
    policy: str
    why: str
    note: str = ""
    """What the pointer says beyond that."""
    over: Pin = ""
    text: str = ""
    """The whole pointer; filled in when the edit is taken into a plan."""
    before: int = 0
    saved: int = 0


class Truncate(Struct, frozen=True, gc=False, tag="truncate", tag_field="kind"):
    """Pieces of a part's text go; the rest stays as it is."""

    target: Occurrence
    policy: str
    why: str
    gaps: tuple[Elision, ...]
    over: Pin = ""
    before: int = 0
    saved: int = 0


class Summarize(Struct, frozen=True, gc=False, tag="summarize", tag_field="kind"):
    """Many parts become one summary, where the first of them stood."""

    targets: tuple[Occurrence, ...]
    policy: str
    why: str
    text: str
    label: str = ""
    """What the summary's heading says it stands for."""
    over: Pin = ""
    before: int = 0
    saved: int = 0

    @property
    def target(self) -> Occurrence:
        """The first of them."""
        return self.targets[0]


Edit = Drop | Replace | Truncate | Summarize


def list_targets(edit: Edit) -> tuple[Occurrence, ...]:
    """The parts that an edit speaks of."""
    return edit.targets if isinstance(edit, Summarize) else (edit.target,)
