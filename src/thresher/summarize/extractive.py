"""The summary that needs no model: a ledger of what was done, from the calls and results themselves.

It states facts (files, commands, how they ended) and quotes words; it never rewords, so it cannot be wrong about
what it says, only silent. No clock, no network, linear time: the same members give the same text, always.
"""

import posixpath
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from thresher.model import History, Place, Summary, Text, Thinking, ToolResult
from thresher.model.file_changes import ToolFileChange, extract_file_changes
from thresher.model.harness_text import extract_human_text
from thresher.model.one_liners import format_turn_range
from thresher.model.text import clip, count_text_lines, count_with_noun, to_printable_line
from thresher.model.tool_actions import ChainAction, parse_chain_action
from thresher.model.tool_outcomes import find_error_line, parse_tool_outcome
from thresher.summarize.layout import SummarySection, fit_sections
from thresher.summarize.quotes import quote_opening, select_quotes

MAX_COMMAND_CHARS = 120
"""Characters of a command."""
MAX_ERROR_CHARS = 160
MAX_INTENTS = 3
"""What a file was changed for is told this often."""


@dataclass(frozen=True)
class ExtractiveSummarizer:
    """Summarises without a model."""

    name: str = "extractive"
    quotations: int = 12
    """How many sentences of the agent are quoted at most."""

    def __call__(self, history: History, members: Sequence[Place], *, limit: int) -> str:
        """One text that stands for the parts at these places, at most `limit` characters."""
        material = _gather_material(history, members)
        deeds = material.actions
        open_failures, mended = _split_failures(deeds)
        root = _find_common_folder(deeds, limit // 8)
        sections = (
            SummarySection(
                "Summarised before", [clip(to_printable_line(text), max(limit // 2, 40)) for text in material.summaries]
            ),
            SummarySection("Changed", _format_changes(deeds, root)),
            SummarySection("Failed", [*open_failures, *material.orphan_errors], latest=True),
            SummarySection("Said", [f'"{said}"' for said in self._select_agent_quotes(material)], latest=True),
            SummarySection("Asked the user", _questions(deeds), latest=True),
            SummarySection("Plan", _format_plan(deeds), inline=True),
            SummarySection("Asked", [f'"{said}"' for said in map(quote_opening, material.requests) if said]),
            SummarySection(
                "Sub-agents",
                _distinct(
                    f'"{clip(to_printable_line(d.use.intent), MAX_COMMAND_CHARS)}"'
                    for d in _select_successful(deeds, "subagent")
                ),
            ),
            SummarySection("Ran", _format_commands(deeds), latest=True),
            SummarySection("Failed, made good later", mended),
            SummarySection("Read", _format_reads(deeds, root), inline=True, latest=True),
            SummarySection("Searched", _format_searches(deeds, root), inline=True, latest=True),
            SummarySection("Other tools", _format_other_tools(deeds), inline=True),
        )
        return fit_sections(
            _format_heading(history, members, deeds) + (f", under {root}" if root else ""), sections, limit
        )

    def _select_agent_quotes(self, material: "_SummaryMaterial") -> list[str]:
        return select_quotes(material.agent_texts, most=self.quotations) or select_quotes(
            material.thinking_texts, most=self.quotations // 4
        )


extractive_summarizer = ExtractiveSummarizer()
"""The default."""


class _SummaryMaterial(NamedTuple):
    actions: list[ChainAction]
    orphan_errors: list[str]
    """What failed results say whose calls are not known."""
    requests: list[str]
    agent_texts: list[str]
    thinking_texts: list[str]
    summaries: list[str]


def _gather_material(history: History, members: Sequence[Place]) -> _SummaryMaterial:
    wanted = set(members)
    found = {chain.call: chain for place in wanted if (chain := history.chain_at.get(place)) is not None}
    chains = [found[call] for call in sorted(found)]
    deeds = [
        deed for deed in (parse_chain_action(history, chain, members=wanted) for chain in chains) if deed is not None
    ]
    material = _SummaryMaterial(deeds, [], [], [], [], [])
    for place in sorted(wanted):
        message = history[place.message]
        match history.part(place):
            case Text(text=text) if message.role == "user" and message.author in ("human", "model"):
                material.requests.append(extract_human_text(text))
            case Text(text=text) if message.role == "assistant":
                material.agent_texts.append(text)
            case Thinking(text=text):
                material.thinking_texts.append(text)
            case Summary(text=text) if to_printable_line(text):
                material.summaries.append(text)
            case _:
                pass
    for place in history.orphans:
        part = history.part(place) if place in wanted else None
        if isinstance(part, ToolResult) and (end := parse_tool_outcome(part, is_command=True)).failed:
            material.orphan_errors.append(clip(find_error_line(end) or "a call that is not known", MAX_ERROR_CHARS))
    return material


def _format_heading(history: History, members: Sequence[Place], deeds: Sequence[ChainAction]) -> str:
    spoken = [place for place in members if history[place.message].role != "user"] or members
    numbers = [history.turn(place.message) for place in spoken] or [0]
    when = format_turn_range(numbers).capitalize() if history.turns else "Before the first turn"
    return (
        f"{when}: {count_with_noun(len(deeds), 'tool call')}"
        if deeds
        else f"{when}: {count_with_noun(len(members), 'part')}"
    )


def _find_common_folder(deeds: Sequence[ChainAction], longest: int) -> str:
    """The folder that all files are in, where naming it once makes the text shorter."""
    paths = [path for path in (to_printable_line(deed.use.path) for deed in deeds) if path.startswith("/")]
    if len(paths) < 3:
        return ""
    root = posixpath.commonpath(paths).rstrip("/") + "/"
    return root if len(" under ,") < len(root) <= longest else ""


def _select_successful(deeds: Sequence[ChainAction], *categories: str) -> list[ChainAction]:
    return [deed for deed in deeds if deed.use.category in categories and not deed.outcome.failed]


def _distinct(items: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(items))


def _format_changes(deeds: Sequence[ChainAction], root: str) -> list[str]:
    """A line a file: how often, how many lines, and what for."""
    found: dict[str, list[ToolFileChange]] = {}
    intents: dict[str, dict[str, None]] = {}
    for deed in _select_successful(deeds, "file_edit"):
        for change in extract_file_changes(deed.call, deed.use, deed.fields):
            path = to_printable_line(change.path).removeprefix(root) or "a file"
            found.setdefault(path, []).append(change)
            if deed.use.intent:
                intents.setdefault(path, {})[to_printable_line(deed.use.intent)] = None
    return [_format_file(path, of_it, list(intents.get(path, ()))) for path, of_it in found.items()]


def _format_file(path: str, found: Sequence[ToolFileChange], intents: Sequence[str]) -> str:
    written = [change for change in found if change.operation == "write"]
    edits = [change for change in found if change.operation in ("edit", "")]
    ways = [f"written ({count_with_noun(written[-1].added, 'line')})"] if written else []
    if edits:
        added, removed = sum(change.added for change in edits), sum(change.removed for change in edits)
        lines = f" (+{added} −{removed} lines)" if added or removed else ""
        ways.append(count_with_noun(len(edits), "edit") + lines)
    ways += [word for word, operation in (("moved", "move"), ("deleted", "delete")) if found[-1].operation == operation]
    told = "; ".join(intents[-MAX_INTENTS:])
    return f"{path}: {', '.join(ways)}" + (f": {clip(told, MAX_ERROR_CHARS)}" if told else "")


def _describe_subject(deed: ChainAction) -> str:
    return clip(deed.command, MAX_COMMAND_CHARS) or " ".join(
        filter(
            None,
            (
                to_printable_line(deed.call.name),
                to_printable_line(deed.use.path)
                or clip(deed.query or to_printable_line(deed.use.intent), MAX_COMMAND_CHARS),
            ),
        )
    )


def _split_failures(deeds: Sequence[ChainAction]) -> tuple[list[str], list[str]]:
    """What failed and stayed so, and what a later call of the same kind made good."""
    still: dict[tuple[str, ...], list[ChainAction]] = {}
    mended: dict[tuple[str, ...], list[ChainAction]] = {}
    for deed in deeds:
        if deed.outcome.failed and not deed.is_silent:
            still.setdefault(deed.retry_key, []).append(deed)
        elif deed.outcome.is_known and not deed.outcome.failed and deed.retry_key in still:
            mended.setdefault(deed.retry_key, []).extend(still.pop(deed.retry_key))
    return [_format_failure(found) for found in still.values()], [_format_failure(found) for found in mended.values()]


def _format_failure(found: Sequence[ChainAction]) -> str:
    last = found[-1]
    code = (
        f" → exit {last.outcome.exit_code}" if last.outcome.exit_code else " →" if find_error_line(last.outcome) else ""
    )
    told = f": {clip(find_error_line(last.outcome), MAX_ERROR_CHARS)}" if find_error_line(last.outcome) else ""
    often = f" ({len(found)} times)" if len(found) > 1 else ""
    return f"{_describe_subject(last)}{often}{code}{told if last.outcome.exit_code else told.removeprefix(':')}"


def _format_commands(deeds: Sequence[ChainAction]) -> list[str]:
    """What ran and did not fail, each command once with its latest end."""
    ran: dict[str, tuple[int, ChainAction]] = {}
    for deed in deeds:
        if deed.is_command and deed.command and (deed.is_silent or not deed.outcome.failed):
            text = clip(deed.command, MAX_COMMAND_CHARS)
            ran[text] = (ran[text][0] + 1 if text in ran else 1, deed)
    return [
        text + _format_command_end(deed) + (f" ({times} times)" if times > 1 else "")
        for text, (times, deed) in ran.items()
    ]


def _format_command_end(deed: ChainAction) -> str:
    if not deed.outcome.is_known:
        return ""
    return " → exit 1, no output" if deed.is_silent else " → ok"


def _format_reads(deeds: Sequence[ChainAction], root: str) -> list[str]:
    read: dict[str, tuple[int, ChainAction]] = {}
    for deed in deeds:
        if deed.use.operation == "read" and deed.use.path and not deed.outcome.failed:
            path = to_printable_line(deed.use.path).removeprefix(root)
            read[path] = (read[path][0] + 1 if path in read else 1, deed)
    return [_format_read(path, times, deed) for path, (times, deed) in read.items()]


def _format_read(path: str, times: int, deed: ChainAction) -> str:
    facts = [count_with_noun(count_text_lines(deed.outcome.output), "line")] if deed.outcome.is_known else []
    facts += [f"{times} times"] if times > 1 else []
    return f"{path} ({', '.join(facts)})" if facts else path


def _format_searches(deeds: Sequence[ChainAction], root: str) -> list[str]:
    found: list[str] = []
    for deed in _select_successful(deeds, "file_read", "web"):
        if deed.use.operation != "read" and deed.query:
            query = clip(deed.query, MAX_COMMAND_CHARS)
            place = f" in {to_printable_line(deed.use.path).removeprefix(root)}" if deed.use.path else ""
            found.append(query if "://" in query else f'"{query}"{place}')
    return _distinct(found)


def _questions(deeds: Sequence[ChainAction]) -> list[str]:
    return [
        f'"{clip(deed.question, MAX_ERROR_CHARS)}"'
        + (f" → {clip(to_printable_line(deed.outcome.output), MAX_ERROR_CHARS)}" if deed.outcome.output else "")
        for deed in _select_successful(deeds, "question")
        if deed.question
    ]


_STATUS_BOXES = {"completed": "[x]", "done": "[x]", "in_progress": "[>]", "cancelled": "[-]"}


def _format_plan(deeds: Sequence[ChainAction]) -> list[str]:
    """The latest list of steps, or else the plan's own words."""
    for deed in reversed(_select_successful(deeds, "plan")):
        for key in ("todos", "plan", "steps", "items", "todoList", "task_list"):
            listed = deed.fields.get(key)
            steps = [_format_step(one) for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
            if any(steps):
                return [step for step in steps if step]
    return _distinct(
        clip(to_printable_line(deed.use.intent), MAX_COMMAND_CHARS)
        for deed in _select_successful(deeds, "plan")
        if deed.use.intent
    )


def _format_step(one: dict[str, Any]) -> str:
    keys = ("content", "step", "title", "subject", "description", "text")
    told = next((to_printable_line(one[key]) for key in keys if isinstance(one.get(key), str)), "")
    return f"{_STATUS_BOXES.get(str(one.get('status')), '[ ]')} {clip(told, MAX_COMMAND_CHARS)}" if told else ""


def _format_other_tools(deeds: Sequence[ChainAction]) -> list[str]:
    names: dict[str, int] = {}
    for deed in _select_successful(deeds, "mcp", "other", "analysis"):
        name = to_printable_line(deed.call.name)
        names[name] = names.get(name, 0) + 1
    return [f"{name} ({times} times)" if times > 1 else name for name, times in names.items() if name]
