"""Axes of a chart: limits, ticks and positions."""

import math
from collections.abc import Sequence
from typing import NamedTuple


class ChartAxis(NamedTuple):
    """An axis of a chart, which maps values to coordinates."""

    low: float
    high: float
    start: float
    stop: float
    log: bool
    ticks: list[float]

    def to_position(self, value: float) -> float:
        """Return the coordinate of a value."""
        low, high, value = (math.log(number) if self.log else number for number in (self.low, self.high, value))
        return self.start + (value - low) / (high - low) * (self.stop - self.start)

    def holds(self, value: float) -> bool:
        """Return True if a value is within the limits."""
        return self.low <= value <= self.high


def make_chart_axis(
    values: Sequence[float],
    start: float,
    stop: float,
    *,
    log: bool = False,
    low: float | None = None,
    high: float | None = None,
) -> ChartAxis:
    """Build an axis for values, with its ticks."""
    values = values or (1.0, 10.0)
    if log:
        values = [value for value in values if low is None or value >= low > 0] or values
        # Add a margin at both ends, even if all values are equal.
        room = max((max(values) / min(values)) ** 0.04, 1.1)
        least, most = min(values) / room, max(values) * room
        least = low if low is not None and 0 < low < most else least
        ticks = _log_ticks(least, most)
        ticks = ticks if len(ticks) > 2 else _linear_ticks(least, most)
    else:
        ticks = _linear_ticks(*_limits(values, low, high))
        least = ticks[0] if low is None else low
        most = ticks[-1] if high is None or high <= least else high
    return ChartAxis(least, most, start, stop, log, [tick for tick in ticks if least <= tick <= most])


def _limits(values: Sequence[float], low: float | None, high: float | None) -> tuple[float, float]:
    """Return a lower and a higher limit. A limit that is not given, or not valid, is derived from the values."""
    least = low if low is not None else min(*values, values[0] if high is None else high)
    most = high if high is not None and high > least else max(*values, least)
    if most - least > 1e-9 * max(abs(least), abs(most), 1):
        return least, most
    some = 0.1 * abs(least) if abs(least) > 1e-6 else 1.0
    return (least - some if low is None else least), most + some


def _linear_ticks(low: float, high: float) -> list[float]:
    """Return round numbers that enclose both limits."""
    rough = (high - low) / 5
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(unit * times for times in (1, 2, 2.5, 5, 10) if unit * times >= rough * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [float(f"{n * step:.10g}") for n in range(first, last + 1)]


def _log_ticks(low: float, high: float) -> list[float]:
    """Return round numbers within the limits, at about equal ratios."""
    exponents = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [times * 10.0**exponent for exponent in exponents for times in (1, 2, 5)]
    return [value for value in ticks if low <= value <= high]
