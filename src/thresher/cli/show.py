"""`thresher show`: read one session."""

from typing import TYPE_CHECKING

import click
from msgspec import structs

from thresher.cli.common import paged_console, print_output
from thresher.cli.options import WholeNumber, json_option, option, reveal_option, source_options
from thresher.cli.sources import SessionSources
from thresher.errors import OptionError, ReadError
from thresher.model import Session

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.text import Text

    from thresher.edits import Plan


@click.command("show")
@click.argument("reference", metavar="SESSION")
@option("--full", "Print long outputs and arguments in full.")
@option("--policy -p NAME", "Show what this preset or policy, for example smart, would do to each part.")
@option("--budget -b TOKENS", "Also show what to remove to fit this many tokens: 60000, 60k.")
@option("--child ID", "Show this sub-agent of the session: the start of its id.")
@option("--around N", "Show message N and its neighbors: the #N that `search` prints.", type=WholeNumber(0))
@option("--last N", "Show only the last N messages.", type=WholeNumber(1))
@option("--context N", "With --around: messages to show before and after.", type=WholeNumber(0), default=3)
@reveal_option
@source_options
@json_option
def show_command(
    reference: str,
    full: bool,
    policy: str | None,
    budget: str | None,
    child: str | None,
    around: int | None,
    last: int | None,
    context: int,
    reveal: bool,
    sources: SessionSources,
    as_json: bool,
) -> None:
    """Print one session as a readable transcript.

    SESSION is a file or the start of a session id. Each message has a number (#12), which --around takes. A terminal
    shows the transcript in a pager ($PAGER, or less; PAGER=cat prints it). A session whose file was deleted comes from
    the archive, with secrets redacted unless --reveal is given.

    \b
    Examples:
      thresher show 0f3c9a1e
      thresher show 0f3c9a1e --last 5
      thresher show 0f3c9a1e --around 12
      thresher show rollout.jsonl.zst --full
      thresher show 0f3c9a1e --policy smart --budget 60k
      thresher show 0f3c9a1e --child a7c31f9 --json
    """
    if (around is not None or last) and (policy or budget):
        raise OptionError("--around and --last cannot be combined with --policy or --budget; use one or the other")
    if around is not None and last:
        raise OptionError("--around cannot be combined with --last; use one of them")
    session = sources.find_session(reference, reveal=reveal)
    if child is not None:
        session = _find_child(session, child)
    if around is not None or last:
        _print_excerpt(session, around, last, context, full=full, as_json=as_json)
    else:
        _print_session(session, policy, budget, full=full, as_json=as_json)


def _find_child(session: Session, child: str) -> Session:
    for candidate in session.children:
        if candidate.id.startswith(child):
            return candidate
    known = ", ".join(candidate.id for candidate in session.children) or "none"
    raise ReadError(f"session `{session.id}` has no sub-agent `{child}`; its sub-agents: {known}")


def _print_session(session: Session, policy: str | None, budget: str | None, *, full: bool, as_json: bool) -> None:
    from thresher.render.transcript import session_value, transcript_lines

    plan, session = _plan_session(session, policy, budget) if policy or budget else (None, session)
    if as_json:
        print_output(session_value(session) | ({"plan": plan.to_dict()} if plan else {}))
    else:
        _print_texts(transcript_lines(session, full=full, plan=plan))


def _print_excerpt(
    session: Session, around: int | None, last: int | None, context: int, *, full: bool, as_json: bool
) -> None:
    from thresher.render.excerpt import excerpt_lines, excerpt_value, last_numbers, message_count, numbers_around

    if around is None:
        numbers = last_numbers(session, last or 0)
    elif around < (count := message_count(session)):
        numbers = numbers_around(session, around, context)
    else:
        raise OptionError(f"--around must be below {count:,}, got {around:,}: messages are numbered from 0")
    if as_json:
        print_output(excerpt_value(session, numbers, marked=around))
    else:
        _print_texts(excerpt_lines(session, numbers, marked=around, full=full))


def _print_texts(lines: "Iterable[Text]") -> None:
    """Print lines of text; on a terminal, in a pager, and the wrapped rest of a line is indented like its start."""
    from rich.padding import Padding

    with paged_console() as console:
        for line in lines:
            indent = len(line.plain) - len(line.plain.lstrip(" "))
            if console.is_terminal:
                console.print(Padding(line[indent:], (0, 0, 0, indent), expand=False))
            else:
                console.print(line, soft_wrap=True)


def _plan_session(session: Session, policy: str | None, budget: str | None) -> "tuple[Plan, Session]":
    """Return a plan and the session it applies to, which is repaired if the recorded history was broken."""
    from thresher.budget import plan
    from thresher.edits import repair

    result = plan(session, policy=policy, budget=budget)
    history = repair(session.history).history if result.repairs else session.history
    return result, structs.replace(session, segments=(*session.segments[:-1], history))
