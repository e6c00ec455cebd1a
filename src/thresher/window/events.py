"""Window events: one for each replan, and one for each failure."""

from collections.abc import Sequence
from typing import Any, Literal

import msgspec
from msgspec import Struct

from thresher.deprecation import RenamedField
from thresher.edits import Edit, Plan

Trigger = Literal[
    "break_even",
    "cold",
    "boundary",
    "high_water",
    "piggyback",
    "emergency",
    "oversized_result",
    "repair",
    "overflow",
    "store",
    "helper",
    "external",
]
"""Reason for an event.

- `break_even`: re-sending removable tokens has cost as much as removing them.
- `cold`: the cache has expired. `piggyback`: the prefix changes anyway. `boundary`: a new human message.
- `high_water`: the request exceeds the high water mark. `emergency`: it exceeds the budget.
- `oversized_result`: a new result is too large. `repair`: the history was broken.
- `overflow`: no legal request fits. `store`: the content store or the ledger failed.
- `helper`: a summarizer or a judge failed. `external`: another process or an earlier run decided on the replan.
"""


class WindowEvent(Struct, frozen=True, kw_only=True):
    """A replan or a failure, with its reason."""

    trigger: Trigger
    reason: str
    time: float
    """Seconds since the epoch."""
    model: str = ""
    calls_before: int = 0
    """Number of model calls before this request."""
    tokens_before: int = 0
    tokens_after: int = 0
    first_changed: int = 0
    """Index of the first message that changed; the cache is lost from there on."""
    cost: float = 0.0
    """Dollars that the replan adds to this request. If no price is known, a million tokens count as one dollar."""
    saving_per_call: float = 0.0
    """Dollars that the replan saves in each later request."""
    edits: dict[str, int] = {}
    """Number of new edits of each kind."""
    removed_ids: tuple[str, ...] = ()
    """Ids that restore the removed content."""
    rejected_edits: tuple[str, ...] = ()
    """Edits that a policy proposed and the plan rejected, with reasons."""
    notes: tuple[str, ...] = ()
    """Notes of the policies, such as on the tools whose calls `batch-summary` excluded."""

    why = RenamedField("why", "reason")
    at = RenamedField("at", "time")
    call = RenamedField("call", "calls_before")
    saving = RenamedField("saving", "saving_per_call")
    elided = RenamedField("elided", "removed_ids")
    excluded = RenamedField("excluded", "rejected_edits")

    def __str__(self) -> str:
        tokens = f"{self.tokens_before:,} → {self.tokens_after:,} tokens"
        return f"{self.trigger} at call {self.calls_before}: {self.reason} ({tokens})"

    @property
    def saved(self) -> int:
        """Tokens that the replan removes from this request."""
        return self.tokens_before - self.tokens_after

    def to_dict(self) -> dict[str, Any]:
        """Return the event as plain JSON values."""
        row: dict[str, Any] = msgspec.to_builtins(self)
        return row


class AppliedReplan(Struct, frozen=True):
    """A replan that the window has applied, with its trigger, reason and new edits."""

    trigger: Trigger
    reason: str
    plan: Plan
    new_edits: Sequence[Edit]


EXTERNAL_REPLAN = AppliedReplan(
    "external",
    "the ledger holds a replan for these messages from another process or an earlier run",
    Plan((), 0, 0),
    (),
)
