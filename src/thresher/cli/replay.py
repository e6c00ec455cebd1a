"""`thresher replay`: measure what policies keep, lose and cost on recorded sessions."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from thresher.cli.common import (
    check_writable,
    exit_on_interrupt,
    make_console,
    print_hint,
    print_output,
    print_renderables,
    progress_bar,
    warn,
    write_output_file,
)
from thresher.cli.options import (
    EXISTING_PATH,
    OUTPUT_FILE,
    NameChoice,
    WholeNumber,
    json_option,
    option,
    source_options,
)
from thresher.cli.sources import SessionSources
from thresher.errors import OptionError, ReadError

if TYPE_CHECKING:
    from thresher.replay.sweep_results import ReplayFailure, SweepResults

DEFAULT_POLICIES = ("auto", "newest-batched", "oracle-batched")
DEFAULT_BUDGETS = "18k,27k,36k,48k,64k,90k,128k,180k"
PRICE_TABLES = ("anthropic", "anthropic-1h", "openai", "gemini")
"""Names of the price lists. These names and `DEFAULT_BUDGETS` are copies, so that `--help` need not import
`thresher.replay`."""

prices_option = option(
    "--prices LIST",
    f"Token prices: {', '.join(PRICE_TABLES)} (1h: cache entries live one hour).",
    type=NameChoice(PRICE_TABLES),
    default=PRICE_TABLES[0],
)
jobs_option = option("--jobs -j N", "Processes to run. Default: one per processor.", type=WholeNumber(min=1))


@click.command("replay")
@click.argument("paths", nargs=-1, type=EXISTING_PATH)
@option(
    "--policy -p NAME",
    "Strategy to measure: a preset, a policy, another tool's rule (openhands), a control (recency), a function in a "
    "file (mine.py:keep_errors), or a group (presets, peers, controls, all). Repeatable. "
    f"Default: {', '.join(DEFAULT_POLICIES)}.",
    name="policies",
    multiple=True,
    default=DEFAULT_POLICIES,
    show_default=False,
)
@option(
    "--budget -b TOKENS",
    f"Maximum size of a request in tokens, or several with commas. Default: {DEFAULT_BUDGETS}.",
    name="budgets",
    multiple=True,
)
@prices_option
@option("--plot FILE", "Also draw the curves into this SVG file.", type=OUTPUT_FILE)
@jobs_option
@source_options
@json_option
def replay_command(
    paths: tuple[Path, ...],
    policies: tuple[str, ...],
    budgets: tuple[str, ...],
    prices: str,
    plot: Path | None,
    jobs: int | None,
    sources: SessionSources,
    as_json: bool,
) -> None:
    """Compare policies by replaying recorded sessions.

    Replays the sessions in PATHS (files or folders), or those on this machine, and calls no model. For each turn it
    checks whether the request still contained the earlier text that the turn used. Text that was missing adds the cost
    of fetching it again. An interrupted run resumes when you run the same command again.

    Exits 1 if a file cannot be read or a policy fails.

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
    from thresher.render.replay import build_replay_report, replay_report_tables
    from thresher.render.replay_export import replay_report_chart, replay_report_value

    files, named = sources.list_files(paths), [*paths, *sources.extra]
    if not files:
        where = ", ".join(f"`{path}`" for path in named) or "the folders of known agents on this machine"
        raise ReadError(f"no session files found in {where}. Pass other paths: `thresher replay PATH`")
    with exit_on_interrupt():
        results, missing = _run_sweep(files, policies, _parse_budgets(budgets), prices, jobs or os.cpu_count() or 1)
    has_failures = report_replay_failures(results.failures, named)
    report = build_replay_report(results, prices)
    if not report.overall.calls_with_references:
        raise ReadError(_nothing_measured_message(results))
    has_failures |= _report_bound_violations(results)
    if as_json:
        print_output(replay_report_value(report) | {"not_installed": missing})
    else:
        print_renderables(replay_report_tables(report, make_console().width))
        if missing:
            print_hint(f"skipped, not installed: {', '.join(missing)}")
    if plot is not None:  # after printing the figures, so that an error here does not lose them
        write_output_file(plot, replay_report_chart(report))
    if not as_json:
        drawn = f"chart written to {plot}" if plot is not None else "Draw the curves with --plot curves.svg."
        print_hint(drawn)
        print_hint("Compare more with `--policy presets --policy peers`.")
        print_hint("See what a policy does to one session: `thresher fit SESSION --policy NAME --budget TOKENS`.")
    if has_failures:
        sys.exit(1)


def _parse_budgets(budgets: Sequence[str]) -> Sequence[int]:
    from thresher.budget import parse_token_count
    from thresher.replay.strategies.registry import BUDGETS

    if not budgets:
        return BUDGETS
    parsed = sorted({parse_token_count(text) for group in budgets for text in group.split(",") if text.strip()})
    if not parsed or not parsed[0]:
        raise OptionError("--budget must be a number of tokens above 0, or several with commas: --budget 20k,40k,80k")
    return parsed


def _run_sweep(
    files: Sequence[Path], policies: Sequence[str], budgets: Sequence[int], prices: str, jobs: int
) -> tuple["SweepResults", list[str]]:
    """Replay the files; return the results, and the selected strategies whose packages are not installed."""
    from thresher.replay.strategies.registry import rates_for_price_list, select_strategies, takes_budget
    from thresher.replay.sweep import run_sweep
    from thresher.store import get_data_folder

    names, missing = select_strategies(policies)
    settings = [(name, budget) for name in names for budget in (budgets if takes_budget(name) else (None,))]
    rates = rates_for_price_list(prices)
    with progress_bar("replaying") as progress:
        results = run_sweep(files, settings, rates, jobs=jobs, progress=progress, resume=get_data_folder() / "replay")
    return results, missing


def _report_bound_violations(results: "SweepResults") -> bool:
    """Warn about strategies that serve more than the upper bound, which proves the measurement wrong."""
    from thresher.render.text import strip_control_codes
    from thresher.replay.scores import find_bound_violations
    from thresher.replay.strategies.registry import BASELINES

    violations = find_bound_violations(results.totals_by_setting, results.minimum_costs, BASELINES)
    for one in violations:
        name, session = strip_control_codes(one.setting.name), strip_control_codes(one.session)
        warn(
            f"thresher: {name} at {one.setting.budget} serves {one.served:.2%} of {session}, above the upper bound of "
            f"{one.max_served:.2%}: the measurement is wrong; please report this as a bug"
        )
    return bool(violations)


def _nothing_measured_message(results: "SweepResults") -> str:
    from thresher.render.text import plural
    from thresher.replay.sweep import MIN_RECORDED_CALLS

    shorter = f" ({results.short:,} {'is' if results.short == 1 else 'are'} shorter)" if results.short else ""
    return (
        f"nothing to measure in {plural(results.files, 'file')}: no recording of {MIN_RECORDED_CALLS} turns or more "
        f"refers to earlier text{shorter}. Pass longer sessions: `thresher replay PATH`"
    )


def report_replay_failures(failures: "Sequence[ReplayFailure]", named: Sequence[Path]) -> bool:
    """Print failures, and return True if there are any. Skip files of unknown format that the user did not name.

    A strategy that fails in the same way on several sessions is reported once.
    """
    from thresher.render.replay import replay_failure_texts

    reported = [failure for failure in failures if failure.kind != "format" or Path(failure.file) in named]
    for text in replay_failure_texts(reported):
        warn(f"thresher: {text}")
    return bool(reported)
