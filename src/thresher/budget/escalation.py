"""Escalate to a budget: add edits one by one until the history fits or no edit is left."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

from thresher.budget.filling import Close, fill_budget, is_budget_used
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
    "marked": "content marked to stay",
}


def bind_policy(policy: Policy, scale: TokenWeights, budget: int | None = None) -> Policy:
    """Return the policy with these token weights, and with the plan's budget unless the policy has its own."""
    fields: Any = getattr(policy, "__dataclass_fields__", {})
    known: dict[str, Any] = {"scale": scale} if "scale" in fields else {}
    if budget and "budget" in fields and getattr(policy, "budget", None) is None:
        known["budget"] = budget
    bound: Policy = replace(policy, **known) if known else policy  # type: ignore[type-var]
    return bound


def lacks_budget(policy: Policy) -> bool:
    """Return whether a policy needs a budget and lacks one."""
    return getattr(policy, "requires_budget", False) and getattr(policy, "budget", None) is None


def propose_edits(
    history: History, policies: Iterable[Policy], scale: TokenWeights, budget: int | None = None
) -> Iterator[Edit]:
    """Yield the edits of several policies in order."""
    for policy in policies:
        if not callable(policy):
            raise OptionError(
                f"a policy must be a name or a callable that takes a history and yields edits, got {policy!r}"
            )
        for edit in bind_policy(policy, scale, budget)(history) or ():
            if not isinstance(edit, Edit):
                raise OptionError(f"policy {policy!r} must yield edits, got {edit!r}")
            yield edit


def make_step_policies(steps: Iterable[PolicyStep]) -> Iterator[Policy]:
    """Yield the policy of each step; a policy is made only when it is requested."""
    for name, options in steps:
        yield make_policy(name, **options)


EditTransform = Callable[[Edit], Edit | None]
"""A function that changes an edit before it is added, or returns None to skip it."""


def escalate_to_budget(
    draft: PlanDraft,
    steps: Iterable[PolicyStep],
    budget: int,
    thinking: ThinkingRule,
    *,
    force: bool = False,
    shape: EditTransform | None = None,
) -> PlanDraft:
    """Add edits until the closed draft fits the budget, and return it; if it never fits, return it with all edits.

    If the last edit removes far more than necessary, its parts are only truncated.
    """

    def close(open_draft: PlanDraft) -> PlanDraft:
        return close_draft(open_draft, thinking, force=force)

    start, draft = draft, draft.copy()
    closed, tokens = close(draft), draft.tokens
    if closed.tokens <= budget:
        return closed
    added: list[Edit] = []
    for proposed in propose_edits(draft.history, make_step_policies(steps), draft.token_weights):
        edit = proposed if shape is None else shape(proposed)
        # Close the draft again only when the edits added since the last close save enough to reach the budget.
        if edit is None or not draft.add(edit):
            continue
        if tokens - draft.tokens >= closed.tokens - budget:
            closed, tokens = close(draft), draft.tokens
            if closed.tokens <= budget:
                return (
                    closed
                    if is_budget_used(closed, budget)
                    else _soften_last(start, added, edit, closed, budget, close)
                )
        added.append(edit)
    return close(draft)


def _soften_last(
    start: PlanDraft, added: Iterable[Edit], last: Edit, closed: PlanDraft, budget: int, close: Close
) -> PlanDraft:
    """Return `closed`, or a draft that uses more of the budget because it only truncates the parts of the last edit."""
    before = start.copy()
    before.add_all(added)
    before.refusals = closed.refusals.copy()
    return fill_budget(before, closed, last, budget, close) or closed


def build_budget_error(closed: PlanDraft, budget: int) -> BudgetError:
    """Return an error with the smallest reachable size and the content that determines it."""
    sizes: dict[str, int] = {}
    for place, pin in closed.pins.items():
        name = PIN_DESCRIPTIONS[pin]
        sizes[name] = sizes.get(name, 0) + closed.current_weight(place)
    sizes["tool definitions"] = closed.token_weights.tools(closed.history.tools) if closed.history.tools else 0
    sizes["other required parts"] = closed.tokens - sum(sizes.values())
    ranked = sorted(((size, name) for name, size in sizes.items() if size > 0), reverse=True)
    content = ", ".join(f"{name} {size:,}" for size, name in ranked)
    return BudgetError(
        f"this history does not fit into {budget:,} tokens. Its smallest size is {closed.tokens:,} ({content}). "
        "Set a larger budget, or shorten the pinned parts (docs/glossary.md#fitting)",
        smallest=closed.tokens,
    )
