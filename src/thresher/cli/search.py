"""`thresher search`: past sessions, found by what was said and done in them."""

import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from thresher.cli.common import (
    json_option,
    print_lines,
    print_output,
    program_name,
    source_options,
    sync_before_search,
    warn,
)
from thresher.memory.host_session import find_current_session, is_inside_agent
from thresher.memory.search.query import DEFAULT_SEARCH_FIELDS, SEARCH_FIELDS, parse_date_or_age, parse_query
from thresher.transcripts import format_names

if TYPE_CHECKING:
    from thresher.memory import Memory
    from thresher.memory.results import SearchResults
    from thresher.render.memory import StyledLine

ARGUMENTS_KEY = "thresher.search.arguments"
AGENT_NAMES = ", ".join(format_names("transcript"))
FILTER_OPTIONS = ("project", "agent", "branch", "since", "until", "role", "fields", "exclude", "current")
"""Options that say where to look, and not what for."""


class SearchCommand(click.Command):
    """Remembers how it was called, for the command of the next page."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep a copy; click uses up what it is given."""
        ctx.meta[ARGUMENTS_KEY] = [*args]
        return super().parse_args(ctx, args)


@click.command("search", cls=SearchCommand)
@click.argument("words", nargs=-1)
@click.option("--require", multiple=True, help="A word that a message must have, too; may be given several times.")
@click.option("--exclude", multiple=True, help="A word that a message must not have; may be given several times.")
@click.option("--regex", default="", help="A regular expression that a message must match.")
@click.option(
    "--field",
    "fields",
    multiple=True,
    type=click.Choice(SEARCH_FIELDS),
    help="Look only there; may be given several times. What tools printed (output) is looked into only on request.",
)
@click.option("--project", default="", help="Only sessions in a folder with this in its path.")
@click.option(
    "--agent", metavar="NAME", type=click.Choice(format_names()), help=f"Only this agent's sessions: {AGENT_NAMES}."
)
@click.option("--branch", default="", help="Only sessions on this git branch.")
@click.option("--since", help="Only messages since then: 2026-03-01, 7d, 2w, today.")
@click.option("--until", help="Only messages until then; a day means its end.")
@click.option(
    "--role",
    metavar="NAME",
    type=click.Choice(["user", "assistant"]),
    help="Only what that side wrote: user, assistant.",
)
@click.option("--file", "file", default="", help="Only messages that touch this file: a path, or the end of one.")
@click.option("--subagents", is_flag=True, help="Look into sub-agents' sessions, too.")
@click.option(
    "--all", "everything", is_flag=True, help="Let in what is left out: recalls, noise, sub-agents, this session."
)
@click.option(
    "--rank",
    type=click.Choice(["best", "matches"]),
    default="best",
    show_default=True,
    help="By how well the best passages fit, or by how many messages match.",
)
@click.option("--sessions", type=click.IntRange(1, 1000), default=10, show_default=True, help="Sessions on a page.")
@click.option("--messages", type=click.IntRange(1, 1000), default=5, show_default=True, help="Messages of each.")
@click.option(
    "--context", type=click.IntRange(20, 20_000), default=300, show_default=True, help="Characters of each message."
)
@click.option("--page", type=click.IntRange(1, 100_000), default=1, show_default=True, help="Which page.")
@click.option("--current", help="The session that asks: it and its family are left out. Agents tell it by themselves.")
@click.option("--cutoff", is_flag=True, help="Drop all messages up to a session's last recall; loses honest work.")
@click.option("--left-out", is_flag=True, help="Say what searches do not look into, and what share of all it is.")
@click.option("--no-sync", is_flag=True, help="Do not look for new sessions and messages first.")
@click.option("--reveal", is_flag=True, help="Show keys, tokens and passwords as they are.")
@source_options
@json_option
def search_command(
    words: tuple[str, ...],
    sessions: int,
    messages: int,
    context: int,
    page: int,
    since: str | None,
    until: str | None,
    left_out: bool,
    no_sync: bool,
    reveal: bool,
    sources: tuple[Path, ...],
    no_discover: bool,
    as_json: bool,
    **filters: Any,
) -> None:
    """Find past sessions, of every agent on this machine, by WORDS.

    Plain words are alternatives: the more of them a session has, and the rarer they are, the better it ranks. '"In
    double quotes"' they must stand so (mind your shell's own quotes), and migrat* is the beginning of a word. What
    memory tools printed into a session is left out, as is the session that asks.

    Exits 0 where something is found, 1 where nothing is, 2 on wrong use.

    \b
    Examples:
      thresher search how did we fix the jwt refresh
      thresher search auth login --require jwt --exclude test --since 30d
      thresher search '"connection reset"' --project shop --agent codex
      thresher search timeout --field output --rank matches
      thresher search retry --file src/client.py --json
    """
    from thresher.memory import Memory

    asked = _has_query(words, filters)
    if not (asked or left_out):
        raise click.UsageError(_missing_query_message(filters | {"since": since, "until": until}))
    filters |= _parse_times(since, until)
    memory = Memory(sources=sources, discover=not no_discover)
    if not no_sync:
        sync_before_search(memory)
    answer = None
    if asked:
        shown: dict[str, Any] = {"sessions": sessions, "messages": messages, "context": context, "page": page}
        answer = memory.search(" ".join(words), sync=False, reveal=reveal, **shown, **_complete_filters(filters))
        _print_notes(memory, answer, " ".join(words), sessions, by_file=bool(filters["file"]))
    _print_answer(memory, answer, left_out=left_out, as_json=as_json)
    if answer is not None and not answer.sessions:
        sys.exit(1)


def _parse_times(since: str | None, until: str | None) -> dict[str, datetime]:
    now = datetime.now().astimezone()
    start = {"since": parse_date_or_age(since, now)} if since else {}
    return start | ({"until": parse_date_or_age(until, now, end=True)} if until else {})


def _complete_filters(filters: dict[str, Any]) -> dict[str, Any]:
    """The conditions as a query has them."""
    current = filters["current"] or _find_current_session(quiet=filters["everything"])
    named = {name: filters[name] or "" for name in ("agent", "role")}
    return filters | named | {"current": current, "fields": filters["fields"] or DEFAULT_SEARCH_FIELDS}


def _has_query(words: Sequence[str], filters: dict[str, Any]) -> bool:
    query = parse_query(" ".join(words))
    spoken = query.words or query.phrases or query.prefixes
    return bool(spoken or filters["regex"] or filters["require"] or filters["file"])


def _missing_query_message(filters: dict[str, Any]) -> str:
    """What is missing, and where that is listed which needs no words."""
    given = [f"--{'field' if name == 'fields' else name}" for name in FILTER_OPTIONS if filters[name]]
    where = f"{' and '.join(given)} say{'s' * (len(given) == 1)} where to look, not what for. " if given else ""
    return f"{where}Add some words, or --require, --regex or --file; `thresher sessions` lists all sessions."


def _find_current_session(*, quiet: bool) -> str:
    """The session that this runs in, where its agent tells it."""
    known = find_current_session(os.environ)
    if not known and not quiet and is_inside_agent(os.environ):
        warn(
            "an agent asks, and does not say in which session: its own words may be among the answers; "
            "--current ID leaves that session out"
        )
    return known


def _next_page_command(arguments: Sequence[str], page: int) -> str:
    """The command for another page: as it was called."""
    kept: list[str] = []
    rest = iter(arguments)
    for argument in rest:
        if argument == "--page":
            next(rest, None)
        elif not argument.startswith("--page="):
            kept.append(argument)
    at = kept.index("--") if "--" in kept else len(kept)
    return shlex.join([program_name(), "search", *kept[:at], "--page", str(page), *kept[at:]])


def _print_notes(memory: "Memory", answer: "SearchResults", words: str, sessions: int, *, by_file: bool) -> None:
    """On standard error, what a person should know of an answer."""
    from thresher.cli.hints import format_missing_page, suggest_searches

    beyond = [format_missing_page(answer, sessions)] if answer.found and not answer.sessions else []
    for note in (*answer.notes, *beyond, *suggest_searches(memory, answer, words, by_file=by_file)):
        warn(note)


def _print_answer(memory: "Memory", answer: "SearchResults | None", *, left_out: bool, as_json: bool) -> None:
    from thresher.render.memory import exclusion_lines, exclusion_value, search_result_value, wrap_lines_in_tags

    if as_json:
        value = search_result_value(answer) if answer else {}
        print_output(value | ({"excluded_texts": exclusion_value(memory.left_out())} if left_out else {}))
        return
    if answer:
        lines = _answer_lines(memory, answer)
        ids = [one.id for one in answer.sessions]
        print_lines(wrap_lines_in_tags(lines, ids) if ids and not sys.stdout.isatty() else lines)
    if left_out:
        print_lines(exclusion_lines(memory.left_out()))


def _answer_lines(memory: "Memory", answer: "SearchResults") -> "Iterator[StyledLine]":
    from thresher.render.memory import no_result_lines, search_result_lines

    if answer.found and not answer.sessions:
        return iter(())
    if not answer.sessions:
        return no_result_lines(answer, memory.sizes(), program=program_name())
    following = (
        _next_page_command(click.get_current_context().meta[ARGUMENTS_KEY], answer.page + 1) if answer.more else ""
    )
    return search_result_lines(answer, program=program_name(), following=following)
