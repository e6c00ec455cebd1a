"""New edits for a conversation on top of those that hold: gently where it may be, down to a size where it must."""

from collections.abc import Iterator, Sequence

from msgspec import Struct

from thresher.budget import presets
from thresher.budget.fitting import Setup, stand_ins
from thresher.budget.ladder import descend, proposals, steps_down
from thresher.edits import Cut, Draft, Edit, Fold, settle, targets_of, to_limit
from thresher.model import History, Place, part_text
from thresher.policies import Policy, make_policy
from thresher.store import Store
from thresher.window.ledger import Edits
from thresher.window.prices import Prices
from thresher.window.sieve import Sieve, Sieved, without
from thresher.window.worth import Deal, best

AUTO = "auto"
POLICY = "window"
"""The policy that is named for what only the window wanted."""
ROOM = 0.8
"""The share of the limit to which what hurts goes down, where it can."""
CAUTION = 0.9
"""What is cut by characters is measured in tokens: a tenth less is kept than should fit."""


class Situation(Struct, frozen=True):
    """What a plan is made for."""

    history: History
    """As its API takes it, with nothing left out."""
    edits: Edits
    """Those that hold."""
    carried: Edits
    """Those of before, for a past that has taken another turn."""
    setup: Setup
    policies: tuple[Policy, ...]
    prices: Prices
    cached: int
    """Tokens that the cache would serve if nothing changed."""
    further: int
    store: Store


def resumed(now: Situation) -> Draft:
    """The edits that hold, and no others."""
    draft = Draft(now.history, now.setup.scale, believed=stand_ins(now.history, now.store))
    draft.resume(now.edits.values())
    draft.resume(now.carried.values(), held=False)
    return draft


def gentle(now: Situation, sieved: Sieved) -> tuple[Draft, Deal] | None:
    """What the policies want, from the place on where it pays best; None where they want nothing new."""
    before = resumed(now)
    wanted = _wanted(now, sieved)
    settled = settle(_with(before, wanted), now.setup.thinking)
    found = best(_offers(before, settled), now.prices, tokens=before.tokens, cached=now.cached, further=now.further)
    if found is None or found.saved <= 0:
        return None
    behind = [edit for edit in wanted if _first(now.history, edit).message >= found.start]
    return settle(_with(before, behind), now.setup.thinking), found


def down_to(now: Situation, target: int, limit: int, sieved: Sieved, *, fits: bool) -> Draft:
    """As small as `target` where that does not hurt; if it does not fit, below `limit` whatever it takes."""
    rule, ladder = now.setup.thinking, now.setup.settings.ladder()
    gentle_steps = now.setup.settings.ladder(presets.FADING if now.setup.label == AUTO else presets.GENTLE)
    draft = _with(resumed(now), [*arrivals(now, target, limit), *_wanted(now, sieved)])

    if isinstance(sieved, Sieve) and sieved.asks:
        sieved(now.history, list(proposals(now.history, steps_down(gentle_steps), now.setup.scale)))

    def gently(edit: Edit) -> Edit | None:
        kept = sieved(now.history, [edit]) if _is_new(now, edit) else []
        return _retold(now, kept[0]) if kept else None

    def hard(edit: Edit) -> Edit | None:
        return _retold(now, edit)

    settled = descend(draft, gentle_steps, target, rule, shape=gently)
    if not fits and settled.tokens > limit * ROOM:
        # With room for some calls more: else each of them would need another plan.
        roomy = descend(draft, ladder, int(limit * ROOM), rule, shape=hard)
        settled = roomy if roomy.tokens <= limit * ROOM or settled.tokens > limit else settled
    if settled.tokens > limit and rule == "strip_after_edit":
        settled = descend(draft, ladder, int(limit * ROOM), rule, force=True, shape=hard)
    return settled


def _wanted(now: Situation, sieved: Sieved) -> list[Edit]:
    """What the policies want, without what is held back."""
    proposed = proposals(now.history, now.policies, now.setup.scale)
    wanted = sieved(now.history, [edit for edit in proposed if _is_new(now, edit)])
    told = (_retold(now, edit) for edit in wanted)
    return [edit for edit in told if edit is not None]


def _is_new(now: Situation, edit: Edit) -> bool:
    """Whether an edit does more than one that holds: a pointer to what has one says nothing new."""
    return isinstance(edit, Fold) or type(now.edits.get(edit.target)) is not type(edit) or isinstance(edit, Cut)


def _retold(now: Situation, edit: Edit) -> Edit | None:
    """A fold that takes in parts of an earlier one tells of the others alone."""
    if not isinstance(edit, Fold):
        return edit
    earlier = (old for old in (*now.edits.values(), *now.carried.values()) if isinstance(old, Fold))
    return without(now.history, edit, {target for old in earlier for target in old.targets})


def _with(draft: Draft, edits: Sequence[Edit]) -> Draft:
    other = draft.copy()
    other.add_all(edits)
    return other


def _offers(before: Draft, after: Draft) -> Iterator[tuple[int, int, int]]:
    """For each message that the second draft makes smaller: its place, the tokens before it, what goes there."""
    tokens = before.scale.tools(before.history.tools)
    for index in range(len(before.history)):
        now = _weight(before, index)
        gone = now - _weight(after, index)
        if gone:
            yield index, tokens, gone
        tokens += now


def _weight(draft: Draft, index: int) -> int:
    if not draft.alive(index):
        return 0
    weights = draft.weights[index]
    fates = (draft.fates.get(Place(index, j)) for j in range(len(weights)))
    return draft.scale.overhead + sum(
        w if fate is None else fate.weight for w, fate in zip(weights, fates, strict=True)
    )


def _first(history: History, edit: Edit) -> Place:
    return min((history.places[target] for target in targets_of(edit) if target in history.places), default=Place(0, 0))


def arrivals(now: Situation, target: int, limit: int) -> list[Edit]:
    """Cuts of results that have just come and are larger than what is left for them, even after a re-plan."""
    draft = resumed(now)
    cuts: list[Edit] = []
    for link in now.history.links:
        place, result = link.chain.result, link.result
        if place is None or result is None or not link.chain.active:
            continue
        weight = draft.weights[place.message][place.part]
        left = limit - min(draft.tokens - weight, target)
        text = part_text(result)
        if weight > left:
            gaps = to_limit(text, max(0, int(len(text) * left / weight * CAUTION)))
            cuts += [Cut(now.history.occurrence(place), POLICY, "larger than what is left", gaps)] if gaps else []
    return cuts


def chaff(label: str, policies: tuple[Policy, ...], age: int) -> tuple[Policy, ...]:
    """What a window clears as soon as it pays: what its policies want; for `auto` what is rarely asked for again."""
    if label != AUTO:
        return policies
    return (*policies, *(make_policy(name, **options) for name, options in presets.chaff(age)))
