"""Render a replay report as terminal tables.

The first table shows what each policy needs to serve 95 % of the turns, the second one its results at each budget. If a
line is too narrow for all budgets, the second table is split. Names are never truncated, because two truncated names
could look the same. Names and error messages come from user files, so control codes are removed and markup is not
interpreted. Output for people calls a model call a turn.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
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
"""Minimum number of sessions for confidence intervals, which mean little with fewer sessions."""
NumberFormatter = Callable[[float], str]
"""A function that formats a number for display."""


class ReplayReport(Struct, frozen=True, kw_only=True):
    """The data of a replay report."""

    prices: str
    results: SweepResults
    overall: SessionGroup
    formats: tuple[SessionGroup, ...]
    """One group per transcript format; empty if there is only one format."""
    bound: float | None
    """Minimum tokens per turn with which a strategy that keeps or drops whole blocks could serve 95 % of the turns."""

    @property
    def minimum_costs(self) -> list[MinimumCost]:
        """The minimum costs of all sessions."""
        return list(chain.from_iterable(self.results.minimum_costs.values()))


def build_replay_report(results: SweepResults, prices: str) -> ReplayReport:
    """Score all sessions together, and the sessions of each format if there are several."""
    agents = dict.fromkeys(facts.agent for facts in results.sessions.values())
    by_agent = {
        agent: [key for key, facts in results.sessions.items() if facts.agent == agent]
        for agent in (agents if len(agents) > 1 else ())
    }
    overall = score_group("", results.totals_by_setting, results.sessions)
    minimum_costs = chain.from_iterable(results.minimum_costs.values())
    return ReplayReport(
        prices=prices,
        results=results,
        overall=overall,
        formats=tuple(score_group(agent, results.totals_by_setting, keys) for agent, keys in by_agent.items()),
        bound=least_tokens(minimum_costs, TARGET_SERVED_SHARE) if overall.calls_with_references else None,
    )


# Terminal


def replay_report_tables(report: ReplayReport, width: int) -> Iterator["RenderableType"]:
    """Yield a heading, the requirements of each policy, the results by budget, and notes."""
    from rich.text import Text

    overall = report.overall
    yield Text.assemble(
        ("Replay of recorded sessions", "bold cyan"),
        f"   {plural(overall.sessions, 'session')}, {plural(overall.calls, 'turn')}; "
        f"{format_count(overall.calls_with_references)} of them reuse earlier text "
        f"({plural(overall.references, 'reference')}, definition {REFERENCE_DEFINITION})   prices: {report.prices}",
    )
    yield ""
    yield _requirements_table(overall)
    yield Text(_legend(report), style="dim")
    yield ""
    yield Text("By token budget: turns served @ tokens per turn / cost", style="bold")
    yield from _budget_tables(overall.results, width)
    for group in report.formats:
        yield ""
        counts = f"  {plural(group.sessions, 'session')}, {plural(group.calls, 'turn')}"
        yield Text.assemble((strip_control_codes(group.name), "bold"), counts)
        yield _requirements_table(group)
    yield ""
    for note in replay_notes(report):
        yield Text(note, style="dim")


def _requirements_table(group: SessionGroup) -> "Table":
    """Return a table of each policy's tokens, cost and lost share at the budget that serves 95 % of the turns."""
    has_gap, enough = _has_gap(group), group.sessions >= MIN_INTERVAL_SESSIONS
    columns = [f"{name} at {TARGET}" for name in ("tokens", "cost", "lost")]
    table = _table(("policy", *columns, *(("gap closed",) if has_gap else ())))
    for curve, gap in ((result.curve, result.gap) for result in group.results):
        # Figures fixed by definition have no interval.
        cells = [
            _estimate_cell(curve.t95, format_thousands, enough),
            _estimate_cell(curve.c95, _format_ratio, enough and curve.name != FULL_HISTORY),
            _estimate_cell(curve.lost95, format_rounded_percent, False, missing=""),
        ]
        if has_gap:
            varies = curve.name not in (WINDOW_BASELINE, ORACLE_BASELINE)
            cells.append(_estimate_cell(gap or IntervalEstimate(None), _format_percent, enough and varies, missing=""))
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
    figure: IntervalEstimate, format_number: NumberFormatter, with_interval: bool, *, missing: str = NOT_REACHED
) -> "Text":
    """Return a figure with its interval on the next line."""
    from rich.text import Text

    value = missing if figure.value is None else format_number(figure.value)
    interval = _interval(figure, format_number) if with_interval and value else ""
    return Text.assemble(value, *((("\n" + interval, "dim"),) if interval else ()))


def _has_gap(group: SessionGroup) -> bool:
    return any(result.gap is not None and result.gap.value is not None for result in group.results)


def _legend(report: ReplayReport) -> str:
    overall = report.overall
    parts = [
        "A turn is one model call. It is served if its request contains all the earlier text that it reuses. "
        f"Tokens at {TARGET}: tokens per turn at which {TARGET} of the turns that reuse earlier text are served. "
        f"Cost at {TARGET}: the cost there, refetches included; sending the full history costs 1. "
        f"Lost at {TARGET}: share of the reused text that is neither in the request nor recoverable."
    ]
    if _has_gap(overall):
        parts.append(f"Gap closed: 0 % = {WINDOW_BASELINE}, 100 % = {ORACLE_BASELINE} (it knows the future).")
    else:
        parts.append(_missing_gap_note(overall))
    if overall.sessions >= MIN_INTERVAL_SESSIONS:
        parts.append("Below a figure: its 95 % confidence interval; ∞ means not reached.")
    else:
        parts.append(f"Confidence intervals need at least {MIN_INTERVAL_SESSIONS} sessions.")
    if report.bound is not None:
        bound = format_thousands(report.bound)
        parts.append(f"No policy that keeps or drops whole messages can serve {TARGET} with less than {bound} tokens.")
    return " ".join([*parts, "All terms: docs/glossary.md#replay"])


def _missing_gap_note(group: SessionGroup) -> str:
    """Explain why the column `gap closed` is missing."""
    if not {WINDOW_BASELINE, ORACLE_BASELINE} <= {result.curve.name for result in group.results}:
        return f"Gap closed needs --policy {WINDOW_BASELINE} and --policy {ORACLE_BASELINE}."
    return (
        f"Gap closed needs budgets at which {WINDOW_BASELINE} and {ORACLE_BASELINE} serve {TARGET}, and "
        f"{WINDOW_BASELINE} needs more tokens there."
    )


def _budget_tables(results: Sequence[StrategyResult], width: int) -> Iterator["RenderableType"]:
    """Yield tables with a row per policy and a column per budget, then a line for each policy without a budget.

    If a table would be wider than `width`, its columns are split over several tables.
    """
    from rich.text import Text

    curves = [result.curve for result in results]
    budgets = sorted({score.budget for curve in curves for score in curve.scores if score.budget is not None})
    name_width = max((len(_one_line(curve.name)) for curve in curves), default=0)
    count = max(1, (width - min(name_width, MIN_NAME_WIDTH) - 2) // CELL)
    for start in range(0, len(budgets), count):
        part = budgets[start : start + count]
        table = _table(("budget", *(format_thousands(budget, 0 if budget % 1000 == 0 else 1) for budget in part)))
        for curve in curves:
            scores = {score.budget: score for score in curve.scores}
            if None not in scores:
                cells = (_cell(scores[budget], "\n@ ", "\n/ ") if budget in scores else "" for budget in part)
                table.add_row(_name(curve), *cells)
        yield table
    for curve in curves:
        for score in curve.scores:
            if score.budget is None:
                yield Text(f"{_one_line(curve.name)} (no budget): {_cell(score, ' @ ', ' / ')}")


def _cell(score: BudgetScore, tokens: str, cost: str) -> str:
    return (
        f"{format_rounded_percent(score.served)}{tokens}{format_thousands(score.tokens_per_turn)}{cost}"
        f"{_format_ratio(score.cost_with_refetch)}"
    )


def replay_notes(report: ReplayReport) -> Iterator[str]:
    """Yield notes on skipped data and on the limits of the figures."""
    results = report.results
    kinds = Counter(failure.kind for failure in results.failures)
    skipped = [
        f"{plural(results.short, 'recording')} with fewer than {MIN_RECORDED_CALLS} turns" if results.short else "",
        f"{plural(kinds['format'], 'file')} of unknown format" if kinds["format"] else "",
        f"{plural(kinds['read'], 'unreadable file')}" if kinds["read"] else "",
    ]
    if any(skipped):
        yield f"Skipped: {', '.join(filter(None, skipped))}."
    for curve in (result.curve for result in report.overall.results if result.curve.excluded_sessions):
        sessions = plural(curve.excluded_sessions, "session")
        yield f"{_one_line(curve.name)} failed on {sessions}; its rows exclude them."
    projects = {facts.project for facts in results.sessions.values() if facts.project}
    if report.overall.sessions < MIN_INTERVAL_SESSIONS or len(projects) == 1:
        scope = f" of {plural(len(projects), 'project')}" if projects else ""
        yield f"Based on {plural(report.overall.sessions, 'session')}{scope}; other sessions may give other figures."


def replay_failure_texts(failures: Iterable[ReplayFailure]) -> Iterator[str]:
    """Yield one sentence per failure. Equal failures of a strategy are one sentence, with their number."""
    groups: dict[tuple[str, str], list[ReplayFailure]] = {}
    for failure in failures:
        groups.setdefault((failure.strategy, failure.error), []).append(failure)
    for (strategy, error), members in groups.items():
        first = members[0]
        where = f"session {first.session} in {first.file}" if first.session else first.file
        others = f" and {plural(len(members) - 1, 'more session')}" if len(members) > 1 else ""
        yield strip_control_codes(f"{strategy} failed on {where}{others}: {error}" if strategy else error)


def format_estimate(figure: IntervalEstimate, format_number: NumberFormatter) -> str:
    """Format a figure in one line, with its interval in parentheses."""
    value = NOT_REACHED if figure.value is None else format_number(figure.value)
    interval = _interval(figure, format_number)
    return f"{value} ({interval})" if interval else value


def _interval(figure: IntervalEstimate, format_number: NumberFormatter) -> str:
    if figure.interval is None or figure.interval == (None, None):
        return ""
    low, high = figure.interval
    return f"{'−∞' if low is None else format_number(low)} to {'∞' if high is None else format_number(high)}"


def format_thousands(value: float, places: int = 1) -> str:
    """Format tokens: 36.5k."""
    return f"{value / 1000:.{places}f}k"


def format_rounded_percent(value: float, places: int = 1) -> str:
    """Format a share as percent. A value that rounds to zero has no minus sign."""
    return f"{round(100 * value, places) + 0.0:.{places}f} %".replace("-", "−")


def _format_percent(value: float) -> str:
    return format_rounded_percent(value, 0)


def _format_ratio(value: float) -> str:
    return f"{value:.2f}"


TARGET = _format_percent(TARGET_SERVED_SHARE)
