"""Whether to change what is sent, and how: because it must be, because it pays, or because it costs nothing."""

from collections.abc import Callable

from msgspec import Struct

from thresher.budget.thresholds import Thresholds
from thresher.edits import Plan, PlanDraft, ThinkingRule, close_draft, list_targets
from thresher.model import Place
from thresher.window.break_even import BreakEven, find_best_break_even
from thresher.window.conversation import WindowConversation
from thresher.window.events import Trigger
from thresher.window.prices import Prices
from thresher.window.replan import (
    ReplanContext,
    plan_worthwhile_edits,
    shrink_to_target,
    truncate_oversized_results,
)
from thresher.window.veto import EditFilter, allow_all_edits

MIN_HIGH_WATER_SAVING = 0.15
"""The share of the budget that going down from the high water mark must save."""


class ReplanDecision(Struct, frozen=True):
    """A change, and why it is made now."""

    trigger: Trigger
    reason: str
    draft: PlanDraft


def decide_forced_replan(
    thread: WindowConversation, now: ReplanContext, thresholds: Thresholds, limit: int, sieved: EditFilter
) -> ReplanDecision | None:
    """What a request needs to be sent at all, or to stay below the high water mark."""
    target = int(limit * thresholds.low_water)
    if thread.tokens > limit:
        cut = now.resumed_draft.copy()
        cut.add_all(truncate_oversized_results(now, target, int(limit * thresholds.high_water)))
        settled = close_draft(cut, now.setup.thinking)
        if settled.tokens <= limit * thresholds.high_water and settled.decisions:
            return ReplanDecision("oversized_result", "a result came that is larger than what is left", settled)
        draft = shrink_to_target(now, target, limit, sieved, fits=False)
        if draft.tokens > limit:
            draft = shrink_to_target(now, target, limit, allow_all_edits, fits=False)
        return ReplanDecision("emergency", f"{thread.tokens:,} tokens do not fit into {limit:,}", draft)
    if not thread.is_legal:
        return ReplanDecision(
            "repair", "the history came in broken", close_draft(now.resumed_draft, now.setup.thinking)
        )
    draft = shrink_to_target(now, target, limit, sieved, fits=True)
    why = f"{thread.tokens:,} tokens are over the high water mark, {thresholds.high_water:.0%} of {limit:,}"
    # Where little can go gently, each call would bring another re-plan: better to wait until it must be.
    enough = thread.tokens - draft.tokens >= max(thresholds.min_saving, limit * MIN_HIGH_WATER_SAVING)
    return ReplanDecision("high_water", why, draft) if enough else None


def decide_carried_edits(now: ReplanContext, thread: WindowConversation) -> ReplanDecision | None:
    """Edits of before, for a conversation that took another turn: its beginning stays as the cache knows it."""
    draft = close_draft(now.resumed_draft, now.setup.thinking)
    saved = thread.tokens - draft.tokens
    return ReplanDecision("piggyback", REASON_TEMPLATES["piggyback"].format(saved=saved), draft) if saved > 0 else None


def estimate_clearing(
    thread: WindowConversation, prices: Prices, thresholds: Thresholds, cached: int, age: int
) -> tuple[BreakEven | None, int]:
    """What clearing old results may come to, at a glance: the best place to begin, and all that could go."""
    old = [one for one in thread.clearable_results if thread.result_age(one) > age]
    offers = [(one.message_index, thread.tokens_before_message[one.message_index], one.tokens_saved) for one in old]
    found = find_best_break_even(
        offers, prices, tokens=thread.tokens, cached=cached, further=thresholds.expected_calls(thread.calls)
    )
    return found, sum(one.tokens_saved for one in old)


def is_replan_worthwhile(found: BreakEven | None, further: int, rent: float, thresholds: Thresholds) -> bool:
    """Whether a change is worth it now.

    One that costs something waits until what it would have saved so far has come to as much: then neither was
    waiting long a mistake, nor will changing be one if the conversation ends soon.
    """
    if found is None or found.tokens_saved < thresholds.min_saving or found.net_gain(further) <= 0:
        return False
    return rent >= thresholds.patience * max(0.0, found.cost)


def decide_optional_replan(
    trigger: Trigger,
    now: Callable[[], ReplanContext],
    further: int,
    rent: float,
    thresholds: Thresholds,
    sieved: EditFilter,
) -> ReplanDecision | None:
    """What the policies want, if it pays."""
    offer = plan_worthwhile_edits(now(), sieved)
    if offer is None or not is_replan_worthwhile(offer[1], further, rent, thresholds):
        return None
    return ReplanDecision(trigger, REASON_TEMPLATES[trigger].format(saved=offer[1].tokens_saved), offer[0])


def choose_protected_age(thread: WindowConversation, budget: int, thresholds: Thresholds) -> int:
    """For how many calls results stay whole: what is younger shall fit below the low water mark."""
    room, age = budget * thresholds.low_water, thresholds.kept_age(budget)
    for one in reversed(thread.clearable_results):
        room -= one.tokens_saved
        if room < 0:
            return min(age, int(thread.result_age(one)))
    return age


def find_fill_start(decision: ReplanDecision, plan: Plan, thread: WindowConversation, thinking: ThinkingRule) -> Place:
    """From where on summaries may be filled in: everywhere if nothing is bound to them, and all is paid for anew."""
    if decision.trigger in ("cold", "piggyback", "high_water", "emergency") and thinking == "free":
        return Place(0, 0)
    history = decision.draft.history
    new = (target for edit in plan.edits if edit.target not in thread.edits for target in list_targets(edit))
    return min((history.places[target] for target in new), default=Place(len(history), 0))


REASON_TEMPLATES = {
    "cold": "the cache is cold: {saved:,} tokens go for nothing",
    "boundary": "a new request of the human's: {saved:,} tokens of what came before go",
    "break_even": "reading {saved:,} tokens again and again has cost as much as letting them go",
    "piggyback": "the beginning changed anyway: {saved:,} tokens ride along",
}
