"""What may change, and what a change does: edits as data, the rules of each API, plans, and what applies them.

In: histories and proposed edits. Out: plans, smaller histories, violations, repairs. Nothing here reads or writes.
"""

from thresher.edits.apply import apply
from thresher.edits.cutting import cut, cut_arguments, head_and_tail, to_limit
from thresher.edits.draft import Draft
from thresher.edits.edit import Cut, Drop, Edit, Fold, Gap, Pin, Stub, targets_of
from thresher.edits.legality import Violation, check, is_legal
from thresher.edits.pins import open_loop, pins
from thresher.edits.plan import Plan, Refusal, close, finish
from thresher.edits.repair import Repair, Repaired, repair
from thresher.edits.settle import ThinkingRule, settle
from thresher.edits.standin import believed, is_pointer

__all__ = [
    "Cut",
    "Draft",
    "Drop",
    "Edit",
    "Fold",
    "Gap",
    "Pin",
    "Plan",
    "Refusal",
    "Repair",
    "Repaired",
    "Stub",
    "ThinkingRule",
    "Violation",
    "apply",
    "believed",
    "check",
    "close",
    "cut",
    "cut_arguments",
    "finish",
    "head_and_tail",
    "is_legal",
    "is_pointer",
    "open_loop",
    "pins",
    "repair",
    "settle",
    "targets_of",
    "to_limit",
]
