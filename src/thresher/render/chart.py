"""Render line charts as a self-contained SVG that is readable on light and dark pages.

Every curve has its name at its end instead of in a legend. Overlapping names move apart as little as possible, and a
thin leader line connects a moved name to its curve. If a leader line would be too long, the panel has none, and the
names form a column in the order of the curves. Color, marker shape and dashes distinguish curves, since not everyone
sees all colors. A name has the same style in every panel. Values that an axis cannot show (NaN, infinite,
non-positive on a logarithmic axis) are omitted. All text is cleaned, shortened and escaped. The same input produces the
same bytes.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from html import escape
from itertools import chain
from textwrap import wrap
from typing import Literal, NamedTuple

from msgspec import Struct

from thresher.render.chart_axis import ChartAxis, make_chart_axis
from thresher.render.text import shorten

LineStyle = Literal["line", "dashed", "dotted"]
ChartPoint = tuple[float, float]

COLORS = ("#0072b2", "#d55e00", "#009e73", "#b5468b", "#7a7a7a", "#e69f00", "#56b4e9", "#5b3a9e")
"""Colors that all common kinds of color vision distinguish, dark enough on white. Neighbors have high contrast."""
DASHES: Mapping[LineStyle, str] = {
    "line": "",
    "dashed": ' stroke-dasharray="7 4"',
    "dotted": ' stroke-dasharray="1.5 4"',
}
TEXT_COLOR, MUTED_COLOR, GRID_COLOR, BACKGROUND_COLOR = "#1f2328", "#59636e", "#e6e8eb", "#ffffff"

FONT = 12
LABEL_SPACING = 16
"""Minimum vertical distance between two labels."""
MAX_LABEL_SHIFT = 2 * LABEL_SPACING
"""Maximum distance that a label may move. If one label moves further, leader lines are omitted."""
MAX_LEADER_SHARE = 0.3
"""Maximum horizontal length of leader lines, as a share of the plot's width. If one is longer, all are omitted."""
HEIGHT_SAMPLES = 40
"""Number of positions at which the mean height of a curve is sampled."""
MAX_NAME_CHARS = 26
"""Maximum length of a label."""
PANEL_WIDTH, PLOT_HEIGHT = 540, 300
"""Width of a panel with its labels, and minimum height of a plot, which grows with the number of labels."""
CHARACTER_WIDTH = 6.6
"""Approximate width of a character; SVG cannot measure text."""
TITLE_HEIGHT, Y_AXIS_WIDTH, X_AXIS_HEIGHT, MARGIN = 34, 58, 52, 18
MAX_DRAWN_VALUE = 1e12
MAX_MARKED_POINTS = 12
"""Maximum number of points of a curve with markers. A curve with more points is calculated, not measured."""


def format_compact_number(value: float) -> str:
    """Format a number as short as possible: 0.5, 850, 12k, 1.2M."""
    for scale, unit in ((1_000_000, "M"), (1_000, "k")):
        if abs(value) >= scale:
            return f"{value / scale:.4g}{unit}"
    return f"{value:.4g}"


def format_percent(value: float) -> str:
    """Format a share as percent."""
    return f"{100 * value:.4g} %"


class ChartSeries(Struct, frozen=True):
    """One curve. A line connects the points in their order, and the label is at the last point."""

    name: str
    points: Sequence[ChartPoint]
    style: LineStyle = "line"
    is_highlighted: bool = False


class ChartPanel(Struct, frozen=True):
    """Curves over the same two axes."""

    title: str
    x_label: str
    y_label: str
    series: Sequence[ChartSeries]
    x_format: Callable[[float], str] = format_compact_number
    y_format: Callable[[float], str] = format_compact_number
    x_log: bool = False
    """True if the x axis is logarithmic."""
    x_from: float | None = None
    y_from: float | None = None
    """Start of the y axis; curves are clipped there."""
    y_to: float | None = None
    guide: float | None = None
    """Y value of a horizontal target line; None for no line."""


def render_chart(panels: Sequence[ChartPanel], *, title: str, note: str = "", columns: int = 2) -> str:
    """Return the panels as one SVG, in rows of `columns` panels."""
    columns = max(1, min(columns, len(panels)))
    width = columns * PANEL_WIDTH + 2 * MARGIN
    names = dict.fromkeys(series.name for panel in panels for series in panel.series)
    # With each reuse of a color, the marker shape changes.
    looks = {name: _SeriesLook(COLORS[n % len(COLORS)], n + n // len(COLORS)) for n, name in enumerate(names)}
    head = _lines(title, width - 2 * MARGIN, 18)
    foot = _lines(note, width - 2 * MARGIN, FONT)
    top = MARGIN + 24 * len(head)
    body: list[str] = []
    for start in range(0, len(panels), columns):
        row = panels[start : start + columns]
        high = max(PLOT_HEIGHT, *(LABEL_SPACING * len(panel.series) for panel in row))
        for column, panel in enumerate(row):
            body += _panel(panel, start + column, (MARGIN + column * PANEL_WIDTH, top), high, looks)
        top += TITLE_HEIGHT + high + X_AXIS_HEIGHT
    below = [_text((MARGIN, top + 8 + 16 * n), line, fill=MUTED_COLOR) for n, line in enumerate(foot)]
    height = top + 16 * len(foot) + MARGIN
    above = [_text((MARGIN, MARGIN + 15 + 24 * n), line, size=18, weight=600) for n, line in enumerate(head)]
    description = " ".join(f"{panel.title}: {_describe_curves(panel)}." for panel in panels)
    header = _svg_header(_number(width), _number(height), title, description)
    return "\n".join((*header, *above, *body, *below, "</svg>\n"))


def _svg_header(width: str, height: str, title: str, description: str) -> Iterator[str]:
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" aria-labelledby="chart-title chart-description" font-size="{FONT}" '
        "font-family=\"system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif\">"
    )
    yield f'<title id="chart-title">{_escape_line(title, 500)}</title>'
    yield f'<desc id="chart-description">{_escape_line(description, 20_000)}</desc>'
    yield f'<rect width="{width}" height="{height}" rx="8" fill="{BACKGROUND_COLOR}"/>'


def _describe_curves(panel: ChartPanel) -> str:
    """Describe a panel for screen readers: the first and last point of each curve."""

    def at(point: ChartPoint) -> str:
        return f"{panel.y_format(point[1])} at {panel.x_format(point[0])}"

    curves = ((shorten(series.name, MAX_NAME_CHARS), _drawable_points(panel, series)) for series in panel.series)
    return "; ".join(f"{name} from {at(points[0])} to {at(points[-1])}" for name, points in curves if points)


# Panels


class _SeriesLook(NamedTuple):
    color: str
    shape: int


def _panel(
    panel: ChartPanel, index: int, corner: tuple[float, float], high: float, looks: Mapping[str, _SeriesLook]
) -> Iterator[str]:
    longest = max((len(shorten(series.name, MAX_NAME_CHARS)) for series in panel.series), default=0)
    label_width = 46 + CHARACTER_WIDTH * longest
    left, top = corner[0] + Y_AXIS_WIDTH, corner[1] + TITLE_HEIGHT
    right, bottom = corner[0] + PANEL_WIDTH - label_width, top + high
    curves = [_drawable_points(panel, series) for series in panel.series]
    points = list(chain.from_iterable(curves))
    x = make_chart_axis([point[0] for point in points], left, right, log=panel.x_log, low=panel.x_from)
    heights = [point[1] for point in points] + ([] if panel.guide is None else [panel.guide])
    y = make_chart_axis(heights, bottom, top, low=panel.y_from, high=panel.y_to)
    yield f'<g class="panel"><title>{_escape_line(panel.title, 200)}</title>'
    yield f'<clipPath id="plot-{index}">{_box(x, y, "")}</clipPath>'
    yield _text((left, corner[1] + 22), _escape_line(panel.title, 62), size=14, weight=600)
    yield from _frame(panel, x, y)
    # Draw highlighted curves last, on top of the others.
    placed = [[(x.to_position(a), y.to_position(b)) for a, b in curve] for curve in curves]
    for series, curve in sorted(zip(panel.series, placed, strict=True), key=lambda pair: pair[0].is_highlighted):
        yield from _curve(series, curve, looks[series.name], x, y, index)
    yield from _draw_labels(panel, placed, looks, x, y)
    yield "</g>"


def _drawable_points(panel: ChartPanel, series: ChartSeries) -> list[ChartPoint]:
    """Return the points that the axes can show."""
    fit = ((float(a), float(b)) for a, b in series.points if abs(a) < MAX_DRAWN_VALUE and abs(b) < MAX_DRAWN_VALUE)
    return [(a, b) for a, b in fit if a > 1 / MAX_DRAWN_VALUE or not panel.x_log]


def _frame(panel: ChartPanel, x: ChartAxis, y: ChartAxis) -> Iterator[str]:
    """Draw the grid, tick labels and axis labels. The label of the target replaces a tick label that is too close."""
    target = panel.guide if panel.guide is not None and y.holds(panel.guide) else None
    target_y = None if target is None else y.to_position(target)
    label = partial(_text, fill=MUTED_COLOR, anchor="middle")
    for tick in y.ticks:
        across = y.to_position(tick)
        yield _draw_line((x.start, across), (x.stop, across), GRID_COLOR)
        if target_y is None or abs(across - target_y) >= FONT:
            yield label((x.start - 8, across + 4), _escape_line(panel.y_format(tick), 12), anchor="end")
    for tick in x.ticks:
        down = x.to_position(tick)
        yield _draw_line((down, y.start), (down, y.stop), GRID_COLOR)
        yield label((down, y.start + 18), _escape_line(panel.x_format(tick), 12))
    yield _box(x, y, f' fill="none" stroke="{MUTED_COLOR}" stroke-opacity="0.45"')
    yield label(((x.start + x.stop) / 2, y.start + 38), _escape_line(panel.x_label, 60))
    left, middle = x.start - Y_AXIS_WIDTH + 10, (y.start + y.stop) / 2
    rotation = f' transform="rotate(-90 {_number(left)} {_number(middle)})"'
    yield label((left, middle), _escape_line(panel.y_label, 46), more=rotation)
    if target is not None and target_y is not None:
        yield _draw_line((x.start, target_y), (x.stop, target_y), MUTED_COLOR, ' stroke-opacity="0.7"')
        yield _text((x.start - 8, target_y + 4), _escape_line(panel.y_format(target), 12), weight=600, anchor="end")


def _curve(
    series: ChartSeries, places: Sequence[ChartPoint], look: _SeriesLook, x: ChartAxis, y: ChartAxis, index: int
) -> Iterator[str]:
    if not places:
        return
    thick = 3.4 if series.is_highlighted else 1.9
    line = " ".join(f"{_number(a)},{_number(b)}" for a, b in places)
    yield f'<g class="series"><title>{_escape_line(series.name, 200)}</title>'
    yield (
        f'<polyline clip-path="url(#plot-{index})" points="{line}" fill="none" stroke="{look.color}" '
        f'stroke-width="{thick}" stroke-linejoin="round" stroke-linecap="round"{DASHES[series.style]}/>'
    )
    marked = places if len(places) <= MAX_MARKED_POINTS else ()
    near = 0.04  # rounding may move a point slightly outside the plot
    inside = ((a, b) for a, b in marked if -near <= a - x.start <= x.stop - x.start + near)
    inside = ((a, b) for a, b in inside if -near <= b - y.stop <= y.start - y.stop + near)
    yield from (_draw_marker(place, look, 4.2 if series.is_highlighted else 3.2) for place in inside)
    yield "</g>"


def _draw_marker(place: ChartPoint, look: _SeriesLook, size: float, role: str = "mark") -> str:
    """Draw a circle, a square, a triangle or a diamond."""
    a, b = place
    paint = f'class="{role}" fill="{look.color}" stroke="{BACKGROUND_COLOR}" stroke-width="0.8"'
    kind = look.shape % 4
    if kind == 0:
        return f'<circle cx="{_number(a)}" cy="{_number(b)}" r="{size}" {paint}/>'
    corners = {
        1: ((-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)),
        2: ((0, -1.25), (1.15, 0.9), (-1.15, 0.9)),
        3: ((0, -1.3), (1.3, 0), (0, 1.3), (-1.3, 0)),
    }[kind]
    shape = " ".join(f"{_number(a + size * across)},{_number(b + size * down)}" for across, down in corners)
    return f'<polygon points="{shape}" {paint}/>'


# Labels


def _draw_labels(
    panel: ChartPanel,
    curves: Sequence[Sequence[ChartPoint]],
    looks: Mapping[str, _SeriesLook],
    x: ChartAxis,
    y: ChartAxis,
) -> Iterator[str]:
    ends = [min(max(curve[-1][1], y.stop), y.start) if curve else y.start for curve in curves]
    means = [_mean_height(curve, x, y) if curve else math.inf for curve in curves]
    # Curves that end at the same height are labeled in the order of their mean height.
    order = sorted(range(len(ends)), key=lambda n: (round(ends[n] / LABEL_SPACING), means[n]))
    heights = spread_positions([ends[n] for n in order], LABEL_SPACING, y.stop + FONT / 2, y.start - FONT / 2)
    max_length = MAX_LEADER_SHARE * (x.stop - x.start)
    has_leaders = all(abs(height - ends[n]) <= MAX_LABEL_SHIFT for n, height in zip(order, heights, strict=True))
    has_leaders = has_leaders and all(x.stop - curve[-1][0] <= max_length for curve in curves if curve)
    if not has_leaders:
        order.sort(key=lambda n: means[n])
    for n, height in zip(order, heights, strict=True):
        series, look = panel.series[n], looks[panel.series[n].name]
        start, stop = x.stop + 14, x.stop + 38
        if curves[n] and has_leaders:
            leader = ' stroke-opacity="0.5" stroke-width="0.7"'
            yield _draw_line((curves[n][-1][0], ends[n]), (start, height), look.color, leader)
        width, weight = (3.4, 600) if series.is_highlighted else (1.9, 400)
        yield _draw_line((start, height), (stop, height), look.color, f' stroke-width="{width}"{DASHES[series.style]}')
        if len(curves[n]) <= MAX_MARKED_POINTS:
            yield _draw_marker(((start + stop) / 2, height), look, 3.2, "sample")
        name = _escape_line(series.name, MAX_NAME_CHARS)
        yield _text((stop + 6, height + 4), name, weight=weight, more=' class="label"')


def _mean_height(curve: Sequence[ChartPoint], x: ChartAxis, y: ChartAxis) -> float:
    """Return the mean of a curve's running maximum over the plot's width. Left of the curve, the bottom counts."""
    looks = (x.start + (x.stop - x.start) * n / HEIGHT_SAMPLES for n in range(1, HEIGHT_SAMPLES + 1))
    return sum(min((b for a, b in curve if a <= look), default=y.start) for look in looks) / HEIGHT_SAMPLES


def spread_positions(wished: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Return positions within the limits, at least `gap` apart, in the order of `wished` and close to these values."""
    pools: list[tuple[float, int]] = []
    for n, place in enumerate(wished):
        sum_, count = place - n * gap, 1
        # A pool is a run of positions that are exactly `gap` apart, centered on the wished ones. A position that would
        # precede the last pool joins it.
        while pools and pools[-1][0] / pools[-1][1] > sum_ / count:
            before = pools.pop()
            sum_, count = sum_ + before[0], count + before[1]
        pools.append((sum_, count))
    shifted = chain.from_iterable([sum_ / count] * count for sum_, count in pools)
    last = max(low, high - (len(wished) - 1) * gap)
    return [min(max(place, low), last) + n * gap for n, place in enumerate(shifted)]


# SVG elements


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _escape_line(text: str, width: int) -> str:
    """Shorten a text to one escaped line, without U+FFFE and U+FFFF, which XML does not allow."""
    return escape(shorten(text.replace("\ufffe", "").replace("\uffff", ""), width))


def _lines(text: str, width: float, size: float) -> list[str]:
    return [_escape_line(line, len(line)) for line in wrap(text, int(width / (size * 0.53)))]


def _text(
    place: ChartPoint,
    words: str,
    *,
    size: float = FONT,
    weight: int = 400,
    fill: str = TEXT_COLOR,
    anchor: str = "start",
    more: str = "",
) -> str:
    """Return an SVG text element; `words` must already be escaped."""
    look = f'font-size="{_number(size)}" font-weight="{weight}" fill="{fill}" text-anchor="{anchor}"'
    return f'<text x="{_number(place[0])}" y="{_number(place[1])}" {look}{more}>{words}</text>'


def _draw_line(start: ChartPoint, stop: ChartPoint, color: str, more: str = "") -> str:
    ends = f'x1="{_number(start[0])}" y1="{_number(start[1])}" x2="{_number(stop[0])}" y2="{_number(stop[1])}"'
    return f'<line {ends} stroke="{color}"{more}/>'


def _box(x: ChartAxis, y: ChartAxis, more: str) -> str:
    size = f'width="{_number(x.stop - x.start)}" height="{_number(y.start - y.stop)}"'
    return f'<rect x="{_number(x.start)}" y="{_number(y.stop)}" {size}{more}/>'
