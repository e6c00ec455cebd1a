"""Figures of the proxy: counts, tokens, costs, replans, fallbacks and latency, in total and per conversation.

The figures hold no text of a request: only counts, digests, ids of removed content, and names of models and rules.
"""

from collections import Counter, OrderedDict, deque
from statistics import quantiles
from time import time
from typing import Any

from thresher.dialects.cache_comparison import ComparisonResult
from thresher.model.message import Usage
from thresher.serve.proxy.conversations import Conversation
from thresher.serve.proxy.costs import CostEstimate
from thresher.window import WindowEvent
from thresher.window.cache_state import SentRequest

MAX_CONVERSATIONS = 100
"""Maximum number of conversations in the status; the totals count all."""
MAX_REPLANS = 20
PROBLEM_TRIGGERS = ("overflow", "store", "helper")
MAX_LATENCIES = 10_000


class RequestTally:
    """Figures of one conversation, or of all."""

    def __init__(self) -> None:
        self.requests = 0
        self.changed = 0
        self.unchanged: Counter[str] = Counter()
        self.fallbacks: Counter[str] = Counter()
        self.replans: Counter[str] = Counter()
        self.problems: Counter[str] = Counter()
        """Events of a window that changed nothing: no legal request fits, or a file could not be written."""
        self.refusals: Counter[str] = Counter()
        self.usage = Usage()
        self.billed_requests = 0
        self.tokens = self.original_tokens = 0
        self.cost = self.cost_without = 0.0
        self.fallback_cost = 0.0
        """Dollars of the requests that fell back or were refused."""
        self.priced_requests = 0
        self.removed_parts = 0
        self.compared = self.matching = 0
        """Requests that the API compared with the one before, and those of them that continue it."""
        self.inconclusive: Counter[str] = Counter()
        self.own_misses: Counter[str] = Counter()
        """Cache misses where Thresher changed its edits."""
        self.other_misses: Counter[str] = Counter()

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as JSON values."""
        usage, context = self.usage, self.usage.context
        return {
            "requests": self.requests,
            "changed": self.changed,
            "unchanged": dict(self.unchanged),
            "fallbacks": dict(self.fallbacks),
            "refusals": dict(self.refusals),
            "replans": dict(self.replans),
            "problems": dict(self.problems),
            "removed_parts": self.removed_parts,
            "tokens": {
                "billed_requests": self.billed_requests,
                "original": self.original_tokens,
                "sent": self.tokens,
                "input": usage.input,
                "cache_read": usage.cache_read,
                "cache_write": usage.cache_write,
                "output": usage.output,
                "cache_hit_rate": round(usage.cache_read / context, 4) if context else None,
            },
            "cost": {
                "priced_requests": self.priced_requests,
                "with_thresher": round(self.cost, 6),
                "without_thresher": round(self.cost_without, 6),
                "of_fallbacks": round(self.fallback_cost, 6),
            },
            "cache_diagnostics": {
                "compared": self.compared,
                "matching": self.matching,
                "thresher_misses": dict(self.own_misses),
                "other_misses": dict(self.other_misses),
                "inconclusive": dict(self.inconclusive),
            },
        }


class ConversationFigures(RequestTally):
    """Figures of one conversation."""

    def __init__(self, identity: Conversation, dialect: str) -> None:
        super().__init__()
        self.identity, self.dialect = identity, dialect
        self.started = self.last_used = time()
        self.costs = CostEstimate()
        self.latest_replans: deque[dict[str, Any]] = deque(maxlen=MAX_REPLANS)
        self.opening: str | None = ""
        self.refused = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as JSON values."""
        return {
            "id": self.identity.key,
            "session": self.identity.session,
            "agent": self.identity.agent,
            "api": self.dialect,
            "model": self.identity.model,
            "started": self.started,
            "last_used": self.last_used,
            "opening": self.opening,
            "passed_through_because": self.refused,
            **super().to_dict(),
            "latest_replans": list(self.latest_replans),
        }


class ProxyFigures:
    """Figures of the proxy."""

    def __init__(self, *, is_observed: bool = False) -> None:
        self._is_observed = is_observed
        self.total = RequestTally()
        self.passed: Counter[str] = Counter()
        """Requests that carry no conversation, or that the user excluded, by reason."""
        self._conversations: OrderedDict[str, ConversationFigures] = OrderedDict()
        self.conversation_count = 0
        self._latencies: deque[float] = deque(maxlen=MAX_LATENCIES)

    def count_passed(self, reason: str) -> None:
        """Count a request that passes through without a conversation."""
        self.passed[reason] += 1

    def find(self, identity: Conversation, dialect: str) -> ConversationFigures:
        """Return the figures of a conversation; create them if it is new.

        A request for a title or a count of tokens begins no conversation.
        """
        found = self._conversations.get(identity.key)
        if found is None and identity.kind in ("one_shot", "count"):
            return ConversationFigures(identity, dialect)
        if found is None:
            found = self._conversations[identity.key] = ConversationFigures(identity, dialect)
            self.conversation_count += 1
            if len(self._conversations) > MAX_CONVERSATIONS:
                self._conversations.popitem(last=False)
        self._conversations.move_to_end(identity.key)
        return found

    def count_request(self, figures: ConversationFigures, *, unchanged: str, fallback: str, seconds: float) -> None:
        """Count a request that is about to be sent; `seconds` is the time that Thresher added to it."""
        figures.last_used = time()
        self._latencies.append(seconds)
        for tally in (self.total, figures):
            tally.requests += 1
            tally.changed += not unchanged
            if unchanged:
                tally.unchanged[unchanged] += 1
            if fallback:
                tally.fallbacks[fallback] += 1

    def count_event(self, figures: ConversationFigures, event: WindowEvent) -> None:
        """Count a replan of a window, or a problem that it had."""
        if event.trigger in PROBLEM_TRIGGERS:
            for tally in (self.total, figures):
                tally.problems[event.trigger] += 1
            return
        figures.latest_replans.append(describe_event(event))
        for tally in (self.total, figures):
            tally.replans[event.trigger] += 1
            tally.removed_parts += len(event.removed_ids)

    def count_refusal(self, figures: ConversationFigures, rule: str) -> None:
        """Count an edited request that the upstream refused."""
        figures.refused = rule
        for tally in (self.total, figures):
            tally.refusals[rule] += 1

    def count_usage(
        self, figures: ConversationFigures, sent: SentRequest | None, usage: Usage, *, is_fallback: bool = False
    ) -> None:
        """Add the usage of an answer, and its costs."""
        costs = figures.costs.add(figures.identity.model, sent, usage, is_observed=self._is_observed)
        for tally in (self.total, figures):
            tally.usage = _add_usage(tally.usage, usage)
            tally.billed_requests += 1
            tally.tokens += costs.tokens
            tally.original_tokens += costs.tokens_without
            if costs.cost is not None and costs.cost_without is not None:
                tally.priced_requests += 1
                tally.cost += costs.cost
                tally.cost_without += costs.cost_without
                tally.fallback_cost += costs.cost if is_fallback else 0.0

    def count_comparison(self, figures: ConversationFigures, result: ComparisonResult, *, is_own: bool) -> None:
        """Count what the API found out about a request; `is_own` if a miss is Thresher's."""
        for tally in (self.total, figures):
            if result.outcome == "inconclusive":
                tally.inconclusive[result.reason] += 1
                continue
            tally.compared += 1
            if result.outcome == "match":
                tally.matching += 1
            else:
                (tally.own_misses if is_own else tally.other_misses)[result.reason] += 1

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as JSON values, the latest conversations first."""
        return {
            "requests": self.total.requests + self.passed.total(),
            "passed_through": dict(self.passed),
            "total": self.total.to_dict(),
            "added_latency_ms": _describe_latencies(self._latencies),
            "conversation_count": self.conversation_count,
            "conversations": [figures.to_dict() for figures in reversed(self._conversations.values())],
        }


def describe_event(event: WindowEvent) -> dict[str, Any]:
    """Return a replan or failure as JSON values."""
    return {
        "trigger": event.trigger,
        "reason": event.reason,
        "time": event.time,
        "tokens_before": event.tokens_before,
        "tokens_after": event.tokens_after,
        "cost": event.cost,
        "saving_per_call": event.saving_per_call,
        "edits": event.edits,
        "removed_ids": list(event.removed_ids),
    }


def _add_usage(first: Usage, second: Usage) -> Usage:
    return Usage(
        first.input + second.input,
        first.output + second.output,
        first.cache_read + second.cache_read,
        first.cache_write + second.cache_write,
        first.cache_write_1h + second.cache_write_1h,
    )


def _describe_latencies(seconds: deque[float]) -> dict[str, Any]:
    """Return percentiles in milliseconds."""
    if len(seconds) < 2:
        only = round(seconds[0] * 1000, 2) if seconds else None
        return {"requests": len(seconds), "p50": only, "p99": only}
    cuts = quantiles(seconds, n=100, method="inclusive")
    return {"requests": len(seconds), "p50": round(cuts[49] * 1000, 2), "p99": round(cuts[98] * 1000, 2)}
