"""Break-even analysis of a replan: compare the cost of breaking the prompt cache with the saving in later requests.

After a replan, everything from the first changed message on must be written to the cache again. In return, this request
and each later one contain fewer tokens. A replan that starts at an earlier message saves more tokens but loses more of
the cache. Further changes after the first changed message cost nothing.
"""

from collections.abc import Iterable

from msgspec import Struct

from thresher.window.prices import Prices


class BreakEven(Struct, frozen=True):
    """Cost and saving of a replan that starts at one message."""

    first_message: int
    """The first message that changes."""
    tokens_saved: int
    cost: float
    """Dollars that the replan adds to this request; negative if the request becomes cheaper."""
    saving_per_call: float
    """Dollars that the replan saves in each later request."""

    def net_gain(self, further: int) -> float:
        """Return the saving over `further` more calls, minus the cost of the replan."""
        return self.saving_per_call * further - self.cost


def compute_break_even(prices: Prices, start: int, before: int, saved: int, *, tokens: int, cached: int) -> BreakEven:
    """Price the removal of `saved` tokens from message `start` on; `before` counts the tokens before that message."""
    unchanged = prices.request_cost(tokens, cached)
    changed = prices.request_cost(tokens - saved, min(cached, before))
    return BreakEven(start, saved, changed - unchanged, prices.read * saved / 1_000_000)


def find_best_break_even(
    offers: Iterable[tuple[int, int, int]], prices: Prices, *, tokens: int, cached: int, further: int
) -> BreakEven | None:
    """Return the cost and saving of the most profitable replan, or None without offers.

    Each offer describes one message: its index, the tokens before it, and the tokens that can be removed from it. The
    offers are in the order of their messages. A replan uses one offer and all later ones.
    """
    lost_per_token = prices.write - prices.read
    best_gain, best, saved = 0.0, None, 0
    for start, before, removable in reversed(list(offers)):
        saved += removable
        # The gain is proportional to `BreakEven.net_gain`, except that it ignores the minimum cacheable prefix. This
        # is faster, and every call runs this loop over all old results.
        gain = saved * (prices.write + prices.read * further) - lost_per_token * max(0, cached - before)
        if best is None or gain > best_gain:
            best_gain, best = gain, (start, before, saved)
    return None if best is None else compute_break_even(prices, *best, tokens=tokens, cached=cached)
