"""How eager a window is; the defaults were chosen by replaying recorded sessions."""

from dataclasses import dataclass

from thresher.deprecation import renamed_fields
from thresher.errors import OptionError

DEFAULT_AGE_RANGE = (22, 45)
TOKENS_PER_CALL = 4_000
"""Tokens of a budget that are room for one call more."""


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
    """When a change is worth it."""

    high_water: float = 0.9
    """The share of the budget from which on a window re-plans whatever it costs: the high water mark."""
    low_water: float = 0.5
    """The share to which it then goes down, as far as that does not hurt: what `keep_calls` holds may be more."""
    min_saving: int = 1_000
    """Tokens that a re-plan must save at least."""
    patience: float = 0.6
    """How often what could have gone is paid for before it goes: 1 waits until reading it has cost as much as going."""
    prompt_patience_share: float = 0.5
    """The share of that patience which is left when the human speaks."""
    min_expected_calls: int = 20
    """Further calls that are expected, at least: as many as there were so far, and no fewer than these."""
    keep_calls: int | None = None
    """Calls for which `auto` keeps what was read whole, however well clearing it would pay: see the policy `decay`.
    None: 22, and up to 45 with a budget that has room for it."""

    def __post_init__(self) -> None:
        if not 0 < self.prompt_patience_share <= 1:
            raise OptionError(
                f"`prompt_patience_share` is a share above 0, and at most 1; not {self.prompt_patience_share}"
            )
        if not 0 < self.low_water <= self.high_water <= 1:
            raise OptionError(
                f"`low_water` and `high_water` are shares of the budget, low first; "
                f"not {self.low_water} and {self.high_water}"
            )
        for name in ("min_saving", "patience", "min_expected_calls", "keep_calls"):
            if not (getattr(self, name) or 0) >= 0:
                raise OptionError(f"`{name}` is 0 or more; not {getattr(self, name)}")

    def kept_age(self, budget: int) -> int:
        """The age that is kept where so many tokens may be sent."""
        return (
            min(max(DEFAULT_AGE_RANGE[0], budget // TOKENS_PER_CALL), DEFAULT_AGE_RANGE[1])
            if self.keep_calls is None
            else self.keep_calls
        )

    def expected_calls(self, calls: int) -> int:
        """How many calls will follow so many: what has lasted long will last."""
        return max(self.min_expected_calls, calls)
