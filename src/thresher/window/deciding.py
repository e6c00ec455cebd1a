"""Whether to change what is sent, and how: because it must be, because it pays, or because it costs nothing."""

from collections.abc import Callable

from msgspec import Struct

from thresher.edits import Draft, Plan, ThinkingRule, settle, targets_of
from thresher.model import Place
from thresher.window.events import Trigger
from thresher.window.pace import Pace
from thresher.window.planning import Situation, arrivals, down_to, gentle, resumed
from thresher.window.prices import Prices
from thresher.window.sieve import Sieved, everything
from thresher.window.thread import Thread
from thresher.window.worth import Deal, best

ENOUGH = 0.15
"""The share of the budget that going down from the high water mark must save."""


class Decision(Struct, frozen=True):
    """A change, and why it is made now."""

    trigger: Trigger
    why: str
    draft: Draft


def must(thread: Thread, now: Situation, pace: Pace, limit: int, sieved: Sieved) -> Decision | None:
    """What a request needs to be sent at all, or to stay below the high water mark."""
    target = int(limit * pace.low)
    if thread.tokens > limit:
        cut = resumed(now)
        cut.add_all(arrivals(now, target, int(limit * pace.high)))
        settled = settle(cut, now.setup.thinking)
        if settled.tokens <= limit * pace.high and settled.fates:
            return Decision("arrival", "a result came that is larger than what is left", settled)
        draft = down_to(now, target, limit, sieved, fits=False)
        if draft.tokens > limit:
            draft = down_to(now, target, limit, everything, fits=False)
        return Decision("emergency", f"{thread.tokens:,} tokens do not fit into {limit:,}", draft)
    if not thread.is_legal:
        return Decision("repair", "the history came in broken", settle(resumed(now), now.setup.thinking))
    draft = down_to(now, target, limit, sieved, fits=True)
    why = f"{thread.tokens:,} tokens are over the high water mark, {pace.high:.0%} of {limit:,}"
    # Where little can go gently, each call would bring another re-plan: better to wait until it must be.
    enough = thread.tokens - draft.tokens >= max(pace.worth, limit * ENOUGH)
    return Decision("high", why, draft) if enough else None


def carry(now: Situation, thread: Thread) -> Decision | None:
    """Edits of before, for a conversation that took another turn: its beginning stays as the cache knows it."""
    draft = settle(resumed(now), now.setup.thinking)
    saved = thread.tokens - draft.tokens
    return Decision("ride", WHY["ride"].format(saved=saved), draft) if saved > 0 else None


def estimate(thread: Thread, prices: Prices, pace: Pace, cached: int, age: int) -> tuple[Deal | None, int]:
    """What clearing old results may come to, at a glance: the best place to begin, and all that could go."""
    old = [one for one in thread.results if thread.age(one) > age]
    offers = [(one.message, thread.before[one.message], one.saving) for one in old]
    found = best(offers, prices, tokens=thread.tokens, cached=cached, further=pace.further(thread.calls))
    return found, sum(one.saving for one in old)


def pays(found: Deal | None, further: int, rent: float, pace: Pace) -> bool:
    """Whether a change is worth it now.

    One that costs something waits until what it would have saved so far has come to as much: then neither was
    waiting long a mistake, nor will changing be one if the conversation ends soon.
    """
    if found is None or found.saved < pace.worth or found.gain(further) <= 0:
        return False
    return rent >= pace.patience * max(0.0, found.cost)


def may(
    trigger: Trigger, now: Callable[[], Situation], further: int, rent: float, pace: Pace, sieved: Sieved
) -> Decision | None:
    """What the policies want, if it pays."""
    offer = gentle(now(), sieved)
    if offer is None or not pays(offer[1], further, rent, pace):
        return None
    return Decision(trigger, WHY[trigger].format(saved=offer[1].saved), offer[0])


def age_kept(thread: Thread, budget: int, pace: Pace) -> int:
    """For how many calls results stay whole: what is younger shall fit below the low water mark."""
    room, age = budget * pace.low, pace.keeps(budget)
    for one in reversed(thread.results):
        room -= one.saving
        if room < 0:
            return min(age, int(thread.age(one)))
    return age


def fillable(decision: Decision, plan: Plan, thread: Thread, thinking: ThinkingRule) -> Place:
    """From where on summaries may be filled in: everywhere if nothing is bound to them, and all is paid for anew."""
    if decision.trigger in ("cold", "ride", "high", "emergency") and thinking == "free":
        return Place(0, 0)
    history = decision.draft.history
    new = (target for edit in plan.edits if edit.target not in thread.edits for target in targets_of(edit))
    return min((history.places[target] for target in new), default=Place(len(history), 0))


WHY = {
    "cold": "the cache is cold: {saved:,} tokens go for nothing",
    "boundary": "a new request of the human's: {saved:,} tokens of what came before go",
    "worth": "reading {saved:,} tokens again and again has cost as much as letting them go",
    "ride": "the beginning changed anyway: {saved:,} tokens ride along",
}
