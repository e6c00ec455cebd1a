"""`thresher tune`: the settings that do best on one's own sessions, and whether they hold on others of them."""

import os
import shutil
import sys
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import click

from thresher.cli.common import (
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
from thresher.cli.replay import PRICE_TABLES, report_replay_failures
from thresher.errors import ConvertError, OptionError

if TYPE_CHECKING:
    from thresher.replay.tuning.search import TuningResult


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
@click.option(
    "--prices", type=click.Choice(PRICE_TABLES), default=PRICE_TABLES[0], show_default=True, help="What tokens cost."
)
@click.option("--jobs", "-j", type=click.IntRange(min=1), help="Processes. Default: one a processor.")
@click.option(
    "--output",
    "-o",
    type=click.Path(path_type=Path, dir_okay=False),
    default=Path("thresher.toml"),
    show_default=True,
    help="Where the settings are written, if they are better.",
)
@click.option(
    "--force",
    is_flag=True,
    help="Write them even if they are not better, and in place of a file, which is kept as .bak.",
)
@click.option(
    "--log",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Where each trial is logged. Default: the data folder.",
)
@source_options
@json_option
def tune_command(
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
    from thresher.budget import parse_token_count
    from thresher.replay.strategies.registry import rates_for_price_list
    from thresher.replay.tuning.search import tune
    from thresher.store import get_data_folder

    limit = None if budget is None else parse_token_count(budget)
    if limit == 0:
        raise OptionError("a budget is a number of tokens above 0: --budget 60k")
    _check_output(output, force=force)
    files = find_session_files(paths, sources, no_discover=no_discover)
    with exit_on_interrupt(), progress_bar("tuning") as progress:
        tuned = tune(
            files,
            rates_for_price_list(prices),
            folder=get_data_folder() / "tune",
            budget=limit,
            served=served / 100,
            trials=trials,
            jobs=jobs or os.cpu_count() or 1,
            log=log,
            progress=progress,
        )
    wrong = report_replay_failures(tuned.failures, [*paths, *sources])
    left = _report_result(tuned, prices, output, force=force, as_json=as_json)
    if wrong or left:
        sys.exit(1)


def _check_output(output: Path, *, force: bool) -> None:
    """Refuse a place that cannot be written before the search, not after it."""
    if not output.parent.is_dir():
        raise OptionError(f"`{output.parent}` is no folder: make it, or name another place with -o")
    there = output.exists()
    needed = [] if there and not force else [output.parent, *([output] if there else [])]
    if not all(os.access(one, os.W_OK) for one in needed):
        raise OptionError(f"`{output}` cannot be written: there is no right to; name another place with -o")
    if there and not force:
        from thresher.render.tune import existing_file_notice

        warn(f"thresher: {existing_file_notice(output)}")


def _report_result(tuned: "TuningResult", prices: str, output: Path, *, force: bool, as_json: bool) -> bool:
    """Say what was found and write it where it may be; whether a file that is there stood in the way.

    Whatever becomes of the file, what was found is printed: it may have taken hours.
    """
    from thresher.render.tune import file_kept_notice, file_unchanged_notice, file_written_notice, tune_toml, tune_value
    from thresher.replay.tuning.search import has_same_settings

    there = output.exists()
    same = tuned.is_changed and there and has_same_settings(output, tuned.chosen.settings)
    wanted = tuned.is_changed and not same and (tuned.is_better or force)
    written = wanted and (force or not there)
    text = tune_toml(tuned, prices)
    if not as_json:
        _print_result(tuned, text)
    kept, problem = _write_settings(output, text) if written else (None, None)
    if as_json:
        print_output(tune_value(tuned, prices) | {"written": str(output) if written and not problem else None})
    if problem is not None:
        raise problem
    if same:
        click.echo(file_unchanged_notice(output), err=as_json)
    elif written:
        click.echo(file_written_notice(tuned, output, kept), err=as_json)
    elif wanted:
        warn(f"thresher: {file_kept_notice(output)}")
    return wanted and not written


def _print_result(tuned: "TuningResult", text: str) -> None:
    from thresher.render.tune import tune_tables

    out = make_console()
    for piece in tune_tables(tuned):
        out.print(piece)
    if text:
        click.echo(f"\n{text}")  # not by the console: it would break lines that are there to be pasted


def _write_settings(output: Path, text: str) -> tuple[Path | None, ConvertError | None]:
    """Write it; where the file that was there is now, or what went wrong."""
    kept = None
    try:
        if output.exists():
            kept = _free_backup_path(output)
            shutil.copy2(output, kept)
        write_output_file(output, text)
    except OSError as error:
        return None, ConvertError(f"`{kept}` cannot be written: {error.strerror or error}; name another place with -o")
    except ConvertError as error:
        return kept, error
    return kept, None


def _free_backup_path(output: Path) -> Path:
    """A name to keep a file by: one that was kept before may be the only copy of what a person wrote."""
    names = (output.with_name(f"{output.name}.bak{number if number > 1 else ''}") for number in count(1))
    return next(name for name in names if not name.exists())
