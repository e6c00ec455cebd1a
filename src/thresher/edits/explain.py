"""A plan in words: which policy did what for which reason, to how many parts, and what that saves."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from thresher.edits.edit import Edit, Summarize

if TYPE_CHECKING:
    from thresher.edits.plan import Plan

UNREPORTED_REFUSALS = ("another edit has it", "folded already", "stands in already")
"""Refusals that are no news: something else is done to the part."""
MAX_LISTED_MESSAGES = 5
"""Messages that are named one by one."""
EDIT_LABELS = {"Drop": "dropped", "Replace": "pointed to", "Truncate": "cut", "Summarize": "folded"}


def summarize_edits(edits: Iterable[Edit]) -> list[tuple[str, str, str, int, int, int]]:
    """One row a policy, deed and reason: parts, tokens before and after; what saves most comes first."""
    sums: dict[tuple[str, str, str], list[int]] = {}
    for edit in edits:
        total = sums.setdefault((edit.policy, EDIT_LABELS[type(edit).__name__], edit.why), [0, 0, 0])
        total[0] += len(edit.targets) if isinstance(edit, Summarize) else 1
        total[1] += edit.before
        total[2] += edit.before - edit.saved
    found = [(*key, total[0], total[1], total[2]) for key, total in sums.items()]
    return sorted(found, key=lambda row: (row[5] - row[4], row[0], row[1], row[2]))


def explain_plan(plan: "Plan") -> str:
    """For a terminal: a heading, a table, and what else is worth knowing."""
    head = f"{plan.policy or 'plan'}: {plan.tokens_before:,} → {plan.tokens_after:,} tokens ({_format_savings(plan)})"
    budget = "" if plan.budget is None else f", budget {plan.budget:,}"
    table = summarize_edits(plan.edits)
    return "\n".join(
        [head + budget, *(["", *_table(table)] if table else []), *(f"  {note}" for note in list_plan_notes(plan))]
    )


def list_plan_notes(plan: "Plan") -> list[str]:
    """What else is worth knowing: repairs, refusals, pins that were lifted, the quality of what is kept."""
    mended: dict[str, list[int]] = {}
    for repair in plan.repairs:
        mended.setdefault(repair.detail, []).append(repair.message + 1)
    lines = [f"mended first: {detail} (message {_format_message_numbers(found)})" for detail, found in mended.items()]
    refused: dict[str, int] = {}
    for one in plan.refused:
        refused[one.reason] = refused.get(one.reason, 0) + one.parts
    lines += [
        f"not edited, {reason}: {parts:,}" for reason, parts in refused.items() if reason not in UNREPORTED_REFUSALS
    ]
    lines += [f"pinned, and let go as the options say: {plan.unpinned:,}"] if plan.unpinned else []
    lines += [f"quality: {plan.quality:.0%} of what is important is kept as it was"] if plan.quality is not None else []
    return [*lines, *plan.notes]


def _format_message_numbers(found: list[int]) -> str:
    more = f" and {len(found) - MAX_LISTED_MESSAGES} more" if len(found) > MAX_LISTED_MESSAGES else ""
    return ", ".join(map(str, found[:MAX_LISTED_MESSAGES])) + more


def _format_savings(plan: "Plan") -> str:
    if not plan.tokens_before or not plan.saved:
        return "nothing to save"
    return f"−{plan.saved / plan.tokens_before:.0%}"


def _table(table: list[tuple[str, str, str, int, int, int]]) -> list[str]:
    cells = [("policy", "", "parts", "before", "after", "why")]
    cells += [(p, done, f"{n:,}", f"{before:,}", f"{after:,}", why) for p, done, why, n, before, after in table]
    widths = [max(len(row[column]) for row in cells) for column in range(5)]
    return ["  " + "  ".join(_cell(row, column, widths) for column in range(6)).rstrip() for row in cells]


def _cell(row: tuple[str, ...], column: int, widths: list[int]) -> str:
    if column < 2:
        return row[column].ljust(widths[column])
    return row[column].rjust(widths[column]) if column < 5 else row[column]
