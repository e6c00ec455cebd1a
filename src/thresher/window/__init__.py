"""When to change a history: the runtime for an agent's loop, its ledger, and the price of breaking a cache.

In: each request of a loop, as its API takes it. Out: the same, small enough, its beginning as it was sent before,
with an event for every change. Writes the store and the ledger.
"""

from thresher.window.events import Event
from thresher.window.ledger import Ledger, LedgerError
from thresher.window.pace import Pace
from thresher.window.prices import Prices
from thresher.window.runtime import Window

__all__ = ["Event", "Ledger", "LedgerError", "Pace", "Prices", "Window"]
