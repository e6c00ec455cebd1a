"""Presets: named lists of policies with their options, as data.

Five follow one table, from leaving everything to leaving almost nothing; the others are one policy each, or the
order of steps that an agent's own loop wants. A file `thresher.toml` may add more.
"""

from collections.abc import Mapping
from typing import Any

Step = tuple[str, Mapping[str, Any]]
"""A policy's name and its options."""

COMMANDS = ("execution", "project")
OTHERS = ("other", "mcp", "analysis")
MADE_GOOD: Step = ("superseded", {"identical": False, "stale": False})
EMPTY: Step = ("messages", {"empty": True})


def _tools(*categories: str, do: str, **options: Any) -> Step:
    return ("tools", {"categories": categories, "failed": False, "do": do, **options})


def _failed(do: str, **options: Any) -> Step:
    return ("tools", {"failed": True, "do": do, **options})


def _every(do: str, limit: int) -> Step:
    return ("tools", {"names": ("*",), "do": do, "limit": limit})


PRESETS: dict[str, tuple[Step, ...]] = {
    "development": (),
    "minimal": (("thinking", {}), ("subagents", {})),
    "moderate": (
        ("thinking", {}),
        ("reminders", {}),
        ("subagents", {}),
        EMPTY,
        ("reads", {}),
        _tools("file_edit", do="stub"),
        ("output", {}),
        _tools("web", do="cut", limit=4_000),
        _tools(*OTHERS, do="cut", limit=10_000),
        ("recent", {"categories": ("plan",), "do": "drop"}),
        MADE_GOOD,
        _failed("cut", limit=500),
        ("messages", {"longer_than": 20_000}),
    ),
    "smart": (
        ("thinking", {}),
        ("reminders", {}),
        ("subagents", {}),
        EMPTY,
        _tools("file_read", do="stub"),
        _tools("file_edit", do="line"),
        _tools(*COMMANDS, do="cut", head=1_000, tail=1_000),
        _tools("web", *OTHERS, do="stub"),
        ("tools", {"categories": ("plan",)}),
        MADE_GOOD,
        _failed("cut", limit=500),
        ("messages", {"longer_than": 10_000}),
    ),
    "aggressive": (
        ("thinking", {}),
        ("reminders", {}),
        ("subagents", {}),
        EMPTY,
        _tools("file_read", "web", do="drop"),
        _tools("file_edit", do="line"),
        _tools(*COMMANDS, *OTHERS, do="stub"),
        ("tools", {"categories": ("plan",)}),
        _failed("drop", older_exchanges_only=True),
        _failed("cut", limit=300),
        ("messages", {"longer_than": 2_000}),
    ),
    "exchanges": (("exchanges", {}),),
    "batches": (("batches", {}),),
    "tool-retention": (("reads", {}), ("diffs", {}), ("output", {}), ("recent", {})),
    "mask": (("mask", {}),),
    "auto": (),
}


def chaff(age: int) -> tuple[Step, ...]:
    """What is seldom asked for again, as a window clears it: what has worn off, and thinking before that."""
    return (
        ("superseded", {"edited": False}),
        ("batches", {"age": 2 * age + 1, "distance": 10**9, "at_most": 20, "limit": 600, "words": True, "names": 200}),
        ("fading", {"age": age}),
        ("thinking", {"keep_last": age // 3}),
    )


GENTLE: tuple[Step, ...] = (
    ("superseded", {"edited": False}),
    ("output", {}),
    ("output", {"pressure": True}),
    ("mask", {"by_importance": True}),
    ("batches", {"at_most": 10}),
    ("exchanges", {"pressure": 0.9, "at_most": 3}),
)
"""The steps to a budget that seldom hurt: what they take is seldom asked for again."""
FADING: tuple[Step, ...] = (("fading", {"age": 8}), ("fading", {"age": 3}), *GENTLE)
"""The same for a window, where what has just been used is used again."""
LADDER: tuple[Step, ...] = (
    *GENTLE,
    # From here on it hurts: what follows is for a budget that is far too small for what is kept.
    ("thinking", {}),
    ("superseded", {}),
    ("mask", {"keep": 3}),
    _every("cut_calls", 1_000),
    ("messages", {"longer_than": 4_000}),
    ("batches", {"age": 0, "minimum": 1, "distance": 0}),
    _every("cut", 4_000),
    ("newest", {"budget": 0}),
    _every("cut", 1_000),
    _every("cut", 300),
)
"""The steps to a budget, taken edit by edit until the history fits: what costs least to lose goes first."""
