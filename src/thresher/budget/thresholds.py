"""Thresholds for when a window replans; the defaults are tuned by replaying recorded sessions."""

from dataclasses import dataclass

from thresher.deprecation import renamed_fields
from thresher.errors import OptionError

DEFAULT_AGE_RANGE = (22, 45)
TOKENS_PER_CALL = 4_000
"""Divisor that turns a budget into the default `keep_calls`, which stays within `DEFAULT_AGE_RANGE`."""


@renamed_fields(
    high="high_water",
    low="low_water",
    worth="min_saving",
    boundary="prompt_patience_share",
    calls="min_expected_calls",
    age="keep_calls",
)
@dataclass(frozen=True, kw_only=True)
class Thresholds:
    """Thresholds for a replan."""

    high_water: float = 0.9
    """Share of the budget at which a window replans regardless of the cost: the high-water mark."""
    low_water: float = 0.5
    """Share of the budget that a replan at `high_water` aims for; more stays if `keep_calls` requires it."""
    min_saving: int = 1_000
    """Minimum tokens that a replan must save."""
    patience: float = 0.6
    """Cost of reading removable content that must accrue before a replan, as a multiple of the cost of removing it;
    1 is break-even."""
    prompt_patience_share: float = 0.5
    """Factor by which `patience` is multiplied at a human prompt."""
    min_expected_calls: int = 20
    """Lowest estimate of the number of further calls; after more past calls, the estimate is their number."""
    keep_calls: int | None = None
    """Number of calls for which `auto` keeps a result, even if removing it would be cheaper: see the policy `decay`.
    None: 22, and up to 45 with a large budget."""

    def __post_init__(self) -> None:
        if not 0 < self.prompt_patience_share <= 1:
            got = self.prompt_patience_share
            raise OptionError(f"`prompt_patience_share` must be above 0 and at most 1, got {got}")
        if not 0 < self.low_water <= self.high_water <= 1:
            raise OptionError(
                "`low_water` and `high_water` must be above 0 and at most 1, with `low_water` <= `high_water`, "
                f"got {self.low_water} and {self.high_water}"
            )
        for name in ("min_saving", "patience", "min_expected_calls", "keep_calls"):
            if not (getattr(self, name) or 0) >= 0:
                raise OptionError(f"`{name}` must be 0 or more, got {getattr(self, name)}")

    def kept_age(self, budget: int) -> int:
        """Return the number of calls for which results are kept, given the budget."""
        if self.keep_calls is not None:
            return self.keep_calls
        least, most = DEFAULT_AGE_RANGE
        return min(max(least, budget // TOKENS_PER_CALL), most)

    def expected_calls(self, calls: int) -> int:
        """Estimate the number of further calls from the number of past calls."""
        return max(self.min_expected_calls, calls)
