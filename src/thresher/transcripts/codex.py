"""Codex CLI: rollouts, one JSONL file a thread; each `response_item` is an item of the Responses API.

What makes it hard, and what is done here:
- user text stands twice, as item and as event: items are read, events tell which of them a person typed;
- a `compacted` record replaces the history: what it repeats is marked as carried over, and a new segment begins;
- `thread_rolled_back` takes turns back: they become a branch;
- files of 2025 have no envelope: the items stand bare, the first line is the session's head.
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
from thresher.model.jsontext import load_json
from thresher.model.parts import Summary, Text, ToolResult, Unknown
from thresher.transcripts.base import (
    SessionFolder,
    TranscriptFormat,
    make_session,
    parse_time,
    title_from_prompt,
    usage_with_cached_input,
)
from thresher.transcripts.coerce import as_list, as_text, count_at, first_text, list_at, text_at, value_at
from thresher.transcripts.content import mark_carried
from thresher.transcripts.source import SourceFile

NAME = "codex"
_NONE = Raw(b"")
_EXIT_CODE = re.compile(r'(?:Exit code: |exited with code |"exit_code":\s*)(-?\d+)')
_SUMMARY_ITEMS = ("compaction", "context_compaction", "compaction_summary")


class CodexRecord(Struct, gc=False):
    """A line: an envelope with a payload, or in old files a bare item."""

    type: Any = None
    timestamp: Any = None
    payload: Raw = _NONE
    record_type: Any = None


class CodexPayloadType(Struct, gc=False):
    """The type of a payload, before it is worth decoding."""

    type: Any = None


_DECODER = msgspec.json.Decoder(CodexRecord)
_PAYLOAD_TYPE_DECODER = msgspec.json.Decoder(CodexPayloadType)
_HANDLED_EVENTS = ("token_count", "user_message", "item_completed", "thread_rolled_back", "thread_name_updated")


class CodexRolloutReader:
    """A rollout while it is read."""

    def __init__(self, source: SourceFile) -> None:
        """Nothing yet."""
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
        """One record."""
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
        """One item of the conversation."""
        message = parse_openai_responses_item(item)
        parts = tuple(map(_with_exit_status, message.parts)) if message.role == "tool" else message.parts
        model, id_ = self.model if message.role == "assistant" else "", text_at(item, "id") or f"{line}"
        self._add_message(line, record, row, message, parts=parts, id=id_, model=model, carried=carried)

    def _add_message(self, line: int, record: bytes, row: CodexRecord, message: Message, **facts: Any) -> None:
        place, time = self.source.at(line), parse_time(row.timestamp)
        self.messages.append(replace(message, time=time, source=place, records=(record,), **facts))

    def _read_session_meta(self, line: int, record: bytes, row: CodexRecord, meta: Any) -> None:
        if not isinstance(meta, dict):
            return
        self.meta = meta
        base = meta.get("base_instructions")
        text = as_text(base.get("text") if isinstance(base, dict) else meta.get("instructions"))
        if text:
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
                if isinstance(item, dict) and item.get("type") == "UserMessage":
                    self.typed_texts.update(_item_texts(item.get("content")))
            case "thread_rolled_back":
                self._roll_back(event.get("num_turns"))
            case "thread_name_updated":
                self.title = text_at(event, "thread_name") or self.title

    def _assign_usage(self, info: Any) -> None:
        """Give the last model call its bill; the same totals again are no new bill."""
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
        at = prompts[-turns] if turns <= len(prompts) else prompts[0]
        after = self.messages[at - 1].id if at else ""
        self.branches.append(AbandonedBranch(History(tuple(self.messages[at:]), pocket=NATIVE_EXTRAS), after))
        del self.messages[at:]

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
        """What came of it."""
        if self.messages or not self.segments:
            self.segments.append(self.messages)
        segments = [
            History(tuple(map(self._with_proven_author, segment)), pocket=NATIVE_EXTRAS) for segment in self.segments
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
            title=self.title or title_from_prompt(segments),
            version=text_at(meta, "cli_version"),
            parent=first_text(meta, "parent_thread_id", "forked_from_id"),
        )

    def _with_proven_author(self, message: Message) -> Message:
        """An event that repeats a text proves that a person typed it, whatever the text looks like.

        In a thread that another one started, that one's model wrote it.
        """
        if self._is_subagent() and message.role == "user" and message.author == "human":
            return replace(message, author="model")
        if message.role == "user" and message.author != "human" and message.text.strip() in self.typed_texts:
            return replace(message, author="human")
        return message

    def _is_subagent(self) -> bool:
        source = self.meta.get("source")
        return self.meta.get("thread_source") == "subagent" or (isinstance(source, dict) and "subagent" in source)


def _payload_type(payload: bytes) -> str:
    try:
        return as_text(_PAYLOAD_TYPE_DECODER.decode(payload).type)
    except msgspec.MsgspecError:
        return ""


def _item_texts(content: Any) -> set[str]:
    return {item["text"].strip() for item in as_list(content) if isinstance(value_at(item, "text"), str)}


def _with_exit_status(part: Any) -> Any:
    """A command's result that names an exit code other than 0 has failed; the API has no field for it."""
    if isinstance(part, ToolResult) and (found := _EXIT_CODE.search(part.text[:400] + part.text[-200:])):
        return replace(part, is_error=found[1] != "0")
    return part


def _as_summary(message: Message) -> Message:
    parts = tuple(Summary(part.text, part.pocket) if isinstance(part, Text) else part for part in message.parts)
    return replace(message, parts=parts, author="harness", carried=False)


def _parse_usage(usage: Any) -> Usage | None:
    names = ("input", "output", "cached_input", "cache_write_input", "reasoning_output")
    counts = [count_at(usage, f"{name}_tokens") for name in names]
    return usage_with_cached_input(*counts) if isinstance(usage, dict) else None


def _read(source: SourceFile) -> list[Session]:
    """One thread."""
    reading = CodexRolloutReader(source)
    for line, record, row in source.records(_DECODER):
        try:
            reading.read_record(line, record, row)
        except UnicodeDecodeError:  # a payload is not looked at before it is taken
            for text in source.repair_line(line, record):
                reading.read_record(line, text, _DECODER.decode(text))
        except (AttributeError, TypeError, KeyError, RecursionError) as error:
            source.report(f"a record is not as its type says ({error})", "skipped", line)
    return [reading.build_session()]


def _sniff(source: SourceFile) -> int:
    """A `session_meta`, an envelope with a payload, or the bare head of 2025."""
    for row in source.head:
        if isinstance(row, dict):
            if row.get("type") in ("session_meta", "response_item", "event_msg", "turn_context") and "payload" in row:
                return 3
            if row.get("record_type") == "state" or ("instructions" in row and "timestamp" in row and "id" in row):
                return 2
    return 0


def _homes(environment: Mapping[str, str], home: Path) -> list[SessionFolder]:
    """`CODEX_HOME`, else `~/.codex`; old threads are packed, archived ones flat."""
    root = Path(environment.get("CODEX_HOME") or home / ".codex")
    places = (("sessions", "**/rollout-*.jsonl*"), ("archived_sessions", "rollout-*.jsonl*"))
    return [SessionFolder(root / folder, pattern) for folder, pattern in places]


FORMAT = TranscriptFormat(
    NAME,
    "Codex CLI",
    _sniff,
    _read,
    _homes,
    resume="codex resume {id}",
    wire="openai-responses",
    layouts="rollouts of all ages, plain or `.zst`",
    holds=("thinking", "sub-agents", "forks", "usage", "times", "edits", "rewinds", "compactions"),
    seen="0.140 to 0.142, 0.166",
)
