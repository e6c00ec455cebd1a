"""`thresher recall`: excerpts of one past session that answer a question."""

import os
import sys
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

import click

from thresher.cli.common import print_result, program_name
from thresher.cli.options import NameChoice, json_option, no_sync_option, option, reveal_option, source_options
from thresher.cli.sources import SessionSources, check_reference
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
@option("--budget -b TOKENS", "Maximum size of all excerpts: 2000, 4k.", default="2k")
@option("--model -m NAME", "Let this model, for example qwen3, answer from the excerpts, with citations.")
@option("--url URL", "Server of the model: http://localhost:8000/v1. Default: the vendor's own server.")
@option(
    "--api API",
    "API of the server: openai (any server with chat completions) or anthropic.",
    type=NameChoice([*DEFAULT_ADDRESSES]),
    default="openai",
)
@no_sync_option
@reveal_option
@source_options
@json_option
def recall_command(
    session: str,
    question: tuple[str, ...],
    budget: str,
    model: str | None,
    url: str | None,
    api: "EndpointApi",
    no_sync: bool,
    reveal: bool,
    sources: SessionSources,
    as_json: bool,
) -> None:
    """Ask one past session a question.

    SESSION is the start of a session id. Prints the excerpts that match QUESTION best, with the session file and line
    numbers; this needs no model. With --model, a model answers from the excerpts. Set the API key in OPENAI_API_KEY or
    ANTHROPIC_API_KEY.

    Exits 1 if nothing in the session matches.

    \b
    Examples:
      thresher recall 0f3c9a1e why did the receipts not add up
      thresher recall 0f3c9a1e "which migration broke" --budget 4k --json
      thresher recall 0f3c9a1e why --model qwen3 --url http://localhost:8000/v1
    """
    from thresher.budget.settings import parse_token_count
    from thresher.render.memory import recall_lines, wrap_lines_in_tags
    from thresher.render.memory_values import recall_value
    from thresher.summarize import SummaryError

    check_reference(session)
    if Path(session).is_file():
        ids = f"`thresher sessions {quote(session)}` lists the ids in the file, and --source {quote(session)} reads it"
        raise OptionError(f"`recall` takes the start of a session id, not a file: {ids}")
    endpoint = _make_endpoint(model, url, api)
    max_tokens = parse_token_count(budget)
    memory = sources.open_memory(sync=not no_sync)
    try:
        result = memory.recall(session, " ".join(question), budget=max_tokens, reveal=reveal, endpoint=endpoint)
    except SummaryError as error:
        raise SummaryError(
            f"{error}. Check --model, --url and --api, or omit --model to print the excerpts only"
        ) from None
    lines = recall_lines(result, program=program_name())
    if not sys.stdout.isatty():
        lines = wrap_lines_in_tags(lines, [result.session.id])
    print_result(recall_value(result), lines, as_json=as_json)
    if not result.found:
        sys.exit(1)


def _make_endpoint(model: str | None, url: str | None, api: "EndpointApi") -> "Endpoint | None":
    from thresher.summarize import Endpoint
    from thresher.summarize.endpoint import KEY_VARIABLES

    if model is None:
        if url is not None:
            raise OptionError("--url needs a model: add --model NAME")
        return None
    if url is None and not os.environ.get(KEY_VARIABLES[api], "").strip():
        raise OptionError(
            f"{DEFAULT_ADDRESSES[api]} needs an API key: set {KEY_VARIABLES[api]}, or use another server with --url"
        )
    try:
        return Endpoint(url or DEFAULT_ADDRESSES[api], model, api=api)
    except OptionError as error:
        raise OptionError(f"{error}. Example: --model qwen3 --url http://localhost:8000/v1") from None
