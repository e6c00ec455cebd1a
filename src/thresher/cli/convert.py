"""`thresher convert`: write a conversation as messages for an API."""

from pathlib import Path

import click
from msgspec import structs

from thresher.cli.common import print_json, print_output, warn, write_output_file
from thresher.cli.options import NameChoice, json_option, option, output_option, source_options, whole_option
from thresher.cli.sources import SessionSources
from thresher.dialects import emit_with_losses
from thresher.model.jsontext import dump_json
from thresher.transcripts import format_names

DIALECTS = format_names("wire")


@click.command("convert")
@click.argument("reference", metavar="SESSION")
@option("--to API", f"API to write for: {', '.join(DIALECTS)}.", required=True, type=NameChoice(DIALECTS))
@click.option(
    "--body/--list",
    default=None,
    help="Write a request body, or a list of messages. Default: the form of the input. If a list for "
    "this API has no place for the system prompt or the tools: a body.",
)
@whole_option
@output_option
@source_options
@json_option
def convert_command(
    reference: str,
    to: str,
    body: bool | None,
    whole: bool,
    output: Path | None,
    sources: SessionSources,
    as_json: bool,
) -> None:
    """Convert a session to messages for an API.

    SESSION is a file or the start of a session id. The input file is never changed. Standard error lists
    content that the target API cannot represent.

    \b
    Examples:
      thresher convert session.jsonl --to openai-chat
      thresher convert messages.json --to gemini --body -o request.json
      thresher convert 0f3c9a1e --to anthropic --whole --json
    """
    session = sources.find_session(reference)
    history = structs.replace(session.history, messages=tuple(session.messages())) if whole else session.history
    result = emit_with_losses(history, to, body=body)
    losses = [str(loss) for loss in result.losses]
    if output is not None:
        write_output_file(output, dump_json(result.value), session.file)
    if as_json:
        value = {"dialect": to, "value": None if output else result.value, "losses": losses}
        print_output(value | ({"output": str(output)} if output else {}))
    elif output is None:
        print_json(result.value)
    for loss in losses:
        warn(f"thresher: {loss}")
