"""What a replay found, as tables in a terminal, as plain values, and as a picture.

The first table says what a policy needs to serve 95 % of the calls, the second what it does at each budget. Names of
files and what a policy raised come from elsewhere: they are cleaned before they reach a terminal.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from math import floor as whole_below
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from thresher.render.chart import Panel, Series, chart, percent
from thresher.render.words import amount, clean, plural
from thresher.replay.bound import Floor, least_tokens, most_served
from thresher.replay.references import DEFINITION
from thresher.replay.scores import FULL, SERVED, Curve, Figure, Group, Line, Score, Setting, group
from thresher.replay.sweep import CALLS, Failure, Results
from thresher.replay.ways import CONTROLS

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

NOT_REACHED = "not reached"
CELL = 15
"""The width of a cell of the second table, where there is room."""
GRID = 60
FEW = 5
"""Sessions below which an interval means little."""


class Report(Struct, frozen=True, kw_only=True):
    """All that is said of a replay."""

    prices: str
    results: Results
    whole: Group
    formats: tuple[Group, ...]
    """One each, where there are several."""
    bound: float | None
    """The fewest tokens a call at which anybody who keeps whole blocks can serve 95 %."""

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
        f"  definition {DEFINITION}   {plural(whole.sessions, 'session')}, {plural(whole.calls, 'call')}, "
        f"{amount(whole.bearing)} of them used earlier text ({plural(whole.needles, 'reference')})   "
        f"prices: {report.prices}",
    )
    yield ""
    yield _needs(whole.lines)
    yield Text(_legend(report), style="dim")
    yield ""
    yield _budgets(whole.lines, width)
    for one in report.formats:
        yield ""
        yield Text.assemble((one.name, "bold"), f"  {plural(one.sessions, 'session')}, {plural(one.calls, 'call')}")
        yield _needs(one.lines)
    yield ""
    for note in notes(report):
        yield Text(note, style="dim")


def _needs(lines: Sequence[Line]) -> "Table":
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="dim")
    table.add_column("policy")
    for name in ("T95", "C95", "lost", "gap closed"):
        table.add_column(name, justify="right")
    for curve, gap in ((line.curve, line.gap) for line in lines):
        cells = (_thousands(curve.t95), _cost(curve.c95), _percent(curve.lost95), _gap(gap))
        table.add_row(clean(curve.name), *cells)
    return table


def _legend(report: Report) -> str:
    bound = (
        "" if report.bound is None else f" No way that keeps whole blocks can do it with less than {_k(report.bound)}."
    )
    return (
        f"T95: tokens a call with which {SERVED:.0%} of these calls have all that they used. C95: what that costs, "
        "fetching included; full history = 1. In brackets: 95 of 100 draws of the sessions, ∞ where it is not "
        f"reached.{bound}"
    )


def _budgets(lines: Sequence[Line], width: int) -> "Table":
    """Rows are policies, columns budgets."""
    from rich.table import Table

    budgets = sorted({score.budget for line in lines for score in line.curve.scores if score.budget is not None})
    names = max((len(line.curve.name) for line in lines), default=0)
    between = " @ " if max(names, CELL) + CELL * len(budgets) <= width else "\n@ "
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("served\n@ tokens\ncost" if "\n" in between else "served @ tokens\ncost")
    for budget in budgets:
        table.add_column(_k(budget, places=0 if budget % 1000 == 0 else 1), justify="right")
    for curve in (line.curve for line in lines):
        by = {score.budget: score for score in curve.scores}
        if None in by:
            table.add_row(clean(curve.name), _cell(by[None], between))
        else:
            table.add_row(clean(curve.name), *(_cell(by[one], between) if one in by else "" for one in budgets))
    return table


def _cell(score: Score, between: str) -> str:
    return f"{100 * score.served:.1f} %{between}{_k(score.tokens_per_turn)}\n{score.cost_with_refetch:.2f}"


def notes(report: Report) -> Iterator[str]:
    """What was left out, and how far the figures go."""
    results = report.results
    kinds = Counter(failure.kind for failure in results.failures)
    aside = [
        f"{plural(results.short, 'recording')} of fewer than {CALLS} calls" if results.short else "",
        f"{plural(kinds['format'], 'file')} in no known format" if kinds["format"] else "",
        f"{plural(kinds['read'], 'file')} that cannot be read" if kinds["read"] else "",
    ]
    if any(aside):
        yield f"left out: {', '.join(one for one in aside if one)}"
    for curve in (line.curve for line in report.whole.lines if line.curve.left_out):
        yield f"{clean(curve.name)} could not take {plural(curve.left_out, 'session')}: left out of its rows"
    projects = {facts.project for facts in results.sessions.values() if facts.project}
    if report.whole.sessions < FEW or len(projects) == 1:
        of = f" of {plural(len(projects), 'project')}" if projects else ""
        yield f"these figures are of {plural(report.whole.sessions, 'session')}{of}; others may differ"


def failure_text(failure: Failure) -> str:
    """A failure in a sentence."""
    return clean(f"{failure.way} could not take {failure.file}: {failure.error}" if failure.way else failure.error)


def _thousands(figure: Figure) -> str:
    return _told(figure, _k)


def _cost(figure: Figure) -> str:
    return _told(figure, lambda value: f"{value:.2f}")


def _percent(figure: Figure) -> str:
    return "" if figure.value is None else f"{100 * figure.value:.1f} %"


def _gap(figure: Figure | None) -> str:
    return "" if figure is None or figure.value is None else _told(figure, lambda value: f"{100 * value:.0f} %")


def _told(figure: Figure, say: Any) -> str:
    value = NOT_REACHED if figure.value is None else say(figure.value)
    if figure.interval is None or figure.interval == (None, None):
        return value
    low, high = figure.interval
    return f"{value} ({'−∞' if low is None else say(low)} to {'∞' if high is None else say(high)})"


def _k(value: float, *, places: int = 1) -> str:
    return f"{value / 1000:.{places}f}k"


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
    least = min((score.served for curve in curves for score in curve.scores), default=0.0)
    start = whole_below(20 * least) / 20
    ours = next((curve.name for curve in curves if curve.name not in CONTROLS), "")
    tokens = [_series(curve, "tokens_per_turn", ours) for curve in curves]
    bound = [(x, y) for x, y in _bound(report) if y >= start]
    costs = [_series(curve, "cost_with_refetch", ours) for curve in curves]
    whole = report.whole
    return chart(
        [
            _panel("What tokens buy", "tokens per turn", [*tokens, Series("bound", bound, "dotted")], start),
            _panel("What money buys", "cost with re-fetches, full history = 1", costs, start),
        ],
        title="Turns that had all they used, by policy",
        note=f"{plural(whole.sessions, 'session')}, {plural(whole.calls, 'call')}, definition {DEFINITION}, "
        f"prices: {report.prices}. Dashed: controls and oracles. Dotted: nobody who keeps whole blocks can lie above.",
    )


def _panel(title: str, x_label: str, series: Sequence[Series], start: float) -> Panel:
    return Panel(title, x_label, "turns served", series, y_format=percent, y_from=start, y_to=1.0, guide=SERVED)


def _series(curve: Curve, across: str, ours: str) -> Series:
    points = [(getattr(score, across), score.served) for score in curve.scores]
    return Series(curve.name, points, "dashed" if curve.name in CONTROLS else "line", curve.name == ours)


def _bound(report: Report) -> list[tuple[float, float]]:
    """The bound over all the tokens that somebody sends."""
    floors = report.floors
    most = max((score.tokens_per_turn for line in report.whole.lines for score in line.curve.scores), default=0.0)
    return [(most * n / GRID, most_served(floors, most * n / GRID)) for n in range(GRID + 1)] if floors else []
