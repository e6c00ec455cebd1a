"""What a request costs when the provider caches its beginning, and what changing that beginning costs.

Prices are those of a million tokens. Reading from the cache is a tenth of the input price with most vendors, writing
a quarter more than it, or the same; a cache lives for minutes after its last use.
"""

from msgspec import Struct

from thresher.tokens import ModelInfo, find_model


class Prices(Struct, frozen=True):
    """What tokens cost, and how the cache behaves."""

    input: float = 1.0
    """Dollars for a million tokens that no cache serves and none keeps; 1.0 where only ratios are known."""
    read: float = 0.1
    write: float = 1.25
    life: float = 300.0
    """Seconds for which a cached beginning is kept after its last use."""
    minimum: int = 1024
    """Tokens below which no beginning is cached."""

    def request_cost(self, tokens: int, cached: int) -> float:
        """What a request costs, in dollars, when so many of its tokens are read from the cache."""
        if tokens < self.minimum:
            return self.input * tokens / 1_000_000
        if cached < self.minimum:
            cached = 0
        return (self.read * cached + self.write * (tokens - cached)) / 1_000_000


def prices_for_model(model: ModelInfo, *, hour: bool = False) -> Prices:
    """The prices of a model; `hour` for the cache that lives an hour, where there is one."""
    price = model.price
    if hour and price.cache_write_1h is not None:
        return Prices(price.input, price.cache_read, price.cache_write_1h, 3600.0, model.cache_minimum)
    return Prices(price.input, price.cache_read, price.cache_write, float(model.cache_ttl), model.cache_minimum)


def prices_for_model_name(model: str, *, hour: bool = False) -> Prices:
    """The prices of a model by its name; ratios that most vendors share where it is not known."""
    known = find_model(model) if model else None
    return prices_for_model(known, hour=hour) if known is not None else Prices()
