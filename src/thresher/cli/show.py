"""`thresher show`: read one session."""

from pathlib import Path
from typing import TYPE_CHECKING

import click
from msgspec import structs

from thresher.cli.common import find_session, json_option, make_console, print_output, source_options
from thresher.errors import OptionError, ReadError
from thresher.model import Session

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.padding import Padding
    from rich.text import Text

    from thresher.edits import Plan


@click.command("show")
@click.argument("session")
@click.option("--full", is_flag=True, help="Unfold long outputs and show whole arguments.")
@click.option("--policy", "-p", help="Say what this preset or policy would do to each part.")
@click.option("--budget", "-b", help="And what else would go to fit into so many tokens.")
@click.option("--child", help="Show this sub-agent of the session instead (the start of its id).")
@click.option("--around", type=click.IntRange(0), help="Show the message with this number, as a search tells it (#12).")
@click.option(
    "--context", type=click.IntRange(0), default=3, show_default=True, help="With --around: messages on each side."
)
@click.option("--reveal", is_flag=True, help="Of a session from the archive, show keys and passwords as they are.")
@source_options
@json_option
def show_command(
    session: str,
    full: bool,
    policy: str | None,
    budget: str | None,
    child: str | None,
    around: int | None,
    context: int,
    reveal: bool,
    sources: tuple[Path, ...],
    no_discover: bool,
    as_json: bool,
) -> None:
    """Read SESSION: a file, or the start of a session's id.

    A session whose file is gone comes from memory's archive, with its secrets redacted.

    \b
    Examples:
      thresher show 0f3c9a1e
      thresher show 0f3c9a1e --around 12
      thresher show rollout.jsonl.zst --full
      thresher show 0f3c9a1e --policy smart --budget 60k
      thresher show 0f3c9a1e --child a7c31f9 --json
    """
    found = find_session(session, sources, no_discover=no_discover, reveal=reveal)
    if child is not None:
        found = _find_child(found, child)
    if around is not None:
        if policy or budget:
            raise OptionError("--around shows messages as they are; leave out --policy and --budget")
        _print_excerpt(found, around, context, full=full, as_json=as_json)
    else:
        _print_session(found, policy, budget, full=full, as_json=as_json)


def _find_child(session: Session, child: str) -> Session:
    matching = [one for one in session.children if one.id.startswith(child)]
    if not matching:
        known = ", ".join(one.id for one in session.children) or "none"
        raise ReadError(f"session `{session.id}` has no sub-agent `{child}`; it has {known}")
    return matching[0]


def _print_session(found: Session, policy: str | None, budget: str | None, *, full: bool, as_json: bool) -> None:
    from thresher.render.transcript import session_value, transcript_lines

    plan, found = _plan_session(found, policy, budget) if policy or budget else (None, found)
    if as_json:
        print_output(session_value(found) | ({"plan": plan.to_dict()} if plan else {}))
    else:
        _print_texts(transcript_lines(found, full=full, plan=plan))


def _print_excerpt(found: Session, at: int, context: int, *, full: bool, as_json: bool) -> None:
    from thresher.render.excerpt import excerpt_lines, excerpt_value, message_count

    count = message_count(found)
    if at >= count:
        raise OptionError(f"session `{found.id}` has {count:,} messages, counted from 0; there is no {at:,}")
    if as_json:
        print_output(excerpt_value(found, at, context))
    else:
        _print_texts(excerpt_lines(found, at, context, full=full))


def _print_texts(lines: "Iterable[Text]") -> None:
    out = make_console()
    for line in lines:
        if out.is_terminal:
            out.print(_indent_wrapped(line))
        else:
            out.print(line, soft_wrap=True)


def _plan_session(session: Session, policy: str | None, budget: str | None) -> "tuple[Plan, Session]":
    """What would be done, and the session that it would be done to: mended first, if need be."""
    from thresher.budget import plan
    from thresher.edits import repair

    made = plan(session, policy=policy, budget=budget)
    mended = repair(session.history).history if made.repairs else session.history
    return made, structs.replace(session, segments=(*session.segments[:-1], mended))


def _indent_wrapped(line: "Text") -> "Padding":
    """A line whose later rows, where it wraps, start under its first."""
    from rich.padding import Padding

    spaces = len(line.plain) - len(line.plain.lstrip(" "))
    return Padding(line[spaces:], (0, 0, 0, spaces), expand=False)
