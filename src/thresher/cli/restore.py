"""`thresher restore`: what a stand-in stands for."""

from pathlib import Path

import click

from thresher.budget import restore
from thresher.cli.common import json_option, print_output, write_output_file


@click.command("restore")
@click.argument("part_id")
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="Write there, not to the screen.")
@json_option
def restore_command(part_id: str, output: Path | None, as_json: bool) -> None:
    """Print the text that was left out under PART_ID (the id in a stand-in, or the start of it), byte for byte.

    \b
    Examples:
      thresher restore t1:0123456789abcdef
      thresher restore t1:0123456789abcdef -o output.log
      thresher restore t1:01234567 --json
    """
    text = restore(part_id)
    if output is not None:
        write_output_file(output, text, errors="surrogatepass")
    if as_json:
        print_output({"id": part_id, "text": None if output else text, "output": str(output) if output else None})
    elif output is None:
        click.echo(text.encode("utf-8", "surrogatepass"), nl=False)
