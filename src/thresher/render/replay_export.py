"""Convert a replay report to a chart and to JSON values."""

from collections.abc import Sequence
from math import floor
from typing import Any

import msgspec

from thresher.render.chart import ChartPanel, ChartSeries, format_percent, render_chart
from thresher.render.replay import ReplayReport
from thresher.render.text import plural
from thresher.replay.references import REFERENCE_DEFINITION
from thresher.replay.scores import (
    FULL_HISTORY,
    TARGET_SERVED_SHARE,
    BudgetCurve,
    BudgetScore,
    IntervalEstimate,
    StrategyResult,
    StrategySetting,
)
from thresher.replay.strategies.registry import PEER_STRATEGIES, is_baseline
from thresher.replay.strategies.upper_bound import most_served
from thresher.replay.sweep_results import ReplayFailure

BOUND_POINTS = 60
LEFT_MARGIN_FACTOR = 1.6
"""Ratio of the smallest visible tokens per turn to the start of the x axis. The margin shows the upper bound."""
BOUND_START_SHARE = 1 / 1000
"""Start of the drawn upper bound, relative to the maximum tokens per turn."""


# JSON


def replay_report_value(report: ReplayReport) -> dict[str, Any]:
    """Return the report as JSON values. The keys are stable."""
    overall, results = report.overall, report.results
    full = results.totals_by_setting.get(StrategySetting(FULL_HISTORY, None), {})
    return {
        "reference_definition": REFERENCE_DEFINITION,
        "prices": report.prices,
        "strategies": [_strategy_value(result) for result in overall.results],
        "upper_bound": {
            "tokens_at_95": report.bound,
            "points": [{"tokens_per_turn": x, "served": y} for x, y in _bound_points(report)],
        },
        "calls": overall.calls,
        "calls_with_references": overall.calls_with_references,
        "references": overall.references,
        "sessions": [
            {**msgspec.to_builtins(facts), "references": sum(full[key].references.values()) if key in full else 0}
            for key, facts in results.sessions.items()
        ],
        "formats": [
            {
                "name": group.name,
                "sessions": group.sessions,
                "calls": group.calls,
                "calls_with_references": group.calls_with_references,
                "references": group.references,
                "strategies": [_strategy_value(result) for result in group.results],
            }
            for group in report.formats
        ],
        "short_recordings": results.short,
        "failures": [replay_failure_value(failure) for failure in results.failures],
    }


def replay_failure_value(failure: ReplayFailure) -> dict[str, Any]:
    """Return a failure as JSON values."""
    return msgspec.to_builtins(failure)  # type: ignore[no-any-return]


def _strategy_value(line: StrategyResult) -> dict[str, Any]:
    """Return the scores of a policy at its best budget, the figures at 95 %, and the scores at each budget."""
    curve = line.curve
    best = curve.best
    gap = line.gap or IntervalEstimate(None)
    return {
        "name": curve.name,
        **(dict.fromkeys(BudgetScore.__struct_encode_fields__) if best is None else msgspec.to_builtins(best)),
        "tokens_at_95": curve.t95.value,
        "tokens_at_95_interval": curve.t95.interval,
        "cost_at_95": curve.c95.value,
        "cost_at_95_interval": curve.c95.interval,
        "lost_share_at_95": curve.lost95.value,
        "gap_closed": gap.value,
        "gap_closed_interval": gap.interval,
        "excluded_sessions": curve.excluded_sessions,
        "points": [msgspec.to_builtins(score) for score in curve.scores],
    }


# Chart


def replay_report_chart(report: ReplayReport) -> str:
    """Return an SVG with two panels: the share of turns served against the tokens per turn, and against the cost."""
    curves = [line.curve for line in report.overall.results if line.curve.scores]
    highlighted = _find_highlighted_name([curve.name for curve in curves])
    # Crop policies that serve far less than the highlighted one: a longer axis would compress all other curves.
    shown = [curve for curve in curves if curve.name == highlighted] or curves
    min_served = min((score.served for curve in shown for score in curve.scores), default=0.0)
    start = max(0.0, floor(20 * min_served) / 20 - 0.05)
    by_tokens = [_series(curve, "tokens_per_turn", highlighted) for curve in curves]
    by_cost = [_series(curve, "cost_with_refetch", highlighted) for curve in curves]
    bound = ChartSeries("bound", _bound_curve(report), "dotted")
    visible = (score.tokens_per_turn for curve in curves for score in curve.scores if score.served >= start)
    x_from = min(visible, default=0.0) / LEFT_MARGIN_FACTOR or None
    overall = report.overall
    return render_chart(
        [
            _panel("Turns served by tokens", "tokens per turn", [*by_tokens, bound], start, x_from),
            _panel("Turns served by cost", "cost with refetches, full history = 1", by_cost, start),
        ],
        title="Turns whose request contains all the text they reuse, by policy",
        note=f"{plural(overall.sessions, 'session')}, {plural(overall.calls, 'turn')}, definition "
        f"{REFERENCE_DEFINITION}, prices: {report.prices}. Dashed: baselines and oracles. Dotted: upper bound for "
        "policies that keep or drop whole messages.",
    )


def _find_highlighted_name(names: Sequence[str]) -> str:
    """Return the curve to highlight: `auto`, otherwise the first policy that is neither a baseline nor a peer."""
    if "auto" in names:
        return "auto"
    return next((name for name in names if not is_baseline(name) and name not in PEER_STRATEGIES), "")


def _panel(
    title: str, x_label: str, series: Sequence[ChartSeries], start: float, x_from: float | None = None
) -> ChartPanel:
    return ChartPanel(
        title,
        x_label,
        "turns served",
        series,
        y_format=format_percent,
        x_log=True,  # so that one policy with far more tokens does not compress the other curves
        x_from=x_from,
        y_from=start,
        y_to=1.0,
        guide=TARGET_SERVED_SHARE,
    )


def _series(curve: BudgetCurve, across: str, ours: str) -> ChartSeries:
    points = [(getattr(score, across), score.served) for score in curve.scores]
    return ChartSeries(curve.name, points, "dashed" if is_baseline(curve.name) else "line", curve.name == ours)


def _bound_curve(report: ReplayReport) -> list[tuple[float, float]]:
    """Return points of the upper bound at geometric steps. They start far below all policies; the axes crop them."""
    most = _max_tokens_per_turn(report)
    steps = (BOUND_START_SHARE ** (1 - n / BOUND_POINTS) for n in range(BOUND_POINTS + 1))
    return _bound_at(report, [most * step for step in steps] if most else [])


def _bound_points(report: ReplayReport) -> list[tuple[float, float]]:
    """Return points of the upper bound at equal steps, from 0 to the maximum tokens per turn of the policies."""
    most = _max_tokens_per_turn(report)
    return _bound_at(report, [most * n / BOUND_POINTS for n in range(BOUND_POINTS + 1)])


def _bound_at(report: ReplayReport, tokens: Sequence[float]) -> list[tuple[float, float]]:
    minimum_costs = report.minimum_costs
    return [(value, most_served(minimum_costs, value)) for value in tokens] if minimum_costs else []


def _max_tokens_per_turn(report: ReplayReport) -> float:
    return max((score.tokens_per_turn for line in report.overall.results for score in line.curve.scores), default=0.0)
