"""`thresher show`: read one session."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from thresher.cli.common import console, find_session, json_option, place_options, print_json
from thresher.errors import ReadError

if TYPE_CHECKING:
    from rich.padding import Padding
    from rich.text import Text


@click.command("show")
@click.argument("session")
@click.option("--full", is_flag=True, help="Unfold long outputs and show whole arguments.")
@click.option("--child", help="Show this sub-agent of the session instead (the start of its id).")
@place_options
@json_option
def command(
    session: str, full: bool, child: str | None, sources: tuple[Path, ...], no_discover: bool, as_json: bool
) -> None:
    """Read SESSION: a file, or the start of a session's id.

    \b
    Examples:
      thresher show 0f3c9a1e
      thresher show rollout.jsonl.zst --full
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
    if as_json:
        print_json(session_value(found))
        return
    out = console()
    for line in transcript(found, full=full):
        if out.is_terminal:
            out.print(_indented(line))
        else:
            out.print(line, soft_wrap=True)


def _indented(line: "Text") -> "Padding":
    """A line whose later rows, where it wraps, start under its first."""
    from rich.padding import Padding

    spaces = len(line.plain) - len(line.plain.lstrip(" "))
    return Padding(line[spaces:], (0, 0, 0, spaces), expand=False)
