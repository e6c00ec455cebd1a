"""How small, and by which steps: presets, settings, the ladder to a budget, and the front door `fit`.

In: a history in any form, and what the user wants. Out: a plan, or the history made to fit. Writes only the store.
"""

from thresher.budget.fitting import FitResult, fit, fit_with_plan, plan, restore, store_removed_parts
from thresher.budget.presets import ESCALATION_STEPS, PRESETS, PolicyStep
from thresher.budget.settings import Settings, load_settings, parse_token_count

__all__ = [
    "ESCALATION_STEPS",
    "PRESETS",
    "FitResult",
    "PolicyStep",
    "Settings",
    "fit",
    "fit_with_plan",
    "load_settings",
    "parse_token_count",
    "plan",
    "restore",
    "store_removed_parts",
]
