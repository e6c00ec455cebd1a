"""Decide to replan because the request does not fit or is illegal, because a replan pays off, or because it is free."""

from msgspec import Struct

from thresher.budget.thresholds import Thresholds
from thresher.edits import Plan, PlanDraft, ThinkingRule, list_targets
from thresher.model import Place
from thresher.window.break_even import BreakEven, find_best_break_even
from thresher.window.conversation import WindowConversation
from thresher.window.events import Trigger
from thresher.window.prices import Prices
from thresher.window.replan import ReplanContext, shrink_to_target, truncate_oversized_results
from thresher.window.veto import EditFilter, allow_all_edits

MIN_HIGH_WATER_SAVING = 0.15
"""Share of the budget that a replan at the high water mark must save."""
REASON_TEMPLATES = {
    "cold": "the cache is cold: removing {saved:,} tokens is free",
    "boundary": "a new human prompt: removed {saved:,} tokens of earlier content",
    "break_even": "re-sending {saved:,} removable tokens has cost as much as removing them",
    "piggyback": "the prefix changes anyway: removing {saved:,} tokens is free",
}


class ReplanDecision(Struct, frozen=True):
    """A replan and the reason for its timing."""

    trigger: Trigger
    reason: str
    draft: PlanDraft


def decide_forced_replan(
    conversation: WindowConversation,
    context: ReplanContext,
    thresholds: Thresholds,
    limit: int,
    edit_filter: EditFilter,
) -> ReplanDecision | None:
    """Decide on a replan that makes the request legal, makes it fit, or brings it below the high water mark."""
    target, high_water = int(limit * thresholds.low_water), limit * thresholds.high_water
    tokens = conversation.tokens
    if tokens > limit:
        truncated = context.close(context.draft_with(truncate_oversized_results(context, target, int(high_water))))
        if truncated.tokens <= high_water and truncated.decisions:
            return ReplanDecision("oversized_result", "a new result is larger than the space left for it", truncated)
        draft = shrink_to_target(context, target, limit, edit_filter, fits=False)
        if draft.tokens > limit:
            draft = shrink_to_target(context, target, limit, allow_all_edits, fits=False)
        return ReplanDecision("emergency", f"{tokens:,} tokens exceed the budget of {limit:,}", draft)
    if not conversation.is_legal:
        return ReplanDecision("repair", "the history was broken", context.close(context.resumed_draft))
    draft = shrink_to_target(context, target, limit, edit_filter, fits=True)
    # If gentle edits save little, every call would replan again, so wait until a replan is necessary.
    if tokens - draft.tokens < max(thresholds.min_saving, limit * MIN_HIGH_WATER_SAVING):
        return None
    reason = f"{tokens:,} tokens are over the high water mark, {thresholds.high_water:.0%} of {limit:,}"
    return ReplanDecision("high_water", reason, draft)


def decide_carried_edits(context: ReplanContext, conversation: WindowConversation) -> ReplanDecision | None:
    """Return a replan that applies the edits from another branch of the conversation, if they still save tokens."""
    draft = context.close(context.resumed_draft)
    saved = conversation.tokens - draft.tokens
    return ReplanDecision("piggyback", REASON_TEMPLATES["piggyback"].format(saved=saved), draft) if saved > 0 else None


def estimate_clearing(
    conversation: WindowConversation, prices: Prices, thresholds: Thresholds, cached: int, age: int
) -> tuple[BreakEven | None, int]:
    """Estimate the best replan that clears old results, and the tokens that clearing all old results would save."""
    old = [result for result in conversation.clearable_results if conversation.result_age(result) > age]
    tokens_before = conversation.tokens_before_message
    best = find_best_break_even(
        [(result.message_index, tokens_before[result.message_index], result.tokens_saved) for result in old],
        prices,
        tokens=conversation.tokens,
        cached=cached,
        further=thresholds.expected_calls(conversation.calls),
    )
    return best, sum(result.tokens_saved for result in old)


def is_replan_worthwhile(
    break_even: BreakEven | None, further: int, avoidable_cost: float, thresholds: Thresholds
) -> bool:
    """Return True if a replan pays off now.

    A replan that costs something waits until the avoidable cost is at least `patience` times the cost of the replan.
    This limits the loss if the replan comes too late, and also if the conversation ends soon after the replan.
    """
    if break_even is None or break_even.tokens_saved < thresholds.min_saving or break_even.net_gain(further) <= 0:
        return False
    return avoidable_cost >= thresholds.patience * max(0.0, break_even.cost)


def choose_protected_age(conversation: WindowConversation, budget: int, thresholds: Thresholds) -> int:
    """Return the age up to which results stay whole. It is so low that all younger results fit the low water mark."""
    room, age = budget * thresholds.low_water, thresholds.kept_age(budget)
    for result in reversed(conversation.clearable_results):
        room -= result.tokens_saved
        if room < 0:
            return min(age, int(conversation.result_age(result)))
    return age


def find_fill_start(
    decision: ReplanDecision, plan: Plan, conversation: WindowConversation, thinking: ThinkingRule
) -> Place:
    """Return the first place where a summary may change.

    This is the start of the history if the trigger allows it and no thinking depends on earlier text. Otherwise it is
    the first place that a new edit targets, or the end of the history without a new edit.
    """
    if decision.trigger in ("cold", "piggyback", "high_water", "emergency") and thinking == "free":
        return Place(0, 0)
    history = decision.draft.history
    new = (target for edit in plan.edits if edit.target not in conversation.edits for target in list_targets(edit))
    return min((history.places[target] for target in new), default=Place(len(history), 0))
