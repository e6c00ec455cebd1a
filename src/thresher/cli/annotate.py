"""`thresher annotate`: one plain-language line per piece of work, written by a configured model."""

import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from thresher.cli.common import exit_on_interrupt, print_lines, print_result, progress_bar, warn
from thresher.cli.options import json_option, no_sync_option, option, project_option, source_options
from thresher.cli.sources import SessionSources
from thresher.errors import OptionError

if TYPE_CHECKING:
    from thresher.memory.annotate import AnnotationPlan


@click.command("annotate")
@project_option
@option("--dry-run", "Print the number of requests and their price, and send nothing.")
@option("--yes -y", "Send without asking.")
@no_sync_option
@source_options
@json_option
def annotate_command(
    project: str, dry_run: bool, yes: bool, no_sync: bool, sources: SessionSources, as_json: bool
) -> None:
    """Let a model describe past sessions for the search.

    The model reads what you and the agent said, with secrets redacted, and writes one line in everyday words per piece
    of work. Searches match these lines, too. Set `url` and `model` in the table [annotate] of `thresher.toml` in the
    data folder, or THRESHER_ANNOTATE_URL and THRESHER_ANNOTATE_MODEL. Nothing is sent before you confirm the price.

    A run stops at the spending cap (`max_cost`, $1 by default, for all runs), and the next one resumes. Exits 1 if
    lines are missing at the end.

    \b
    Examples:
      thresher annotate --dry-run
      thresher annotate --project shop --yes
    """
    from thresher.render.annotations import annotation_plan_line, annotation_report_line, annotation_value

    memory = sources.open_memory(sync=not no_sync)
    annotator = memory.annotator()
    plan = annotator.plan(datetime.now(UTC), project=project)
    if dry_run:
        print_result(annotation_value(plan, None), [annotation_plan_line(plan)], as_json=as_json)
        return
    if plan.pieces and not yes:
        _confirm(plan, as_json=as_json)
    with exit_on_interrupt(), progress_bar("annotating") as progress:
        report = annotator.run(plan, progress)
    print_result(annotation_value(plan, report), [annotation_report_line(report)], as_json=as_json)
    if report.remaining:
        sys.exit(1)


def _confirm(plan: "AnnotationPlan", *, as_json: bool) -> None:
    """Ask whether to send the requests; exit if not."""
    from thresher.render.annotations import annotation_plan_line

    if as_json or not sys.stdin.isatty():
        line = annotation_plan_line(plan).text
        raise OptionError(f"{line}. Add --yes to send them, or --dry-run to print this only")
    print_lines([annotation_plan_line(plan)])
    if not click.confirm("Send them?"):
        warn("nothing sent")
        sys.exit(1)
