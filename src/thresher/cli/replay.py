"""`thresher replay`: recorded sessions sent again by other policies; what was kept, lost, and what it cost."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from thresher.cli.common import (
    check_writable,
    exit_on_interrupt,
    find_session_files,
    json_option,
    make_console,
    print_output,
    progress_bar,
    source_options,
    warn,
    write_output_file,
)
from thresher.errors import OptionError, ReadError

if TYPE_CHECKING:
    from thresher.render.replay import ReplayReport
    from thresher.replay.sweep_results import ReplayFailure, SweepResults

DEFAULT_POLICIES = ("auto", "newest-batched", "oracle-batched")
DEFAULT_BUDGETS = "18k,27k,36k,48k,64k,90k,128k,180k"
PRICE_TABLES = ("anthropic", "anthropic-1h", "openai", "gemini")
"""Both as the measure has them, which help need not load."""


@click.command("replay")
@click.argument("paths", nargs=-1, type=click.Path(exists=True, path_type=Path))
@click.option(
    "--policy",
    "-p",
    "policies",
    multiple=True,
    default=DEFAULT_POLICIES,
    help="A preset, a policy, a rule of others, a control, a group of them (presets, peers, controls, all), or "
    f"path/to/policy.py:name; may be given several times. Default: {', '.join(DEFAULT_POLICIES)}.",
)
@click.option(
    "--budget",
    "-b",
    "budgets",
    multiple=True,
    help=f"Tokens that a request may have; several with commas. Default: {DEFAULT_BUDGETS}.",
)
@click.option(
    "--prices", type=click.Choice(PRICE_TABLES), default=PRICE_TABLES[0], show_default=True, help="What tokens cost."
)
@click.option("--plot", type=click.Path(path_type=Path, dir_okay=False), help="Draw the curves: an SVG.")
@click.option("--jobs", "-j", type=click.IntRange(min=1), help="Processes. Default: one a processor.")
@source_options
@json_option
def replay_command(
    paths: tuple[Path, ...],
    policies: tuple[str, ...],
    budgets: tuple[str, ...],
    prices: str,
    plot: Path | None,
    jobs: int | None,
    sources: tuple[Path, ...],
    no_discover: bool,
    as_json: bool,
) -> None:
    """Send recorded sessions again, by other policies: those in PATHS, or those on this machine.

    No model is asked. Each turn is checked for the earlier text that it used: was it still in the request? What was
    not is fetched and paid for. A run that was stopped goes on where it was when it is started again.

    \b
    Examples:
      thresher replay
      thresher replay ~/.claude/projects --policy auto --policy smart --plot a.svg
      thresher replay session.jsonl --policy presets --budget 20k,40k,80k
      thresher replay runs/ --policy mine.py:keep_errors --policy newest-batched
      thresher replay --policy all --prices openai --jobs 4 --json
    """
    if plot is not None:
        check_writable(plot)
    from thresher.render.replay import build_replay_report
    from thresher.render.replay_export import replay_report_chart

    files = find_session_files(paths, sources, no_discover=no_discover)
    if not files:
        raise ReadError(_no_files_message([*paths, *sources]))
    with exit_on_interrupt():
        results, missing = _run_sweep(files, policies, _parse_budgets(budgets), prices, jobs or os.cpu_count() or 1)
    wrong = report_replay_failures(results.failures, [*paths, *sources])
    report = build_replay_report(results, prices)
    if not report.overall.calls_with_references:
        raise ReadError(_nothing_measured_message(results))
    wrong = _report_bound_violations(results) or wrong
    if as_json:
        from thresher.render.replay_export import replay_report_value

        print_output(replay_report_value(report) | {"not_installed": missing})
    else:
        _print_report(report, missing)
    # What was found is said before it is drawn: a picture that fails takes nothing with it.
    if plot is not None:
        write_output_file(plot, replay_report_chart(report))
    if not as_json:
        _print_next_steps(plot)
    if wrong:
        sys.exit(1)


def _parse_budgets(budgets: Sequence[str]) -> Sequence[int]:
    """The budgets, each once, the smallest first."""
    from thresher.budget import parse_token_count
    from thresher.replay.strategies.registry import BUDGETS as EVERY

    if not budgets:
        return EVERY
    found = sorted({parse_token_count(one) for text in budgets for one in text.split(",") if one.strip()})
    if not found or not found[0]:
        raise OptionError("a budget is a number of tokens above 0, several with commas: --budget 20k,40k,80k")
    return found


def _run_sweep(
    files: Sequence[Path], policies: Sequence[str], budgets: Sequence[int], prices: str, jobs: int
) -> tuple["SweepResults", list[str]]:
    """What was found, and the names of what a group would have had if it were installed."""
    from thresher.replay.strategies.registry import rates_for_price_list, select_strategies, takes_budget
    from thresher.replay.sweep import run_sweep
    from thresher.store import get_data_folder

    names, missing = select_strategies(policies)
    ways = [(name, budget) for name in names for budget in (budgets if takes_budget(name) else (None,))]
    rates = rates_for_price_list(prices)
    with progress_bar("replaying") as progress:
        results = run_sweep(files, ways, rates, jobs=jobs, progress=progress, resume=get_data_folder() / "replay")
    return results, missing


def _report_bound_violations(results: "SweepResults") -> bool:
    """Say where somebody serves more than can be: then the measure is wrong, and no figure of it is to be trusted."""
    from thresher.render.text import strip_control_codes
    from thresher.replay.scores import find_bound_violations
    from thresher.replay.strategies.registry import BASELINES

    found = find_bound_violations(results.totals_by_setting, results.minimum_costs, BASELINES)
    for one in found:
        name, session = strip_control_codes(one.setting.name), strip_control_codes(one.session)
        warn(
            f"thresher: {name} at {one.setting.budget} serves {one.served:.2%} of {session}, and the bound is "
            f"{one.max_served:.2%}: the measure is wrong; please report it"
        )
    return bool(found)


def _nothing_measured_message(results: "SweepResults") -> str:
    from thresher.render.text import plural
    from thresher.replay.sweep import MIN_RECORDED_CALLS

    shorter = f" ({results.short:,} {'is' if results.short == 1 else 'are'} shorter)" if results.short else ""
    return (
        f"nothing to measure in {plural(results.files, 'file')}: no recording of {MIN_RECORDED_CALLS} turns "
        "or more used earlier "
        f"text{shorter}; name others: `thresher replay PATH…`"
    )


def _no_files_message(places: Sequence[Path]) -> str:
    where = ", ".join(f"`{place}`" for place in places) or "the folders of known agents on this machine"
    return f"no session files found in {where}; name others: `thresher replay PATH…`"


def _print_report(report: "ReplayReport", missing: Sequence[str]) -> None:
    from thresher.render.replay import replay_report_tables

    out = make_console()
    for piece in replay_report_tables(report, out.width):
        out.print(piece)
    if missing:
        out.print(f"not installed, left out: {', '.join(missing)}", style="dim", markup=False)


def _print_next_steps(plot: Path | None) -> None:
    """What may be done next."""
    out = make_console()
    if plot is not None:
        out.print(f"drawn in {plot}", style="dim", markup=False)
    else:
        out.print("`--plot curves.svg` draws it; `--policy presets --policy peers` compares more", style="dim")
    out.print("`thresher fit SESSION --policy P --budget B` shows what a policy does to one of them", style="dim")


def report_replay_failures(failures: "Sequence[ReplayFailure]", named: Sequence[Path]) -> bool:
    """Say what could not be done; a file in no known format was perhaps only met in a folder."""
    from thresher.render.replay import replay_failure_text

    told = [failure for failure in failures if failure.kind != "format" or Path(failure.file) in named]
    for text in dict.fromkeys(map(replay_failure_text, told)):
        warn(f"thresher: {text}")
    return bool(told)
