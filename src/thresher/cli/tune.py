"""`thresher tune`: find settings on recorded sessions, and test them on others."""

import os
import shutil
import sys
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import click

from thresher.cli.common import (
    check_writable,
    exit_on_interrupt,
    print_output,
    print_renderables,
    print_text,
    progress_bar,
    warn,
    write_output_file,
)
from thresher.cli.options import EXISTING_PATH, OUTPUT_FILE, WholeNumber, json_option, option, source_options
from thresher.cli.replay import jobs_option, prices_option, report_replay_failures
from thresher.cli.sources import SessionSources
from thresher.errors import ConvertError, OptionError

if TYPE_CHECKING:
    from thresher.replay.tuning.search import TuningResult


@click.command("tune")
@click.argument("paths", nargs=-1, type=EXISTING_PATH)
@option("--budget -b TOKENS", "Maximum size of a request: 120k. Default: the search chooses a budget as well.")
@option(
    "--served PERCENT",
    "Minimum share of served turns. A turn is served if its request contains all the earlier text that it uses.",
    type=click.FloatRange(0, 100),
    default=95,
)
@option("--trials N", "Maximum number of configurations to try.", type=WholeNumber(min=1), default=60)
@prices_option
@jobs_option
@option(
    "--output -o FILE",
    "Write the settings to this file if they are better than the defaults.",
    type=OUTPUT_FILE,
    default=Path("thresher.toml"),
)
@option("--force", "Write the settings even if they are not better; back up an existing file as .bak.")
@option("--log FILE", "Log of all trials. Default: a file in the folder `tune` of Thresher's data.", type=OUTPUT_FILE)
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
    sources: SessionSources,
    as_json: bool,
) -> None:
    """Find the best settings of `auto` for your sessions.

    Replays the sessions in PATHS (files or folders), or those on this machine, with different settings of the
    `auto` preset. The best settings are the cheapest ones that serve enough turns. The search chooses them on some
    projects and tests them on the others. If they are not better there, it writes nothing. An interrupted run resumes
    when you run the same command again.

    Exits 1 if it cannot read a file, or if it finds better settings but the
    output file exists.

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

    max_tokens = None if budget is None else parse_token_count(budget)
    if max_tokens == 0:
        raise OptionError("--budget must be a number of tokens above 0, for example --budget 60k")
    _check_output(output, force=force)
    with exit_on_interrupt(), progress_bar("tuning") as progress:
        tuned = tune(
            sources.list_files(paths),
            rates_for_price_list(prices),
            folder=get_data_folder() / "tune",
            budget=max_tokens,
            served=served / 100,
            trials=trials,
            jobs=jobs or os.cpu_count() or 1,
            log=log,
            progress=progress,
        )
    has_failures = report_replay_failures(tuned.failures, [*paths, *sources.extra])
    is_blocked = _report_result(tuned, prices, output, force=force, as_json=as_json)
    if has_failures or is_blocked:
        sys.exit(1)


def _check_output(output: Path, *, force: bool) -> None:
    """Warn if the output file exists without --force; raise an error if it cannot be written."""
    if output.exists() and not force:
        from thresher.render.tune import existing_file_notice

        warn(f"thresher: {existing_file_notice(output)}")
        return
    check_writable(output)
    if output.exists():
        check_writable(_free_backup_path(output))


def _report_result(tuned: "TuningResult", prices: str, output: Path, *, force: bool, as_json: bool) -> bool:
    """Print the result and write the settings. Return True if an existing file prevents writing.

    If writing fails, the result is printed before the error is raised, because the search may have taken hours.
    """
    from thresher.render import tune as render
    from thresher.replay.tuning.search import has_same_settings

    exists = output.exists()
    is_same = tuned.is_changed and exists and has_same_settings(output, tuned.chosen.settings)
    is_wanted = tuned.is_changed and not is_same and (tuned.is_better or force)
    is_written = is_wanted and (force or not exists)
    toml = render.tune_toml(tuned, prices)
    if not as_json:
        print_renderables(render.tune_tables(tuned))
        if toml:
            print_text(f"\n{toml}")  # without the console, which would wrap lines that users paste
    backup, error = _write_settings(output, toml) if is_written else (None, None)
    if as_json:
        print_output(render.tune_value(tuned, prices) | {"written": str(output) if is_written and not error else None})
    if error is not None:
        raise error
    if is_same:
        print_text(render.file_unchanged_notice(output), to_stderr=as_json)
    elif is_written:
        print_text(render.file_written_notice(tuned, output, backup), to_stderr=as_json)
    elif is_wanted:
        warn(f"thresher: {render.file_kept_notice(output)}")
    return is_wanted and not is_written


def _write_settings(output: Path, toml: str) -> tuple[Path | None, ConvertError | None]:
    """Write the settings; return the backup of the file they replace, and an error if writing failed."""
    backup = None
    try:
        if output.exists():
            backup = _free_backup_path(output)
            shutil.copy2(output, backup)
        write_output_file(output, toml)
    except OSError as error:
        return None, ConvertError(f"cannot write `{backup}`: {error.strerror or error}; choose another path with -o")
    except ConvertError as error:
        return backup, error
    return backup, None


def _free_backup_path(output: Path) -> Path:
    """Return an unused backup path: an older backup may be the only copy of hand-written settings."""
    names = (output.with_name(f"{output.name}.bak{number if number > 1 else ''}") for number in count(1))
    return next(name for name in names if not name.exists())
