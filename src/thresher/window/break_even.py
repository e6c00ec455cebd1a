"""Whether a change pays: what it costs now, since the cache behind it is lost, against what every later call saves.

Changing a request from one place on, so that it is `saved` tokens shorter, costs the difference between writing and
reading for all that was cached behind that place, and saves at once what need not be written, and with each further
call what need not be read. Where in the history to begin is part of the question: an early place saves more and
loses more of the cache; what is changed behind the first place rides along for nothing.
"""

from collections.abc import Iterable

from msgspec import Struct

from thresher.window.prices import Prices


class BreakEven(Struct, frozen=True):
    """A change, and what it comes to."""

    first_message: int
    """The first message that changes."""
    tokens_saved: int
    cost: float
    """What it makes this request dearer by; below zero where it is cheaper at once."""
    saving_per_call: float
    """What it makes each later request cheaper by."""

    def net_gain(self, further: int) -> float:
        """What is saved in all when so many calls follow this one."""
        return self.saving_per_call * further - self.cost


def compute_break_even(prices: Prices, start: int, before: int, saved: int, *, tokens: int, cached: int) -> BreakEven:
    """The price of saving so many tokens from a place on that has so many before it."""
    keep = prices.request_cost(tokens, cached)
    change = prices.request_cost(tokens - saved, min(cached, before))
    return BreakEven(start, saved, change - keep, prices.read * saved / 1_000_000)


def find_best_break_even(
    offers: Iterable[tuple[int, int, int]], prices: Prices, *, tokens: int, cached: int, further: int
) -> BreakEven | None:
    """The best place to begin; an offer is a place, the tokens before it, and what goes there.

    Offers come in the order of their places.
    """
    read, lost = prices.read, prices.write - prices.read
    most, found, saved = 0.0, None, 0
    for start, before, gone in reversed(list(offers)):
        saved += gone
        # In proportion to `BreakEven.gain`, without the smallest prefix: this runs over every old result with each
        # call.
        gain = saved * (prices.write + read * further) - lost * max(0, cached - before)
        if found is None or gain > most:
            most, found = gain, (start, before, saved)
    return None if found is None else compute_break_even(prices, *found, tokens=tokens, cached=cached)
