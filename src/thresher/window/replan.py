"""Choose new edits for a conversation: only worthwhile ones if it fits the budget, otherwise as many as needed."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cached_property

from msgspec import Struct

from thresher.budget import presets
from thresher.budget.escalation import bind_policy, escalate_to_budget, lacks_budget, make_step_policies, propose_edits
from thresher.budget.filling import plan_truncation
from thresher.budget.fitting import PlanSetup, look_up_placeholders
from thresher.edits import Drop, Edit, PlanDraft, Summarize, Truncate, close_draft, list_targets
from thresher.model import History, Place
from thresher.policies import Policy, make_policy
from thresher.store import ContentStore
from thresher.window.break_even import BreakEven, find_best_break_even
from thresher.window.ledger import EditsByTarget
from thresher.window.prices import Prices
from thresher.window.veto import EditFilter, EditVeto, exclude_kept_parts

AUTO_POLICY = "auto"
WINDOW_POLICY = "window"
"""Policy name of the edits that only the window proposes."""
HARD_TARGET_SHARE = 0.8
"""Target size of a request that exceeds the budget, as a share of the budget. The rest is room for more calls."""
TRUNCATION_MARGIN = 0.9
"""A truncation keeps this share of the characters that should fit. The rest is a margin: the limit is in tokens."""


class ReplanContext(Struct, frozen=True, dict=True):
    """Input of a replan."""

    history: History
    """The repaired history, with nothing removed."""
    edits: EditsByTarget
    """Active edits."""
    carried_edits: EditsByTarget
    """Edits from another branch of the conversation. They may still apply to the messages that the branches share."""
    setup: PlanSetup
    policies: tuple[Policy, ...]
    prices: Prices
    cached_tokens: int
    """Tokens that the cache would serve if nothing changed."""
    expected_calls: int
    store: ContentStore
    opening: str | None = ""
    """Way in which the agent can open a placeholder; None if it cannot."""

    @cached_property
    def resumed_draft(self) -> PlanDraft:
        """A draft with the active and the carried edits. It is built once, so copy it before you add edits."""
        placeholders = look_up_placeholders(self.history, self.store)
        draft = PlanDraft(self.history, self.setup.scale, placeholders=placeholders, opening=self.opening)
        draft.resume(self.edits.values())
        draft.resume(self.carried_edits.values(), held=False)
        return draft

    def draft_with(self, edits: Sequence[Edit]) -> PlanDraft:
        """Return a copy of the resumed draft with `edits` added."""
        draft = self.resumed_draft.copy()
        draft.add_all(edits)
        return draft

    def close(self, draft: PlanDraft) -> PlanDraft:
        """Close a draft under the thinking rule of the setup."""
        return close_draft(draft, self.setup.thinking)


def plan_worthwhile_edits(context: ReplanContext, edit_filter: EditFilter) -> tuple[PlanDraft, BreakEven] | None:
    """Return a draft with the policies' edits, and their cost and saving; None if the edits save nothing.

    The edits begin at the message from which they are most profitable.
    """
    before = context.resumed_draft
    wanted = _propose_new_edits(context, edit_filter)
    best = find_best_break_even(
        _savings_by_message(before, context.close(context.draft_with(wanted))),
        context.prices,
        tokens=before.tokens,
        cached=context.cached_tokens,
        further=context.expected_calls,
    )
    if best is None or best.tokens_saved <= 0:
        return None
    behind = [edit for edit in wanted if _first_message(context.history, edit) >= best.first_message]
    return context.close(context.draft_with(behind)), best


def shrink_to_target(
    context: ReplanContext, target: int, limit: int, edit_filter: EditFilter, *, fits: bool
) -> PlanDraft:
    """Shrink to `target` tokens with gentle edits. If the history does not fit `limit`, also use stronger edits."""
    rule, setup = context.setup.thinking, context.setup
    is_auto = context.setup.policy_label == AUTO_POLICY
    gentle_steps = setup.escalation_steps(presets.DECAY_STEPS if is_auto else presets.GENTLE_STEPS)
    oversized = truncate_oversized_results(context, target, limit)
    draft = context.draft_with([*oversized, *_propose_new_edits(context, edit_filter, target)])

    if isinstance(edit_filter, EditVeto) and edit_filter.has_judge:
        # Ask the judge once about all edits of the gentle steps; later the filter gets them one by one.
        edit_filter(
            context.history, list(propose_edits(context.history, make_step_policies(gentle_steps), context.setup.scale))
        )

    def shape_gently(edit: Edit) -> Edit | None:
        kept = edit_filter(context.history, [edit]) if _is_new(context, edit) else []
        return _exclude_summarized(context, kept[0]) if kept else None

    def shape(edit: Edit) -> Edit | None:
        return _exclude_summarized(context, edit)

    shrunk = escalate_to_budget(draft, gentle_steps, target, rule, shape=shape_gently)
    hard_target, all_steps = int(limit * HARD_TARGET_SHARE), setup.escalation_steps()
    if not fits and shrunk.tokens > limit * HARD_TARGET_SHARE:
        # Leave room for more calls: otherwise each of them would need another replan.
        smaller = escalate_to_budget(draft, all_steps, hard_target, rule, shape=shape)
        if smaller.tokens <= limit * HARD_TARGET_SHARE or shrunk.tokens > limit:
            shrunk = smaller
    if shrunk.tokens > limit and rule == "strip_after_edit":
        shrunk = escalate_to_budget(draft, all_steps, hard_target, rule, force=True, shape=shape)
    return shrunk


def _propose_new_edits(context: ReplanContext, edit_filter: EditFilter, target: int | None = None) -> list[Edit]:
    """Return those edits of the policies that are new and pass the filter."""
    policies = _bind_target(context, target)
    proposed = propose_edits(context.history, policies, context.setup.scale)
    allowed = edit_filter(context.history, [edit for edit in proposed if _is_new(context, edit)])
    shaped = (_exclude_summarized(context, edit) for edit in allowed)
    return [edit for edit in shaped if edit is not None]


def _bind_target(context: ReplanContext, target: int | None) -> Iterator[Policy]:
    """Yield the policies that can work. A policy without the budget that it requires gets the target as its budget."""
    for policy in context.policies:
        if not lacks_budget(policy):
            yield policy
        elif target is not None:
            yield bind_policy(policy, context.setup.scale, target)


def _is_new(context: ReplanContext, edit: Edit) -> bool:
    """Return True unless an edit of the same kind is active on the part. Summaries and truncations are always new."""
    is_repeatable = isinstance(edit, Summarize | Truncate)
    return is_repeatable or type(context.edits.get(edit.target)) is not type(edit)


def _exclude_summarized(context: ReplanContext, edit: Edit) -> Edit | None:
    """Remove from a new summary the parts that an active edit summarizes or drops; return other edits unchanged."""
    if not isinstance(edit, Summarize):
        return edit
    active = (*context.edits.values(), *context.carried_edits.values())
    covered = {target for old in active if isinstance(old, Summarize | Drop) for target in list_targets(old)}
    return exclude_kept_parts(context.history, edit, covered)


def _savings_by_message(before: PlanDraft, after: PlanDraft) -> Iterator[tuple[int, int, int]]:
    """Yield each message with which new edits begin: its index, the tokens before it, and the tokens that they save.

    What an edit saves in later messages counts where it begins, because a replan makes it as a whole or not at all.
    """
    begins = _find_edit_begins(before, after)
    tokens_before, saved = [before.token_weights.tools(before.history.tools)], defaultdict[int, int](int)
    for index in range(len(before.history)):
        tokens = _count_message_tokens(before, index)
        saved[begins.get(index, index)] += tokens - _count_message_tokens(after, index)
        tokens_before.append(tokens_before[-1] + tokens)
    yield from ((index, tokens_before[index], tokens) for index, tokens in sorted(saved.items()) if tokens)


def _find_edit_begins(before: PlanDraft, after: PlanDraft) -> dict[int, int]:
    """Return for each newly edited message the first message of its edits."""
    begins: dict[int, int] = {}
    by_edit: dict[int, int] = {}
    for place, decision in after.decisions.items():
        known, edit = before.decisions.get(place), decision.edit
        if known is not None and known.edit == edit:
            continue
        if id(edit) not in by_edit:
            by_edit[id(edit)] = _first_message(after.history, edit)
        begins[place.message] = min(begins.get(place.message, place.message), by_edit[id(edit)])
    return begins


def _count_message_tokens(draft: PlanDraft, index: int) -> int:
    if not draft.has_parts_left(index):
        return 0
    tokens = draft.token_weights.message_overhead
    for part_index, weight in enumerate(draft.part_weights[index]):
        decision = draft.decisions.get(Place(index, part_index))
        tokens += weight if decision is None else decision.weight
    return tokens


def _first_message(history: History, edit: Edit) -> int:
    """Return the first message that an edit changes; a drop of a result also drops its call."""
    places = [history.places[target] for target in list_targets(edit) if target in history.places]
    if isinstance(edit, Drop):
        places += [history.chain_at[place].call for place in places if place in history.chain_at]
    return min(places).message if places else 0


def truncate_oversized_results(context: ReplanContext, target: int, limit: int) -> list[Edit]:
    """Return truncations of the results that would not fit even after a replan."""
    draft = context.resumed_draft
    truncations: list[Edit] = []
    for link in context.history.links:
        place = link.chain.result
        if place is None:
            continue
        weight = draft.current_weight(place)
        available = limit - min(draft.tokens - weight, target)
        if weight > available:
            cut = plan_truncation(
                draft, place, available * TRUNCATION_MARGIN, WINDOW_POLICY, "larger than what is left"
            )
            truncations += [cut] if cut is not None else []
    return truncations


def select_window_policies(label: str, policies: tuple[Policy, ...], age: int) -> tuple[Policy, ...]:
    """Return the policies that propose worthwhile edits; for `auto`, add policies that clear rarely used content."""
    if label != AUTO_POLICY:
        return policies
    return (*policies, *(make_policy(name, **options) for name, options in presets.make_clearing_steps(age)))
