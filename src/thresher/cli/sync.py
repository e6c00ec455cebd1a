"""`thresher sync`: memory brought up to date, and what it keeps."""

import sys
from pathlib import Path

import click

from thresher.cli.common import (
    exit_on_interrupt,
    json_option,
    print_lines,
    print_output,
    progress_bar,
    source_options,
    warn,
)


@click.command("sync")
@source_options
@json_option
def sync_command(sources: tuple[Path, ...], no_discover: bool, as_json: bool) -> None:
    """Read what is new in the sessions on this machine, and say what is kept.

    A search does this by itself first. What did not change is not opened, and a sync that was stopped goes on where it
    was. Sessions whose files are deleted later stay. Exits 1 where a file could not be read.

    \b
    Examples:
      thresher sync
      thresher sync --source ~/old-laptop/.claude
      thresher sync --no-discover --source runs/ --json
    """
    from thresher.memory import Memory
    from thresher.render.memory import sync_report_lines, sync_report_value

    memory = Memory(sources=sources, discover=not no_discover)
    with exit_on_interrupt(), progress_bar("reading", percent=True) as progress:
        report = memory.sync(progress=progress, waiting=lambda: warn("another sync is at work; waiting for it"))
    for failure in report.failed:
        warn(f"thresher: {failure}")
    if as_json:
        print_output(sync_report_value(report, memory.sizes(), memory.left_out()))
    else:
        print_lines(sync_report_lines(report, memory.sizes(), memory.left_out()))
    if report.failed:
        sys.exit(1)
