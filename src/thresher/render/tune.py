"""Render the result of a tuning search as terminal tables, a `thresher.toml`, and JSON values.

The first table lists the changed settings, the second one their effect on both halves. The TOML lines are plain text
rather than a renderable, so that no terminal wraps them.
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
    """Yield what was tried, the chosen settings, their effect on both halves, and the conclusion."""
    from rich.text import Text

    split = tuned.split
    yield Text.assemble(
        ("tuning auto", "bold cyan"),
        f"  chosen on {_half(split.tune)}, measured on {_half(split.report)}   definition {tuned.after.definition}",
    )
    if split.by == "session":
        yield Text("one project only: split by session, so on other projects it may be otherwise", style="dim")
    reused = f", {tuned.reused:,} taken from the log" if tuned.reused else ""
    yield Text(
        f"{plural(tuned.trials, 'configuration')} tried{reused}; logged in {strip_control_codes(tuned.log)}",
        style="dim",
    )
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
    return "by the budget" if value is None else f"{value:,}"


def _measurements_table(tuned: TuningResult) -> "Table":
    table = _table("", "served", "cost with re-fetches", "tokens", "lost")
    for half, defaults, chosen in (("tune", tuned.defaults, tuned.chosen), ("report", tuned.before, tuned.after)):
        for name, one in (("defaults", defaults), ("chosen", chosen))[: 1 + tuned.is_changed]:
            cost, tokens = f"{one.cost_with_refetch:.3f}", f"{one.tokens:,.0f}"
            table.add_row(f"{half} half · {name}", _percent(one.served), cost, tokens, _percent(one.lost))
    if tuned.is_changed:
        table.add_row(
            "difference", _format_difference(tuned.served, 100, " pp", 1), _format_difference(tuned.cost, 1, "", 3)
        )
    return table


def _table(*columns: str) -> "Table":
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="dim")
    for number, name in enumerate(columns):
        table.add_column(name, justify="right" if number else "left")
    return table


def _notes(tuned: TuningResult) -> Iterator[str]:
    target = f"{100 * tuned.target:g} %"
    if tuned.chosen.served < tuned.target:
        yield f"nothing that was tried serves {target}: the most that is served was looked for"
    if tuned.is_changed:
        yield "difference: on the report half; in brackets, 95 of 100 draws of its sessions; the full history costs 1"
        if tuned.after.served < tuned.target:
            yield f"elsewhere it serves {_percent(tuned.after.served)}, below {target}"
    if tuned.verdict == "few":
        yield f"from {MIN_REPORT_SESSIONS} sessions on the report half on, a difference is told from chance"


# Messages


def verdict_text(tuned: TuningResult) -> str:
    """Return the conclusion, and what to do next."""
    forced = "--force writes them"
    match tuned.verdict:
        case "same":
            return "nothing that was tried beats the defaults where it counts: keep them"
        case "better":
            return "the chosen settings are better on sessions that they were not chosen on, by more than chance:"
        case "few":
            return f"too few sessions to tell ({tuned.after.sessions}); {forced}:"
        case "unserved":
            why = f"serve too little, {_percent(tuned.after.served)}"
        case "chance":
            why = "are not better by more than chance"
    return (
        f"on sessions that they were not chosen on, the chosen settings {why}: keep the defaults "
        f"({forced} all the same):"
    )


def existing_file_notice(place: Path) -> str:
    """Return a notice for before the search, which may take long."""
    return strip_control_codes(
        f"`{place}` is there and will be left as it is: what is found will be shown; --force replaces it"
    )


def file_kept_notice(place: Path) -> str:
    """Return a notice that an existing file was kept."""
    return strip_control_codes(f"`{place}` is there and was left as it is: paste the lines into it, or say --force")


def file_unchanged_notice(place: Path) -> str:
    """Return a notice that the file already contains the settings."""
    return strip_control_codes(f"{place} already says the same: nothing to write")


def file_written_notice(tuned: TuningResult, place: Path, kept: Path | None) -> str:
    """Return where the settings were written, what uses them, and where the backup is."""
    users = "windows that are started in that folder use it"
    if place.name != SETTINGS_FILE:
        users = f"once it is called {SETTINGS_FILE}, {users}"
    if BUDGET_OPTION in find_changed_settings(tuned.chosen.settings):
        users += ", and `thresher fit` in that folder uses its budget, too"
    return strip_control_codes(
        f"written to {place}: {users}" + (f"; what was there before is now {kept}" if kept else "")
    )


# TOML


def tune_toml(tuned: TuningResult, prices: str) -> str:
    """Return the chosen settings as a `thresher.toml` with their origin; empty if the defaults are best."""
    if not tuned.is_changed:
        return ""
    before, after = tuned.before, tuned.after
    doubts = {
        "few": "too few sessions to tell whether it is better than the defaults",
        "unserved": "not better than the defaults there: it serves too little",
        "chance": "not better than the defaults there by more than chance",
    }
    notes = (
        f"`thresher tune`: the best of {plural(tuned.trials, 'configuration')} on {_half(tuned.split.tune)}",
        f"on {_half(tuned.split.report)} that had no part in it: served {_percent(after.served)} "
        f"(defaults {_percent(before.served)}), cost {after.cost_with_refetch:.3f} ({before.cost_with_refetch:.3f})",
        f"definition {after.definition}, prices: {prices}",
        *(text for verdict, text in doubts.items() if verdict == tuned.verdict),
    )
    return format_settings_toml(tuned.chosen.settings, notes)


def _half(half: HoldoutHalf) -> str:
    sessions, projects = plural(len(half.sessions), "session"), plural(half.projects, "project")
    return f"{sessions} of {projects} ({plural(half.calls, 'call')})"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _format_difference(one: MeasuredDifference, factor: float, unit: str, places: int) -> str:
    def told(value: float) -> str:
        return f"{factor * value:+.{places}f}".replace("-", "−")

    ends = "" if one.low is None or one.high is None else f" ({told(one.low)} to {told(one.high)})"
    return f"{told(one.value)}{unit}{ends}"


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
    """Return a configuration's figures on both halves."""
    return {"settings": tune.settings, "tuning": _figures_value(tune), "report": _figures_value(report)}


def _figures_value(trial: Trial) -> dict[str, Any]:
    return {_FIGURE_KEYS.get(name, name): getattr(trial, name) for name in REPORTED_FIELDS}
