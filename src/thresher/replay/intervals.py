"""Confidence intervals of bootstrap samples."""

from collections.abc import Sequence
from math import isfinite


def compute_interval(values: Sequence[float]) -> tuple[float | None, float | None] | None:
    """Return the middle 95 % of the values. An infinite end is None."""
    if not values:
        return None
    row, aside = sorted(values), int(0.025 * len(values))
    return _finite(row[aside]), _finite(row[-1 - aside])


def _finite(value: float) -> float | None:
    return value if isfinite(value) else None
