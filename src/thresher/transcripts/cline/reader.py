"""Cline, Roo Code and Kilo Code: one JSON document a conversation.

In the editor a task is a plain list of messages in Anthropic's shape, with files beside it that tell the rest
(`sidecars`). In the Cline CLI, and in the editor since it runs on the same core, the list stands in a document that
names its session; a sub-agent's document names the session that started it. Calls are blocks of their own, or XML in
the model's words (`xml_calls`); a conversation that once had blocks has no calls in its words any more.

A summary starts a segment. Roo keeps what it stands for in the file, and shows the model the first message again where
the summary is an assistant's; where it only cut, it leaves a marker, and the last of them starts a segment, too. Cline
notes beside the list which messages it no longer sends, and its core the messages that it sends instead. A document
has no lines: a message's place is its number in it.
"""

import re
from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from thresher.errors import ReadError
from thresher.model import Message, Session, SourceLocation
from thresher.model.harness_text import extract_human_text
from thresher.model.parts import Part, Summary, Text, Thinking, ToolCall, ToolResult
from thresher.transcripts.base import MAX_TITLE_CHARS, TranscriptFormat, make_session, parse_time
from thresher.transcripts.cline.blocks import parse_cline_parts, parse_cline_thinking, parse_cline_usage
from thresher.transcripts.cline.homes import find_cline_homes
from thresher.transcripts.cline.sidecars import (
    TASK_FILES,
    ClineCompaction,
    ClineRequest,
    ClineSidecars,
    match_requests_to_answers,
    read_cline_sidecars,
)
from thresher.transcripts.coerce import as_dict, as_list, first_text, list_at, text_at, value_at
from thresher.transcripts.content import mark_carried, split_results
from thresher.transcripts.source import SourceFile
from thresher.transcripts.xml_calls import generate_call_ids, parse_result_header, sort_xml_answers, split_xml_calls

NAME = "cline"

SUBAGENT_ROLES = ("subagent", "teammate")
AGENTS = ("lead", *SUBAGENT_ROLES)
SNIFFED_MESSAGES = 12
"""Messages at the start that tell whose they are."""

_ENVIRONMENT_DETAILS = re.compile(r"\s*<environment_details>")
_MODEL = re.compile(r"<model>([^<\n]{1,200})</model>")
_FOLDER = re.compile(r"^# Current (?:Working|Workspace) Directory \(([^\n]{1,1000})\) Files", re.MULTILINE)
_COMPACTION_NOTICE = re.compile(r"\s*<system_notice>\s*Earlier context was compacted", re.IGNORECASE)


def _read(source: SourceFile) -> list[Session]:
    """One conversation."""
    document = source.read_document()
    rows = document.get("messages") if isinstance(document, dict) else document
    if not isinstance(rows, list):
        raise ReadError(f"`{source.path}` holds no list of messages; is it a task or a session of Cline?")
    head = as_dict(document)
    told = read_cline_sidecars(source)
    owner = text_at(head, "sessionId")
    is_child = told.is_child or (head.get("agent") in SUBAGENT_ROLES and bool(owner))
    reading = ClineReader(source, source.file, told, rows, is_child=is_child)
    segments, compactions = _build_segments(reading, rows, told)
    segments = _prepend_system_prompt(segments, text_at(head, "system_prompt"), source.file)
    if reading.renamed_calls:
        source.report(f"{reading.renamed_calls} calls have no id of their own", "named by their place")
    return [
        make_session(
            NAME,
            source,
            _session_id(source, owner, is_child=head.get("agent") in SUBAGENT_ROLES),
            segments,
            files=told.files,
            compactions=compactions,
            records=_count_records(rows),
            project=told.project or reading.project,
            title=(told.title.strip() or _find_first_prompt(segments))[:MAX_TITLE_CHARS],
            version=told.version,
            parent=owner if head.get("agent") in SUBAGENT_ROLES else told.parent,
        )
    ]


def _session_id(source: SourceFile, owner: str, *, is_child: bool) -> str:
    """A session's own id; a task is called after its folder, a sub-agent after its owner and its file."""
    if owner:
        return f"{owner}__{source.stem}" if is_child else owner
    return source.path.parent.name if source.path.name in TASK_FILES else source.stem


def _count_records(rows: Iterable[Any]) -> dict[str, int]:
    """Messages by role, blocks by type."""
    counts: Counter[str] = Counter()
    for row in map(as_dict, rows):
        counts[first_text(row, "role", "type") or "?"] += 1
        counts.update(text_at(block, "type") or "?" for block in list_at(row, "content"))
    return dict(counts)


def _find_first_prompt(segments: Iterable[Sequence[Message]]) -> str:
    """What was asked first: a title for a session that has none."""
    asked = (m for segment in segments for m in segment if m.role == "user" and m.author in ("human", "model"))
    said = (extract_human_text(part.text) for message in asked for part in message.parts if isinstance(part, Text))
    return next(filter(None, said), "")


# Segments


def _build_segments(
    reading: "ClineReader", rows: Sequence[Any], told: ClineSidecars
) -> tuple[list[list[Message]], int]:
    """The conversation as it went on from each summary and each cut, and how many summaries there are."""
    segments: list[list[Message]] = [[]]
    compactions = 0
    hidden = _find_hidden_numbers(rows)
    cut = max((n for n, row in enumerate(rows, 1) if value_at(row, "isTruncationMarker") is True), default=0)
    for number, row in enumerate(map(as_dict, rows), 1):
        messages = reading.read_message(number, row)
        if _is_summary(row):
            shown = reading.first_messages if row.get("role") == "assistant" and 1 not in hidden and number > 1 else []
            segments.append([*messages, *mark_carried(shown)])
        elif number == cut:
            segments.append([*mark_carried(m for m in segments[-1] if _message_number(m) not in hidden), *messages])
        else:
            segments[-1] += messages
        compactions += _is_summary(row) or value_at(row, "metadata", "kind") == "compaction"
        if number == told.last_deleted_number and 2 < number < len(rows) - 1:
            segments.append(mark_carried(m for m in segments[0] if _message_number(m) <= 2))
        if told.compaction and number == told.compaction.replaced_count:
            said = {m.id for segment in segments for m in segment}
            segments.append(_build_compacted_messages(reading, told.compaction, said))
            compactions += 1
    return [segment for segment in segments if segment] or [[]], compactions


def _is_summary(row: dict[str, Any]) -> bool:
    return row.get("isSummary") is True or value_at(row, "metadata", "kind") == "compaction_summary"


def _find_hidden_numbers(rows: Sequence[Any]) -> set[int]:
    """The messages that a summary or a marker stands for, by number."""
    wires = list(map(as_dict, rows))
    ids = {text_at(wire, key) for wire in wires for key in ("condenseId", "truncationId")} - {""}
    keys = ("condenseParent", "truncationParent")
    return {number for number, wire in enumerate(wires, 1) if any(text_at(wire, key) in ids for key in keys)}


def _message_number(message: Message) -> int:
    return message.source.line if message.source else 0


def _build_compacted_messages(reading: "ClineReader", compaction: ClineCompaction, said: set[str]) -> list[Message]:
    """What the core sends instead of the messages so far: a summary, and some of them again."""
    inner = ClineReader(reading.source, str(compaction.file), ClineSidecars(), compaction.rows, is_child=False)
    found = [m for number, row in enumerate(compaction.rows, 1) for m in inner.read_message(number, as_dict(row))]
    return [replace(m, carried=not isinstance(m.parts[0], Summary) and m.id in said) for m in found]


def _prepend_system_prompt(segments: list[list[Message]], prompt: str, file: str) -> list[list[Message]]:
    if not prompt:
        return segments
    system = Message("system", (Text(prompt),), author="harness", id="system", source=SourceLocation(file, 0))
    again = replace(system, carried=True)
    return [[again if number else system, *segment] for number, segment in enumerate(segments)]


# Messages


class ClineReader:
    """One list of messages, taken one by one: a user's answers the calls of the assistant's before it."""

    def __init__(
        self, source: SourceFile, file: str, told: ClineSidecars, rows: Sequence[Any], *, is_child: bool
    ) -> None:
        """Nothing is read yet; the bills are at hand."""
        self.source, self.file, self.sidecars = source, file, told
        self.has_prompt = not is_child
        answers = [(n, _message_time(row)) for n, row in enumerate(rows, 1) if value_at(row, "role") == "assistant"]
        self.requests_by_answer = match_requests_to_answers(
            told.requests, [(n, time) for n, time in answers if not _is_summary(as_dict(rows[n - 1]))]
        )
        self.first_messages: list[Message] = []
        self.project, self.model = "", ""
        self.renamed_calls = 0
        self._has_call_blocks = False
        self._used_message_ids: set[str] = set()
        self._call_ids_by_given_id: dict[str, str] = {}
        self._used_call_ids: set[str] = set()
        # Of a dict, the oldest is found slower and slower.
        self._unanswered_call_ids: OrderedDict[str, None] = OrderedDict()
        self._open_xml_calls: list[ToolCall] = []

    def read_message(self, number: int, row: dict[str, Any]) -> list[Message]:
        """A message as it stands in the list: one, or the results in it and what else was said."""
        try:
            found = self._build_messages(number, row, parse_cline_parts(row))
        except RecursionError:
            self.source.report("a message is nested too deep to follow", "skipped", number)
            return []
        id_ = self._unique_message_id(number, text_at(row, "id"))
        time, place = _message_time(row) or self._request_time(number), SourceLocation(self.file, number)
        ids = {"tool": f"{id_}-results"}
        messages = [replace(m, id=ids.get(m.role, id_), time=time, source=place) for m in found if m.parts]
        if not messages:
            self.source.report("a message is empty, or none", "skipped", number)
        self.first_messages = messages if number == 1 else self.first_messages
        return messages

    def _unique_message_id(self, number: int, said: str) -> str:
        """The id that a message came with, if no other has the same; else its place."""
        id_ = said if said and said not in self._used_message_ids else f"{number}"
        while id_ in self._used_message_ids:
            id_ += "-"
        self._used_message_ids.add(id_)
        return id_

    def _request_time(self, number: int) -> datetime | None:
        """When a message was sent, or answered: a request knows."""
        request = self.requests_by_answer.get(number) or self.requests_by_answer.get(number + 1)
        return request.time if request else None

    def _build_messages(self, number: int, row: dict[str, Any], parts: list[Part]) -> list[Message]:
        if _is_summary(row):
            return _build_summary_messages(parts)
        match row.get("role") or row.get("type"):
            case "assistant" | "reasoning":
                return [self._build_assistant_message(number, row, parts)]
            case "system":
                return [Message("system", tuple(parts), author="harness")]
            case role:
                is_cut = row.get("isTruncationMarker") is True
                return self._build_user_messages(parts, is_known=role in ("user", "tool") and not is_cut)

    def _build_assistant_message(self, number: int, row: dict[str, Any], parts: list[Part]) -> Message:
        ids = (id_ for id_ in generate_call_ids(number) if id_ not in self._used_call_ids)
        self._has_call_blocks = self._has_call_blocks or any(isinstance(part, ToolCall) for part in parts)
        written: list[Part] = [] if any(isinstance(part, Thinking) for part in parts) else parse_cline_thinking(row)
        for part in parts:
            if isinstance(part, Text) and not self._has_call_blocks:
                written += split_xml_calls(part.text, ids)
            else:
                written.append(self._with_unique_id(part, ids) if isinstance(part, ToolCall) else part)
        calls = [part for part in written if isinstance(part, ToolCall)]
        self._open_xml_calls = [] if self._has_call_blocks else calls
        self._used_call_ids.update(call.id for call in calls)
        request = self.requests_by_answer.get(number)
        model = text_at(row, "modelInfo", "id") or text_at(row, "modelInfo", "modelId")
        return Message(
            "assistant",
            tuple(written),
            author="model",
            model=model or self._choose_model(request, _message_time(row)),
            usage=parse_cline_usage(row.get("metrics")) or (request.usage if request else None),
        )

    def _choose_model(self, request: ClineRequest | None, time: datetime | None) -> str:
        return (request.model if request else "") or self.model or self.sidecars.model_at(time)

    def _with_unique_id(self, call: ToolCall, ids: Iterator[str]) -> ToolCall:
        """A call with an id that no other has."""
        id_ = call.id if call.id and call.id not in self._used_call_ids else next(ids)
        self.renamed_calls += id_ != call.id
        if call.id:
            self._call_ids_by_given_id[call.id] = id_
        self._used_call_ids.add(id_)
        self._unanswered_call_ids[id_] = None
        return replace(call, id=id_)

    def _build_user_messages(self, parts: list[Part], *, is_known: bool) -> list[Message]:
        """What a tool gave, and what a person, or the harness in their name, said."""
        given, others = split_results(parts)
        answers = [self._resolve_result(result) for result in given]
        results, rest, author = sort_xml_answers(others, self._open_xml_calls)
        self._open_xml_calls = []
        for part in rest:
            self._note_environment(part)
        if not is_known:
            author = "harness"
        elif author == "human" and rest and not self.has_prompt:
            author, self.has_prompt = "model", True
        shown = tuple(Summary(p.text) if isinstance(p, Text) and _COMPACTION_NOTICE.match(p.text) else p for p in rest)
        return [Message("tool", (*answers, *results), author="tool"), Message("user", shown, author=author)]

    def _resolve_result(self, result: ToolResult) -> ToolResult:
        """A result with the name that its call has here; without one it answers the oldest call."""
        named = self._call_ids_by_given_id.get(result.call_id) or result.call_id
        id_ = named or next(iter(self._unanswered_call_ids), "")
        self._unanswered_call_ids.pop(id_, None)
        return replace(result, call_id=id_)

    def _note_environment(self, part: Part) -> None:
        """What the editor's state tells: the folder, and in Roo the model that is asked next."""
        if isinstance(part, Text) and _ENVIRONMENT_DETAILS.match(part.text):
            folder, model = _FOLDER.search(part.text), _MODEL.search(part.text)
            self.project = self.project or (folder[1] if folder else "")
            self.model = model[1].strip() if model else self.model


def _message_time(row: Any) -> datetime | None:
    return parse_time(value_at(row, "ts"))


def _build_summary_messages(parts: Iterable[Part]) -> list[Message]:
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


def _sniff(source: SourceFile) -> int:
    """A document that names its session, a list that has a task's name, or one in which the editor speaks."""
    document = source.document
    if isinstance(document, dict) and isinstance(document.get("messages"), list):
        if document.get("agent") in AGENTS and isinstance(document.get("sessionId"), str):
            return 3 if "updated_at" in document else 2
        document = document["messages"] if document.get("version") == 2 else None
    if not isinstance(document, list):
        return 0
    rows = [row for row in document[:SNIFFED_MESSAGES] if isinstance(row, dict) and "content" in row and "role" in row]
    if source.path.name in TASK_FILES:
        return 3 if rows or not document else 0
    said = [one for row in rows if row["role"] == "user" for one in _content_texts(row["content"])]
    if any(_ENVIRONMENT_DETAILS.match(one) or parse_result_header(one) for one in said):
        return 3
    timed = any(type(row.get("ts")) in (int, float) for row in rows)
    return 2 if timed or any(one.lstrip().startswith("<task>") for one in said) else 0


def _content_texts(content: Any) -> list[str]:
    blocks = [content] if isinstance(content, str) else as_list(content)
    return [block if isinstance(block, str) else text_at(block, "text") for block in blocks]


FORMAT = TranscriptFormat(
    NAME,
    "Cline, Roo Code, Kilo Code",
    _sniff,
    _read,
    find_cline_homes,
    wire="anthropic",
    layouts="a task's `api_conversation_history.json` with what stands beside it; the Cline CLI's `.messages.json`",
    holds=("thinking", "sub-agents", "usage", "times", "edits", "compactions"),
    seen="Roo Code 3.28, the Cline CLI's core of 2026",
)
