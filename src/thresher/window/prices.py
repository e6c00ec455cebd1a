"""Price of a request when the provider caches its prefix.

Prices are dollars per million tokens. For most vendors a cache read costs a tenth of the input price, and a cache write
costs the input price or a quarter more. A cached prefix expires some minutes after its last use.
"""

from msgspec import Struct

from thresher.tokens import ModelInfo, find_model


class Prices(Struct, frozen=True):
    """Token prices and cache behavior of a model."""

    input: float = 1.0
    """Dollars per million uncached tokens; 1.0 if only the price ratios are known."""
    read: float = 0.1
    write: float = 1.25
    life: float = 300.0
    """Seconds from the last use of a cached prefix until it expires."""
    minimum: int = 1024
    """Minimum number of tokens of a prefix that the provider caches."""

    def request_cost(self, tokens: int, cached: int) -> float:
        """Return the cost of a request in dollars if `cached` of its tokens come from the cache."""
        if tokens < self.minimum:
            return self.input * tokens / 1_000_000
        if cached < self.minimum:
            cached = 0
        return (self.read * cached + self.write * (tokens - cached)) / 1_000_000


def prices_for_model(model: ModelInfo, *, hour: bool = False) -> Prices:
    """Return the prices of a model. `hour` selects the one-hour cache if the model has one."""
    price = model.price
    if hour and price.cache_write_1h is not None:
        return Prices(price.input, price.cache_read, price.cache_write_1h, 3600.0, model.cache_minimum)
    return Prices(price.input, price.cache_read, price.cache_write, float(model.cache_ttl), model.cache_minimum)


def prices_for_model_name(model: str, *, hour: bool = False) -> Prices:
    """Return the prices of a named model. For an unknown model, return the price ratios that most vendors use."""
    info = find_model(model) if model else None
    return prices_for_model(info, hour=hour) if info is not None else Prices()
