"""`thresher check`: validate a conversation against the rules of an API."""

from shlex import quote
from typing import Any

import click

from thresher.cli.common import print_output, print_text, program_name
from thresher.cli.options import NameChoice, json_option, option, source_options
from thresher.cli.sources import SessionSources, session_dialect
from thresher.edits import Violation, check
from thresher.render.text import strip_control_codes
from thresher.transcripts import format_names

MAX_SHOWN_VIOLATIONS = 20
DIALECTS = format_names("wire")


@click.command("check")
@click.argument("reference", metavar="SESSION")
@option(
    "--dialect -d API",
    f"API to validate against: {', '.join(DIALECTS)}. Default: the API of SESSION if known, otherwise all.",
    type=NameChoice(DIALECTS),
)
@source_options
@json_option
def check_command(reference: str, dialect: str | None, sources: SessionSources, as_json: bool) -> None:
    """Check a conversation against an API's rules.

    SESSION is a file or the start of a session id. Exits 1 if the API would reject the conversation. Each violation
    names the message, the part, the rule and the page where the vendor documents the rule.

    \b
    Examples:
      thresher check messages.json
      thresher check session.jsonl --dialect anthropic
      thresher check 0f3c9a1e --json
    """
    session = sources.find_session(reference)
    dialect = dialect or session_dialect(session)
    dialects = [dialect] if dialect else [*DIALECTS]
    violations = check(session.history, dialect)
    if as_json:
        print_output({"file": session.file, "dialects": dialects, "violations": [*map(_violation_value, violations)]})
    else:
        _print_violations(violations, ", ".join(dialects), session.file)
    if violations:
        raise SystemExit(1)


def _violation_value(violation: Violation) -> dict[str, Any]:
    return {
        "rule": violation.rule,
        "dialect": violation.dialect,
        "message_index": violation.message,
        "part_index": violation.part,
        "detail": violation.detail,
        "documented": violation.documented,
    }


def _print_violations(violations: tuple[Violation, ...], dialects: str, file: str) -> None:
    if not violations:
        print_text(f"legal for {dialects}")
        return
    for one in violations[:MAX_SHOWN_VIOLATIONS]:
        part = "" if one.part is None else f", part {one.part + 1}"
        print_text(f"{one.dialect}: message {one.message + 1}{part}: {one.detail}  [{one.rule}: {one.documented}]")
    if len(violations) > MAX_SHOWN_VIOLATIONS:
        print_text(f"and {len(violations) - MAX_SHOWN_VIOLATIONS} more (--json lists all)")
    print_text(f"To repair it: {program_name()} fit {quote(strip_control_codes(file))} --policy none -o repaired.json")
