"""`thresher sync`: update the archive and the index from the files on disk."""

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import chain
from typing import TYPE_CHECKING, Any

import click

from thresher.cli.common import exit_on_interrupt, print_result, progress_bar, warn
from thresher.cli.options import json_option, source_options
from thresher.cli.sources import SessionSources

if TYPE_CHECKING:
    from thresher.memory import Memory
    from thresher.render.memory import StyledLine


@click.command("sync")
@source_options
@json_option
def sync_command(sources: SessionSources, as_json: bool) -> None:
    """Update the archive and the search index.

    Every search syncs first, but only for a few seconds. Use this command for the first, slow sync, for scheduled
    syncs, and to see the size of the archive. It skips unchanged files, and resumes after an interruption. Sessions
    stay in the archive when their files disappear; `thresher forget` removes them. With the extra `meaning`, it then
    builds the vectors for the search by meaning. Exits 1 if it cannot read a file.

    \b
    Examples:
      thresher sync
      thresher sync --source ~/old-laptop/.claude
      thresher sync --no-discover --source runs/ --json
    """
    from thresher.render.memory import sync_report_lines
    from thresher.render.memory_values import sync_report_value

    memory = sources.open_memory()
    with exit_on_interrupt(), progress_bar("reading", percent=True) as progress:
        report = memory.sync(
            progress=progress, waiting=lambda: warn("waiting for another sync to finish"), vectors=False
        )
    for failure in report.failed:
        warn(f"thresher: {failure}")
    facts = (report, memory.sizes(), memory.left_out())
    vectors, lines = _build_vectors(memory)
    print_result(
        sync_report_value(*facts) | {"vectors": vectors}, chain(sync_report_lines(*facts), lines), as_json=as_json
    )
    if report.failed:
        sys.exit(1)


def _build_vectors(memory: "Memory") -> "tuple[list[dict[str, Any]], Iterator[StyledLine]]":
    """Build the missing vectors; return their state as a JSON value and as lines."""
    from thresher.memory.meaning import has_meaning_extra
    from thresher.render.meaning import EXTRA_HINT, vector_status_lines, vector_status_value
    from thresher.render.memory import StyledLine

    if memory.meaning is None:
        hint = [] if has_meaning_extra() else [StyledLine(((EXTRA_HINT, "dim"),))]
        return [], iter(hint)
    with exit_on_interrupt(), ExitStack() as bars:
        reports = memory.build_vectors(progress=lambda model: bars.enter_context(progress_bar(f"vectors, {model}")))
    statuses = memory.meaning.status()
    return vector_status_value(statuses, reports), vector_status_lines(statuses, reports)
