"""What a window did, and why: one event for every time it changed what was sent before, or could not."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal

import msgspec
from msgspec import Struct

from thresher.deprecation import RenamedField
from thresher.edits import Edit, Plan, list_targets
from thresher.edits.explain import UNREPORTED_REFUSALS
from thresher.model import Message
from thresher.store import short_id
from thresher.window.conversation import WindowConversation

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
"""Why now: it pays; the cache is cold; a new human message; the high water mark; the prefix changes anyway; it would
not fit; a result came too large; the history came in broken; nothing legal fits; the store failed; a summariser
or a judge did; what another process with the same ledger decided, or was decided before a rewind."""


class WindowEvent(Struct, frozen=True, kw_only=True):
    """One change of plan."""

    trigger: Trigger
    reason: str
    time: float
    """Seconds since the epoch."""
    model: str = ""
    calls_before: int = 0
    """Calls that the model had made before."""
    tokens_before: int = 0
    tokens_after: int = 0
    first_changed: int = 0
    """The message from which on the cache is of no use."""
    cost: float = 0.0
    """What the change makes this request dearer by, in dollars; without a price, as if a million tokens cost one."""
    saving_per_call: float = 0.0
    """What it makes each later request cheaper by."""
    edits: dict[str, int] = {}
    """New edits by their kind."""
    removed_ids: tuple[str, ...] = ()
    """The ids by which what was left out comes back."""
    rejected_edits: tuple[str, ...] = ()
    """What was not edited though a policy wanted it, and why."""
    notes: tuple[str, ...] = ()

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
        """Tokens that each request is shorter by."""
        return self.tokens_before - self.tokens_after

    def to_dict(self) -> dict[str, Any]:
        """The same for a program."""
        row: dict[str, Any] = msgspec.to_builtins(self)
        return row


class AppliedReplan(Struct, frozen=True):
    """What was decided: why, and which edits are new."""

    trigger: Trigger
    reason: str
    plan: Plan
    new_edits: Sequence[Edit]


EXTERNAL_REPLAN = AppliedReplan(
    "external", "what the ledger holds for these messages, of another process or another time", Plan((), 0, 0), ()
)


def build_window_event(
    change: AppliedReplan,
    before: WindowConversation,
    after: WindowConversation,
    cost: float,
    read: float,
    model: str,
    at: float,
) -> WindowEvent:
    """The event of a change from one thread to the other."""
    return WindowEvent(
        trigger=change.trigger,
        reason=change.reason,
        time=at,
        model=model,
        calls_before=after.calls,
        tokens_before=before.tokens,
        tokens_after=after.tokens,
        first_changed=_first_difference(before.sent_messages, after.sent_messages),
        cost=cost,
        saving_per_call=read * (before.tokens - after.tokens) / 1_000_000,
        edits=dict(Counter(str(type(edit).__struct_config__.tag) for edit in change.new_edits)),
        removed_ids=tuple(short_id(target.content) for edit in change.new_edits for target in list_targets(edit)),
        rejected_edits=tuple(
            f"{one.policy}: {one.parts} × {one.reason}"
            for one in change.plan.refused
            if one.reason not in UNREPORTED_REFUSALS
        ),
        notes=change.plan.notes,
    )


def _first_difference(before: Sequence[Message], after: Sequence[Message]) -> int:
    pairs = enumerate(zip(before, after, strict=False))
    return next((index for index, (one, other) in pairs if one != other), min(len(before), len(after)))
