"""Format the tables of `benchmarks/replay.py` as Markdown, and compare `auto` with others at equal tokens.

`auto` is taken at the point where it serves 95 %, or where it serves most. The served share of another policy at the
same tokens is interpolated between its budgets, and from the largest one to the full history. Below its smallest budget
it counts as constant, which favors that policy.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from msgspec import structs

from thresher.render.replay import (
    MIN_INTERVAL_SESSIONS,
    ReplayReport,
    format_estimate,
    format_rounded_percent,
    format_thousands,
    replay_notes,
)
from thresher.render.text import plural
from thresher.replay import REFERENCE_DEFINITION
from thresher.replay.intervals import compute_interval
from thresher.replay.scores import (
    FULL_HISTORY,
    ORACLE_BASELINE,
    TARGET_SERVED_SHARE,
    WINDOW_BASELINE,
    IntervalEstimate,
    ScoreCalculator,
    SessionGroup,
    StrategySetting,
    TotalsBySetting,
    draw_session_weights,
    find_crossing,
    score_group,
)
from thresher.replay.simulate import ReplayTotals
from thresher.replay.sweep_results import SweepResults

OURS = "auto"
COMPARED = ("random", "recency", WINDOW_BASELINE, ORACLE_BASELINE)
"""The policies that `auto` is compared with at equal tokens."""


# Comparison at equal tokens


class Point(NamedTuple):
    """A point on a curve."""

    tokens: float
    served: float


class Comparison(NamedTuple):
    """Another policy: its served share at the same tokens, and how much more `auto` serves."""

    served: float
    more: IntervalEstimate


class EqualTokens(NamedTuple):
    """The point of `auto` and the others at the same tokens."""

    ours: Point
    reached: bool
    others: dict[str, Comparison]


class Curves:
    """The curves of policies over the sessions that all of them could take, for bootstrap draws."""

    def __init__(self, totals_by_setting: TotalsBySetting, sessions: Sequence[str], names: Sequence[str]) -> None:
        """The full history ends every curve but that of `auto`: such a budget drops nothing."""
        asked = {
            name: [by for setting, by in totals_by_setting.items() if setting.name == name]
            for name in (*names, FULL_HISTORY)
        }
        self.sessions = [key for key in sessions if all(key in by for of in asked.values() for by in of)]
        rows = {name: [[by[key] for key in self.sessions] for by in of] for name, of in asked.items()}
        self._rows = {name: of + (rows[FULL_HISTORY] if name != OURS else []) for name, of in rows.items()}

    def points(self, name: str, weights: Sequence[int]) -> list[Point]:
        """Return the points of a policy in the order of tokens, with sessions weighted as drawn."""
        found = []
        for row in self._rows[name]:
            both = [(one, weight) for one, weight in zip(row, weights, strict=True) if weight]
            calls = sum(weight * one.calls for one, weight in both)
            sent = sum(weight * one.tokens for one, weight in both)
            calls_with_references = sum(weight * one.calls_with_references for one, weight in both)
            served = sum(weight * one.served for one, weight in both)
            found.append(Point(sent / calls, served / calls_with_references if calls_with_references else 1.0))
        return sorted(found)

    def equal(self, others: Sequence[str]) -> EqualTokens | None:
        """Compare `auto` with others at its target point, and in each draw."""
        if not self.sessions:
            return None
        once = [1] * len(self.sessions)
        point, reached, beside = self._at(others, once)
        few = len(self.sessions) < 2
        drawn = [] if few else [self._at(others, weights) for weights in draw_session_weights(len(self.sessions))]
        found = {}
        for name in others:
            interval = compute_interval([ours.served - there[name] for ours, _, there in drawn])
            found[name] = Comparison(beside[name], IntervalEstimate(point.served - beside[name], interval))
        return EqualTokens(point, reached, found)

    def _at(self, others: Sequence[str], weights: Sequence[int]) -> tuple[Point, bool, dict[str, float]]:
        own = self.points(OURS, weights)
        found = find_target(own)
        point = found or max(own, key=lambda one: one.served)
        return (
            point,
            found is not None,
            {name: interpolate(self.points(name, weights), point.tokens) for name in others},
        )


def find_target(points: Sequence[Point]) -> Point | None:
    """Return where a curve first serves enough, as `thresher.replay.scores` does."""
    found = find_crossing([point.served for point in points])
    if found is None or found.before == found.after:
        return None if found is None else points[found.before]
    one, other = points[found.before], points[found.after]
    return Point(one.tokens + found.share * (other.tokens - one.tokens), TARGET_SERVED_SHARE)


def interpolate(points: Sequence[Point], place: float) -> float:
    """Interpolate a curve; beyond its ends it is constant."""
    if place <= points[0].tokens:
        return points[0].served
    for one, other in pairwise(points):
        if place <= other.tokens:
            share = (place - one.tokens) / ((other.tokens - one.tokens) or 1)
            return one.served + share * (other.served - one.served)
    return points[-1].served


# Tables


class Tables(NamedTuple):
    """The data of all tables."""

    report: ReplayReport
    at: int
    projects: dict[str, list[str]]

    @property
    def results(self) -> SweepResults:
        """The measurements, with the seeds of `random` merged."""
        return self.report.results

    @property
    def totals_by_setting(self) -> TotalsBySetting:
        """The totals by strategy and budget."""
        return self.results.totals_by_setting


def markdown(of: Tables) -> Iterator[str]:
    """Yield all lines."""
    report = of.report
    whole = report.overall
    yield (
        f"{plural(whole.sessions, 'session')} of {plural(len(of.projects), 'project')}; {plural(whole.calls, 'turn')}, "
        f"{whole.calls_with_references:,} of them with references, {whole.references:,} in all. Definition "
        f"{REFERENCE_DEFINITION}, prices: "
        f"{report.prices}. No way that keeps whole blocks can serve "
        f"{format_rounded_percent(TARGET_SERVED_SHARE, 0)} with less than "
        f"{format_thousands(report.bound or 0)} tokens a turn."
    )
    yield from _group_table("All sessions", whole, _quoted(of, list(of.results.sessions)), of.at)
    for one in report.formats:
        keys = [key for key, facts in of.results.sessions.items() if facts.agent == one.name]
        title = f"{one.name}: {plural(one.sessions, 'session')}, {plural(one.calls, 'turn')}"
        yield from _group_table(title, one, _quoted(of, keys), of.at)
    yield from _project_table(of)
    yield from _control_table(of)
    yield from ("", *replay_notes(report))


def count_quotes_only(totals_by_setting: TotalsBySetting) -> dict[StrategySetting, dict[str, ReplayTotals]]:
    """Return totals that count only lines and long phrases as references."""
    return {
        setting: {
            key: structs.replace(one, calls_with_references=one.calls_with_quotes, served=one.calls_with_all_quotes)
            for key, one in by.items()
        }
        for setting, by in totals_by_setting.items()
    }


def _quoted(of: Tables, sessions: Sequence[str]) -> dict[str, IntervalEstimate]:
    found = score_group("", count_quotes_only(of.totals_by_setting), sessions)
    return {line.curve.name: line.curve.t95 for line in found.results}


def _group_table(
    title: str, one: SessionGroup, calls_with_all_quotes: Mapping[str, IntervalEstimate], at: int
) -> Iterator[str]:
    yield from ("", f"### {title}", "")
    heads = (
        "T95",
        "C95",
        "lost",
        "gap closed",
        "T95 of quotes",
        f"at {format_thousands(at, 0)}: tokens",
        "served",
        "cost",
    )
    yield from _head("policy", heads)
    for curve, gap in ((line.curve, line.gap) for line in one.results):
        score = next((score for score in curve.scores if score.budget in (at, None)), None)
        cells = (
            format_estimate(curve.t95, format_thousands),
            format_estimate(curve.c95, _number),
            "" if curve.lost95.value is None else format_rounded_percent(curve.lost95.value),
            ""
            if gap is None or gap.value is None
            else format_estimate(gap, lambda value: format_rounded_percent(value, 0)),
            format_estimate(structs.replace(calls_with_all_quotes[curve.name], interval=None), format_thousands),
            *(() if score is None else (format_thousands(score.tokens_per_turn), format_rounded_percent(score.served))),
            *(() if score is None else (_number(score.cost_with_refetch),)),
        )
        yield _row(f"`{curve.name}`", *cells)


def _project_table(of: Tables) -> Iterator[str]:
    names = (OURS, WINDOW_BASELINE)
    large = {project: keys for project, keys in of.projects.items() if len(keys) >= MIN_INTERVAL_SESSIONS}
    if not large or not {*names} <= {setting.name for setting in of.totals_by_setting}:
        return
    yield from ("", f"### `{OURS}` against `{WINDOW_BASELINE}`, project by project", "")
    heads = (
        "sessions",
        "turns",
        f"T95 `{OURS}`",
        f"T95 `{WINDOW_BASELINE}`",
        "at tokens",
        "served",
        "the window",
        "more",
        "",
    )
    yield from _head("project", heads)
    for project, keys in sorted(large.items(), key=lambda item: -len(item[1])):
        equal = Curves(of.totals_by_setting, keys, names).equal((WINDOW_BASELINE,))
        if equal is not None:
            scores = ScoreCalculator(of.totals_by_setting, keys)
            t95 = (format_estimate(scores.curve(name).t95, format_thousands) for name in names)
            calls = sum(of.results.sessions[key].calls for key in keys)
            yield _row(project, f"{len(keys)}", f"{calls:,}", *t95, *_equal_cells(equal, WINDOW_BASELINE))


def _control_table(of: Tables) -> Iterator[str]:
    there = {setting.name for setting in of.totals_by_setting}
    names = [name for name in COMPARED if name in there]
    equal = (
        Curves(of.totals_by_setting, list(of.results.sessions), (OURS, *names)).equal(names) if OURS in there else None
    )
    if equal is None:
        return
    yield from ("", f"### Controls with the tokens of `{OURS}`", "")
    yield from _head("policy", ("tokens", f"served by `{OURS}`", "by this", f"`{OURS}` serves more", ""))
    for name in names:
        yield _row(f"`{name}`", *_equal_cells(equal, name))


def _equal_cells(equal: EqualTokens, name: str) -> tuple[str, ...]:
    """Return the cells: tokens, served by `auto`, served by the other, difference, and its meaning."""
    served, more = equal.others[name]
    low, high = more.interval or (None, None)
    verdict = "**worse**" if high is not None and high < 0 else "better" if low is not None and low > 0 else "equal"
    verdict = "knows the future" if name == ORACLE_BASELINE else verdict
    own = format_rounded_percent(equal.ours.served) + (
        "" if equal.reached else f" ({format_rounded_percent(TARGET_SERVED_SHARE, 0)} not reached)"
    )
    return (
        format_thousands(equal.ours.tokens),
        own,
        format_rounded_percent(served),
        format_estimate(more, _points),
        verdict,
    )


def _head(first: str, rest: Sequence[str]) -> Iterator[str]:
    yield _row(first, *rest)
    yield "|---|" + "---:|" * len(rest)


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _number(value: float) -> str:
    return f"{value:.2f}"


def _points(value: float) -> str:
    return f"{round(100 * value, 1) + 0.0:+.1f}".replace("-", "−")
