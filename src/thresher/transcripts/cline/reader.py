"""Cline, Roo Code and Kilo Code: one JSON document per conversation.

An editor's task is a list of messages in the Anthropic schema. Files in the same folder contain more facts
(`sidecars`). The Cline CLI and newer editor extensions share a core, which stores the list in a document with a session
id. A sub-agent's document contains the id of the session that started the sub-agent. Calls are content blocks or XML in
the model's text (`xml_calls`). After a conversation's first call block, the reader ignores XML calls.

A summary starts a segment. Roo keeps the summarized messages in the file. If Roo's summary is an assistant message, the
model also gets the first message again. If Roo truncates the conversation without a summary, it adds a marker to the
list, and the last marker starts a segment. Cline records the range of messages that it no longer sends. After a
compaction, Cline's core records the messages that it sends in place of the first ones. The line of a source location is
the message's number.
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
from thresher.transcripts.cline.sidecars import TASK_FILES, ClineCompaction, ClineSidecars, read_cline_sidecars
from thresher.transcripts.coerce import as_dict, as_list, first_text, list_at, text_at, value_at
from thresher.transcripts.content import mark_carried, split_results
from thresher.transcripts.source import SourceFile
from thresher.transcripts.xml_calls import generate_call_ids, parse_result_header, sort_xml_answers, split_xml_calls

NAME = "cline"
SUBAGENT_ROLES = ("subagent", "teammate")
AGENTS = ("lead", *SUBAGENT_ROLES)
SNIFFED_MESSAGES = 12
"""Maximum number of messages to check when detecting the format."""

_ENVIRONMENT_DETAILS = re.compile(r"\s*<environment_details>")
_MODEL = re.compile(r"<model>([^<\n]{1,200})</model>")
_FOLDER = re.compile(r"^# Current (?:Working|Workspace) Directory \(([^\n]{1,1000})\) Files", re.MULTILINE)
_COMPACTION_NOTICE = re.compile(r"\s*<system_notice>\s*Earlier context was compacted", re.IGNORECASE)


def _read(source: SourceFile) -> list[Session]:
    """Read one conversation."""
    document = source.read_document()
    rows = document.get("messages") if isinstance(document, dict) else document
    if not isinstance(rows, list):
        raise ReadError(f"`{source.path}` has no list of messages: is it a task or a session of Cline?")
    head, sidecars = as_dict(document), read_cline_sidecars(source)
    owner, is_subagent = text_at(head, "sessionId"), head.get("agent") in SUBAGENT_ROLES
    reader = ClineReader(
        source, source.file, sidecars, rows, is_child=sidecars.is_child or (is_subagent and bool(owner))
    )
    segments, compactions = _build_segments(reader, rows, sidecars)
    segments = _prepend_system_prompt(segments, text_at(head, "system_prompt"), source.file)
    if reader.renamed_calls:
        source.report(f"{reader.renamed_calls} calls have no unique id", "ids are generated")
    session = make_session(
        NAME,
        source,
        _session_id(source, owner, is_subagent=is_subagent),
        segments,
        files=sidecars.files,
        compactions=compactions,
        records=_count_records(rows),
        project=sidecars.project or reader.project,
        title=(sidecars.title.strip() or _find_first_prompt(segments))[:MAX_TITLE_CHARS],
        version=sidecars.version,
        parent=owner if is_subagent else sidecars.parent,
    )
    return [session]


def _session_id(source: SourceFile, owner: str, *, is_subagent: bool) -> str:
    """Return the session's id, from the document or from file names.

    The id of a sub-agent consists of the id of the session that started it (`owner`) and the name of the sub-agent's
    file. If the document has no id, the id is the name of the task's folder or of the file.
    """
    if owner:
        return f"{owner}__{source.stem}" if is_subagent else owner
    return source.path.parent.name if source.path.name in TASK_FILES else source.stem


def _count_records(rows: Iterable[Any]) -> dict[str, int]:
    """Count messages by role and blocks by type."""
    counts: Counter[str] = Counter()
    for row in map(as_dict, rows):
        counts[first_text(row, "role", "type") or "?"] += 1
        counts.update(text_at(block, "type") or "?" for block in list_at(row, "content"))
    return dict(counts)


def _find_first_prompt(segments: Iterable[Sequence[Message]]) -> str:
    """Return the text of the first prompt, which is the title of a session that has no other title."""
    prompts = (m for segment in segments for m in segment if m.role == "user" and m.author in ("human", "model"))
    texts = (extract_human_text(part.text) for m in prompts for part in m.parts if isinstance(part, Text))
    return next(filter(None, texts), "")


# Segments


def _build_segments(
    reader: "ClineReader", rows: Sequence[Any], sidecars: ClineSidecars
) -> tuple[list[list[Message]], int]:
    """Return the segments, which begin at summaries and truncations, and the number of compactions."""
    segments: list[list[Message]] = [[]]
    compactions = 0
    hidden = _find_hidden_numbers(rows)
    last_marker = max((n for n, row in enumerate(rows, 1) if value_at(row, "isTruncationMarker") is True), default=0)
    for number, row in enumerate(map(as_dict, rows), 1):
        messages = reader.read_message(number, row)
        if _is_summary(row):
            repeats_first = row.get("role") == "assistant" and 1 not in hidden and number > 1
            segments.append([*messages, *mark_carried(reader.first_messages if repeats_first else [])])
        elif number == last_marker:
            segments.append([*mark_carried(m for m in segments[-1] if _message_number(m) not in hidden), *messages])
        else:
            segments[-1] += messages
        compactions += _is_summary(row) or value_at(row, "metadata", "kind") == "compaction"
        if number == sidecars.last_deleted_number and 2 < number < len(rows) - 1:
            segments.append(mark_carried(m for m in segments[0] if _message_number(m) <= 2))
        if sidecars.compaction and number == sidecars.compaction.replaced_count:
            seen = {m.id for segment in segments for m in segment}
            segments.append(_build_compacted_messages(reader, sidecars.compaction, seen))
            compactions += 1
    return [segment for segment in segments if segment] or [[]], compactions


def _is_summary(row: dict[str, Any]) -> bool:
    return row.get("isSummary") is True or value_at(row, "metadata", "kind") == "compaction_summary"


def _find_hidden_numbers(rows: Sequence[Any]) -> set[int]:
    """Return the numbers of the messages that a summary or a truncation marker replaces."""
    wires = list(map(as_dict, rows))
    ids = {text_at(wire, key) for wire in wires for key in ("condenseId", "truncationId")} - {""}
    keys = ("condenseParent", "truncationParent")
    return {number for number, wire in enumerate(wires, 1) if any(text_at(wire, key) in ids for key in keys)}


def _message_number(message: Message) -> int:
    return message.source.line if message.source else 0


def _build_compacted_messages(reader: "ClineReader", compaction: ClineCompaction, seen: set[str]) -> list[Message]:
    """Return what Cline's core sends in place of the first messages: a summary and some repeated messages."""
    inner = ClineReader(reader.source, str(compaction.file), ClineSidecars(), compaction.rows, is_child=False)
    messages = [m for number, row in enumerate(compaction.rows, 1) for m in inner.read_message(number, as_dict(row))]
    return [replace(m, carried=not isinstance(m.parts[0], Summary) and m.id in seen) for m in messages]


def _prepend_system_prompt(segments: list[list[Message]], prompt: str, file: str) -> list[list[Message]]:
    if not prompt:
        return segments
    system = Message("system", (Text(prompt),), author="harness", id="system", source=SourceLocation(file, 0))
    carried = replace(system, carried=True)
    return [[carried if number else system, *segment] for number, segment in enumerate(segments)]


# Messages


class ClineReader:
    """Converter that takes a conversation's messages in order and matches results with earlier calls."""

    def __init__(
        self, source: SourceFile, file: str, sidecars: ClineSidecars, rows: Sequence[Any], *, is_child: bool
    ) -> None:
        """Match the requests in `sidecars` to the answers in `rows`. `is_child`: a model wrote the first prompt."""
        self.source, self.file, self.sidecars = source, file, sidecars
        self.has_prompt = not is_child
        answers = ((n, row) for n, row in enumerate(rows, 1) if value_at(row, "role") == "assistant")
        self.requests_by_answer = sidecars.match_requests(
            [(n, _message_time(row)) for n, row in answers if not _is_summary(as_dict(row))]
        )
        self.first_messages: list[Message] = []
        self.project, self.model = "", ""
        self.renamed_calls = 0
        self._has_call_blocks = False
        self._used_message_ids: set[str] = set()
        self._call_ids_by_given_id: dict[str, str] = {}
        self._used_call_ids: set[str] = set()
        # An `OrderedDict`, because finding the first key of a plain dict slows down as keys are removed.
        self._unanswered_call_ids: OrderedDict[str, None] = OrderedDict()
        self._open_xml_calls: list[ToolCall] = []

    def read_message(self, number: int, row: dict[str, Any]) -> list[Message]:
        """Convert one message. Return its tool results as a separate message."""
        try:
            built = self._build_messages(number, row, parse_cline_parts(row))
        except RecursionError:
            self.source.report("a message is nested too deeply", "skipped", number)
            return []
        id_ = self._unique_message_id(number, text_at(row, "id"))
        request = self.requests_by_answer.get(number) or self.requests_by_answer.get(number + 1)
        time = _message_time(row) or (request.time if request else None)
        source, ids = SourceLocation(self.file, number), {"tool": f"{id_}-results"}
        messages = [replace(m, id=ids.get(m.role, id_), time=time, source=source) for m in built if m.parts]
        if not messages:
            self.source.report("a message is empty or malformed", "skipped", number)
        self.first_messages = messages if number == 1 else self.first_messages
        return messages

    def _unique_message_id(self, number: int, given_id: str) -> str:
        """Return `given_id` if no earlier message has it, else an id made from the message's number."""
        id_ = given_id if given_id and given_id not in self._used_message_ids else f"{number}"
        while id_ in self._used_message_ids:
            id_ += "-"
        self._used_message_ids.add(id_)
        return id_

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
        converted: list[Part] = [] if any(isinstance(part, Thinking) for part in parts) else parse_cline_thinking(row)
        for part in parts:
            if isinstance(part, Text) and not self._has_call_blocks:
                converted += split_xml_calls(part.text, ids)
            else:
                converted.append(self._with_unique_id(part, ids) if isinstance(part, ToolCall) else part)
        calls = [part for part in converted if isinstance(part, ToolCall)]
        self._open_xml_calls = [] if self._has_call_blocks else calls
        self._used_call_ids.update(call.id for call in calls)
        request = self.requests_by_answer.get(number)
        model = first_text(row.get("modelInfo"), "id", "modelId") or (request.model if request else "")
        model = model or self.model or self.sidecars.model_at(_message_time(row))
        usage = parse_cline_usage(row.get("metrics")) or (request.usage if request else None)
        return Message("assistant", tuple(converted), author="model", model=model, usage=usage)

    def _with_unique_id(self, call: ToolCall, ids: Iterator[str]) -> ToolCall:
        """Return the call with a unique id and add it to the unanswered calls."""
        id_ = call.id if call.id and call.id not in self._used_call_ids else next(ids)
        self.renamed_calls += id_ != call.id
        if call.id:
            self._call_ids_by_given_id[call.id] = id_
        self._used_call_ids.add(id_)
        self._unanswered_call_ids[id_] = None
        return replace(call, id=id_)

    def _build_user_messages(self, parts: list[Part], *, is_known: bool) -> list[Message]:
        """Return two messages: one with the tool results, one with the rest of the content."""
        wire_results, others = split_results(parts)
        answers = [self._resolve_result(result) for result in wire_results]
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
        """Return the result with its call's unique id. A result without an id answers the oldest unanswered call."""
        known_id = self._call_ids_by_given_id.get(result.call_id) or result.call_id
        id_ = known_id or next(iter(self._unanswered_call_ids), "")
        self._unanswered_call_ids.pop(id_, None)
        return replace(result, call_id=id_)

    def _note_environment(self, part: Part) -> None:
        """Record facts from the editor state in a part: the project folder and, with Roo, the next request's model."""
        if isinstance(part, Text) and _ENVIRONMENT_DETAILS.match(part.text):
            folder, model = _FOLDER.search(part.text), _MODEL.search(part.text)
            self.project = self.project or (folder[1] if folder else "")
            self.model = model[1].strip() if model else self.model


def _message_time(row: Any) -> datetime | None:
    return parse_time(value_at(row, "ts"))


def _build_summary_messages(parts: Sequence[Part]) -> list[Message]:
    """Return a message with the summary, and a message with the calls whose results follow the summary."""
    shown: list[Part] = []
    has_text = False
    for part in parts:
        if isinstance(part, Thinking) or (isinstance(part, Text) and not has_text):
            shown.append(Summary(part.text))
            has_text = isinstance(part, Text)
        elif not isinstance(part, ToolCall):  # Roo appends the editor state and file outlines
            shown.append(part)
    calls = tuple(part for part in parts if isinstance(part, ToolCall))
    kept_calls = Message("assistant", calls, author="model", carried=True)
    return [Message("user", tuple(shown), author="harness"), kept_calls]


# Detection


def _sniff(source: SourceFile) -> int:
    """Match a document of Cline's core, a task's file name, or messages with Cline's tags, headers or times."""
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
    texts = [text for row in rows if row["role"] == "user" for text in _content_texts(row["content"])]
    if any(_ENVIRONMENT_DETAILS.match(text) or parse_result_header(text) for text in texts):
        return 3
    has_times = any(type(row.get("ts")) in (int, float) for row in rows)
    return 2 if has_times or any(text.lstrip().startswith("<task>") for text in texts) else 0


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
    layouts="a task's `api_conversation_history.json` with the files next to it; the Cline CLI's `.messages.json`",
    holds=("thinking", "sub-agents", "usage", "times", "edits", "compactions"),
    seen="Roo Code 3.28, the Cline CLI's core of 2026",
)
