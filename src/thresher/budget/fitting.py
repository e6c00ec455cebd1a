"""The entry points `plan` and `fit`: plan what to remove, or return the conversation in its own form within the budget.

`plan` only reads the content store, to verify placeholders in the history. `fit` writes removed content to the store
before it returns a history with placeholders.
"""

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar, Unpack, get_args

from msgspec import Struct, structs

from thresher.budget.escalation import (
    bind_policy,
    build_budget_error,
    escalate_to_budget,
    make_step_policies,
    propose_edits,
)
from thresher.budget.options import PlanOptions
from thresher.budget.presets import ALL_READS_STEP, ESCALATION_STEPS, PolicyStep
from thresher.budget.settings import Settings, load_settings
from thresher.dialects import emit
from thresher.dialects.intake import Messages, read_with_dialect
from thresher.edits import (
    Edit,
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
from thresher.model.context_marks import mark_context
from thresher.policies import Policy, PolicyLike
from thresher.policies.table import policy_name
from thresher.store import ContentStore, StoreError, compute_summary_id, default_content_store, exact_id
from thresher.tokens import TokenWeights, find_model, find_model_name, token_weights_for

DEFAULT_WINDOW_SHARE = 0.7
"""Share of the model's context window that is the default budget."""
DEFAULT_CONTEXT_WINDOW = 200_000
"""Context window to assume for the preset `auto` if the model is unknown."""


NON_SETTINGS = ("thinking", "counter", "scale")
"""Options that can only be set in the call, not in a file or the environment."""


class FitResult(Struct, frozen=True):
    """The fitted history, and its plan."""

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
    """Plan what to remove from a history, and why; `apply` makes the edits.

    `policy` is the name of a preset or policy, a policy, or a list of these. The default with a budget is `auto`, which
    changes nothing if the history fits; without a budget it is `smart`. `budget` is a number of tokens (`60_000`,
    `"60k"`); the default with a `model` is 70 % of its context window. `dialect` selects the rules that the result must
    satisfy (None: the dialect of the messages; for a history or session, all dialects). `thinking` sets the effect of
    an edit on the signed thinking that follows it (default: as the model requires). `scale` sets the token weights
    (default: those of the model, with the named `counter`). `store` is the content store that verifies placeholders.
    `PlanOptions` lists all other options, such as `exclude_tools=("Edit",)`.
    """
    parsed, dialect = read_with_dialect(history, dialect)
    return _plan_repaired(parsed, resolve_plan_setup(parsed, policy, options), dialect, store)[0]


def _plan_repaired(
    history: History, setup: "PlanSetup", dialect: str | None, store: ContentStore | None
) -> tuple[Plan, History]:
    """Return the plan, and the repaired history to which it applies."""
    repaired = repair(mark_context(history, setup.settings.context_marks), dialect)
    history = repaired.history
    placeholders = look_up_placeholders(history, store or default_content_store())
    draft = PlanDraft(history, setup.scale, placeholders=placeholders)
    draft.add_all(propose_edits(history, setup.policies, setup.scale, setup.budget))
    closed, budget_notes = _escalate_to_budget(draft, setup)
    finished = finish_plan(closed, setup.thinking)
    unused = setup.settings.unused_option_notes(setup.policies, setup.budget)
    policy_notes = collect_policy_notes(setup, setup.policies, history, finished.edits)
    finished = structs.replace(
        finished,
        policy=setup.policy_label,
        budget=setup.budget,
        dialect=dialect,
        repairs=repaired.repairs,
        notes=(*finished.notes, *policy_notes, *unused, *budget_notes),
        quality=_quality(closed) if "exchanges" in {edit.policy for edit in finished.edits} else None,
    )
    return finished, history


class PlanSetup(Struct, frozen=True):
    """Resolved options of a plan: policies, budget, model, token weights, thinking rule."""

    settings: Settings
    policies: tuple[Policy, ...]
    policy_label: str
    budget: int | None
    model: str
    scale: TokenWeights
    thinking: ThinkingRule

    def escalation_steps(self, steps: tuple[PolicyStep, ...] = ESCALATION_STEPS) -> tuple[PolicyStep, ...]:
        """Return the steps to fit the budget; if the policy `edit-history` keeps edits, reads go before them."""
        keeps_edits = any(
            policy_name(policy) == "edit-history" and getattr(policy, "keep_all_edits", None) is not False
            for policy in self.policies
        )
        names = [name for name, _ in steps]
        if keeps_edits and "batch-summary" in names:
            first = names.index("batch-summary")
            steps = (*steps[:first], ALL_READS_STEP, *steps[first:])
        return self.settings.escalation_steps(steps)


def resolve_plan_setup(history: History, policy: PolicyLike | None, options: PlanOptions) -> PlanSetup:
    """Resolve the options of `plan`."""
    thinking = options.get("thinking")
    others: dict[str, Any] = {name: value for name, value in options.items() if name not in NON_SETTINGS}
    chosen = load_settings(policy=policy if isinstance(policy, str) else None, **others)
    name = chosen.model or find_model_name(history)
    known = find_model(name) if name else None
    if thinking is not None and thinking not in get_args(ThinkingRule):
        raise OptionError(f"`thinking` must be one of {', '.join(get_args(ThinkingRule))}, got {thinking!r}")
    rule: ThinkingRule = thinking or ("strip_after_edit" if known and known.preserved_thinking else "free")
    policies, label = _resolve_policies(policy, chosen)
    limit = _resolve_budget(chosen, label, name)
    counter = options.get("counter", "auto")
    scale = options.get("scale") or token_weights_for(history, model=name, counter=counter)
    return PlanSetup(chosen, tuple(policies), label, limit, name, scale, rule)


def look_up_placeholders(history: History, store: ContentStore) -> frozenset[Place]:
    """Return the places of verified placeholders; none if the store cannot be read."""
    try:
        return find_verified_placeholders(history, store.has)
    except StoreError:
        return frozenset()


def _escalate_to_budget(draft: PlanDraft, setup: PlanSetup) -> tuple[PlanDraft, tuple[str, ...]]:
    """Return the closed draft with the edits that the budget requires, and notes on them."""
    budget, thinking = setup.budget, setup.thinking
    closed = close_draft(draft, thinking)
    if budget is None or closed.tokens <= budget:
        return closed, ()
    steps = setup.escalation_steps()
    closed = escalate_to_budget(draft, steps, budget, thinking)
    if closed.tokens <= budget:
        return closed, ()
    if thinking == "strip_after_edit":
        closed = escalate_to_budget(draft, steps, budget, thinking, force=True)
        if closed.tokens <= budget:
            return closed, ("the budget required edits in an open tool loop, so its signed thinking is dropped",)
    raise build_budget_error(closed, budget)


def _resolve_policies(policy: PolicyLike | None, chosen: Settings) -> tuple[list[Policy], str]:
    """Return the requested policies with the policies that options add, and a label of the requested ones."""
    named: Sequence[str | Policy]
    if policy is None or isinstance(policy, str):
        has_limit = chosen.budget is not None or bool(chosen.model)
        named = [chosen.policy or ("auto" if has_limit else "smart")]
    else:
        named = policy if isinstance(policy, Sequence) else [policy]
    policies: list[Policy] = []
    base: list[PolicyStep] = []
    for one in named:
        steps = chosen.preset_steps(one) if isinstance(one, str) else ()
        policies += make_step_policies(steps) if isinstance(one, str) else [one]
        base += steps
    labels = (chosen.current_name(one) if isinstance(one, str) else policy_name(one) for one in named)
    return [*policies, *make_step_policies(chosen.option_steps(base))], "+".join(labels)


def _resolve_budget(chosen: Settings, label: str, model: str) -> int | None:
    if chosen.budget is not None:
        return chosen.budget
    known = find_model(model) if model else None
    if chosen.model and known is None:
        raise OptionError(f"unknown model `{model}`: set a budget, or add the model to the file in THRESHER_MODELS")
    return default_budget(model) if chosen.model or label == "auto" else None


def default_budget(model: str) -> int:
    """Return the default budget: a share of the model's context window, which is assumed for an unknown model."""
    known = find_model(model) if model else None
    return int((known.window if known is not None else DEFAULT_CONTEXT_WINDOW) * DEFAULT_WINDOW_SHARE)


def collect_policy_notes(
    setup: PlanSetup, policies: Sequence[Policy], history: History, edits: Iterable[Edit]
) -> Iterator[str]:
    """Yield the notes of the policies that made the edits, such as on calls that they excluded."""
    names = {edit.policy for edit in edits} - {policy_name(policy) for policy in policies}
    steps = [(name, setup.settings.policies.get(name, {})) for name in names if name == "batch-summary"]
    for policy in (*policies, *make_step_policies(steps)):
        notes: Callable[[History], tuple[str, ...]] | None
        notes = getattr(bind_policy(policy, setup.scale, setup.budget), "notes", None)
        yield from notes(history) if notes is not None else ()


def _quality(closed: PlanDraft) -> float:
    from thresher.policies.importance import measure_kept_importance  # noqa: PLC0415 - rarely used

    messages = enumerate(closed.history.messages)
    every = (Place(i, j) for i, message in messages for j in range(len(message.parts)))
    return measure_kept_importance(closed.history, {place for place in every if place not in closed.decisions})


def fit_with_plan(
    history: Messages,
    *,
    policy: PolicyLike | None = None,
    dialect: str | None = None,
    store: ContentStore | None = None,
    **options: Unpack[PlanOptions],
) -> FitResult:
    """Fit messages of any kind; return the fitted history with its plan. Removed content is written to the store."""
    parsed, dialect = read_with_dialect(history, dialect)
    finished, repaired = _plan_repaired(parsed, resolve_plan_setup(parsed, policy, options), dialect, store)
    try:
        store_removed_parts(repaired, finished, store or default_content_store())
    except StoreError as error:
        return _result_without_edits(repaired, finished, error)
    return FitResult(apply(repaired, structs.replace(finished, repairs=())), finished)


def _result_without_edits(history: History, made: Plan, error: StoreError) -> FitResult:
    """Return the history unedited, because the store failed; raise the error if the history exceeds the budget."""
    if made.budget is not None and made.tokens_before > made.budget:
        raise error
    warnings.warn(f"nothing was removed: {error}", stacklevel=4)
    notes = (*made.notes, str(error))
    kept = structs.replace(made, edits=(), tokens_after=made.tokens_before, unpinned=0, quality=None, notes=notes)
    return FitResult(history, kept)


def store_removed_parts(history: History, made: Plan, store: ContentStore) -> None:
    """Write the content that a plan removes to the store."""
    if not made.edits:
        return
    summaries: dict[str, list[str]] = {}
    for edit in made.edits:
        if isinstance(edit, Summarize):
            members = [exact_id(history.part(history.places[target])) for target in edit.targets]
            summaries[compute_summary_id(members)] = members
    targets = (target for edit in made.edits for target in list_targets(edit))
    store.put((history.part(history.places[target]) for target in targets), summaries)


M = TypeVar("M")


def fit(
    messages: M,
    *,
    policy: PolicyLike | None = None,
    format: str | None = None,
    dialect: str | None = None,
    store: ContentStore | None = None,
    report: Callable[[Plan], object] | None = None,
    **options: Unpack[PlanOptions],
) -> M:
    """Fit messages of any API, a request body, a history or a session, and return the same type.

    The options are those of `plan`. `report` is called with the plan: repairs, edits, tokens before and after.
    `restore(id)` returns removed content by the id in its placeholder.
    """
    if report is not None and not callable(report):
        raise OptionError(f"`report` must be callable, got {report!r}")
    history, name = read_with_dialect(messages, format)  # type: ignore[arg-type]
    result = fit_with_plan(history, policy=policy, dialect=dialect or name, store=store, **options)
    if report is not None:
        report(result.plan)
    if not result.plan.edits and not result.plan.repairs:
        return messages
    if isinstance(messages, Session):
        return structs.replace(messages, segments=(*messages.segments[:-1], result.history))
    if isinstance(messages, History):
        return result.history  # type: ignore[return-value]
    return emit(result.history, name or "")  # type: ignore[no-any-return]


def restore(part_id: str, *, store: ContentStore | None = None) -> str:
    """Return the content that a placeholder replaced, byte for byte."""
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
