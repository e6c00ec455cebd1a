"""`thresher fit`: a conversation made to fit a budget, and what that does to it."""

from pathlib import Path
from typing import Any

import click
from msgspec import structs

from thresher.budget import PRESETS, FitResult, fit_with_plan, plan
from thresher.cli.common import (
    find_session,
    json_option,
    make_console,
    print_output,
    session_dialect,
    source_options,
    warn,
    write_output_file,
)
from thresher.dialects import emit_with_losses
from thresher.edits import Plan
from thresher.model import History, Session
from thresher.model.jsontext import dump_json
from thresher.transcripts import TranscriptFormat, find_format, format_names

TEXT_TARGET = "text"


@click.command("fit")
@click.argument("session")
@click.option("--policy", "-p", help=f"A preset ({', '.join(PRESETS)}) or a policy. Default: smart.")
@click.option("--budget", "-b", help="The most tokens it may have: 60000, 60k, 1.5M.")
@click.option("--model", "-m", help="For which model; without a budget, 70 % of its window.")
@click.option(
    "--to", "target", type=click.Choice([*format_names("wire"), TEXT_TARGET]), help="The API to write for, or text."
)
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="Write there, not to the screen.")
@click.option("--explain", is_flag=True, help="With --to: say on standard error what is done, and why.")
@click.option("--whole", is_flag=True, help="Everything since the start, not only since the last compaction.")
@source_options
@json_option
def fit_command(
    session: str,
    policy: str | None,
    budget: str | None,
    model: str | None,
    target: str | None,
    output: Path | None,
    explain: bool,
    whole: bool,
    sources: tuple[Path, ...],
    no_discover: bool,
    as_json: bool,
) -> None:
    """Make SESSION (a file, or the start of an id) fit; what is left out can be had back with `thresher restore`.

    Without --to and -o it only says what would be done. The file that is read is never written to.

    \b
    Examples:
      thresher fit session.jsonl                          what `smart` would do
      thresher fit 0f3c9a1e --policy moderate --budget 60k --explain
      thresher fit messages.json -b 20k -o smaller.json   the same API's messages
      thresher fit 0f3c9a1e --to text | pbcopy            for a person to read
      THRESHER_EXCLUDE_TOOLS=Edit,Write thresher fit session.jsonl
    """
    found = find_session(session, sources, no_discover=no_discover)
    history = structs.replace(found.history, messages=tuple(found.messages())) if whole else found.history
    target = target or (_default_target(found) if output is not None else None)
    dialect = None if target == TEXT_TARGET else target or session_dialect(found)
    options: dict[str, Any] = {"policy": policy, "budget": budget, "model": model, "dialect": dialect}
    if target is None:
        made, value = plan(history, **options), None
    else:
        result = _fit_quietly(history, options)
        made, value = result.plan, _convert_result(result, target)
    if output is not None:
        write_output_file(output, value if isinstance(value, str) else dump_json(value), found.file)
    if as_json:
        print_output(made.to_dict() | {"file": found.file, "dialect": target, "value": None if output else value})
        return
    if target is None or output is not None:
        _print_plan(made, output)
    else:
        if explain:
            warn(made.explain())
        click.echo(value if isinstance(value, str) else dump_json(value).encode("utf-8", "replace"))


def _fit_quietly(history: History, options: dict[str, Any]) -> FitResult:
    """The history made to fit; what a store that cannot be written means stands in the plan's notes."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return fit_with_plan(history, **options)


def _default_target(session: Session) -> str:
    """What to write when nothing was said: a wire format as it came; a transcript as its own vendor's API has it."""
    found = find_format(session.agent)
    return found.wire if isinstance(found, TranscriptFormat) else found.name


def _convert_result(result: FitResult, target: str | None) -> Any:
    if target is None:
        return None
    if target == TEXT_TARGET:
        from thresher.render.plain_text import format_plain_text

        return format_plain_text(result.history)
    written = emit_with_losses(result.history, target)
    for loss in written.losses:
        warn(f"thresher: {loss}")
    return written.value


def _print_plan(made: Plan, output: Path | None) -> None:
    from thresher.render.plan import plan_table

    out = make_console()
    for piece in plan_table(made):
        out.print(piece)
    if output is not None:
        out.print(f"written to {output}", style="dim")
    elif made.edits:
        out.print("write it with -o FILE, or to the screen with --to FORMAT", style="dim")
