"""`thresher search`: find past sessions by their text."""

import os
import shlex
import sys
from collections.abc import Iterable
from datetime import datetime
from itertools import chain
from typing import TYPE_CHECKING, Any

import click
from msgspec import structs

from thresher.cli.common import print_lines, print_output, program_name, screen_size, warn
from thresher.cli.options import (
    DATE_EXAMPLES,
    NameChoice,
    WholeNumber,
    json_option,
    no_sync_option,
    option,
    project_option,
    reveal_option,
    source_options,
)
from thresher.cli.sources import SessionSources
from thresher.memory.host_session import find_current_session, is_inside_agent
from thresher.memory.search.query import DEFAULT_SEARCH_FIELDS, SEARCH_FIELDS, parse_date_or_age, parse_query
from thresher.transcripts import format_names

if TYPE_CHECKING:
    from thresher.memory import Memory
    from thresher.memory.results import SearchResults
    from thresher.render.memory import StyledLine

PROMPT_LINES = 1
ARGUMENTS_KEY = "thresher.search.arguments"
AGENT_NAMES = ", ".join(format_names("transcript"))
PAGE_SIZES = {"sessions": 10, "messages": 5, "context": 300, "page": 1}
WHOLE_PAGE = "{sessions} sessions, {messages} messages of each, {context} characters of each".format(**PAGE_SIZES)
SCREEN_SIZES = PAGE_SIZES | {"context": 140}
"""Sizes of a search without `--more` and without any of these options; only what fits the screen is printed."""
FILTER_OPTIONS = ("project", "agent", "branch", "since", "until", "role", "fields", "exclude", "current")
"""Options that only narrow a search. The search also needs words, `--require`, `--regex` or `--file`."""


class SearchCommand(click.Command):
    """A command that stores its arguments, so that it can print the command for the next page."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Copy the arguments before click consumes them."""
        ctx.meta[ARGUMENTS_KEY] = [*args]
        return super().parse_args(ctx, args)


@click.command("search", cls=SearchCommand)
@click.argument("words", nargs=-1)
@option("--require WORD", "A message must contain this word. Repeatable.", multiple=True)
@option("--exclude WORD", "A message must not contain this word. Repeatable.", multiple=True)
@option("--regex PATTERN", "A message must match this regular expression.", default="")
@option("--file PATH", "Only messages that touch this file: a path or its end.", default="")
@option(
    "--field FIELD",
    f"Search only this field: {', '.join(SEARCH_FIELDS)}. Repeatable. "
    "Default: all but output (what tools printed), title and paths.",
    name="fields",
    multiple=True,
    type=NameChoice(SEARCH_FIELDS),
)
@project_option
@option("--agent NAME", f"Only this agent: {AGENT_NAMES}.", type=NameChoice(format_names()))
@option("--branch NAME", "Only sessions on this git branch.", default="")
@option("--since DATE", f"Only messages since this date: {DATE_EXAMPLES}.")
@option("--until DATE", "Only messages until the end of this date.")
@option("--role ROLE", "Only messages by user or assistant.", type=NameChoice(["user", "assistant"]))
@option("--subagents/--no-subagents", "Include or skip the sessions of sub-agents.", default=True)
@option(
    "--all",
    "Include everything that searches skip: recalled text, noise and the current session.",
    name="everything",
)
@option(
    "--rank ORDER",
    "Rank sessions by their best messages (best) or by the number of matching messages (matches).",
    type=NameChoice(["best", "matches"]),
    default="best",
)
@option("--more", f"Show a whole page: {WHOLE_PAGE}. Default: the best of each session, as many as fit the screen.")
@option("--sessions N", "Sessions per page.", type=WholeNumber(1, 1000))
@option("--messages N", "Messages to show of each session.", type=WholeNumber(1, 1000))
@option("--context N", "Characters to show of each message.", type=WholeNumber(20, 20_000))
@option("--page N", "Page to show.", type=WholeNumber(1, 100_000))
@option(
    "--current ID",
    "Skip this session (the start of its id) and its family. Default: the session that runs this search, if its agent "
    "sets the id (Claude Code and Codex do).",
)
@option(
    "--cutoff",
    "Skip all messages of a session up to its last recalled text or announced recall. For comparisons only: this also "
    "skips original text.",
)
@option("--left-out", "Print how much text searches skip, by reason. Works without WORDS.")
@no_sync_option
@reveal_option
@source_options
@json_option
def search_command(
    words: tuple[str, ...],
    more: bool,
    left_out: bool,
    no_sync: bool,
    reveal: bool,
    sources: SessionSources,
    as_json: bool,
    **filters: Any,
) -> None:
    """Search the text of past sessions.

    A session matches if it contains any of WORDS; more words and rarer words rank it higher. '"double quotes"' match
    an exact phrase (the outer quotes are for the shell), and migrat* matches a prefix. The search skips text that
    memory tools printed into a session, and the session that runs the search.

    Exits 1 if nothing matches.

    \b
    Examples:
      thresher search how did we fix the jwt refresh
      thresher search auth login --require jwt --exclude test --since 30d
      thresher search '"connection reset"' --project shop --agent codex
      thresher search timeout --field output --rank matches
      thresher search retry --file src/client.py --json
    """
    text = " ".join(words)
    has_query = _has_query(text, filters)
    if not (has_query or left_out):
        raise click.UsageError(_missing_query_message(filters))
    is_whole = more or as_json or any(filters[name] is not None for name in PAGE_SIZES)
    filters = _complete_filters(filters, PAGE_SIZES if is_whole else SCREEN_SIZES)
    memory = sources.open_memory(sync=not no_sync)
    results = None
    if has_query:
        results = memory.search(text, sync=False, reveal=reveal, **filters)
        _print_notes(memory, results, text, filters)
    _print_results(memory, results, is_whole=is_whole, left_out=left_out, as_json=as_json)
    if results is not None and not results.sessions:
        sys.exit(1)


def _complete_filters(filters: dict[str, Any], sizes: dict[str, int]) -> dict[str, Any]:
    """Return the filters in the form that `Memory.search` accepts: dates parsed and defaults filled in."""
    now = datetime.now().astimezone()
    since, until = filters["since"], filters["until"]
    given = {name: filters[name] for name in sizes if filters[name] is not None}
    return (
        filters
        | sizes
        | given
        | {
            "since": parse_date_or_age(since, now) if since else None,
            "until": parse_date_or_age(until, now, end=True) if until else None,
            "agent": filters["agent"] or "",
            "role": filters["role"] or "",
            "current": filters["current"] or _find_current_session(quiet=filters["everything"]),
            "fields": filters["fields"] or DEFAULT_SEARCH_FIELDS,
        }
    )


def _has_query(text: str, filters: dict[str, Any]) -> bool:
    query = parse_query(text)
    has_words = query.words or query.phrases or query.prefixes
    return bool(has_words or filters["regex"] or filters["require"] or filters["file"])


def _missing_query_message(filters: dict[str, Any]) -> str:
    given = [f"--{'field' if name == 'fields' else name}" for name in FILTER_OPTIONS if filters[name]]
    verb = "narrows" if len(given) == 1 else "narrow"
    reason = f"{' and '.join(given)} only {verb} a search. " if given else "Nothing to search for. "
    return f"{reason}Add words, or --require, --regex or --file; `thresher sessions` lists all sessions."


def _find_current_session(*, quiet: bool) -> str:
    """Return the id of the session that runs this command, if its agent sets one in the environment."""
    current = find_current_session(os.environ)
    if not current and not quiet and is_inside_agent(os.environ):
        warn(
            "The agent that runs this search does not set its session id, so results may include its own session; "
            "skip that session with --current ID"
        )
    return current


def _repeat_command(*options: str) -> str:
    """Return the command of this search with other options in place of its `--page`."""
    kept: list[str] = []
    remaining = iter(click.get_current_context().meta[ARGUMENTS_KEY])
    for argument in remaining:
        if argument == "--page":
            next(remaining, None)
        elif not argument.startswith("--page="):
            kept.append(argument)
    end = kept.index("--") if "--" in kept else len(kept)
    return shlex.join([program_name(), "search", *kept[:end], *options, *kept[end:]])


def _print_notes(memory: "Memory", results: "SearchResults", text: str, filters: dict[str, Any]) -> None:
    """Print the notes of a search, and hints for a better one, on standard error."""
    from thresher.cli.hints import format_missing_page, suggest_searches

    is_past_end = results.found and not results.sessions
    missing = [format_missing_page(results, filters["sessions"])] if is_past_end else []
    hints = suggest_searches(memory, results, text, by_file=bool(filters["file"]))
    for note in (*results.notes, *missing, *hints):
        warn(note)


def _print_results(
    memory: "Memory", results: "SearchResults | None", *, is_whole: bool, left_out: bool, as_json: bool
) -> None:
    from thresher.render.memory import exclusion_lines, wrap_lines_in_tags
    from thresher.render.memory_values import exclusion_value, search_result_value

    if as_json:
        value = search_result_value(results) if results else {}
        print_output(value | ({"excluded_texts": exclusion_value(memory.left_out())} if left_out else {}))
        return
    if results:
        shown, lines = _whole_page(memory, results) if is_whole or not results.sessions else _one_screen(results)
        ids = [session.id for session in shown.sessions]
        print_lines(wrap_lines_in_tags(lines, ids) if ids and not sys.stdout.isatty() else lines, paged=is_whole)
    if left_out:
        print_lines(exclusion_lines(memory.left_out()))


def _whole_page(memory: "Memory", results: "SearchResults") -> "tuple[SearchResults, Iterable[StyledLine]]":
    from thresher.render.memory import no_result_lines, search_result_lines

    program = program_name()
    if not results.sessions:
        return results, () if results.found else no_result_lines(results, memory.sizes(), program=program)
    following = _repeat_command("--page", str(results.page + 1)) if results.more else ""
    return results, search_result_lines(results, program=program, following=following)


def _one_screen(results: "SearchResults") -> "tuple[SearchResults, Iterable[StyledLine]]":
    """Return the results that fit the screen, and their lines.

    If not all sessions fit with several of their messages, they are brief, with their best message only.
    """
    from thresher.render.memory import search_result_blocks, search_result_lines, search_summary_lines
    from thresher.render.screen import count_fitting_blocks

    screen, program = screen_size(), program_name()
    more = _repeat_command("--more")
    for messages in (SCREEN_SIZES["messages"], 2, 1):
        shown = _limit_hits(results, messages)
        omits = len(shown.sessions) < shown.found or any(one.matches > len(one.hits) for one in shown.sessions)
        lines = [*search_result_lines(shown, program=program, more=more if omits else "")]
        if screen.height(lines) + PROMPT_LINES <= screen.lines:
            return shown, lines
    reserved = screen.height(search_summary_lines(shown, more=more)) + PROMPT_LINES
    blocks = [*search_result_blocks(shown, program=program, brief=screen.columns)]
    count = count_fitting_blocks(blocks, screen, reserved)
    shown = structs.replace(shown, sessions=shown.sessions[:count])
    return shown, [*chain.from_iterable(blocks[:count]), *search_summary_lines(shown, more=more)]


def _limit_hits(results: "SearchResults", messages: int) -> "SearchResults":
    """Return the results with at most this many messages of each session."""
    sessions = tuple(structs.replace(session, hits=session.hits[:messages]) for session in results.sessions)
    return structs.replace(results, sessions=sessions)
