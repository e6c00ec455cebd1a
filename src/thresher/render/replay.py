"""What a replay found, as tables in a terminal, as plain values, and as a picture.

The first table says what a policy needs to serve 95 % of the turns, the second what it does at each budget; where a
line has no room for all budgets, there are several of the second. A name is never cut, for then two might look the
same. Names and what a policy raised come from elsewhere: they are cleaned before they reach a terminal, and are no
markup there. What is said to a person calls a model call a turn.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from math import floor as whole_below
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from thresher.render.chart import Panel, Series, chart, percent
from thresher.render.words import amount, clean, plural
from thresher.replay.bound import Floor, least_tokens, most_served
from thresher.replay.references import DEFINITION
from thresher.replay.scores import FULL, ORACLE, SERVED, WINDOW, Curve, Figure, Group, Line, Score, Setting, group
from thresher.replay.sweep import CALLS, Failure, Results
from thresher.replay.ways import PEERS, is_control

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text

NOT_REACHED = "not reached"
CELL = 10
"""The width of a cell of the second table, with the room beside it."""
NAMED = 24
"""What names have at least of a line; longer ones go on below."""
GRID = 60
ROOM = 1.6
"""How far to the left of all policies the picture begins, as a factor: the bound is seen to come from there."""
BELOW = 1 / 1000
"""Where the bound is drawn from, against the most that anybody sends."""
FEW = 5
"""Sessions below which an interval means little, and is not shown."""
Say = Callable[[float], str]
"""A number as it is said."""


class Report(Struct, frozen=True, kw_only=True):
    """All that is said of a replay."""

    prices: str
    results: Results
    whole: Group
    formats: tuple[Group, ...]
    """One each, where there are several."""
    bound: float | None
    """The fewest tokens a turn at which anybody who keeps whole blocks can serve 95 %."""

    @property
    def floors(self) -> list[Floor]:
        """Those of all sessions."""
        return [one for floors in self.results.floors.values() for one in floors]


def report_of(results: Results, prices: str) -> Report:
    """The figures of all sessions, and those of each format."""
    agents = dict.fromkeys(facts.agent for facts in results.sessions.values())
    by_agent = {
        agent: [key for key, facts in results.sessions.items() if facts.agent == agent]
        for agent in (agents if len(agents) > 1 else ())
    }
    whole = group("", results.tallies, results.sessions)
    floors = [one for of in results.floors.values() for one in of]
    return Report(
        prices=prices,
        results=results,
        whole=whole,
        formats=tuple(group(agent, results.tallies, keys) for agent, keys in by_agent.items()),
        bound=least_tokens(floors, SERVED) if whole.bearing else None,
    )


# For a terminal


def report_tables(report: Report, width: int) -> Iterator["RenderableType"]:
    """What was measured, what each policy needs and does, and what was left out."""
    from rich.text import Text

    whole = report.whole
    yield Text.assemble(
        ("counterfactual replay", "bold cyan"),
        f"  definition {DEFINITION}   {plural(whole.sessions, 'session')}, {plural(whole.calls, 'turn')}, "
        f"{amount(whole.bearing)} of them used earlier text ({plural(whole.needles, 'reference')})   "
        f"prices: {report.prices}",
    )
    yield ""
    yield _needs(whole)
    yield Text(_legend(report), style="dim")
    yield ""
    yield Text.assemble(("by budget: served @ tokens per turn / cost", "bold"))
    yield from _budgets(whole.lines, width)
    for one in report.formats:
        yield ""
        told = f"  {plural(one.sessions, 'session')}, {plural(one.calls, 'turn')}"
        yield Text.assemble((clean(one.name), "bold"), told)
        yield _needs(one)
    yield ""
    for note in notes(report):
        yield Text(note, style="dim")


def _needs(of: Group) -> "Table":
    """What each policy needs; intervals stand below their figures."""
    with_gap = _has_gap(of)
    table = _table(("policy", "T95", "C95", "lost", *(("gap closed",) if with_gap else ())))
    for curve, gap in ((line.curve, line.gap) for line in of.lines):
        # What is so by definition has nothing to do with chance.
        cells = [
            _figure(curve.t95, thousands, of.sessions >= FEW),
            _figure(curve.c95, _number, of.sessions >= FEW and curve.name != FULL),
            _figure(curve.lost95, as_percent, False, nothing=""),
        ]
        if with_gap:
            chance = of.sessions >= FEW and curve.name not in (WINDOW, ORACLE)
            cells.append(_figure(gap or Figure(None), lambda value: as_percent(value, 0), chance, nothing=""))
        table.add_row(_name(curve), *cells)
    return table


def _table(columns: Sequence[str]) -> "Table":
    """Names on the left, which may go on in the next line, and figures, which may not."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for number, name in enumerate(columns):
        if number:
            table.add_column(name, justify="right", no_wrap=True)
        else:
            table.add_column(name, overflow="fold")
    return table


def _name(curve: Curve) -> "Text":
    from rich.text import Text

    return Text(_one_line(curve.name))


def _one_line(name: str) -> str:
    return " ".join(clean(name).split())


def _figure(figure: Figure, say: Say, chance: bool, *, nothing: str = NOT_REACHED) -> "Text":
    """A figure, and below it how far chance may move it."""
    from rich.text import Text

    value = nothing if figure.value is None else say(figure.value)
    told = _interval(figure, say) if chance and value else ""
    return Text.assemble(value, *((("\n" + told, "dim"),) if told else ()))


def _has_gap(of: Group) -> bool:
    return any(line.gap is not None and line.gap.value is not None for line in of.lines)


def _legend(report: Report) -> str:
    whole = report.whole
    goal = as_percent(SERVED, 0)
    parts = [
        f"A turn is one model call. T95: tokens per turn with which {goal} of those that used earlier text have all "
        "that they used. C95: what that costs, fetching included; full history = 1. Lost: of what was used, what was "
        "neither there nor said where to find.",
        f"Gap closed: 0 % = {WINDOW}, 100 % = {ORACLE}." if _has_gap(whole) else _no_gap(whole),
        f"Below a figure: 95 of 100 draws of the sessions, ∞ where it is not reached; none below {FEW} sessions."
        if whole.sessions >= FEW
        else f"No intervals: fewer than {FEW} sessions say too little of chance.",
        ""
        if report.bound is None
        else f"No way that keeps whole blocks can do it with less than {thousands(report.bound)}.",
    ]
    return " ".join(part for part in parts if part)


def _no_gap(whole: Group) -> str:
    """What the column would need."""
    if not {WINDOW, ORACLE} <= {line.curve.name for line in whole.lines}:
        return f"Gap closed needs --policy {WINDOW} and --policy {ORACLE}."
    return (
        f"Gap closed needs budgets at which {WINDOW} serves {as_percent(SERVED, 0)}, and with more than {ORACLE} does."
    )


def _budgets(lines: Sequence[Line], width: int) -> Iterator["RenderableType"]:
    """Rows are policies, columns budgets, as many beside each other as a line has room for; then who takes none."""
    from rich.text import Text

    budgets = sorted({score.budget for line in lines for score in line.curve.scores if score.budget is not None})
    names = max((len(_one_line(line.curve.name)) for line in lines), default=0)
    room = max(1, (width - min(names, NAMED) - 2) // CELL)
    for start in range(0, len(budgets), room):
        some = budgets[start : start + room]
        table = _table(("budget", *(thousands(one, 0 if one % 1000 == 0 else 1) for one in some)))
        for curve in (line.curve for line in lines):
            by = {score.budget: score for score in curve.scores}
            if None not in by:
                table.add_row(_name(curve), *(_cell(by[one], "\n@ ", "\n/ ") if one in by else "" for one in some))
        yield table
    for curve in (line.curve for line in lines):
        for score in curve.scores:
            if score.budget is None:
                yield Text(f"{_one_line(curve.name)}, which has no budget: {_cell(score, ' @ ', ' / ')}")


def _cell(score: Score, tokens: str, cost: str) -> str:
    return (
        f"{as_percent(score.served)}{tokens}{thousands(score.tokens_per_turn)}{cost}{_number(score.cost_with_refetch)}"
    )


def notes(report: Report) -> Iterator[str]:
    """What was left out, and how far the figures go."""
    results = report.results
    kinds = Counter(failure.kind for failure in results.failures)
    aside = [
        f"{plural(results.short, 'recording')} of fewer than {CALLS} turns" if results.short else "",
        f"{plural(kinds['format'], 'file')} in no known format" if kinds["format"] else "",
        f"{plural(kinds['read'], 'file')} that cannot be read" if kinds["read"] else "",
    ]
    if any(aside):
        yield f"left out: {', '.join(one for one in aside if one)}"
    for curve in (line.curve for line in report.whole.lines if line.curve.left_out):
        yield f"{_one_line(curve.name)} could not take {plural(curve.left_out, 'session')}: left out of its rows"
    projects = {facts.project for facts in results.sessions.values() if facts.project}
    if report.whole.sessions < FEW or len(projects) == 1:
        of = f" of {plural(len(projects), 'project')}" if projects else ""
        yield f"these figures are of {plural(report.whole.sessions, 'session')}{of}; others may differ"


def failure_text(failure: Failure) -> str:
    """A failure in a sentence."""
    return clean(f"{failure.way} could not take {failure.file}: {failure.error}" if failure.way else failure.error)


def said(figure: Figure, say: Say) -> str:
    """A figure in one line, how far chance may move it in brackets."""
    value = NOT_REACHED if figure.value is None else say(figure.value)
    told = _interval(figure, say)
    return f"{value} ({told})" if told else value


def _interval(figure: Figure, say: Say) -> str:
    if figure.interval is None or figure.interval == (None, None):
        return ""
    low, high = figure.interval
    return f"{'−∞' if low is None else say(low)} to {'∞' if high is None else say(high)}"


def thousands(value: float, places: int = 1) -> str:
    """Tokens: 36.5k."""
    return f"{value / 1000:.{places}f}k"


def as_percent(value: float, places: int = 1) -> str:
    """A share of one; a small one below nothing is nothing."""
    return f"{round(100 * value, places) + 0.0:.{places}f} %".replace("-", "−")


def _number(value: float) -> str:
    return f"{value:.2f}"


# For programs


def report_value(report: Report) -> dict[str, Any]:
    """All of it; the names are stable for other programs."""
    whole, results = report.whole, report.results
    full = results.tallies.get(Setting(FULL, None), {})
    return {
        "definition": DEFINITION,
        "prices": report.prices,
        "policies": [_policy(line) for line in whole.lines],
        "bound": {"t95": report.bound, "points": [{"tokens_per_turn": x, "served": y} for x, y in _bound(report)]},
        "calls": whole.calls,
        "bearing": whole.bearing,
        "references": whole.needles,
        "sessions": [
            {**msgspec.to_builtins(facts), "references": sum(full[key].needles.values()) if key in full else 0}
            for key, facts in results.sessions.items()
        ],
        "formats": [
            {
                "name": one.name,
                "sessions": one.sessions,
                "calls": one.calls,
                "bearing": one.bearing,
                "references": one.needles,
                "policies": [_policy(line) for line in one.lines],
            }
            for one in report.formats
        ],
        "short": results.short,
        "failures": [msgspec.to_builtins(failure) for failure in results.failures],
    }


def _policy(line: Line) -> dict[str, Any]:
    """A policy at the budget that it is best told at, its figures at 95 %, and all its points."""
    curve = line.curve
    best = curve.best
    gap = line.gap or Figure(None)
    return {
        "name": curve.name,
        **(dict.fromkeys(Score.__struct_fields__) if best is None else msgspec.to_builtins(best)),
        "t95": curve.t95.value,
        "t95_interval": curve.t95.interval,
        "c95": curve.c95.value,
        "c95_interval": curve.c95.interval,
        "lost95": curve.lost95.value,
        "gap_closed": gap.value,
        "gap_closed_interval": gap.interval,
        "left_out": curve.left_out,
        "points": [msgspec.to_builtins(score) for score in curve.scores],
    }


# As a picture


def report_chart(report: Report) -> str:
    """Two panels, as an SVG: what is served with so many tokens, and at such a cost."""
    curves = [line.curve for line in report.whole.lines if line.curve.scores]
    ours = _ours([curve.name for curve in curves])
    # One that serves far less than the curve that matters is cut off, or all others would be pressed into a corner.
    shown = [curve for curve in curves if curve.name == ours] or curves
    least = min((score.served for curve in shown for score in curve.scores), default=0.0)
    start = max(0.0, whole_below(20 * least) / 20 - 0.05)
    tokens = [_series(curve, "tokens_per_turn", ours) for curve in curves]
    costs = [_series(curve, "cost_with_refetch", ours) for curve in curves]
    bound = Series("bound", _drawn_bound(report), "dotted")
    sent = (score.tokens_per_turn for curve in curves for score in curve.scores if score.served >= start)
    least_sent = min(sent, default=0.0)
    whole = report.whole
    return chart(
        [
            _panel("What tokens buy", "tokens per turn", [*tokens, bound], start, least_sent / ROOM or None),
            _panel("What money buys", "cost with re-fetches, full history = 1", costs, start),
        ],
        title="Turns that had all they used, by policy",
        note=f"{plural(whole.sessions, 'session')}, {plural(whole.calls, 'turn')}, definition {DEFINITION}, "
        f"prices: {report.prices}. Dashed: controls and oracles. Dotted: nobody who keeps whole blocks can lie above.",
    )


def _ours(names: Sequence[str]) -> str:
    """Whose curve stands out: the default's, else that of the first policy that is the user's choice."""
    if "auto" in names:
        return "auto"
    return next((name for name in names if not is_control(name) and name not in PEERS), "")


def _panel(title: str, x_label: str, series: Sequence[Series], start: float, x_from: float | None = None) -> Panel:
    return Panel(
        title,
        x_label,
        "turns served",
        series,
        y_format=percent,
        x_log=True,  # so that one who needs far more than the others leaves them room
        x_from=x_from,
        y_from=start,
        y_to=1.0,
        guide=SERVED,
    )


def _series(curve: Curve, across: str, ours: str) -> Series:
    points = [(getattr(score, across), score.served) for score in curve.scores]
    return Series(curve.name, points, "dashed" if is_control(curve.name) else "line", curve.name == ours)


def _drawn_bound(report: Report) -> list[tuple[float, float]]:
    """The bound in steps of equal factors, from far below what anybody sends: the axes cut it off."""
    floors, most = report.floors, _most_sent(report)
    places = [most * BELOW ** (1 - n / GRID) for n in range(GRID + 1)] if floors and most else []
    return [(place, most_served(floors, place)) for place in places]


def _bound(report: Report) -> list[tuple[float, float]]:
    """The bound over all the tokens that somebody sends."""
    floors, most = report.floors, _most_sent(report)
    return [(most * n / GRID, most_served(floors, most * n / GRID)) for n in range(GRID + 1)] if floors else []


def _most_sent(report: Report) -> float:
    return max((score.tokens_per_turn for line in report.whole.lines for score in line.curve.scores), default=0.0)
