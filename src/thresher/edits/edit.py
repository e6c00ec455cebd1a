"""Edits: proposed changes to a history, as data.

A policy proposes edits. `build_plan` decides which of them are valid and fills in the placeholder texts and the
tokens saved. `apply` makes the changes. An edit names an occurrence, so it refers to the same part after the history
has grown, and equal texts elsewhere stay as they are.
"""

from typing import Literal, NamedTuple

from msgspec import Struct

from thresher.model import Occurrence

Pin = Literal["", "system", "injection", "current", "active", "marked"]
"""Reason why a part is pinned: system text, injected context, the human's latest message, an active chain, a mark of
its tool or message, or none."""


class Elision(NamedTuple):
    """A span of a text, and the note that replaces it."""

    start: int
    stop: int
    note: str = ""


class Drop(Struct, frozen=True, gc=False, tag="drop", tag_field="kind"):
    """Drop a part; a call and its result are dropped together."""

    target: Occurrence
    policy: str
    why: str
    over: Pin = ""
    """Pin that the user's options lift for this edit."""
    before: int = 0
    saved: int = 0
    removes_human_words: bool = False
    """True if the edit also removes a person's words inside a result, because it removes a whole exchange, or because
    the user named the tool. Otherwise, a placeholder that contains the words replaces the result."""


class Replace(Struct, frozen=True, gc=False, tag="replace", tag_field="kind"):
    """Replace a part by a placeholder with its description, size, outcome and id."""

    target: Occurrence
    policy: str
    why: str
    note: str = ""
    """Additional text of the placeholder."""
    over: Pin = ""
    text: str = ""
    """The full placeholder, which the plan fills in."""
    before: int = 0
    saved: int = 0
    removes_human_words: bool = False
    """True if the placeholder omits a person's words inside the result, because the user named the tool."""


class Truncate(Struct, frozen=True, gc=False, tag="truncate", tag_field="kind"):
    """Remove spans of a part's text; the rest stays as it is."""

    target: Occurrence
    policy: str
    why: str
    gaps: tuple[Elision, ...]
    over: Pin = ""
    before: int = 0
    saved: int = 0
    removes_human_words: bool = False
    """True if the spans may contain a person's words inside a result, because the user named the tool."""


class Summarize(Struct, frozen=True, gc=False, tag="summarize", tag_field="kind"):
    """Replace several parts by one summary, at the position of the first part."""

    targets: tuple[Occurrence, ...]
    policy: str
    why: str
    text: str
    label: str = ""
    """Heading of the summary: a description of the parts it replaces."""
    over: Pin = ""
    before: int = 0
    saved: int = 0
    removes_human_words: bool = False
    """True if the edit also removes a person's words inside a result. Otherwise, results with such words stay."""

    @property
    def target(self) -> Occurrence:
        """The first target."""
        return self.targets[0]


Edit = Drop | Replace | Truncate | Summarize


def list_targets(edit: Edit) -> tuple[Occurrence, ...]:
    """Return all targets of an edit."""
    return edit.targets if isinstance(edit, Summarize) else (edit.target,)
