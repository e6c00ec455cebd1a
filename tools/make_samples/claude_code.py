"""Claude Code's record shapes: one JSON object per line, linked into a tree by `parentUuid`.

The difficulties of these files are deliberate. One model answer covers several lines, one per block, that share
`message.id` and `requestId` and repeat a growing `usage`. The result of a call is a child of that call's own line, so
only the last of two parallel results is an ancestor of the leaf. Progress rows are dead ends in the tree. Snapshots,
titles and queue operations are outside it.
"""

from dataclasses import dataclass, field
from typing import Any

from make_samples.seeds import Clock, Record, hunks, numbered, opaque, random_uuid, stamp, token, weight
from make_samples.story import ROOT

VERSION = "2.1.58"
MODEL = "claude-opus-4-6"
SYSTEM_TOKENS = 16_800
"""Tokens of the system text and the tool definitions."""


def thought(text: str) -> Record:
    """Build a thinking block."""
    return {"type": "thinking", "thinking": text}


def words(text: str) -> Record:
    """Build a text block."""
    return {"type": "text", "text": text}


def call(name: str, **arguments: Any) -> Record:
    """Build a tool call block."""
    return {"type": "tool_use", "name": name, "input": arguments}


@dataclass(frozen=True)
class Outcome:
    """Result of a tool: text for the model, and Claude Code's own structured copy."""

    content: str | list[Record]
    note: Record | str
    error: bool | None = None


def read_outcome(name: str, text: str, reminder: str = "") -> Outcome:
    """Build the result of a complete read of a file."""
    count = len(text.splitlines())
    file = {
        "filePath": f"{ROOT}/{name}",
        "content": text,
        "numLines": count,
        "startLine": 1,
        "totalLines": count,
    }
    return Outcome(numbered(text) + reminder, {"type": "text", "file": file})


def edit_outcome(name: str, before: str, old: str, new: str) -> Outcome:
    """Build the result of an edit."""
    path = f"{ROOT}/{name}"
    note = {
        "filePath": path,
        "oldString": old,
        "newString": new,
        "originalFile": before,
        "structuredPatch": hunks(before, before.replace(old, new, 1)),
        "userModified": False,
        "replaceAll": False,
    }
    return Outcome(f"The file {path} has been updated successfully.", note)


def write_outcome(name: str, text: str) -> Outcome:
    """Build the result of creating a file."""
    path = f"{ROOT}/{name}"
    note: Record = {
        "type": "create",
        "filePath": path,
        "content": text,
        "structuredPatch": [],
        "originalFile": None,
    }
    return Outcome(f"File created successfully at: {path}", note)


def shell_outcome(output: str) -> Outcome:
    """Build the result of a successful command."""
    note = {"stdout": output, "stderr": "", "interrupted": False, "isImage": False, "noOutputExpected": False}
    return Outcome(output, note, error=False)


def shell_failure(output: str, code: int = 1) -> Outcome:
    """Build the result of a failed command."""
    text = f"Exit code {code}\n{output}"
    return Outcome(text, f"Error: {text}", error=True)


def grep_outcome(lines: list[str]) -> Outcome:
    """Build the result of a search."""
    text = "\n".join(lines)
    note = {"mode": "content", "numFiles": 0, "filenames": [], "content": text, "numLines": len(lines)}
    return Outcome(text, note)


@dataclass
class Transcript:
    """A session file under construction."""

    session: str
    clock: Clock
    branch: str
    agent: str = ""
    """Id of the sub-agent, if the file belongs to one."""
    slug: str = "quiet-counting-otter"
    records: list[Record] = field(default_factory=list)
    leaf: str | None = None
    lines: dict[str, str] = field(default_factory=dict)
    """Line of each call."""
    cached: int = 0
    fresh: int = SYSTEM_TOKENS
    messages: int = 0

    @property
    def seed(self) -> str:
        """Seed of the ids in this file."""
        return f"{self.session} {self.agent}"

    def next_uuid(self) -> str:
        """Return the id of the next record in the tree."""
        return random_uuid(f"{self.seed} record {len(self.records)}")

    def outside(self, record: Record) -> None:
        """Write a record outside the tree."""
        self.records.append(record)

    def add(self, parent: str | None, fields: Record, *, seconds: float = 0.4) -> str:
        """Write a record of the tree, without making it the leaf."""
        identity = fields.pop("uuid", None) or self.next_uuid()
        envelope: Record = {
            "parentUuid": parent,
            "isSidechain": bool(self.agent),
            "userType": "external",
            "cwd": ROOT,
            "sessionId": self.session,
            "version": VERSION,
            "gitBranch": self.branch,
            **({"agentId": self.agent} if self.agent else {}),
            "slug": self.slug,
        }
        time = stamp(self.clock.tick(seconds))
        self.records.append({**envelope, **fields, "uuid": identity, "timestamp": time})
        return identity

    def prompt(self, content: str | list[Record], *, seconds: float = 40, **fields: Any) -> str:
        """Write a user message; in a main session a snapshot of the files precedes it."""
        identity = self.next_uuid()
        if not self.agent:
            self.snapshot(identity, {})
        message = {"role": "user", "content": content}
        self.leaf = self.add(
            self.leaf, {"type": "user", "message": message, **fields, "uuid": identity}, seconds=seconds
        )
        self.fresh += weight(content)
        return identity

    def say(self, *blocks: Record) -> list[str]:
        """Write a model answer with one line per block, and return the ids of its calls."""
        self.messages += 1
        seed = f"{self.seed} message {self.messages}"
        ends = "tool_use" if any(block["type"] == "tool_use" for block in blocks) else "end_turn"
        spent, calls = 0, []
        for number, plain in enumerate(blocks):
            block = complete(plain, f"{seed} {number}")
            spent += weight(block)
            last = number == len(blocks) - 1
            message = self.message(seed, block, ends if last else None, spent if last else 8 + spent // 3)
            fields = {"message": message, "requestId": token("req_011CZ", seed, 19), "type": "assistant"}
            self.leaf = self.add(self.leaf, fields, seconds=2.0 + spent / 90)
            if block["type"] == "tool_use":
                calls.append(block["id"])
                self.lines[block["id"]] = self.leaf
        self.cached, self.fresh = self.cached + self.fresh, spent
        return calls

    def message(self, seed: str, block: Record, ends: str | None, spent: int) -> Record:
        """Build the API's message, which each of its lines repeats."""
        usage = {
            "input_tokens": 3,
            "cache_creation_input_tokens": self.fresh,
            "cache_read_input_tokens": self.cached,
            "cache_creation": {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": self.fresh},
            "output_tokens": spent,
            "service_tier": "standard",
            "inference_geo": "not_available",
        }
        return {
            "model": MODEL,
            "id": token("msg_01", seed),
            "type": "message",
            "role": "assistant",
            "content": [block],
            "stop_reason": ends,
            "stop_sequence": None,
            "usage": usage,
        }

    def answer(self, identity: str, outcome: Outcome, *, seconds: float = 0.2) -> str:
        """Write a tool result as a child of its call's line."""
        block: Record = {"tool_use_id": identity, "type": "tool_result", "content": outcome.content}
        if outcome.error is not None:
            block["is_error"] = outcome.error
        line = self.lines[identity]
        fields = {
            "type": "user",
            "message": {"role": "user", "content": [block]},
            "toolUseResult": outcome.note,
            "sourceToolAssistantUUID": line,
        }
        self.leaf = self.add(line, fields, seconds=seconds)
        self.fresh += weight(outcome.content)
        return self.leaf

    def do(self, *blocks: Record, gives: Outcome, seconds: float = 0.2) -> str:
        """Write a model answer with one call and the tool result, and return the call's id."""
        (identity,) = self.say(*blocks)
        self.answer(identity, gives, seconds=seconds)
        return identity

    def progress(self, data: Record, identity: str, toolkit: str) -> None:
        """Write a progress row of a running tool, which has no children."""
        fields = {"type": "progress", "data": data, "toolUseID": toolkit, "parentToolUseID": identity}
        self.add(self.lines.get(identity, self.leaf), fields, seconds=2)

    def system(self, subtype: str, **fields: Any) -> str:
        """Write a harness note in the tree."""
        self.leaf = self.add(self.leaf, {"type": "system", "subtype": subtype, **fields})
        return self.leaf

    def snapshot(self, message: str, backups: Record, *, update: bool = False) -> None:
        """Write a snapshot of the files at a message."""
        time = stamp(self.clock.now)
        content = {"messageId": message, "trackedFileBackups": backups, "timestamp": time}
        self.outside(
            {
                "type": "file-history-snapshot",
                "messageId": message,
                "snapshot": content,
                "isSnapshotUpdate": update,
            }
        )

    def queue(self, operation: str, **fields: Any) -> None:
        """Write a queue operation: text typed while the model works, or its removal from the queue."""
        time = stamp(self.clock.tick(1))
        head = {"type": "queue-operation", "operation": operation, "timestamp": time}
        self.outside({**head, "sessionId": self.session, **fields})

    def compact(self, summary: str) -> None:
        """Write a compaction: a summary replaces the conversation."""
        before = self.cached + self.fresh
        fields: Record = {
            "logicalParentUuid": self.leaf,
            "type": "system",
            "subtype": "compact_boundary",
            "content": "Conversation compacted",
            "isMeta": False,
            "level": "info",
            "compactMetadata": {"trigger": "auto", "preTokens": before},
        }
        self.leaf = self.add(None, fields, seconds=38)
        message = {"role": "user", "content": summary}
        marks = {"isVisibleInTranscriptOnly": True, "isCompactSummary": True}
        self.leaf = self.add(self.leaf, {"type": "user", "message": message, **marks})
        self.cached, self.fresh = SYSTEM_TOKENS, weight(summary)


def complete(block: Record, seed: str) -> Record:
    """Add the fields of the API to a block: a signature, or an id."""
    if block["type"] == "thinking":
        return {**block, "signature": opaque(seed, 240 + len(block["thinking"]) // 2)}
    if block["type"] == "tool_use":
        head = {"type": "tool_use", "id": token("toolu_01", seed)}
        return {**head, "name": block["name"], "input": block["input"], "caller": {"type": "direct"}}
    return block
