"""What a provider billed, and what it teaches: how its tokens compare with ours, and how long its cache lives."""

from typing import Any

from msgspec import structs

from thresher.dialects.table import load_dialects
from thresher.errors import OptionError
from thresher.model.message import Usage
from thresher.tokens.calibrate import Calibration, CalibrationPoint, fit_calibration
from thresher.window.prices import Prices

MAX_OBSERVATIONS = 60
"""Bills that are remembered."""
MIN_BUDGET_SHARE = 0.25
"""The share of a budget that bills cannot take away: what they say of the rest is not believed."""
MAX_CACHE_MISSES = 2
"""Bills in a row without what should have been cached, after which it is not believed to be."""
CACHE_HIT_SHARE = 0.5
"""The share of what should have been cached from which on it was."""


def parse_provider_usage(told: Any) -> Usage:
    """Read the usage of a response of any API: an object of its SDK, a dict, or a `Usage`."""
    if isinstance(told, Usage):
        return told
    fields = _to_fields(told)
    for dialect in load_dialects():
        found = dialect.read_usage(fields) if dialect.read_usage is not None else None
        if found is not None:
            return found
    raise OptionError(
        "this is no bill that is known here: give the `usage` of a response (`usage_metadata` for Gemini), or a `Usage`"
    )


def _to_fields(thing: Any) -> dict[str, Any]:
    fields = thing if isinstance(thing, dict) else thing.model_dump() if hasattr(thing, "model_dump") else None
    fields = dict(vars(thing)) if fields is None and hasattr(thing, "__dict__") else fields or {}
    return {key: value if isinstance(value, int | str | None) else _to_fields(value) for key, value in fields.items()}


class UsageObserver:
    """Bills so far, and what follows from them."""

    def __init__(self) -> None:
        self.observations: list[CalibrationPoint] = []
        """What was counted, and what was billed."""
        self.cache_ttl: float | None = None
        """Seconds for which the cache was seen to live, where that is not as its vendor says."""
        self._consecutive_misses = 0
        self._calibration = Calibration()

    def add(self, counted: int, usage: Usage, *, expected: int, gap: float, vendor: Prices) -> None:
        """Take a bill: so much was counted, so much of it should have been cached, so long after the call before."""
        if usage.context > 0:
            self.observations = [*self.observations, (counted, usage.context)][-MAX_OBSERVATIONS:]
            # A slope that no tokenizer has says nothing, and takes nothing back.
            found = fit_calibration([self.observations])
            self._calibration = found if found.turns else self._calibration
        if expected >= vendor.minimum:
            self._update_cache_ttl(gap, vendor.life, served=usage.cache_read >= CACHE_HIT_SHARE * expected)

    def _update_cache_ttl(self, gap: float, life: float, *, served: bool) -> None:
        """A cache that served after a longer time lives longer; one that did not, twice in a row, is not there."""
        self._consecutive_misses = (
            0 if served else self._consecutive_misses + (gap <= self.adjust_prices(Prices(life=life)).life)
        )
        if served and gap > (life if self.cache_ttl is None else self.cache_ttl):
            self.cache_ttl = gap if gap > life else None
        elif self._consecutive_misses >= MAX_CACHE_MISSES:
            self.cache_ttl = min(gap, life)

    def adjust_prices(self, prices: Prices) -> Prices:
        """Prices with the life of the cache as it was seen."""
        return prices if self.cache_ttl is None else structs.replace(prices, life=self.cache_ttl)

    def to_local_tokens(self, budget: int) -> int:
        """What a budget of the provider's tokens is in ours."""
        if self._calibration.turns:
            base, factor = self._calibration.base, self._calibration.factor
        elif self.observations:
            counted, billed = self.observations[-1]
            base, factor = max(0, billed - counted), 1.0
        else:
            return budget
        return max(int(budget * MIN_BUDGET_SHARE), int((budget - base) / factor))
