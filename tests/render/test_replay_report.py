"""The terminal output of a replay: no truncated names, no interpreted markup, no interval where there is none."""

import re
from collections.abc import Mapping
from io import StringIO
from xml.etree import ElementTree

import pytest
from rich.console import Console

from thresher.render.chart import format_compact_number
from thresher.render.replay import (
    ReplayReport,
    build_replay_report,
    format_estimate,
    format_rounded_percent,
    format_thousands,
    replay_report_tables,
)
from thresher.render.replay_export import replay_report_chart
from thresher.replay.scores import IntervalEstimate, StrategySetting
from thresher.replay.simulate import ReplayTotals
from thresher.replay.strategies.upper_bound import MinimumCost
from thresher.replay.sweep_results import ReplayedSession, SweepResults

SVG = "{http://www.w3.org/2000/svg}"
Points = Mapping[int | None, tuple[int, int]]
"""By budget: tokens per turn, and how many of 100 turns are served."""
FULL: Points = {None: (50_000, 100)}
WINDOW: Points = {18_000: (12_000, 80), 90_000: (40_000, 98)}
ORACLE: Points = {18_000: (10_000, 90), 90_000: (30_000, 100)}
AUTO: Points = {18_000: (11_000, 85), 90_000: (34_000, 99)}
USUAL: dict[str, Points] = {"auto": AUTO, "newest-batched": WINDOW, "oracle-batched": ORACLE}


def report(ways: Mapping[str, Points], *, sessions: int = 6) -> ReplayReport:
    """Build a report of slightly different sessions, so that bootstrap draws vary."""
    keys = [f"s{n}" for n in range(sessions)]
    totals_by_setting = {
        StrategySetting(name, budget): {key: _tally(sent + 200 * n, served) for n, key in enumerate(keys)}
        for name, points in {**ways, "full": FULL}.items()
        for budget, (sent, served) in points.items()
    }
    facts = {key: ReplayedSession(f"{key}.jsonl", key, "claude-code", f"p{n}", 1, 100) for n, key in enumerate(keys)}
    minimum_costs = {key: [MinimumCost(100, 10, tuple(range(0, 500_000, 5_000)))] for key in keys}
    return build_replay_report(
        SweepResults(sessions=facts, totals_by_setting=totals_by_setting, minimum_costs=minimum_costs), "anthropic"
    )


def _tally(tokens: int, served: int) -> ReplayTotals:
    sent = 100 * tokens
    return ReplayTotals(
        calls=100, tokens=sent, calls_with_references=100, served=served, references={"E": 100}, cost=sent / 10
    )


def shown(of: ReplayReport, width: int = 80) -> list[str]:
    out = Console(file=StringIO(), width=width, highlight=False)
    for piece in replay_report_tables(of, width):
        out.print(piece)
    file = out.file
    assert isinstance(file, StringIO)
    return [line.rstrip() for line in file.getvalue().splitlines()]


def rows(lines: list[str], name: str) -> list[list[str]]:
    """Return each row of a name and the two lines below it, in columns."""
    found = [n for n, line in enumerate(lines) if line.split()[:1] == [name]]
    return [[" ".join(line.split()) for line in lines[n : n + 3]] for n in found]


@pytest.mark.parametrize("width", [60, 80, 160])
def test_names_are_never_truncated_and_rows_fit(width: int) -> None:
    budgets = (18, 27, 36, 48, 64, 90, 128, 180)
    long = [f"/home/somebody/projects/with/a/long/way/to/policies.py:Keep{n}" for n in (1, 2)]
    points: Points = {1000 * one: (700 * one, 90) for one in budgets}
    ways = dict.fromkeys((*long, "newest-batched"), points)
    lines = shown(report(ways), width)
    assert max(map(len, lines)) <= width
    assert not any("…" in line for line in lines)
    left = "".join(line.split(" ")[0] for line in lines)
    assert all(name in left for name in long)
    told = [word for line in lines if line.startswith("budget") for word in line.split()[1:]]
    assert told == [f"{one}k" for one in budgets]


def test_markup_in_a_name_is_not_interpreted() -> None:
    lines = shown(report({"[bold]x/q.py:Few": AUTO, "[/]y.py:Few": AUTO}))
    assert sum(line.startswith("[bold]x/q.py:Few") for line in lines) == 2
    assert sum(line.startswith("[/]y.py:Few") for line in lines) == 2


def test_full_history_is_in_no_budget_column() -> None:
    lines = shown(report(USUAL))
    assert "full (no budget): 100.0 % @ 50.5k / 1.00" in lines
    assert [line.split()[0] for line in lines if line.endswith("@ 12.5k  @ 40.5k")] == ["@"]
    assert len(rows(lines, "full")) == 2


def test_intervals_are_below_figures_except_those_fixed_by_definition() -> None:
    lines = shown(report(USUAL))
    auto, window, oracle, full = (rows(lines, name)[0] for name in (*USUAL, "full"))
    assert auto[0].split()[1] == "27.9k"
    assert auto[1].count(" to ") == 3
    assert window[0].endswith("0 %")
    assert window[1].count(" to ") == oracle[1].count(" to ") == 2
    assert full[0] == "full 50.5k 1.00 0.0 %"
    assert full[1].count(" to ") == 1


def test_few_sessions_have_no_intervals_and_a_note_says_so() -> None:
    lines = shown(report(USUAL, sessions=4))
    assert not any(" to " in line for line in lines[:10])
    assert "Confidence intervals need at least 5 sessions." in " ".join(lines)
    assert "Confidence intervals need" not in " ".join(shown(report(USUAL, sessions=5)))


def test_missing_gap_has_no_column_and_a_note_says_what_it_needs() -> None:
    def head(of: ReplayReport) -> tuple[str, str]:
        lines = shown(of)
        return next(line for line in lines if line.startswith("policy")), " ".join(lines)

    columns, told = head(report({"auto": AUTO}))
    assert re.split(" {2,}", columns) == ["policy", "tokens at 95 %", "cost at 95 %", "lost at 95 %"]
    assert "Gap closed needs --policy newest-batched and --policy oracle-batched." in told
    columns, told = head(report({**USUAL, "newest-batched": {18_000: (12_000, 80)}}))
    assert "gap" not in columns
    note = "Gap closed needs budgets at which newest-batched and oracle-batched serve 95 %, "
    assert f"{note}and newest-batched needs more tokens there." in told
    assert "gap closed" in head(report(USUAL))[0]


def test_reports_for_people_use_the_word_turn() -> None:
    told = " ".join(" ".join(shown(report(USUAL))).split())
    assert "A turn is one model call." in told
    assert "call" not in told.replace("one model call", "")
    assert "call" not in replay_report_chart(report(USUAL))


def test_numbers_are_formatted_consistently() -> None:
    assert format_rounded_percent(-0.123) == "−12.3 %"
    assert format_rounded_percent(-0.0001) == "0.0 %"
    assert format_thousands(36_540) == "36.5k"
    assert format_estimate(IntervalEstimate(1000.0, (500.0, None)), format_thousands) == "1.0k (0.5k to ∞)"
    assert format_estimate(IntervalEstimate(None, (None, None)), format_thousands) == "not reached"
    worse = shown(report({**USUAL, "auto": {18_000: (20_000, 80), 90_000: (45_000, 98)}}))
    assert "−" in rows(worse, "auto")[0][0]


# The chart


def drawn(ways: Mapping[str, Points]) -> ElementTree.Element:
    return ElementTree.fromstring(replay_report_chart(report(ways)))


def bold(root: ElementTree.Element) -> set[str | None]:
    found = (one for one in root.iter(f"{SVG}text") if one.get("class") == "label")
    return {one.text for one in found if one.get("font-weight") == "600"}


@pytest.mark.parametrize(
    ("names", "strong"),
    [
        (("mask", "auto", "recency"), {"auto"}),
        (("recency", "random-3", "cline", "mine.py:few", "mask"), {"mine.py:few"}),
        (("newest-batched", "cline", "random-1"), set()),
    ],
)
def test_default_or_user_policy_is_highlighted_but_never_a_baseline(names: tuple[str, ...], strong: set[str]) -> None:
    assert bold(drawn(dict.fromkeys(names, AUTO))) == strong


def test_expensive_policy_does_not_compress_the_others() -> None:
    dear: Points = {18_000: (20_000, 90), 90_000: (900_000, 99)}
    root = drawn({**USUAL, "cline": dear})
    plots = [clip[0] for clip in root.iter(f"{SVG}clipPath")]
    left, wide = (float(plots[1].get(name, "")) for name in ("x", "width"))
    marks = [one for one in list(root.iter(f"{SVG}g")) if one.get("class") == "series" and one[0].text == "auto"][1]
    places = [float(one.get("cx", "")) for one in marks if one.get("class") == "mark"]
    assert places[1] - places[0] > 0.15 * wide  # 1 % of it on a linear axis
    assert places[0] >= left


def test_bound_starts_at_the_edge_of_the_plot() -> None:
    root = drawn(USUAL)
    plot = next(root.iter(f"{SVG}clipPath"))[0]
    left, top, high = (float(plot.get(name, "")) for name in ("x", "y", "height"))
    bound = next(one for one in root.iter(f"{SVG}g") if one.get("class") == "series" and one[0].text == "bound")[1]
    first = tuple(map(float, bound.get("points", "").split()[0].split(",")))
    assert first[0] < left or first[1] > top + high
    assert bound.get("clip-path") == "url(#plot-0)"
    ticks = {one.text for one in root.iter(f"{SVG}text")}
    assert format_compact_number(10_000) in ticks
    assert not {"100", "1k"} & ticks
