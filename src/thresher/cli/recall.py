"""`thresher recall`: what one past session says about a question."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from thresher.cli.common import json_option, print_lines, print_output, program_name, source_options, sync_before_search
from thresher.errors import OptionError

if TYPE_CHECKING:
    from thresher.summarize import Endpoint
    from thresher.summarize.endpoint import EndpointApi

DEFAULT_ADDRESSES: "dict[EndpointApi, str]" = {
    "openai": "https://api.openai.com/v1",
    "anthropic": "https://api.anthropic.com",
}


@click.command("recall")
@click.argument("session")
@click.argument("question", nargs=-1, required=True)
@click.option("--budget", "-b", default="2k", show_default=True, help="The most tokens of excerpts: 2000, 4k.")
@click.option("--model", "-m", help="Let this model answer from the excerpts, with citations.")
@click.option("--url", help="Where the model is: http://localhost:8000/v1. Default: the API's own address.")
@click.option(
    "--api", type=click.Choice([*DEFAULT_ADDRESSES]), default="openai", show_default=True, help="How it is spoken to."
)
@click.option("--no-sync", is_flag=True, help="Do not look for new sessions and messages first.")
@click.option("--reveal", is_flag=True, help="Show keys, tokens and passwords as they are.")
@source_options
@json_option
def recall_session_command(
    session: str,
    question: tuple[str, ...],
    budget: str,
    model: str | None,
    url: str | None,
    api: "EndpointApi",
    no_sync: bool,
    reveal: bool,
    sources: tuple[Path, ...],
    no_discover: bool,
    as_json: bool,
) -> None:
    """Show the excerpts of SESSION (the start of an id) that bear on QUESTION, each with its file and line.

    No model is needed. With --model one answers from the excerpts and cites them; its key is read from
    OPENAI_API_KEY or ANTHROPIC_API_KEY.

    Exits 0 where the session speaks of it, 1 where it does not, 2 on wrong use.

    \b
    Examples:
      thresher recall 0f3c9a1e why did the receipts not add up
      thresher recall 0f3c9a1e "which migration broke" --budget 4k --json
      thresher recall 0f3c9a1e why --model qwen3 --url http://localhost:8000/v1
    """
    from thresher.budget.settings import parse_token_count
    from thresher.memory import Memory
    from thresher.render.memory import recall_lines, recall_value, wrap_lines_in_tags
    from thresher.summarize import SummaryError

    endpoint = _endpoint(model, url, api)
    most = parse_token_count(budget)
    memory = Memory(sources=sources, discover=not no_discover)
    if not no_sync:
        sync_before_search(memory)
    try:
        recalled = memory.recall(session, " ".join(question), budget=most, reveal=reveal, endpoint=endpoint)
    except SummaryError as error:
        raise SummaryError(
            f"{error}; look at --model, --url and --api. Without --model no model is asked, and the excerpts are shown"
        ) from None
    if as_json:
        print_output(recall_value(recalled))
    else:
        lines = recall_lines(recalled, program=program_name())
        print_lines(lines if sys.stdout.isatty() else wrap_lines_in_tags(lines, [recalled.session.id]))
    if not recalled.found:
        sys.exit(1)


def _endpoint(model: str | None, url: str | None, api: "EndpointApi") -> "Endpoint | None":
    from thresher.summarize import Endpoint
    from thresher.summarize.endpoint import KEY_VARIABLES

    if model is None:
        if url is not None:
            raise OptionError("--url says where a model is; say with --model which one, too")
        return None
    if url is None and not os.environ.get(KEY_VARIABLES[api], "").strip():
        raise OptionError(
            f"--model asks {DEFAULT_ADDRESSES[api]}, which wants a key: set {KEY_VARIABLES[api]}, or name another "
            "server with --url"
        )
    try:
        return Endpoint(url or DEFAULT_ADDRESSES[api], model, api=api)
    except OptionError as error:
        raise OptionError(f"{error}; an example: --model qwen3 --url http://localhost:8000/v1") from None
