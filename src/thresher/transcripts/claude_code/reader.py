"""Claude Code: one JSONL file a session, a tree of records, one line a content block.

What makes it hard, and what is done here:
- one API message is spread over several lines: they are joined by `message.id`, wherever they stand;
- results of parallel calls hang off their own call's line, so all but one are off the way from leaf to root:
  they are brought back by `tool_use_id`, as are lines of a message that is on the way;
- a compaction starts a new root: each root is a segment, linked by the boundary's `logicalParentUuid`;
- sub-agents were written in four ways: inline (`isSidechain`), as progress records, as `agent-<id>.jsonl` beside
  the session, and under `<session>/subagents/`; they are keyed by agent id, since they share the session's id;
- text typed while the model works is in an attachment (`queued_command`) or only in the queue's own records.
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
from thresher.transcripts.base import (
    SessionFolder,
    TranscriptFormat,
    make_session,
    parse_time,
    title_from_prompt,
    trace_path,
)
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
    """What is gathered while a file is read once."""

    def __init__(self) -> None:
        """Nothing yet."""
        self.nodes: dict[str, ClaudeNode] = {}
        self.records: Counter[str] = Counter()
        self.session_fields: dict[str, str] = {}
        """The last word on title and the like, by field."""
        self.summaries: dict[str, str] = {}
        self.progress_nodes: dict[str, list[ClaudeNode]] = {}
        """Messages of sub-agents that were only written as progress, by agent id."""
        self.spawned_by: dict[str, str] = {}
        """Agent id → the tool call that started it."""
        self.steering_prompts: list[ClaudeNode] = []
        self.spill_file_names: dict[str, str] = {}
        """Tool call → the name of the file that holds its whole output."""
        self.session_ids: list[str] = []
        self.forked_from = ""


def _read(source: SourceFile) -> list[Session]:
    """One session, with its sub-agents."""
    return [_build_session(source, _scan_file(source))]


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
        except UnicodeDecodeError:
            source.report("wrong UTF-8 beside the conversation", "what it says of the session is left out", line)
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
    elif row.type == "user" and (found := _NOTIFICATION.search(record)):
        facts.spawned_by.setdefault(found[1].decode(), found[2].decode())


def _find_spill_file_name(row: ClaudeRecord) -> str:
    """The name of the file that holds the whole of a long output; the preview or the harness's note tells."""
    told = row.toolUseResult.persistedOutputPath
    if not isinstance(told, str):
        told = plain_result_text(row.message)
        if not told.startswith(_PERSISTED_OUTPUT_TAG):
            return ""
    found = _SPILL_FILE_NAME.search(told[:1000])
    return found[1] if found else ""


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
    """A prompt that leaves the queue by `remove` was given to the model in the middle of its turn."""
    match note.operation:
        case "enqueue" if isinstance(note.content, str):
            queue.append((note.content, node.line))
        case "remove" if queue:
            text, asked = queue.pop(0)
            if detect_author(text) == "human" and not text.startswith('{"task_id"'):
                row = ClaudeRecord(type="user", message=ClaudeMessage(content=text), timestamp=note.timestamp)
                facts.steering_prompts.append(ClaudeNode(f"queue-{asked}", None, row, node.line, node.record))
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


def _build_session(source: SourceFile, facts: ClaudeScan) -> Session:
    spoken = [node for node in facts.nodes.values() if is_shown_record(node.row)]
    own = [node for node in spoken if not node.row.isSidechain]
    is_agent = bool(spoken) and not own
    main = spoken if is_agent else own
    spilled = _find_spilled_outputs(source, facts)
    segments, branches, compactions = linearize_record_tree(source, facts.nodes, main, facts.steering_prompts)
    children = (
        [] if is_agent else [*_read_inline_subagents(source, facts, spoken), *_read_subagent_files(source, facts)]
    )
    stem = source.stem
    first = facts.session_ids[0] if facts.session_ids else ""
    agent_id = facts.session_fields.get("agentId") or stem.removeprefix("agent-")
    id_ = agent_id if is_agent else stem if _UUID.fullmatch(stem) else first or stem
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
        title=_choose_title(facts, segments),
        version=facts.session_fields.get("version", ""),
        parent=first if is_agent else facts.forked_from or (first if first != id_ else ""),
    )


def _find_spilled_outputs(source: SourceFile, facts: ClaudeScan) -> dict[str, str]:
    """Outputs too long for the transcript, by call; looked for only in the session's own folder."""
    folder = source.path.parent / source.stem / "tool-results"
    here = {call: folder / name for call, name in facts.spill_file_names.items() if (folder / name).is_file()}
    report_missing_outputs(source, len(facts.spill_file_names) - len(here))
    return {call: str(path) for call, path in here.items()}


def _choose_title(facts: ClaudeScan, segments: Sequence[History]) -> str:
    for field in ("customTitle", "aiTitle", "lastPrompt"):
        if field in facts.session_fields:
            return facts.session_fields[field]
    for leaf, summary in facts.summaries.items():
        if leaf in facts.nodes:
            return summary
    return title_from_prompt(segments)


# Sub-agents


def _read_inline_subagents(source: SourceFile, facts: ClaudeScan, spoken: Sequence[ClaudeNode]) -> Iterator[Session]:
    """Sub-agents written among the session's own lines, or only as its progress."""
    groups: dict[str, list[ClaudeNode]] = {}
    parents = {node.id: node.parent for node in facts.nodes.values()}
    for node in spoken:
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
    places = [path.parent / name, path.parent / path.name.split(".")[0] / "subagents" / name]
    return [place for place in places if os.path.isfile(place)]  # noqa: PTH113 - no name is too long for it


def _read_subagent_files(source: SourceFile, facts: ClaudeScan) -> Iterator[Session]:
    """Sub-agents in files of their own, linked to the call that started them."""
    folder = source.path.parent / source.stem / "subagents"
    files = {path for path in folder.rglob("agent-*.jsonl*") if path.is_file()} if folder.is_dir() else set()
    files.update(path for agent in facts.spawned_by for path in _find_agent_files(source.path, agent))
    for path in sorted(files):
        child = _build_session(inner := SourceFile(path, source.limits), _scan_file(inner))
        meta = _read_agent_metadata(path)
        yield replace(
            child,
            call_id=text_at(meta, "toolUseId") or facts.spawned_by.get(child.id, ""),
            parent=text_at(meta, "parentAgentId") or child.parent,
            title=text_at(meta, "description") or child.title,
        )


def _read_agent_metadata(path: Path) -> dict[str, Any]:
    meta = path.with_name(path.name.split(".")[0] + ".meta.json")
    if not meta.is_file():
        return {}
    value = SourceFile(meta).document
    return value if isinstance(value, dict) else {}


def _sniff(source: SourceFile) -> int:
    """A record of a known kind with the ids of this format, or a title that names a leaf."""
    for row in source.head:
        if isinstance(row, dict) and isinstance(row.get("type"), str):
            if "sessionId" in row and ("uuid" in row or row["type"] in _RECORD_TYPES):
                return 3
            if (row["type"] == "summary" and "leafUuid" in row) or row["type"] == "file-history-snapshot":
                return 3
    return 0


def _homes(environment: Mapping[str, str], home: Path) -> list[SessionFolder]:
    """`CLAUDE_CONFIG_DIR`, else `~/.claude`; on macOS also the desktop application's trees."""
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
    layouts="sessions; sub-agents inline, as progress, in files beside or below; spilled outputs; queued prompts",
    holds=("thinking", "sub-agents", "forks", "usage", "times", "edits", "rewinds", "compactions"),
    seen="1.0.98 to 2.1.52, 2.1.197",
)
