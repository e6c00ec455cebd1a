"""Scores calculated by hand, and intervals that reflect the variation between sessions."""

from collections.abc import Mapping, Sequence
from math import isclose

import pytest

from thresher.replay.scores import (
    FULL_HISTORY,
    ORACLE_BASELINE,
    WINDOW_BASELINE,
    BudgetCurve,
    IntervalEstimate,
    ScoreCalculator,
    StrategySetting,
    find_bound_violations,
    score_group,
    sum_totals,
)
from thresher.replay.simulate import ReplayTotals
from thresher.replay.strategies.upper_bound import MinimumCost


def totals(
    tokens: int,
    served: int,
    *,
    calls: int = 10,
    calls_with_references: int = 100,
    cost: float = 1.0,
    lost: int = 0,
    refetch: float = 0,
) -> ReplayTotals:
    return ReplayTotals(
        calls=calls,
        tokens=tokens * calls,
        calls_with_references=calls_with_references,
        served=served,
        hit_share_sum=float(served),
        references={"E": calls_with_references, "G": calls_with_references},
        hits={"E": served, "G": calls_with_references},
        lost=lost,
        refetch_calls=1,
        cost=cost,
        refetch_cost=refetch,
    )


def table(**ways: Mapping[int, Sequence[ReplayTotals | None]]) -> dict[StrategySetting, dict[str, ReplayTotals]]:
    """Return totals by strategy, budget and session (`s0`, `s1`, …), with a full history of cost 10 per session."""
    found: dict[StrategySetting, dict[str, ReplayTotals]] = {}
    longest = 0
    for name, budgets in ways.items():
        for budget, row in budgets.items():
            by = {f"s{n}": one for n, one in enumerate(row) if one is not None}
            found[StrategySetting(name.replace("_", "-"), budget)] = by
            longest = max(longest, len(row))
    found[StrategySetting(FULL_HISTORY, None)] = {f"s{n}": totals(1000, 100, cost=10.0) for n in range(longest)}
    return found


def scores(**ways: Mapping[int, Sequence[ReplayTotals | None]]) -> ScoreCalculator:
    totals_by_setting = table(**ways)
    return ScoreCalculator(totals_by_setting, totals_by_setting[StrategySetting(FULL_HISTORY, None)])


def test_score_contains_shares_and_relative_costs() -> None:
    one = totals(200, 90, cost=4.0, lost=5, refetch=2.0)
    score = scores(strategy={8: [one, one]}).curve("strategy").scores[0]
    assert (score.budget, score.sessions, score.calls, score.tokens_per_turn) == (8, 2, 20, 200)
    assert (score.served, score.hit_share, score.hit_share_by_kind) == (0.9, 0.9, {"E": 0.9, "G": 1.0})
    assert (score.lost_share, score.refetch_share, score.cost, score.cost_with_refetch) == (0.025, 0.1, 0.4, 0.6)


def test_t95_is_interpolated_in_order_of_tokens() -> None:
    rows = {
        8: [totals(100, 90, cost=2.0, lost=20)],
        16: [totals(300, 100, cost=4.0)],
        4: [totals(50, 40, cost=1.0)],
    }
    curve = scores(strategy=rows).curve("strategy")
    assert [score.tokens_per_turn for score in curve.scores] == [50, 100, 300]
    assert curve.t95.value == pytest.approx(200)
    assert curve.c95.value == pytest.approx(0.3)
    assert curve.lost95.value == pytest.approx(0.05)


def test_first_crossing_counts_for_a_curve_that_falls_again() -> None:
    rows = {1: [totals(100, 90)], 2: [totals(200, 100)], 3: [totals(300, 80)], 4: [totals(400, 99)]}
    assert scores(strategy=rows).curve("strategy").t95.value == pytest.approx(150)


def test_smallest_sufficient_budget_is_t95_and_an_insufficient_curve_has_none() -> None:
    assert scores(strategy={8: [totals(70, 97)], 9: [totals(90, 99)]}).curve("strategy").t95.value == 70
    curve = scores(strategy={8: [totals(70, 60)], 9: [totals(90, 94)]}).curve("strategy")
    assert (curve.t95.value, curve.c95.value, curve.lost95.value) == (None, None, None)


def test_best_score_is_the_smallest_sufficient_budget_or_the_highest_share() -> None:
    def best(curve: BudgetCurve) -> int | None:
        assert curve.best is not None
        return curve.best.budget

    assert best(scores(strategy={1: [totals(9, 90)], 2: [totals(20, 96)], 3: [totals(10, 99)]}).curve("strategy")) == 2
    assert best(scores(strategy={1: [totals(9, 90)], 2: [totals(20, 80)]}).curve("strategy")) == 1


def test_session_that_a_policy_cannot_take_is_not_counted() -> None:
    cheap, dear = totals(100, 99, cost=1.0), totals(900, 99, cost=9.0)
    found = scores(whole={8: [cheap, dear]}, part={8: [cheap, None], 9: [cheap, cheap]})
    assert found.usable_sessions("part") == {"s0"}
    part = found.curve("part")
    assert (part.scores[0].sessions, part.scores[0].cost, part.excluded_sessions) == (1, 0.1, 1)
    assert found.curve("whole").scores[0].cost == 0.5


def test_interval_contains_the_figure_is_deterministic_and_shrinks() -> None:
    def curve(times: int) -> IntervalEstimate:
        low, high = totals(100, 96), totals(300, 96)
        return scores(strategy={8: [low, high] * times}).curve("strategy").t95

    few, many = curve(3), curve(40)
    assert few == curve(3)
    assert few.value == many.value == 200
    assert few.interval is not None
    assert many.interval is not None
    wide = [end for end in few.interval if end is not None]
    narrow = [end for end in many.interval if end is not None]
    assert wide[0] <= narrow[0] < 200 < narrow[1] <= wide[1]


def test_equal_sessions_have_no_variation_and_one_session_has_no_interval() -> None:
    row = [totals(100, 96)] * 4
    assert scores(strategy={8: row}).curve("strategy").t95 == IntervalEstimate(100.0, (100.0, 100.0))
    assert scores(strategy={8: row[:1]}).curve("strategy").t95 == IntervalEstimate(100.0, None)


def test_interval_end_that_draws_do_not_reach_is_none() -> None:
    """One of four sessions is served badly, so it depends on the draw whether 95 % is reached."""
    row = [totals(100, 100), totals(100, 100), totals(100, 100), totals(100, 84)]
    figure = scores(strategy={8: row}).curve("strategy").t95
    assert figure == IntervalEstimate(100.0, (100.0, None))


def test_gap_closed_uses_paired_draws() -> None:
    """Each session needs a different number of tokens, but the policy always closes half the gap: no variation."""
    sizes = [100, 200, 400, 800, 1600]
    found = scores(
        half={8: [totals(3 * size, 96) for size in sizes]},
        newest_batched={8: [totals(4 * size, 96) for size in sizes]},
        oracle_batched={8: [totals(2 * size, 96) for size in sizes]},
    )
    gap = found.gap_closed("half")
    assert gap is not None
    assert gap.value == pytest.approx(0.5)
    assert gap.interval is not None
    assert all(end is not None and isclose(end, 0.5) for end in gap.interval)
    assert found.gap_closed(WINDOW_BASELINE) == IntervalEstimate(0.0, (0.0, 0.0))
    assert found.gap_closed(ORACLE_BASELINE) == IntervalEstimate(1.0, (1.0, 1.0))


def test_gap_uses_the_sessions_that_all_three_took() -> None:
    found = scores(
        policy={8: [totals(300, 96), None]},
        newest_batched={8: [totals(400, 96), totals(9000, 96)]},
        oracle_batched={8: [totals(200, 96), totals(100, 96)]},
    )
    assert found.gap_closed("policy") == IntervalEstimate(0.5, None)


def test_gap_needs_two_different_ends() -> None:
    assert scores(policy={8: [totals(300, 96)]}).gap_closed("policy") is None
    row = {8: [totals(300, 96)]}
    assert scores(policy=row, newest_batched=row, oracle_batched=row).gap_closed("policy") is None
    unreached = {8: [totals(300, 50)]}
    assert scores(policy=row, newest_batched=unreached, oracle_batched=row).gap_closed("policy") is None


def test_policy_that_never_serves_enough_has_no_finite_gap() -> None:
    found = scores(
        policy={8: [totals(300, 50)]}, newest_batched={8: [totals(400, 96)]}, oracle_batched={8: [totals(200, 96)]}
    )
    assert found.gap_closed("policy") == IntervalEstimate(None, None)


def test_calls_without_references_are_all_served() -> None:
    score = scores(strategy={8: [totals(100, 0, calls_with_references=0)]}).curve("strategy").scores[0]
    assert (score.served, score.lost_share, score.hit_share_by_kind) == (1.0, 0.0, {})


def test_group_scores_every_policy_on_its_own_sessions() -> None:
    totals_by_setting = table(strategy={8: [totals(100, 96), totals(300, 96)]})
    found = score_group("some", totals_by_setting, ["s1"])
    assert (found.name, found.sessions, found.calls, found.calls_with_references, found.references) == (
        "some",
        1,
        10,
        100,
        200,
    )
    assert {line.curve.name: line.curve.t95.value for line in found.results} == {"strategy": 300, FULL_HISTORY: 1000}
    assert score_group("none", totals_by_setting, []).calls == 0


def test_covered_strategies_above_the_bound_are_returned() -> None:
    minimum_costs = {"s0": [MinimumCost(10, 500, tuple([10] * 100))]}
    totals_by_setting = table(
        recency={8: [totals(100, 51)]}, smart={8: [totals(100, 90)]}, random={8: [totals(100, 50)]}
    )
    found = find_bound_violations(totals_by_setting, minimum_costs, ["recency", "random"])
    assert [(one.setting, one.session, one.served, one.max_served) for one in found] == [
        (StrategySetting("recency", 8), "s0", 0.51, 0.5)
    ]


def test_sum_adds_totals_and_keeps_its_inputs() -> None:
    one, other = totals(100, 90), totals(300, 70)
    found = sum_totals([one, other])
    assert (found.calls, found.tokens, found.served, found.references) == (20, 4000, 160, {"E": 200, "G": 200})
    assert one == totals(100, 90)
