"""From what each way did with each session to figures that can be compared, and how far to trust them.

A curve is one policy at several budgets. Its T95 is the fewest tokens a call at which it serves 95 % of the calls that
used earlier text: between two neighbours, in the order of their tokens, the curve is a straight line. C95 and what is
lost are read at the same point of it. Where even the smallest budget serves more, T95 is what that one sends; where no
budget serves enough, there is none, and nothing is made up beyond the last point.

How much chance is in a figure is told by drawing the sessions anew, with putting back, and taking the middle 95 % of
what comes out. The draws are the same for all policies, so a difference is one between the same sessions. A draw in
which 95 % is not reached needs infinitely many tokens. The draws are of sessions, not of projects: they say nothing of
a project that is not among them.

A session that a policy could not take counts neither for it nor for what it is compared with.
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
"""The share of calls that is to be served."""
DRAWS = 400
SEED = 5
SERVED_TOLERANCE = 1e-6
FULL_HISTORY = "full"
"""The way that all costs are told against."""
WINDOW_BASELINE = "newest-batched"
ORACLE_BASELINE = "oracle-batched"
"""The two ends of the gap: what anybody can do without a thought, and what nobody can without knowing the future."""


class StrategySetting(NamedTuple):
    """A way by its name, at one budget; none where it takes none."""

    name: str
    budget: int | None


TotalsBySetting = Mapping[StrategySetting, Mapping[str, ReplayTotals]]
"""What each way did at each budget, by session."""


_SCORE_KEYS = {
    "survival": "hit_share", "resident": "hit_share_by_kind", "lost": "lost_share", "fetched": "refetch_share",
    "replans": "replan_share", "broken": "warm_replan_share", "milliseconds": "decision_milliseconds",
}  # fmt: skip
"""Names in JSON."""


class BudgetScore(Struct, frozen=True, kw_only=True, rename=_SCORE_KEYS):
    """One policy at one budget, over all its sessions."""

    budget: int | None
    sessions: int
    calls: int
    tokens_per_turn: float
    served: float
    """Of the calls that used earlier text, the share whose request held all of it."""
    survival: float
    """The share of what such a call used that its request held, on average."""
    resident: dict[str, float]
    """The same over all that was used, by its kind."""
    lost: float
    """Of what was used, the share that was neither there nor said where to find."""
    fetched: float
    """The share of calls that had to fetch something again."""
    cost: float
    cost_with_refetch: float
    """Both against the full history of the same sessions."""
    replans: float
    broken: float
    """Shares of calls."""
    milliseconds: float
    """What a call took to decide."""


class IntervalEstimate(Struct, frozen=True):
    """A figure, and where it lies in 95 of 100 draws; None is not reached, for the figure and for either end."""

    value: float | None
    interval: tuple[float | None, float | None] | None = None
    """None: too few sessions to tell."""


class BudgetCurve(Struct, frozen=True):
    """One policy at all its budgets, in the order of tokens."""

    name: str
    scores: tuple[BudgetScore, ...]
    t95: IntervalEstimate
    c95: IntervalEstimate
    lost95: IntervalEstimate
    excluded_sessions: int = 0
    """Sessions that it could not take."""

    @property
    def best(self) -> BudgetScore | None:
        """The smallest budget that serves enough, else the one that serves most."""
        enough = [score for score in self.scores if score.served >= TARGET_SERVED_SHARE]
        if enough:
            return min(enough, key=lambda score: (score.budget or inf, score.tokens_per_turn))
        return max(self.scores, key=lambda score: score.served, default=None)


SessionWeights = Sequence[int]
"""How often each session counts."""


class _SettingColumns(NamedTuple):
    """One setting: what is added up, by session; nothing where a session is left out."""

    calls: Sequence[float]
    tokens: Sequence[float]
    calls_with_references: Sequence[float]
    served: Sequence[float]
    references: Sequence[float]
    lost: Sequence[float]
    cost: Sequence[float]
    full_cost: Sequence[float]
    """What the full history of these sessions costs."""


class _TargetPoint(NamedTuple):
    """A curve where it serves enough."""

    tokens: float
    cost: float
    lost: float


class CurveCrossing(NamedTuple):
    """A place on a curve: between which points, and how far from the one to the other."""

    before: int
    after: int
    share: float


class ScoreCalculator:
    """The figures of all policies over some sessions."""

    def __init__(
        self, tallies: TotalsBySetting, sessions: Iterable[str], *, draws: int = DRAWS, seed: int = SEED
    ) -> None:
        """Which sessions count, and in which order they are drawn."""
        self.sessions = tuple(sessions)
        self._totals = tallies
        self._draw_count = draws
        self._seed = seed
        self._bootstrap_cache: dict[
            tuple[str, frozenset[str]], tuple[_TargetPoint | None, list[_TargetPoint | None]]
        ] = {}

    @property
    def strategy_names(self) -> list[str]:
        """The policies, in the order in which they were asked for."""
        return list(dict.fromkeys(setting.name for setting in self._totals))

    def curve(self, name: str) -> BudgetCurve:
        """One policy."""
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
        """How much of the way from a plain window to the oracle a policy goes, by T95; none if one end is missing."""
        if not {name, window, oracle} <= set(self.strategy_names):
            return None
        taken = self.usable_sessions(name) & self.usable_sessions(window) & self.usable_sessions(oracle)
        here, found = zip(*(self._bootstrap_points(one, taken) for one in (name, window, oracle)), strict=True)
        value = _compute_gap(*here)
        if value is None:
            return None
        gaps = [_compute_gap(*three) for three in zip(*found, strict=True)]
        told = [one for one in gaps if one is not None]
        # A draw in which the two ends do not lie apart says nothing; where that is common, so does the rest.
        return IntervalEstimate(_finite(value), compute_interval(told) if len(told) > 0.9 * len(gaps) else None)

    def usable_sessions(self, name: str) -> frozenset[str]:
        """The sessions that a policy could take at all its budgets."""
        every = [self._totals_for(*setting) for setting in self._totals if setting.name == name]
        return frozenset(
            one for one in self.sessions if all(one in by for by in (*every, self._totals_for(FULL_HISTORY, None)))
        )

    def _bootstrap_points(
        self, name: str, taken: frozenset[str]
    ) -> tuple[_TargetPoint | None, list[_TargetPoint | None]]:
        """Where a policy serves enough of these sessions, and where it does in each draw of them."""
        if (name, taken) not in self._bootstrap_cache:
            points = self._setting_columns(name, taken)
            found = [_find_target_point(points, weights) for weights in self._draw_weights] if len(taken) > 1 else []
            self._bootstrap_cache[name, taken] = _find_target_point(points, [1] * len(self.sessions)), found
        return self._bootstrap_cache[name, taken]

    def _budget_scores(self, name: str, taken: frozenset[str]) -> tuple[BudgetScore, ...]:
        order = [one for one in self.sessions if one in taken]  # sums of floats depend on it
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
    """One policy in a group of sessions."""

    curve: BudgetCurve
    gap: IntervalEstimate | None
    """The share of the gap that it closes."""


class SessionGroup(Struct, frozen=True):
    """Sessions that are told together, and all policies on them."""

    name: str
    sessions: int
    calls: int
    calls_with_references: int
    """Calls that used earlier text."""
    references: int
    results: tuple[StrategyResult, ...]


def score_group(name: str, tallies: TotalsBySetting, sessions: Iterable[str]) -> SessionGroup:
    """All policies over some sessions."""
    scores = ScoreCalculator(tallies, sessions)
    full = tallies.get(StrategySetting(FULL_HISTORY, None), {})
    whole = sum_totals(full[one] for one in scores.sessions if one in full)
    lines = tuple(
        StrategyResult(scores.curve(one), scores.gap_closed(one) if one != FULL_HISTORY else None)
        for one in scores.strategy_names
    )
    return SessionGroup(name, len(scores.sessions), whole.calls, whole.bearing, sum(whole.needles.values()), lines)


class BoundViolation(NamedTuple):
    """A way that serves more than anybody can: an error in the measure, for it cannot be one in the world."""

    setting: StrategySetting
    session: str
    served: float
    max_served: float


def find_bound_violations(
    tallies: TotalsBySetting, floors: Mapping[str, Sequence[MinimumCost]], covered: Iterable[str]
) -> list[BoundViolation]:
    """Where a way that the bound holds for lies above it, session by session."""
    names = set(covered)
    found = [
        BoundViolation(
            setting, session, tally.served / tally.bearing, most_served(floors[session], tally.tokens / tally.calls)
        )
        for setting, by in tallies.items()
        for session, tally in by.items()
        if setting.name in names and tally.bearing and session in floors
    ]
    return [one for one in found if one.served > one.max_served + SERVED_TOLERANCE]


def draw_session_weights(sessions: int, *, count: int = DRAWS, seed: int = SEED) -> list[SessionWeights]:
    """How often each of so many sessions is drawn, draw by draw."""
    random, numbers = Random(seed), range(sessions)
    drawn = (Counter(random.choices(numbers, k=len(numbers))) for _ in range(count if numbers else 0))
    return [[counts[number] for number in numbers] for counts in drawn]


def sum_totals(tallies: Iterable[ReplayTotals]) -> ReplayTotals:
    """All of them as one."""
    found = ReplayTotals()
    for one in tallies:
        found.add(one)
    return found


def score_totals(budget: int | None, mine: ReplayTotals, full: ReplayTotals, sessions: int) -> BudgetScore:
    """What a tally says, against that of the full history of the same sessions."""
    needles = sum(mine.needles.values())
    return BudgetScore(
        budget=budget,
        sessions=sessions,
        calls=mine.calls,
        tokens_per_turn=_share(mine.tokens, mine.calls),
        served=_share(mine.served, mine.bearing, 1.0),
        survival=_share(mine.survived, mine.bearing, 1.0),
        resident={kind: mine.resident.get(kind, 0) / count for kind, count in sorted(mine.needles.items()) if count},
        lost=_share(mine.lost, needles),
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
    needles = sum(mine.needles.values())
    paid = mine.cost + mine.refetch
    return mine.calls, mine.tokens, mine.bearing, mine.served, needles, mine.lost, paid, full.cost


def _find_target_point(points: Sequence[_SettingColumns], weights: SessionWeights) -> _TargetPoint | None:
    """Where the curve of these points first serves enough; none where it does not."""

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
    """Where a curve, whose points are in the order of tokens, first serves enough; none where it does not."""
    if served and served[0] >= TARGET_SERVED_SHARE:
        return CurveCrossing(0, 0, 0.0)
    for number, (low, high) in enumerate(pairwise(served)):
        if high >= TARGET_SERVED_SHARE:
            return CurveCrossing(number, number + 1, (TARGET_SERVED_SHARE - low) / (high - low))
    return None


def _compute_gap(*reached: _TargetPoint | None) -> float | None:
    """The gap that the first closes between the second and the third; none where these two do not lie apart."""
    mine, window, oracle = (inf if one is None else one.tokens for one in reached)
    if not isfinite(window) or not oracle < window:
        return None
    return (window - mine) / (window - oracle)


def _share(part: float, whole: float, empty: float = 0.0) -> float:
    return part / whole if whole else empty
