"""Summarize without a model: list the actions, from the calls and results themselves.

The summary states facts (files, commands, outcomes) and quotes text. It never paraphrases, so it may omit something but
is never wrong. It is deterministic and takes linear time.
"""

import posixpath
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from thresher.model import History, Place, Summary, Text, Thinking, ToolCall, ToolResult
from thresher.model.file_changes import ToolFileChange, extract_file_changes
from thresher.model.harness_text import extract_human_text
from thresher.model.human_words import extract_human_words
from thresher.model.one_liners import format_turn_range
from thresher.model.text import clip, count_text_lines, count_with_noun, to_printable_line
from thresher.model.tool_actions import ChainAction, parse_chain_action
from thresher.model.tool_calls import describe_tool_call
from thresher.model.tool_outcomes import find_error_line, parse_tool_outcome
from thresher.summarize.layout import SummarySection, fit_sections
from thresher.summarize.quotes import quote_opening, select_quotes

MAX_COMMAND_CHARS = 120
"""Maximum characters of a command."""
MAX_ERROR_CHARS = 160
MAX_INTENTS = 3
"""Maximum intents to list per file."""


@dataclass(frozen=True)
class ExtractiveSummarizer:
    """Summarizes without a model."""

    name: str = "extractive"
    quotations: int = 12
    """Maximum number of agent sentences to quote."""

    def __call__(self, history: History, members: Sequence[Place], *, limit: int) -> str:
        """Summarize the parts at these places in at most `limit` characters."""
        material = _gather_material(history, members)
        actions = material.actions
        open_failures, resolved_failures = _split_failures(actions)
        root = _find_common_folder(actions, limit // 8)
        earlier = [clip(to_printable_line(text), max(limit // 2, 40)) for text in material.summaries]
        sections = (
            SummarySection("Summarised before", earlier),
            SummarySection("Changed", _format_changes(actions, root)),
            SummarySection("Failed", [*open_failures, *material.orphan_errors], latest=True),
            SummarySection("Said", [f'"{quote}"' for quote in self._select_agent_quotes(material)], latest=True),
            SummarySection("Asked the user", _format_questions(actions), latest=True),
            SummarySection("Plan", _format_plan(actions), inline=True),
            SummarySection("Asked", [f'"{quote}"' for quote in map(quote_opening, material.requests) if quote]),
            SummarySection("Sub-agents", _format_subagents(actions)),
            SummarySection("Ran", _format_commands(actions), latest=True),
            SummarySection("Failed, made good later", resolved_failures),
            SummarySection("Read", _format_reads(actions, root), inline=True, latest=True),
            SummarySection("Searched", _format_searches(actions, root), inline=True, latest=True),
            SummarySection("Other tools", _format_other_tools(actions), inline=True),
        )
        heading = _format_heading(history, members, actions) + (f", under {root}" if root else "")
        return fit_sections(heading, sections, limit)

    def _select_agent_quotes(self, material: "_SummaryMaterial") -> list[str]:
        quotes = select_quotes(material.agent_texts, limit=self.quotations)
        return quotes or select_quotes(material.thinking_texts, limit=self.quotations // 4)


extractive_summarizer = ExtractiveSummarizer()
"""The default summarizer."""


class _SummaryMaterial(NamedTuple):
    actions: list[ChainAction]
    orphan_errors: list[str]
    """Errors of results without a known call."""
    requests: list[str]
    agent_texts: list[str]
    thinking_texts: list[str]
    summaries: list[str]


def _gather_material(history: History, members: Sequence[Place]) -> _SummaryMaterial:
    wanted = set(members)
    found = {chain.call: chain for place in wanted if (chain := history.chain_at.get(place)) is not None}
    chains = [found[call] for call in sorted(found)]
    parsed = (parse_chain_action(history, chain, members=wanted) for chain in chains)
    material = _SummaryMaterial([action for action in parsed if action is not None], [], [], [], [], [])
    for place in sorted(wanted):
        message = history[place.message]
        match history.part(place):
            case Text(text=text) if message.role == "user" and message.author in ("human", "model"):
                material.requests.append(extract_human_text(text))
            case Text(text=text) if message.role == "assistant":
                material.agent_texts.append(text)
            case Thinking(text=text):
                material.thinking_texts.append(text)
            case ToolResult() as result if place in history.human_words and not _is_question(history, place):
                material.requests.append(extract_human_words(result.text[slice(*history.human_words[place])]))
            case Summary(text=text) if to_printable_line(text):
                material.summaries.append(text)
            case _:
                pass
    for place in history.orphans:
        part = history.part(place) if place in wanted else None
        if isinstance(part, ToolResult) and (end := parse_tool_outcome(part, is_command=True)).failed:
            material.orphan_errors.append(clip(find_error_line(end) or "a call that is not known", MAX_ERROR_CHARS))
    return material


def _is_question(history: History, result: Place) -> bool:
    """Return whether a result answers a question, which the summary lists with its answer."""
    call = history.part(history.chain_at[result].call)
    return isinstance(call, ToolCall) and describe_tool_call(call).category == "question"


def _format_heading(history: History, members: Sequence[Place], actions: Sequence[ChainAction]) -> str:
    places = [place for place in members if history[place.message].role != "user"] or members
    numbers = [history.turn(place.message) for place in places] or [0]
    when = format_turn_range(numbers).capitalize() if history.turns else "Before the first turn"
    counted = count_with_noun(len(actions), "tool call") if actions else count_with_noun(len(members), "part")
    return f"{when}: {counted}"


def _find_common_folder(actions: Sequence[ChainAction], max_chars: int) -> str:
    """Return the common folder of all files, if naming it once makes the text shorter."""
    paths = [path for path in (to_printable_line(action.use.path) for action in actions) if path.startswith("/")]
    if len(paths) < 3:
        return ""
    root = posixpath.commonpath(paths).rstrip("/") + "/"
    return root if len(" under ,") < len(root) <= max_chars else ""


def _select_successful(actions: Sequence[ChainAction], *categories: str) -> list[ChainAction]:
    return [action for action in actions if action.use.category in categories and not action.outcome.failed]


def _distinct(items: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(items))


def _format_changes(actions: Sequence[ChainAction], root: str) -> list[str]:
    """Return one line per file: number of changes, lines added and removed, intents."""
    found: dict[str, list[ToolFileChange]] = {}
    intents: dict[str, dict[str, None]] = {}
    for action in _select_successful(actions, "file_edit"):
        for change in extract_file_changes(action.call, action.use, action.fields):
            path = to_printable_line(change.path).removeprefix(root) or "a file"
            found.setdefault(path, []).append(change)
            if action.use.intent:
                intents.setdefault(path, {})[to_printable_line(action.use.intent)] = None
    return [_format_file(path, changes, list(intents.get(path, ()))) for path, changes in found.items()]


def _format_file(path: str, found: Sequence[ToolFileChange], intents: Sequence[str]) -> str:
    written = [change for change in found if change.operation == "write"]
    edits = [change for change in found if change.operation in ("edit", "")]
    changes = [f"written ({count_with_noun(written[-1].added, 'line')})"] if written else []
    if edits:
        added, removed = sum(change.added for change in edits), sum(change.removed for change in edits)
        lines = f" (+{added} −{removed} lines)" if added or removed else ""
        changes.append(count_with_noun(len(edits), "edit") + lines)
    last = found[-1].operation
    changes += [word for word, operation in (("moved", "move"), ("deleted", "delete")) if last == operation]
    purpose = "; ".join(intents[-MAX_INTENTS:])
    return f"{path}: {', '.join(changes)}" + (f": {clip(purpose, MAX_ERROR_CHARS)}" if purpose else "")


def _describe_subject(action: ChainAction) -> str:
    if action.command:
        return clip(action.command, MAX_COMMAND_CHARS)
    query = clip(action.query or to_printable_line(action.use.intent), MAX_COMMAND_CHARS)
    subject = to_printable_line(action.use.path) or query
    return " ".join(filter(None, (to_printable_line(action.call.name), subject)))


def _split_failures(actions: Sequence[ChainAction]) -> tuple[list[str], list[str]]:
    """Return the unresolved failures, and the failures that a later retry resolved."""
    remaining: dict[tuple[str, ...], list[ChainAction]] = {}
    resolved: dict[tuple[str, ...], list[ChainAction]] = {}
    for action in actions:
        key, outcome = action.retry_key, action.outcome
        if outcome.failed and not action.is_silent:
            remaining.setdefault(key, []).append(action)
        elif outcome.is_known and not outcome.failed and key in remaining:
            resolved.setdefault(key, []).extend(remaining.pop(key))
    return [*map(_format_failure, remaining.values())], [*map(_format_failure, resolved.values())]


def _format_failure(found: Sequence[ChainAction]) -> str:
    last = found[-1]
    error = clip(find_error_line(last.outcome), MAX_ERROR_CHARS)
    times = f" ({len(found)} times)" if len(found) > 1 else ""
    if last.outcome.exit_code:
        end = f" → exit {last.outcome.exit_code}" + (f": {error}" if error else "")
    else:
        end = f" → {error}" if error else ""
    return f"{_describe_subject(last)}{times}{end}"


def _format_commands(actions: Sequence[ChainAction]) -> list[str]:
    """Return the commands that succeeded or found nothing, each once with its latest outcome."""
    ran: dict[str, tuple[int, ChainAction]] = {}
    for action in actions:
        if action.is_command and action.command and (action.is_silent or not action.outcome.failed):
            text = clip(action.command, MAX_COMMAND_CHARS)
            ran[text] = (ran[text][0] + 1 if text in ran else 1, action)
    lines = []
    for text, (times, action) in ran.items():
        lines.append(text + _format_command_end(action) + (f" ({times} times)" if times > 1 else ""))
    return lines


def _format_command_end(action: ChainAction) -> str:
    if not action.outcome.is_known:
        return ""
    return " → exit 1, no output" if action.is_silent else " → ok"


def _format_reads(actions: Sequence[ChainAction], root: str) -> list[str]:
    read: dict[str, tuple[int, ChainAction]] = {}
    for action in actions:
        if action.use.operation == "read" and action.use.path and not action.outcome.failed:
            path = to_printable_line(action.use.path).removeprefix(root)
            read[path] = (read[path][0] + 1 if path in read else 1, action)
    return [_format_read(path, times, action) for path, (times, action) in read.items()]


def _format_read(path: str, times: int, action: ChainAction) -> str:
    facts = [count_with_noun(count_text_lines(action.outcome.output), "line")] if action.outcome.is_known else []
    facts += [f"{times} times"] if times > 1 else []
    return f"{path} ({', '.join(facts)})" if facts else path


def _format_searches(actions: Sequence[ChainAction], root: str) -> list[str]:
    found: list[str] = []
    for action in _select_successful(actions, "file_read", "web"):
        if action.use.operation != "read" and action.query:
            query = clip(action.query, MAX_COMMAND_CHARS)
            place = f" in {to_printable_line(action.use.path).removeprefix(root)}" if action.use.path else ""
            found.append(query if "://" in query else f'"{query}"{place}')
    return _distinct(found)


def _format_subagents(actions: Sequence[ChainAction]) -> list[str]:
    intents = (to_printable_line(action.use.intent) for action in _select_successful(actions, "subagent"))
    return _distinct(f'"{clip(intent, MAX_COMMAND_CHARS)}"' for intent in intents)


def _format_questions(actions: Sequence[ChainAction]) -> list[str]:
    lines = []
    for action in _select_successful(actions, "question"):
        answer = clip(to_printable_line(action.outcome.output), MAX_ERROR_CHARS) if action.outcome.output else ""
        if action.question:
            question = clip(action.question, MAX_ERROR_CHARS)
            lines.append(f'"{question}" → {answer}' if action.outcome.output else f'"{question}"')
    return lines


_STATUS_BOXES = {"completed": "[x]", "done": "[x]", "in_progress": "[>]", "cancelled": "[-]"}


def _format_plan(actions: Sequence[ChainAction]) -> list[str]:
    """Return the steps of the latest plan that lists steps; if none does, return the intents of all plans."""
    for action in reversed(_select_successful(actions, "plan")):
        for key in ("todos", "plan", "steps", "items", "todoList", "task_list"):
            listed = action.fields.get(key)
            steps = (
                [_format_step(step) for step in listed if isinstance(step, dict)] if isinstance(listed, list) else []
            )
            if any(steps):
                return [step for step in steps if step]
    intents = (action.use.intent for action in _select_successful(actions, "plan") if action.use.intent)
    return _distinct(clip(to_printable_line(intent), MAX_COMMAND_CHARS) for intent in intents)


def _format_step(step: dict[str, Any]) -> str:
    keys = ("content", "step", "title", "subject", "description", "text")
    text = next((to_printable_line(step[key]) for key in keys if isinstance(step.get(key), str)), "")
    return f"{_STATUS_BOXES.get(str(step.get('status')), '[ ]')} {clip(text, MAX_COMMAND_CHARS)}" if text else ""


def _format_other_tools(actions: Sequence[ChainAction]) -> list[str]:
    names: dict[str, int] = {}
    for action in _select_successful(actions, "mcp", "other", "analysis"):
        name = to_printable_line(action.call.name)
        names[name] = names.get(name, 0) + 1
    return [f"{name} ({times} times)" if times > 1 else name for name, times in names.items() if name]
