"""The policy `exchanges`: keep the current and the latest exchanges, and summarize older ones in one line each.

An exchange is a prompt with everything up to the next prompt. How many stay depends on the pressure: how full the
context window is. The newest exchange with an answer always stays, because a prompt may answer its question; in an
emergency, only its request and its answer stay. Of the others, exchanges with tool calls are preferred. At low
pressure, the most important old ones stay, too.
Dependencies of kept chains stay (the read before an edit, the script that a command runs), and so do open tasks: the
first request, the latest plan, unanswered questions. A summary of exchanges (a bridge) quotes the human's requests.

If no exchange can be removed because all calls follow one prompt, the policy summarizes old turns instead. The policy
is idempotent: a bridge is never summarized again, and an exchange with a bridge does not count toward those to keep.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from statistics import fmean
from typing import NamedTuple

from thresher.deprecation import renamed_fields
from thresher.edits import Drop, Edit, Summarize, find_pins
from thresher.edits.placeholder import get_placeholder_id
from thresher.errors import OptionError
from thresher.model import Exchange, History, Place, Summary, Text, Thinking, ToolCall, Unknown
from thresher.model.one_liners import format_turn_range
from thresher.model.text import count_with_noun
from thresher.model.tool_calls import ToolUse
from thresher.policies.base import check_count, is_failed_call
from thresher.policies.batch_summary import find_prompts, summarize_places
from thresher.policies.exchange_bridges import describe_exchange, is_bridge
from thresher.policies.exchange_dependencies import chain_places, find_file_dependencies
from thresher.policies.importance import score_importance
from thresher.tokens import TokenWeights, default_token_weights

RELAXED_PRESSURE, STRICT_PRESSURE, EMERGENCY_PRESSURE = 0.5, 0.8, 0.95
"""Shares of the window in use. Below the first, important old exchanges stay, too. Above the second, only the current
exchange stays, and the one before while the current prompt is unanswered. Above the third, only the current exchange
stays, with the request and the answer of the one before while the current prompt is unanswered."""
DEFAULT_KEPT_EXCHANGES = 2
"""Number of completed exchanges that stay by default, besides a current one that is not completed."""
MAX_ORDINARY_EXCHANGES = 5
"""Number of completed exchanges above which a conversation is long."""
DEFAULT_PRESSURE = 0.65
"""Assumed share of the window in use. Above it, only one completed exchange of a long conversation stays."""
MAX_IMPORTANT_EXCHANGES = 2
"""Number of important old exchanges that stay if there is room."""
MIN_KEPT_CALLS = 5
"""Number of important old calls that stay when the turns of one long exchange are summarized."""
MAX_TURNS_SUMMARY_CHARS = 2_000
"""Maximum characters of a summary of old turns."""
_PLAN_TOOL = re.compile(r"todo|plan|task|goal|focus_chain", re.IGNORECASE)


class _ExchangeInfo(NamedTuple):
    """An exchange with the facts that decide whether it stays."""

    exchange: Exchange
    prompt: int | None
    has_tools: bool
    has_agent_text: bool
    """True if the exchange contains agent text."""
    is_bridged: bool
    """True if the exchange contains a bridge; then an earlier run has kept its other parts on purpose."""


@renamed_fields(bridges="summaries", at_most="max_exchanges_per_summary")
@dataclass(frozen=True, kw_only=True)
class SummarizeExchanges:
    """Keep the latest exchanges and summarize older ones, depending on their number and on how full the window is."""

    keep: int | None = None
    """Number of exchanges to keep, including the current one and the newest one with an answer, which always stay;
    None: depends on the pressure and the length."""
    pressure: float | None = None
    """Share of the window in use, from 0 to 1; None: computed from `budget`, or 0.65 without a budget."""
    summaries: bool = True
    """True if a summary replaces removed exchanges; False: they are dropped without a summary."""
    max_exchanges_per_summary: int = 0
    """Maximum adjacent exchanges in one summary; 0: no maximum."""
    budget: int | None = None
    """Size of the window in tokens."""
    scale: TokenWeights = field(default_factory=default_token_weights, repr=False, compare=False)

    def __post_init__(self) -> None:
        counts = {"keep": self.keep, "budget": self.budget, "max_exchanges_per_summary": self.max_exchanges_per_summary}
        check_count("exchanges", **{name: value for name, value in counts.items() if value is not None})
        if self.budget == 0:
            raise OptionError("policy `exchanges`: `budget` must be 1 or more, got 0; omit it for no limit")
        if self.pressure is not None and (isinstance(self.pressure, bool) or not 0 <= self.pressure <= 1):
            raise OptionError(f"policy `exchanges`: `pressure` must be a number from 0 to 1, got {self.pressure!r}")

    def __call__(self, history: History) -> Iterator[Edit]:
        """Propose summaries of removed exchanges, oldest first."""
        if not history.messages:
            return
        pressure = self._pressure(history)
        spans = _inspect_exchanges(history)
        kept = self._choose_kept(history, spans, pressure)
        if self._must_split_turns(spans, kept):
            yield from self._summarize_turns(history, spans[-1], pressure)
            return
        safe = _open_tasks(history)
        if pressure <= EMERGENCY_PRESSURE:
            safe |= find_file_dependencies(history, {i for n in kept for i in range(*spans[n].exchange)})
        safe |= find_pins(history).keys() | _find_newest_words(history, spans)
        for is_kept, run in groupby(range(len(spans)), key=lambda n: n in kept):
            removed = [] if is_kept else [spans[n] for n in run]
            size = self.max_exchanges_per_summary or len(removed) or 1
            for start in range(0, len(removed), size):
                yield from self._summarize_exchanges(history, removed[start : start + size], safe)

    def _must_split_turns(self, spans: Sequence[_ExchangeInfo], kept: set[int]) -> bool:
        """Return whether to summarize turns, because no exchange can be removed, and none was removed before."""
        if len(spans) == 1:
            return True
        adapts = self.keep is None and self.summaries
        return adapts and len(kept) == len(spans) and not any(span.is_bridged for span in spans)

    def _pressure(self, history: History) -> float:
        if self.pressure is not None:
            return self.pressure
        return self.scale.history(history) / self.budget if self.budget else DEFAULT_PRESSURE

    def _choose_kept(self, history: History, spans: Sequence[_ExchangeInfo], pressure: float) -> set[int]:
        """Return the indexes of exchanges that stay."""
        last = len(spans) - 1
        level = self.keep if self.keep is not None else _count_kept(history, spans, pressure)
        others = [n for n in range(last) if not spans[n].is_bridged]
        newest = _find_newest_answered(spans) if pressure <= EMERGENCY_PRESSURE else last
        kept = {last, newest} - {n for n in range(last) if spans[n].is_bridged}
        recent = sorted(set(others) - kept, key=lambda n: (spans[n].has_tools, n), reverse=True)
        kept.update(recent[: max(0, level - len(kept))])
        if self.keep is None and pressure < RELAXED_PRESSURE:
            candidates = [n for n in others if n not in kept and spans[n].has_agent_text]
            kept.update(_choose_important(history, spans, candidates))
        return kept

    def _summarize_exchanges(self, history: History, run: Sequence[_ExchangeInfo], safe: set[Place]) -> Iterator[Edit]:
        safe = safe | _find_crossing_chains(history, range(run[0].exchange.start, run[-1].exchange.stop))
        removable = [(span, list(_find_removable(history, range(*span.exchange), safe))) for span in run]
        places = [place for _, removed in removable for place in removed]
        if not places:
            return
        targets = tuple([history.occurrence(place) for place in places])
        if not self.summaries:
            for target in targets:
                yield Drop(target, "exchanges", "older exchange", removes_human_words=True)
            return
        summarized = [(span, removed) for span, removed in removable if removed]
        described = (describe_exchange(history, span.exchange, span.prompt, removed) for span, removed in summarized)
        count = count_with_noun(len(summarized), "exchange")
        label = f"{count} removed, {_format_turns(history, places)}"
        text = "\n".join(filter(None, described))
        yield Summarize(targets, "exchanges", "older exchanges", text, label, removes_human_words=True)

    def _summarize_turns(self, history: History, span: _ExchangeInfo, pressure: float) -> Iterator[Edit]:
        """Summarize the older turns of one long exchange, except for the most important calls."""
        if pressure < RELAXED_PRESSURE:
            kept_turns = 20
        elif pressure <= STRICT_PRESSURE:
            kept_turns = 10
        else:
            kept_turns = 5 if pressure <= EMERGENCY_PRESSURE else 3
        turns = [turn for turn in history.turns if turn.start >= span.exchange.start]
        if len(turns) <= kept_turns:
            return
        start = turns[-kept_turns].start
        safe = _open_tasks(history)
        if pressure <= EMERGENCY_PRESSURE:
            safe |= find_file_dependencies(history, set(range(start, len(history))))
        old = [link for link in history.links if self._is_old(link, range(span.exchange.start, start), safe)]
        if len(old) <= MIN_KEPT_CALLS:
            return
        scores = score_importance(history)
        ranked = sorted(old, key=lambda link: _score_chain(scores, link), reverse=True)
        best = {link.chain.call for link in ranked[:MIN_KEPT_CALLS]}
        for is_best, run in groupby(old, key=lambda link: link.chain.call in best):
            if not is_best:
                yield from self._summarize_calls(history, list(run), safe)

    @staticmethod
    def _is_old(link: ToolUse, messages: range, safe: set[Place]) -> bool:
        call, result, active = link.chain
        answered = result is not None and result.message < messages.stop
        return call.message in messages and answered and not active and call not in safe

    def _summarize_calls(self, history: History, run: Sequence[ToolUse], safe: set[Place]) -> Iterator[Edit]:
        places = {place for link in run for place in chain_places(link)}
        for index in {link.chain.call.message for link in run}:
            places.update(_find_adjacent_text(history, index, places, safe))
        ordered = sorted(places)
        targets = tuple([history.occurrence(place) for place in ordered])
        why = "older turns of one long exchange"
        if not self.summaries:
            yield from (Drop(target, "exchanges", why) for target in targets)
            return
        label = f"{count_with_noun(len(run), 'call')} of older turns summarized, {_format_turns(history, ordered)}"
        yield Summarize(targets, "exchanges", why, summarize_places(history, ordered, MAX_TURNS_SUMMARY_CHARS), label)


def _inspect_exchanges(history: History) -> list[_ExchangeInfo]:
    starts = set(find_prompts(history))
    first = min(starts, default=None)
    spans: list[_ExchangeInfo] = []
    for n, exchange in enumerate(_split_at_bridges(history)):
        parts = [(history[i].role, part) for i in range(*exchange) for part in history[i].parts]
        has_tools = any(isinstance(part, ToolCall) for _, part in parts)
        has_text = any(role == "assistant" and isinstance(part, Text) and part.text.strip() for role, part in parts)
        is_bridged = any(is_bridge(part) for _, part in parts)
        spans.append(_ExchangeInfo(exchange, exchange.start if n else first, has_tools, has_text, is_bridged))
    return spans


def _find_newest_answered(spans: Sequence[_ExchangeInfo]) -> int:
    """Return the index of the newest exchange with an answer; the last one if there is none."""
    answered = [n for n, span in enumerate(spans) if span.has_agent_text or span.has_tools]
    return answered[-1] if answered else len(spans) - 1


def _find_newest_words(history: History, spans: Sequence[_ExchangeInfo]) -> set[Place]:
    """Return the request and the final text of the newest exchange with an answer."""
    exchange, prompt, *_ = spans[_find_newest_answered(spans)]
    words = {Place(prompt, j) for j in range(len(history[prompt].parts))} if prompt is not None else set()
    for i in range(exchange.stop - 1, exchange.start - 1, -1):
        if history[i].role == "assistant":
            answer = {Place(i, j) for j, part in enumerate(history[i].parts) if isinstance(part, Text)}
            if answer:
                return words | answer
    return words


def _split_at_bridges(history: History) -> Iterator[Exchange]:
    """Yield the exchanges; a bridge that replaced a prompt starts a new exchange."""
    for start, stop in history.exchanges:
        users = (i for i in range(start + 1, stop) if history[i].role == "user")
        bridges = (i for i in users if any(map(is_bridge, history[i].parts)))
        yield from (Exchange(*pair) for pair in pairwise((start, *bridges, stop)))


def _count_kept(history: History, spans: Sequence[_ExchangeInfo], pressure: float) -> int:
    """Return the number of exchanges that stay, including the current one."""
    if pressure > STRICT_PRESSURE:
        return 1
    last = history[-1]
    is_open = last.role != "assistant" or any(last.calls)
    completed = sum(not span.is_bridged for span in spans) - is_open
    is_long = completed > MAX_ORDINARY_EXCHANGES and pressure > DEFAULT_PRESSURE
    return (1 if is_long else DEFAULT_KEPT_EXCHANGES) + is_open


def _choose_important(history: History, spans: Sequence[_ExchangeInfo], candidates: Sequence[int]) -> list[int]:
    """Return the exchanges whose best parts have the highest scores."""
    if len(candidates) <= MAX_IMPORTANT_EXCHANGES:
        return list(candidates)
    scores = score_importance(history)

    def score(n: int) -> float:
        found = [scores[Place(i, j)] for i in range(*spans[n].exchange) for j in range(len(history[i].parts))]
        return fmean(sorted(found)[-5:])

    return sorted(candidates, key=score, reverse=True)[:MAX_IMPORTANT_EXCHANGES]


def _score_chain(scores: dict[Place, float], link: ToolUse) -> float:
    call, result, _ = link.chain
    return max(scores[call], scores[result]) if result is not None else scores[call]


def _find_crossing_chains(history: History, messages: range) -> set[Place]:
    """Return the calls and results of chains that are only partly in `messages`; they must stay."""
    found: set[Place] = set()
    for chain in history.chains:
        if chain.result is not None and (chain.call.message in messages) != (chain.result.message in messages):
            found |= {chain.call, chain.result}
    return found


def _find_removable(history: History, messages: range, safe: set[Place]) -> Iterator[Place]:
    """Yield the parts to remove: no summary, no unknown or `safe` part, no thinking in a message whose call stays."""
    for i in messages:
        parts = history[i].parts
        keeps_call = any(Place(i, j) in safe for j, part in enumerate(parts) if isinstance(part, ToolCall))
        for j, part in enumerate(parts):
            place = Place(i, j)
            stays = isinstance(part, Summary | Unknown) or (isinstance(part, Text) and get_placeholder_id(part))
            if not stays and place not in safe and not (keeps_call and isinstance(part, Thinking)):
                yield place


def _find_adjacent_text(history: History, index: int, removed: set[Place], safe: set[Place]) -> Iterator[Place]:
    """Yield text and thinking of a message whose calls are all removed."""
    parts = history[index].parts
    if any(isinstance(part, ToolCall) and Place(index, j) not in removed for j, part in enumerate(parts)):
        return
    for j, part in enumerate(parts):
        if isinstance(part, Text | Thinking) and not get_placeholder_id(part) and Place(index, j) not in safe:
            yield Place(index, j)


def _format_turns(history: History, places: Sequence[Place]) -> str:
    return format_turn_range([history.turn(place.message) for place in places])


# --- open tasks -----------------------------------------------------------------------------------------------------


def _open_tasks(history: History) -> set[Place]:
    """Return the parts of the first request, the latest plan, and unanswered questions."""
    prompts = find_prompts(history)
    safe = {Place(prompts[0], j) for j in range(len(history[prompts[0]].parts))} if prompts else set()
    plan = next((link for link in reversed(history.links) if _is_plan(link)), None)
    safe.update(chain_places(plan) if plan is not None else ())
    since = prompts[-1] if prompts else 0
    for link in history.links:
        if link.use.category == "question" and link.chain.call.message > since and is_failed_call(link):
            safe.update(chain_places(link))
    for i in range(since + 1, len(history)):
        for j, part in enumerate(history[i].parts):
            if history[i].role == "assistant" and isinstance(part, Text) and part.text.rstrip().endswith(("?", "？")):
                safe.add(Place(i, j))
    return safe


def _is_plan(link: ToolUse) -> bool:
    if link.use.category != "plan" or is_failed_call(link):
        return False
    return _PLAN_TOOL.search(link.call.name) is not None
