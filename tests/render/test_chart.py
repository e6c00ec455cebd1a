"""A chart is well-formed, its labels do not overlap, and nothing leaves its plot, for any curves and texts."""

import math
from itertools import pairwise
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thresher.render.chart import (
    FONT,
    LABEL_SPACING,
    MAX_NAME_CHARS,
    ChartPanel,
    ChartSeries,
    format_compact_number,
    format_percent,
    render_chart,
    spread_positions,
)

SVG = "{http://www.w3.org/2000/svg}"
RISING = [(8_000.0, 0.7), (20_000.0, 0.9), (60_000.0, 0.99)]


def panel(*series: ChartSeries, **options: Any) -> ChartPanel:
    return ChartPanel("Served", "tokens", "turns", series, **options)


def drawn(*panels: ChartPanel, title: str = "Title", note: str = "Note") -> ElementTree.Element:
    return ElementTree.fromstring(render_chart(panels, title=title, note=note))


def labels(root: ElementTree.Element) -> list[ElementTree.Element]:
    return [text for text in root.iter(f"{SVG}text") if text.get("class") == "label"]


def names(root: ElementTree.Element) -> list[str]:
    return sorted(label.text or "" for label in labels(root))


def marks(root: ElementTree.Element) -> list[tuple[float, float]]:
    """Return the center of every circle."""
    found = (one for one in root.iter(f"{SVG}circle") if one.get("class") == "mark")
    return [(float(one.get("cx", "")), float(one.get("cy", ""))) for one in found]


def plot(root: ElementTree.Element) -> tuple[float, float, float, float]:
    """Return left, top, right and bottom of the first plot."""
    box = next(root.iter(f"{SVG}clipPath"))[0]
    left, top, width, height = (float(box.get(name, "")) for name in ("x", "y", "width", "height"))
    return left, top, left + width, top + height


def words(root: ElementTree.Element) -> list[str]:
    return [text.text or "" for text in root.iter(f"{SVG}text")]


def test_chart_has_title_description_and_background() -> None:
    root = drawn(
        panel(ChartSeries("auto", RISING), y_format=format_percent), title="What is kept", note="Of 12 sessions."
    )
    assert root.tag == f"{SVG}svg"
    assert root.get("role") == "img"
    assert root[0].text == "What is kept"
    assert root[1].text == "Served: auto from 70 % at 8k to 99 % at 60k."
    assert root.get("aria-labelledby") == f"{root[0].get('id')} {root[1].get('id')}"
    assert (root[2].tag, root[2].get("fill")) == (f"{SVG}rect", "#ffffff")
    assert {"What is kept", "Of 12 sessions.", "Served", "tokens", "turns"} <= set(words(root))


def test_chart_is_self_contained() -> None:
    svg = render_chart([panel(ChartSeries("auto", RISING))], title="", note="")
    assert svg.count("http") == svg.count('xmlns="http://www.w3.org/2000/svg"') == 1
    assert not any(sign in svg for sign in ("href", "<script", "<style", "@import"))


def test_each_panel_labels_every_curve_once() -> None:
    one = [ChartSeries(name, RISING) for name in ("auto", "smart", "oracle")]
    root = drawn(panel(*one), panel(*one[:2]))
    assert names(root) == ["auto", "auto", "oracle", "smart", "smart"]


def test_curve_has_one_distinct_style_in_all_panels() -> None:
    series = [ChartSeries(f"policy {n}", RISING) for n in range(20)]
    root = drawn(panel(*series), panel(*reversed(series)))
    looks: dict[str, set[tuple[str | None, str]]] = {}
    for group in (one for one in root.iter(f"{SVG}g") if one.get("class") == "series"):
        mark = next(one for one in group if one.get("class") == "mark")
        corners = len(mark.get("points", "").split())
        flat = (
            corners == 4
            and mark.get("points", "").split()[0].split(",")[1] == mark.get("points", "").split()[1].split(",")[1]
        )
        looks.setdefault(group[0].text or "", set()).add((mark.get("fill"), f"{corners}{flat}"))
    assert [len(look) for look in looks.values()] == [1] * 20
    assert len(set.union(*looks.values())) == 20


def test_line_styles_and_highlights_are_drawn() -> None:
    root = drawn(
        panel(
            ChartSeries("a", RISING),
            ChartSeries("b", RISING, "dashed"),
            ChartSeries("c", RISING, "dotted", is_highlighted=True),
        )
    )
    lines = list(root.iter(f"{SVG}polyline"))
    dashes = [line.get("stroke-dasharray") for line in lines]
    assert dashes[0] is None
    assert len(set(dashes)) == 3
    widths = [float(line.get("stroke-width", "")) for line in lines]
    assert widths[2] > 1.5 * widths[0] == 1.5 * widths[1]
    bold = [label.text for label in labels(root) if label.get("font-weight") == "600"]
    assert bold == ["c"]


def test_highlighted_curve_is_drawn_last() -> None:
    root = drawn(panel(ChartSeries("strong", RISING, is_highlighted=True), ChartSeries("other", RISING)))
    order = [group[0].text for group in root.iter(f"{SVG}g") if group.get("class") == "series"]
    assert order == ["other", "strong"]


@pytest.mark.parametrize("count", [1, 2, 9, 20, 40])
def test_labels_do_not_overlap_and_stay_next_to_the_plot(count: int) -> None:
    root = drawn(
        panel(*(ChartSeries(f"policy {n}", [*RISING[:2], (60_000.0, 0.99 + n / 10_000)]) for n in range(count)))
    )
    heights = sorted(float(label.get("y", "")) for label in labels(root))
    assert len(heights) == count
    assert all(below - above >= FONT for above, below in pairwise(heights))
    left, top, right, bottom = plot(root)
    assert all(top <= height <= bottom for height in heights)
    assert all(float(label.get("x", "")) > right > left for label in labels(root))
    assert {label.get("text-anchor") for label in labels(root)} == {"start"}


def test_label_is_at_the_end_of_its_curve_without_neighbors() -> None:
    root = drawn(
        panel(ChartSeries("high", [(0, 0.5), (10, 1)]), ChartSeries("low", [(0, 0.5), (10, 0.2)]), y_from=0, y_to=1.2)
    )
    ends = {mark[1] for mark in marks(root) if mark[0] == plot(root)[2]}
    high = next(label for label in labels(root) if label.text == "high")
    assert min(abs(float(high.get("y", "")) - 4 - end) for end in ends) < 0.2


def test_curves_with_equal_ends_are_labeled_in_order_of_height() -> None:
    better, worse = ChartSeries("better", [(1, 0.9), (9, 1.0)]), ChartSeries("worse", [(1, 0.1), (9, 1.0)])
    for series in ((better, worse), (worse, better)):
        heights = {label.text: float(label.get("y", "")) for label in labels(drawn(panel(*series)))}
        assert heights["better"] < heights["worse"]


def leaders(root: ElementTree.Element) -> int:
    return sum(line.get("stroke-opacity") == "0.5" for line in root.iter(f"{SVG}line"))


def test_leader_lines_are_drawn_only_to_near_labels() -> None:
    near = [ChartSeries("low", [(1, 0.2), (9, 0.5)]), ChartSeries("high", [(1, 0.4), (9, 1.0)])]
    assert leaders(drawn(panel(*near))) == 2
    close = [ChartSeries(f"p{n}", [(1, n / 10), (9, 1.0)]) for n in range(8)]
    crowded = drawn(panel(*close))
    assert leaders(crowded) == 0
    told = [label.text for label in sorted(labels(crowded), key=lambda one: float(one.get("y", "")))]
    assert told == [f"p{n}" for n in reversed(range(8))]
    across = [ChartSeries("ends early", [(1, 0.2), (2, 1.0)]), ChartSeries("ends late", [(1, 0.2), (9, 0.5)])]
    assert leaders(drawn(panel(*across))) == 0


def test_x_axis_may_start_inside_a_clipped_curve() -> None:
    root = drawn(panel(ChartSeries("auto", [(0.001, 0.2), (20, 0.7), (90, 1.0)]), x_log=True, x_from=10))
    left, _, _, _ = plot(root)
    assert len(marks(root)) == 2
    first = min(float(place.split(",")[0]) for place in next(root.iter(f"{SVG}polyline")).get("points", "").split())
    assert first < left  # and the clip path cuts it
    assert "0.01" not in words(root)
    assert {"10", "20", "50"} <= set(words(root))


@pytest.mark.parametrize("log", [False, True])
def test_all_points_have_markers_inside_the_plot(log: bool) -> None:
    root = drawn(panel(ChartSeries("auto", RISING), x_log=log))
    left, top, right, bottom = plot(root)
    places = marks(root)
    assert len(places) == 3
    assert all(left <= x <= right and top <= y <= bottom for x, y in places)
    assert [x for x, _ in places] == sorted(x for x, _ in places)
    assert [y for _, y in places] == sorted((y for _, y in places), reverse=True)


def test_logarithmic_axis_maps_equal_factors_to_equal_steps() -> None:
    one, two, three = (x for x, _ in marks(drawn(panel(ChartSeries("a", [(10, 1), (100, 2), (1000, 3)]), x_log=True))))
    assert two - one == pytest.approx(three - two, abs=0.2)


def test_y_axis_may_start_above_zero_and_clips_curves() -> None:
    root = drawn(
        panel(ChartSeries("auto", [(1, 0.2), (2, 0.7), (3, 1.0)]), y_from=0.6, y_to=1.0, y_format=format_percent)
    )
    assert len(marks(root)) == 2
    assert [line.get("clip-path") for line in root.iter(f"{SVG}polyline")] == ["url(#plot-0)"]
    assert {"60 %", "70 %", "80 %", "90 %", "100 %"} <= set(words(root))
    assert "50 %" not in words(root)


def test_axes_end_at_round_numbers_around_the_curves() -> None:
    root = drawn(panel(ChartSeries("auto", [(3_100, 0.62), (57_000, 0.97)])))
    assert {"0", "20k", "40k", "60k", "0.6", "0.7", "0.8", "0.9", "1"} <= set(words(root))
    assert not {"80k", "0.5", "1.1"} & set(words(root))


def test_target_line_is_drawn_inside_the_plot() -> None:
    root = drawn(panel(ChartSeries("auto", [(1, 0.5), (2, 0.7)]), guide=0.95, y_format=format_percent))
    assert "95 %" in words(root)
    assert "95 %" not in words(drawn(panel(ChartSeries("auto", [(1, 0.5), (2, 0.7)]), y_format=format_percent)))


def test_target_label_replaces_a_close_tick_label() -> None:
    told = words(drawn(panel(ChartSeries("auto", [(1, 0.5), (2, 1.0)]), guide=0.899, y_format=format_percent)))
    assert "89.9 %" in told
    assert "90 %" not in told
    at_tick = words(drawn(panel(ChartSeries("auto", [(1, 0.5), (2, 1.0)]), guide=0.9, y_format=format_percent)))
    assert at_tick.count("90 %") == 1


def test_calculated_curve_has_no_markers() -> None:
    assert marks(drawn(panel(ChartSeries("bound", [(n, n) for n in range(40)], "dotted")))) == []


HOSTILE = [
    "<script>alert(1)</script>",
    "a & b",
    "\"quoted' name",
    "]]>",
    "&amp;lt;",
    "\x1b[31mred\x1b[0m\x00\x08",
    "\ud800 \ufffe\uffff",
    "two\nlines\tand a tab",
    "x" * 5_000,
]


@pytest.mark.parametrize("text", HOSTILE)
def test_text_is_escaped(text: str) -> None:
    one = ChartPanel(text, text, text, [ChartSeries(text, RISING)], x_format=lambda _: text, y_format=lambda _: text)
    root = drawn(one, title=text, note=text)
    assert {element.tag.removeprefix(SVG) for element in root.iter()} == {
        "svg", "title", "desc", "rect", "g", "clipPath", "text", "line", "polyline", "circle",
    }  # fmt: skip
    (label,) = names(root)
    assert len(label) <= MAX_NAME_CHARS
    assert max(map(len, words(root))) <= 200


def test_markup_in_a_name_is_shown_as_it_is_written() -> None:
    assert names(drawn(panel(ChartSeries("<b>&amp;</b>", RISING)))) == ["<b>&amp;</b>"]
    assert "<b>" not in render_chart([panel(ChartSeries("<b>", RISING))], title="<b>", note="<b>")


@pytest.mark.parametrize(
    "points",
    [
        [],
        [(1, 1)],
        [(0, 0)],
        [(5, 2), (5, 2)],
        [(5, 1), (5, 2)],
        [(1, 2), (3, 2)],
        [(-4, -2), (-1, -2)],
        [(math.nan, 1), (1, math.inf), (2, -math.inf), (3, 0.5)],
        [(1e300, 1), (1, 1e-300)],
        [(1e11, 1), (1e11 + 1e-4, 1)],
    ],
)
@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize("limits", [{}, {"y_from": 0.6}, {"y_to": 1.0}, {"y_from": 1.0, "y_to": 1.0}, {"guide": 0.95}])
def test_unusual_curves_do_not_fail(points: list[tuple[float, float]], log: bool, limits: dict[str, float]) -> None:
    root = drawn(panel(ChartSeries("odd", points), x_log=log, **limits))
    left, top, right, bottom = plot(root)
    assert right > left
    assert bottom > top
    assert all(left <= x <= right and top <= y <= bottom for x, y in marks(root))
    assert names(root) == ["odd"]
    assert not {"nan", "inf", "-inf"} & set(" ".join(words(root)).split())


def test_empty_chart_is_valid() -> None:
    assert labels(drawn()) == []
    assert labels(drawn(panel())) == []


ordinary = st.floats(-1e9, 1e9)


@given(st.lists(st.tuples(ordinary, ordinary), min_size=1, max_size=8), st.booleans())
def test_any_curve_stays_in_its_plot_between_ticks(points: list[tuple[float, float]], log: bool) -> None:
    root = drawn(panel(ChartSeries("any", points), x_log=log))
    left, top, right, bottom = plot(root)
    assert len(marks(root)) == sum(x > 1e-12 or not log for x, _ in points)
    assert all(left <= x <= right and top <= y <= bottom for x, y in marks(root))
    grid = [one for one in root.iter(f"{SVG}line") if one.get("stroke") == "#e6e8eb"]
    assert len(grid) >= 6


@given(st.lists(st.floats(-500, 900), min_size=1, max_size=20))
def test_positions_move_no_more_than_necessary(wished: list[float]) -> None:
    wished.sort()
    low, high = 0.0, 400.0
    places = spread_positions(wished, LABEL_SPACING, low, high)
    assert all(below - above >= LABEL_SPACING - 1e-6 for above, below in pairwise(places))
    assert places[0] >= low
    assert places[-1] <= high + 1e-6
    free = all(below - above >= LABEL_SPACING for above, below in pairwise(wished))
    if free and wished[0] >= low and wished[-1] <= high:
        assert places == pytest.approx(wished)


@pytest.mark.parametrize(
    ("value", "told"),
    [(0, "0"), (0.25, "0.25"), (999, "999"), (1_000, "1k"), (12_500, "12.5k"), (-20_000, "-20k"), (2_500_000, "2.5M")],
)
def test_numbers_are_short(value: float, told: str) -> None:
    assert format_compact_number(value) == told
