"""Trials: configurations of `auto`, their measured results, and a log of all of them.

Every trial is one line in the log, with a digest of everything that affects its figures. A restarted search reuses
these lines, and an interrupted trial resumes unit by unit as in a sweep. The log is created with its first line, so a
search without trials leaves no file.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct, structs

from thresher.budget.fitting import default_budget
from thresher.errors import OptionError, ThresherError
from thresher.replay.cost import Rates
from thresher.replay.references import REFERENCE_DEFINITION
from thresher.replay.scores import score_totals, sum_totals
from thresher.replay.simulate import ReplayTotals
from thresher.replay.sweep import MIN_RECORDED_CALLS, SweepWorkers, exclude_subagent_files
from thresher.replay.sweep_results import SweepUnit, UnitResult
from thresher.replay.tuning.holdout import HoldoutHalf
from thresher.window import Thresholds

TUNED_POLICY = "auto"
BUDGET_OPTION = "budget"
TuningSettings = dict[str, int | float | None]
"""The budget and all thresholds by name; None means that the value is derived from the others."""
HoldoutSide = Literal["tune", "report"]


def make_default_settings(budget: int | None = None) -> TuningSettings:
    """Return the default settings."""
    return {BUDGET_OPTION: default_budget("") if budget is None else budget, **asdict(Thresholds())}


def format_strategy_name(choice: TuningSettings) -> str:
    """Return the strategy name from which any process can create the strategy."""
    thresholds = {name: value for name, value in find_changed_settings(choice).items() if name != BUDGET_OPTION}
    return TUNED_POLICY + msgspec.json.encode(thresholds).decode()


def find_changed_settings(choice: TuningSettings) -> TuningSettings:
    """Return the settings that differ from the defaults."""
    default = make_default_settings()
    return {name: value for name, value in choice.items() if value != default[name]}


def has_valid_thresholds(choice: TuningSettings) -> bool:
    """Report whether the thresholds are valid."""
    try:
        Thresholds(**{name: value for name, value in choice.items() if name != BUDGET_OPTION})  # type: ignore[arg-type]
    except OptionError:
        return False
    return True


class Trial(Struct, frozen=True, kw_only=True):
    """The result of one configuration on one half: a line of the log."""

    key: str
    split: HoldoutSide
    settings: TuningSettings
    served: float
    tokens: float
    """Mean tokens per call."""
    cost: float
    """Cost without refetches, relative to the full history of the same sessions."""
    cost_with_refetch: float
    """Cost with refetches, relative to the full history of the same sessions."""
    lost: float
    sessions: int
    definition: str = REFERENCE_DEFINITION


def _is_writable(path: Path) -> bool:
    return os.access(path, os.W_OK)


class TrialLog:
    """A log of all trials, one per line. Other lines in the file are preserved."""

    def __init__(self, path: Path, key: str, *, is_writable: Callable[[Path], bool] = _is_writable) -> None:
        """Read the log. Fail immediately if it cannot be written."""
        self.path, self.key = path, key
        self._trials: list[Trial] = []
        try:
            lines = path.read_bytes() if path.exists() else b""
            existing = next(parent for parent in (path, *path.parents) if parent.exists())
        except OSError as error:
            raise self._make_write_error(error.strerror or str(error)) from error
        if existing != path and not existing.is_dir():
            raise self._make_write_error(f"`{existing}` is not a folder")
        if not is_writable(existing):
            raise self._make_write_error("permission denied")
        self._line_prefix = b"\n" if lines and not lines.endswith(b"\n") else b""  # terminate an incomplete line
        for line in lines.splitlines():
            with suppress(msgspec.DecodeError, UnicodeDecodeError):
                self._trials.append(msgspec.json.decode(line, type=Trial))

    def find(self, split: HoldoutSide, choice: TuningSettings) -> Trial | None:
        """Return the trial of a configuration, if the log contains it."""
        same = (
            trial for trial in self._trials if (trial.key, trial.split, trial.settings) == (self.key, split, choice)
        )
        return next(same, None)

    def add(self, trial: Trial) -> Trial:
        """Add a trial, unless the log already contains it."""
        if self.find(trial.split, trial.settings) is None:
            self._trials.append(trial)
            self._append(msgspec.json.encode(trial) + b"\n")
        return trial

    def _append(self, line: bytes) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("ab") as file:
                file.write(self._line_prefix + line)
        except OSError as error:
            raise self._make_write_error(error.strerror or str(error)) from error
        self._line_prefix = b""

    def _make_write_error(self, reason: str) -> ThresherError:
        return ThresherError(f"cannot write the log `{self.path}`: {reason}. Choose another file with `--log`.")


class TrialRunner:
    """Replay sessions with different settings and compare the results with the full history."""

    def __init__(self, first: Sequence[UnitResult], workers: SweepWorkers, rates: Rates, log: TrialLog) -> None:
        """Start without trials. `first` contains the results of the full history for every file."""
        self._full_results = [result for result in exclude_subagent_files(first) if result.sessions]
        self._workers, self._rates, self._log = workers, rates, log
        # Exclude sessions without references, because they favor the settings that remove most.
        sessions = (item for result in self._full_results for item in result.sessions.items())
        used = {key: session for key, session in sessions if session.totals_by_budget[""].calls_with_references}
        self.sessions = {key: session.facts for key, session in used.items()}
        self.full_totals = {key: session.totals_by_budget[""] for key, session in used.items()}
        self.failures = [failure for result in first for failure in result.failures]
        self.reused_count = 0

    def count_files(self, half: HoldoutHalf) -> int:
        """Return the number of files that contain the sessions of a half."""
        return len(self._files(half))

    def run_trials(self, batch: Sequence[TuningSettings], half: HoldoutHalf) -> list[Trial]:
        """Run configurations on the tuning half; reuse the trials in the log."""
        logged = [self._log.find("tune", choice) for choice in batch]
        new = [choice for choice, trial in zip(batch, logged, strict=True) if trial is None]
        self.reused_count += len(batch) - len(new)
        totals = self._replay_sessions(new, half) if new else []
        made = iter([self.record_trial("tune", *run) for run in zip(new, totals, strict=True)])
        return [trial or next(made) for trial in logged]

    def compare_settings(
        self, start: TuningSettings, best: TuningSettings, half: HoldoutHalf
    ) -> tuple[dict[str, ReplayTotals], dict[str, ReplayTotals]]:
        """Return the totals of two configurations, by session, for the sessions that both could process."""
        runs = self._replay_sessions([start] if start == best else [start, best], half)
        shared = [key for key in half.sessions if key in runs[0] and key in runs[-1]]
        return {key: runs[0][key] for key in shared}, {key: runs[-1][key] for key in shared}

    def record_trial(self, split: HoldoutSide, choice: TuningSettings, totals: Mapping[str, ReplayTotals]) -> Trial:
        """Score a configuration and add it to the log."""
        full = sum_totals(self.full_totals[key] for key in totals)
        score = score_totals(None, sum_totals(totals.values()), full, len(totals))
        return self._log.add(
            Trial(
                key=self._log.key,
                split=split,
                settings=choice,
                served=score.served,
                tokens=score.tokens_per_turn,
                cost=score.cost,
                cost_with_refetch=score.cost_with_refetch,
                lost=score.lost_share,
                sessions=score.sessions,
            )
        )

    def _files(self, half: HoldoutHalf) -> list[str]:
        return [result.file for result in self._full_results if not result.sessions.keys().isdisjoint(half.sessions)]

    def _replay_sessions(self, batch: Sequence[TuningSettings], half: HoldoutHalf) -> list[dict[str, ReplayTotals]]:
        """Return the totals of each configuration by session. All units start together, so no processor idles."""
        files = self._files(half)
        names = [(format_strategy_name(choice), (int(choice[BUDGET_OPTION] or 0),)) for choice in batch]
        units = [SweepUnit(file, *name, MIN_RECORDED_CALLS, self._rates) for name in names for file in files]
        totals: list[dict[str, ReplayTotals]] = [{} for _ in batch]
        for number, result in enumerate(self._workers.run_units(units)):
            # The same session may fail in every trial: report it once.
            failures = (structs.replace(failure, strategy=TUNED_POLICY) for failure in result.failures)
            self.failures += [failure for failure in failures if failure not in self.failures]
            for key in result.sessions.keys() & {*half.sessions}:
                [totals[number // len(files)][key]] = result.sessions[key].totals_by_budget.values()
        return totals
