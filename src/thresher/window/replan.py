"""New edits for a conversation on top of those that hold: gently where it may be, down to a size where it must."""

from collections.abc import Iterator, Sequence
from functools import cached_property

from msgspec import Struct

from thresher.budget import presets
from thresher.budget.escalation import escalate_to_budget, make_step_policies, propose_edits
from thresher.budget.fitting import PlanSetup, look_up_placeholders
from thresher.edits import Edit, PlanDraft, Summarize, Truncate, close_draft, elide_to_limit, list_targets
from thresher.model import History, Place, part_text
from thresher.policies import Policy, make_policy
from thresher.store import ContentStore
from thresher.window.break_even import BreakEven, find_best_break_even
from thresher.window.ledger import EditsByTarget
from thresher.window.prices import Prices
from thresher.window.veto import EditFilter, EditVeto, exclude_kept_parts

AUTO_POLICY = "auto"
WINDOW_POLICY = "window"
"""The policy that is named for what only the window wanted."""
HARD_TARGET_SHARE = 0.8
"""The share of the limit to which what hurts goes down, where it can."""
TRUNCATION_MARGIN = 0.9
"""What is cut by characters is measured in tokens: a tenth less is kept than should fit."""


class ReplanContext(Struct, frozen=True, dict=True):
    """What a plan is made for."""

    history: History
    """As its API takes it, with nothing left out."""
    edits: EditsByTarget
    """Those that hold."""
    carried_edits: EditsByTarget
    """Those of before, for a past that has taken another turn."""
    setup: PlanSetup
    policies: tuple[Policy, ...]
    prices: Prices
    cached_tokens: int
    """Tokens that the cache would serve if nothing changed."""
    expected_calls: int
    store: ContentStore

    @cached_property
    def resumed_draft(self) -> PlanDraft:
        """The edits that hold, and no others; made once, so whoever adds to it copies it first."""
        draft = PlanDraft(self.history, self.setup.scale, placeholders=look_up_placeholders(self.history, self.store))
        draft.resume(self.edits.values())
        draft.resume(self.carried_edits.values(), held=False)
        return draft


def plan_worthwhile_edits(now: ReplanContext, sieved: EditFilter) -> tuple[PlanDraft, BreakEven] | None:
    """What the policies want, from the place on where it pays best; None where they want nothing new."""
    before = now.resumed_draft
    wanted = _propose_new_edits(now, sieved)
    settled = close_draft(_add_edits(before, wanted), now.setup.thinking)
    found = find_best_break_even(
        _savings_by_message(before, settled),
        now.prices,
        tokens=before.tokens,
        cached=now.cached_tokens,
        further=now.expected_calls,
    )
    if found is None or found.tokens_saved <= 0:
        return None
    behind = [edit for edit in wanted if _first_place(now.history, edit).message >= found.first_message]
    return close_draft(_add_edits(before, behind), now.setup.thinking), found


def shrink_to_target(now: ReplanContext, target: int, limit: int, sieved: EditFilter, *, fits: bool) -> PlanDraft:
    """As small as `target` where that does not hurt; if it does not fit, below `limit` whatever it takes."""
    rule, ladder = now.setup.thinking, now.setup.settings.escalation_steps()
    gentle_steps = now.setup.settings.escalation_steps(
        presets.DECAY_STEPS if now.setup.policy_label == AUTO_POLICY else presets.GENTLE_STEPS
    )
    draft = _add_edits(
        now.resumed_draft, [*truncate_oversized_results(now, target, limit), *_propose_new_edits(now, sieved)]
    )

    if isinstance(sieved, EditVeto) and sieved.has_judge:
        sieved(now.history, list(propose_edits(now.history, make_step_policies(gentle_steps), now.setup.scale)))

    def gently(edit: Edit) -> Edit | None:
        kept = sieved(now.history, [edit]) if _is_new(now, edit) else []
        return _exclude_summarized(now, kept[0]) if kept else None

    def hard(edit: Edit) -> Edit | None:
        return _exclude_summarized(now, edit)

    settled = escalate_to_budget(draft, gentle_steps, target, rule, shape=gently)
    if not fits and settled.tokens > limit * HARD_TARGET_SHARE:
        # With room for some calls more: else each of them would need another plan.
        roomy = escalate_to_budget(draft, ladder, int(limit * HARD_TARGET_SHARE), rule, shape=hard)
        settled = roomy if roomy.tokens <= limit * HARD_TARGET_SHARE or settled.tokens > limit else settled
    if settled.tokens > limit and rule == "strip_after_edit":
        settled = escalate_to_budget(draft, ladder, int(limit * HARD_TARGET_SHARE), rule, force=True, shape=hard)
    return settled


def _propose_new_edits(now: ReplanContext, sieved: EditFilter) -> list[Edit]:
    """What the policies want, without what is held back."""
    proposed = propose_edits(now.history, now.policies, now.setup.scale)
    wanted = sieved(now.history, [edit for edit in proposed if _is_new(now, edit)])
    told = (_exclude_summarized(now, edit) for edit in wanted)
    return [edit for edit in told if edit is not None]


def _is_new(now: ReplanContext, edit: Edit) -> bool:
    """Whether an edit does more than one that holds: a pointer to what has one says nothing new."""
    return (
        isinstance(edit, Summarize) or type(now.edits.get(edit.target)) is not type(edit) or isinstance(edit, Truncate)
    )


def _exclude_summarized(now: ReplanContext, edit: Edit) -> Edit | None:
    """A fold that takes in parts of an earlier one tells of the others alone."""
    if not isinstance(edit, Summarize):
        return edit
    earlier = (old for old in (*now.edits.values(), *now.carried_edits.values()) if isinstance(old, Summarize))
    return exclude_kept_parts(now.history, edit, {target for old in earlier for target in old.targets})


def _add_edits(draft: PlanDraft, edits: Sequence[Edit]) -> PlanDraft:
    other = draft.copy()
    other.add_all(edits)
    return other


def _savings_by_message(before: PlanDraft, after: PlanDraft) -> Iterator[tuple[int, int, int]]:
    """For each message that the second draft makes smaller: its place, the tokens before it, what goes there."""
    tokens = before.token_weights.tools(before.history.tools)
    for index in range(len(before.history)):
        now = _count_message_tokens(before, index)
        gone = now - _count_message_tokens(after, index)
        if gone:
            yield index, tokens, gone
        tokens += now


def _count_message_tokens(draft: PlanDraft, index: int) -> int:
    if not draft.has_parts_left(index):
        return 0
    weights = draft.part_weights[index]
    fates = (draft.decisions.get(Place(index, j)) for j in range(len(weights)))
    return draft.token_weights.message_overhead + sum(
        w if fate is None else fate.weight for w, fate in zip(weights, fates, strict=True)
    )


def _first_place(history: History, edit: Edit) -> Place:
    return min(
        (history.places[target] for target in list_targets(edit) if target in history.places), default=Place(0, 0)
    )


def truncate_oversized_results(now: ReplanContext, target: int, limit: int) -> list[Edit]:
    """Cuts of results that have just come and are larger than what is left for them, even after a re-plan."""
    draft = now.resumed_draft
    cuts: list[Edit] = []
    for link in now.history.links:
        place, result = link.chain.result, link.result
        if place is None or result is None or not link.chain.active:
            continue
        weight = draft.original_weight(place)
        left = limit - min(draft.tokens - weight, target)
        text = part_text(result)
        if weight > left:
            gaps = elide_to_limit(text, max(0, int(len(text) * left / weight * TRUNCATION_MARGIN)))
            cuts += (
                [Truncate(now.history.occurrence(place), WINDOW_POLICY, "larger than what is left", gaps)]
                if gaps
                else []
            )
    return cuts


def select_window_policies(label: str, policies: tuple[Policy, ...], age: int) -> tuple[Policy, ...]:
    """What a window clears as soon as it pays: what its policies want; for `auto` what is rarely asked for again."""
    if label != AUTO_POLICY:
        return policies
    return (*policies, *(make_policy(name, **options) for name, options in presets.make_clearing_steps(age)))
