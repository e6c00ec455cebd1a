"""Presets: named lists of policies with their options, as data.

Five presets form a scale, from removing nothing (`none`) to removing almost everything (`aggressive`). Three
other presets are single policies, and `tool-retention` combines four. `auto` has no steps: it removes only what the
budget requires. Users can add presets in `thresher.toml`.
"""

from collections.abc import Mapping
from typing import Any

PolicyStep = tuple[str, Mapping[str, Any]]
"""Name and options of a policy."""

COMMAND_CATEGORIES = ("execution", "project")
OTHER_CATEGORIES = ("other", "mcp", "analysis")
RESOLVED_FAILURES_STEP: PolicyStep = ("superseded", {"identical": False, "stale": False})
EMPTY_MESSAGES_STEP: PolicyStep = ("messages", {"empty": True})


def _tools_step(*categories: str, action: str, **options: Any) -> PolicyStep:
    return ("tools", {"categories": categories, "failed": False, "action": action, **options})


def _failed_tools_step(action: str, **options: Any) -> PolicyStep:
    return ("tools", {"failed": True, "action": action, **options})


def _all_tools_step(action: str, limit: int) -> PolicyStep:
    return ("tools", {"names": ("*",), "action": action, "limit": limit})


PRESETS: dict[str, tuple[PolicyStep, ...]] = {
    "none": (),
    "minimal": (("thinking", {}), ("subagents", {})),
    "moderate": (
        ("thinking", {}),
        ("reminders", {}),
        ("subagents", {}),
        EMPTY_MESSAGES_STEP,
        ("reads", {}),
        _tools_step("file_edit", action="replace"),
        ("output", {}),
        _tools_step("web", action="truncate", limit=4_000),
        _tools_step(*OTHER_CATEGORIES, action="truncate", limit=10_000),
        ("latest-only", {"categories": ("plan",), "action": "drop"}),
        RESOLVED_FAILURES_STEP,
        _failed_tools_step("truncate", limit=500),
        ("messages", {"longer_than": 20_000}),
    ),
    "smart": (
        ("thinking", {}),
        ("reminders", {}),
        ("subagents", {}),
        EMPTY_MESSAGES_STEP,
        _tools_step("file_read", action="replace"),
        _tools_step("file_edit", action="summarize"),
        _tools_step(*COMMAND_CATEGORIES, action="truncate", head=1_000, tail=1_000),
        _tools_step("web", *OTHER_CATEGORIES, action="replace"),
        ("tools", {"categories": ("plan",)}),
        RESOLVED_FAILURES_STEP,
        _failed_tools_step("truncate", limit=500),
        ("messages", {"longer_than": 10_000}),
    ),
    "aggressive": (
        ("thinking", {}),
        ("reminders", {}),
        ("subagents", {}),
        EMPTY_MESSAGES_STEP,
        _tools_step("file_read", "web", action="drop"),
        _tools_step("file_edit", action="summarize"),
        _tools_step(*COMMAND_CATEGORIES, *OTHER_CATEGORIES, action="replace"),
        ("tools", {"categories": ("plan",)}),
        _failed_tools_step("drop", older_exchanges_only=True),
        _failed_tools_step("truncate", limit=300),
        ("messages", {"longer_than": 2_000}),
    ),
    "exchanges": (("exchanges", {}),),
    "batch-summary": (("batch-summary", {}),),
    "tool-retention": (("reads", {}), ("edit-history", {}), ("output", {}), ("latest-only", {})),
    "mask": (("mask", {}),),
    "auto": (),
}


def make_clearing_steps(age: int) -> tuple[PolicyStep, ...]:
    """Return the steps by which a window removes content that is rarely used again. `age` is its age in model calls."""
    summary = {"max_calls_per_summary": 20, "max_chars": 600, "include_agent_text": True, "max_identifiers": 200}
    return (
        ("superseded", {"edited": False}),
        ("batch-summary", {"older_than": 2 * age + 1, "max_distance": 10**9, **summary}),
        ("decay", {"max_decay": age}),
        ("thinking", {"keep_last": age // 3}),
    )


GENTLE_STEPS: tuple[PolicyStep, ...] = (
    ("superseded", {"edited": False}),
    ("output", {}),
    ("output", {"pressure": True}),
    ("mask", {"by_importance": True}),
    ("batch-summary", {"max_calls_per_summary": 10}),
    ("exchanges", {"pressure": 0.9, "max_exchanges_per_summary": 3}),
)
"""Escalation steps that remove content that is rarely used again."""
ALL_READS_STEP: PolicyStep = ("mask", {"categories": ("file_read",), "keep": 0})
"""Escalation step that removes all reads before any edit, if the policy `edit-history` keeps the edits."""
DECAY_STEPS: tuple[PolicyStep, ...] = (("decay", {"max_decay": 8}), ("decay", {"max_decay": 3}), *GENTLE_STEPS)
"""Escalation steps for a window: `decay` first, because it keeps recent content, which is often used again."""
ESCALATION_STEPS: tuple[PolicyStep, ...] = (
    *GENTLE_STEPS,
    # The following steps remove useful content, for a budget that is far too small.
    ("thinking", {}),
    ("superseded", {}),
    ("mask", {"keep": 3}),
    _all_tools_step("truncate_calls", 1_000),
    ("messages", {"longer_than": 4_000}),
    ("batch-summary", {"older_than": 0, "min_calls": 1, "max_distance": 0}),
    _all_tools_step("truncate", 4_000),
    ("sliding-window", {"budget": 0}),
    _all_tools_step("truncate", 1_000),
    _all_tools_step("truncate", 300),
)
"""Steps to fit a budget, applied edit by edit until the history fits: least valuable content first."""
