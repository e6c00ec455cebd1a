"""`thresher recall`: what one past session says about a question."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from thresher.cli.common import bring_up_to_date, json_option, place_options, print_json, print_lines, program
from thresher.errors import OptionError

if TYPE_CHECKING:
    from thresher.summarise import Endpoint
    from thresher.summarise.endpoint import Api

ADDRESSES: "dict[Api, str]" = {"openai": "https://api.openai.com/v1", "anthropic": "https://api.anthropic.com"}


@click.command("recall")
@click.argument("session")
@click.argument("question", nargs=-1, required=True)
@click.option("--budget", "-b", default="2k", show_default=True, help="The most tokens of excerpts: 2000, 4k.")
@click.option("--model", "-m", help="Let this model answer from the excerpts, with citations.")
@click.option("--url", help="Where the model is: http://localhost:8000/v1. Default: the API's own address.")
@click.option(
    "--api", type=click.Choice([*ADDRESSES]), default="openai", show_default=True, help="How it is spoken to."
)
@click.option("--no-sync", is_flag=True, help="Do not look for new sessions and messages first.")
@click.option("--reveal", is_flag=True, help="Show keys, tokens and passwords as they are.")
@place_options
@json_option
def command(
    session: str,
    question: tuple[str, ...],
    budget: str,
    model: str | None,
    url: str | None,
    api: "Api",
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
    from thresher.budget.settings import tokens
    from thresher.memory import Memory
    from thresher.render.memory import marked, recalled_lines, recalled_value
    from thresher.summarise import SummaryError

    endpoint = _endpoint(model, url, api)
    most = tokens(budget)
    memory = Memory(sources=sources, discover=not no_discover)
    if not no_sync:
        bring_up_to_date(memory)
    try:
        recalled = memory.recall(session, " ".join(question), budget=most, reveal=reveal, endpoint=endpoint)
    except SummaryError as error:
        raise SummaryError(
            f"{error}; look at --model, --url and --api. Without --model no model is asked, and the excerpts are shown"
        ) from None
    if as_json:
        print_json(recalled_value(recalled))
    else:
        lines = recalled_lines(recalled, program=program())
        print_lines(lines if sys.stdout.isatty() else marked(lines, [recalled.session.id]))
    if not recalled.found:
        sys.exit(1)


def _endpoint(model: str | None, url: str | None, api: "Api") -> "Endpoint | None":
    from thresher.summarise import Endpoint
    from thresher.summarise.endpoint import KEYS

    if model is None:
        if url is not None:
            raise OptionError("--url says where a model is; say with --model which one, too")
        return None
    if url is None and not os.environ.get(KEYS[api], "").strip():
        raise OptionError(
            f"--model asks {ADDRESSES[api]}, which wants a key: set {KEYS[api]}, or name another server with --url"
        )
    try:
        return Endpoint(url or ADDRESSES[api], model, api=api)
    except OptionError as error:
        raise OptionError(f"{error}; an example: --model qwen3 --url http://localhost:8000/v1") from None
