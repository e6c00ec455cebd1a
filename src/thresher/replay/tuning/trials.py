"""Trials: configurations of `auto`, their measured results, and a log of all of them.

Every trial is one line in the log, with the key of everything that its figures depend on. A restarted search reuses
these lines, and an interrupted trial resumes unit by unit as in a sweep. The log is created with its first line, so a
search without trials leaves no file.
"""

import os
from collections.abc import Mapping, Sequence
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
"""The budget and all thresholds by name; None means that the value depends on the others."""
HoldoutSide = Literal["tune", "report"]


def make_default_settings(budget: int | None = None) -> TuningSettings:
    """Return the default settings."""
    return {BUDGET_OPTION: default_budget("") if budget is None else budget, **asdict(Thresholds())}


def format_strategy_name(choice: TuningSettings) -> str:
    """Return the strategy name from which any process can create the strategy."""
    pace = {name: value for name, value in find_changed_settings(choice).items() if name != BUDGET_OPTION}
    return TUNED_POLICY + msgspec.json.encode(pace).decode()


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
    cost_with_refetch: float
    """Both relative to the full history of the same sessions."""
    lost: float
    sessions: int
    definition: str = REFERENCE_DEFINITION


class TrialLog:
    """A log of all trials, one per line. Unrelated lines in the file are kept."""

    def __init__(self, path: Path, key: str) -> None:
        """Read the log. Fail immediately if it cannot be written."""
        self.path, self.key = path, key
        self._trials: list[Trial] = []
        try:
            told = path.read_bytes() if path.exists() else b""
            above = next(one for one in (path, *path.parents) if one.exists())
        except OSError as error:
            raise self._make_write_error(error.strerror or str(error)) from error
        if above != path and not above.is_dir():
            raise self._make_write_error(f"`{above}` is no folder")
        if not os.access(above, os.W_OK):
            raise self._make_write_error("there is no right to")
        self._line_prefix = b"\n" if told and not told.endswith(b"\n") else b""  # terminate an incomplete line
        for line in told.splitlines():
            with suppress(msgspec.DecodeError, UnicodeDecodeError):
                self._trials.append(msgspec.json.decode(line, type=Trial))

    def find(self, split: HoldoutSide, choice: TuningSettings) -> Trial | None:
        """Return the trial of a configuration, if the log contains it."""
        same = (one for one in self._trials if (one.key, one.split, one.settings) == (self.key, split, choice))
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

    def _make_write_error(self, why: str) -> ThresherError:
        return ThresherError(f"`{self.path}` cannot be written: {why}; name another log with --log")


class TrialRunner:
    """Replay sessions with different settings and compare the results with the full history."""

    def __init__(self, first: Sequence[UnitResult], workers: SweepWorkers, rates: Rates, log: TrialLog) -> None:
        """Take the results of the full history for every file."""
        self._full_results = [done for done in exclude_subagent_files(first) if done.sessions]
        self._workers, self._rates, self._log = workers, rates, log
        # A session without references would favor whichever setting removes most.
        told = {
            key: one
            for done in self._full_results
            for key, one in done.sessions.items()
            if one.totals_by_budget[""].calls_with_references
        }
        self.sessions = {key: one.facts for key, one in told.items()}
        self.full_totals = {key: one.totals_by_budget[""] for key, one in told.items()}
        self.failures = [failure for done in first for failure in done.failures]
        self.reused_count = 0

    def count_files(self, half: HoldoutHalf) -> int:
        """Return the number of files that contain the sessions of a half."""
        return len(self._files(half))

    def run_trials(self, row: Sequence[TuningSettings], half: HoldoutHalf) -> list[Trial]:
        """Run configurations on the tuning half; reuse the trials in the log."""
        known = [self._log.find("tune", one) for one in row]
        self.reused_count += sum(one is not None for one in known)
        new = [choice for choice, one in zip(row, known, strict=True) if one is None]
        made = iter(self._replay_sessions(new, half) if new else ())
        return [
            self.record_trial("tune", choice, next(made)) if one is None else one
            for choice, one in zip(row, known, strict=True)
        ]

    def compare_settings(
        self, start: TuningSettings, best: TuningSettings, half: HoldoutHalf
    ) -> tuple[dict[str, ReplayTotals], dict[str, ReplayTotals]]:
        """Run two configurations on the sessions that both could take."""
        found = self._replay_sessions([start] if start == best else [start, best], half)
        shared = found[0].keys() & found[-1].keys()
        before, after = ({key: one[key] for key in half.sessions if key in shared} for one in (found[0], found[-1]))
        return before, after

    def record_trial(
        self, split: HoldoutSide, choice: TuningSettings, totals_by_setting: Mapping[str, ReplayTotals]
    ) -> Trial:
        """Score a configuration and add it to the log."""
        whole = sum_totals(self.full_totals[key] for key in totals_by_setting)
        score = score_totals(None, sum_totals(totals_by_setting.values()), whole, len(totals_by_setting))
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
        return [done.file for done in self._full_results if not done.sessions.keys().isdisjoint(half.sessions)]

    def _replay_sessions(self, row: Sequence[TuningSettings], half: HoldoutHalf) -> list[dict[str, ReplayTotals]]:
        """Return the totals of each configuration by session. All units start together, so no processor idles."""
        files = self._files(half)
        units = [
            SweepUnit(file, format_strategy_name(one), (int(one[BUDGET_OPTION] or 0),), MIN_RECORDED_CALLS, self._rates)
            for one in row
            for file in files
        ]
        found: list[dict[str, ReplayTotals]] = [{} for _ in row]
        for number, done in enumerate(self._workers.run_units(units)):
            # The same session may fail in every trial: report it once.
            wrong = (structs.replace(failure, strategy=TUNED_POLICY) for failure in done.failures)
            self.failures += [failure for failure in wrong if failure not in self.failures]
            for key in done.sessions.keys() & {*half.sessions}:
                [found[number // len(files)][key]] = done.sessions[key].totals_by_budget.values()
        return found
