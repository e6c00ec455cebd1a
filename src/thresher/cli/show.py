"""`thresher show`: read one session."""

from pathlib import Path
from typing import TYPE_CHECKING

import click
from msgspec import structs

from thresher.cli.common import console, find_session, json_option, place_options, print_json
from thresher.errors import ReadError
from thresher.model import Session

if TYPE_CHECKING:
    from rich.padding import Padding
    from rich.text import Text

    from thresher.edits import Plan


@click.command("show")
@click.argument("session")
@click.option("--full", is_flag=True, help="Unfold long outputs and show whole arguments.")
@click.option("--policy", "-p", help="Say what this preset or policy would do to each part.")
@click.option("--budget", "-b", help="And what else would go to fit into so many tokens.")
@click.option("--child", help="Show this sub-agent of the session instead (the start of its id).")
@place_options
@json_option
def command(
    session: str,
    full: bool,
    policy: str | None,
    budget: str | None,
    child: str | None,
    sources: tuple[Path, ...],
    no_discover: bool,
    as_json: bool,
) -> None:
    """Read SESSION: a file, or the start of a session's id.

    \b
    Examples:
      thresher show 0f3c9a1e
      thresher show rollout.jsonl.zst --full
      thresher show 0f3c9a1e --policy smart --budget 60k
      thresher show 0f3c9a1e --child a7c31f9 --json
    """
    from thresher.render import session_value, transcript

    found = find_session(session, sources, no_discover=no_discover)
    if child is not None:
        matching = [one for one in found.children if one.id.startswith(child)]
        if not matching:
            known = ", ".join(one.id for one in found.children) or "none"
            raise ReadError(f"session `{found.id}` has no sub-agent `{child}`; it has {known}")
        found = matching[0]
    plan, found = _planned(found, policy, budget) if policy or budget else (None, found)
    if as_json:
        print_json(session_value(found) | ({"plan": plan.to_dict()} if plan else {}))
        return
    out = console()
    for line in transcript(found, full=full, plan=plan):
        if out.is_terminal:
            out.print(_indented(line))
        else:
            out.print(line, soft_wrap=True)


def _planned(session: Session, policy: str | None, budget: str | None) -> "tuple[Plan, Session]":
    """What would be done, and the session that it would be done to: mended first, if need be."""
    from thresher.budget import plan
    from thresher.edits import repair

    made = plan(session, policy=policy, budget=budget)
    mended = repair(session.history).history if made.repairs else session.history
    return made, structs.replace(session, segments=(*session.segments[:-1], mended))


def _indented(line: "Text") -> "Padding":
    """A line whose later rows, where it wraps, start under its first."""
    from rich.padding import Padding

    spaces = len(line.plain) - len(line.plain.lstrip(" "))
    return Padding(line[spaces:], (0, 0, 0, spaces), expand=False)
