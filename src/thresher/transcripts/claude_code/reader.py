"""Claude Code: one JSONL file per session. The records form a tree; each content block is one record.

- An API message can span several lines. The reader merges them by `message.id`, even if they are not consecutive.
- The parent of each result is the line of its call. After parallel calls, only one result is on the path from root to
  leaf. The reader adds the other results by `tool_use_id`, and the other lines of the same message by `message.id`.
- A compaction starts a new root, and each root begins a segment. `logicalParentUuid` of the root names a record at the
  end of the previous segment.
- Sub-agents have four layouts: inline (`isSidechain`), progress records, `agent-<id>.jsonl` next to the session, and
  files in `<session>/subagents/`. The agent id identifies a sub-agent, since all sub-agents share the session's id.
- Text typed while the model works is in an attachment (`queued_command`), or only in records of the prompt queue.
"""

import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from thresher.model import History, Session
from thresher.model.harness_text import detect_author
from thresher.transcripts.base import SessionFolder, TranscriptFormat, make_session, parse_time, trace_path
from thresher.transcripts.claude_code.messages import build_claude_messages
from thresher.transcripts.claude_code.records import (
    LENIENT_DECODER,
    STRICT_DECODER,
    ClaudeMessage,
    ClaudeNode,
    ClaudeRecord,
    ClaudeResultNote,
    ClaudeSideRecord,
    answered_call_id,
    is_shown_record,
    normalize_claude_record,
    plain_result_text,
)
from thresher.transcripts.claude_code.tree import linearize_record_tree
from thresher.transcripts.coerce import as_text, text_at
from thresher.transcripts.content import report_missing_outputs
from thresher.transcripts.source import SourceFile

NAME = "claude-code"
_TREE_RECORD_TYPES = frozenset({"user", "assistant", "system", "attachment", "progress"})
_RECORD_TYPES = _TREE_RECORD_TYPES | {"summary", "file-history-snapshot", "queue-operation"}
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_PERSISTED_OUTPUT_TAG = "<persisted-output>"
_SPILL_FILE_NAME = re.compile(r"tool-results[/\\]+([\w-][\w.-]*)")
_NOTIFICATION = re.compile(rb"<task-id>([\w-]+)</task-id>.{0,20}?<tool-use-id>([\w-]+)</tool-use-id>", re.DOTALL)
_SIDE_RECORD_DECODER = msgspec.json.Decoder(ClaudeSideRecord)


class ClaudeScan:
    """Facts about a session, collected in one pass over the file."""

    def __init__(self) -> None:
        """Start with an empty scan."""
        self.nodes: dict[str, ClaudeNode] = {}
        self.records: Counter[str] = Counter()
        self.session_fields: dict[str, str] = {}
        """The latest value of each title field, and the first value of `cwd`, `gitBranch`, `version` and `agentId`."""
        self.summaries: dict[str, str] = {}
        self.progress_nodes: dict[str, list[ClaudeNode]] = {}
        """Messages of sub-agents from progress records, by agent id."""
        self.spawned_by: dict[str, str] = {}
        """Agent id → id of the tool call that started the agent."""
        self.steering_prompts: list[ClaudeNode] = []
        self.spill_file_names: dict[str, str] = {}
        """Id of a tool call → name of the file with the full output."""
        self.session_ids: list[str] = []
        self.forked_from = ""


def _read(source: SourceFile) -> list[Session]:
    """Read one session with its sub-agents."""
    return [_build_session(source)]


def _scan_file(source: SourceFile) -> ClaudeScan:
    facts = ClaudeScan()
    queue: list[tuple[str, int]] = []
    last: str | None = None
    for line, record, row in source.records(STRICT_DECODER, LENIENT_DECODER):
        if type(row) is ClaudeRecord:
            normalize_claude_record(row)
        kind = row.type if type(row.type) is str else "?"
        facts.records[kind] += 1
        node = _build_node(row, line, record, last)
        if kind in _TREE_RECORD_TYPES:
            if node.id in facts.nodes:
                facts.records["repeated"] += 1
                continue
            facts.nodes[node.id] = node
            last = node.id
            if kind == "assistant" and facts.session_ids and row.sessionId == facts.session_ids[-1]:
                continue
        try:
            _note_record(facts, queue, kind, node)
        except (UnicodeDecodeError, msgspec.MsgspecError) as error:
            source.report(f"the metadata of a record is not valid ({error})", "ignored the metadata", line)
    return facts


def _note_record(facts: ClaudeScan, queue: list[tuple[str, int]], kind: str, node: ClaudeNode) -> None:
    if kind == "progress":
        if node.row.data is not None and node.row.data.agentId:
            _note_progress(facts, node)
    elif kind in _TREE_RECORD_TYPES:
        _note_session_fields(facts, node.row, node.record)
    elif kind == "queue-operation":
        _note_queue_operation(facts, queue, _SIDE_RECORD_DECODER.decode(node.record), node)
    else:
        _note_title(facts, _SIDE_RECORD_DECODER.decode(node.record))


def _build_node(row: ClaudeRecord, line: int, record: bytes, last: str | None) -> ClaudeNode:
    uuid = row.uuid if type(row.uuid) is str else f"line-{line}"
    parent = last if row.parentUuid is UNSET else row.parentUuid if type(row.parentUuid) is str else None
    return ClaudeNode(uuid, parent, row, line, record)


def _note_session_fields(facts: ClaudeScan, row: ClaudeRecord, record: bytes) -> None:
    if not facts.session_ids or row.sessionId != facts.session_ids[-1]:
        if type(row.sessionId) is str:
            facts.session_ids.append(row.sessionId)
        for field in ("cwd", "gitBranch", "version", "agentId"):
            value = getattr(row, field)
            if type(value) is str:
                facts.session_fields.setdefault(field, value)
    if row.forkedFrom and isinstance(row.forkedFrom, dict):
        facts.forked_from = text_at(row.forkedFrom, "sessionId")
    if isinstance(row.toolUseResult, ClaudeResultNote):
        call = answered_call_id(row.message)
        if isinstance(row.toolUseResult.agentId, str):
            facts.spawned_by[row.toolUseResult.agentId] = call
        if name := _find_spill_file_name(row):
            facts.spill_file_names[call] = name
    elif row.type == "user" and (match := _NOTIFICATION.search(record)):
        facts.spawned_by.setdefault(match[1].decode(), match[2].decode())


def _find_spill_file_name(row: ClaudeRecord) -> str:
    """Return the name of the file with a long output. The metadata or the text of the result names this file."""
    text = row.toolUseResult.persistedOutputPath
    if not isinstance(text, str):
        text = plain_result_text(row.message)
        if not text.startswith(_PERSISTED_OUTPUT_TAG):
            return ""
    match = _SPILL_FILE_NAME.search(text[:1000])
    return match[1] if match else ""


def _note_progress(facts: ClaudeScan, node: ClaudeNode) -> None:
    agent, inner = node.row.data.agentId, node.row.data.message
    if not isinstance(agent, str):
        return
    if isinstance(node.row.parentToolUseID, str):
        facts.spawned_by.setdefault(agent, node.row.parentToolUseID)
    if inner is not None and inner.type in ("user", "assistant") and inner.message is not None:
        row = ClaudeRecord(type=inner.type, isSidechain=True, message=inner.message, timestamp=inner.timestamp)
        rows = facts.progress_nodes.setdefault(agent, [])
        before, id_ = rows[-1].id if rows else None, as_text(inner.uuid) or node.id
        rows.append(ClaudeNode(id_, before, row, node.line, node.record))


def _note_queue_operation(
    facts: ClaudeScan, queue: list[tuple[str, int]], note: ClaudeSideRecord, node: ClaudeNode
) -> None:
    """Update the prompt queue. The operation `remove` means that the model received the prompt during a turn."""
    match note.operation:
        case "enqueue" if isinstance(note.content, str):
            queue.append((note.content, node.line))
        case "remove" if queue:
            text, line = queue.pop(0)
            if detect_author(text) == "human" and not text.startswith('{"task_id"'):
                row = ClaudeRecord(type="user", message=ClaudeMessage(content=text), timestamp=note.timestamp)
                facts.steering_prompts.append(ClaudeNode(f"queue-{line}", None, row, node.line, node.record))
        case "dequeue" if queue:
            queue.pop(0)
        case "popAll":
            queue.clear()


def _note_title(facts: ClaudeScan, note: ClaudeSideRecord) -> None:
    for field in ("customTitle", "aiTitle", "lastPrompt"):
        value = getattr(note, field)
        if isinstance(value, str) and value:
            facts.session_fields[field] = value
    if isinstance(note.summary, str) and isinstance(note.leafUuid, str):
        facts.summaries[note.leafUuid] = note.summary


def _build_session(source: SourceFile) -> Session:
    facts = _scan_file(source)
    shown = [node for node in facts.nodes.values() if is_shown_record(node.row)]
    own = [node for node in shown if not node.row.isSidechain]
    is_agent = bool(shown) and not own
    main = shown if is_agent else own
    spilled = _find_spilled_outputs(source, facts)
    segments, branches, compactions = linearize_record_tree(source, facts.nodes, main, facts.steering_prompts)
    stem = source.stem
    first = facts.session_ids[0] if facts.session_ids else ""
    if is_agent:
        children: list[Session] = []
        id_ = facts.session_fields.get("agentId") or stem.removeprefix("agent-")
    else:
        children = [*_read_inline_subagents(source, facts, shown), *_read_subagent_files(source, facts)]
        id_ = stem if _UUID.fullmatch(stem) else first or stem
    return make_session(
        NAME,
        source,
        id_,
        segments,
        branches=branches,
        children=children,
        spilled=spilled,
        compactions=compactions,
        records=facts.records,
        project=facts.session_fields.get("cwd", ""),
        git_branch=facts.session_fields.get("gitBranch", ""),
        title=_find_title(facts),
        version=facts.session_fields.get("version", ""),
        parent=first if is_agent else facts.forked_from or (first if first != id_ else ""),
    )


def _find_spilled_outputs(source: SourceFile, facts: ClaudeScan) -> dict[str, str]:
    """Map the ids of calls with long outputs to existing files in the session's own folder."""
    folder = source.path.parent / source.stem / "tool-results"
    paths = {call: folder / name for call, name in facts.spill_file_names.items()}
    existing = {call: str(path) for call, path in paths.items() if path.is_file()}
    report_missing_outputs(source, len(paths) - len(existing))
    return existing


def _find_title(facts: ClaudeScan) -> str | None:
    titles = (facts.session_fields.get(field) for field in ("customTitle", "aiTitle", "lastPrompt"))
    summaries = (summary for leaf, summary in facts.summaries.items() if leaf in facts.nodes)
    return next(filter(None, titles), None) or next(summaries, None)


# Sub-agents


def _read_inline_subagents(source: SourceFile, facts: ClaudeScan, shown: Sequence[ClaudeNode]) -> Iterator[Session]:
    """Read the sub-agents in the session's file: inline records, and progress records of agents without a file."""
    groups: dict[str, list[ClaudeNode]] = {}
    parents = {node.id: node.parent for node in facts.nodes.values()}
    for node in shown:
        if node.row.isSidechain:
            agent = node.row.agentId if isinstance(node.row.agentId, str) else trace_path(node.id, parents)[0][0]
            groups.setdefault(agent, []).append(node)
    for agent, nodes in facts.progress_nodes.items():
        if not _find_agent_files(source.path, agent):
            groups.setdefault(agent, nodes)
    for agent, nodes in groups.items():
        yield make_session(
            NAME,
            source,
            agent,
            (History(build_claude_messages(nodes, source)),),
            project=facts.session_fields.get("cwd", ""),
            parent=facts.session_ids[0] if facts.session_ids else "",
            call_id=facts.spawned_by.get(agent, ""),
            started=parse_time(nodes[0].row.timestamp),
            ended=parse_time(nodes[-1].row.timestamp),
            problems=(),
        )


def _find_agent_files(path: Path, agent: str) -> list[Path]:
    name = f"agent-{Path(agent).name}.jsonl"
    candidates = [path.parent / name, path.parent / path.name.split(".")[0] / "subagents" / name]
    return [file for file in candidates if os.path.isfile(file)]  # noqa: PTH113 - `isfile` raises no error for a name that is too long


def _read_subagent_files(source: SourceFile, facts: ClaudeScan) -> Iterator[Session]:
    """Read sub-agents that have separate files, and link each one to the call that started it."""
    folder = source.path.parent / source.stem / "subagents"
    files = {path for path in folder.rglob("agent-*.jsonl*") if path.is_file()} if folder.is_dir() else set()
    files.update(path for agent in facts.spawned_by for path in _find_agent_files(source.path, agent))
    for path in sorted(files):
        child = _build_session(SourceFile(path, source.limits))
        metadata_path = path.with_name(path.name.split(".")[0] + ".meta.json")
        meta = SourceFile(metadata_path).document if metadata_path.is_file() else None
        yield replace(
            child,
            call_id=text_at(meta, "toolUseId") or facts.spawned_by.get(child.id, ""),
            parent=text_at(meta, "parentAgentId") or child.parent,
            title=text_at(meta, "description") or child.title,
        )


def _sniff(source: SourceFile) -> int:
    """Match a record with a session id, a title that names a leaf record, or a file snapshot."""
    return 3 if any(map(_is_known_record, source.head)) else 0


def _owns_line(row: Any) -> bool:
    return _is_known_record(row) or (isinstance(row, dict) and "sessionId" in row and isinstance(row.get("type"), str))


def _is_known_record(row: Any) -> bool:
    if not (isinstance(row, dict) and isinstance(row.get("type"), str)):
        return False
    if "sessionId" in row and ("uuid" in row or row["type"] in _RECORD_TYPES):
        return True
    return (row["type"] == "summary" and "leafUuid" in row) or row["type"] == "file-history-snapshot"


def _homes(environment: Mapping[str, str], home: Path) -> list[SessionFolder]:
    """Return the folders below `CLAUDE_CONFIG_DIR` or `~/.claude`, and the folders of the macOS application."""
    root = Path(environment.get("CLAUDE_CONFIG_DIR") or home / ".claude")
    desktop = home / "Library" / "Application Support" / "Claude"
    return [
        SessionFolder(root / "projects", "*/*.jsonl", skip="agent-*"),
        SessionFolder(root / "transcripts", "**/*.jsonl"),
        SessionFolder(desktop / "claude-code-sessions", "**/*.jsonl", skip="agent-*"),
        SessionFolder(desktop / "local-agent-mode-sessions", "**/*.jsonl", skip="agent-*"),
    ]


FORMAT = TranscriptFormat(
    NAME,
    "Claude Code",
    _sniff,
    _read,
    _homes,
    resume="claude --resume {id}",
    wire="anthropic",
    layouts="sessions; sub-agents inline, in progress records or in files; spilled outputs; queued prompts",
    holds=("thinking", "sub-agents", "forks", "usage", "times", "edits", "rewinds", "compactions"),
    seen="1.0.98 to 2.1.52, 2.1.197",
    owns_line=_owns_line,
)
