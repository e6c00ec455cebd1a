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

from thresher.formats.claude_messages import messages_of
from thresher.formats.claude_rows import (
    LOOSE,
    STRICT,
    Node,
    Note,
    Outcome,
    Row,
    Wire,
    answered_call,
    result_text,
    speaks,
    tidy,
)
from thresher.formats.claude_way import conversation
from thresher.formats.loose import text as text_or_empty
from thresher.formats.source import SourceFile
from thresher.formats.transcript import Home, TranscriptFormat, first_prompt, timestamp, way_to_root
from thresher.model import History, Session
from thresher.model.marks import author_of

NAME = "claude-code"
_KINDS = {
    "user",
    "assistant",
    "system",
    "attachment",
    "progress",
    "summary",
    "file-history-snapshot",
    "queue-operation",
}
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_PERSISTED = "<persisted-output>"
_SPILL = re.compile(r"tool-results[/\\]+([\w-][\w.-]*)")
_NOTIFICATION = re.compile(rb"<task-id>([\w-]+)</task-id>.{0,20}?<tool-use-id>([\w-]+)</tool-use-id>", re.DOTALL)
_NOTE = msgspec.json.Decoder(Note)
_CHAIN = frozenset({"user", "assistant", "system", "attachment", "progress"})


class Facts:
    """What is gathered while a file is read once."""

    def __init__(self) -> None:
        """Nothing yet."""
        self.nodes: dict[str, Node] = {}
        self.records: Counter[str] = Counter()
        self.told: dict[str, str] = {}
        """The last word on title and the like, by field."""
        self.summaries: dict[str, str] = {}
        self.progress: dict[str, list[Node]] = {}
        """Messages of sub-agents that were only written as progress, by agent id."""
        self.spawned_by: dict[str, str] = {}
        """Agent id → the tool call that started it."""
        self.steering: list[Node] = []
        self.spilled: dict[str, str] = {}
        """Tool call → the name of the file that holds its whole output."""
        self.sessions: list[str] = []
        self.fork = ""


def read(source: SourceFile) -> list[Session]:
    """One session, with its sub-agents."""
    return [_session(source, _gather(source))]


def _gather(source: SourceFile) -> Facts:
    facts = Facts()
    queue: list[tuple[str, int]] = []
    last: str | None = None
    for line, record, row in source.rows(STRICT, LOOSE):
        if type(row) is Row:
            tidy(row)
        kind = row.type if type(row.type) is str else "?"
        facts.records[kind] += 1
        node = _node(row, line, record, last)
        if kind in _CHAIN:
            if node.id in facts.nodes:
                facts.records["repeated"] += 1
                continue
            facts.nodes[node.id] = node
            last = node.id
            if kind == "assistant" and facts.sessions and row.sessionId == facts.sessions[-1]:
                continue
        try:
            _note(facts, queue, kind, node)
        except UnicodeDecodeError:
            source.problem("wrong UTF-8 beside the conversation", "what it says of the session is left out", line)
    return facts


def _note(facts: Facts, queue: list[tuple[str, int]], kind: str, node: Node) -> None:
    if kind == "progress":
        if node.row.data is not None and node.row.data.agentId:
            _note_progress(facts, node)
    elif kind in _CHAIN:
        _note_facts(facts, node.row, node.record)
    elif kind == "queue-operation":
        _note_queue(facts, queue, _NOTE.decode(node.record), node)
    else:
        _note_title(facts, _NOTE.decode(node.record))


def _node(row: Row, line: int, record: bytes, last: str | None) -> Node:
    uuid = row.uuid if type(row.uuid) is str else f"line-{line}"
    parent = last if row.parentUuid is UNSET else row.parentUuid if type(row.parentUuid) is str else None
    return Node(uuid, parent, row, line, record)


def _note_facts(facts: Facts, row: Row, record: bytes) -> None:
    if not facts.sessions or row.sessionId != facts.sessions[-1]:
        if type(row.sessionId) is str:
            facts.sessions.append(row.sessionId)
        for field in ("cwd", "gitBranch", "version", "agentId"):
            value = getattr(row, field)
            if type(value) is str:
                facts.told.setdefault(field, value)
    if row.forkedFrom and isinstance(row.forkedFrom, dict):
        facts.fork = text_or_empty(row.forkedFrom.get("sessionId"))
    if isinstance(row.toolUseResult, Outcome):
        call = answered_call(row.message)
        if isinstance(row.toolUseResult.agentId, str):
            facts.spawned_by[row.toolUseResult.agentId] = call
        if name := _spill(row):
            facts.spilled[call] = name
    elif row.type == "user" and (found := _NOTIFICATION.search(record)):
        facts.spawned_by.setdefault(found[1].decode(), found[2].decode())


def _spill(row: Row) -> str:
    """The name of the file that holds the whole of a long output; the preview or the harness's note tells."""
    told = row.toolUseResult.persistedOutputPath
    if not isinstance(told, str):
        told = result_text(row.message)
        if not told.startswith(_PERSISTED):
            return ""
    found = _SPILL.search(told[:1000])
    return found[1] if found else ""


def _note_progress(facts: Facts, node: Node) -> None:
    agent, inner = node.row.data.agentId, node.row.data.message
    if not isinstance(agent, str):
        return
    if isinstance(node.row.parentToolUseID, str):
        facts.spawned_by.setdefault(agent, node.row.parentToolUseID)
    if inner is not None and inner.type in ("user", "assistant") and inner.message is not None:
        row = Row(type=inner.type, isSidechain=True, message=inner.message, timestamp=inner.timestamp)
        rows = facts.progress.setdefault(agent, [])
        rows.append(
            Node(text_or_empty(inner.uuid) or node.id, rows[-1].id if rows else None, row, node.line, node.record)
        )


def _note_queue(facts: Facts, queue: list[tuple[str, int]], note: Note, node: Node) -> None:
    """A prompt that leaves the queue by `remove` was given to the model in the middle of its turn."""
    match note.operation:
        case "enqueue" if isinstance(note.content, str):
            queue.append((note.content, node.line))
        case "remove" if queue:
            text, asked = queue.pop(0)
            if author_of(text) == "human" and not text.startswith('{"task_id"'):
                row = Row(type="user", message=Wire(content=text), timestamp=note.timestamp)
                facts.steering.append(Node(f"queue-{asked}", None, row, node.line, node.record))
        case "dequeue" if queue:
            queue.pop(0)
        case "popAll":
            queue.clear()


def _note_title(facts: Facts, note: Note) -> None:
    for field in ("customTitle", "aiTitle", "lastPrompt"):
        value = getattr(note, field)
        if isinstance(value, str) and value:
            facts.told[field] = value
    if isinstance(note.summary, str) and isinstance(note.leafUuid, str):
        facts.summaries[note.leafUuid] = note.summary


def _session(source: SourceFile, facts: Facts) -> Session:
    spoken = [node for node in facts.nodes.values() if speaks(node.row)]
    own = [node for node in spoken if not node.row.isSidechain]
    is_agent = bool(spoken) and not own
    main = spoken if is_agent else own
    spilled = _spilled(source, facts)
    segments, branches, compactions = conversation(source, facts.nodes, main, facts.steering)
    children = [] if is_agent else [*_inline_children(source, facts, spoken), *_children(source, facts)]
    stem = source.path.name.split(".")[0]
    first = facts.sessions[0] if facts.sessions else ""
    agent_id = facts.told.get("agentId") or stem.removeprefix("agent-")
    id_ = agent_id if is_agent else stem if _UUID.fullmatch(stem) else first or stem
    times = [message.time for segment in segments for message in segment if message.time]
    return Session(
        agent=NAME,
        id=id_,
        file=str(source.path),
        segments=tuple(segments),
        branches=tuple(branches),
        children=tuple(children),
        spilled=spilled,
        problems=tuple(source.problems),
        compactions=compactions,
        records=dict(facts.records),
        project=facts.told.get("cwd", ""),
        git_branch=facts.told.get("gitBranch", ""),
        title=_title(facts, segments),
        version=facts.told.get("version", ""),
        parent=first if is_agent else facts.fork or (first if first != id_ else ""),
        started=min(times, default=None),
        ended=max(times, default=None),
    )


def _spilled(source: SourceFile, facts: Facts) -> dict[str, str]:
    """Outputs too long for the transcript, by call; looked for only in the session's own folder."""
    folder = source.path.parent / source.path.name.split(".")[0] / "tool-results"
    here = {call: folder / name for call, name in facts.spilled.items() if (folder / name).is_file()}
    missing = len(facts.spilled) - len(here)
    if missing:
        source.problem(
            f"{missing} long outputs are in files that are not here", "what the transcript shows of them is kept"
        )
    return {call: str(path) for call, path in here.items()}


def _title(facts: Facts, segments: Sequence[History]) -> str:
    for field in ("customTitle", "aiTitle", "lastPrompt"):
        if field in facts.told:
            return facts.told[field]
    for leaf, summary in facts.summaries.items():
        if leaf in facts.nodes:
            return summary
    return first_prompt(segments)


# Sub-agents


def _inline_children(source: SourceFile, facts: Facts, spoken: Sequence[Node]) -> Iterator[Session]:
    """Sub-agents written among the session's own lines, or only as its progress."""
    groups: dict[str, list[Node]] = {}
    parents = {node.id: node.parent for node in facts.nodes.values()}
    for node in spoken:
        if node.row.isSidechain:
            agent = node.row.agentId if isinstance(node.row.agentId, str) else way_to_root(node.id, parents)[0][0]
            groups.setdefault(agent, []).append(node)
    for agent, nodes in facts.progress.items():
        if not _agent_files(source.path, agent):
            groups.setdefault(agent, nodes)
    for agent, nodes in groups.items():
        yield Session(
            agent=NAME,
            id=agent,
            file=str(source.path),
            segments=(History(messages_of(nodes, source)),),
            project=facts.told.get("cwd", ""),
            parent=facts.sessions[0] if facts.sessions else "",
            call_id=facts.spawned_by.get(agent, ""),
            started=timestamp(nodes[0].row.timestamp),
            ended=timestamp(nodes[-1].row.timestamp),
        )


def _agent_files(path: Path, agent: str) -> list[Path]:
    name = f"agent-{Path(agent).name}.jsonl"
    places = [path.parent / name, path.parent / path.name.split(".")[0] / "subagents" / name]
    return [place for place in places if os.path.isfile(place)]  # noqa: PTH113 - no name is too long for it


def _children(source: SourceFile, facts: Facts) -> Iterator[Session]:
    """Sub-agents in files of their own, linked to the call that started them."""
    folder = source.path.parent / source.path.name.split(".")[0] / "subagents"
    files = {path for path in folder.rglob("agent-*.jsonl*") if path.is_file()} if folder.is_dir() else set()
    files.update(path for agent in facts.spawned_by for path in _agent_files(source.path, agent))
    for path in sorted(files):
        child = _session(inner := SourceFile(path, source.limits), _gather(inner))
        meta = _meta(path)
        yield msgspec.structs.replace(
            child,
            call_id=text_or_empty(meta.get("toolUseId")) or facts.spawned_by.get(child.id, ""),
            parent=text_or_empty(meta.get("parentAgentId")) or child.parent,
            title=text_or_empty(meta.get("description")) or child.title,
        )


def _meta(path: Path) -> dict[str, Any]:
    meta = path.with_name(path.name.split(".")[0] + ".meta.json")
    if not meta.is_file():
        return {}
    value = SourceFile(meta).document
    return value if isinstance(value, dict) else {}


def sniff(source: SourceFile) -> int:
    """A record of a known kind with the ids of this format, or a title that names a leaf."""
    for row in source.head:
        if isinstance(row, dict) and isinstance(row.get("type"), str):
            if "sessionId" in row and ("uuid" in row or row["type"] in _KINDS):
                return 3
            if (row["type"] == "summary" and "leafUuid" in row) or row["type"] == "file-history-snapshot":
                return 3
    return 0


def homes(environment: Mapping[str, str], home: Path) -> list[Home]:
    """`CLAUDE_CONFIG_DIR`, else `~/.claude`; on macOS also the desktop application's trees."""
    root = Path(environment.get("CLAUDE_CONFIG_DIR") or home / ".claude")
    desktop = home / "Library" / "Application Support" / "Claude"
    return [
        Home(root / "projects", "*/*.jsonl", skip="agent-*"),
        Home(root / "transcripts", "**/*.jsonl"),
        Home(desktop / "claude-code-sessions", "**/*.jsonl", skip="agent-*"),
        Home(desktop / "local-agent-mode-sessions", "**/*.jsonl", skip="agent-*"),
    ]


FORMAT = TranscriptFormat(
    NAME,
    "Claude Code",
    sniff,
    read,
    homes,
    resume="claude --resume {id}",
    wire="anthropic",
    layouts="sessions; sub-agents inline, as progress, in files beside or below; spilled outputs; queued prompts",
    holds=("thinking", "sub-agents", "forks", "usage", "times", "edits", "rewinds", "compactions"),
    seen="1.0.98 to 2.1.52, 2.1.197",
)
