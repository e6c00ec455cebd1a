"""Render the result of a tuning search as terminal tables, a `thresher.toml`, and JSON values.

The first table lists the changed settings, the second one their effect on the tuning half and the report half. The
TOML lines are plain text, not a renderable, so that no terminal wraps them.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import to_builtins

from thresher.budget.settings import SETTINGS_FILE
from thresher.render.replay_export import replay_failure_value
from thresher.render.text import plural, strip_control_codes
from thresher.replay.tuning.holdout import HoldoutHalf
from thresher.replay.tuning.search import MIN_REPORT_SESSIONS, MeasuredDifference, TuningResult, format_settings_toml
from thresher.replay.tuning.trials import BUDGET_OPTION, Trial, find_changed_settings

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

REPORTED_FIELDS = ("served", "tokens", "cost", "cost_with_refetch", "lost", "sessions")


# Terminal


def tune_tables(tuned: TuningResult) -> Iterator["RenderableType"]:
    """Yield the configurations tried, the chosen settings, their effect on both halves, and the conclusion."""
    from rich.text import Text

    split = tuned.split
    yield Text.assemble(
        ("Tuning the settings of auto", "bold cyan"),
        f"   chosen on {_half(split.tune)}, measured on {_half(split.report)}   definition {tuned.after.definition}",
    )
    if split.by == "session":
        yield Text("Only one project, split by session: results on other projects may differ.", style="dim")
    reused = f", {tuned.reused:,} of them read from the log" if tuned.reused else ""
    log = strip_control_codes(tuned.log)
    yield Text(f"{plural(tuned.trials, 'configuration')} tried{reused}. Log: {log}", style="dim")
    yield ""
    if tuned.is_changed:
        yield _settings(tuned)
        yield ""
    yield _measurements_table(tuned)
    for note in _notes(tuned):
        yield Text(note, style="dim")
    yield ""
    yield Text(verdict_text(tuned))


def _settings(tuned: TuningResult) -> "Table":
    table = _table("setting", "default", "chosen")
    for name, value in tuned.chosen.settings.items():
        if value != tuned.defaults.settings[name]:
            table.add_row(name, _setting(tuned.defaults.settings[name]), _setting(value))
    return table


def _setting(value: float | None) -> str:
    return "automatic" if value is None else f"{value:,}"


def _measurements_table(tuned: TuningResult) -> "Table":
    table = _table("sessions and settings", "served", "cost with refetches", "tokens per turn", "lost")
    for half, defaults, chosen in (("tuning", tuned.defaults, tuned.chosen), ("report", tuned.before, tuned.after)):
        for name, trial in (("defaults", defaults), ("chosen", chosen))[: 1 + tuned.is_changed]:
            cost, tokens = f"{trial.cost_with_refetch:.3f}", f"{trial.tokens:,.0f}"
            table.add_row(f"{half} half, {name}", _percent(trial.served), cost, tokens, _percent(trial.lost))
    if tuned.is_changed:
        served, cost = _format_difference(tuned.served, 100, " pp", 1), _format_difference(tuned.cost, 1, "", 3)
        table.add_row("report half, difference", served, cost)
    return table


def _table(*columns: str) -> "Table":
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="dim")
    for number, name in enumerate(columns):
        table.add_column(name, justify="right" if number else "left")
    return table


def _notes(tuned: TuningResult) -> Iterator[str]:
    target = f"{100 * tuned.target:g} %"
    yield (
        "Served: turns whose request contains all the earlier text that they reuse. Lost: share of the reused text "
        "that is neither in the request nor recoverable. Sending the full history costs 1."
    )
    if tuned.chosen.served < tuned.target:
        yield f"No configuration serves {target}, so the search chose the one that serves most."
    if tuned.is_changed:
        yield "In parentheses: the 95 % confidence interval of the difference."
        if tuned.after.served < tuned.target:
            yield f"On the report half the chosen settings serve {_percent(tuned.after.served)}, below {target}."
    if tuned.verdict == "few":
        yield f"A significant difference needs at least {MIN_REPORT_SESSIONS} sessions in the report half."


# Messages


def verdict_text(tuned: TuningResult) -> str:
    """Return the conclusion, and what to do next."""
    match tuned.verdict:
        case "same":
            return "No configuration beats the defaults. Keep them."
        case "better":
            return "The chosen settings are significantly better than the defaults on the report half:"
        case "few":
            return f"Too few sessions for a recommendation ({tuned.after.sessions}). Write the settings with --force:"
        case "unserved":
            reason = f"serve too few turns ({_percent(tuned.after.served)})"
        case "chance":
            reason = "are not significantly better than the defaults"
    return (
        f"On the report half, the chosen settings {reason}. Keep the defaults, or write the settings anyway with "
        "--force:"
    )


def existing_file_notice(place: Path) -> str:
    """Return a notice, shown before the search, that an existing file will not be changed."""
    return strip_control_codes(
        f"`{place}` exists and will not be changed. The settings will only be printed; use --force to replace the file."
    )


def file_kept_notice(place: Path) -> str:
    """Return a notice, shown after the search, that an existing file was not changed."""
    return strip_control_codes(f"`{place}` exists and was not changed. Paste the lines into it, or use --force.")


def file_unchanged_notice(place: Path) -> str:
    """Return a notice that the file already contains the settings."""
    return strip_control_codes(f"{place} already contains these settings.")


def file_written_notice(tuned: TuningResult, place: Path, kept: Path | None) -> str:
    """Return a notice with the written file, the programs that use it, and the backup."""
    users = "Every `Window`"
    if BUDGET_OPTION in find_changed_settings(tuned.chosen.settings):
        users += " and `thresher fit`"
    condition = "" if place.name == SETTINGS_FILE else f" once it is named {SETTINGS_FILE}"
    backup = f" The previous file is now {kept}." if kept else ""
    return strip_control_codes(f"Wrote {place}. {users} started in that folder will use it{condition}.{backup}")


# TOML


def tune_toml(tuned: TuningResult, prices: str) -> str:
    """Return the text of a `thresher.toml` with the chosen settings and their origin; empty for the defaults."""
    if not tuned.is_changed:
        return ""
    before, after = tuned.before, tuned.after
    doubts = {
        "few": "too few sessions to show that it is better than the defaults",
        "unserved": "not better than the defaults: it serves too few turns",
        "chance": "not significantly better than the defaults",
    }
    notes = (
        f"`thresher tune`: the best of {plural(tuned.trials, 'configuration')} on {_half(tuned.split.tune)}",
        f"measured on {_half(tuned.split.report)}: served {_percent(after.served)} (defaults "
        f"{_percent(before.served)}), cost {after.cost_with_refetch:.3f} (defaults {before.cost_with_refetch:.3f})",
        f"definition {after.definition}, prices: {prices}",
        *(text for verdict, text in doubts.items() if verdict == tuned.verdict),
    )
    return format_settings_toml(tuned.chosen.settings, notes)


def _half(half: HoldoutHalf) -> str:
    sessions, projects = plural(len(half.sessions), "session"), plural(half.projects, "project")
    return f"{sessions} of {projects} ({plural(half.calls, 'turn')})"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _format_difference(difference: MeasuredDifference, factor: float, unit: str, places: int) -> str:
    def signed(value: float) -> str:
        return f"{factor * value:+.{places}f}".replace("-", "−")

    low, high = difference.low, difference.high
    interval = "" if low is None or high is None else f" ({signed(low)} to {signed(high)})"
    return f"{signed(difference.value)}{unit}{interval}"


# JSON


_FIGURE_KEYS = {"tokens": "tokens_per_turn", "lost": "lost_share"}


def tune_value(tuned: TuningResult, prices: str) -> dict[str, Any]:
    """Return the result as JSON values. The keys are stable."""
    split = tuned.split
    return {
        "reference_definition": tuned.after.definition,
        "prices": prices,
        "served_target": tuned.target,
        "split": {"by": split.by, "tuning": to_builtins(split.tune), "report": to_builtins(split.report)},
        "defaults": _trial_pair_value(tuned.defaults, tuned.before),
        "chosen": _trial_pair_value(tuned.chosen, tuned.after),
        "difference": {"cost_with_refetch": to_builtins(tuned.cost), "served": to_builtins(tuned.served)},
        "better": tuned.is_better,
        "trials": tuned.trials,
        "reused_trials": tuned.reused,
        "log": tuned.log,
        "failures": [replay_failure_value(failure) for failure in tuned.failures],
        "toml": tune_toml(tuned, prices) or None,
    }


def _trial_pair_value(tune: Trial, report: Trial) -> dict[str, Any]:
    """Return the settings of a configuration, and its figures on both halves."""
    return {"settings": tune.settings, "tuning": _figures_value(tune), "report": _figures_value(report)}


def _figures_value(trial: Trial) -> dict[str, Any]:
    return {_FIGURE_KEYS.get(name, name): getattr(trial, name) for name in REPORTED_FIELDS}
