"""Build messages from a list of rows. Determine the speaker of each row, and find code that a terminal ran.

A row is a message as the file encodes it. A list that matches a dialect is parsed as that dialect. In any other list, a
speaker has a role, is one of several named agents, or is one of two speakers who take turns.
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
from thresher.transcripts.coerce import as_text, dict_at, first_text, text_at
from thresher.transcripts.content import text_parts
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
"""Roles that the dialects use for messages."""


class GenericChat(NamedTuple):
    """A conversation in a file."""

    rows: list[Any]
    metadata: dict[str, Any]
    """The object that contains the conversation."""
    line: int = 0
    """Line number of the conversation; 0 in a document."""
    lines: Sequence[int] = ()
    """Line number of each row, if each row is a line."""
    id: str = ""
    started: datetime | None = None
    calls: tuple[list[Any], ...] = ()
    """Calls as Python source, one list per turn. If there are calls, each row is a list with the messages of a turn."""

    def row_line_number(self, number: int) -> int:
        """Return the line number of a row; `number` counts from 1. In a document, return `number` itself."""
        return self.lines[number - 1] if 0 < number <= len(self.lines) else self.line or number


def build_generic_messages(talk: GenericChat, source: SourceFile) -> list[Message]:
    """Return the messages of a conversation."""
    rows = talk.rows
    dialect = detect_dialect(rows) if rows and not talk.calls and _has_dialect_roles(rows) else None
    if dialect:
        messages = list(dialect.parse(rows))
    else:
        messages = pair_chat_messages(_build_turns(talk) if talk.calls else _read_lenient_rows(talk, source))
    has_system = any(message.role == "system" for message in messages)
    system = None if has_system else _build_system_message(talk.metadata)
    model = first_text(talk.metadata, "model", "model_id")
    return [
        replace(
            message,
            id=message.id or f"{number}",
            source=message.source or source.at(talk.row_line_number(number)),
            model=message.model or (model if message.author == "model" else ""),
        )
        for number, message in enumerate([system, *messages] if system else messages, 0 if system else 1)
        if message.parts
    ]


def _has_dialect_roles(rows: Iterable[Any]) -> bool:
    """Return whether every row has a role that dialects use, and no assistant has a name."""
    return all(
        isinstance(row, dict)
        and text_at(row, "role") in DIALECT_ROLES
        and not (row["role"] == "assistant" and row.get("name"))
        for row in rows
    )


def _build_system_message(metadata: Mapping[str, Any]) -> Message | None:
    prompt = metadata.get("system_prompt") or metadata.get("system")
    if isinstance(prompt, dict):
        labeled = ((f"[{name}]", text) for name, text in prompt.items() if isinstance(text, str))
        parts = tuple(Text(text) for pair in labeled for text in pair)
    else:
        parts = text_parts(as_text(prompt))
    return Message("system", parts, author="harness") if parts else None


def _build_turns(talk: GenericChat) -> Iterator[Message]:
    """Yield the messages of each turn: a person's messages, and one message with the expected calls."""
    for turn, calls in zip(talk.rows, talk.calls, strict=True):
        yield from (parse_lenient_row(row, parse_speaker(row)) for row in turn)
        parsed = (parse_python_call(call) for call in calls if isinstance(call, str))
        yield Message("assistant", tuple(filter(None, parsed)), author="model")


def _read_lenient_rows(talk: GenericChat, source: SourceFile) -> list[Message]:
    numbered = enumerate(talk.rows, 1)
    rows = [(number, row) for number, row in numbered if isinstance(row, dict) and has_message_content(row)]
    if len(rows) < len(talk.rows):
        what = f"{len(talk.rows) - len(rows)} of {len(talk.rows)} rows are not messages, or are empty"
        source.report(what, "skipped", talk.line)
    speakers = _assign_speakers([row for _, row in rows], talk.metadata)
    messages: list[Message] = []
    for (number, row), (who, label) in zip(rows, speakers, strict=True):
        try:
            message = parse_lenient_row(row, who)
        except RecursionError:
            source.report("a message is nested too deeply", "skipped", talk.row_line_number(number))
            continue
        if who.word in TERMINAL_WORDS and messages:
            messages[-1] = _with_code_call(messages[-1])
        if label and message.role == "assistant" and who.note != "thought" and message.parts:
            message = replace(message, parts=(Text(f"[{label}]"), *message.parts))
        location = source.at(talk.row_line_number(number))
        messages.append(replace(message, id=f"{number} {label}".strip(), source=location))
    return messages


def _assign_speakers(rows: list[dict[str, Any]], metadata: Mapping[str, Any]) -> list[tuple[Speaker, str]]:
    """Return the speaker and a label for each row. With several agents, the label is the agent's name, else empty."""
    speakers = [parse_speaker(row) for row in rows]
    if not any(who.role in ("user", "assistant") for who in speakers):
        return _assign_unnamed_roles(rows, speakers)
    # Agents address each other as users. A user that has a system prompt is an agent.
    agents = dict_at(metadata, "system_prompt")
    speakers = [
        who._replace(role="assistant") if who.role == "user" and who.name in agents else who for who in speakers
    ]
    has_several = len({who.name for who in speakers if who.name and who.role in ("assistant", None)}) > 1
    return [(who, _display_name(who) if has_several else "") for who in speakers]


def _display_name(who: Speaker) -> str:
    name = who.name or ("Assistant" if who.word == "assistant" else "")
    return f"{name} {who.note}" if who.note.startswith("->") else f"{name} ({who.note})" if who.note else name


def _assign_unnamed_roles(rows: list[dict[str, Any]], speakers: list[Speaker]) -> list[tuple[Speaker, str]]:
    """Assign roles to rows without roles: the first speaker is the user.

    If a name is missing, two speakers take turns.
    """
    names = [who.name or text_at(row, "id") for who, row in zip(speakers, rows, strict=True)]
    if not all(names):
        names = [str(number % 2) for number in range(len(rows))]
    return [(Speaker("user" if name == names[0] else "assistant", "", ""), "") for name in names]


_CODE_BLOCK = re.compile(r"```[ \t]*(?P<language>\w+)[ \t]*\r?\n(?P<code>.*?)```", re.DOTALL)
_PYTHON, _SHELL = ("python", "code"), ("bash", "command")
_RUNNABLE_LANGUAGES = {"python": _PYTHON, "py": _PYTHON, "sh": _SHELL, "bash": _SHELL}


def _with_code_call(message: Message) -> Message:
    """Convert the only runnable code block in a message to a call. The next row has the output of this code."""
    parts: list[Part] = []
    for part in message.parts:
        blocks = list(_CODE_BLOCK.finditer(part.text)) if isinstance(part, Text) else []
        blocks = [block for block in blocks if block["language"].lower() in _RUNNABLE_LANGUAGES]
        if len(blocks) != 1 or not isinstance(part, Text):
            parts.append(part)
            continue
        name, key = _RUNNABLE_LANGUAGES[blocks[0]["language"].lower()]
        before, after = part.text[: blocks[0].start()].rstrip(), part.text[blocks[0].end() :].strip()
        parts += [*text_parts(before), *text_parts(after), ToolCall("", name, dump_json({key: blocks[0]["code"]}))]
    has_one_call = sum(isinstance(part, ToolCall) for part in parts) == 1
    return replace(message, parts=tuple(parts)) if has_one_call and message.role == "assistant" else message
