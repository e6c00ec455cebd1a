"""`thresher tune`: the settings that do best on one's own sessions, and whether they hold on others of them."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from thresher.cli.common import console, json_option, place_options, print_json, session_files, warn, write
from thresher.cli.replay import PRICES, progress_bar, told_failures
from thresher.errors import OptionError

if TYPE_CHECKING:
    from rich.table import Table

    from thresher.replay.split import Half
    from thresher.replay.trials import Trial
    from thresher.replay.tuning import Difference, Tuned

FEW = 5
"""Sessions below which an interval means little."""


@click.command("tune")
@click.argument("paths", nargs=-1, type=click.Path(exists=True, path_type=Path))
@click.option("--budget", "-b", help="Tokens that a request may have: then the budget is no part of the search.")
@click.option(
    "--served",
    type=click.FloatRange(0, 100),
    default=95,
    show_default=True,
    help="Percent of the calls that used earlier text whose request shall hold all of it.",
)
@click.option("--trials", type=click.IntRange(min=1), default=60, show_default=True, help="Configurations to try.")
@click.option("--prices", type=click.Choice(PRICES), default=PRICES[0], show_default=True, help="What tokens cost.")
@click.option("--jobs", "-j", type=click.IntRange(min=1), help="Processes. Default: one a processor.")
@click.option(
    "--output",
    "-o",
    type=click.Path(path_type=Path, dir_okay=False),
    default=Path("thresher.toml"),
    show_default=True,
    help="Where the settings are written, if they are better.",
)
@click.option("--force", is_flag=True, help="Write them even if they are not better, and in place of a file.")
@click.option(
    "--log",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Where each trial is logged. Default: the data folder.",
)
@place_options
@json_option
def command(
    paths: tuple[Path, ...],
    budget: str | None,
    served: float,
    trials: int,
    prices: str,
    jobs: int | None,
    output: Path,
    force: bool,
    log: Path | None,
    sources: tuple[Path, ...],
    no_discover: bool,
    as_json: bool,
) -> None:
    """Find the settings of `auto` that do best on recorded sessions: those in PATHS, or those on this machine.

    Best is what costs least and still serves enough. Settings are chosen on some projects and measured on others; if
    they are no better there, it says so and writes nothing. A run that was stopped goes on where it was.

    \b
    Examples:
      thresher tune
      thresher tune ~/.claude/projects --budget 120k
      thresher tune runs/ --served 98 --trials 30 -o tuned.toml
      thresher tune runs/ --prices openai --jobs 4 --json
    """
    from thresher.budget import tokens
    from thresher.replay.tuning import tune
    from thresher.replay.ways import rates_named
    from thresher.store import home

    limit = None if budget is None else tokens(budget)
    if limit == 0:
        raise OptionError("a budget is a number of tokens above 0: --budget 60k")
    files = session_files(paths, sources, no_discover=no_discover)
    with progress_bar() as progress:
        tuned = tune(
            files,
            rates_named(prices),
            folder=home() / "tune",
            budget=limit,
            served=served / 100,
            trials=trials,
            jobs=jobs or os.cpu_count() or 1,
            log=log,
            progress=progress,
        )
    wrong = told_failures(tuned.failures, [*paths, *sources])
    text = _toml(tuned, prices) if tuned.is_changed else ""
    wanted = bool(text) and (tuned.is_better or force)
    written = wanted and (force or not output.exists())
    if not as_json:
        _show(tuned, text)
    if written:
        write(output, text)
    elif wanted:
        warn(f"thresher: `{output}` is there and was left as it is: paste the lines into it, or say --force")
    if as_json:
        print_json(_value(tuned, prices) | {"toml": text or None, "written": str(output) if written else None})
    elif written:
        console().print(f"written to {output}: windows that are started beside it use it", markup=False)
    if wrong or wanted != written:
        sys.exit(1)


def _toml(tuned: "Tuned", prices: str) -> str:
    from thresher.replay.tuning import toml_of

    before, after = tuned.before, tuned.after
    notes = (
        f"`thresher tune`: the best of {tuned.trials} configurations on {_half(tuned.split.tune)}",
        f"on {_half(tuned.split.report)} that had no part in it: served {_percent(after.served)} "
        f"(defaults {_percent(before.served)}), cost {after.cost_with_refetch:.3f} ({before.cost_with_refetch:.3f})",
        f"definition {after.definition}, prices: {prices}",
        *(() if tuned.is_better else ("not better than the defaults there",)),
    )
    return toml_of(tuned.chosen.settings, notes)


# For a person


def _show(tuned: "Tuned", text: str) -> None:
    from rich.text import Text

    split, out = tuned.split, console()
    out.print(
        Text.assemble(
            ("tuning auto", "bold cyan"),
            f"  chosen on {_half(split.tune)}, measured on {_half(split.report)}   definition {tuned.after.definition}",
        )
    )
    if split.by == "session":
        out.print("one project only: split by session, so on other projects it may be otherwise", style="dim")
    reused = f", {tuned.reused:,} of them before" if tuned.reused else ""
    out.print(f"{tuned.trials:,} configurations tried{reused}; logged in {tuned.log}", style="dim", markup=False)
    out.print()
    if tuned.is_changed:
        out.print(_settings(tuned))
        out.print()
    out.print(_figures(tuned))
    for note in _notes(tuned):
        out.print(note, style="dim")
    out.print()
    out.print(_verdict(tuned), markup=False)
    if text:
        out.print()
        out.print(text, markup=False, end="")


def _settings(tuned: "Tuned") -> "Table":
    table = _table("setting", "default", "chosen")
    for name, value in tuned.chosen.settings.items():
        if value != tuned.defaults.settings[name]:
            table.add_row(name, f"{tuned.defaults.settings[name]:,}", f"{value:,}")
    return table


def _figures(tuned: "Tuned") -> "Table":
    table = _table("", "served", "cost with re-fetches", "tokens", "lost")
    rows: list[tuple[str, Trial]] = [("where chosen: defaults", tuned.defaults)]
    rows += [("where chosen: chosen", tuned.chosen)] if tuned.is_changed else []
    rows += [("elsewhere: defaults", tuned.before)]
    rows += [("elsewhere: chosen", tuned.after)] if tuned.is_changed else []
    for name, one in rows:
        cost, tokens = f"{one.cost_with_refetch:.3f}", f"{one.tokens:,.0f}"
        table.add_row(name, _percent(one.served), cost, tokens, _percent(one.lost))
    if tuned.is_changed:
        table.add_row("difference", _between(tuned.served, 100, " pp", 1), _between(tuned.cost, 1, "", 3))
    return table


def _table(*columns: str) -> "Table":
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="dim")
    for number, name in enumerate(columns):
        table.add_column(name, justify="right" if number else "left")
    return table


def _notes(tuned: "Tuned") -> Iterator[str]:
    if tuned.chosen.served < tuned.target:
        yield f"nothing that was tried serves {tuned.target:.0%}: the most that is served was looked for"
    if tuned.is_changed:
        yield "difference: in brackets, 95 of 100 draws of the sessions; the full history costs 1"
        if tuned.after.sessions < FEW:
            yield f"it is of {tuned.after.sessions} sessions only: others may differ"


def _verdict(tuned: "Tuned") -> str:
    if not tuned.is_changed:
        return "nothing that was tried beats the defaults where it counts: keep them"
    if tuned.is_better:
        return "the chosen settings are better on sessions that they were not chosen on, by more than chance:"
    too_little = tuned.cost.high is not None and tuned.cost.high < 0
    why = f"serve too little, {_percent(tuned.after.served)}" if too_little else "are not better by more than chance"
    return (
        f"on sessions that they were not chosen on, the chosen settings {why}: keep the defaults "
        "(--force writes them all the same):"
    )


def _half(half: "Half") -> str:
    from thresher.render.words import plural

    sessions, projects = plural(len(half.sessions), "session"), plural(half.projects, "project")
    return f"{sessions} of {projects} ({plural(half.calls, 'call')})"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _between(one: "Difference", factor: float, unit: str, places: int) -> str:
    def told(value: float) -> str:
        return f"{factor * value:+.{places}f}".replace("-", "−")

    ends = "" if one.low is None or one.high is None else f" ({told(one.low)} to {told(one.high)})"
    return f"{told(one.value)}{unit}{ends}"


# For programs


def _value(tuned: "Tuned", prices: str) -> dict[str, Any]:
    """All of it; the names are stable for other programs."""
    from msgspec import to_builtins

    def told(tune: "Trial", report: "Trial") -> dict[str, Any]:
        figures = ("served", "tokens", "cost", "cost_with_refetch", "lost", "sessions")
        sides = {"tune": tune, "report": report}
        return {"settings": tune.settings} | {
            side: {name: getattr(one, name) for name in figures} for side, one in sides.items()
        }

    return {
        "definition": tuned.after.definition,
        "prices": prices,
        "target": tuned.target,
        "split": to_builtins(tuned.split),
        "defaults": told(tuned.defaults, tuned.before),
        "chosen": told(tuned.chosen, tuned.after),
        "difference": {"cost_with_refetch": to_builtins(tuned.cost), "served": to_builtins(tuned.served)},
        "better": tuned.is_better,
        "trials": tuned.trials,
        "reused": tuned.reused,
        "log": tuned.log,
        "failures": to_builtins(tuned.failures),
    }
