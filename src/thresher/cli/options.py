"""Options that several commands share."""

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import click

from thresher.cli.sources import SessionSources

DATE_EXAMPLES = "2026-03-01, today, or an age: 7d, 2w, 1y"

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, and nothing else, on standard output.")
reveal_option = click.option("--reveal", is_flag=True, help="Print keys, tokens and passwords unredacted.")
no_sync_option = click.option("--no-sync", is_flag=True, help="Skip the sync: use the archive as it is.")
project_option = click.option(
    "--project", default="", metavar="TEXT", help="Only sessions whose folder path contains this text."
)
output_option = click.option(
    "--output",
    "-o",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the result to this file instead of standard output.",
)
whole_option = click.option(
    "--whole", is_flag=True, help="Include everything since the start. Default: only since the last compaction."
)


def source_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add `--source` and `--no-discover`, and pass both to the command as one `SessionSources`."""

    @click.option(
        "--source",
        "extra",
        multiple=True,
        metavar="PATH",
        type=click.Path(exists=True, path_type=Path),
        help="Also read this file or folder. Repeatable.",
    )
    @click.option("--no-discover", is_flag=True, help="Skip the folders where agents on this machine keep sessions.")
    @wraps(command)
    def command_with_sources(*, extra: tuple[Path, ...], no_discover: bool, **options: Any) -> None:
        command(sources=SessionSources(extra, discover=not no_discover), **options)

    return command_with_sources
