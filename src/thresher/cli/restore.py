"""`thresher restore`: print the text that a placeholder replaced."""

from pathlib import Path

import click

from thresher.budget import restore
from thresher.cli.common import print_content, print_output, write_output_file
from thresher.cli.options import json_option, output_option


@click.command("restore")
@click.argument("part_id")
@output_option
@json_option
def restore_command(part_id: str, output: Path | None, as_json: bool) -> None:
    """Print the text behind a placeholder.

    PART_ID is the id in the placeholder, such as t1:0123456789abcdef, or its first eight digits. The output equals
    the removed text, byte for byte.

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
        print_content(text)
