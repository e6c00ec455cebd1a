"""The summary that needs no model: a ledger of what was done, from the calls and results themselves.

It states facts (files, commands, how they ended) and quotes words; it never rewords, so it cannot be wrong about
what it says, only silent. No clock, no network, linear time: the same members give the same text, always.
"""

import posixpath
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from thresher.model import History, Place, Summary, Text, Thinking, ToolResult
from thresher.model.marks import human_text
from thresher.summarise.changes import Change, changes
from thresher.summarise.deeds import Deed, deed_of
from thresher.summarise.layout import Section, fitted
from thresher.summarise.lines import turns
from thresher.summarise.outcomes import error_line, outcome
from thresher.summarise.speech import opening, worth_keeping
from thresher.summarise.words import clip, line, lines_in, plural

COMMAND = 120
"""Characters of a command."""
ERROR = 160
INTENTS = 3
"""What a file was changed for is told this often."""


@dataclass(frozen=True)
class Extractive:
    """Summarises without a model."""

    name: str = "extractive"
    quotations: int = 12
    """How many sentences of the agent are quoted at most."""

    def __call__(self, history: History, members: Sequence[Place], *, limit: int) -> str:
        """One text that stands for the parts at these places, at most `limit` characters."""
        material = _gathered(history, members)
        deeds = material.deeds
        open_failures, mended = _failures(deeds)
        root = _root(deeds, limit // 8)
        sections = (
            Section("Summarised before", [clip(line(text), max(limit // 2, 40)) for text in material.summaries]),
            Section("Changed", _changed(deeds, root)),
            Section("Failed", [*open_failures, *material.lost_errors], latest=True),
            Section("Said", [f'"{said}"' for said in self._said(material)], latest=True),
            Section("Asked the user", _questions(deeds), latest=True),
            Section("Plan", _plan(deeds), inline=True),
            Section("Asked", [f'"{said}"' for said in map(opening, material.asked) if said]),
            Section("Sub-agents", _distinct(f'"{clip(line(d.use.intent), COMMAND)}"' for d in _of(deeds, "subagent"))),
            Section("Ran", _commands(deeds), latest=True),
            Section("Failed, made good later", mended),
            Section("Read", _reads(deeds, root), inline=True, latest=True),
            Section("Searched", _searches(deeds, root), inline=True, latest=True),
            Section("Other tools", _others(deeds), inline=True),
        )
        return fitted(_head(history, members, deeds) + (f", under {root}" if root else ""), sections, limit)

    def _said(self, material: "_Material") -> list[str]:
        return worth_keeping(material.said, most=self.quotations) or worth_keeping(
            material.thought, most=self.quotations // 4
        )


extractive = Extractive()
"""The default."""


class _Material(NamedTuple):
    deeds: list[Deed]
    lost_errors: list[str]
    """What failed results say whose calls are not known."""
    asked: list[str]
    said: list[str]
    thought: list[str]
    summaries: list[str]


def _gathered(history: History, members: Sequence[Place]) -> _Material:
    wanted = set(members)
    found = {chain.call: chain for place in wanted if (chain := history.chain_at.get(place)) is not None}
    chains = [found[call] for call in sorted(found)]
    deeds = [deed for deed in (deed_of(history, chain, members=wanted) for chain in chains) if deed is not None]
    material = _Material(deeds, [], [], [], [], [])
    for place in sorted(wanted):
        message = history[place.message]
        match history.part(place):
            case Text(text=text) if message.role == "user" and message.author in ("human", "model"):
                material.asked.append(human_text(text))
            case Text(text=text) if message.role == "assistant":
                material.said.append(text)
            case Thinking(text=text):
                material.thought.append(text)
            case Summary(text=text) if line(text):
                material.summaries.append(text)
            case _:
                pass
    for place in history.orphans:
        part = history.part(place) if place in wanted else None
        if isinstance(part, ToolResult) and (end := outcome(part, is_command=True)).failed:
            material.lost_errors.append(clip(error_line(end) or "a call that is not known", ERROR))
    return material


def _head(history: History, members: Sequence[Place], deeds: Sequence[Deed]) -> str:
    spoken = [place for place in members if history[place.message].role != "user"] or members
    numbers = [history.turn(place.message) for place in spoken] or [0]
    when = turns(numbers).capitalize() if history.turns else "Before the first turn"
    return f"{when}: {plural(len(deeds), 'tool call')}" if deeds else f"{when}: {plural(len(members), 'part')}"


def _root(deeds: Sequence[Deed], longest: int) -> str:
    """The folder that all files are in, where naming it once makes the text shorter."""
    paths = [path for path in (line(deed.use.path) for deed in deeds) if path.startswith("/")]
    if len(paths) < 3:
        return ""
    root = posixpath.commonpath(paths).rstrip("/") + "/"
    return root if len(" under ,") < len(root) <= longest else ""


def _of(deeds: Sequence[Deed], *categories: str) -> list[Deed]:
    return [deed for deed in deeds if deed.use.category in categories and not deed.end.failed]


def _distinct(items: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(items))


def _changed(deeds: Sequence[Deed], root: str) -> list[str]:
    """A line a file: how often, how many lines, and what for."""
    found: dict[str, list[Change]] = {}
    intents: dict[str, dict[str, None]] = {}
    for deed in _of(deeds, "file_edit"):
        for change in changes(deed.call, deed.use, deed.fields):
            path = line(change.path).removeprefix(root) or "a file"
            found.setdefault(path, []).append(change)
            if deed.use.intent:
                intents.setdefault(path, {})[line(deed.use.intent)] = None
    return [_file(path, of_it, list(intents.get(path, ()))) for path, of_it in found.items()]


def _file(path: str, found: Sequence[Change], intents: Sequence[str]) -> str:
    written = [change for change in found if change.operation == "write"]
    edits = [change for change in found if change.operation in ("edit", "")]
    ways = [f"written ({plural(written[-1].added, 'line')})"] if written else []
    if edits:
        added, removed = sum(change.added for change in edits), sum(change.removed for change in edits)
        lines = f" (+{added} −{removed} lines)" if added or removed else ""
        ways.append(plural(len(edits), "edit") + lines)
    ways += [word for word, operation in (("moved", "move"), ("deleted", "delete")) if found[-1].operation == operation]
    told = "; ".join(intents[-INTENTS:])
    return f"{path}: {', '.join(ways)}" + (f": {clip(told, ERROR)}" if told else "")


def _subject(deed: Deed) -> str:
    return clip(deed.command, COMMAND) or " ".join(
        filter(None, (line(deed.call.name), line(deed.use.path) or clip(deed.query or line(deed.use.intent), COMMAND)))
    )


def _failures(deeds: Sequence[Deed]) -> tuple[list[str], list[str]]:
    """What failed and stayed so, and what a later call of the same kind made good."""
    still: dict[tuple[str, ...], list[Deed]] = {}
    mended: dict[tuple[str, ...], list[Deed]] = {}
    for deed in deeds:
        if deed.end.failed and not deed.is_silent:
            still.setdefault(deed.key, []).append(deed)
        elif deed.end.known and not deed.end.failed and deed.key in still:
            mended.setdefault(deed.key, []).extend(still.pop(deed.key))
    return [_failure(found) for found in still.values()], [_failure(found) for found in mended.values()]


def _failure(found: Sequence[Deed]) -> str:
    last = found[-1]
    code = f" → exit {last.end.code}" if last.end.code else " →" if error_line(last.end) else ""
    told = f": {clip(error_line(last.end), ERROR)}" if error_line(last.end) else ""
    often = f" ({len(found)} times)" if len(found) > 1 else ""
    return f"{_subject(last)}{often}{code}{told if last.end.code else told.removeprefix(':')}"


def _commands(deeds: Sequence[Deed]) -> list[str]:
    """What ran and did not fail, each command once with its latest end."""
    ran: dict[str, tuple[int, Deed]] = {}
    for deed in deeds:
        if deed.is_command and deed.command and (deed.is_silent or not deed.end.failed):
            text = clip(deed.command, COMMAND)
            ran[text] = (ran[text][0] + 1 if text in ran else 1, deed)
    return [text + _end(deed) + (f" ({times} times)" if times > 1 else "") for text, (times, deed) in ran.items()]


def _end(deed: Deed) -> str:
    if not deed.end.known:
        return ""
    return " → exit 1, no output" if deed.is_silent else " → ok"


def _reads(deeds: Sequence[Deed], root: str) -> list[str]:
    read: dict[str, tuple[int, Deed]] = {}
    for deed in deeds:
        if deed.use.operation == "read" and deed.use.path and not deed.end.failed:
            path = line(deed.use.path).removeprefix(root)
            read[path] = (read[path][0] + 1 if path in read else 1, deed)
    return [_read(path, times, deed) for path, (times, deed) in read.items()]


def _read(path: str, times: int, deed: Deed) -> str:
    facts = [plural(lines_in(deed.end.output), "line")] if deed.end.known else []
    facts += [f"{times} times"] if times > 1 else []
    return f"{path} ({', '.join(facts)})" if facts else path


def _searches(deeds: Sequence[Deed], root: str) -> list[str]:
    found: list[str] = []
    for deed in _of(deeds, "file_read", "web"):
        if deed.use.operation != "read" and deed.query:
            query = clip(deed.query, COMMAND)
            place = f" in {line(deed.use.path).removeprefix(root)}" if deed.use.path else ""
            found.append(query if "://" in query else f'"{query}"{place}')
    return _distinct(found)


def _questions(deeds: Sequence[Deed]) -> list[str]:
    return [
        f'"{clip(deed.question, ERROR)}"' + (f" → {clip(line(deed.end.output), ERROR)}" if deed.end.output else "")
        for deed in _of(deeds, "question")
        if deed.question
    ]


_BOXES = {"completed": "[x]", "done": "[x]", "in_progress": "[>]", "cancelled": "[-]"}


def _plan(deeds: Sequence[Deed]) -> list[str]:
    """The latest list of steps, or else the plan's own words."""
    for deed in reversed(_of(deeds, "plan")):
        for key in ("todos", "plan", "steps", "items", "todoList", "task_list"):
            listed = deed.fields.get(key)
            steps = [_step(one) for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
            if any(steps):
                return [step for step in steps if step]
    return _distinct(clip(line(deed.use.intent), COMMAND) for deed in _of(deeds, "plan") if deed.use.intent)


def _step(one: dict[str, Any]) -> str:
    keys = ("content", "step", "title", "subject", "description", "text")
    told = next((line(one[key]) for key in keys if isinstance(one.get(key), str)), "")
    return f"{_BOXES.get(str(one.get('status')), '[ ]')} {clip(told, COMMAND)}" if told else ""


def _others(deeds: Sequence[Deed]) -> list[str]:
    names: dict[str, int] = {}
    for deed in _of(deeds, "mcp", "other", "analysis"):
        name = line(deed.call.name)
        names[name] = names.get(name, 0) + 1
    return [f"{name} ({times} times)" if times > 1 else name for name, times in names.items() if name]
