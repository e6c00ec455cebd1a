"""Fit a history into a token budget: presets, settings, escalation steps, and the entry points `fit` and `plan`.

Input: a history in any form, and the user's options. Output: a plan, or the fitted history. The package writes only to
the content store.
"""

from typing import TYPE_CHECKING

from thresher.budget.fitting import FitResult, fit, fit_with_plan, plan, restore, store_removed_parts
from thresher.budget.options import FilterOptions, PlanOptions
from thresher.budget.presets import ESCALATION_STEPS, PRESETS, PolicyStep
from thresher.budget.settings import Settings, load_settings, parse_token_count
from thresher.budget.thresholds import Thresholds
from thresher.deprecation import ForwardedNames

__all__ = [
    "ESCALATION_STEPS",
    "PRESETS",
    "FilterOptions",
    "FitResult",
    "PlanOptions",
    "PolicyStep",
    "Settings",
    "Thresholds",
    "fit",
    "fit_with_plan",
    "load_settings",
    "parse_token_count",
    "plan",
    "restore",
    "store_removed_parts",
]

if not TYPE_CHECKING:  # with a module `__getattr__`, a type checker would accept any name
    __getattr__ = ForwardedNames(
        __name__,
        {
            "Fitted": "thresher.budget:FitResult",
            "LADDER": "thresher.budget:ESCALATION_STEPS",
            "Step": "thresher.budget:PolicyStep",
            "fitted": "thresher.budget:fit_with_plan",
            "keep": "thresher.budget:store_removed_parts",
            "tokens": "thresher.budget:parse_token_count",
        },
    )
