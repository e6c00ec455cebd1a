"""Decide whether a conversation gets new edits, and apply them.

`Replanner` is the base class of `Window`. It compares the saving of a replan with its cost; `Window` tracks the
conversations.
"""

import warnings
from collections.abc import Callable, Sequence
from functools import cache
from threading import RLock
from typing import Unpack

from msgspec import structs

from thresher.budget.escalation import build_budget_error
from thresher.budget.fitting import collect_policy_notes, default_budget, resolve_plan_setup, store_removed_parts
from thresher.budget.options import PlanOptions
from thresher.budget.thresholds import Thresholds
from thresher.edits import Edit, ThinkingRule, finish_plan
from thresher.errors import OptionError
from thresher.model import History
from thresher.model.turns import is_prompt
from thresher.policies import PolicyLike
from thresher.policies.table import policy_name
from thresher.store import ContentStore, StoreError, default_content_store
from thresher.window.cache_state import MAX_CONVERSATIONS, PromptCacheTracker
from thresher.window.conversation import NewContent, WindowConversation, repair_if_possible
from thresher.window.event_log import EventLog
from thresher.window.events import EXTERNAL_REPLAN, AppliedReplan, Trigger
from thresher.window.ledger import Ledger, LedgerError, diff_edits, index_by_target
from thresher.window.options import WindowOptions, check_window_options
from thresher.window.prices import Prices, prices_for_model_name
from thresher.window.refetches import RefetchTracker
from thresher.window.replan import ReplanContext, plan_worthwhile_edits, select_window_policies
from thresher.window.request import WindowRequest, resolve_window_dialect
from thresher.window.summary_jobs import SummaryJobs
from thresher.window.triggers import (
    REASON_TEMPLATES,
    ReplanDecision,
    choose_protected_age,
    decide_carried_edits,
    decide_forced_replan,
    estimate_clearing,
    find_fill_start,
    is_replan_worthwhile,
)
from thresher.window.usage import UsageObserver
from thresher.window.veto import EditVeto


class Replanner:
    """Replan the conversations of a window when a replan pays off, is free, or is necessary."""

    def __init__(self, policy: PolicyLike = "auto", **options: Unpack[WindowOptions]) -> None:
        """Start a new window, or resume from a `ledger`; see `WindowOptions` for the options.

        `policy`, `budget`, `model`, `thinking`, `counter` and the filter options have the same meaning as in `plan`.
        """
        check_window_options(options)
        format, ledger = options.pop("format", None), options.pop("ledger", None)
        summarizer, judge = options.pop("summarizer", None), options.pop("judge", None)
        thresholds, on_event = options.pop("thresholds", None), options.pop("on_event", None)
        summaries = options.pop("summaries", "background")
        self._store = options.pop("store", None)
        self._prices = options.pop("prices", None)
        self._on_overflow = options.pop("on_overflow", "send")
        self._breakpoint_mode = options.pop("cache_breakpoints", "auto")
        self._cache_ttl = options.pop("cache_ttl", "5m")
        self.opening: str | None = ""
        """Way in which the agent can open a placeholder, such as a command; new placeholders name it. None if it cannot
        open any: then only results that a repeated call returns are removed."""
        self._policy = policy
        self._plan_options: PlanOptions = options
        self._setup = resolve_plan_setup(History(), policy, options)
        if self._setup.budget is not None and self._setup.budget < 1:
            raise OptionError(f"`budget` must be 1 or more, got {self._setup.budget}; omit it for the default")
        self._format = None if format is None else resolve_window_dialect(format).name
        self._thresholds = thresholds or Thresholds(**self._setup.settings.thresholds)
        self.ledger = ledger if isinstance(ledger, Ledger) else Ledger(ledger)
        self._event_log = EventLog(on_event)
        self._model = ""
        self._can_drop_thinking = False
        self._conversations: list[WindowConversation] = []
        """The latest conversations, newest last."""
        self._request: WindowRequest | None = None
        self._cache = PromptCacheTracker(self.ledger)
        self._refetches = RefetchTracker(self.ledger)
        self._veto = EditVeto(self._refetches, self.ledger, judge, self._event_log.failures.append)
        self._summary_jobs = SummaryJobs(self.ledger, summarizer, summaries, self._event_log.failures.append)
        self._usage_observer = UsageObserver()
        self._lock = RLock()
        self._load_from_ledger()

    def _load_from_ledger(self) -> None:
        """Load the facts of earlier processes. A ledger that cannot be read is an event and a warning, not an error."""
        try:
            with self.ledger.attempt_once():
                self._refetches.load_pins()
                self._veto.load_verdicts()
        except LedgerError as error:
            self._event_log.report("store", str(error), None)
            warnings.warn(f"the window starts without its ledger: {error}", stacklevel=4)

    def _switch_to(self, conversation: WindowConversation, replaced: WindowConversation | None) -> None:
        """Make a conversation the current one, and discard the conversation that it replaces."""
        others = [other for other in self._conversations if other is not conversation and other is not replaced]
        self._conversations = [*others, conversation][-MAX_CONVERSATIONS:]
        with self._event_log.catch_ledger_errors(conversation):
            self._cache.switch_to(conversation)

    @property
    def store(self) -> ContentStore:
        """The store of removed content."""
        return self._store or default_content_store()

    @property
    def prices(self) -> Prices:
        """Token prices, with the observed lifetime of the cache."""
        return self._usage_observer.adjust_prices(self._list_prices)

    @property
    def _list_prices(self) -> Prices:
        return self._prices or prices_for_model_name(self._setup.model, hour=self._cache_ttl == "1h")

    @property
    def budget(self) -> int:
        """The token budget of a request, in tokens as Thresher counts them."""
        return self._usage_observer.to_local_tokens(self._setup.budget or default_budget(self._setup.model))

    def _cached_tokens(self, conversation: WindowConversation, now: float) -> int:
        return self._cache.cached_tokens(conversation, now, self.prices.life)

    def _replan_if_needed(
        self, request: WindowRequest, conversation: WindowConversation, new_content: NewContent, now: float
    ) -> WindowConversation:
        """Return the conversation, with new edits if a replan is due."""
        limit = self.budget
        cached = self._cached_tokens(conversation, now)

        @cache
        def build_context() -> ReplanContext:
            return self._build_context(conversation, new_content, cached)

        state = self._cache.state
        decision: ReplanDecision | None = None
        tried = False
        if conversation.tokens > limit * self._thresholds.high_water or not conversation.is_legal:
            backs_off = conversation.tokens < state.retry_above_tokens
            backs_off = backs_off and (conversation.tokens <= limit or state.exceeds_budget)
            tried = not conversation.is_legal or not backs_off
            if tried:
                decision = decide_forced_replan(conversation, build_context(), self._thresholds, limit, self._veto)
                if decision is None:
                    self._back_off(conversation)
        elif new_content.carried_edits:
            decision = decide_carried_edits(build_context(), conversation)
        if decision is None:
            decision = self._find_worthwhile_replan(conversation, new_content, cached, now, build_context)
        if decision is not None:
            conversation = self._commit_replan(request, conversation, decision, cached, now)
        if conversation.tokens > limit:
            self._report_overflow(conversation, limit, tried=tried)
        state.exceeds_budget = conversation.tokens > limit
        return conversation

    def _choose_trigger(self, new_content: NewContent, cached: int, now: float) -> Trigger:
        if not cached:
            return "piggyback" if self._cache.is_warm(now, self.prices.life) else "cold"
        return "boundary" if any(map(is_prompt, new_content.messages)) else "break_even"

    def _find_worthwhile_replan(
        self,
        conversation: WindowConversation,
        new_content: NewContent,
        cached: int,
        now: float,
        build_context: Callable[[], ReplanContext],
    ) -> ReplanDecision | None:
        """Add the price of the removable tokens in this call to the avoidable cost; return a replan if one pays off."""
        prices, thresholds, state = self.prices, self._thresholds, self._cache.state
        best, clearable = estimate_clearing(conversation, prices, thresholds, cached, thresholds.kept_age(self.budget))
        state.avoidable_cost += prices.read * clearable / 1_000_000
        further = thresholds.expected_calls(conversation.calls)
        trigger = self._choose_trigger(new_content, cached, now)
        avoidable_cost = state.avoidable_cost
        if trigger == "boundary":
            # A human prompt is a good time for a replan: agents seldom use the content before it again.
            avoidable_cost /= thresholds.prompt_patience_share
        backs_off = trigger == "break_even" and conversation.tokens < state.retry_above_tokens
        if backs_off or not is_replan_worthwhile(best, further, avoidable_cost, thresholds):
            return None
        offer = plan_worthwhile_edits(build_context(), self._veto)
        if offer is not None and is_replan_worthwhile(offer[1], further, avoidable_cost, thresholds):
            draft, break_even = offer
            return ReplanDecision(trigger, REASON_TEMPLATES[trigger].format(saved=break_even.tokens_saved), draft)
        self._back_off(conversation)
        return None

    def _back_off(self, conversation: WindowConversation) -> None:
        """Postpone the next attempt until the conversation has grown. Each fruitless attempt doubles the growth."""
        state = self._cache.state
        growth = self._thresholds.min_saving * 2 ** min(state.fruitless_attempts, 10)
        state.retry_above_tokens = conversation.tokens + growth
        state.fruitless_attempts += 1

    @property
    def _thinking_rule(self) -> ThinkingRule:
        """The rule for thinking after an edit. If the API cannot drop that thinking, the edit must remove it."""
        rule = self._setup.thinking
        return "strip_after_edit" if rule == "drop_block" and not self._can_drop_thinking else rule

    def _build_context(self, conversation: WindowConversation, new_content: NewContent, cached: int) -> ReplanContext:
        setup = structs.replace(self._setup, thinking=self._thinking_rule)
        protected_age = choose_protected_age(conversation, self.budget, self._thresholds)
        return ReplanContext(
            history=repair_if_possible(conversation.prompt.build_history(conversation.received), conversation.dialect),
            edits=conversation.edits,
            carried_edits=new_content.carried_edits,
            setup=setup,
            policies=select_window_policies(setup.policy_label, setup.policies, protected_age),
            prices=self.prices,
            cached_tokens=cached,
            expected_calls=self._thresholds.expected_calls(conversation.calls),
            store=self.store,
            opening=self.opening,
        )

    def _commit_replan(
        self,
        request: WindowRequest,
        conversation: WindowConversation,
        decision: ReplanDecision,
        cached: int,
        now: float,
    ) -> WindowConversation:
        """Store the removed content, then record the replan, and only then apply it."""
        prices = self.prices
        history = decision.draft.history
        plan = structs.replace(finish_plan(decision.draft, self._thinking_rule), budget=self.budget)
        fill_start = find_fill_start(decision, plan, conversation, self._thinking_rule)
        with self._event_log.catch_ledger_errors(conversation):
            plan = self._summary_jobs.fill_ready(history, plan, conversation.token_weights, fill_start)
        added, removed = diff_edits(conversation.edits, index_by_target(plan.edits))
        if not added and not removed and conversation.is_legal:
            self._back_off(conversation)
            return conversation
        try:
            store_removed_parts(history, structs.replace(plan, edits=added), self.store)
            replan, is_own = self.ledger.record_replan(
                conversation.prefix_digests, conversation.last_replan, decision.trigger, now, added, removed
            )
            edits = self.ledger.active_edits(replan)
        except (StoreError, LedgerError) as error:
            self._event_log.report("store", f"nothing was removed: {error}", conversation)
            self._back_off(conversation)
            return conversation
        after = WindowConversation(request, replan, edits, conversation.token_weights, conversation)
        self._refetches.record_removed(after.original, after.edits.values())
        self._switch_to(after, conversation)
        state = self._cache.state
        state.avoidable_cost, state.retry_above_tokens = 0.0, 0
        if conversation.tokens - after.tokens < self._thresholds.min_saving:
            self._back_off(after)
        else:
            state.fruitless_attempts = 0
        with self._event_log.catch_ledger_errors(after):
            self._summary_jobs.request_missing(history, structs.replace(plan, edits=tuple(after.edits.values())))
        change = EXTERNAL_REPLAN
        if is_own:
            plan = structs.replace(plan, notes=(*plan.notes, *self._collect_notes(conversation, history, added)))
            change = AppliedReplan(decision.trigger, decision.reason, plan, added)
        cost = prices.request_cost(after.tokens, self._cached_tokens(after, now))
        cost -= prices.request_cost(conversation.tokens, cached)
        self._event_log.report_replan(change, conversation, after, cost, prices.read)
        return after

    def _collect_notes(
        self, conversation: WindowConversation, history: History, edits: Sequence[Edit]
    ) -> tuple[str, ...]:
        """Return the notes of the policies that made the edits."""
        age = choose_protected_age(conversation, self.budget, self._thresholds)
        policies = select_window_policies(self._setup.policy_label, self._setup.policies, age)
        names = {edit.policy for edit in edits}
        used = [policy for policy in policies if policy_name(policy) in names]
        return tuple(collect_policy_notes(self._setup, used, history, edits))

    def _report_overflow(self, conversation: WindowConversation, limit: int, *, tried: bool) -> None:
        """Report that no legal request fits, or raise `BudgetError` if `on_overflow` is `"raise"`."""
        if self._on_overflow == "raise":
            raise build_budget_error(self._build_context(conversation, NewContent(), 0).resumed_draft, limit)
        if tried:
            self._back_off(conversation)
        reason = f"no legal request fits into {limit:,} tokens: the smallest has {conversation.tokens:,}"
        self._event_log.report("overflow", reason, conversation)
