"""Derive the token calibration and the lifetime of the cache from the usage that the provider reports."""

from typing import Any

from msgspec import structs

from thresher.dialects.table import load_dialects
from thresher.errors import OptionError
from thresher.model.message import Usage
from thresher.tokens.calibrate import Calibration, CalibrationPoint, fit_calibration
from thresher.window.prices import Prices

MAX_OBSERVATIONS = 60
"""Maximum number of usage reports in memory."""
MIN_BUDGET_SHARE = 0.25
"""Minimum share of the budget that remains after calibration; less is implausible."""
MAX_CACHE_MISSES = 2
"""Number of consecutive cache misses after which the observed cache lifetime is reduced."""
CACHE_HIT_SHARE = 0.5
"""A request is a cache hit if the provider reports at least this share of the expected cached tokens."""


def parse_provider_usage(value: Any) -> Usage:
    """Parse the usage of a response from any API: an SDK object, a dict, or a `Usage`."""
    if isinstance(value, Usage):
        return value
    fields = _to_fields(value)
    for dialect in load_dialects():
        usage = dialect.read_usage(fields) if dialect.read_usage is not None else None
        if usage is not None:
            return usage
    raise OptionError(
        "unrecognized usage object: pass the `usage` of a response (`usage_metadata` for Gemini), or a `Usage`"
    )


def _to_fields(value: Any) -> dict[str, Any]:
    if isinstance(value, dict):
        fields = value
    elif hasattr(value, "model_dump"):
        fields = value.model_dump() or {}
    else:
        fields = dict(getattr(value, "__dict__", {}))
    return {key: field if isinstance(field, int | str | None) else _to_fields(field) for key, field in fields.items()}


class UsageObserver:
    """Collect usage reports, and derive the token calibration and the cache lifetime from them."""

    def __init__(self) -> None:
        self.observations: list[CalibrationPoint] = []
        """Pairs of Thresher's token count and the provider's count."""
        self.cache_ttl: float | None = None
        """Observed lifetime of the cache in seconds; None if it does not differ from the vendor's figure."""
        self._consecutive_misses = 0
        self._calibration = Calibration()

    def add(self, counted: int, usage: Usage, *, expected: int, gap: float, vendor: Prices) -> None:
        """Add the usage of a request.

        `counted` is Thresher's token count of the request. `expected` is the number of tokens that should have been
        cached. `gap` is the number of seconds since the previous call. `vendor` has the published cache lifetime.
        """
        if usage.context > 0:
            self.observations = [*self.observations, (counted, usage.context)][-MAX_OBSERVATIONS:]
            # If the slope is implausible, there is no new calibration, so keep the previous one.
            calibration = fit_calibration([self.observations])
            self._calibration = calibration if calibration.turns else self._calibration
        if expected >= vendor.minimum:
            self._update_cache_ttl(gap, vendor.life, is_hit=usage.cache_read >= CACHE_HIT_SHARE * expected)

    def _update_cache_ttl(self, gap: float, life: float, *, is_hit: bool) -> None:
        """Raise the lifetime after a hit with a longer gap. Lower it after two misses in a row with shorter gaps."""
        lifetime = life if self.cache_ttl is None else self.cache_ttl
        self._consecutive_misses = 0 if is_hit else self._consecutive_misses + (gap <= lifetime)
        if is_hit and gap > lifetime:
            self.cache_ttl = gap if gap > life else None
        elif self._consecutive_misses >= MAX_CACHE_MISSES:
            self.cache_ttl = min(gap, life)

    def to_fact(self) -> list[Any]:
        """Return the observations as JSON values, for a ledger."""
        return [self.observations, self.cache_ttl]

    def load_fact(self, fact: Any) -> None:
        """Continue with the observations of an earlier process, so that the budget stays the same."""
        if isinstance(fact, list) and len(fact) == 2:
            self.observations = [(counted, reported) for counted, reported in fact[0]]
            self.cache_ttl = fact[1]
            self._calibration = fit_calibration([self.observations])

    def adjust_prices(self, prices: Prices) -> Prices:
        """Return prices with the observed lifetime of the cache."""
        return prices if self.cache_ttl is None else structs.replace(prices, life=self.cache_ttl)

    def to_local_tokens(self, budget: int) -> int:
        """Convert a budget from tokens as the provider counts them to tokens as Thresher counts them."""
        if self._calibration.turns:
            base, factor = self._calibration.base, self._calibration.factor
        elif self.observations:
            counted, reported = self.observations[-1]
            base, factor = max(0, reported - counted), 1.0
        else:
            return budget
        return max(int(budget * MIN_BUDGET_SHARE), int((budget - base) / factor))
