"""Codex CLI: a rollout file with duplicate user messages and a compaction that repeats its own past.

Every line has a time, a type and a payload. `response_item`s are the model's context; `event_msg` repeats some of it
for the terminal and adds token counts. A `compacted` line holds the history that replaces the old one.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from make_samples import codex_story as tale
from make_samples.seeds import Clock, Record, hexadecimal, line_of, opaque, stamp, start, timed_uuid, token, weight
from make_samples.story import ROOT

WINDOW = 258_400
MODEL = "gpt-5.2-codex"


@dataclass
class Rollout:
    """A rollout file under construction."""

    clock: Clock
    records: list[Record] = field(default_factory=list)
    turn: str = ""
    context: int = 9_400
    total: Record = field(default_factory=lambda: usage(0, 0, 0))

    def line(self, kind: str, payload: Record, seconds: float = 0.3) -> None:
        """Write one line."""
        time = stamp(self.clock.tick(seconds))
        self.records.append({"timestamp": time, "type": kind, "payload": payload})

    def item(self, payload: Record, seconds: float = 0.3) -> None:
        """Write an item of the model's context."""
        self.context += weight(payload)
        self.line("response_item", payload, seconds)

    def event(self, kind: str, **fields: Any) -> None:
        """Write an event for the terminal."""
        self.line("event_msg", {"type": kind, **fields}, 0)

    def identity(self, prefix: str) -> str:
        """Return the id of the next item."""
        return prefix + hexadecimal(f"codex {len(self.records)}", 50)

    def begin(self, prompt: str) -> None:
        """Write a user message, which starts a turn."""
        moment = self.clock.tick(30)
        self.turn = timed_uuid(f"turn {len(self.records)}", moment)
        self.event("task_started", turn_id=self.turn, started_at=int(moment.timestamp()), model_context_window=WINDOW)
        if len(self.records) == 2:
            self.item(message("developer", tale.PERMISSIONS))
            self.item(message("user", tale.INSTRUCTIONS, tale.ENVIRONMENT))
        self.line("turn_context", turn_context(self.turn))
        self.item(message("user", prompt))
        self.event("user_message", message=prompt, images=[], local_images=[], text_elements=[])

    def reason(self, summary: str) -> None:
        """Write model thinking: a line of summary, the rest encrypted."""
        parts = [{"type": "summary_text", "text": summary}]
        identity = self.identity("rs_")
        payload = {"type": "reasoning", "id": identity, "summary": parts, "content": None}
        self.item({**payload, "encrypted_content": "gAAAAAB" + opaque(identity, 420)}, 4)
        self.event("agent_reasoning", text=summary)

    def say(self, text: str, phase: str = "commentary") -> None:
        """Write model text; the event precedes it."""
        self.event("agent_message", message=text, phase=phase, memory_citation=None)
        content = [{"type": "output_text", "text": text}]
        head = {"type": "message", "id": self.identity("msg_"), "role": "assistant"}
        self.item({**head, "content": content, "phase": phase}, 1)

    def run(self, *commands: tuple[str, str, int]) -> None:
        """Write parallel commands, each with its output and its exit code."""
        calls = [self.command(command) for command, _, _ in commands]
        for call, (_, output, code) in zip(calls, commands, strict=True):
            seconds = f"{0.05 + len(output) / 9000:.4f}"
            head = f"Chunk ID: {hexadecimal(call, 6)}\nWall time: {seconds} seconds\n"
            end = f"Process exited with code {code}\nOriginal token count: {weight(output)}\n"
            text = f"{head}{end}Output:\n{output}"
            self.item({"type": "function_call_output", "call_id": call, "output": text}, 0.6)
        self.count()

    def command(self, command: str) -> str:
        """Write one shell call."""
        call = token("call_", f"codex call {len(self.records)}", 24)
        fields = {"cmd": command, "workdir": ROOT, "yield_time_ms": 10_000, "max_output_tokens": 12_000}
        head = {"type": "function_call", "id": self.identity("fc_"), "name": "exec_command"}
        self.item({**head, "arguments": msgspec.json.encode(fields).decode(), "call_id": call}, 2)
        return call

    def patch(self, text: str, *files: str) -> None:
        """Write a file edit; its argument is a patch instead of JSON."""
        call = token("call_", f"codex call {len(self.records)}", 24)
        head = {
            "type": "custom_tool_call",
            "id": self.identity("ctc_"),
            "status": "completed",
            "call_id": call,
        }
        self.item({**head, "name": "apply_patch", "input": text}, 6)
        done = "Success. Updated the following files:\n" + "".join(f"{name}\n" for name in files)
        self.event("patch_apply_end", call_id=call, turn_id=self.turn, stdout=done, stderr="", success=True)
        output = f"Exit code: 0\nWall time: 0 seconds\nOutput:\n{done}"
        self.item({"type": "custom_tool_call_output", "call_id": call, "output": output})
        self.count()

    def count(self) -> None:
        """Write the usage of the last request and the running total."""
        last = usage(self.context, self.context * 9 // 10, 180 + len(self.records))
        self.total = {name: self.total[name] + number for name, number in last.items()}
        info = {"total_token_usage": self.total, "last_token_usage": last, "model_context_window": WINDOW}
        self.event("token_count", info=info, rate_limits=None)

    def end(self, text: str) -> None:
        """Write the last model message of the turn."""
        self.say(text, "final_answer")
        self.count()
        moment = int(self.clock.now.timestamp())
        self.event(
            "task_complete",
            turn_id=self.turn,
            last_agent_message=text,
            completed_at=moment,
            duration_ms=94_210,
        )

    def compact(self, *history: Record) -> None:
        """Replace the history by another one."""
        self.line("compacted", {"message": "", "replacement_history": list(history)}, 20)
        self.context = 9_400 + weight(list(history))
        self.line("turn_context", turn_context(self.turn))
        self.event("context_compacted")


def message(role: str, *texts: str) -> Record:
    """Build a message that the model did not write."""
    content = [{"type": "input_text", "text": text} for text in texts]
    return {"type": "message", "role": role, "content": content}


def usage(fed: int, cached: int, written: int) -> Record:
    """Return the tokens of a request; cached tokens are part of the input."""
    return {
        "input_tokens": fed,
        "cached_input_tokens": cached,
        "output_tokens": written,
        "reasoning_output_tokens": written // 4,
        "total_tokens": fed + written,
    }


def turn_context(turn: str) -> Record:
    """Write the settings of a turn."""
    return {
        "turn_id": turn,
        "cwd": ROOT,
        "current_date": "2026-03-14",
        "timezone": "Europe/London",
        "approval_policy": "on-request",
        "sandbox_policy": {"type": "workspace-write", "network_access": False},
        "model": MODEL,
        "effort": "medium",
        "summary": "auto",
    }


def header(session: str, clock: Clock) -> Record:
    """Write the metadata of the file."""
    git = {
        "commit_hash": hexadecimal("5d0c1ae", 40),
        "branch": "main",
        "repository_url": "https://example.org/shop.git",
    }
    return {
        "id": session,
        "session_id": session,
        "timestamp": stamp(clock.now),
        "cwd": ROOT,
        "originator": "codex-tui",
        "cli_version": "0.112.0",
        "source": "cli",
        "thread_source": "user",
        "model_provider": "openai",
        "base_instructions": {"text": tale.BASE},
        "git": git,
    }


def write(folder: Path) -> list[Path]:
    """Write the rollout to Codex's folder."""
    clock = start(2026, 3, 14, 10, 2, 3)
    session = timed_uuid("the delivery session", clock.now)
    name = f"rollout-2026-03-14T10-02-03-{session}.jsonl"
    rollout = Rollout(clock)
    rollout.line("session_meta", header(session, clock))
    tell(rollout)
    path = folder / ".codex" / "sessions" / "2026" / "03" / "14" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(map(line_of, rollout.records)))
    return [path]


def tell(rollout: Rollout) -> None:
    """Add delivery charges, compact the context, and correct a wrong limit."""
    rollout.begin(tale.FIRST_PROMPT)
    rollout.reason("**Looking at the cart before designing delivery**")
    rollout.say("I'll read the cart and its tests, then add delivery as a module of its own.")
    rollout.run(*tale.LOOKING)
    rollout.reason("**Choosing where the free-delivery limit applies**")
    rollout.patch(tale.DELIVERY_PATCH, "A src/shop/delivery.py", "A tests/test_delivery.py")
    rollout.run(("python -m pytest -q --tb=short tests/test_delivery.py", tale.FAILED, 1))
    rollout.say("One boundary is wrong: exactly the limit should already be free. I'll set the comparison right.")
    rollout.patch(tale.LIMIT_PATCH, "M src/shop/delivery.py")
    rollout.run(("python -m pytest -q", tale.PASSED, 0))
    rollout.end(tale.FIRST_DONE)
    rollout.begin(tale.SECOND_PROMPT)
    rollout.run(*tale.RECEIPT_LOOK)
    rollout.compact(
        message("user", tale.FIRST_PROMPT),
        message("developer", tale.PERMISSIONS),
        message("user", tale.INSTRUCTIONS, tale.ENVIRONMENT),
        message("user", tale.SECOND_PROMPT),
        message("user", tale.HANDOVER),
    )
    rollout.reason("**Putting the delivery row above the total**")
    rollout.run(tale.READ_AGAIN)
    rollout.patch(tale.RECEIPT_PATCH, "M src/shop/cart.py")
    rollout.run(("python -m pytest -q && git diff --stat", tale.PASSED_AGAIN, 0))
    rollout.end(tale.LAST_WORDS)
