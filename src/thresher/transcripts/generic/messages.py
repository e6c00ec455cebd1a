"""From a list of rows that are almost messages to messages: who speaks, and which code a terminal has run.

A list that is what an API takes is read as that API's. In any other, a speaker is known by a role, or is one of several
agents that go by their names, or one of two who only take turns.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from msgspec.structs import replace

from thresher.dialects.intake import detect_dialect
from thresher.model import Message
from thresher.model.jsontext import dump_json
from thresher.model.parts import Part, Text, ToolCall
from thresher.transcripts.coerce import dict_at, first_text, text_at
from thresher.transcripts.lenient_parser import (
    TERMINAL_WORDS,
    Speaker,
    has_message_content,
    parse_lenient_row,
    parse_python_call,
    parse_speaker,
)
from thresher.transcripts.pairing import pair_chat_messages
from thresher.transcripts.source import SourceFile

DIALECT_ROLES = frozenset(("system", "developer", "user", "assistant", "tool", "function", "model"))
"""What APIs call those who speak."""


class GenericChat(NamedTuple):
    """A conversation that was found."""

    rows: list[Any]
    metadata: dict[str, Any]
    """The object it stands in."""
    line: int = 0
    """Where it stands; 0 in a document."""
    lines: Sequence[int] = ()
    """Where each row stands, if they are lines of their own."""
    id: str = ""
    started: datetime | None = None
    calls: tuple[list[Any], ...] = ()
    """Calls told as source, those of a turn together; each row is then a turn."""

    def row_line_number(self, number: int) -> int:
        """Where a row stands, by its number from 1; in a document, that number."""
        return self.lines[number - 1] if 0 < number <= len(self.lines) else self.line or number


def build_generic_messages(talk: GenericChat, source: SourceFile) -> list[Message]:
    """The messages of a conversation."""
    rows = talk.rows
    wire = detect_dialect(rows) if rows and not talk.calls and _has_dialect_roles(rows) else None
    if wire:
        said = list(wire.parse(rows))
    elif talk.calls:
        said = pair_chat_messages(_build_turns(talk))
    else:
        said = pair_chat_messages(_read_lenient_rows(talk, source))
    system = _build_system_message(talk.metadata) if not any(message.role == "system" for message in said) else None
    model = first_text(talk.metadata, "model", "model_id")
    return [
        replace(
            message,
            id=message.id or f"{number}",
            source=message.source or source.at(talk.row_line_number(number)),
            model=message.model or (model if message.author == "model" else ""),
        )
        for number, message in enumerate([system, *said] if system else said, 0 if system else 1)
        if message.parts
    ]


def _has_dialect_roles(rows: Iterable[Any]) -> bool:
    """Whether all roles are an API's own, and no agent has a name."""
    return all(
        isinstance(row, dict)
        and text_at(row, "role") in DIALECT_ROLES
        and not (row["role"] == "assistant" and row.get("name"))
        for row in rows
    )


def _build_system_message(facts: Mapping[str, Any]) -> Message | None:
    told = facts.get("system_prompt") or facts.get("system")
    if isinstance(told, dict):
        each = ((f"[{name}]", prompt) for name, prompt in told.items() if isinstance(prompt, str))
        parts = tuple(Text(part) for pair in each for part in pair)
    else:
        parts = (Text(told),) if isinstance(told, str) and told else ()
    return Message("system", parts, author="harness") if parts else None


def _build_turns(talk: GenericChat) -> Iterator[Message]:
    """Each turn: what a person asks, and the calls that answer it."""
    for turn, calls in zip(talk.rows, talk.calls, strict=True):
        yield from (parse_lenient_row(row, parse_speaker(row)) for row in turn)
        called = (parse_python_call(call) for call in calls if isinstance(call, str))
        yield Message("assistant", tuple(filter(None, called)), author="model")


def _read_lenient_rows(talk: GenericChat, source: SourceFile) -> list[Message]:
    numbered = enumerate(talk.rows, 1)
    rows = [(number, row) for number, row in numbered if isinstance(row, dict) and has_message_content(row)]
    if len(rows) < len(talk.rows):
        what = f"{len(talk.rows) - len(rows)} of {len(talk.rows)} rows are no messages, or say nothing"
        source.report(what, "skipped", talk.line)
    cast = _assign_speakers([row for _, row in rows], talk.metadata)
    messages: list[Message] = []
    for (number, row), (who, shown) in zip(rows, cast, strict=True):
        try:
            message = parse_lenient_row(row, who)
        except RecursionError:
            source.report("a message is nested too deep to follow", "skipped", talk.row_line_number(number))
            continue
        if who.word in TERMINAL_WORDS and messages:
            messages[-1] = _with_code_call(messages[-1])
        if shown and message.role == "assistant" and who.note != "thought" and message.parts:
            message = replace(message, parts=(Text(f"[{shown}]"), *message.parts))
        place = source.at(talk.row_line_number(number))
        messages.append(replace(message, id=f"{number} {shown}".strip(), source=place))
    return messages


def _assign_speakers(rows: list[dict[str, Any]], facts: Mapping[str, Any]) -> list[tuple[Speaker, str]]:
    """Who speaks each row, and by which name they are shown: agents are named where there are several."""
    seen = [parse_speaker(row) for row in rows]
    if not any(who.role in ("user", "assistant") for who in seen):
        return _assign_unnamed_roles(rows, seen)
    # Agents see each other as users; one that was given a prompt of its own is no person.
    known = dict_at(facts, "system_prompt")
    seen = [who._replace(role="assistant") if who.role == "user" and who.name in known else who for who in seen]
    several = len({who.name for who in seen if who.name and who.role in ("assistant", None)}) > 1
    return [(who, _display_name(who) if several else "") for who in seen]


def _display_name(who: Speaker) -> str:
    name = who.name or ("Assistant" if who.word == "assistant" else "")
    return f"{name} {who.note}" if who.note.startswith("->") else f"{name} ({who.note})" if who.note else name


def _assign_unnamed_roles(rows: list[dict[str, Any]], seen: list[Speaker]) -> list[tuple[Speaker, str]]:
    """Nobody has a role: the one who speaks first asks, the others answer. Without names they take turns."""
    names = [who.name or text_at(row, "id") for who, row in zip(seen, rows, strict=True)]
    if not all(names):
        names = [str(number % 2) for number in range(len(rows))]
    return [(Speaker("user" if name == names[0] else "assistant", "", ""), "") for name in names]


_CODE_BLOCK = re.compile(r"```[ \t]*(?P<language>\w+)[ \t]*\r?\n(?P<code>.*?)```", re.DOTALL)
_PYTHON, _SHELL = ("python", "code"), ("bash", "command")
_RUNNABLE_LANGUAGES = {"python": _PYTHON, "py": _PYTHON, "sh": _SHELL, "bash": _SHELL}


def _with_code_call(message: Message) -> Message:
    """The one block of code in a message as a call, where a terminal answers it."""
    parts: list[Part] = []
    for part in message.parts:
        found = list(_CODE_BLOCK.finditer(part.text)) if isinstance(part, Text) else []
        runs = [block for block in found if block["language"].lower() in _RUNNABLE_LANGUAGES]
        if len(runs) != 1 or not isinstance(part, Text):
            parts.append(part)
            continue
        name, key = _RUNNABLE_LANGUAGES[runs[0]["language"].lower()]
        before, after = part.text[: runs[0].start()].rstrip(), part.text[runs[0].end() :].strip()
        call = ToolCall("", name, dump_json({key: runs[0]["code"]}))
        parts += [*([Text(before)] if before else []), *([Text(after)] if after else []), call]
    one = sum(isinstance(part, ToolCall) for part in parts) == 1
    return replace(message, parts=tuple(parts)) if one and message.role == "assistant" else message
