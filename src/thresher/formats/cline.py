"""Cline, Roo Code and Kilo Code: one JSON document a conversation.

In the editor a task is a plain list of messages in Anthropic's shape, with files beside it that tell the rest
(`cline_beside`). In the Cline CLI, and in the editor since it runs on the same core, the list stands in a document that
names its session; a sub-agent's document names the session that started it. Calls are blocks of their own, or XML in
the model's words (`xml_calls`); a conversation that once had blocks has no calls in its words any more.

A summary starts a segment. Roo keeps what it stands for in the file, and shows the model the first message again where
the summary is an assistant's; where it only cut, it leaves a marker, and the last of them starts a segment, too. Cline
notes beside the list which messages it no longer sends, and its core the messages that it sends instead. A document
has no lines: a message's place is its number in it.
"""

import re
import sys
from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from msgspec import structs

from thresher.errors import ReadError
from thresher.formats.cline_beside import TASK_FILES, Beside, Compaction, Request, beside, bills
from thresher.formats.cline_blocks import parts_of, thoughts_of, usage_of
from thresher.formats.loose import at, fields, items, text
from thresher.formats.source import SourceFile
from thresher.formats.transcript import TITLE, Home, TranscriptFormat, timestamp
from thresher.formats.xml_calls import header_of, ids_by_place, sort_answers, split_calls
from thresher.model import History, Message, Session, Source, Summary, Text, Thinking, ToolCall, ToolResult
from thresher.model.marks import human_text
from thresher.model.parts import Part

NAME = "cline"

CHILDREN = ("subagent", "teammate")
AGENTS = ("lead", *CHILDREN)
HOSTS = ("Code", "Code - Insiders", "VSCodium", "Cursor", "Windsurf")
SERVERS = (".vscode-server", ".vscode-server-insiders", ".vscode-remote", ".cursor-server", ".windsurf-server")
LOOKED_AT = 12
"""Messages at the start that tell whose they are."""

_EDITOR = re.compile(r"\s*<environment_details>")
_MODEL = re.compile(r"<model>([^<\n]{1,200})</model>")
_FOLDER = re.compile(r"^# Current (?:Working|Workspace) Directory \(([^\n]{1,1000})\) Files", re.MULTILINE)
_COMPACTED = re.compile(r"\s*<system_notice>\s*Earlier context was compacted", re.IGNORECASE)


def read(source: SourceFile) -> list[Session]:
    """One conversation."""
    document = source.take_document()
    rows = document.get("messages") if isinstance(document, dict) else document
    if not isinstance(rows, list):
        raise ReadError(f"`{source.path}` holds no list of messages; is it a task or a session of Cline?")
    head = fields(document)
    told = beside(source)
    owner = text(head.get("sessionId"))
    is_child = told.is_child or (head.get("agent") in CHILDREN and bool(owner))
    reading = Reading(source, str(source.path), told, rows, is_child=is_child)
    segments, compactions = _segments(reading, rows, told)
    segments = _with_system(segments, text(head.get("system_prompt")), str(source.path))
    times = [message.time for segment in segments for message in segment if message.time]
    if reading.renamed:
        source.problem(f"{reading.renamed} calls have no id of their own", "named by their place")
    return [
        Session(
            agent=NAME,
            id=_id(source, owner, is_child=head.get("agent") in CHILDREN),
            file=str(source.path),
            segments=tuple(History(tuple(segment)) for segment in segments),
            problems=tuple(source.problems),
            files=told.files,
            compactions=compactions,
            records=_records(rows),
            project=told.project or reading.project,
            title=(told.title.strip() or _first_words(segments))[:TITLE],
            version=told.version,
            parent=owner if head.get("agent") in CHILDREN else told.parent,
            started=min(times, default=None),
            ended=max(times, default=None),
        )
    ]


def _id(source: SourceFile, owner: str, *, is_child: bool) -> str:
    """A session's own id; a task is called after its folder, a sub-agent after its owner and its file."""
    stem = source.path.name.split(".")[0]
    if owner:
        return f"{owner}__{stem}" if is_child else owner
    return source.path.parent.name if source.path.name in TASK_FILES else stem


def _records(rows: Iterable[Any]) -> dict[str, int]:
    """Messages by role, blocks by type."""
    counts: Counter[str] = Counter()
    for row in map(fields, rows):
        counts[text(row.get("role")) or text(row.get("type")) or "?"] += 1
        counts.update(text(fields(block).get("type")) or "?" for block in items(row.get("content")))
    return dict(counts)


def _first_words(segments: Iterable[Sequence[Message]]) -> str:
    """What was asked first: a title for a session that has none."""
    asked = (m for segment in segments for m in segment if m.role == "user" and m.author in ("human", "model"))
    said = (human_text(part.text) for message in asked for part in message.parts if isinstance(part, Text))
    return next(filter(None, said), "")


# Segments


def _segments(reading: "Reading", rows: Sequence[Any], told: Beside) -> tuple[list[list[Message]], int]:
    """The conversation as it went on from each summary and each cut, and how many summaries there are."""
    segments: list[list[Message]] = [[]]
    compactions = 0
    hidden = _hidden(rows)
    cut = max((n for n, row in enumerate(rows, 1) if fields(row).get("isTruncationMarker") is True), default=0)
    for number, row in enumerate(map(fields, rows), 1):
        messages = reading.take(number, row)
        if _is_summary(row):
            shown = reading.first if row.get("role") == "assistant" and 1 not in hidden and number > 1 else []
            segments.append([*messages, *_carried(shown)])
        elif number == cut:
            segments.append([*_carried(m for m in segments[-1] if _number(m) not in hidden), *messages])
        else:
            segments[-1] += messages
        compactions += _is_summary(row) or at(row, "metadata", "kind") == "compaction"
        if number == told.deleted and 2 < number < len(rows) - 1:
            segments.append(_carried(m for m in segments[0] if _number(m) <= 2))
        if told.compaction and number == told.compaction.replaced:
            segments.append(_instead(reading, told.compaction, {m.id for segment in segments for m in segment}))
            compactions += 1
    return [segment for segment in segments if segment] or [[]], compactions


def _is_summary(row: dict[str, Any]) -> bool:
    return row.get("isSummary") is True or at(row, "metadata", "kind") == "compaction_summary"


def _hidden(rows: Sequence[Any]) -> set[int]:
    """The messages that a summary or a marker stands for, by number."""
    wires = list(map(fields, rows))
    ids = {text(wire.get(key)) for wire in wires for key in ("condenseId", "truncationId")} - {""}
    keys = ("condenseParent", "truncationParent")
    return {number for number, wire in enumerate(wires, 1) if any(text(wire.get(key)) in ids for key in keys)}


def _carried(messages: Iterable[Message]) -> list[Message]:
    return [structs.replace(message, carried=True) for message in messages]


def _number(message: Message) -> int:
    return message.source.line if message.source else 0


def _instead(reading: "Reading", compaction: Compaction, said: set[str]) -> list[Message]:
    """What the core sends instead of the messages so far: a summary, and some of them again."""
    inner = Reading(reading.source, str(compaction.file), Beside(), compaction.rows, is_child=False)
    found = [m for number, row in enumerate(compaction.rows, 1) for m in inner.take(number, fields(row))]
    return [structs.replace(m, carried=not isinstance(m.parts[0], Summary) and m.id in said) for m in found]


def _with_system(segments: list[list[Message]], prompt: str, file: str) -> list[list[Message]]:
    if not prompt:
        return segments
    system = Message("system", (Text(prompt),), author="harness", id="system", source=Source(file, 0))
    again = structs.replace(system, carried=True)
    return [[again if number else system, *segment] for number, segment in enumerate(segments)]


# Messages


class Reading:
    """One list of messages, taken one by one: a user's answers the calls of the assistant's before it."""

    def __init__(self, source: SourceFile, file: str, told: Beside, rows: Sequence[Any], *, is_child: bool) -> None:
        """Nothing is read yet; the bills are at hand."""
        self.source, self.file, self.told = source, file, told
        self.is_prompted = not is_child
        answers = [(n, _time(row)) for n, row in enumerate(rows, 1) if fields(row).get("role") == "assistant"]
        self.bills = bills(told.requests, [(n, time) for n, time in answers if not _is_summary(fields(rows[n - 1]))])
        self.first: list[Message] = []
        self.project, self.model = "", ""
        self.renamed = 0
        self._has_blocks = False
        self._ids: set[str] = set()
        self._names: dict[str, str] = {}
        self._taken: set[str] = set()
        self._waiting: OrderedDict[str, None] = OrderedDict()  # of a dict, the oldest is found slower and slower
        self._open: list[ToolCall] = []

    def take(self, number: int, row: dict[str, Any]) -> list[Message]:
        """A message as it stands in the list: one, or the results in it and what else was said."""
        try:
            found = self._found(number, row, parts_of(row))
        except RecursionError:
            self.source.problem("a message is nested too deep to follow", "skipped", number)
            return []
        id_, time = self._id(number, text(row.get("id"))), _time(row) or self._billed_time(number)
        place = Source(self.file, number)
        messages = [
            structs.replace(m, id=id_ if m.role != "tool" else f"{id_}-results", time=time, source=place)
            for m in found
            if m.parts
        ]
        if not messages:
            self.source.problem("a message is empty, or none", "skipped", number)
        self.first = messages if number == 1 else self.first
        return messages

    def _id(self, number: int, said: str) -> str:
        """The id that a message came with, if no other has the same; else its place."""
        id_ = said if said and said not in self._ids else f"{number}"
        while id_ in self._ids:
            id_ += "-"
        self._ids.add(id_)
        return id_

    def _billed_time(self, number: int) -> datetime | None:
        """When a message was sent, or answered: a request knows."""
        request = self.bills.get(number) or self.bills.get(number + 1)
        return request.time if request else None

    def _found(self, number: int, row: dict[str, Any], parts: list[Part]) -> list[Message]:
        if _is_summary(row):
            return _summary(parts)
        match row.get("role") or row.get("type"):
            case "assistant" | "reasoning":
                return [self._said(number, row, parts)]
            case "system":
                return [Message("system", tuple(parts), author="harness")]
            case role:
                is_cut = row.get("isTruncationMarker") is True
                return self._told(parts, is_known=role in ("user", "tool") and not is_cut)

    def _said(self, number: int, row: dict[str, Any], parts: list[Part]) -> Message:
        ids = (id_ for id_ in ids_by_place(number) if id_ not in self._taken)
        self._has_blocks = self._has_blocks or any(isinstance(part, ToolCall) for part in parts)
        written: list[Part] = [] if any(isinstance(part, Thinking) for part in parts) else thoughts_of(row)
        for part in parts:
            if isinstance(part, Text) and not self._has_blocks:
                written += split_calls(part.text, ids)
            else:
                written.append(self._named(part, ids) if isinstance(part, ToolCall) else part)
        calls = [part for part in written if isinstance(part, ToolCall)]
        self._open = [] if self._has_blocks else calls
        self._taken.update(call.id for call in calls)
        request = self.bills.get(number)
        model = text(at(row, "modelInfo", "id")) or text(at(row, "modelInfo", "modelId"))
        return Message(
            "assistant",
            tuple(written),
            author="model",
            model=model or self._model(request, _time(row)),
            usage=usage_of(row.get("metrics")) or (request.usage if request else None),
        )

    def _model(self, request: Request | None, time: datetime | None) -> str:
        return (request.model if request else "") or self.model or self.told.model_at(time)

    def _named(self, call: ToolCall, ids: Iterator[str]) -> ToolCall:
        """A call with an id that no other has."""
        id_ = call.id if call.id and call.id not in self._taken else next(ids)
        self.renamed += id_ != call.id
        if call.id:
            self._names[call.id] = id_
        self._taken.add(id_)
        self._waiting[id_] = None
        return structs.replace(call, id=id_)

    def _told(self, parts: list[Part], *, is_known: bool) -> list[Message]:
        """What a tool gave, and what a person, or the harness in their name, said."""
        answers = [self._answer(part) for part in parts if isinstance(part, ToolResult)]
        results, rest, author = sort_answers((p for p in parts if not isinstance(p, ToolResult)), self._open)
        self._open = []
        for part in rest:
            self._look(part)
        if not is_known:
            author = "harness"
        elif author == "human" and rest and not self.is_prompted:
            author, self.is_prompted = "model", True
        shown = tuple(Summary(p.text) if isinstance(p, Text) and _COMPACTED.match(p.text) else p for p in rest)
        return [Message("tool", (*answers, *results), author="tool"), Message("user", shown, author=author)]

    def _answer(self, result: ToolResult) -> ToolResult:
        """A result with the name that its call has here; without one it answers the oldest call."""
        id_ = self._names.get(result.call_id) or result.call_id or next(iter(self._waiting), "")
        self._waiting.pop(id_, None)
        return structs.replace(result, call_id=id_)

    def _look(self, part: Part) -> None:
        """What the editor's state tells: the folder, and in Roo the model that is asked next."""
        if isinstance(part, Text) and _EDITOR.match(part.text):
            folder, model = _FOLDER.search(part.text), _MODEL.search(part.text)
            self.project = self.project or (folder[1] if folder else "")
            self.model = model[1].strip() if model else self.model


def _time(row: Any) -> datetime | None:
    return timestamp(fields(row).get("ts"))


def _summary(parts: Iterable[Part]) -> list[Message]:
    """A summary, and the calls that were kept with it for the results that follow."""
    shown: list[Part] = []
    calls: list[Part] = []
    is_said = False
    for part in parts:
        if isinstance(part, ToolCall):
            calls.append(part)
        elif isinstance(part, Thinking) or (isinstance(part, Text) and not is_said):
            shown.append(Summary(part.text))
            is_said = isinstance(part, Text)
        else:  # what Roo puts behind it: the state of the editor, outlines of files
            shown.append(part)
    again = Message("assistant", tuple(calls), author="model", carried=True)
    return [Message("user", tuple(shown), author="harness"), again]


# Which files


def sniff(source: SourceFile) -> int:
    """A document that names its session, a list that has a task's name, or one in which the editor speaks."""
    document = source.document
    if isinstance(document, dict) and isinstance(document.get("messages"), list):
        if document.get("agent") in AGENTS and isinstance(document.get("sessionId"), str):
            return 3 if "updated_at" in document else 2
        document = document["messages"] if document.get("version") == 2 else None
    if not isinstance(document, list):
        return 0
    rows = [row for row in document[:LOOKED_AT] if isinstance(row, dict) and "content" in row and "role" in row]
    if source.path.name in TASK_FILES:
        return 3 if rows or not document else 0
    said = [one for row in rows if row["role"] == "user" for one in _texts(row["content"])]
    if any(_EDITOR.match(one) or header_of(one) for one in said):
        return 3
    timed = any(type(row.get("ts")) in (int, float) for row in rows)
    return 2 if timed or any(one.lstrip().startswith("<task>") for one in said) else 0


def _texts(content: Any) -> list[str]:
    blocks = [content] if isinstance(content, str) else items(content)
    return [block if isinstance(block, str) else text(fields(block).get("text")) for block in blocks]


def homes(environment: Mapping[str, str], home: Path) -> list[Home]:
    """Below the editors' own folders, on this machine and as a remote host; the folders of the command lines."""
    if sys.platform == "darwin":
        root = home / "Library" / "Application Support"
    elif sys.platform == "win32":
        root = Path(environment.get("APPDATA") or home / "AppData" / "Roaming")
    else:
        root = Path(environment.get("XDG_CONFIG_HOME") or home / ".config")
    users = [*(root / host / "User" for host in HOSTS), *(home / server / "data" / "User" for server in SERVERS)]
    data = Path(environment.get("CLINE_DATA_DIR") or Path(environment.get("CLINE_DIR") or home / ".cline") / "data")
    sessions = Path(environment.get("CLINE_SESSION_DATA_DIR") or data / "sessions")
    return [
        *(Home(user / "globalStorage", f"*/tasks/*/{TASK_FILES[0]}") for user in users),
        Home(data / "tasks", f"*/{TASK_FILES[0]}"),
        Home(home / ".kilocode" / "cli" / "global" / "tasks", f"*/{TASK_FILES[0]}"),
        Home(sessions, "*/*.messages.json"),
    ]


FORMAT = TranscriptFormat(
    NAME,
    "Cline, Roo Code, Kilo Code",
    sniff,
    read,
    homes,
    wire="anthropic",
    layouts="a task's `api_conversation_history.json` with what stands beside it; the Cline CLI's `.messages.json`",
    holds=("thinking", "sub-agents", "usage", "times", "edits", "compactions"),
    seen="Roo Code 3.28, the Cline CLI's core of 2026",
)
