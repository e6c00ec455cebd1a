"""Presets: named lists of policies with their options, as data.

Five follow one table, from leaving everything to leaving almost nothing; the others are one policy each, or the
order of steps that an agent's own loop wants. A file `thresher.toml` may add more.
"""

from collections.abc import Mapping
from typing import Any

PolicyStep = tuple[str, Mapping[str, Any]]
"""A policy's name and its options."""

COMMAND_CATEGORIES = ("execution", "project")
OTHER_CATEGORIES = ("other", "mcp", "analysis")
RESOLVED_FAILURES_STEP: PolicyStep = ("superseded", {"identical": False, "stale": False})
EMPTY_MESSAGES_STEP: PolicyStep = ("messages", {"empty": True})


def _tools_step(*categories: str, do: str, **options: Any) -> PolicyStep:
    return ("tools", {"categories": categories, "failed": False, "do": do, **options})


def _failed_tools_step(do: str, **options: Any) -> PolicyStep:
    return ("tools", {"failed": True, "do": do, **options})


def _all_tools_step(do: str, limit: int) -> PolicyStep:
    return ("tools", {"names": ("*",), "do": do, "limit": limit})


PRESETS: dict[str, tuple[PolicyStep, ...]] = {
    "development": (),
    "minimal": (("thinking", {}), ("subagents", {})),
    "moderate": (
        ("thinking", {}),
        ("reminders", {}),
        ("subagents", {}),
        EMPTY_MESSAGES_STEP,
        ("reads", {}),
        _tools_step("file_edit", do="stub"),
        ("output", {}),
        _tools_step("web", do="cut", limit=4_000),
        _tools_step(*OTHER_CATEGORIES, do="cut", limit=10_000),
        ("recent", {"categories": ("plan",), "do": "drop"}),
        RESOLVED_FAILURES_STEP,
        _failed_tools_step("cut", limit=500),
        ("messages", {"longer_than": 20_000}),
    ),
    "smart": (
        ("thinking", {}),
        ("reminders", {}),
        ("subagents", {}),
        EMPTY_MESSAGES_STEP,
        _tools_step("file_read", do="stub"),
        _tools_step("file_edit", do="line"),
        _tools_step(*COMMAND_CATEGORIES, do="cut", head=1_000, tail=1_000),
        _tools_step("web", *OTHER_CATEGORIES, do="stub"),
        ("tools", {"categories": ("plan",)}),
        RESOLVED_FAILURES_STEP,
        _failed_tools_step("cut", limit=500),
        ("messages", {"longer_than": 10_000}),
    ),
    "aggressive": (
        ("thinking", {}),
        ("reminders", {}),
        ("subagents", {}),
        EMPTY_MESSAGES_STEP,
        _tools_step("file_read", "web", do="drop"),
        _tools_step("file_edit", do="line"),
        _tools_step(*COMMAND_CATEGORIES, *OTHER_CATEGORIES, do="stub"),
        ("tools", {"categories": ("plan",)}),
        _failed_tools_step("drop", older_exchanges_only=True),
        _failed_tools_step("cut", limit=300),
        ("messages", {"longer_than": 2_000}),
    ),
    "exchanges": (("exchanges", {}),),
    "batches": (("batches", {}),),
    "tool-retention": (("reads", {}), ("diffs", {}), ("output", {}), ("recent", {})),
    "mask": (("mask", {}),),
    "auto": (),
}


def make_clearing_steps(age: int) -> tuple[PolicyStep, ...]:
    """What is seldom asked for again, as a window clears it: what has worn off, and thinking before that."""
    return (
        ("superseded", {"edited": False}),
        ("batches", {"age": 2 * age + 1, "distance": 10**9, "at_most": 20, "limit": 600, "words": True, "names": 200}),
        ("fading", {"age": age}),
        ("thinking", {"keep_last": age // 3}),
    )


GENTLE_STEPS: tuple[PolicyStep, ...] = (
    ("superseded", {"edited": False}),
    ("output", {}),
    ("output", {"pressure": True}),
    ("mask", {"by_importance": True}),
    ("batches", {"at_most": 10}),
    ("exchanges", {"pressure": 0.9, "at_most": 3}),
)
"""The steps to a budget that seldom hurt: what they take is seldom asked for again."""
DECAY_STEPS: tuple[PolicyStep, ...] = (("fading", {"age": 8}), ("fading", {"age": 3}), *GENTLE_STEPS)
"""The same for a window, where what has just been used is used again."""
ESCALATION_STEPS: tuple[PolicyStep, ...] = (
    *GENTLE_STEPS,
    # From here on it hurts: what follows is for a budget that is far too small for what is kept.
    ("thinking", {}),
    ("superseded", {}),
    ("mask", {"keep": 3}),
    _all_tools_step("cut_calls", 1_000),
    ("messages", {"longer_than": 4_000}),
    ("batches", {"age": 0, "minimum": 1, "distance": 0}),
    _all_tools_step("cut", 4_000),
    ("newest", {"budget": 0}),
    _all_tools_step("cut", 1_000),
    _all_tools_step("cut", 300),
)
"""The steps to a budget, taken edit by edit until the history fits: what costs least to lose goes first."""
