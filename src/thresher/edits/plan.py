"""Plans: valid edits with their token counts, as data that can be shown, stored, applied and undone."""

from collections.abc import Iterable
from typing import Any

from msgspec import Struct

from thresher.dialects.repairs.workspace import Repair
from thresher.edits.closure import ThinkingRule, close_draft, collect_edits
from thresher.edits.draft import PlanDraft
from thresher.edits.edit import Edit
from thresher.edits.explain import UNREPORTED_REFUSALS, format_edit_table, format_message_numbers, summarize_edits
from thresher.model import History, Place
from thresher.tokens import TokenWeights


class Refusal(Struct, frozen=True):
    """Number of edits of one policy that were refused for the same reason."""

    policy: str
    reason: str
    parts: int


class Plan(Struct, frozen=True):
    """Edits that satisfy all rules, with the token counts before and after applying them."""

    edits: tuple[Edit, ...]
    tokens_before: int
    tokens_after: int
    policy: str = ""
    budget: int | None = None
    counter: str = ""
    """Name of the token counter."""
    dialect: str | None = None
    thinking: ThinkingRule = "free"
    repairs: tuple[Repair, ...] = ()
    """Repairs of the input, made before any edit."""
    refused: tuple[Refusal, ...] = ()
    unpinned: int = 0
    """Number of pinned parts that are edited because the user's options lift their pins."""
    quality: float | None = None
    """Share of the importance score that is kept; None if the policy `exchanges` made no edit."""
    notes: tuple[str, ...] = ()

    @property
    def saved(self) -> int:
        """Tokens saved in the next request."""
        return self.tokens_before - self.tokens_after

    def explain(self) -> str:
        """Return the plan as plain text: edits, reasons and savings."""
        return explain_plan(self)

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as JSON values."""
        return {
            "policy": self.policy,
            "budget": self.budget,
            "tokens_before": self.tokens_before,
            "tokens_after": self.tokens_after,
            "counter": self.counter,
            "quality": self.quality,
            "unpinned": self.unpinned,
            "edits": [_edit_row(edit) for edit in self.edits],
            "repaired": [
                {"rule": one.rule, "message_index": one.message, "part_index": one.part, "detail": one.detail}
                for one in self.repairs
            ],
            "refusals": [{"policy": one.policy, "reason": one.reason, "parts": one.parts} for one in self.refused],
            "notes": list(self.notes),
        }


def _edit_row(edit: Edit) -> dict[str, Any]:
    row = {"kind": type(edit).__struct_config__.tag, "target": "#".join(map(str, edit.target))}
    return row | {"policy": edit.policy, "reason": edit.why, "tokens_before": edit.before, "tokens_saved": edit.saved}


def build_plan(
    history: History,
    edits: Iterable[Edit],
    scale: TokenWeights,
    *,
    thinking: ThinkingRule = "free",
    placeholders: frozenset[Place] = frozenset(),
) -> Plan:
    """Make a plan from the proposed edits that the rules allow."""
    draft = PlanDraft(history, scale, placeholders=placeholders)
    draft.add_all(edits)
    return finish_plan(close_draft(draft, thinking), thinking)


def finish_plan(draft: PlanDraft, thinking: ThinkingRule = "free") -> Plan:
    """Convert a closed draft to a plan."""
    lifted = sum(bool(draft.pins.get(place)) and bool(one.edit.over) for place, one in draft.decisions.items())
    advice = "set `block_binding.prefix_mismatch_behavior` to `drop_block`, so that the API drops outdated thinking"
    return Plan(
        tuple(collect_edits(draft)),
        draft.tokens_before,
        draft.tokens,
        counter=draft.token_weights.name,
        thinking=thinking,
        refused=tuple(Refusal(*key, parts) for key, parts in sorted(draft.refusals.items())),
        unpinned=lifted,
        notes=(advice,) if thinking == "drop_block" and draft.decisions else (),
    )


def explain_plan(plan: Plan) -> str:
    """Format a plan as text: heading, table of edits, notes."""
    head = f"{plan.policy or 'plan'}: {plan.tokens_before:,} → {plan.tokens_after:,} tokens ({_format_savings(plan)})"
    budget = "" if plan.budget is None else f", budget {plan.budget:,}"
    rows = summarize_edits(plan.edits)
    table = ["", *format_edit_table(rows)] if rows else []
    return "\n".join([head + budget, *table, *(f"  {note}" for note in list_plan_notes(plan))])


def list_plan_notes(plan: Plan) -> list[str]:
    """List the notes of a plan: repairs, refusals, lifted pins, quality."""
    repaired: dict[str, list[int]] = {}
    for repair in plan.repairs:
        repaired.setdefault(repair.detail, []).append(repair.message + 1)
    lines = [f"repaired: {detail} (message {format_message_numbers(found)})" for detail, found in repaired.items()]
    refused: dict[str, int] = {}
    for one in plan.refused:
        refused[one.reason] = refused.get(one.reason, 0) + one.parts
    lines += [
        f"not edited, {reason}: {parts:,}" for reason, parts in refused.items() if reason not in UNREPORTED_REFUSALS
    ]
    if plan.unpinned:
        policies = ", ".join(sorted({edit.policy for edit in plan.edits if edit.over}))
        lines.append(f"pinned, but edited by {policies}: {plan.unpinned:,}")
    lines += [f"quality: {plan.quality:.0%} of the importance score is kept"] if plan.quality is not None else []
    return [*lines, *plan.notes]


def _format_savings(plan: Plan) -> str:
    if not plan.tokens_before or not plan.saved:
        return "no savings"
    return f"−{plan.saved / plan.tokens_before:.0%}"
