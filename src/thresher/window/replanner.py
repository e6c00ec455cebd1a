"""Decide whether a conversation gets new edits, and put them into force.

The half of the window that weighs what an edit saves against what it costs; `window` follows the conversations.
"""

from collections.abc import Callable
from functools import cache
from typing import Literal

from msgspec import structs

from thresher.budget.escalation import build_budget_error
from thresher.budget.fitting import PlanSetup, default_budget, store_removed_parts
from thresher.budget.thresholds import Thresholds
from thresher.dialects.cache_control import CacheTtl
from thresher.edits import ThinkingRule, finish_plan
from thresher.model.turns import is_prompt
from thresher.store import ContentStore, StoreError, default_content_store
from thresher.window.cache_state import MAX_CONVERSATIONS, PromptCacheTracker
from thresher.window.conversation import NewContent, WindowConversation, repair_if_possible
from thresher.window.event_log import EventLog
from thresher.window.events import EXTERNAL_REPLAN, AppliedReplan, Trigger, build_window_event
from thresher.window.ledger import Ledger, LedgerError, diff_edits, index_by_target
from thresher.window.prices import Prices, prices_for_model_name
from thresher.window.refetches import RefetchTracker
from thresher.window.replan import ReplanContext, select_window_policies
from thresher.window.request import WindowRequest
from thresher.window.summary_jobs import SummaryJobs
from thresher.window.triggers import (
    ReplanDecision,
    choose_protected_age,
    decide_carried_edits,
    decide_forced_replan,
    decide_optional_replan,
    estimate_clearing,
    find_fill_start,
    is_replan_worthwhile,
)
from thresher.window.usage import UsageObserver
from thresher.window.veto import EditVeto

OnOverflow = Literal["send", "raise"]


class Replanner:
    """Replans the conversations of a window when that pays, when it must be, or when it costs nothing."""

    ledger: Ledger
    _setup: PlanSetup
    _store: ContentStore | None
    _prices: Prices | None
    _thresholds: Thresholds
    _on_overflow: OnOverflow
    _cache_ttl: CacheTtl
    _event_log: EventLog
    _can_drop_thinking: bool
    _conversations: list[WindowConversation]
    _cache: PromptCacheTracker
    _refetches: RefetchTracker
    _veto: EditVeto
    _summary_jobs: SummaryJobs
    _usage_observer: UsageObserver

    def _switch_to(self, thread: WindowConversation, instead_of: WindowConversation | None) -> None:
        """Go on with a thread, in the place of another one of the same conversation."""
        others = [one for one in self._conversations if one is not thread and one is not instead_of]
        self._conversations = [*others, thread][-MAX_CONVERSATIONS:]
        self._cache.switch_to(thread)

    @property
    def store(self) -> ContentStore:
        """Where what is left out stays."""
        return self._store or default_content_store()

    @property
    def prices(self) -> Prices:
        """What tokens cost, and how long the cache has been seen to live."""
        return self._usage_observer.adjust_prices(self._list_prices)

    @property
    def _list_prices(self) -> Prices:
        return self._prices or prices_for_model_name(self._setup.model, hour=self._cache_ttl == "1h")

    @property
    def budget(self) -> int:
        """The tokens that a request may have, as they are counted here."""
        asked = self._setup.budget or default_budget(self._setup.model)
        return self._usage_observer.to_local_tokens(asked)

    def _cached_tokens(self, thread: WindowConversation, now: float) -> int:
        return self._cache.cached_tokens(thread, now, self.prices.life)

    def _replan_if_needed(
        self, request: WindowRequest, thread: WindowConversation, came: NewContent, now: float
    ) -> WindowConversation:
        """The thread, with new edits where that is called for."""
        limit, thresholds = self.budget, self._thresholds
        cached = self._cached_tokens(thread, now)

        @cache
        def situation() -> ReplanContext:
            return self._build_context(thread, came, cached)

        state = self._cache.state
        decision: ReplanDecision | None = None
        tried = False
        if thread.tokens > limit * thresholds.high_water or not thread.is_legal:
            waits = thread.tokens < state.retry_above_tokens and (thread.tokens <= limit or state.exceeds_budget)
            tried = not thread.is_legal or not waits
            if tried and (decision := decide_forced_replan(thread, situation(), thresholds, limit, self._veto)) is None:
                self._back_off(thread)
        elif came.carried_edits:
            decision = decide_carried_edits(situation(), thread)
        if decision is None:
            decision = self._find_worthwhile_replan(thread, came, cached, now, situation)
        if decision is not None:
            thread = self._commit_replan(request, thread, decision, cached, now)
        if thread.tokens > limit:
            self._report_overflow(thread, limit, now, tried=tried)
        state.exceeds_budget = thread.tokens > limit
        return thread

    def _choose_trigger(self, came: NewContent, cached: int, now: float) -> Trigger:
        if not cached:
            return "piggyback" if self._cache.is_warm(now, self.prices.life) else "cold"
        return "boundary" if any(map(is_prompt, came.messages)) else "break_even"

    def _find_worthwhile_replan(
        self,
        thread: WindowConversation,
        came: NewContent,
        cached: int,
        now: float,
        situation: Callable[[], ReplanContext],
    ) -> ReplanDecision | None:
        """A change that pays, if there is one; what could go and stays is paid for with each call."""
        prices, thresholds = self.prices, self._thresholds
        found, clearable = estimate_clearing(thread, prices, thresholds, cached, thresholds.kept_age(self.budget))
        state = self._cache.state
        state.avoidable_cost += prices.read * clearable / 1_000_000
        further = thresholds.expected_calls(thread.calls)
        trigger = self._choose_trigger(came, cached, now)
        waits = trigger == "break_even" and thread.tokens < state.retry_above_tokens
        # A prompt of the human's is a good time: what came before it is asked for less from then on.
        rent = (
            state.avoidable_cost / thresholds.prompt_patience_share if trigger == "boundary" else state.avoidable_cost
        )
        if waits or not is_replan_worthwhile(found, further, rent, thresholds):
            return None
        decision = decide_optional_replan(trigger, situation, further, rent, thresholds, self._veto)
        if decision is None:
            self._back_off(thread)
        return decision

    def _back_off(self, thread: WindowConversation) -> None:
        """Look again when there is more to gain: each time that it was in vain, twice as much."""
        state = self._cache.state
        state.retry_above_tokens = thread.tokens + self._thresholds.min_saving * 2 ** min(state.fruitless_attempts, 10)
        state.fruitless_attempts += 1

    @property
    def _thinking_rule(self) -> ThinkingRule:
        """What an edit means for thinking behind it: who cannot ask the API to drop it must take it along."""
        rule = self._setup.thinking
        return "strip_after_edit" if rule == "drop_block" and not self._can_drop_thinking else rule

    def _build_context(self, thread: WindowConversation, came: NewContent, cached: int) -> ReplanContext:
        setup = structs.replace(self._setup, thinking=self._thinking_rule)
        return ReplanContext(
            history=repair_if_possible(thread.prompt.build_history(thread.received), thread.dialect),
            edits=thread.edits,
            carried_edits=came.carried_edits,
            setup=setup,
            policies=select_window_policies(
                setup.policy_label, setup.policies, choose_protected_age(thread, self.budget, self._thresholds)
            ),
            prices=self.prices,
            cached_tokens=cached,
            expected_calls=self._thresholds.expected_calls(thread.calls),
            store=self.store,
        )

    def _commit_replan(
        self, request: WindowRequest, thread: WindowConversation, decision: ReplanDecision, cached: int, now: float
    ) -> WindowConversation:
        """Keep what goes, write the decision down, and only then act on it."""
        prices_now = self.prices
        history = decision.draft.history
        plan = structs.replace(finish_plan(decision.draft, self._thinking_rule), budget=self.budget)
        plan = self._summary_jobs.fill_ready(
            history, plan, thread.scale, find_fill_start(decision, plan, thread, self._thinking_rule)
        )
        edits = index_by_target(plan.edits)
        added, removed = diff_edits(thread.edits, edits)
        if not added and not removed and thread.is_legal:
            self._back_off(thread)
            return thread
        epoch = self.ledger.new_replan(thread.prefix_digests, thread.last_replan, decision.trigger, now, added, removed)
        try:
            store_removed_parts(history, structs.replace(plan, edits=added), self.store)
            held = self.ledger.record_replan(epoch)
        except (StoreError, LedgerError) as error:
            self._event_log.report("store", f"nothing was left out: {error}", thread, self._setup.model, now)
            self._back_off(thread)
            return thread
        after = WindowConversation(request, held, self.ledger.active_edits(held), thread.scale, thread)
        self._refetches.record_removed(after.original, after.edits.values())
        self._switch_to(after, thread)
        state = self._cache.state
        state.avoidable_cost, state.retry_above_tokens = 0.0, 0
        if thread.tokens - after.tokens < self._thresholds.min_saving:
            self._back_off(after)
        else:
            state.fruitless_attempts = 0
        self._summary_jobs.request_missing(history, structs.replace(plan, edits=tuple(after.edits.values())))
        change = AppliedReplan(decision.trigger, decision.reason, plan, added) if held == epoch else EXTERNAL_REPLAN
        price = prices_now.request_cost(after.tokens, self._cached_tokens(after, now)) - prices_now.request_cost(
            thread.tokens, cached
        )
        self._event_log.publish(
            build_window_event(change, thread, after, price, prices_now.read, self._setup.model, now)
        )
        return after

    def _report_overflow(self, thread: WindowConversation, limit: int, now: float, *, tried: bool) -> None:
        """Nothing legal fits: say so, and go on or stop as the user wants it."""
        if self._on_overflow == "raise":
            raise build_budget_error(self._build_context(thread, NewContent(), 0).resumed_draft, limit)
        if tried:
            self._back_off(thread)
        why = f"nothing legal fits into {limit:,} tokens: the smallest request has {thread.tokens:,}"
        self._event_log.report("overflow", why, thread, self._setup.model, now)
