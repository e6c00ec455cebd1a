"""`thresher check`: whether an API would take a conversation, and if not, where it breaks which rule."""

from pathlib import Path
from typing import Any

import click

from thresher.cli.common import find_session, json_option, own_dialect, place_options, print_json, program
from thresher.edits import Violation, check
from thresher.formats import format_names

SHOWN = 20


@click.command("check")
@click.argument("session")
@click.option(
    "--dialect", "-d", type=click.Choice(format_names("wire")), help="Whose rules; by default its own, else all."
)
@place_options
@json_option
def command(session: str, dialect: str | None, sources: tuple[Path, ...], no_discover: bool, as_json: bool) -> None:
    """Say whether SESSION (a file, or the start of an id) is a legal conversation; exit 1 if it is not.

    \b
    Examples:
      thresher check messages.json
      thresher check session.jsonl --dialect anthropic
      thresher check 0f3c9a1e --json
    """
    found = find_session(session, sources, no_discover=no_discover)
    wire = format_names("wire")
    chosen = dialect or own_dialect(found)
    violations = check(found.history, chosen)
    if as_json:
        dialects = [chosen] if chosen else list(wire)
        print_json({"file": found.file, "dialects": dialects, "violations": [_row(one) for one in violations]})
    else:
        _tell(violations, chosen or ", ".join(wire), found.file)
    if violations:
        raise SystemExit(1)


def _row(one: Violation) -> dict[str, Any]:
    return {
        "rule": one.rule,
        "dialect": one.dialect,
        "message": one.message,
        "part": one.part,
        "detail": one.detail,
        "documented": one.documented,
    }


def _tell(violations: tuple[Violation, ...], dialects: str, file: str) -> None:
    if not violations:
        click.echo(f"legal for {dialects}")
        return
    for one in violations[:SHOWN]:
        part = "" if one.part is None else f", part {one.part + 1}"
        click.echo(f"{one.dialect}: message {one.message + 1}{part}: {one.detail}  [{one.rule}: {one.documented}]")
    if len(violations) > SHOWN:
        click.echo(f"and {len(violations) - SHOWN} more (--json lists all)")
    click.echo(f"mend it: {program()} fit {file} --policy development -o mended.json")
