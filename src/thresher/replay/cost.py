"""Price requests under prompt caching: cache rates and a running meter.

Costs are in tokens of uncached input: 1 is the model's price of one input token. A request pays the cache-read rate for
the prefix that it shares with the previous request, if that prefix is still cached and long enough, and the cache-write
rate from the first changed block on. A prompt below the minimum cache size pays the plain input rate.
"""

from collections.abc import Hashable, Sequence
from typing import NamedTuple

from msgspec import Struct

from thresher.errors import OptionError
from thresher.tokens import ModelInfo

HOUR = 3600
REFETCH_CALL_TOKENS = 60
"""Output tokens that a model needs to request removed text again."""


class Rates(Struct, frozen=True, kw_only=True):
    """Prices relative to uncached input, plus the lifetime and minimum size of a cached prefix."""

    read: float = 0.1
    write: float = 1.25
    input: float = 1.0
    output: float = 5.0
    ttl: float = 300
    """Seconds until an unused prefix expires."""
    minimum: int = 1024
    """Minimum size of a cached prefix, in tokens."""


def rates_for_model(model: ModelInfo, *, hour: bool = False) -> Rates:
    """Return the rates of a model. `hour` selects its one-hour cache."""
    price = model.price
    write = price.cache_write_1h if hour else price.cache_write
    if write is None:
        raise OptionError(f"`{model.name}` does not support a one-hour cache; remove `hour`")
    return Rates(
        read=price.cache_read / price.input,
        write=write / price.input,
        output=price.output / price.input,
        ttl=HOUR if hour else model.cache_ttl,
        minimum=model.cache_minimum,
    )


class RequestCost(NamedTuple):
    """Tokens and cost of one request."""

    tokens: int
    cached: int
    cost: float
    is_prefix_broken: bool
    """True if the request does not extend the previous one."""


class CostMeter:
    """Price the requests of one conversation. The cache contains the previous request."""

    def __init__(self, rates: Rates) -> None:
        """Start with an empty cache."""
        self.rates = rates
        self._before: Sequence[tuple[Hashable, int]] = ()
        self._at: float | None = None

    def charge(self, at: float | None, texts: Sequence[tuple[Hashable, int]]) -> RequestCost:
        """Price the next request. Each text is a comparable key and a token count; `at` is the time of the request."""
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
        """Report whether the last request is still cached at a time. An unknown time counts as cached."""
        return at is None or self._at is None or at - self._at <= self.rates.ttl


def _count_shared_blocks(before: Sequence[tuple[Hashable, int]], now: Sequence[tuple[Hashable, int]]) -> int:
    """Return the number of blocks in the common prefix of two requests."""
    pairs = enumerate(zip(before, now, strict=False))
    return next((n for n, ((old, _), (new, _)) in pairs if old != new), min(len(before), len(now)))
