"""Render a replay report as terminal tables.

The first table shows what each policy needs to serve 95 % of the turns, the second one its results at each budget. If a
line is too narrow for all budgets, the second table is split. Names are never truncated, since two of them could then
look the same. Names and error messages come from user files, so control codes are removed and markup is not
interpreted. Output for people calls a model call a turn.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from thresher.render.text import format_count, plural, strip_control_codes
from thresher.replay.references import REFERENCE_DEFINITION
from thresher.replay.scores import (
    FULL_HISTORY,
    ORACLE_BASELINE,
    TARGET_SERVED_SHARE,
    WINDOW_BASELINE,
    BudgetCurve,
    BudgetScore,
    IntervalEstimate,
    SessionGroup,
    StrategyResult,
    score_group,
)
from thresher.replay.strategies.upper_bound import MinimumCost, least_tokens
from thresher.replay.sweep import MIN_RECORDED_CALLS
from thresher.replay.sweep_results import ReplayFailure, SweepResults

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text

NOT_REACHED = "not reached"
CELL = 10
"""Width of a column in the second table, padding included."""
MIN_NAME_WIDTH = 24
"""Minimum width of the name column; longer names wrap."""
MIN_INTERVAL_SESSIONS = 5
"""With fewer sessions, intervals mean little and are hidden."""
NumberFormatter = Callable[[float], str]
"""Formats a number for display."""


class ReplayReport(Struct, frozen=True, kw_only=True):
    """Everything that a report shows."""

    prices: str
    results: SweepResults
    overall: SessionGroup
    formats: tuple[SessionGroup, ...]
    """One group per transcript format, if there are several."""
    bound: float | None
    """The minimum tokens per turn at which any strategy that keeps whole blocks can serve 95 %."""

    @property
    def minimum_costs(self) -> list[MinimumCost]:
        """The minimum costs of all sessions."""
        return [one for minimum_costs in self.results.minimum_costs.values() for one in minimum_costs]


def build_replay_report(results: SweepResults, prices: str) -> ReplayReport:
    """Score all sessions, and those of each format."""
    agents = dict.fromkeys(facts.agent for facts in results.sessions.values())
    by_agent = {
        agent: [key for key, facts in results.sessions.items() if facts.agent == agent]
        for agent in (agents if len(agents) > 1 else ())
    }
    whole = score_group("", results.totals_by_setting, results.sessions)
    minimum_costs = [one for of in results.minimum_costs.values() for one in of]
    return ReplayReport(
        prices=prices,
        results=results,
        overall=whole,
        formats=tuple(score_group(agent, results.totals_by_setting, keys) for agent, keys in by_agent.items()),
        bound=least_tokens(minimum_costs, TARGET_SERVED_SHARE) if whole.calls_with_references else None,
    )


# Terminal


def replay_report_tables(report: ReplayReport, width: int) -> Iterator["RenderableType"]:
    """Yield the tables: the data, what each policy needs, its results by budget, and notes."""
    from rich.text import Text

    whole = report.overall
    yield Text.assemble(
        ("counterfactual replay", "bold cyan"),
        f"  definition {REFERENCE_DEFINITION}   {plural(whole.sessions, 'session')}, {plural(whole.calls, 'turn')}, "
        f"{format_count(whole.calls_with_references)} of them used earlier text "
        f"({plural(whole.references, 'reference')})   "
        f"prices: {report.prices}",
    )
    yield ""
    yield _requirements_table(whole)
    yield Text(_legend(report), style="dim")
    yield ""
    yield Text.assemble(("by budget: served @ tokens per turn / cost", "bold"))
    yield from _budget_tables(whole.results, width)
    for one in report.formats:
        yield ""
        told = f"  {plural(one.sessions, 'session')}, {plural(one.calls, 'turn')}"
        yield Text.assemble((strip_control_codes(one.name), "bold"), told)
        yield _requirements_table(one)
    yield ""
    for note in replay_notes(report):
        yield Text(note, style="dim")


def _requirements_table(of: SessionGroup) -> "Table":
    """Return the table of what each policy needs. Intervals are below their figures."""
    with_gap = _has_gap(of)
    table = _table(("policy", "T95", "C95", "lost", *(("gap closed",) if with_gap else ())))
    for curve, gap in ((line.curve, line.gap) for line in of.results):
        # Figures that are fixed by definition have no interval.
        cells = [
            _estimate_cell(curve.t95, format_thousands, of.sessions >= MIN_INTERVAL_SESSIONS),
            _estimate_cell(
                curve.c95, _format_ratio, of.sessions >= MIN_INTERVAL_SESSIONS and curve.name != FULL_HISTORY
            ),
            _estimate_cell(curve.lost95, format_rounded_percent, False, nothing=""),
        ]
        if with_gap:
            chance = of.sessions >= MIN_INTERVAL_SESSIONS and curve.name not in (WINDOW_BASELINE, ORACLE_BASELINE)
            cells.append(
                _estimate_cell(
                    gap or IntervalEstimate(None), lambda value: format_rounded_percent(value, 0), chance, nothing=""
                )
            )
        table.add_row(_name(curve), *cells)
    return table


def _table(columns: Sequence[str]) -> "Table":
    """Return a table with a wrapping name column on the left and figures that do not wrap."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for number, name in enumerate(columns):
        if number:
            table.add_column(name, justify="right", no_wrap=True)
        else:
            table.add_column(name, overflow="fold")
    return table


def _name(curve: BudgetCurve) -> "Text":
    from rich.text import Text

    return Text(_one_line(curve.name))


def _one_line(name: str) -> str:
    return " ".join(strip_control_codes(name).split())


def _estimate_cell(
    figure: IntervalEstimate, say: NumberFormatter, chance: bool, *, nothing: str = NOT_REACHED
) -> "Text":
    """Return a figure with its interval on the next line."""
    from rich.text import Text

    value = nothing if figure.value is None else say(figure.value)
    told = _interval(figure, say) if chance and value else ""
    return Text.assemble(value, *((("\n" + told, "dim"),) if told else ()))


def _has_gap(of: SessionGroup) -> bool:
    return any(line.gap is not None and line.gap.value is not None for line in of.results)


def _legend(report: ReplayReport) -> str:
    whole = report.overall
    goal = format_rounded_percent(TARGET_SERVED_SHARE, 0)
    parts = [
        f"A turn is one model call. T95: tokens per turn with which {goal} of those that used earlier text have all "
        "that they used. C95: what that costs, fetching included; full history = 1. Lost: of what was used, what was "
        "neither there nor said where to find.",
        f"Gap closed: 0 % = {WINDOW_BASELINE}, 100 % = {ORACLE_BASELINE}."
        if _has_gap(whole)
        else _missing_gap_note(whole),
        "Below a figure: 95 of 100 draws of the sessions, ∞ where it is not reached; none below "
        f"{MIN_INTERVAL_SESSIONS} sessions."
        if whole.sessions >= MIN_INTERVAL_SESSIONS
        else f"No intervals: fewer than {MIN_INTERVAL_SESSIONS} sessions say too little of chance.",
        ""
        if report.bound is None
        else f"No way that keeps whole blocks can do it with less than {format_thousands(report.bound)}.",
    ]
    return " ".join(part for part in parts if part)


def _missing_gap_note(whole: SessionGroup) -> str:
    """Return what is missing for the column `gap closed`."""
    if not {WINDOW_BASELINE, ORACLE_BASELINE} <= {line.curve.name for line in whole.results}:
        return f"Gap closed needs --policy {WINDOW_BASELINE} and --policy {ORACLE_BASELINE}."
    return (
        f"Gap closed needs budgets at which {WINDOW_BASELINE} serves "
        f"{format_rounded_percent(TARGET_SERVED_SHARE, 0)}, and with more than {ORACLE_BASELINE} does."
    )


def _budget_tables(lines: Sequence[StrategyResult], width: int) -> Iterator["RenderableType"]:
    """Yield tables of policies by budgets, split to fit the width, then the policies without a budget."""
    from rich.text import Text

    budgets = sorted({score.budget for line in lines for score in line.curve.scores if score.budget is not None})
    names = max((len(_one_line(line.curve.name)) for line in lines), default=0)
    room = max(1, (width - min(names, MIN_NAME_WIDTH) - 2) // CELL)
    for start in range(0, len(budgets), room):
        some = budgets[start : start + room]
        table = _table(("budget", *(format_thousands(one, 0 if one % 1000 == 0 else 1) for one in some)))
        for curve in (line.curve for line in lines):
            by = {score.budget: score for score in curve.scores}
            if None not in by:
                table.add_row(_name(curve), *(_cell(by[one], "\n@ ", "\n/ ") if one in by else "" for one in some))
        yield table
    for curve in (line.curve for line in lines):
        for score in curve.scores:
            if score.budget is None:
                yield Text(f"{_one_line(curve.name)}, which has no budget: {_cell(score, ' @ ', ' / ')}")


def _cell(score: BudgetScore, tokens: str, cost: str) -> str:
    return (
        f"{format_rounded_percent(score.served)}{tokens}{format_thousands(score.tokens_per_turn)}{cost}"
        f"{_format_ratio(score.cost_with_refetch)}"
    )


def replay_notes(report: ReplayReport) -> Iterator[str]:
    """Yield notes on skipped data and on the limits of the figures."""
    results = report.results
    kinds = Counter(failure.kind for failure in results.failures)
    aside = [
        f"{plural(results.short, 'recording')} of fewer than {MIN_RECORDED_CALLS} turns" if results.short else "",
        f"{plural(kinds['format'], 'file')} in no known format" if kinds["format"] else "",
        f"{plural(kinds['read'], 'file')} that cannot be read" if kinds["read"] else "",
    ]
    if any(aside):
        yield f"left out: {', '.join(one for one in aside if one)}"
    for curve in (line.curve for line in report.overall.results if line.curve.excluded_sessions):
        yield (
            f"{_one_line(curve.name)} could not take {plural(curve.excluded_sessions, 'session')}: left out of its rows"
        )
    projects = {facts.project for facts in results.sessions.values() if facts.project}
    if report.overall.sessions < MIN_INTERVAL_SESSIONS or len(projects) == 1:
        of = f" of {plural(len(projects), 'project')}" if projects else ""
        yield f"these figures are of {plural(report.overall.sessions, 'session')}{of}; others may differ"


def replay_failure_text(failure: ReplayFailure) -> str:
    """Format a failure as one sentence."""
    return strip_control_codes(
        f"{failure.strategy} could not take {failure.file}: {failure.error}" if failure.strategy else failure.error
    )


def format_estimate(figure: IntervalEstimate, say: NumberFormatter) -> str:
    """Format a figure in one line, with its interval in parentheses."""
    value = NOT_REACHED if figure.value is None else say(figure.value)
    told = _interval(figure, say)
    return f"{value} ({told})" if told else value


def _interval(figure: IntervalEstimate, say: NumberFormatter) -> str:
    if figure.interval is None or figure.interval == (None, None):
        return ""
    low, high = figure.interval
    return f"{'−∞' if low is None else say(low)} to {'∞' if high is None else say(high)}"


def format_thousands(value: float, places: int = 1) -> str:
    """Format tokens: 36.5k."""
    return f"{value / 1000:.{places}f}k"


def format_rounded_percent(value: float, places: int = 1) -> str:
    """Format a share as percent. A value that rounds to zero has no minus sign."""
    return f"{round(100 * value, places) + 0.0:.{places}f} %".replace("-", "−")


def _format_ratio(value: float) -> str:
    return f"{value:.2f}"
