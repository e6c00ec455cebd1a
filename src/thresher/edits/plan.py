"""A plan: the edits that hold, as data that can be shown, stored, applied and undone."""

from collections import Counter
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
    """Edits that were proposed and not made."""

    policy: str
    reason: str
    parts: int


class Plan(Struct, frozen=True):
    """Edits, closed under the laws, and what they come to."""

    edits: tuple[Edit, ...]
    tokens_before: int
    tokens_after: int
    policy: str = ""
    budget: int | None = None
    counter: str = ""
    """What the tokens were counted with."""
    dialect: str | None = None
    thinking: ThinkingRule = "free"
    repairs: tuple[Repair, ...] = ()
    """What was mended before anything was edited."""
    refused: tuple[Refusal, ...] = ()
    unpinned: int = 0
    """Parts that the user's own options let go although a law pins them."""
    quality: float | None = None
    """The share of what is important that is kept, where a policy measures it."""
    notes: tuple[str, ...] = ()

    @property
    def saved(self) -> int:
        """Tokens that the next request is shorter by."""
        return self.tokens_before - self.tokens_after

    def explain(self) -> str:
        """What happens to what, why, and what that saves: for a terminal."""
        return explain_plan(self)

    def to_dict(self) -> dict[str, Any]:
        """The same for a program."""
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
    believed: frozenset[Place] = frozenset(),
) -> Plan:
    """Close proposed edits under the laws."""
    draft = PlanDraft(history, scale, believed=believed)
    draft.add_all(edits)
    return finish_plan(close_draft(draft, thinking), thinking)


def finish_plan(draft: PlanDraft, thinking: ThinkingRule = "free") -> Plan:
    """The plan that a settled draft is."""
    lifted = sum(bool(draft.pins.get(place)) and bool(fate.edit.over) for place, fate in draft.decisions.items())
    asked = ("ask the API to drop thinking that no longer fits: block_binding.prefix_mismatch_behavior = drop_block",)
    return Plan(
        tuple(collect_edits(draft)),
        draft.tokens_before,
        draft.tokens,
        counter=draft.token_weights.name,
        thinking=thinking,
        refused=_refusals(draft.refusals),
        unpinned=lifted,
        notes=asked if thinking == "drop_block" and draft.decisions else (),
    )


def _refusals(refused: Counter[tuple[str, str]]) -> tuple[Refusal, ...]:
    return tuple(Refusal(policy, reason, parts) for (policy, reason), parts in sorted(refused.items()))


def explain_plan(plan: Plan) -> str:
    """For a terminal: a heading, a table, and what else is worth knowing."""
    head = f"{plan.policy or 'plan'}: {plan.tokens_before:,} → {plan.tokens_after:,} tokens ({_format_savings(plan)})"
    budget = "" if plan.budget is None else f", budget {plan.budget:,}"
    table = summarize_edits(plan.edits)
    return "\n".join(
        [
            head + budget,
            *(["", *format_edit_table(table)] if table else []),
            *(f"  {note}" for note in list_plan_notes(plan)),
        ]
    )


def list_plan_notes(plan: Plan) -> list[str]:
    """What else is worth knowing: repairs, refusals, pins that were lifted, the quality of what is kept."""
    mended: dict[str, list[int]] = {}
    for repair in plan.repairs:
        mended.setdefault(repair.detail, []).append(repair.message + 1)
    lines = [f"mended first: {detail} (message {format_message_numbers(found)})" for detail, found in mended.items()]
    refused: dict[str, int] = {}
    for one in plan.refused:
        refused[one.reason] = refused.get(one.reason, 0) + one.parts
    lines += [
        f"not edited, {reason}: {parts:,}" for reason, parts in refused.items() if reason not in UNREPORTED_REFUSALS
    ]
    lines += [f"pinned, and let go as the options say: {plan.unpinned:,}"] if plan.unpinned else []
    lines += [f"quality: {plan.quality:.0%} of what is important is kept as it was"] if plan.quality is not None else []
    return [*lines, *plan.notes]


def _format_savings(plan: Plan) -> str:
    if not plan.tokens_before or not plan.saved:
        return "nothing to save"
    return f"−{plan.saved / plan.tokens_before:.0%}"
