"""What requests cost where a provider keeps the beginning of the last one: the rates, and a bill that runs on.

All is told in tokens of plain input: a cost of 1 is one of them at the model's price. A request pays the reading rate
for what it shares with the beginning of the one before, if that is still kept and long enough, and the writing rate
for all from its first changed block on. A prompt too short to be kept is plain input.
"""

from collections.abc import Hashable, Sequence
from typing import NamedTuple

from msgspec import Struct

from thresher.errors import OptionError
from thresher.tokens import ModelInfo

HOUR = 3600
REFETCH_CALL_TOKENS = 60
"""Tokens of output that it takes to ask for something again."""


class Rates(Struct, frozen=True, kw_only=True):
    """Prices against that of plain input, and how long and from what size on a prefix is kept."""

    read: float = 0.1
    write: float = 1.25
    input: float = 1.0
    output: float = 5.0
    ttl: float = 300
    """Seconds from one use to the next."""
    minimum: int = 1024
    """Tokens below which nothing is kept."""


def rates_for_model(model: ModelInfo, *, hour: bool = False) -> Rates:
    """The rates of a model; with `hour`, of its cache that lasts one."""
    price = model.price
    write = price.cache_write_1h if hour else price.cache_write
    if write is None:
        raise OptionError(f"`{model.name}` has no cache that lasts an hour; leave `hour` out")
    return Rates(
        read=price.cache_read / price.input,
        write=write / price.input,
        output=price.output / price.input,
        ttl=HOUR if hour else model.cache_ttl,
        minimum=model.cache_minimum,
    )


class RequestCost(NamedTuple):
    """One line of a bill."""

    tokens: int
    cached: int
    cost: float
    is_prefix_broken: bool
    """The request does not begin with all of the one before."""


class CostMeter:
    """Charges the requests of one conversation, each against the one before."""

    def __init__(self, rates: Rates) -> None:
        """Nothing was sent yet."""
        self.rates = rates
        self._before: Sequence[tuple[Hashable, int]] = ()
        self._at: float | None = None

    def charge(self, at: float | None, texts: Sequence[tuple[Hashable, int]]) -> RequestCost:
        """The next request: when it was made, and its blocks, each with a key that says what it is and its tokens."""
        shared = _count_shared_blocks(self._before, texts)
        tokens = sum(weight for _, weight in texts)
        prefix = sum(weight for _, weight in texts[:shared])
        cached = prefix if self.is_warm(at) and prefix >= self.rates.minimum else 0
        fresh = self.rates.write if tokens >= self.rates.minimum else self.rates.input
        charge = RequestCost(
            tokens, cached, self.rates.read * cached + fresh * (tokens - cached), shared < len(self._before)
        )
        self._before, self._at = texts, at
        return charge

    def is_warm(self, at: float | None) -> bool:
        """Whether the last request is still kept then; if a time is not known, it is taken to be."""
        return at is None or self._at is None or at - self._at <= self.rates.ttl


def _count_shared_blocks(before: Sequence[tuple[Hashable, int]], now: Sequence[tuple[Hashable, int]]) -> int:
    """How many blocks two requests have in common from the start."""
    pairs = enumerate(zip(before, now, strict=False))
    return next((n for n, ((old, _), (new, _)) in pairs if old != new), min(len(before), len(now)))
