"""Runtime for an agent's loop: decides when a replan pays off and keeps the cached prefix stable.

Input: each request of a loop, in the format of its API. Output: the same request within its token budget, with the
prefix that was sent before, and one event per replan. Removed content goes to the content store, decisions go to the
ledger.
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

if not TYPE_CHECKING:  # hidden from type checkers, which would otherwise accept any name
    __getattr__ = ForwardedNames(
        __name__, {"Pace": "thresher.window:Thresholds", "Event": "thresher.window:WindowEvent"}
    )
