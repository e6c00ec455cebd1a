"""Repair steps in the order of execution.

A step follows the steps that it depends on: results are matched before open calls are answered, and calls are answered
before messages are merged. Each step is a rule's `repair`; a dialect may insert its own steps between these.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from thresher.dialects.repairs import content_repairs as content
from thresher.dialects.repairs import tool_repairs as tool
from thresher.dialects.repairs.workspace import RepairWorkspace, Violation


class RepairStep(NamedTuple):
    """A function that repairs all violations of some rules, and its position in the order."""

    order: int
    repair: Callable[[RepairWorkspace, Sequence[Violation]], None]


SURROGATES = RepairStep(10, content.repair_surrogates)
ARGUMENTS = RepairStep(20, content.wrap_arguments)
ROLES = RepairStep(30, content.reset_unknown_role)
MISPLACED_PARTS = RepairStep(40, tool.repair_misplaced_parts)
UNMATCHED_RESULTS = RepairStep(50, tool.convert_unmatched_results)
OPEN_CALLS = RepairStep(60, tool.answer_open_calls)
RESULT_KINDS = RepairStep(70, tool.use_plain_calls)
CALL_IDS = RepairStep(80, tool.replace_call_ids)
REMOVED_PARTS = RepairStep(90, content.remove_parts)
EMPTY_CALLS = RepairStep(95, content.remove_empty_calls)
EMPTY_MESSAGES = RepairStep(100, content.remove_messages)
PART_ORDER = RepairStep(110, content.move_parts_to_front)
OPENING = RepairStep(130, content.insert_opening_message)
LONE_PARTS = RepairStep(140, content.remove_parts)
TRAILING_SPACE = RepairStep(170, content.trim_end)
