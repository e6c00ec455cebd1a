"""Turn the totals of each strategy and session into comparable figures with confidence intervals.

A curve is one strategy at several budgets. Its T95 is the lowest number of tokens per call at which it serves 95 % of
the calls that reuse earlier text, interpolated linearly between neighboring points in the order of their tokens. C95
and the lost share are read at the same point. If the smallest budget already serves more, T95 is what that budget
sends. If no budget serves enough, T95 is None; nothing is extrapolated.

Confidence intervals come from a bootstrap: sessions are drawn with replacement, and the middle 95 % of the results is
the interval. All strategies share the same draws, so differences are paired. A draw that does not reach 95 % counts as
infinitely many tokens. The draws are of sessions and not of projects, so they say nothing about projects that are not
in the data.

A session that a strategy could not take counts neither for it nor for its comparisons.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from math import inf, isfinite
from operator import mul
from random import Random
from typing import NamedTuple

from msgspec import Struct

from thresher.replay.intervals import _finite, compute_interval
from thresher.replay.simulate import ReplayTotals
from thresher.replay.strategies.upper_bound import MinimumCost, most_served

TARGET_SERVED_SHARE = 0.95
"""The share of calls that has to be served."""
DRAWS = 400
SEED = 5
SERVED_TOLERANCE = 1e-6
FULL_HISTORY = "full"
"""The strategy that all costs are relative to."""
WINDOW_BASELINE = "newest-batched"
ORACLE_BASELINE = "oracle-batched"
"""The two ends of the gap: a baseline without any policy, and one that knows the future."""


class StrategySetting(NamedTuple):
    """A strategy at one budget; the budget is None if it takes none."""

    name: str
    budget: int | None


TotalsBySetting = Mapping[StrategySetting, Mapping[str, ReplayTotals]]
"""The totals of each strategy and budget, by session."""


_SCORE_KEYS = {
    "survival": "hit_share", "resident": "hit_share_by_kind", "lost": "lost_share", "fetched": "refetch_share",
    "replans": "replan_share", "broken": "warm_replan_share", "milliseconds": "decision_milliseconds",
}  # fmt: skip
"""JSON names."""


class BudgetScore(Struct, frozen=True, kw_only=True, rename=_SCORE_KEYS):
    """One strategy at one budget, over all its sessions."""

    budget: int | None
    sessions: int
    calls: int
    tokens_per_turn: float
    served: float
    """Share of the calls with references whose request contained all of them."""
    survival: float
    """Mean share of references that are hits, over the calls with references."""
    resident: dict[str, float]
    """Share of references that are hits, by kind."""
    lost: float
    """Share of references that are neither in the request nor recoverable."""
    fetched: float
    """Share of calls that had to refetch something."""
    cost: float
    cost_with_refetch: float
    """Both relative to the full history of the same sessions."""
    replans: float
    broken: float
    """Both as shares of the calls."""
    milliseconds: float
    """Time to build a request."""


class IntervalEstimate(Struct, frozen=True):
    """A figure and its 95 % interval. None means that the target was not reached, for the figure and for either end."""

    value: float | None
    interval: tuple[float | None, float | None] | None = None
    """None: too few sessions."""


class BudgetCurve(Struct, frozen=True):
    """One strategy at all its budgets, in the order of tokens."""

    name: str
    scores: tuple[BudgetScore, ...]
    t95: IntervalEstimate
    c95: IntervalEstimate
    lost95: IntervalEstimate
    excluded_sessions: int = 0
    """Number of sessions that it could not take."""

    @property
    def best(self) -> BudgetScore | None:
        """The smallest budget that serves enough, or else the one that serves most."""
        enough = [score for score in self.scores if score.served >= TARGET_SERVED_SHARE]
        if enough:
            return min(enough, key=lambda score: (score.budget or inf, score.tokens_per_turn))
        return max(self.scores, key=lambda score: score.served, default=None)


SessionWeights = Sequence[int]
"""How often a draw contains each session."""


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
    """The point of a curve at which it serves enough."""

    tokens: float
    cost: float
    lost: float


class CurveCrossing(NamedTuple):
    """A position between two points of a curve."""

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
        self._draw_count = draws
        self._seed = seed
        self._bootstrap_cache: dict[
            tuple[str, frozenset[str]], tuple[_TargetPoint | None, list[_TargetPoint | None]]
        ] = {}

    @property
    def strategy_names(self) -> list[str]:
        """The strategies in the order of the request."""
        return list(dict.fromkeys(setting.name for setting in self._totals))

    def curve(self, name: str) -> BudgetCurve:
        """Return the curve of one strategy."""
        taken = self.usable_sessions(name)
        here, found = self._bootstrap_points(name, taken)

        def figure(read: Callable[[_TargetPoint], float]) -> IntervalEstimate:
            value = None if here is None else read(here)
            return IntervalEstimate(value, compute_interval([inf if one is None else read(one) for one in found]))

        return BudgetCurve(
            name,
            self._budget_scores(name, taken),
            figure(lambda one: one.tokens),
            figure(lambda one: one.cost),
            figure(lambda one: one.lost),
            sum(session in self._totals_for(FULL_HISTORY, None) for session in self.sessions) - len(taken),
        )

    def gap_closed(
        self, name: str, *, window: str = WINDOW_BASELINE, oracle: str = ORACLE_BASELINE
    ) -> IntervalEstimate | None:
        """Return how much of the gap in T95 between the window and the oracle a strategy closes; None if one is
        missing.
        """
        if not {name, window, oracle} <= set(self.strategy_names):
            return None
        taken = self.usable_sessions(name) & self.usable_sessions(window) & self.usable_sessions(oracle)
        here, found = zip(*(self._bootstrap_points(one, taken) for one in (name, window, oracle)), strict=True)
        value = _compute_gap(*here)
        if value is None:
            return None
        gaps = [_compute_gap(*three) for three in zip(*found, strict=True)]
        told = [one for one in gaps if one is not None]
        # A draw without a gap between the two ends says nothing. If such draws are common, there is no interval.
        return IntervalEstimate(_finite(value), compute_interval(told) if len(told) > 0.9 * len(gaps) else None)

    def usable_sessions(self, name: str) -> frozenset[str]:
        """Return the sessions that a strategy could take at all its budgets."""
        every = [self._totals_for(*setting) for setting in self._totals if setting.name == name]
        return frozenset(
            one for one in self.sessions if all(one in by for by in (*every, self._totals_for(FULL_HISTORY, None)))
        )

    def _bootstrap_points(
        self, name: str, taken: frozenset[str]
    ) -> tuple[_TargetPoint | None, list[_TargetPoint | None]]:
        """Return the target point of a strategy on these sessions, and that of each draw."""
        if (name, taken) not in self._bootstrap_cache:
            points = self._setting_columns(name, taken)
            found = [_find_target_point(points, weights) for weights in self._draw_weights] if len(taken) > 1 else []
            self._bootstrap_cache[name, taken] = _find_target_point(points, [1] * len(self.sessions)), found
        return self._bootstrap_cache[name, taken]

    def _budget_scores(self, name: str, taken: frozenset[str]) -> tuple[BudgetScore, ...]:
        order = [one for one in self.sessions if one in taken]  # float sums depend on the order
        full = sum_totals(self._totals_for(FULL_HISTORY, None)[one] for one in order)
        found = [
            score_totals(setting.budget, sum_totals(by[one] for one in order), full, len(taken))
            for setting, by in self._totals.items()
            if setting.name == name and full.calls
        ]
        return tuple(sorted(found, key=lambda score: (score.tokens_per_turn, score.budget or 0)))

    def _setting_columns(self, name: str, taken: frozenset[str]) -> list[_SettingColumns]:
        full = self._totals_for(FULL_HISTORY, None)
        return [
            _columns([(by[one], full[one]) if one in taken else None for one in self.sessions])
            for setting, by in self._totals.items()
            if setting.name == name
        ]

    def _totals_for(self, name: str, budget: int | None) -> Mapping[str, ReplayTotals]:
        return self._totals.get(StrategySetting(name, budget), {})

    @cached_property
    def _draw_weights(self) -> list[SessionWeights]:
        return draw_session_weights(len(self.sessions), count=self._draw_count, seed=self._seed)


class StrategyResult(Struct, frozen=True):
    """One strategy in a group of sessions."""

    curve: BudgetCurve
    gap: IntervalEstimate | None
    """The share of the gap that it closes."""


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
    full = totals_by_setting.get(StrategySetting(FULL_HISTORY, None), {})
    whole = sum_totals(full[one] for one in scores.sessions if one in full)
    lines = tuple(
        StrategyResult(scores.curve(one), scores.gap_closed(one) if one != FULL_HISTORY else None)
        for one in scores.strategy_names
    )
    return SessionGroup(
        name, len(scores.sessions), whole.calls, whole.calls_with_references, sum(whole.references.values()), lines
    )


class BoundViolation(NamedTuple):
    """A strategy that serves more than the upper bound: an error in the measurement."""

    setting: StrategySetting
    session: str
    served: float
    max_served: float


def find_bound_violations(
    totals_by_setting: TotalsBySetting, minimum_costs: Mapping[str, Sequence[MinimumCost]], covered: Iterable[str]
) -> list[BoundViolation]:
    """Return the sessions on which a covered strategy exceeds the upper bound."""
    names = set(covered)
    found = [
        BoundViolation(
            setting,
            session,
            totals.served / totals.calls_with_references,
            most_served(minimum_costs[session], totals.tokens / totals.calls),
        )
        for setting, by in totals_by_setting.items()
        for session, totals in by.items()
        if setting.name in names and totals.calls_with_references and session in minimum_costs
    ]
    return [one for one in found if one.served > one.max_served + SERVED_TOLERANCE]


def draw_session_weights(sessions: int, *, count: int = DRAWS, seed: int = SEED) -> list[SessionWeights]:
    """Return how often each session is drawn, for each draw."""
    random, numbers = Random(seed), range(sessions)
    drawn = (Counter(random.choices(numbers, k=len(numbers))) for _ in range(count if numbers else 0))
    return [[counts[number] for number in numbers] for counts in drawn]


def sum_totals(totals_by_setting: Iterable[ReplayTotals]) -> ReplayTotals:
    """Return the sum of totals."""
    found = ReplayTotals()
    for one in totals_by_setting:
        found.add(one)
    return found


def score_totals(budget: int | None, mine: ReplayTotals, full: ReplayTotals, sessions: int) -> BudgetScore:
    """Score totals against those of the full history of the same sessions."""
    references = sum(mine.references.values())
    return BudgetScore(
        budget=budget,
        sessions=sessions,
        calls=mine.calls,
        tokens_per_turn=_share(mine.tokens, mine.calls),
        served=_share(mine.served, mine.calls_with_references, 1.0),
        survival=_share(mine.hit_share_sum, mine.calls_with_references, 1.0),
        resident={kind: mine.resident.get(kind, 0) / count for kind, count in sorted(mine.references.items()) if count},
        lost=_share(mine.lost, references),
        fetched=_share(mine.fetched, mine.calls),
        cost=_share(mine.cost, full.cost),
        cost_with_refetch=_share(mine.cost + mine.refetch, full.cost),
        replans=_share(mine.replans, mine.calls),
        broken=_share(mine.broken, mine.calls),
        milliseconds=1000 * _share(mine.seconds, mine.calls),
    )


def _columns(pairs: Sequence[tuple[ReplayTotals, ReplayTotals] | None]) -> _SettingColumns:
    empty = (0.0,) * len(_SettingColumns._fields)
    rows = [empty if pair is None else _make_column_values(*pair) for pair in pairs]
    return _SettingColumns(*zip(*rows, strict=True)) if rows else _SettingColumns(*([()] * len(empty)))


def _make_column_values(mine: ReplayTotals, full: ReplayTotals) -> tuple[float, ...]:
    references = sum(mine.references.values())
    paid = mine.cost + mine.refetch
    return mine.calls, mine.tokens, mine.calls_with_references, mine.served, references, mine.lost, paid, full.cost


def _find_target_point(points: Sequence[_SettingColumns], weights: SessionWeights) -> _TargetPoint | None:
    """Return the point at which the curve first serves enough, if any."""

    def added(column: Sequence[float]) -> float:
        return float(sum(map(mul, weights, column)))

    def at(point: _SettingColumns, tokens: float) -> _TargetPoint:
        return _TargetPoint(
            tokens,
            _share(added(point.cost), added(point.full_cost)),
            _share(added(point.lost), added(point.references)),
        )

    row = [
        (added(point.tokens) / calls, _share(added(point.served), added(point.calls_with_references), 1.0), number)
        for number, point in enumerate(points)
        if (calls := added(point.calls))
    ]
    row.sort()
    found = find_crossing([served for _, served, _ in row])
    if found is None:
        return None
    before, after = (at(points[row[end][2]], row[end][0]) for end in (found.before, found.after))
    return _TargetPoint(*[one + found.share * (other - one) for one, other in zip(before, after, strict=True)])


def find_crossing(served: Sequence[float]) -> CurveCrossing | None:
    """Return where a curve first serves enough, if it does. Its points are in the order of tokens."""
    if served and served[0] >= TARGET_SERVED_SHARE:
        return CurveCrossing(0, 0, 0.0)
    for number, (low, high) in enumerate(pairwise(served)):
        if high >= TARGET_SERVED_SHARE:
            return CurveCrossing(number, number + 1, (TARGET_SERVED_SHARE - low) / (high - low))
    return None


def _compute_gap(*reached: _TargetPoint | None) -> float | None:
    """Return the gap that the first closes between the second and the third; None if these do not differ."""
    mine, window, oracle = (inf if one is None else one.tokens for one in reached)
    if not isfinite(window) or not oracle < window:
        return None
    return (window - mine) / (window - oracle)


def _share(part: float, whole: float, empty: float = 0.0) -> float:
    return part / whole if whole else empty
