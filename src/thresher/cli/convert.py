"""`thresher convert`: any conversation as messages for any API."""

from pathlib import Path

import click
from msgspec import structs

from thresher.cli.common import (
    find_session,
    json_option,
    print_json,
    print_output,
    source_options,
    warn,
    write_output_file,
)
from thresher.dialects import emit_with_losses
from thresher.model.jsontext import dump_json
from thresher.transcripts import format_names


@click.command("convert")
@click.argument("session")
@click.option("--to", "target", required=True, type=click.Choice(format_names("wire")), help="The API to write for.")
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="Write there, not to the screen.")
@click.option("--body/--list", default=None, help="A whole request body, or a plain list of messages.")
@click.option("--whole", is_flag=True, help="Everything since the start, not only since the last compaction.")
@source_options
@json_option
def convert_command(
    session: str,
    target: str,
    output: Path | None,
    body: bool | None,
    whole: bool,
    sources: tuple[Path, ...],
    no_discover: bool,
    as_json: bool,
) -> None:
    """Write SESSION (a file, or the start of an id) as messages for an API; say what it cannot hold.

    \b
    Examples:
      thresher convert session.jsonl --to openai-chat
      thresher convert messages.json --to gemini --body -o request.json
      thresher convert 0f3c9a1e --to anthropic --json
    """
    found = find_session(session, sources, no_discover=no_discover)
    history = found.history
    if whole:
        history = structs.replace(history, messages=tuple(found.messages()))
    result = emit_with_losses(history, target, body=body)
    value = {"dialect": target, "value": result.value, "losses": [str(loss) for loss in result.losses]}
    if output is not None:
        write_output_file(output, dump_json(result.value), found.file)
    elif not as_json:
        print_json(result.value)
    if as_json:
        print_output(value if output is None else value | {"value": None, "output": str(output)})
    for loss in result.losses:
        warn(f"thresher: {loss}")
