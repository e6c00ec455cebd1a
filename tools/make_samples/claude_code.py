"""Claude Code's record shapes: one JSON object per line, tied into a tree by `parentUuid`.

What makes these files hard to read is kept on purpose. One answer of the model lies over several lines, one
per block, that share `message.id` and `requestId` and repeat a growing `usage`. The result of a call hangs
from that call's own line, so of two parallel results only the last is on the way to the leaf. Progress rows
hang from the tree and lead nowhere; snapshots, titles and queue operations stand outside it.
"""

from dataclasses import dataclass, field
from typing import Any

from make_samples.seeds import Clock, Record, hunks, numbered, opaque, random_uuid, stamp, token, weight
from make_samples.story import ROOT

VERSION = "2.1.58"
MODEL = "claude-opus-4-6"
SYSTEM_TOKENS = 16_800
"""What the system text and the tool definitions weigh before anything is said."""


def thought(text: str) -> Record:
    """A block of thinking."""
    return {"type": "thinking", "thinking": text}


def words(text: str) -> Record:
    """A block of text."""
    return {"type": "text", "text": text}


def call(name: str, **arguments: Any) -> Record:
    """A block that calls a tool."""
    return {"type": "tool_use", "name": name, "input": arguments}


@dataclass(frozen=True)
class Outcome:
    """What a tool gave back: the words for the model, and Claude Code's own note of it."""

    content: str | list[Record]
    note: Record | str
    error: bool | None = None


def read_outcome(name: str, text: str, reminder: str = "") -> Outcome:
    """A file that was read whole."""
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
    """A file that was edited."""
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
    """A file that was made."""
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
    """A command that went well."""
    note = {"stdout": output, "stderr": "", "interrupted": False, "isImage": False, "noOutputExpected": False}
    return Outcome(output, note, error=False)


def shell_failure(output: str, code: int = 1) -> Outcome:
    """A command that went wrong."""
    text = f"Exit code {code}\n{output}"
    return Outcome(text, f"Error: {text}", error=True)


def grep_outcome(lines: list[str]) -> Outcome:
    """Lines that a search found."""
    text = "\n".join(lines)
    note = {"mode": "content", "numFiles": 0, "filenames": [], "content": text, "numLines": len(lines)}
    return Outcome(text, note)


@dataclass
class Transcript:
    """A session file in the making."""

    session: str
    clock: Clock
    branch: str
    agent: str = ""
    """The id of the sub-agent, if this is one's file."""
    slug: str = "quiet-counting-otter"
    records: list[Record] = field(default_factory=list)
    leaf: str | None = None
    lines: dict[str, str] = field(default_factory=dict)
    """The line that each call stands on."""
    cached: int = 0
    fresh: int = SYSTEM_TOKENS
    messages: int = 0

    @property
    def seed(self) -> str:
        """What the ids of this file are made from."""
        return f"{self.session} {self.agent}"

    def next_uuid(self) -> str:
        """The id that the next record of the tree gets."""
        return random_uuid(f"{self.seed} record {len(self.records)}")

    def outside(self, record: Record) -> None:
        """Write a record that is no part of the tree."""
        self.records.append(record)

    def add(self, parent: str | None, fields: Record, *, seconds: float = 0.4) -> str:
        """Write a record of the tree; it does not become the leaf by itself."""
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
        """The user says something; a snapshot of the files goes before it in a main session."""
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
        """The model answers: one line per block. Gives back the ids of its calls."""
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
        """The API's message, as each of its lines repeats it."""
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
        """A tool answers; the line hangs from the line of its own call."""
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
        """The model answers with one call, and the tool answers it. Gives back the call's id."""
        (identity,) = self.say(*blocks)
        self.answer(identity, gives, seconds=seconds)
        return identity

    def progress(self, data: Record, identity: str, toolkit: str) -> None:
        """A tool is still at work; nothing hangs from this row."""
        fields = {"type": "progress", "data": data, "toolUseID": toolkit, "parentToolUseID": identity}
        self.add(self.lines.get(identity, self.leaf), fields, seconds=2)

    def system(self, subtype: str, **fields: Any) -> str:
        """A note of the harness, in the tree."""
        self.leaf = self.add(self.leaf, {"type": "system", "subtype": subtype, **fields})
        return self.leaf

    def snapshot(self, message: str, backups: Record, *, update: bool = False) -> None:
        """Which files could be put back to how they were at a message."""
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
        """Something was typed while the model worked, or taken up now."""
        time = stamp(self.clock.tick(1))
        head = {"type": "queue-operation", "operation": operation, "timestamp": time}
        self.outside({**head, "sessionId": self.session, **fields})

    def compact(self, summary: str) -> None:
        """The conversation becomes a summary and begins again from there."""
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
    """A block with what the API adds to it: a signature, or an id."""
    if block["type"] == "thinking":
        return {**block, "signature": opaque(seed, 240 + len(block["thinking"]) // 2)}
    if block["type"] == "tool_use":
        head = {"type": "tool_use", "id": token("toolu_01", seed)}
        return {**head, "name": block["name"], "input": block["input"], "caller": {"type": "direct"}}
    return block
