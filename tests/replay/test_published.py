"""The published tables: the values they read from curves, and a round trip of saved measurements."""

import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from thresher.replay.scores import ScoreCalculator, StrategySetting
from thresher.replay.simulate import ReplayTotals
from thresher.replay.strategies.registry import make_strategy, rates_for_price_list
from thresher.replay.strategies.upper_bound import MinimumCost
from thresher.replay.sweep_results import ReplayedSession, ReplayFailure, SweepResults

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
from replay_tables import Curves, Point, Tables, count_quotes_only, find_target, interpolate, markdown

from replay import SEEDS, SavedRun, average_seeds, build_report, find_violations, load_results, merge_runs, save_run


def totals(tokens: int, served: int, *, cost: float = 1.0, calls_with_all_quotes: int = 0) -> ReplayTotals:
    """Return totals of ten calls with references; half of them are quotes."""
    used = {"E": 100}
    of = ReplayTotals(
        calls=10, tokens=10 * tokens, calls_with_references=100, served=served, references=used, cost=cost
    )
    return msgspec.structs.replace(of, calls_with_quotes=50, calls_with_all_quotes=calls_with_all_quotes)


SESSIONS = ("a.jsonl#1", "b.jsonl#2", "c.jsonl#3", "d.jsonl#4", "e.jsonl#5")
CURVES = {
    ("full", None): (1000, 100),
    ("auto", 100): (200, 90),
    ("auto", 200): (400, 100),
    ("newest-batched", 100): (100, 40),
    ("newest-batched", 200): (500, 80),
    ("random", 100): (250, 50),
    ("oracle-batched", 100): (150, 99),
}
TALLIES = {StrategySetting(*one): dict.fromkeys(SESSIONS, totals(*told)) for one, told in CURVES.items()}


def results() -> SweepResults:
    return SweepResults(
        sessions={
            key: ReplayedSession(key.partition("#")[0], key[-1], "claude-code", "shop", 1, 10) for key in SESSIONS
        },
        totals_by_setting=TALLIES,
        minimum_costs={key: [MinimumCost(10, 100, (1,) * 100)] for key in SESSIONS},
        failures=[ReplayFailure("x.txt", "", "no format", "format")],
        files=6,
        short=2,
    )


def test_curve_is_interpolated_but_not_extrapolated() -> None:
    points = [Point(100, 0.4), Point(500, 0.8), Point(1000, 1.0)]
    assert interpolate(points, 300) == pytest.approx(0.6)
    assert (interpolate(points, 50), interpolate(points, 5000)) == (0.4, 1.0)
    assert find_target(points) == pytest.approx((875, 0.95))
    assert find_target(points[:2]) is None
    assert find_target([Point(7, 0.99), Point(9, 1.0)]) == Point(7, 0.99)


def test_others_are_compared_at_equal_tokens() -> None:
    found = Curves(TALLIES, SESSIONS, ("auto", "newest-batched")).equal(("newest-batched",))
    assert found is not None
    assert found.reached
    assert found.ours == pytest.approx((300, 0.95))
    served, more = found.others["newest-batched"]
    assert served == pytest.approx(0.6)
    assert more.value == pytest.approx(0.35)
    assert more.interval == pytest.approx((0.35, 0.35))
    assert ScoreCalculator(TALLIES, SESSIONS).curve("auto").t95.value == pytest.approx(found.ours.tokens)


def test_session_that_one_policy_cannot_take_is_excluded() -> None:
    less = {**TALLIES, StrategySetting("newest-batched", 100): dict.fromkeys(SESSIONS[1:], totals(100, 40))}
    assert Curves(less, SESSIONS, ("auto", "newest-batched")).sessions == [*SESSIONS[1:]]


def test_random_is_the_mean_of_its_seeds() -> None:
    made = {StrategySetting(seed, 100): {"a": totals(100 * n, 10 * n, cost=n)} for n, seed in enumerate(SEEDS, 1)}
    averages = average_seeds({StrategySetting("full", None): {"a": totals(1000, 100)}, **made})
    one = averages[StrategySetting("random", 100)]["a"]
    assert (one.tokens / one.calls, one.served / one.calls_with_references, one.cost) == (200, 0.2, 2)
    assert make_strategy("random-7", 100, rates_for_price_list("anthropic")).budget == 100


def test_quotes_are_counted_separately() -> None:
    made = {StrategySetting("auto", 100): {"a": totals(100, 90, calls_with_all_quotes=20)}}
    assert (
        ScoreCalculator({**made, StrategySetting("full", None): made[StrategySetting("auto", 100)]}, ["a"])
        .curve("auto")
        .scores[0]
        .served
        == 0.9
    )
    quotes = count_quotes_only(made)[StrategySetting("auto", 100)]["a"]
    assert (quotes.calls_with_references, quotes.served) == (50, 20)


def test_saved_measurements_round_trip() -> None:
    again = load_results(msgspec.json.decode(msgspec.json.encode(save_run(results(), "anthropic")), type=SavedRun))
    assert again == results()


def test_runs_of_the_same_sessions_are_merged() -> None:
    newer = {StrategySetting("auto", 300): dict.fromkeys(SESSIONS, totals(600, 100))}
    first, second = (
        save_run(one, "openai") for one in (results(), msgspec.structs.replace(results(), totals_by_setting=newer))
    )
    found = merge_runs([first, second]).totals_by_setting
    assert found == {**{one: by for one, by in TALLIES.items() if one.name != "auto"}, **newer}
    old = msgspec.structs.replace(first, definition="")
    assert merge_runs([old, second]).totals_by_setting == found


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"prices": "gemini"}, "prices are openai, gemini"),
        ({"definition": "v0"}, "definitions are v1, v0"),
        ({"sessions": dict(list(results().sessions.items())[1:])}, "sessions are not the same"),
        ({"sessions": {}, "definition": ""}, "sessions are not the same"),
    ],
)
def test_runs_with_different_settings_are_refused(change: dict[str, Any], told: str) -> None:
    one = save_run(results(), "openai")
    other = msgspec.structs.replace(one, **change)
    assert one.definition == "v1"
    with pytest.raises(ValueError, match=told):
        merge_runs([one, other])


def test_tables_show_the_better_policy_and_skipped_data() -> None:
    projects = {"owner/shop": [*SESSIONS], "owner/small": ["a.jsonl#1"]}
    lines = list(markdown(Tables(build_report(results(), "anthropic"), 100, projects)))
    shop = (
        "| owner/shop | 5 | 50 | 0.3k (0.3k to 0.3k) | not reached | 0.3k | 95.0 % | 60.0 % | +35.0 (+35.0 to +35.0) |"
    )
    assert f"{shop} better |" in lines
    assert not any("owner/small" in line for line in lines)
    assert sum("knows the future" in line for line in lines) == 1
    assert lines[-1].startswith("Based on 5 sessions")
    assert any(line.startswith("Skipped: 2 recordings") for line in lines)


def test_strategies_above_the_bound_are_reported() -> None:
    assert find_violations(results()) == []
    dear = msgspec.structs.replace(
        results(), minimum_costs={key: [MinimumCost(10, 100, (10**6,) * 100)] for key in SESSIONS}
    )
    assert any(text.startswith("newest-batched at 200 serves 80.00%") for text in find_violations(dear))
    assert not any(text.startswith("auto") for text in find_violations(dear))
