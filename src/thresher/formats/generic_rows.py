"""From a list of rows that are almost messages to messages: who speaks, and which code a terminal has run.

A list that is what an API takes is read as that API's. In any other, a speaker is known by a role, or is one of several
agents that go by their names, or one of two who only take turns.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from msgspec import structs

from thresher.formats.loose import fields, text
from thresher.formats.loose_messages import TERMINALS, Speaker, call_from_source, has_content, read_row, speaker
from thresher.formats.reading import best_wire
from thresher.formats.settling import settled
from thresher.formats.source import SourceFile
from thresher.model import Message, Source, Text, ToolCall
from thresher.model.jsontext import dump
from thresher.model.parts import Part

WIRE_ROLES = frozenset(("system", "developer", "user", "assistant", "tool", "function", "model"))
"""What APIs call those who speak."""


class Talk(NamedTuple):
    """A conversation that was found."""

    rows: list[Any]
    facts: dict[str, Any]
    """The object it stands in."""
    line: int = 0
    """Where it stands; 0 in a document."""
    lines: Sequence[int] = ()
    """Where each row stands, if they are lines of their own."""
    id: str = ""
    started: datetime | None = None
    calls: tuple[list[Any], ...] = ()
    """Calls told as source, those of a turn together; each row is then a turn."""

    def line_of(self, number: int) -> int:
        """Where a row stands, by its number from 1; in a document, that number."""
        return self.lines[number - 1] if 0 < number <= len(self.lines) else self.line or number


def messages_of(talk: Talk, source: SourceFile) -> list[Message]:
    """The messages of a conversation."""
    rows = talk.rows
    wire = best_wire(rows) if rows and not talk.calls and _is_wire(rows) else None
    if wire:
        said = list(wire.parse(rows))
    elif talk.calls:
        said = settled(_turns(talk))
    else:
        said = settled(_loose(talk, source))
    system = _system(talk.facts) if not any(message.role == "system" for message in said) else None
    model = text(talk.facts.get("model")) or text(talk.facts.get("model_id"))
    return [
        structs.replace(
            message,
            id=message.id or f"{number}",
            source=message.source or Source(str(source.path), talk.line_of(number)),
            model=message.model or (model if message.author == "model" else ""),
        )
        for number, message in enumerate([system, *said] if system else said, 0 if system else 1)
        if message.parts
    ]


def _is_wire(rows: Iterable[Any]) -> bool:
    """Whether all roles are an API's own, and no agent has a name."""
    return all(
        isinstance(row, dict)
        and text(row.get("role")) in WIRE_ROLES
        and not (row["role"] == "assistant" and row.get("name"))
        for row in rows
    )


def _system(facts: Mapping[str, Any]) -> Message | None:
    told = facts.get("system_prompt") or facts.get("system")
    if isinstance(told, dict):
        each = ((f"[{name}]", prompt) for name, prompt in told.items() if isinstance(prompt, str))
        parts = tuple(Text(part) for pair in each for part in pair)
    else:
        parts = (Text(told),) if isinstance(told, str) and told else ()
    return Message("system", parts, author="harness") if parts else None


def _turns(talk: Talk) -> Iterator[Message]:
    """Each turn: what a person asks, and the calls that answer it."""
    for turn, calls in zip(talk.rows, talk.calls, strict=True):
        yield from (read_row(row, speaker(row)) for row in turn)
        called = (call_from_source(call) for call in calls if isinstance(call, str))
        yield Message("assistant", tuple(filter(None, called)), author="model")


def _loose(talk: Talk, source: SourceFile) -> list[Message]:
    rows = [(number, row) for number, row in enumerate(talk.rows, 1) if isinstance(row, dict) and has_content(row)]
    if len(rows) < len(talk.rows):
        what = f"{len(talk.rows) - len(rows)} of {len(talk.rows)} rows are no messages, or say nothing"
        source.problem(what, "skipped", talk.line)
    cast = _cast([row for _, row in rows], talk.facts)
    messages: list[Message] = []
    for (number, row), (who, shown) in zip(rows, cast, strict=True):
        try:
            message = read_row(row, who)
        except RecursionError:
            source.problem("a message is nested too deep to follow", "skipped", talk.line_of(number))
            continue
        if who.word in TERMINALS and messages:
            messages[-1] = _with_code(messages[-1])
        if shown and message.role == "assistant" and who.note != "thought" and message.parts:
            message = structs.replace(message, parts=(Text(f"[{shown}]"), *message.parts))
        place = Source(str(source.path), talk.line_of(number))
        messages.append(structs.replace(message, id=f"{number} {shown}".strip(), source=place))
    return messages


def _cast(rows: list[dict[str, Any]], facts: Mapping[str, Any]) -> list[tuple[Speaker, str]]:
    """Who speaks each row, and by which name they are shown: agents are named where there are several."""
    seen = [speaker(row) for row in rows]
    if not any(who.role in ("user", "assistant") for who in seen):
        return _pair_of_speakers(rows, seen)
    # Agents see each other as users; one that was given a prompt of its own is no person.
    known = fields(facts.get("system_prompt"))
    seen = [who._replace(role="assistant") if who.role == "user" and who.name in known else who for who in seen]
    several = len({who.name for who in seen if who.name and who.role in ("assistant", None)}) > 1
    return [(who, _shown(who) if several else "") for who in seen]


def _shown(who: Speaker) -> str:
    name = who.name or ("Assistant" if who.word == "assistant" else "")
    return f"{name} {who.note}" if who.note.startswith("->") else f"{name} ({who.note})" if who.note else name


def _pair_of_speakers(rows: list[dict[str, Any]], seen: list[Speaker]) -> list[tuple[Speaker, str]]:
    """Nobody has a role: the one who speaks first asks, the others answer. Without names they take turns."""
    names = [who.name or text(row.get("id")) for who, row in zip(seen, rows, strict=True)]
    if not all(names):
        names = [str(number % 2) for number in range(len(rows))]
    return [(Speaker("user" if name == names[0] else "assistant", "", ""), "") for name in names]


_CODE = re.compile(r"```[ \t]*(?P<language>\w+)[ \t]*\r?\n(?P<code>.*?)```", re.DOTALL)
_RUN = {"python": ("python", "code"), "py": ("python", "code"), "sh": ("bash", "command"), "bash": ("bash", "command")}


def _with_code(message: Message) -> Message:
    """The one block of code in a message as a call, where a terminal answers it."""
    parts: list[Part] = []
    for part in message.parts:
        found = list(_CODE.finditer(part.text)) if isinstance(part, Text) else []
        runs = [block for block in found if block["language"].lower() in _RUN]
        if len(runs) != 1 or not isinstance(part, Text):
            parts.append(part)
            continue
        name, key = _RUN[runs[0]["language"].lower()]
        before, after = part.text[: runs[0].start()].rstrip(), part.text[runs[0].end() :].strip()
        call = ToolCall("", name, dump({key: runs[0]["code"]}))
        parts += [*([Text(before)] if before else []), *([Text(after)] if after else []), call]
    one = sum(isinstance(part, ToolCall) for part in parts) == 1
    return structs.replace(message, parts=tuple(parts)) if one and message.role == "assistant" else message
