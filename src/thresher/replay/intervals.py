"""Confidence intervals of drawn samples."""

from collections.abc import Sequence
from math import isfinite


def compute_interval(values: Sequence[float]) -> tuple[float | None, float | None] | None:
    """The ends of the middle 95 %."""
    if not values:
        return None
    row, aside = sorted(values), int(0.025 * len(values))
    return _finite(row[aside]), _finite(row[-1 - aside])


def _finite(value: float) -> float | None:
    return value if isfinite(value) else None
