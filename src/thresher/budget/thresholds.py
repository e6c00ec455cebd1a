"""How eager a window is; the defaults were chosen by replaying recorded sessions."""

from msgspec import Struct

from thresher.errors import OptionError

DEFAULT_AGE_RANGE = (22, 45)
TOKENS_PER_CALL = 4_000
"""Tokens of a budget that are room for one call more."""


class Thresholds(Struct, frozen=True, kw_only=True):
    """When a change is worth it."""

    high: float = 0.9
    """The share of the budget from which on a window re-plans whatever it costs: the high water mark."""
    low: float = 0.5
    """The share to which it then goes down, as far as that does not hurt: what `age` holds may be more."""
    worth: int = 1_000
    """Tokens that a re-plan must save at least."""
    patience: float = 0.6
    """How often what could have gone is paid for before it goes: 1 waits until reading it has cost as much as going."""
    boundary: float = 0.5
    """The share of that patience which is left when the human speaks."""
    calls: int = 20
    """Further calls that are expected, at least: as many as there were so far, and no fewer than these."""
    age: int | None = None
    """Calls for which `auto` keeps what was read whole, however well clearing it would pay: see the policy `fading`.
    None: 22, and up to 45 with a budget that has room for it."""

    def __post_init__(self) -> None:
        if not 0 < self.boundary <= 1:
            raise OptionError(f"`boundary` is a share above 0, and at most 1; not {self.boundary}")
        if not 0 < self.low <= self.high <= 1:
            raise OptionError(f"`low` and `high` are shares of the budget, low first; not {self.low} and {self.high}")
        for name in ("worth", "patience", "calls", "age"):
            if not (getattr(self, name) or 0) >= 0:
                raise OptionError(f"`{name}` is 0 or more; not {getattr(self, name)}")

    def kept_age(self, budget: int) -> int:
        """The age that is kept where so many tokens may be sent."""
        return (
            min(max(DEFAULT_AGE_RANGE[0], budget // TOKENS_PER_CALL), DEFAULT_AGE_RANGE[1])
            if self.age is None
            else self.age
        )

    def expected_calls(self, calls: int) -> int:
        """How many calls will follow so many: what has lasted long will last."""
        return max(self.calls, calls)
