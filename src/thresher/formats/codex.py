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
from msgspec import Raw, Struct, structs

from thresher.formats.loose import text as text_or_empty
from thresher.formats.openai_responses import NATIVE, parse_item
from thresher.formats.source import SourceFile
from thresher.formats.transcript import Home, TranscriptFormat, first_prompt, timestamp
from thresher.model import (
    Branch,
    History,
    Message,
    Session,
    Source,
    Summary,
    Text,
    ToolResult,
    Unknown,
    Usage,
)
from thresher.model.jsontext import load

NAME = "codex"
_NONE = Raw(b"")
_EXIT_CODE = re.compile(r'(?:Exit code: |exited with code |"exit_code":\s*)(-?\d+)')
_SUMMARY_ITEMS = ("compaction", "context_compaction", "compaction_summary")


class Row(Struct, gc=False):
    """A line: an envelope with a payload, or in old files a bare item."""

    type: Any = None
    timestamp: Any = None
    payload: Raw = _NONE
    record_type: Any = None


class Kind(Struct, gc=False):
    """The type of a payload, before it is worth decoding."""

    type: Any = None


_DECODER = msgspec.json.Decoder(Row)
_KIND = msgspec.json.Decoder(Kind)
_EVENTS = ("token_count", "user_message", "item_completed", "thread_rolled_back", "thread_name_updated")


class Reading:
    """A rollout while it is read."""

    def __init__(self, source: SourceFile) -> None:
        """Nothing yet."""
        self.source = source
        self.file = str(source.path)
        self.records: Counter[str] = Counter()
        self.meta: dict[str, Any] = {}
        self.model = ""
        self.title = ""
        self.messages: list[Message] = []
        self.segments: list[tuple[Message, ...]] = []
        self.branches: list[Branch] = []
        self.typed: set[str] = set()
        self.compactions = 0
        self.total: Any = None

    def take(self, line: int, record: bytes, row: Row) -> None:
        """One record."""
        payload = bytes(row.payload)
        kind = row.type if isinstance(row.type, str) else ""
        if not payload:
            self._take_bare(line, record, row, kind)
            return
        inner = _inner_type(payload)
        self.records[f"{kind}:{inner}" if inner else kind or "?"] += 1
        match kind:
            case "response_item":
                self.add(line, record, row, load(payload))
            case "event_msg" if inner in _EVENTS:
                self._event(inner, load(payload))
            case "session_meta" if not self.meta:
                self._begin(line, record, row, load(payload))
            case "turn_context":
                self._turn(load(payload))
            case "compacted":
                self._compact(line, record, row, load(payload))
            case _:
                pass

    def _take_bare(self, line: int, record: bytes, row: Row, kind: str) -> None:
        value = load(record)
        self.records[kind or text_or_empty(row.record_type) or "head"] += 1
        if kind:
            self.add(line, record, row, value)
        elif not self.meta and "id" in value:
            self._begin(line, record, row, value)

    def add(self, line: int, record: bytes, row: Row, item: Any, *, carried: bool = False) -> None:
        """One item of the conversation."""
        message = parse_item(item)
        self.messages.append(
            structs.replace(
                message,
                parts=tuple(_with_outcome(part) for part in message.parts) if message.role == "tool" else message.parts,
                id=(text_or_empty(item.get("id")) if isinstance(item, dict) else "") or f"{line}",
                time=timestamp(row.timestamp),
                model=self.model if message.role == "assistant" else "",
                source=Source(self.file, line),
                records=(record,),
                carried=carried,
            )
        )

    def _begin(self, line: int, record: bytes, row: Row, meta: Any) -> None:
        if not isinstance(meta, dict):
            return
        self.meta = meta
        base = meta.get("base_instructions")
        text = base.get("text") if isinstance(base, dict) else meta.get("instructions")
        if isinstance(text, str) and text:
            self.messages.append(
                Message(
                    "system",
                    (Text(text),),
                    author="harness",
                    id="instructions",
                    time=timestamp(row.timestamp),
                    source=Source(self.file, line),
                    records=(record,),
                    pocket=structs.replace(NATIVE, shape="instructions"),
                )
            )

    def _turn(self, context: Any) -> None:
        if isinstance(context, dict):
            self.model = text_or_empty(context.get("model")) or self.model
            if "cwd" not in self.meta:
                self.meta["cwd"] = context.get("cwd")

    def _event(self, kind: str, event: Any) -> None:
        match kind:
            case "token_count":
                self._bill(event.get("info"))
            case "user_message":
                self.typed.add(text_or_empty(event.get("message")).strip())
            case "item_completed":
                item = event.get("item")
                if isinstance(item, dict) and item.get("type") == "UserMessage":
                    self.typed.update(_item_texts(item.get("content")))
            case "thread_rolled_back":
                self._roll_back(event.get("num_turns"))
            case "thread_name_updated":
                self.title = text_or_empty(event.get("thread_name")) or self.title

    def _bill(self, info: Any) -> None:
        """Give the last model call its bill; the same totals again are no new bill."""
        if not isinstance(info, dict) or info.get("total_token_usage") == self.total:
            return
        self.total = info.get("total_token_usage")
        usage = _usage(info.get("last_token_usage"))
        for index in range(len(self.messages) - 1, -1, -1):
            if self.messages[index].role == "assistant":
                if usage and not self.messages[index].carried:
                    self.messages[index] = structs.replace(self.messages[index], usage=usage)
                return

    def _roll_back(self, turns: Any) -> None:
        if not isinstance(turns, int) or turns < 1:
            return
        prompts = [n for n, message in enumerate(self.messages) if message.author == "human" and message.role == "user"]
        if not prompts:
            return
        at = prompts[-turns] if turns <= len(prompts) else prompts[0]
        after = self.messages[at - 1].id if at else ""
        self.branches.append(Branch(History(tuple(self.messages[at:]), pocket=NATIVE), after))
        del self.messages[at:]

    def _compact(self, line: int, record: bytes, row: Row, payload: Any) -> None:
        self.compactions += 1
        kept = [structs.replace(m, carried=True) for m in self.messages if m.id == "instructions"]
        self.segments.append(tuple(self.messages))
        self.messages = kept
        summary = text_or_empty(payload.get("message"))
        history = payload.get("replacement_history")
        for item in history if isinstance(history, list) else ():
            self.add(line, record, row, item, carried=True)
        for index, message in enumerate(self.messages):
            opaque = any(isinstance(part, Unknown) and part.kind in _SUMMARY_ITEMS for part in message.parts)
            if opaque or (summary and summary.strip() in message.text):
                self.messages[index] = _as_summary(message)
                summary = ""
        if summary:
            text = Message("user", (Summary(summary),), author="harness", source=Source(self.file, line), id=str(line))
            self.messages.append(structs.replace(text, time=timestamp(row.timestamp), records=(record,), pocket=NATIVE))

    def session(self) -> Session:
        """What came of it."""
        if self.messages or not self.segments:
            self.segments.append(tuple(self.messages))
        segments = [History(tuple(map(self._authored, segment)), pocket=NATIVE) for segment in self.segments]
        meta, git = self.meta, self.meta.get("git")
        times = [message.time for segment in segments for message in segment if message.time]
        return Session(
            agent=NAME,
            id=text_or_empty(meta.get("id")) or self.source.path.name.split(".")[0],
            file=self.file,
            segments=tuple(segments),
            branches=tuple(self.branches),
            problems=tuple(self.source.problems),
            compactions=self.compactions,
            records=dict(self.records),
            project=text_or_empty(meta.get("cwd")),
            git_branch=text_or_empty(git.get("branch")) if isinstance(git, dict) else "",
            title=self.title or first_prompt(segments),
            version=text_or_empty(meta.get("cli_version")),
            parent=text_or_empty(meta.get("parent_thread_id")) or text_or_empty(meta.get("forked_from_id")),
            started=min(times, default=None),
            ended=max(times, default=None),
        )

    def _authored(self, message: Message) -> Message:
        """An event that repeats a text proves that a person typed it, whatever the text looks like.

        In a thread that another one started, that one's model wrote it.
        """
        if self._is_subagent() and message.role == "user" and message.author == "human":
            return structs.replace(message, author="model")
        if message.role == "user" and message.author != "human" and message.text.strip() in self.typed:
            return structs.replace(message, author="human")
        return message

    def _is_subagent(self) -> bool:
        source = self.meta.get("source")
        return self.meta.get("thread_source") == "subagent" or (isinstance(source, dict) and "subagent" in source)


def _inner_type(payload: bytes) -> str:
    try:
        return text_or_empty(_KIND.decode(payload).type)
    except msgspec.MsgspecError:
        return ""


def _item_texts(content: Any) -> set[str]:
    texts = content if isinstance(content, list) else []
    return {item["text"].strip() for item in texts if isinstance(item, dict) and isinstance(item.get("text"), str)}


def _with_outcome(part: Any) -> Any:
    """A command's result that names an exit code other than 0 has failed; the API has no field for it."""
    if isinstance(part, ToolResult) and (found := _EXIT_CODE.search(part.text[:400] + part.text[-200:])):
        return structs.replace(part, is_error=found[1] != "0")
    return part


def _as_summary(message: Message) -> Message:
    parts = tuple(Summary(part.text, part.pocket) if isinstance(part, Text) else part for part in message.parts)
    return structs.replace(message, parts=parts, author="harness", carried=False)


def _usage(usage: Any) -> Usage | None:
    if not isinstance(usage, dict):
        return None

    def count(key: str) -> int:
        return usage[key] if type(usage.get(key)) is int else 0

    cached, written = count("cached_input_tokens"), count("cache_write_input_tokens")
    return Usage(
        input=max(count("input_tokens") - cached - written, 0),
        output=count("output_tokens"),
        cache_read=cached,
        cache_write=written,
        reasoning=count("reasoning_output_tokens"),
    )


def read(source: SourceFile) -> list[Session]:
    """One thread."""
    reading = Reading(source)
    for line, record, row in source.rows(_DECODER):
        try:
            reading.take(line, record, row)
        except UnicodeDecodeError:  # a payload is not looked at before it is taken
            for text in source.mend(line, record):
                reading.take(line, text, _DECODER.decode(text))
        except (AttributeError, TypeError, KeyError, RecursionError) as error:
            source.problem(f"a record is not as its type says ({error})", "skipped", line)
    return [reading.session()]


def sniff(source: SourceFile) -> int:
    """A `session_meta`, an envelope with a payload, or the bare head of 2025."""
    for row in source.head:
        if isinstance(row, dict):
            if row.get("type") in ("session_meta", "response_item", "event_msg", "turn_context") and "payload" in row:
                return 3
            if row.get("record_type") == "state" or ("instructions" in row and "timestamp" in row and "id" in row):
                return 2
    return 0


def homes(environment: Mapping[str, str], home: Path) -> list[Home]:
    """`CODEX_HOME`, else `~/.codex`; old threads are packed, archived ones flat."""
    root = Path(environment.get("CODEX_HOME") or home / ".codex")
    return [
        Home(root / "sessions", "**/rollout-*.jsonl*"),
        Home(root / "archived_sessions", "rollout-*.jsonl*"),
    ]


FORMAT = TranscriptFormat(
    NAME,
    "Codex CLI",
    sniff,
    read,
    homes,
    resume="codex resume {id}",
    wire="openai-responses",
    layouts="rollouts of all ages, plain or `.zst`",
    holds=("thinking", "sub-agents", "forks", "usage", "times", "edits", "rewinds", "compactions"),
    seen="0.140 to 0.142, 0.166",
)
