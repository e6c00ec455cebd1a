"""`thresher check`: whether an API would take a conversation, and if not, where it breaks which rule."""

from pathlib import Path
from typing import Any

import click

from thresher.cli.common import find_session, json_option, print_output, program_name, session_dialect, source_options
from thresher.edits import Violation, check
from thresher.transcripts import format_names

MAX_SHOWN_VIOLATIONS = 20


@click.command("check")
@click.argument("session")
@click.option(
    "--dialect", "-d", type=click.Choice(format_names("wire")), help="Whose rules; by default its own, else all."
)
@source_options
@json_option
def check_command(
    session: str, dialect: str | None, sources: tuple[Path, ...], no_discover: bool, as_json: bool
) -> None:
    """Say whether SESSION (a file, or the start of an id) is a legal conversation; exit 1 if it is not.

    \b
    Examples:
      thresher check messages.json
      thresher check session.jsonl --dialect anthropic
      thresher check 0f3c9a1e --json
    """
    found = find_session(session, sources, no_discover=no_discover)
    wire = format_names("wire")
    chosen = dialect or session_dialect(found)
    violations = check(found.history, chosen)
    if as_json:
        dialects = [chosen] if chosen else list(wire)
        print_output(
            {"file": found.file, "dialects": dialects, "violations": [_violation_value(one) for one in violations]}
        )
    else:
        _print_violations(violations, chosen or ", ".join(wire), found.file)
    if violations:
        raise SystemExit(1)


def _violation_value(one: Violation) -> dict[str, Any]:
    return {
        "rule": one.rule,
        "dialect": one.dialect,
        "message_index": one.message,
        "part_index": one.part,
        "detail": one.detail,
        "documented": one.documented,
    }


def _print_violations(violations: tuple[Violation, ...], dialects: str, file: str) -> None:
    if not violations:
        click.echo(f"legal for {dialects}")
        return
    for one in violations[:MAX_SHOWN_VIOLATIONS]:
        part = "" if one.part is None else f", part {one.part + 1}"
        click.echo(f"{one.dialect}: message {one.message + 1}{part}: {one.detail}  [{one.rule}: {one.documented}]")
    if len(violations) > MAX_SHOWN_VIOLATIONS:
        click.echo(f"and {len(violations) - MAX_SHOWN_VIOLATIONS} more (--json lists all)")
    click.echo(f"mend it: {program_name()} fit {file} --policy none -o mended.json")
