"""Turn the totals of each strategy and session into comparable figures with confidence intervals.

A curve is one strategy at several budgets. Its T95 is the lowest number of tokens per call at which it serves 95 % of
the calls that reuse earlier text, interpolated linearly between neighboring points in the order of their tokens. C95
and the lost share are read at the same point. If the smallest budget already serves more, T95 is the tokens per call of
that budget. If no budget serves enough, T95 is None; nothing is extrapolated.

Confidence intervals come from a bootstrap: sessions are drawn with replacement, and the middle 95 % of the results is
the interval. All strategies share the same draws, so differences are paired. A draw that does not reach 95 % counts as
infinitely many tokens. The bootstrap draws sessions, not projects, so the intervals say nothing about projects that are
not in the data.

If a strategy could not process a session, its figures and its comparisons exclude that session.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from math import inf, isfinite
from operator import mul
from random import Random
from typing import NamedTuple

from msgspec import Struct

from thresher.replay.intervals import compute_interval
from thresher.replay.simulate import ReplayTotals
from thresher.replay.strategies.upper_bound import MinimumCost, most_served

TARGET_SERVED_SHARE = 0.95
"""Required share of served calls among the calls with references."""
DRAWS = 400
SEED = 5
SERVED_TOLERANCE = 1e-6
FULL_HISTORY = "full"
"""The strategy that all costs are relative to."""
WINDOW_BASELINE = "newest-batched"
"""The baseline that closes 0 % of the gap: a sliding window without any policy."""
ORACLE_BASELINE = "oracle-batched"
"""The baseline that closes 100 % of the gap: an oracle, which knows the future."""


class StrategySetting(NamedTuple):
    """A strategy at one budget; the budget is None if it takes none."""

    name: str
    budget: int | None


TotalsBySetting = Mapping[StrategySetting, Mapping[str, ReplayTotals]]
"""The totals of each strategy and budget, by session."""


class BudgetScore(Struct, frozen=True, kw_only=True):
    """One strategy at one budget, over all its sessions."""

    budget: int | None
    sessions: int
    calls: int
    tokens_per_turn: float
    served: float
    """Share of the calls with references whose request contained all their references."""
    hit_share: float
    """Mean share of references that are hits, over the calls with references."""
    hit_share_by_kind: dict[str, float]
    """Share of references that are hits, by kind."""
    lost_share: float
    """Share of references that are neither in the request nor recoverable."""
    refetch_share: float
    """Share of calls that had to refetch something."""
    cost: float
    """Cost without refetches, relative to the full history of the same sessions."""
    cost_with_refetch: float
    """Cost with refetches, relative to the full history."""
    replan_share: float
    """Share of calls with a replan."""
    warm_replan_share: float
    """Share of calls with a replan while the cache was warm."""
    decision_milliseconds: float
    """Mean time to build a request."""


class IntervalEstimate(Struct, frozen=True):
    """A figure and its 95 % interval. The figure or an end is None if the target was not reached."""

    value: float | None
    interval: tuple[float | None, float | None] | None = None
    """Lower and upper end of the interval; None if there are too few sessions."""


class BudgetCurve(Struct, frozen=True):
    """Scores of one strategy at all its budgets, in the order of tokens."""

    name: str
    scores: tuple[BudgetScore, ...]
    t95: IntervalEstimate
    c95: IntervalEstimate
    lost95: IntervalEstimate
    excluded_sessions: int = 0
    """Number of sessions that the strategy could not process."""

    @property
    def best(self) -> BudgetScore | None:
        """The score of the smallest budget that serves enough calls. If none does, the score that serves most."""
        enough = [score for score in self.scores if score.served >= TARGET_SERVED_SHARE]
        if enough:
            return min(enough, key=lambda score: (score.budget or inf, score.tokens_per_turn))
        return max(self.scores, key=lambda score: score.served, default=None)


SessionWeights = Sequence[int]
"""Number of times that a draw contains each session."""


class _SettingColumns(NamedTuple):
    """Per-session values of one setting; 0 for excluded sessions."""

    calls: Sequence[float]
    tokens: Sequence[float]
    calls_with_references: Sequence[float]
    served: Sequence[float]
    references: Sequence[float]
    lost: Sequence[float]
    cost: Sequence[float]
    full_cost: Sequence[float]
    """Cost of the full history of these sessions."""


class _TargetPoint(NamedTuple):
    """The point of a curve at which the strategy serves enough calls."""

    tokens: float
    cost: float
    lost: float


_BootstrapPoints = tuple[_TargetPoint | None, list[_TargetPoint | None]]


class CurveCrossing(NamedTuple):
    """The position at which a curve reaches the target: a share of the way between two of its points."""

    before: int
    after: int
    share: float


class ScoreCalculator:
    """Calculate the figures of all strategies over some sessions."""

    def __init__(
        self, totals_by_setting: TotalsBySetting, sessions: Iterable[str], *, draws: int = DRAWS, seed: int = SEED
    ) -> None:
        """Select the sessions, in the order in which draws refer to them."""
        self.sessions = tuple(sessions)
        self._totals = totals_by_setting
        self._full_totals = totals_by_setting.get(StrategySetting(FULL_HISTORY, None), {})
        self._draw_count = draws
        self._seed = seed
        self._bootstrap_cache: dict[tuple[str, frozenset[str]], _BootstrapPoints] = {}

    @property
    def strategy_names(self) -> list[str]:
        """The strategies, in the order of the settings."""
        return list(dict.fromkeys(setting.name for setting in self._totals))

    def curve(self, name: str) -> BudgetCurve:
        """Return the curve of one strategy."""
        usable = self.usable_sessions(name)
        point, draws = self._bootstrap_points(name, usable)
        t95, c95, lost95 = (
            IntervalEstimate(
                None if point is None else point[field],
                compute_interval([inf if draw is None else draw[field] for draw in draws]),
            )
            for field in range(len(_TargetPoint._fields))
        )
        excluded = sum(session in self._full_totals for session in self.sessions) - len(usable)
        return BudgetCurve(name, self._budget_scores(name, usable), t95, c95, lost95, excluded)

    def gap_closed(
        self, name: str, *, window: str = WINDOW_BASELINE, oracle: str = ORACLE_BASELINE
    ) -> IntervalEstimate | None:
        """Return the share of the gap in T95 between window and oracle that a strategy closes, or None if unknown."""
        if not {name, window, oracle} <= set(self.strategy_names):
            return None
        names = (name, window, oracle)
        usable = frozenset.intersection(*map(self.usable_sessions, names))
        points, draws = zip(*(self._bootstrap_points(strategy, usable) for strategy in names), strict=True)
        value = _compute_gap(*points)
        if value is None:
            return None
        gaps = [_compute_gap(*draw) for draw in zip(*draws, strict=True)]
        known = [gap for gap in gaps if gap is not None]
        # Ignore draws without a gap between the two ends. If they are common, there is no interval.
        interval = compute_interval(known) if len(known) > 0.9 * len(gaps) else None
        return IntervalEstimate(value if isfinite(value) else None, interval)

    def usable_sessions(self, name: str) -> frozenset[str]:
        """Return the sessions that a strategy could process at all its budgets."""
        by_budget = [by_session for _, by_session in self._budgets_of(name)]
        required = (*by_budget, self._full_totals)
        return frozenset(key for key in self.sessions if all(key in by_session for by_session in required))

    def _bootstrap_points(self, name: str, usable: frozenset[str]) -> _BootstrapPoints:
        """Return the target points of a strategy: on these sessions, and on each draw from them."""
        if (name, usable) not in self._bootstrap_cache:
            full = self._full_totals
            columns = [
                _columns([(by_session[key], full[key]) if key in usable else None for key in self.sessions])
                for _, by_session in self._budgets_of(name)
            ]
            draws = self._draw_weights if len(usable) > 1 else []
            points = [_find_target_point(columns, weights) for weights in draws]
            self._bootstrap_cache[name, usable] = _find_target_point(columns, [1] * len(self.sessions)), points
        return self._bootstrap_cache[name, usable]

    def _budget_scores(self, name: str, usable: frozenset[str]) -> tuple[BudgetScore, ...]:
        keys = [key for key in self.sessions if key in usable]  # float sums depend on the order
        full = sum_totals(self._full_totals[key] for key in keys)
        scores = [
            score_totals(budget, sum_totals(by_session[key] for key in keys), full, len(usable))
            for budget, by_session in self._budgets_of(name)
            if full.calls
        ]
        return tuple(sorted(scores, key=lambda score: (score.tokens_per_turn, score.budget or 0)))

    def _budgets_of(self, name: str) -> list[tuple[int | None, Mapping[str, ReplayTotals]]]:
        return [(setting.budget, by_session) for setting, by_session in self._totals.items() if setting.name == name]

    @cached_property
    def _draw_weights(self) -> list[SessionWeights]:
        return draw_session_weights(len(self.sessions), count=self._draw_count, seed=self._seed)


class StrategyResult(Struct, frozen=True):
    """Scores of one strategy in a group of sessions."""

    curve: BudgetCurve
    gap: IntervalEstimate | None
    """The share of the gap between sliding window and oracle that the strategy closes."""


class SessionGroup(Struct, frozen=True):
    """A group of sessions and the results of all strategies on it."""

    name: str
    sessions: int
    calls: int
    calls_with_references: int
    """Number of calls that reuse earlier text."""
    references: int
    results: tuple[StrategyResult, ...]


def score_group(name: str, totals_by_setting: TotalsBySetting, sessions: Iterable[str]) -> SessionGroup:
    """Score all strategies over some sessions."""
    scores = ScoreCalculator(totals_by_setting, sessions)
    full_totals = totals_by_setting.get(StrategySetting(FULL_HISTORY, None), {})
    full = sum_totals(full_totals[key] for key in scores.sessions if key in full_totals)
    results = tuple(
        StrategyResult(scores.curve(strategy), scores.gap_closed(strategy) if strategy != FULL_HISTORY else None)
        for strategy in scores.strategy_names
    )
    references = sum(full.references.values())
    return SessionGroup(name, len(scores.sessions), full.calls, full.calls_with_references, references, results)


class BoundViolation(NamedTuple):
    """A strategy that serves more than the upper bound: an error in the measurement."""

    setting: StrategySetting
    session: str
    served: float
    max_served: float


def find_bound_violations(
    totals_by_setting: TotalsBySetting, minimum_costs: Mapping[str, Sequence[MinimumCost]], covered: Iterable[str]
) -> list[BoundViolation]:
    """Return the violations of the upper bound by the strategies in `covered`, for which the bound holds."""
    names = set(covered)
    violations = []
    for setting, by_session in totals_by_setting.items():
        for session, totals in by_session.items() if setting.name in names else ():
            if totals.calls_with_references and session in minimum_costs:
                served = totals.served / totals.calls_with_references
                max_served = most_served(minimum_costs[session], totals.tokens / totals.calls)
                if served > max_served + SERVED_TOLERANCE:
                    violations.append(BoundViolation(setting, session, served, max_served))
    return violations


def draw_session_weights(sessions: int, *, count: int = DRAWS, seed: int = SEED) -> list[SessionWeights]:
    """Return how often each session is drawn, for each draw."""
    random, numbers = Random(seed), range(sessions)
    drawn = (Counter(random.choices(numbers, k=len(numbers))) for _ in range(count if numbers else 0))
    return [[counts[number] for number in numbers] for counts in drawn]


def sum_totals(totals: Iterable[ReplayTotals]) -> ReplayTotals:
    """Return the sum of totals."""
    total = ReplayTotals()
    for item in totals:
        total.add(item)
    return total


def score_totals(budget: int | None, mine: ReplayTotals, full: ReplayTotals, sessions: int) -> BudgetScore:
    """Score totals relative to sending the full history of the same sessions."""
    used = mine.references
    return BudgetScore(
        budget=budget,
        sessions=sessions,
        calls=mine.calls,
        tokens_per_turn=_share(mine.tokens, mine.calls),
        served=_share(mine.served, mine.calls_with_references, 1.0),
        hit_share=_share(mine.hit_share_sum, mine.calls_with_references, 1.0),
        hit_share_by_kind={kind: mine.hits.get(kind, 0) / count for kind, count in sorted(used.items()) if count},
        lost_share=_share(mine.lost, sum(used.values())),
        refetch_share=_share(mine.refetch_calls, mine.calls),
        cost=_share(mine.cost, full.cost),
        cost_with_refetch=_share(mine.cost + mine.refetch_cost, full.cost),
        replan_share=_share(mine.replans, mine.calls),
        warm_replan_share=_share(mine.warm_replans, mine.calls),
        decision_milliseconds=1000 * _share(mine.seconds, mine.calls),
    )


def _columns(pairs: Sequence[tuple[ReplayTotals, ReplayTotals] | None]) -> _SettingColumns:
    rows: list[tuple[float, ...]] = []
    for mine, full in (pair or (ReplayTotals(), ReplayTotals()) for pair in pairs):
        references, cost = sum(mine.references.values()), mine.cost + mine.refetch_cost
        calls = mine.calls, mine.tokens, mine.calls_with_references, mine.served
        rows.append((*calls, references, mine.lost, cost, full.cost))
    return _SettingColumns(*zip(*rows, strict=True)) if rows else _SettingColumns(*[()] * 8)


def _find_target_point(settings: Sequence[_SettingColumns], weights: SessionWeights) -> _TargetPoint | None:
    """Return the point at which the curve first serves enough, if any."""

    def total(column: Sequence[float]) -> float:
        return float(sum(map(mul, weights, column)))

    def target_point(position: int) -> _TargetPoint:
        tokens, _, number = curve[position]
        setting = settings[number]
        cost = _share(total(setting.cost), total(setting.full_cost))
        return _TargetPoint(tokens, cost, _share(total(setting.lost), total(setting.references)))

    curve = [
        (
            total(setting.tokens) / calls,
            _share(total(setting.served), total(setting.calls_with_references), 1.0),
            number,
        )
        for number, setting in enumerate(settings)
        if (calls := total(setting.calls))
    ]
    curve.sort()
    crossing = find_crossing([served for _, served, _ in curve])
    if crossing is None:
        return None
    before, after = target_point(crossing.before), target_point(crossing.after)
    return _TargetPoint(*[low + crossing.share * (high - low) for low, high in zip(before, after, strict=True)])


def find_crossing(served: Sequence[float]) -> CurveCrossing | None:
    """Return where a curve first serves enough, if it does. Its points are in the order of tokens."""
    if served and served[0] >= TARGET_SERVED_SHARE:
        return CurveCrossing(0, 0, 0.0)
    for number, (low, high) in enumerate(pairwise(served)):
        if high >= TARGET_SERVED_SHARE:
            return CurveCrossing(number, number + 1, (TARGET_SERVED_SHARE - low) / (high - low))
    return None


def _compute_gap(*points: _TargetPoint | None) -> float | None:
    """Return the share of the gap that the first point closes, from window to oracle point; None without a gap."""
    mine, window, oracle = (inf if point is None else point.tokens for point in points)
    if not isfinite(window) or not oracle < window:
        return None
    return (window - mine) / (window - oracle)


def _share(part: float, whole: float, empty: float = 0.0) -> float:
    return part / whole if whole else empty
