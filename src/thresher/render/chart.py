"""Curves as a picture: one SVG text that needs nothing else and is read on light and on dark pages.

Every curve has its name beside its end, so that no eye walks between a line and a legend. Names that would lie on each
other move apart, each as little as it can; a thin line leads to one that had to move. Where curves end so close that
these lines would tangle, there are none: the names are a column in the order of the curves. A curve is told by colour,
by the shape of its marks and by its dashes, for not everybody sees colours, and has the same ones in every panel.
Numbers that no axis can show (none, endless, below the zero of a logarithm) are left out. All text is data: it is
cleaned, shortened and escaped. The same curves give the same bytes.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from itertools import chain
from textwrap import wrap
from typing import Literal, NamedTuple

from msgspec import Struct

from thresher.render.words import shorten

Style = Literal["line", "dashed", "dotted"]
Point = tuple[float, float]

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#b5468b", "#7a7a7a", "#e69f00", "#56b4e9", "#5b3a9e")
"""Apart for all common kinds of sight, and dark enough on white; the order is one of contrast between neighbours."""
DASHES: Mapping[Style, str] = {"line": "", "dashed": ' stroke-dasharray="7 4"', "dotted": ' stroke-dasharray="1.5 4"'}
INK, SOFT, GRID, PAPER = "#1f2328", "#59636e", "#e6e8eb", "#ffffff"

FONT = 12
GAP = 16
"""From one name to the next below it."""
FAR = 2 * GAP
ACROSS = 0.3
"""A name that had to move further, or that so much of the plot lies before, is not led to."""
LOOKS = 40
"""Places across a plot where curves are compared in height."""
LONGEST = 26
"""Letters of a name."""
WIDE, HIGH = 540, 300
"""A panel with all that is around it, and its plot alone; a plot is higher where that many names need it."""
LETTER = 6.6
"""About the width of one; SVG cannot measure."""
TOP, LEFT, BELOW, MARGIN = 34, 58, 52, 18
LARGEST = 1e12
MARKED = 12
"""Points that are marked each; a curve of more is one that was calculated, not measured here and there."""


def number(value: float) -> str:
    """As short as it can be read: 0.5, 850, 12k, 1.2M."""
    for scale, unit in ((1_000_000, "M"), (1_000, "k")):
        if abs(value) >= scale:
            return f"{value / scale:.4g}{unit}"
    return f"{value:.4g}"


def percent(value: float) -> str:
    """A share of one in hundredths."""
    return f"{100 * value:.4g} %"


class Series(Struct, frozen=True):
    """One curve; its points are joined in this order, and its name stands beside the last of them."""

    name: str
    points: Sequence[Point]
    style: Style = "line"
    strong: bool = False


class Panel(Struct, frozen=True):
    """Curves over the same two axes."""

    title: str
    x_label: str
    y_label: str
    series: Sequence[Series]
    x_format: Callable[[float], str] = number
    y_format: Callable[[float], str] = number
    x_log: bool = False
    """Equal steps are equal factors."""
    x_from: float | None = None
    y_from: float | None = None
    """Where the axis begins; curves below it are cut off there."""
    y_to: float | None = None
    guide: float | None = None
    """A height to be marked all across: a goal."""


def chart(panels: Sequence[Panel], *, title: str, note: str = "", columns: int = 2) -> str:
    """The panels as one SVG, side by side and then below each other."""
    columns = max(1, min(columns, len(panels)))
    width = columns * WIDE + 2 * MARGIN
    names = dict.fromkeys(one.name for panel in panels for one in panel.series)
    # Whoever gets a colour again gets it with another shape.
    looks = {name: _Look(COLOURS[n % len(COLOURS)], n + n // len(COLOURS)) for n, name in enumerate(names)}
    head = _lines(title, width - 2 * MARGIN, 18)
    foot = _lines(note, width - 2 * MARGIN, FONT)
    top = MARGIN + 24 * len(head)
    body: list[str] = []
    for start in range(0, len(panels), columns):
        row = panels[start : start + columns]
        high = max(HIGH, *(GAP * len(panel.series) for panel in row))
        for column, panel in enumerate(row):
            body += _panel(panel, start + column, (MARGIN + column * WIDE, top), high, looks)
        top += TOP + high + BELOW
    below = [_text((MARGIN, top + 8 + 16 * n), line, fill=SOFT) for n, line in enumerate(foot)]
    height = top + 16 * len(foot) + MARGIN
    above = [_text((MARGIN, MARGIN + 15 + 24 * n), line, size=18, weight=600) for n, line in enumerate(head)]
    return "\n".join((*_opening(width, height, title, _told(panels)), *above, *body, *below, "</svg>")) + "\n"


def _opening(width: float, height: float, title: str, told: str) -> Iterator[str]:
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_n(width)} {_n(height)}" width="{_n(width)}" '
        f'height="{_n(height)}" role="img" aria-labelledby="chart-title chart-told" font-size="{FONT}" '
        "font-family=\"system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif\">"
    )
    yield f'<title id="chart-title">{_safe(title, 500)}</title>'
    yield f'<desc id="chart-told">{_safe(told, 20_000)}</desc>'
    yield f'<rect width="{_n(width)}" height="{_n(height)}" rx="8" fill="{PAPER}"/>'


def _told(panels: Sequence[Panel]) -> str:
    """What the picture says, for those who do not see it: where each curve begins and ends."""
    return " ".join(f"{panel.title}: {_curves_told(panel)}." for panel in panels)


def _curves_told(panel: Panel) -> str:
    def at(point: Point) -> str:
        return f"{panel.y_format(point[1])} at {panel.x_format(point[0])}"

    curves = ((shorten(one.name, LONGEST), _shown(panel, one)) for one in panel.series)
    return "; ".join(f"{name} from {at(points[0])} to {at(points[-1])}" for name, points in curves if points)


# One panel


class _Look(NamedTuple):
    colour: str
    shape: int


class _Axis(NamedTuple):
    """From values to places."""

    low: float
    high: float
    start: float
    stop: float
    log: bool
    ticks: list[float]

    def at(self, value: float) -> float:
        low, high, value = (math.log(one) if self.log else one for one in (self.low, self.high, value))
        return self.start + (value - low) / (high - low) * (self.stop - self.start)

    def holds(self, value: float) -> bool:
        return self.low <= value <= self.high


def _panel(
    panel: Panel, number_: int, corner: tuple[float, float], high: float, looks: Mapping[str, _Look]
) -> Iterator[str]:
    names = [shorten(one.name, LONGEST) for one in panel.series]
    names_wide = 46 + LETTER * max(map(len, names), default=0)
    left, top = corner[0] + LEFT, corner[1] + TOP
    right, bottom = corner[0] + WIDE - names_wide, top + high
    curves = [_shown(panel, one) for one in panel.series]
    points = list(chain.from_iterable(curves))
    x = _axis([point[0] for point in points], left, right, log=panel.x_log, low=panel.x_from)
    heights = [point[1] for point in points] + [one for one in (panel.guide,) if one is not None]
    y = _axis(heights, bottom, top, low=panel.y_from, high=panel.y_to)
    yield f'<g class="panel"><title>{_safe(panel.title, 200)}</title>'
    yield f'<clipPath id="plot-{number_}">{_box(x, y, "")}</clipPath>'
    yield _text((left, corner[1] + 22), _safe(panel.title, 62), size=14, weight=600)
    yield from _frame(panel, x, y)
    # The strong ones are drawn last, over the others.
    for one, curve in sorted(zip(panel.series, curves, strict=True), key=lambda pair: pair[0].strong):
        yield from _curve(one, [(x.at(a), y.at(b)) for a, b in curve], looks[one.name], x, y, number_)
    yield from _names(panel, [[(x.at(a), y.at(b)) for a, b in curve] for curve in curves], looks, x, y)
    yield "</g>"


def _shown(panel: Panel, series: Series) -> list[Point]:
    """The points that an axis can show."""
    fit = ((float(a), float(b)) for a, b in series.points if abs(a) < LARGEST and abs(b) < LARGEST)
    return [(a, b) for a, b in fit if a > 1 / LARGEST or not panel.x_log]


def _frame(panel: Panel, x: _Axis, y: _Axis) -> Iterator[str]:
    """The grid, its numbers, and what the axes are; a goal's number takes the place of one that is too near."""
    goal = panel.guide if panel.guide is not None and y.holds(panel.guide) else None
    for tick in y.ticks:
        yield _stroke((x.start, y.at(tick)), (x.stop, y.at(tick)), GRID)
        if goal is None or abs(y.at(tick) - y.at(goal)) >= FONT:
            yield _text((x.start - 8, y.at(tick) + 4), _safe(panel.y_format(tick), 12), fill=SOFT, anchor="end")
    for tick in x.ticks:
        yield _stroke((x.at(tick), y.start), (x.at(tick), y.stop), GRID)
        yield _text((x.at(tick), y.start + 18), _safe(panel.x_format(tick), 12), fill=SOFT, anchor="middle")
    yield _box(x, y, f' fill="none" stroke="{SOFT}" stroke-opacity="0.45"')
    yield _text(((x.start + x.stop) / 2, y.start + 38), _safe(panel.x_label, 60), fill=SOFT, anchor="middle")
    aside = x.start - LEFT + 10
    middle = (y.start + y.stop) / 2
    turned = f' transform="rotate(-90 {_n(aside)} {_n(middle)})"'
    yield _text((aside, middle), _safe(panel.y_label, 46), fill=SOFT, anchor="middle", more=turned)
    if goal is not None:
        yield _stroke((x.start, y.at(goal)), (x.stop, y.at(goal)), SOFT, ' stroke-opacity="0.7"')
        yield _text((x.start - 8, y.at(goal) + 4), _safe(panel.y_format(goal), 12), weight=600, anchor="end")


def _curve(series: Series, places: Sequence[Point], look: _Look, x: _Axis, y: _Axis, number_: int) -> Iterator[str]:
    if not places:
        return
    thick = 3.4 if series.strong else 1.9
    line = " ".join(f"{_n(a)},{_n(b)}" for a, b in places)
    yield f'<g class="series"><title>{_safe(series.name, 200)}</title>'
    yield (
        f'<polyline clip-path="url(#plot-{number_})" points="{line}" fill="none" stroke="{look.colour}" '
        f'stroke-width="{thick}" stroke-linejoin="round" stroke-linecap="round"{DASHES[series.style]}/>'
    )
    marked = places if len(places) <= MARKED else ()
    near = 0.04  # a tick may lie a hair before the number that it is for
    inside = ((a, b) for a, b in marked if -near <= a - x.start <= x.stop - x.start + near)
    inside = ((a, b) for a, b in inside if -near <= b - y.stop <= y.start - y.stop + near)
    yield from (_mark(place, look, 4.2 if series.strong else 3.2) for place in inside)
    yield "</g>"


def _mark(place: Point, look: _Look, size: float, role: str = "mark") -> str:
    """A circle, a square, a triangle or a diamond."""
    a, b = place
    paint = f'class="{role}" fill="{look.colour}" stroke="{PAPER}" stroke-width="0.8"'
    kind = look.shape % 4
    if kind == 0:
        return f'<circle cx="{_n(a)}" cy="{_n(b)}" r="{size}" {paint}/>'
    corners = {
        1: ((-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)),
        2: ((0, -1.25), (1.15, 0.9), (-1.15, 0.9)),
        3: ((0, -1.3), (1.3, 0), (0, 1.3), (-1.3, 0)),
    }[kind]
    shape = " ".join(f"{_n(a + size * across)},{_n(b + size * down)}" for across, down in corners)
    return f'<polygon points="{shape}" {paint}/>'


# Names beside the ends of curves


def _names(
    panel: Panel, curves: Sequence[Sequence[Point]], looks: Mapping[str, _Look], x: _Axis, y: _Axis
) -> Iterator[str]:
    ends = [min(max(curve[-1][1], y.stop), y.start) if curve else y.start for curve in curves]
    means = [_mean_height(curve, x, y) if curve else math.inf for curve in curves]
    # Curves that end together stand in the order in which they run.
    order = sorted(range(len(ends)), key=lambda n: (round(ends[n] / GAP), means[n]))
    heights = apart([ends[n] for n in order], GAP, y.stop + FONT / 2, y.start - FONT / 2)
    led = all(abs(height - ends[n]) <= FAR for n, height in zip(order, heights, strict=True))
    if not led or any(x.stop - curve[-1][0] > ACROSS * (x.stop - x.start) for curve in curves if curve):
        led = False
        order.sort(key=lambda n: means[n])
    for n, height in zip(order, heights, strict=True):
        one, look = panel.series[n], looks[panel.series[n].name]
        begin, stop = x.stop + 14, x.stop + 38
        if curves[n] and led:
            yield _stroke(
                (curves[n][-1][0], ends[n]), (begin, height), look.colour, ' stroke-opacity="0.5" stroke-width="0.7"'
            )
        width = f' stroke-width="{3.4 if one.strong else 1.9}"{DASHES[one.style]}'
        yield _stroke((begin, height), (stop, height), look.colour, width)
        if len(curves[n]) <= MARKED:
            yield _mark(((begin + stop) / 2, height), look, 3.2, "sample")
        weight = 600 if one.strong else 400
        yield _text((stop + 6, height + 4), _safe(one.name, LONGEST), weight=weight, more=' class="label"')


def _mean_height(curve: Sequence[Point], x: _Axis, y: _Axis) -> float:
    """The mean over the whole plot of the best that a curve has reached so far; it begins at the bottom."""
    looks = (x.start + (x.stop - x.start) * n / LOOKS for n in range(1, LOOKS + 1))
    return sum(min((b for a, b in curve if a <= look), default=y.start) for look in looks) / LOOKS


def apart(wished: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Places in this order, `gap` from one to the next, as near to the wished ones as can be, and between the ends."""
    pools: list[tuple[float, int]] = []
    for n, place in enumerate(wished):
        sum_, count = place - n * gap, 1
        # Whoever would stand before the last one stands with it, at the middle of all that do.
        while pools and pools[-1][0] / pools[-1][1] > sum_ / count:
            before = pools.pop()
            sum_, count = sum_ + before[0], count + before[1]
        pools.append((sum_, count))
    shifted = chain.from_iterable([sum_ / count] * count for sum_, count in pools)
    last = max(low, high - (len(wished) - 1) * gap)
    return [min(max(place, low), last) + n * gap for n, place in enumerate(shifted)]


# Axes


def _axis(
    values: Sequence[float],
    start: float,
    stop: float,
    *,
    log: bool = False,
    low: float | None = None,
    high: float | None = None,
) -> _Axis:
    values = values or (1.0, 10.0)
    if log:
        values = [one for one in values if low is None or one >= low > 0] or values
        # A little room at both ends, also where all is at one place.
        room = max((max(values) / min(values)) ** 0.04, 1.1)
        least, most = min(values) / room, max(values) * room
        least = low if low is not None and 0 < low < most else least
        ticks = _factors(least, most)
        ticks = ticks if len(ticks) > 2 else _steps(least, most)
    else:
        ticks = _steps(*_limits(values, low, high))
        least = ticks[0] if low is None else low
        most = ticks[-1] if high is None or high <= least else high
    return _Axis(least, most, start, stop, log, [tick for tick in ticks if least <= tick <= most])


def _limits(values: Sequence[float], low: float | None, high: float | None) -> tuple[float, float]:
    """The ends that were given, else those of the values; never the same, and in order."""
    least = low if low is not None else min(*values, values[0] if high is None else high)
    most = high if high is not None and high > least else max(*values, least)
    if most - least > 1e-9 * max(abs(least), abs(most), 1):
        return least, most
    some = 0.1 * abs(least) if abs(least) > 1e-6 else 1.0
    return (least - some if low is None else least), most + some


def _steps(low: float, high: float) -> list[float]:
    """Round numbers from below the one to above the other."""
    rough = (high - low) / 5
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(unit * times for times in (1, 2, 2.5, 5, 10) if unit * times >= rough * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [float(f"{n * step:.10g}") for n in range(first, last + 1)]


def _factors(low: float, high: float) -> list[float]:
    """Round numbers between, at about equal factors."""
    exponents = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    found = [times * 10.0**exponent for exponent in exponents for times in (1, 2, 5)]
    return [one for one in found if low <= one <= high]


# Marks on paper


def _n(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _safe(text: str, width: int) -> str:
    """One line of text that no reader takes for anything else; two signs of Unicode are none in XML."""
    return escape(shorten(text.replace("\ufffe", "").replace("\uffff", ""), width))


def _lines(text: str, width: float, size: float) -> list[str]:
    return [_safe(line, len(line)) for line in wrap(text, int(width / (size * 0.53)))]


def _text(
    place: Point,
    words: str,
    *,
    size: float = FONT,
    weight: int = 400,
    fill: str = INK,
    anchor: str = "start",
    more: str = "",
) -> str:
    """Words that are safe already."""
    look = f'font-size="{_n(size)}" font-weight="{weight}" fill="{fill}" text-anchor="{anchor}"'
    return f'<text x="{_n(place[0])}" y="{_n(place[1])}" {look}{more}>{words}</text>'


def _stroke(start: Point, stop: Point, colour: str, more: str = "") -> str:
    ends = f'x1="{_n(start[0])}" y1="{_n(start[1])}" x2="{_n(stop[0])}" y2="{_n(stop[1])}"'
    return f'<line {ends} stroke="{colour}"{more}/>'


def _box(x: _Axis, y: _Axis, more: str) -> str:
    size = f'width="{_n(x.stop - x.start)}" height="{_n(y.start - y.stop)}"'
    return f'<rect x="{_n(x.start)}" y="{_n(y.stop)}" {size}{more}/>'
