"""The front door: any history in, the same kind out, small enough, and nothing lost.

`plan` is pure but for looking up stand-ins that the history already holds; `fit` writes what is left out into the
store before it hands out anything that stands in for it.
"""

import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar, Unpack, get_args

from msgspec import Struct, structs

from thresher.budget.escalation import build_budget_error, escalate_to_budget, propose_edits
from thresher.budget.options import PlanOptions
from thresher.budget.presets import PolicyStep
from thresher.budget.settings import Settings, load_settings
from thresher.dialects import emit
from thresher.dialects.intake import Messages, read_with_dialect
from thresher.edits import (
    Plan,
    PlanDraft,
    Summarize,
    ThinkingRule,
    apply,
    close_draft,
    find_verified_placeholders,
    finish_plan,
    list_targets,
    repair,
)
from thresher.errors import OptionError
from thresher.model import History, Place, Session
from thresher.policies import Policy, PolicyLike, make_policy
from thresher.policies.table import policy_name
from thresher.store import ContentStore, StoreError, compute_summary_id, default_content_store, exact_id
from thresher.tokens import TokenWeights, find_model, find_model_name, token_weights_for

DEFAULT_WINDOW_SHARE = 0.7
"""The part of a model's window that a history may fill when no budget is given."""
DEFAULT_CONTEXT_WINDOW = 200_000
"""The window that `auto` thinks of when no model is named."""


NON_SETTINGS = ("thinking", "counter", "scale")
"""Options that are given with a call only, never by a file or the environment."""


class FitResult(Struct, frozen=True):
    """A history that fits, and the plan that made it."""

    history: History
    plan: Plan


def plan(
    history: Messages,
    *,
    policy: PolicyLike | None = None,
    dialect: str | None = None,
    store: ContentStore | None = None,
    **options: Unpack[PlanOptions],
) -> Plan:
    """Plan what to remove from a history, and why; `apply` does it.

    `policy` is a preset, a policy's name, a policy, or a list of them; `budget` a number of tokens (`60_000`,
    `"60k"`). Without a budget, and with a `model`, it is 70 % of the model's window. `dialect` says whose rules
    must hold (None: those of all four APIs), `thinking` what an edit means for signed thinking behind it (by default
    what the model wants), `scale` what tokens are weighed with (by default the model's, with the named `counter`),
    `store` where placeholders are looked up. `PlanOptions` lists the other options: `exclude_tools=("Edit",)`.
    """
    told, dialect = read_with_dialect(history, dialect)
    return _plan_repaired(told, resolve_plan_setup(told, policy, options), dialect, store)[0]


def _plan_repaired(
    history: History, setup: "PlanSetup", dialect: str | None, store: ContentStore | None
) -> tuple[Plan, History]:
    """Return the plan, and the history that it is for: repaired, where that was needed."""
    mended = repair(history, dialect)
    draft = PlanDraft(
        mended.history, setup.scale, placeholders=look_up_placeholders(mended.history, store or default_content_store())
    )
    draft.add_all(propose_edits(mended.history, setup.policies, setup.scale, setup.budget))
    settled, forced = _escalate_to_budget(draft, setup)
    made = finish_plan(settled, setup.thinking)
    unused = setup.settings.unused_option_notes(setup.policies, setup.budget)
    made = structs.replace(
        made,
        policy=setup.policy_label,
        budget=setup.budget,
        dialect=dialect,
        repairs=mended.repairs,
        notes=(*made.notes, *_collect_policy_notes(setup.policies, mended.history), *unused, *forced),
        quality=_quality(settled) if "exchanges" in {edit.policy for edit in made.edits} else None,
    )
    return made, mended.history


class PlanSetup(Struct, frozen=True):
    """What is asked for, worked out: by which policies, how small, for which model."""

    settings: Settings
    policies: tuple[Policy, ...]
    policy_label: str
    budget: int | None
    model: str
    scale: TokenWeights
    thinking: ThinkingRule


def resolve_plan_setup(history: History, policy: PolicyLike | None, options: PlanOptions) -> PlanSetup:
    """Resolve the options of `plan` once: settings, policies, budget, model, token weights, thinking rule."""
    thinking = options.get("thinking")
    others: dict[str, Any] = {name: value for name, value in options.items() if name not in NON_SETTINGS}
    chosen = load_settings(policy=policy if isinstance(policy, str) else None, **others)
    name = chosen.model or find_model_name(history)
    known = find_model(name) if name else None
    if thinking is not None and thinking not in get_args(ThinkingRule):
        raise OptionError(f"`thinking` is one of {', '.join(get_args(ThinkingRule))}; not {thinking!r}")
    rule: ThinkingRule = thinking or ("strip_after_edit" if known and known.preserved_thinking else "free")
    policies, label = _resolve_policies(policy, chosen)
    limit = _resolve_budget(chosen, label, name)
    weighed = options.get("scale") or token_weights_for(history, model=name, counter=options.get("counter", "auto"))
    return PlanSetup(chosen, tuple(policies), label, limit, name, weighed, rule)


def look_up_placeholders(history: History, store: ContentStore) -> frozenset[Place]:
    """The true stand-ins; if the store cannot be read, none is known to be one."""
    try:
        return find_verified_placeholders(history, store.has)
    except StoreError:
        return frozenset()


def _escalate_to_budget(draft: PlanDraft, setup: PlanSetup) -> tuple[PlanDraft, tuple[str, ...]]:
    """The draft with all that a budget still takes, and what to say of it."""
    budget, thinking, ladder = setup.budget, setup.thinking, setup.settings.escalation_steps()
    settled = close_draft(draft, thinking)
    if budget is None or settled.tokens <= budget:
        return settled, ()
    settled = escalate_to_budget(draft, ladder, budget, thinking)
    if settled.tokens > budget and thinking == "strip_after_edit":
        settled = escalate_to_budget(draft, ladder, budget, thinking, force=True)
        if settled.tokens <= budget:
            return settled, ("the budget could only be met by edits in an open tool loop: its signed thinking is gone",)
    if settled.tokens > budget:
        raise build_budget_error(settled, budget)
    return settled, ()


def _resolve_policies(policy: PolicyLike | None, chosen: Settings) -> tuple[list[Policy], str]:
    """The policies that are asked for, and those that options add; with a name for all of them."""
    named: Sequence[str | Policy]
    if policy is None or isinstance(policy, str):
        named = [chosen.policy or "smart"]
    else:
        named = policy if isinstance(policy, Sequence) else [policy]
    made: list[Policy] = []
    for one in named:
        made += _make_policies(chosen.preset_steps(one)) if isinstance(one, str) else [one]
    return made + _make_policies(chosen.option_steps()), "+".join(
        chosen.current_name(one) if isinstance(one, str) else policy_name(one) for one in named
    )


def _make_policies(steps: Sequence[PolicyStep]) -> list[Policy]:
    return [make_policy(name, **options) for name, options in steps]


def _resolve_budget(chosen: Settings, label: str, model: str) -> int | None:
    if chosen.budget is not None:
        return chosen.budget
    known = find_model(model) if model else None
    if chosen.model and known is None:
        raise OptionError(f"no model is known as `{model}`: give a budget, or add it to the models (THRESHER_MODELS)")
    return default_budget(model) if chosen.model or label == "auto" else None


def default_budget(model: str) -> int:
    """The part of a model's window that a history may fill; of a usual window where the model is not known."""
    known = find_model(model) if model else None
    return int((known.window if known is not None else DEFAULT_CONTEXT_WINDOW) * DEFAULT_WINDOW_SHARE)


def _collect_policy_notes(policies: Sequence[Policy], history: History) -> Iterator[str]:
    """What policies have to say about what they left alone."""
    for policy in policies:
        notes: Callable[[History], tuple[str, ...]] | None = getattr(policy, "notes", None)
        yield from notes(history) if notes is not None else ()


def _quality(settled: PlanDraft) -> float:
    from thresher.policies.importance import measure_kept_importance  # noqa: PLC0415 - only where it is asked for

    messages = enumerate(settled.history.messages)
    every = (Place(i, j) for i, message in messages for j in range(len(message.parts)))
    return measure_kept_importance(settled.history, {place for place in every if place not in settled.decisions})


def fit_with_plan(
    history: History | Session,
    *,
    policy: PolicyLike | None = None,
    dialect: str | None = None,
    store: ContentStore | None = None,
    **options: Unpack[PlanOptions],
) -> FitResult:
    """Return a history that fits, with its plan; what was removed is in the store."""
    told = history.history if isinstance(history, Session) else history
    made, mended = _plan_repaired(told, resolve_plan_setup(told, policy, options), dialect, store)
    try:
        store_removed_parts(mended, made, store or default_content_store())
    except StoreError as error:
        return _result_without_edits(mended, made, error)
    return FitResult(apply(mended, structs.replace(made, repairs=())), made)


def _result_without_edits(history: History, made: Plan, error: StoreError) -> FitResult:
    """Nothing may stand in for what cannot be kept: the text stays, unless that breaks the budget."""
    if made.budget is not None and made.tokens_before > made.budget:
        raise error
    warnings.warn(f"nothing was left out: {error}", stacklevel=4)
    notes = (*made.notes, str(error))
    kept = structs.replace(made, edits=(), tokens_after=made.tokens_before, unpinned=0, quality=None, notes=notes)
    return FitResult(history, kept)


def store_removed_parts(history: History, made: Plan, store: ContentStore) -> None:
    """Write down all that a plan leaves out."""
    if not made.edits:
        return
    folds: dict[str, list[str]] = {}
    for edit in made.edits:
        if isinstance(edit, Summarize):
            members = [exact_id(history.part(history.places[target])) for target in edit.targets]
            folds[compute_summary_id(members)] = members
    store.put((history.part(history.places[target]) for edit in made.edits for target in list_targets(edit)), folds)


M = TypeVar("M")


def fit(
    messages: M,
    *,
    policy: PolicyLike | None = None,
    format: str | None = None,
    dialect: str | None = None,
    store: ContentStore | None = None,
    **options: Unpack[PlanOptions],
) -> M:
    """Fit messages of any API, a request body, a history or a session; the same type comes out.

    Takes what `plan` takes. What is removed can be restored by the id in its placeholder: `restore(id)`.
    """
    if isinstance(messages, History | Session):
        after = fit_with_plan(messages, policy=policy, dialect=dialect, store=store, **options).history
        if isinstance(messages, Session):
            return structs.replace(messages, segments=(*messages.segments[:-1], after))
        return after  # type: ignore[return-value]
    if messages == []:
        return messages
    history, name = read_with_dialect(messages, format)  # type: ignore[arg-type]
    after = fit_with_plan(history, policy=policy, dialect=dialect or name, store=store, **options).history
    return messages if after is history else emit(after, name or "")


def restore(part_id: str, *, store: ContentStore | None = None) -> str:
    """What a stand-in stands for, byte for byte."""
    return (store or default_content_store()).text(part_id)


__all__ = [
    "FitResult",
    "PlanSetup",
    "PolicyLike",
    "fit",
    "fit_with_plan",
    "look_up_placeholders",
    "plan",
    "resolve_plan_setup",
    "restore",
    "store_removed_parts",
]
