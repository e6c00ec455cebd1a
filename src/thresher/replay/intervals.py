"""Confidence intervals of bootstrap samples."""

from collections.abc import Sequence
from math import isfinite


def compute_interval(values: Sequence[float]) -> tuple[float | None, float | None] | None:
    """Return the ends of the middle 95 % of the values, or None without values. An infinite end is None."""
    if not values:
        return None
    ordered, cut = sorted(values), int(0.025 * len(values))
    low, high = (end if isfinite(end) else None for end in (ordered[cut], ordered[-1 - cut]))
    return low, high
