"""pi: one JSONL file per session. In version 1, the entries form a list; since version 2, a tree.

A compaction names the first entry that it keeps. The next segment contains the summary, the kept messages
and all later messages.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import dropwhile
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from thresher.dialects.content import infer_message_author
from thresher.model import AbandonedBranch, History, Message, Session, Usage
from thresher.model.jsontext import dump_json
from thresher.model.parts import Image, Part, Summary, Text, Thinking, ToolCall, ToolResult, Unknown
from thresher.transcripts.base import (
    SessionFolder,
    TranscriptFormat,
    group_branches,
    make_session,
    parse_time,
    trace_path,
)
from thresher.transcripts.coerce import as_text, count_at, text_at
from thresher.transcripts.content import mark_carried, result_content, unknown_part
from thresher.transcripts.source import SourceFile

NAME = "pi"
ENTRY_TYPES = (
    *("session", "session_info", "message", "custom", "custom_message", "compaction", "branch_summary", "label"),
    *("model_change", "thinking_level_change"),
)


class PiRecord(Struct, gc=False):
    """The fields of an entry that the reader uses."""

    type: Any = None
    id: Any = None
    parentId: Any = msgspec.UNSET
    timestamp: Any = None
    message: Any = None
    summary: Any = None
    firstKeptEntryId: Any = None
    firstKeptEntryIndex: Any = None
    content: Any = None
    name: Any = None
    cwd: Any = None
    version: Any = None
    parentSession: Any = None
    branchedFrom: Any = None


_DECODER = msgspec.json.Decoder(PiRecord)


class PiEntry(NamedTuple):
    """An entry with its location in the file."""

    id: str
    row: PiRecord
    line: int
    record: bytes


def _read(source: SourceFile) -> list[Session]:
    """Read one session."""
    head = PiRecord()
    name = ""
    records: Counter[str] = Counter()
    entries: dict[str, PiEntry] = {}
    parents: dict[str, str | None] = {}
    by_index: dict[int, str] = {}
    for index, (line, record, row) in enumerate(source.records(_DECODER)):
        records[row.type if isinstance(row.type, str) else "?"] += 1
        if row.type == "session":
            head = row if head.type is None else head
            continue
        id_ = row.id if isinstance(row.id, str) else f"line-{line}"
        linear = next(reversed(entries), None)
        parents[id_] = linear if row.parentId is msgspec.UNSET else as_text(row.parentId) or None
        entries[id_] = PiEntry(id_, row, line, record)
        by_index[index] = id_
        name = as_text(row.name) or name if row.type == "session_info" else name
    segments, branches = _build_segments(source, entries, parents, by_index)
    parent = as_text(head.parentSession) or as_text(head.branchedFrom)
    return [
        make_session(
            NAME,
            source,
            as_text(head.id) or source.stem,
            segments,
            branches=branches,
            records=records,
            project=as_text(head.cwd),
            title=name or None,
            version=str(head.version) if isinstance(head.version, int | str) else "1",
            parent=Path(parent.replace("\\", "/")).stem.rpartition("_")[2],
            times=[parse_time(entry.row.timestamp) for entry in entries.values()],
        )
    ]


def _build_segments(
    source: SourceFile, entries: dict[str, PiEntry], parents: dict[str, str | None], by_index: dict[int, str]
) -> tuple[list[list[Message]], list[AbandonedBranch]]:
    leaf = next(reversed(entries), "")
    ids, is_cyclic = trace_path(leaf, parents)
    if is_cyclic:
        source.report(
            "the parents of entries form a cycle", "followed until the first repeated entry", entries[leaf].line
        )
    segments: list[list[Message]] = [[]]
    for id_ in ids:
        entry = entries[id_]
        message = _convert_entry(source, entry)
        if entry.row.type == "compaction" and message:
            first_kept = entries.get(_first_kept_id(entry.row, by_index))
            segments.append([message, *mark_carried(_messages_from(first_kept, segments[-1]))])
        elif message:
            segments[-1].append(message)
    on_path = set(ids)
    off_path = [id_ for id_ in entries if id_ not in on_path]
    branches = [
        AbandonedBranch(History(tuple(messages)), after)
        for (after, _), branch in group_branches(off_path, on_path, parents).items()
        if (messages := [m for id_ in branch if (m := _convert_entry(source, entries[id_]))])
    ]
    return segments, branches


def _messages_from(first: PiEntry | None, messages: list[Message]) -> Iterable[Message]:
    if first is None:
        return ()
    return dropwhile(lambda message: not message.source or message.source.line < first.line, messages)


def _first_kept_id(row: PiRecord, by_index: dict[int, str]) -> str:
    if isinstance(row.firstKeptEntryId, str):
        return row.firstKeptEntryId
    return by_index.get(row.firstKeptEntryIndex, "") if isinstance(row.firstKeptEntryIndex, int) else ""


def _convert_entry(source: SourceFile, entry: PiEntry) -> Message | None:
    row = entry.row
    match row.type:
        case "message" if isinstance(row.message, dict):
            try:
                message = _parse_message(row.message)
            except RecursionError:
                source.report("an entry is nested too deeply", "skipped", entry.line)
                return None
        case "compaction" | "branch_summary" if isinstance(row.summary, str):
            message = Message("user", (Summary(row.summary),), author="harness")
        case "custom_message":
            message = Message("user", _parse_content(row.content), author="harness")
        case _:
            return None
    if message is None:
        return None
    location = source.at(entry.line)
    return replace(message, id=entry.id, time=parse_time(row.timestamp), source=location, records=(entry.record,))


def _parse_message(wire: dict[str, Any]) -> Message | None:
    parts = _parse_content(wire.get("content"))
    match wire.get("role"):
        case "user":
            return Message("user", parts, author=infer_message_author("user", parts))
        case "assistant":
            usage = _parse_usage(wire.get("usage"))
            return Message("assistant", parts, author="model", model=text_at(wire, "model"), usage=usage)
        case "toolResult":
            id_, name, is_error = text_at(wire, "toolCallId"), text_at(wire, "toolName"), wire.get("isError") is True
            return Message("tool", (ToolResult(id_, result_content(parts), is_error, name=name),), author="tool")
        case "bashExecution":
            text = f"$ {wire.get('command')}\n{wire.get('output')}"
            return None if wire.get("excludeFromContext") else Message("user", (Text(text),), author="tool")
        case "compactionSummary" | "branchSummary":
            return Message("user", (Summary(text_at(wire, "summary")),), author="harness")
        case role:
            return Message("user", parts or (Unknown(str(role), dump_json(wire)),), author="harness")


def _parse_content(content: Any) -> tuple[Part, ...]:
    if isinstance(content, str):
        return (Text(content),)
    return tuple(_parse_block(block) for block in content) if isinstance(content, list) else ()


def _parse_block(block: Any) -> Part:
    match block:
        case {"type": "text", "text": str(text)}:
            return Text(text)
        case {"type": "thinking", "thinking": str(text)}:
            return Thinking(text, text_at(block, "thinkingSignature"))
        case {"type": "toolCall", "id": str(id_), "name": str(name)}:
            return ToolCall(id_, name, dump_json(block.get("arguments", {})))
        case {"type": "image", "data": str(data)}:
            return Image(text_at(block, "mimeType"), data)
        case _:
            return unknown_part(block)


def _parse_usage(usage: Any) -> Usage | None:
    counts = [count_at(usage, name) for name in ("input", "output", "cacheRead", "cacheWrite")]
    return Usage(*counts) if isinstance(usage, dict) else None


def _sniff(source: SourceFile) -> int:
    """Match a first line of type `session` with a working directory."""
    first = next(iter(source.head), None)
    return 3 if isinstance(first, dict) and first.get("type") == "session" and "cwd" in first else 0


def _owns_line(row: Any) -> bool:
    return isinstance(row, dict) and row.get("type") in ENTRY_TYPES and ("parentId" in row or "cwd" in row)


def _homes(environment: Mapping[str, str], home: Path) -> list[SessionFolder]:
    """Return the session folder below `PI_CODING_AGENT_DIR` or `~/.pi/agent`."""
    root = Path(environment.get("PI_CODING_AGENT_DIR") or home / ".pi" / "agent")
    return [SessionFolder(root / "sessions", "**/*.jsonl")]


FORMAT = TranscriptFormat(
    NAME,
    "pi",
    _sniff,
    _read,
    _homes,
    resume="pi --session {file}",
    layouts="session files of versions 1 to 3",
    holds=("thinking", "forks", "usage", "times", "edits", "rewinds", "compactions"),
    seen="files of version 1 to 3",
    owns_line=_owns_line,
)
