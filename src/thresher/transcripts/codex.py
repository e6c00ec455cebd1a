"""Codex CLI: one JSONL file (a rollout) per thread; each `response_item` has an item of the Responses API.

- User text is in the file twice, as an item and as an event. The reader uses the items. The events show which items a
  person typed.
- A `compacted` record replaces the history: a new segment begins, and repeated messages are marked as carried.
- `thread_rolled_back` rewinds turns. The rewound messages become a branch.
- Files from 2025 have no envelope: each line is a bare item, and the first line has the session's metadata.
"""

import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from thresher.dialects.openai_responses.codec import NATIVE_EXTRAS, parse_openai_responses_item
from thresher.model import AbandonedBranch, History, Message, Session, Usage
from thresher.model.harness_text import extract_human_text
from thresher.model.jsontext import load_json
from thresher.model.parts import Summary, Text, ToolResult, Unknown
from thresher.transcripts.base import SessionFolder, TranscriptFormat, make_session, parse_time, usage_with_cached_input
from thresher.transcripts.coerce import as_text, count_at, first_text, list_at, text_at
from thresher.transcripts.content import mark_carried
from thresher.transcripts.source import SourceFile

NAME = "codex"
_NONE = Raw(b"")
_EXIT_CODE = re.compile(r'(?:Exit code: |exited with code |"exit_code":\s*)(-?\d+)')
_SUMMARY_ITEMS = ("compaction", "context_compaction", "compaction_summary")


class CodexRecord(Struct, gc=False):
    """A line of the file: an envelope with a payload, or a bare item in old files."""

    type: Any = None
    timestamp: Any = None
    payload: Raw = _NONE
    record_type: Any = None


class CodexPayloadType(Struct, gc=False):
    """The type of a payload. For an event, it decides whether the reader decodes the rest of the payload."""

    type: Any = None


_DECODER = msgspec.json.Decoder(CodexRecord)
_PAYLOAD_TYPE_DECODER = msgspec.json.Decoder(CodexPayloadType)
_HANDLED_EVENTS = ("token_count", "user_message", "item_completed", "thread_rolled_back", "thread_name_updated")


class CodexRolloutReader:
    """Reader that builds a session from the records of a rollout."""

    def __init__(self, source: SourceFile) -> None:
        """Start with an empty session."""
        self.source = source
        self.records: Counter[str] = Counter()
        self.meta: dict[str, Any] = {}
        self.model = ""
        self.title = ""
        self.messages: list[Message] = []
        self.segments: list[list[Message]] = []
        self.branches: list[AbandonedBranch] = []
        self.typed_texts: set[str] = set()
        self.compactions = 0
        self.last_total_usage: Any = None

    def read_record(self, line: int, record: bytes, row: CodexRecord) -> None:
        """Read one record: add its message, or apply the change that it describes."""
        payload = bytes(row.payload)
        kind = row.type if isinstance(row.type, str) else ""
        if not payload:
            self._read_bare_record(line, record, row, kind)
            return
        inner = _payload_type(payload)
        self.records[f"{kind}:{inner}" if inner else kind or "?"] += 1
        match kind:
            case "response_item":
                self.add_item(line, record, row, load_json(payload))
            case "event_msg" if inner in _HANDLED_EVENTS:
                self._read_event(inner, load_json(payload))
            case "session_meta" if not self.meta:
                self._read_session_meta(line, record, row, load_json(payload))
            case "turn_context":
                self._read_turn_context(load_json(payload))
            case "compacted":
                self._apply_compaction(line, record, row, load_json(payload))
            case _:
                pass

    def _read_bare_record(self, line: int, record: bytes, row: CodexRecord, kind: str) -> None:
        value = load_json(record)
        self.records[kind or as_text(row.record_type) or "head"] += 1
        if kind:
            self.add_item(line, record, row, value)
        elif not self.meta and "id" in value:
            self._read_session_meta(line, record, row, value)

    def add_item(self, line: int, record: bytes, row: CodexRecord, item: Any, *, carried: bool = False) -> None:
        """Convert an item of the conversation to a message, and append the message."""
        message = parse_openai_responses_item(item)
        parts = tuple(map(_with_exit_status, message.parts)) if message.role == "tool" else message.parts
        model, id_ = self.model if message.role == "assistant" else "", text_at(item, "id") or f"{line}"
        self._add_message(line, record, row, message, parts=parts, id=id_, model=model, carried=carried)

    def _add_message(self, line: int, record: bytes, row: CodexRecord, message: Message, **facts: Any) -> None:
        location, time = self.source.at(line), parse_time(row.timestamp)
        self.messages.append(replace(message, time=time, source=location, records=(record,), **facts))

    def _read_session_meta(self, line: int, record: bytes, row: CodexRecord, meta: Any) -> None:
        if not isinstance(meta, dict):
            return
        self.meta = meta
        base = meta.get("base_instructions")
        if text := as_text(base.get("text") if isinstance(base, dict) else meta.get("instructions")):
            pocket = replace(NATIVE_EXTRAS, shape="instructions")
            prompt = Message("system", (Text(text),), author="harness", id="instructions", pocket=pocket)
            self._add_message(line, record, row, prompt)

    def _read_turn_context(self, context: Any) -> None:
        if isinstance(context, dict):
            self.model = text_at(context, "model") or self.model
            if "cwd" not in self.meta:
                self.meta["cwd"] = context.get("cwd")

    def _read_event(self, kind: str, event: Any) -> None:
        match kind:
            case "token_count":
                self._assign_usage(event.get("info"))
            case "user_message":
                self.typed_texts.add(text_at(event, "message").strip())
            case "item_completed":
                item = event.get("item")
                if text_at(item, "type") == "UserMessage":
                    texts = (text_at(part, "text").strip() for part in list_at(item, "content"))
                    self.typed_texts.update(filter(None, texts))
            case "thread_rolled_back":
                self._roll_back(event.get("num_turns"))
            case "thread_name_updated":
                self.title = text_at(event, "thread_name") or self.title

    def _assign_usage(self, info: Any) -> None:
        """Set the usage of the last model call, unless the event repeats the previous totals."""
        if not isinstance(info, dict) or info.get("total_token_usage") == self.last_total_usage:
            return
        self.last_total_usage = info.get("total_token_usage")
        usage = _parse_usage(info.get("last_token_usage"))
        for index in range(len(self.messages) - 1, -1, -1):
            if self.messages[index].role == "assistant":
                if usage and not self.messages[index].carried:
                    self.messages[index] = replace(self.messages[index], usage=usage)
                return

    def _roll_back(self, turns: Any) -> None:
        if not isinstance(turns, int) or turns < 1:
            return
        prompts = [n for n, message in enumerate(self.messages) if message.author == "human" and message.role == "user"]
        if not prompts:
            return
        start = prompts[-turns:][0]
        after = self.messages[start - 1].id if start else ""
        self.branches.append(AbandonedBranch(History(tuple(self.messages[start:]), pocket=NATIVE_EXTRAS), after))
        del self.messages[start:]

    def _apply_compaction(self, line: int, record: bytes, row: CodexRecord, payload: Any) -> None:
        self.compactions += 1
        self.segments.append(self.messages)
        self.messages = mark_carried(m for m in self.messages if m.id == "instructions")
        summary = as_text(payload.get("message"))
        for item in list_at(payload, "replacement_history"):
            self.add_item(line, record, row, item, carried=True)
        for index, message in enumerate(self.messages):
            opaque = any(isinstance(part, Unknown) and part.kind in _SUMMARY_ITEMS for part in message.parts)
            if opaque or (summary and summary.strip() in message.text):
                self.messages[index] = _as_summary(message)
                summary = ""
        if summary:
            message = Message("user", (Summary(summary),), author="harness", id=str(line), pocket=NATIVE_EXTRAS)
            self._add_message(line, record, row, message)

    def build_session(self) -> Session:
        """Return the session of all records read so far."""
        if self.messages or not self.segments:
            self.segments.append(self.messages)
        segments = [
            History(tuple(map(self._with_confirmed_author, segment)), pocket=NATIVE_EXTRAS) for segment in self.segments
        ]
        meta = self.meta
        return make_session(
            NAME,
            self.source,
            text_at(meta, "id") or self.source.stem,
            segments,
            branches=self.branches,
            compactions=self.compactions,
            records=self.records,
            project=text_at(meta, "cwd"),
            git_branch=text_at(meta, "git", "branch"),
            title=self.title or None,
            version=text_at(meta, "cli_version"),
            parent=first_text(meta, "parent_thread_id", "forked_from_id"),
        )

    def _with_confirmed_author(self, message: Message) -> Message:
        """Return a user message with the correct author.

        The author is the model if the message is the prompt of a sub-agent, and a person if an event repeats its text.
        If events name the prompts, a message of elements that no event repeats is by the harness.
        """
        if message.role != "user":
            return message
        if self._is_subagent() and message.author == "human":
            return replace(message, author="model")
        text = message.text.strip()
        if text in self.typed_texts:
            return replace(message, author="human")
        if message.author == "human" and self.typed_texts and _consists_of_elements(message):
            return replace(message, author="harness")
        return message

    def _is_subagent(self) -> bool:
        source = self.meta.get("source")
        return self.meta.get("thread_source") == "subagent" or (isinstance(source, dict) and "subagent" in source)


def _payload_type(payload: bytes) -> str:
    try:
        return as_text(_PAYLOAD_TYPE_DECODER.decode(payload).type)
    except msgspec.MsgspecError:
        return ""


def _with_exit_status(part: Any) -> Any:
    """Set `is_error` of a result from the exit code in the result's text, since the API has no field for errors."""
    if isinstance(part, ToolResult) and (match := _EXIT_CODE.search(part.text[:400] + part.text[-200:])):
        return replace(part, is_error=match[1] != "0")
    return part


def _consists_of_elements(message: Message) -> bool:
    """Return whether all texts outside known harness text are elements."""
    texts = [extract_human_text(part.text) for part in message.parts if isinstance(part, Text)]
    return all(text.startswith("<") and text.endswith(">") for text in texts if text)


def _as_summary(message: Message) -> Message:
    parts = tuple(Summary(part.text, part.pocket) if isinstance(part, Text) else part for part in message.parts)
    return replace(message, parts=parts, author="harness", carried=False)


def _parse_usage(usage: Any) -> Usage | None:
    names = ("input", "output", "cached_input", "cache_write_input", "reasoning_output")
    counts = [count_at(usage, f"{name}_tokens") for name in names]
    return usage_with_cached_input(*counts) if isinstance(usage, dict) else None


def _read(source: SourceFile) -> list[Session]:
    """Read one session."""
    reader = CodexRolloutReader(source)
    for line, record, row in source.records(_DECODER):
        try:
            reader.read_record(line, record, row)
        except UnicodeDecodeError:  # decoding a record does not validate its raw payload
            for text in source.repair_line(line, record):
                reader.read_record(line, text, _DECODER.decode(text))
        except (AttributeError, TypeError, KeyError, RecursionError) as error:
            source.report(f"a record does not match the schema of its type ({error})", "skipped", line)
    return [reader.build_session()]


def _sniff(source: SourceFile) -> int:
    """Match an envelope with a payload, or the first line of a file from 2025."""
    for row in source.head:
        if isinstance(row, dict):
            if row.get("type") in ("session_meta", "response_item", "event_msg", "turn_context") and "payload" in row:
                return 3
            if row.get("record_type") == "state" or ("instructions" in row and "timestamp" in row and "id" in row):
                return 2
    return 0


def _owns_line(row: Any) -> bool:
    return isinstance(row, dict) and "payload" in row and isinstance(row.get("type"), str)


def _homes(environment: Mapping[str, str], home: Path) -> list[SessionFolder]:
    """Return the folders below `CODEX_HOME` or `~/.codex`. Codex compresses the files of old threads."""
    root = Path(environment.get("CODEX_HOME") or home / ".codex")
    return [
        SessionFolder(root / "sessions", "**/rollout-*.jsonl*"),
        SessionFolder(root / "archived_sessions", "rollout-*.jsonl*"),
    ]


FORMAT = TranscriptFormat(
    NAME,
    "Codex CLI",
    _sniff,
    _read,
    _homes,
    resume="codex resume {id}",
    wire="openai-responses",
    layouts="rollouts of all versions, plain or `.zst`",
    holds=("thinking", "sub-agents", "forks", "usage", "times", "edits", "rewinds", "compactions"),
    seen="0.140 to 0.142, 0.166",
    owns_line=_owns_line,
)
