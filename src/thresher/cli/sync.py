"""`thresher sync`: update the archive and the index from the files on disk."""

import sys

import click

from thresher.cli.common import exit_on_interrupt, print_result, progress_bar, warn
from thresher.cli.options import json_option, source_options
from thresher.cli.sources import SessionSources


@click.command("sync")
@source_options
@json_option
def sync_command(sources: SessionSources, as_json: bool) -> None:
    """Update the archive and the search index.

    Every search syncs first, but only for a few seconds. Use this command for the first, slow sync, for scheduled
    syncs, and to see the size of the archive. It skips unchanged files, and resumes after an interruption. Sessions
    stay in the archive when their files disappear; `thresher forget` removes them. Exits 1 if it cannot read a file.

    \b
    Examples:
      thresher sync
      thresher sync --source ~/old-laptop/.claude
      thresher sync --no-discover --source runs/ --json
    """
    from thresher.render.memory import sync_report_lines, sync_report_value

    memory = sources.open_memory()
    with exit_on_interrupt(), progress_bar("reading", percent=True) as progress:
        report = memory.sync(progress=progress, waiting=lambda: warn("waiting for another sync to finish"))
    for failure in report.failed:
        warn(f"thresher: {failure}")
    facts = (report, memory.sizes(), memory.left_out())
    print_result(sync_report_value(*facts), sync_report_lines(*facts), as_json=as_json)
    if report.failed:
        sys.exit(1)
