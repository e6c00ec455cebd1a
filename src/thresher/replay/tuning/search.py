"""Find the settings of `auto` that do best on some sessions, and measure whether they do better on others.

The sessions are split into two halves. On the first, coordinate descent starts from the defaults: each setting in turn
is tried at all its values and the best one is kept, until none improves or the trials are used up. The best
configuration is the cheapest one, refetching included, that serves enough. If none does, it is the one that serves
most. A gain below `MIN_GAIN` does not count.

The chosen settings and the defaults are then measured on the other half. Bootstrap samples of its sessions give a
confidence interval of the difference. Samples of very few sessions look alike and suggest false certainty, so below
`MIN_REPORT_SESSIONS` nothing is recommended. Settings that are cheaper because they serve less are not recommended
either.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from textwrap import wrap
from typing import Any, Literal

from msgspec import Struct

from thresher.budget import load_settings
from thresher.errors import OptionError, ReadError
from thresher.replay.cost import Rates
from thresher.replay.intervals import compute_interval
from thresher.replay.scores import DRAWS, FULL_HISTORY, SEED, TARGET_SERVED_SHARE
from thresher.replay.simulate import ReplayTotals
from thresher.replay.sweep import (
    MIN_RECORDED_CALLS,
    SweepCheckpoint,
    SweepProgress,
    SweepWorkers,
    UnitFunction,
    compute_sweep_key,
    run_unit,
    sort_files_by_size,
)
from thresher.replay.sweep_results import ReplayFailure, SweepUnit
from thresher.replay.tuning.holdout import HoldoutSplit, split_sessions
from thresher.replay.tuning.trials import (
    BUDGET_OPTION,
    Trial,
    TrialLog,
    TrialRunner,
    TuningSettings,
    find_changed_settings,
    has_valid_thresholds,
    make_default_settings,
)
from thresher.window import Thresholds

SEARCH_SPACE: dict[str, tuple[float, ...]] = {
    "keep_calls": (8, 14, 22, 32, 45, 70),
    "patience": (0.15, 0.3, 0.6, 1.2, 2.5, 5.0),
    "low_water": (0.3, 0.4, 0.5, 0.6, 0.7),
    "high_water": (0.7, 0.8, 0.9, 0.95),
    "prompt_patience_share": (0.1, 0.25, 0.5, 1.0),
    "min_saving": (500, 1_000, 2_000, 4_000),
    "min_expected_calls": (10, 20, 40, 80),
}
"""Values to try for each threshold; the most important ones come first."""
BUDGETS = (40_000, 60_000, 90_000, 140_000, 200_000)
TRIALS = 60
MIN_GAIN = 0.005
"""Minimum relative reduction in cost (or in unserved calls, if nothing serves enough) that counts as better."""
MIN_REPORT_SESSIONS = 8
"""Minimum number of sessions in the report half for a recommendation."""
MAX_SERVED_LOSS = 0.01
"""Maximum loss in the share of served calls, relative to the defaults, for settings that miss the target.

The lower end of the confidence interval counts.
"""
WIDTH = 79

Verdict = Literal["same", "few", "chance", "unserved", "better"]
"""`same`: the defaults are best. `few`: too few sessions. `chance`: no significant gain. `unserved`: serves too few
calls. `better`: cheaper or serves more, and reaches the target or loses almost no served calls."""


class MeasuredDifference(Struct, frozen=True):
    """A difference and its 95 % interval; the ends are None if there are too few sessions."""

    value: float
    low: float | None = None
    high: float | None = None


class TuningResult(Struct, frozen=True, kw_only=True):
    """The chosen settings, and their measured effect."""

    target: float
    """The required share of served calls."""
    split: HoldoutSplit
    defaults: Trial
    """Result of the defaults on the tuning half."""
    chosen: Trial
    """Result of the chosen settings on the tuning half."""
    before: Trial
    """Result of the defaults on the report half."""
    after: Trial
    """Result of the chosen settings on the report half."""
    cost: MeasuredDifference
    """Difference in cost on the report half, refetching included, relative to the full history."""
    served: MeasuredDifference
    trials: int
    reused: int
    """Trials that the log already contained."""
    log: str
    failures: list[ReplayFailure]

    @property
    def is_changed(self) -> bool:
        """True if any configuration was better than the defaults on the tuning half."""
        return self.chosen.settings != self.defaults.settings

    @property
    def verdict(self) -> Verdict:
        """Classify the result on the report half."""
        if not self.is_changed:
            return "same"
        if self.after.sessions < MIN_REPORT_SESSIONS or self.cost.high is None or self.served.low is None:
            return "few"
        serves_more = self.before.served < self.target and self.served.low > 0
        if self.cost.high >= 0 and not serves_more:
            return "chance"
        return "better" if self.after.served >= self.target or self.served.low >= -MAX_SERVED_LOSS else "unserved"

    @property
    def is_better(self) -> bool:
        """True if the gain on the report half is significant, and the settings still serve enough calls."""
        return self.verdict == "better"


def tune(  # noqa: PLR0913 - a search has many options
    files: Iterable[Path],
    rates: Rates,
    *,
    folder: Path,
    budget: int | None = None,
    served: float = TARGET_SERVED_SHARE,
    trials: int = TRIALS,
    jobs: int = 1,
    log: Path | None = None,
    progress: SweepProgress | None = None,
    space: Mapping[str, Sequence[int | float]] = SEARCH_SPACE,
    budgets: Sequence[int] = BUDGETS,
    run: UnitFunction = run_unit,
) -> TuningResult:
    """Choose settings on half of the sessions and measure them on the other half. A given `budget` stays fixed."""
    sizes = sort_files_by_size(files)
    # The search varies thresholds and budget, so the user's values must not change the key.
    key = compute_sweep_key(sizes, (), rates, replace(load_settings(), thresholds={}, budget=None))
    trial_log = TrialLog(log or folder / f"{key}.jsonl", key)
    checkpoint = SweepCheckpoint(folder / "begun", key)
    total = len(sizes)

    def report_progress(finished: int) -> None:
        if progress is not None:
            progress(finished, max(finished, total))

    with SweepWorkers(min(jobs, total), checkpoint, report_progress, run) as workers:
        units = [SweepUnit(str(path), FULL_HISTORY, (None,), MIN_RECORDED_CALLS, rates) for path in sizes]
        runner = TrialRunner(workers.run_units(units), workers, rates, trial_log)
        if len(runner.sessions) < 2:
            raise ReadError(
                "tuning needs at least two sessions, one to choose settings and one to measure them. Found "
                f"{len(runner.sessions)} with at least {MIN_RECORDED_CALLS} model calls and a reference to older text. "
                "Specify other files: `thresher tune PATH…`."
            )
        split = split_sessions(runner.sessions)
        total += trials * runner.count_files(split.tune) + 2 * runner.count_files(split.report)
        start = make_default_settings(budget)
        if budget is None:
            space = {BUDGET_OPTION: budgets, **space}
        search = search_settings(
            start, space, lambda batch: runner.run_trials(batch, split.tune), served=served, trials=trials
        )
        best = search.best.settings
        before, after = runner.compare_settings(start, best, split.report)
    checkpoint.delete()
    cost_difference, served_difference = measure_difference(before, after, runner.full_totals)
    return TuningResult(
        target=served,
        split=split,
        defaults=search.first,
        chosen=search.best,
        before=runner.record_trial("report", start, before),
        after=runner.record_trial("report", best, after),
        cost=cost_difference,
        served=served_difference,
        trials=search.count,
        reused=runner.reused_count,
        log=str(trial_log.path),
        failures=runner.failures,
    )


class SettingsSearchResult(Struct, frozen=True):
    """The first and the best trial of a search."""

    first: Trial
    best: Trial
    count: int


def search_settings(
    start: TuningSettings,
    space: Mapping[str, Sequence[int | float]],
    run_trials: Callable[[Sequence[TuningSettings]], Sequence[Trial]],
    *,
    served: float = TARGET_SERVED_SHARE,
    trials: int = TRIALS,
) -> SettingsSearchResult:
    """Run coordinate descent. One batch tries all values of a setting."""
    [first] = run_trials([start])
    best, tried = first, [start]
    improved = True
    while improved:
        improved = False
        for name, values in space.items():
            batch: list[TuningSettings] = [{**best.settings, name: value} for value in values]
            batch = [choice for choice in batch if choice not in tried and has_valid_thresholds(choice)]
            batch = batch[: trials - len(tried)]
            tried += batch
            # If a configuration fails on a session that the defaults can process, its result is not comparable.
            comparable = [trial for trial in run_trials(batch) if trial.sessions >= first.sessions] if batch else []
            top = min(comparable, key=lambda trial: _rank(trial, served), default=best)
            if _is_better_trial(top, best, served):
                best, improved = top, True
    return SettingsSearchResult(first, best, len(tried))


def _rank(trial: Trial, served: float) -> tuple[bool, float]:
    """Sort key of a trial; lower is better."""
    enough = trial.served >= served
    return not enough, trial.cost_with_refetch if enough else 1 - trial.served


def _is_better_trial(new: Trial, old: Trial, served: float) -> bool:
    (new_misses, new_value), (old_misses, old_value) = _rank(new, served), _rank(old, served)
    return new_value < old_value * (1 - MIN_GAIN) if new_misses == old_misses else old_misses


def measure_difference(
    before: Mapping[str, ReplayTotals], after: Mapping[str, ReplayTotals], full: Mapping[str, ReplayTotals]
) -> tuple[MeasuredDifference, MeasuredDifference]:
    """Return the differences in cost (refetching included) and in served calls over the same sessions."""
    rows: list[tuple[float, ...]] = []
    for key, old in before.items():
        new = after[key]
        cost = new.cost + new.refetch_cost - old.cost - old.refetch_cost
        rows.append((cost, full[key].cost, new.served - old.served, old.calls_with_references))

    def differences(sample: Sequence[tuple[float, ...]]) -> tuple[float, float]:
        cost, full_cost, served, calls = (sum(column) for column in zip(*sample, strict=True))
        return cost / full_cost if full_cost else 0.0, served / calls if calls else 0.0

    cost, served = differences(rows or [(0.0,) * 4])
    if len(rows) < 2:
        return MeasuredDifference(cost), MeasuredDifference(served)
    random = Random(SEED)
    draws = [differences(random.choices(rows, k=len(rows))) for _ in range(DRAWS)]
    cost_interval, served_interval = (compute_interval(values) or (None, None) for values in zip(*draws, strict=True))
    return MeasuredDifference(cost, *cost_interval), MeasuredDifference(served, *served_interval)


def format_settings_toml(choice: TuningSettings, notes: Iterable[str] = ()) -> str:
    """Format the settings that differ from the defaults as a `thresher.toml`."""
    budget, thresholds = _split_budget(choice)
    lines = (line for note in notes for line in wrap(note, WIDTH - 2, break_on_hyphens=False))
    head = [*(f"# {line}" for line in lines), *(() if budget is None else (f"{BUDGET_OPTION} = {budget}",))]
    table = ["[thresholds]", *(f"{name} = {value}" for name, value in thresholds.items())] if thresholds else []
    return "\n\n".join("\n".join(part) for part in (head, table) if part) + "\n"


def has_same_settings(file: Path, choice: TuningSettings) -> bool:
    """Report whether a `thresher.toml` already contains these settings."""
    budget, thresholds = _split_budget(choice)
    try:
        settings = load_settings(environment={}, file=file)
        return (settings.budget, Thresholds(**settings.thresholds)) == (budget, Thresholds(**thresholds))
    except OptionError:
        return False


def _split_budget(choice: TuningSettings) -> tuple[int | float | None, dict[str, Any]]:
    """Return the budget and the thresholds that differ from the defaults."""
    changed = find_changed_settings(choice)
    return changed.pop(BUDGET_OPTION, None), changed
