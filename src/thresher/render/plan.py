"""Render a plan as a table for the terminal."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from thresher.edits.explain import summarize_edits
from thresher.edits.plan import Plan, list_plan_notes

if TYPE_CHECKING:
    from rich.console import RenderableType

BAR_WIDTH = 40
EDIT_COLORS = {"dropped": "red", "replaced": "yellow", "truncated": "magenta", "summarized": "blue"}


def plan_table(plan: Plan) -> Iterator["RenderableType"]:
    """Yield a heading, a bar of the remaining share, the table of edits, and the notes of a plan."""
    from rich.table import Table
    from rich.text import Text

    share = plan.tokens_after / plan.tokens_before if plan.tokens_before else 1.0
    kept = max(bool(plan.tokens_after), round(BAR_WIDTH * share))
    budget = "" if plan.budget is None else f"   budget {plan.budget:,}"
    left = (f"{plan.tokens_after:,}", "bold")
    yield Text.assemble((plan.policy, "bold cyan"), f"  {plan.tokens_before:,} → ", left, f" tokens{budget}")
    yield Text.assemble(
        ("█" * kept, "green"), ("░" * (BAR_WIDTH - kept), "dim"), f" {share:.0%} left   ({plan.counter})"
    )
    found = summarize_edits(plan.edits)
    if found:
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
        for name in ("policy", "", "why"):
            table.add_column(name)
        for name in ("parts", "before", "after", "saved"):
            table.add_column(name, justify="right")
        for policy, kind, why, parts, before, after in found:
            numbers = (f"{number:,}" for number in (parts, before, after, before - after))
            table.add_row(policy, Text(kind, style=EDIT_COLORS[kind]), why, *numbers)
        yield ""
        yield table
        yield ""
    for note in list_plan_notes(plan):
        yield Text(note, style="dim")
