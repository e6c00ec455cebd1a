"""How small, and by which steps: presets, settings, the ladder to a budget, and the front door `fit`.

In: a history in any form, and what the user wants. Out: a plan, or the history made to fit. Writes only the store.
"""

from thresher.budget.fitting import Fitted, fit, fitted, keep, plan, restore
from thresher.budget.presets import LADDER, PRESETS, Step
from thresher.budget.settings import Settings, settings, tokens

__all__ = [
    "LADDER",
    "PRESETS",
    "Fitted",
    "Settings",
    "Step",
    "fit",
    "fitted",
    "keep",
    "plan",
    "restore",
    "settings",
    "tokens",
]
