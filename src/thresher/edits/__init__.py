"""Edits as data, the rules that they must keep, and plans: validate, repair, plan, apply.

Input: histories and proposed edits. Output: plans, smaller histories, violations, repairs. This package does no I/O.
"""

from typing import TYPE_CHECKING

from thresher.deprecation import ForwardedNames
from thresher.dialects.repairs.workspace import Repair, Violation
from thresher.edits.apply import apply
from thresher.edits.closure import ThinkingRule, close_draft
from thresher.edits.draft import PlanDraft
from thresher.edits.edit import Drop, Edit, Elision, Pin, Replace, Summarize, Truncate, list_targets
from thresher.edits.legality import check, is_legal
from thresher.edits.pins import find_open_loop, find_pins
from thresher.edits.placeholder import find_verified_placeholders, get_placeholder_id
from thresher.edits.plan import Plan, Refusal, build_plan, finish_plan
from thresher.edits.repair_history import RepairError, RepairResult, repair
from thresher.edits.truncate import (
    apply_elisions,
    elide_arguments_to_limit,
    elide_further,
    elide_long_arguments,
    elide_to_limit,
    find_json_strings,
    keep_head_and_tail,
)

__all__ = [
    "Drop",
    "Edit",
    "Elision",
    "Pin",
    "Plan",
    "PlanDraft",
    "Refusal",
    "Repair",
    "RepairError",
    "RepairResult",
    "Replace",
    "Summarize",
    "ThinkingRule",
    "Truncate",
    "Violation",
    "apply",
    "apply_elisions",
    "build_plan",
    "check",
    "close_draft",
    "elide_arguments_to_limit",
    "elide_further",
    "elide_long_arguments",
    "elide_to_limit",
    "find_json_strings",
    "find_open_loop",
    "find_pins",
    "find_verified_placeholders",
    "finish_plan",
    "get_placeholder_id",
    "is_legal",
    "keep_head_and_tail",
    "list_targets",
    "repair",
]

if not TYPE_CHECKING:  # with a module `__getattr__`, a type checker would accept any name
    __getattr__ = ForwardedNames(
        __name__,
        {
            "Cut": "thresher.edits:Truncate",
            "Draft": "thresher.edits:PlanDraft",
            "Fold": "thresher.edits:Summarize",
            "Gap": "thresher.edits:Elision",
            "Repaired": "thresher.edits:RepairResult",
            "Stub": "thresher.edits:Replace",
            "believed": "thresher.edits:find_verified_placeholders",
            "close": "thresher.edits:build_plan",
            "cut": "thresher.edits:apply_elisions",
            "cut_arguments": "thresher.edits:elide_long_arguments",
            "finish": "thresher.edits:finish_plan",
            "head_and_tail": "thresher.edits:keep_head_and_tail",
            "is_pointer": "thresher.edits:get_placeholder_id",
            "open_loop": "thresher.edits:find_open_loop",
            "settle": "thresher.edits:close_draft",
            "targets_of": "thresher.edits:list_targets",
            "to_limit": "thresher.edits:elide_to_limit",
        },
    )
