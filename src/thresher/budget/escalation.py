"""The way down to a budget: step by step, edit by edit, until the history fits, or nothing more may go."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

from thresher.budget.presets import PolicyStep
from thresher.edits import Edit, PlanDraft, ThinkingRule, close_draft
from thresher.errors import BudgetError, OptionError
from thresher.model import History
from thresher.policies import Policy, make_policy
from thresher.tokens import TokenWeights

PIN_DESCRIPTIONS = {
    "system": "system text",
    "injection": "injected context",
    "current": "the latest request",
    "active": "the open tool calls",
}


def bind_policy(policy: Policy, scale: TokenWeights, budget: int | None = None) -> Policy:
    """The policy, counting with this scale, and with the plan's budget where it has none of its own."""
    fields: Any = getattr(policy, "__dataclass_fields__", {})
    known: dict[str, Any] = {"scale": scale} if "scale" in fields else {}
    if budget and "budget" in fields and getattr(policy, "budget", None) is None:
        known["budget"] = budget
    bound: Policy = replace(policy, **known) if known else policy  # type: ignore[type-var]
    return bound


def propose_edits(
    history: History, policies: Iterable[Policy], scale: TokenWeights, budget: int | None = None
) -> Iterator[Edit]:
    """The edits of several policies, one after the other."""
    for policy in policies:
        if not callable(policy):
            raise OptionError(f"a policy is a name or takes a history and yields edits; {policy!r} is neither")
        for edit in bind_policy(policy, scale, budget)(history) or ():
            if not isinstance(edit, Edit):
                raise OptionError(f"policy {policy!r} yielded {edit!r}, which is no edit")
            yield edit


def make_step_policies(steps: Iterable[PolicyStep]) -> Iterator[Policy]:
    """The policies of a ladder, each made when it is needed."""
    for name, options in steps:
        yield make_policy(name, **options)


EditTransform = Callable[[Edit], Edit | None]
"""What becomes of an edit before it is taken: another one, or none."""


def escalate_to_budget(
    draft: PlanDraft,
    steps: Iterable[PolicyStep],
    budget: int,
    thinking: ThinkingRule,
    *,
    force: bool = False,
    shape: EditTransform | None = None,
) -> PlanDraft:
    """The draft, settled, with as few further edits as make it fit; as small as it gets if nothing does."""
    draft = draft.copy()
    settled, weight = close_draft(draft, thinking, force=force), draft.tokens
    if settled.tokens <= budget:
        return settled
    for proposed in propose_edits(draft.history, make_step_policies(steps), draft.token_weights):
        edit = proposed if shape is None else shape(proposed)
        # Settling may give something back, so it is done again only when enough was saved on top of that.
        if edit is not None and draft.add(edit) and weight - draft.tokens >= settled.tokens - budget:
            settled, weight = close_draft(draft, thinking, force=force), draft.tokens
            if settled.tokens <= budget:
                return settled
    return close_draft(draft, thinking, force=force)


def build_budget_error(settled: PlanDraft, budget: int) -> BudgetError:
    """Why a budget cannot be met: how small it gets, and what holds it there."""
    held: dict[str, int] = {}
    for place, pin in settled.pins.items():
        fate = settled.decisions.get(place)
        held[pin] = held.get(pin, 0) + (
            settled.part_weights[place.message][place.part] if fate is None else fate.weight
        )
    held = {PIN_DESCRIPTIONS[pin]: weight for pin, weight in held.items() if weight}
    held["tool definitions"] = settled.token_weights.tools(settled.history.tools) if settled.history.tools else 0
    held["what else must stay"] = settled.tokens - sum(held.values())
    parts = sorted(((weight, what) for what, weight in held.items() if weight > 0), reverse=True)
    told = ", ".join(f"{what} {weight:,}" for weight, what in parts)
    return BudgetError(
        f"this history does not fit into {budget:,} tokens: the smallest it can be is {settled.tokens:,} ({told}); "
        "give a larger budget, or shorten what is pinned",
        smallest=settled.tokens,
    )
