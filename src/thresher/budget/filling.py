"""Use the budget: if the last edit of an escalation removed far more than necessary, truncate its parts instead.

A policy replaces, drops or truncates a part as a whole. For a large part, that may leave most of the budget unused.
Then its parts keep as much of their head and tail as fits.
"""

from collections.abc import Callable, Iterator
from itertools import pairwise

from msgspec import structs

from thresher.edits import Edit, Elision, Pin, PlanDraft, Truncate, elide_further, elide_long_arguments
from thresher.edits.placeholder import ID_SLOT
from thresher.edits.rewrite import truncate_part
from thresher.edits.truncate import merge_elisions
from thresher.model import History, Place, Text, ToolCall, ToolResult, part_text

Close = Callable[[PlanDraft], PlanDraft]
"""Function that closes a draft."""
MIN_USED_SHARE = 0.8
"""Share of the budget below which the last edit removed too much."""
GOAL_SHARE = 0.98
"""Share of the budget that truncations aim for. The rest is a margin: they are measured in characters."""
GOOD_SHARE = 0.93
"""Share of the budget that needs no better truncation."""
MIN_KEPT_TOKENS = 100
"""Minimum tokens of a truncated part; less is of little use."""
MAX_ATTEMPTS, MAX_MEASUREMENTS = 4, 8
WHY = "as far as the budget requires"


def is_budget_used(closed: PlanDraft, budget: int) -> bool:
    """Return whether a fitting draft uses most of the budget."""
    return closed.tokens >= budget * MIN_USED_SHARE


def fill_budget(before: PlanDraft, after: PlanDraft, edit: Edit, budget: int, close: Close) -> PlanDraft | None:
    """Return `before`, closed, with truncations instead of the edit that led to `after`; None if they use no more.

    The part of the edit that only removes repeated lines stays.
    """
    folded = _keep_repetitions(before.history, edit)
    if folded is not None:
        before = before.copy()
        if before.add(folded) and close(before).tokens <= budget:
            return close(before)
    places = list(_list_shrunk(before, after))
    best: PlanDraft | None = None
    goal = budget * GOAL_SHARE
    excess = close(before).tokens - goal
    for _ in range(MAX_ATTEMPTS):
        limit = _level([before.current_weight(place) for place in places], excess)
        if limit < MIN_KEPT_TOKENS:
            break
        draft = before.copy()
        cuts = (plan_truncation(before, place, limit, edit.policy, WHY, over=edit.over) for place in places)
        draft.add_all(cut for cut in cuts if cut is not None)
        closed = close(draft)
        if closed.tokens <= budget and (best is None or closed.tokens > best.tokens):
            best = closed
        if best is not None and best.tokens >= budget * GOOD_SHARE:
            break
        excess += closed.tokens - goal
    return best


def _keep_repetitions(history: History, edit: Edit) -> Edit | None:
    """Return the edit with only those spans that repeat the line before them; None if there is none."""
    if not isinstance(edit, Truncate):
        return None
    text = part_text(history.part(history.places[edit.target]))
    repeated = [gap for gap in edit.gaps if gap.start < gap.stop and _is_repetition(text, gap)]
    markers = [gap for gap in edit.gaps if gap.start == gap.stop]
    return structs.replace(edit, gaps=(*repeated, *markers)) if repeated and markers else None


def _is_repetition(text: str, gap: Elision) -> bool:
    line = text[text.rfind("\n", 0, gap.start) + 1 : gap.start].rstrip()
    removed = text[gap.start : gap.stop].splitlines()[1:]
    return gap.start > 0 and bool(removed) and all(one.rstrip() == line for one in removed)


def _list_shrunk(before: PlanDraft, after: PlanDraft) -> Iterator[Place]:
    """Yield the places of text of which the second draft keeps less."""
    for place, decision in after.decisions.items():
        is_text = isinstance(before.history.part(place), Text | ToolResult | ToolCall)
        if is_text and decision.weight < before.current_weight(place):
            yield place


def _level(weights: list[int], excess: float) -> float:
    """Return the limit for each part that makes all of them together smaller by `excess`; 0 if there is none."""
    ranked = [*sorted(weights, reverse=True), 0]
    total = 0
    for count, (weight, next_weight) in enumerate(pairwise(ranked), 1):
        total += weight
        limit = (total - excess) / count
        if limit >= next_weight:
            return limit
    return 0


def plan_truncation(
    draft: PlanDraft, place: Place, limit: float, policy: str, why: str, *, over: Pin = ""
) -> Truncate | None:
    """Return the truncation of a part to at most `limit` tokens; None if the part is smaller or has no text."""
    part, weight, decision = draft.history.part(place), draft.current_weight(place), draft.decisions.get(place)
    if weight <= limit or not isinstance(part, Text | ToolResult | ToolCall):
        return None
    gaps = decision.edit.gaps if decision is not None and isinstance(decision.edit, Truncate) else ()
    best: tuple[Elision, ...] = ()
    low, low_weight = 0, 0
    high, high_weight = len(part_text(part)) - sum(gap.stop - gap.start - len(gap.note) for gap in gaps), weight
    for _ in range(MAX_MEASUREMENTS):
        # Interpolate, because some characters take more tokens than others.
        share = (limit * GOAL_SHARE - low_weight) / max(1, high_weight - low_weight)
        size = low + int((high - low) * min(1.0, max(0.0, share)))
        found = merge_elisions((*gaps, *_elide(part, gaps, size)))
        after = truncate_part(part, found, ID_SLOT)
        if after is None:
            break
        weight = draft.token_weights.part(after)
        if weight > limit:
            high, high_weight = size, weight
            continue
        best, low, low_weight = found, size, weight
        if weight >= limit * GOOD_SHARE:
            break
    return Truncate(draft.history.occurrence(place), policy, why, best, over) if best else None


def _elide(part: Text | ToolResult | ToolCall, gaps: tuple[Elision, ...], size: int) -> tuple[Elision, ...]:
    """Return the spans to elide so that a part, already without `gaps`, has about `size` characters."""
    text = part_text(part)
    return elide_long_arguments(text, size) if isinstance(part, ToolCall) else elide_further(text, gaps, size)
