"""When to change a history: the runtime for an agent's loop, its ledger, and the price of breaking a cache.

In: each request of a loop, as its API takes it. Out: the same, small enough, its beginning as it was sent before,
with an event for every change. Writes the store and the ledger.
"""

from typing import TYPE_CHECKING

from thresher.budget.thresholds import Thresholds
from thresher.deprecation import ForwardedNames
from thresher.window.events import Trigger, WindowEvent
from thresher.window.ledger import Ledger, LedgerError
from thresher.window.options import WindowOptions
from thresher.window.prices import Prices
from thresher.window.window import Window

__all__ = ["Ledger", "LedgerError", "Prices", "Thresholds", "Trigger", "Window", "WindowEvent", "WindowOptions"]

if not TYPE_CHECKING:  # a type checker shall not take every name for one that is here
    __getattr__ = ForwardedNames(
        __name__,
        {
            "Pace": "thresher.window:Thresholds",
            "Event": "thresher.window:WindowEvent",
        },
    )
