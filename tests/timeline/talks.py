"""Sessions in which an agent works on files, built message by message."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

from thresher.model import History, Message, Session, Text, ToolCall, ToolResult

START = datetime(2026, 3, 1, 9, 0, tzinfo=UTC)
PROJECT = "/home/sam/shop"


class Talk:
    """Collects messages; each call is a separate turn."""

    def __init__(self, project: str = PROJECT) -> None:
        self.messages: list[Message] = [Message("user", (Text("Please do it."),))]
        self.project = project
        self.turn = 0

    def call(
        self, name: str, arguments: Any, answer: str | None = "done", *, error: bool = False, say: str = ""
    ) -> int:
        """Add a call and its result; return the number of its turn."""
        self.turn += 1
        id, time = f"call_{self.turn}", START + timedelta(minutes=self.turn)
        said = (Text(say),) if say else ()
        written = arguments if isinstance(arguments, str) else json.dumps(arguments)
        self.messages.append(Message("assistant", (*said, ToolCall(id, name, written)), "model", time=time))
        if answer is not None:
            result = ToolResult(id, (Text(answer),), error)
            self.messages.append(Message("tool", (result,), "tool", time=time))
        return self.turn

    def write(self, path: str, text: str) -> int:
        return self.call("Write", {"file_path": path, "content": text})

    def edit(self, path: str, old: str, new: str, **more: Any) -> int:
        return self.call("Edit", {"file_path": path, "old_string": old, "new_string": new, **more})

    def read(self, path: str, text: str, first: int = 1, **more: Any) -> int:
        """Add a read that shows these lines with numbers, as Claude Code does."""
        rows = "\n".join(f"{number:6}→{row}" for number, row in enumerate(text.split("\n"), first))
        return self.call("Read", {"file_path": path, **more}, rows)

    def bash(self, command: str, answer: str = "", *, error: bool = False, **more: Any) -> int:
        return self.call("Bash", {"command": command, **more}, answer, error=error)

    def say(self, text: str) -> None:
        self.messages.append(Message("user", (Text(text),)))

    def session(self, **more: Any) -> Session:
        facts = {"agent": "claude-code", "id": "one", "file": "one.jsonl", "project": self.project} | more
        return Session(segments=(History(tuple(self.messages)),), **facts)
