"""`thresher fit`: trim a conversation to a token budget."""

import warnings
from pathlib import Path
from typing import Any

import click
from msgspec import structs

from thresher.budget import PRESETS, FitResult, fit_with_plan, plan
from thresher.cli.common import print_hint, print_output, print_renderables, print_text, warn, write_output_file
from thresher.cli.options import NameChoice, json_option, option, output_option, source_options, whole_option
from thresher.cli.sources import SessionSources, session_dialect
from thresher.dialects import emit_with_losses
from thresher.edits import Plan
from thresher.model import Session
from thresher.model.jsontext import dump_json
from thresher.render.text import escape_json_controls
from thresher.transcripts import TranscriptFormat, find_format, format_names

TEXT_TARGET = "text"
DIALECTS = format_names("wire")


@click.command("fit")
@click.argument("reference", metavar="SESSION", required=False)
@option(
    "--policy -p NAME",
    f"Rules for what to remove: a preset ({', '.join(PRESETS)}) or a single policy. "
    "Default: auto with a budget (it changes nothing that fits), else smart.",
)
@option("--budget -b TOKENS", "Maximum size of the result: 60000, 60k, 1.5M.")
@option(
    "--model -m NAME",
    "Model that gets the result. Without --budget, the budget is 70 % of this model's context window.",
)
@option(
    "--to API",
    f"Write messages for this API: {', '.join(DIALECTS)}; or text for a person.",
    name="target",
    type=NameChoice([*DIALECTS, TEXT_TARGET]),
)
@output_option
@option("--explain", "With --to: list the edits and their reasons on standard error.")
@option(
    "--hook",
    "Answer the requests of an agent's plug-in, as JSON lines on standard input and output. Only --budget and --policy "
    "apply. `thresher install AGENT --with plugin` sets it up.",
)
@whole_option
@source_options
@json_option
def fit_command(
    reference: str | None,
    policy: str | None,
    budget: str | None,
    model: str | None,
    target: str | None,
    output: Path | None,
    explain: bool,
    hook: bool,
    whole: bool,
    sources: SessionSources,
    as_json: bool,
) -> None:
    """Trim a session to a token budget.

    SESSION is a file or the start of a session id. Without --to and -o, print the plan and write nothing. The input
    file is never changed, and `thresher restore` prints any removed text. Exits 1 if the budget cannot be met.

    \b
    Examples:
      thresher fit session.jsonl                          preview `smart`
      thresher fit 0f3c9a1e --policy moderate --budget 60k
      thresher fit messages.json -b 20k -o smaller.json   for the same API
      thresher fit 0f3c9a1e --to text | pbcopy            for a person to read
      THRESHER_EXCLUDE_TOOLS=Edit,Write thresher fit session.jsonl
    """
    if hook:
        _run_hook(policy, budget)
        return
    if reference is None:
        raise click.UsageError("Missing argument 'SESSION'.")
    session = sources.find_session(reference)
    history = structs.replace(session.history, messages=tuple(session.messages())) if whole else session.history
    target = target or (_default_target(session) if output is not None else None)
    dialect = None if target == TEXT_TARGET else target or session_dialect(session)
    options: dict[str, Any] = {"policy": policy, "budget": budget, "model": model, "dialect": dialect}
    result, value = None, None
    if target is not None:
        with warnings.catch_warnings():  # the notes of the plan report an unwritable store
            warnings.simplefilter("ignore")
            result = fit_with_plan(history, **options)
        value = _convert_result(result, target)
    fit_plan = plan(history, **options) if result is None else result.plan
    if output is not None:
        write_output_file(output, value if isinstance(value, str) else dump_json(value), session.file)
    if as_json:
        print_output(fit_plan.to_dict() | {"file": session.file, "dialect": target, "value": None if output else value})
    elif target is None or output is not None:
        _print_plan(fit_plan, output)
    else:
        if explain:
            warn(fit_plan.explain())
        print_text(value if isinstance(value, str) else escape_json_controls(dump_json(value)))


def _run_hook(policy: str | None, budget: str | None) -> None:
    from thresher.serve.hook.fit_hook import run_fit_hook
    from thresher.serve.proxy.fit_options import FitOptions

    run_fit_hook(FitOptions(policy=policy or "auto", budget=budget))


def _default_target(session: Session) -> str:
    """Return the dialect to write: the input's own, or for a transcript the dialect of the agent's API."""
    source_format = find_format(session.agent)
    return source_format.wire if isinstance(source_format, TranscriptFormat) else source_format.name


def _convert_result(result: FitResult, target: str) -> Any:
    if target == TEXT_TARGET:
        from thresher.render.plain_text import format_plain_text

        return format_plain_text(result.history)
    converted = emit_with_losses(result.history, target)
    for loss in converted.losses:
        warn(f"thresher: {loss}")
    return converted.value


def _print_plan(fit_plan: Plan, output: Path | None) -> None:
    from thresher.render.plan import plan_table

    print_renderables(plan_table(fit_plan))
    if output is not None:
        print_hint(f"written to {output}")
    elif fit_plan.edits:
        print_hint("Nothing is written yet: -o FILE writes the result, --to API prints it.")
