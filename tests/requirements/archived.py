"""Claude Code sessions on disk, as the agent writes them, and memories that read them."""

import json
from pathlib import Path
from typing import Any
from uuid import UUID, uuid5

from thresher.memory import Memory
from thresher.memory.results import SearchResults

SHOP = "/home/sam/shop"


def session_id(number: int) -> str:
    """Return the id of a session."""
    return str(UUID(int=number))


class Chat:
    """A session under construction. `facts` are fields of every record."""

    def __init__(self, number: int, *, project: str = SHOP, time: str = "2026-03-01T09", **facts: Any) -> None:
        self.id = session_id(number)
        self._facts = {"sessionId": self.id, "cwd": project, "version": "2.1.58", **facts}
        self._time, self._last = time, ""
        self.records: list[dict[str, Any]] = []

    def record(self, role: str, content: Any, **more: Any) -> "Chat":
        """Add a message."""
        number = len(self.records)
        id = str(uuid5(UUID(self.id), str(number)))
        message = {"role": role, "content": content} | ({"id": f"msg_{id}"} if role == "assistant" else {})
        row = {"type": role, "uuid": id, "parentUuid": self._last or None, "message": message}
        row["timestamp"] = f"{self._time}:{number // 60:02}:{number % 60:02}.000Z"
        self.records.append({**row, **self._facts, **more})
        self._last = id
        return self

    def asks(self, text: Any, **more: Any) -> "Chat":
        """Add a message of the user."""
        return self.record("user", text, **more)

    def says(self, text: str, **more: Any) -> "Chat":
        """Add an answer of the model."""
        return self.record("assistant", [{"type": "text", "text": text}], **more)

    def calls(self, tool: str, call: str, **arguments: Any) -> "Chat":
        """Add a tool call of the model."""
        return self.record("assistant", [{"type": "tool_use", "id": call, "name": tool, "input": arguments}])

    def returns(self, call: str, text: str, *, failed: bool = False, **more: Any) -> "Chat":
        """Add the result of a call."""
        flag = {"is_error": True} if failed else {}
        return self.asks([{"type": "tool_result", "tool_use_id": call, "content": text, **flag}], **more)

    def runs(self, command: str, output: str) -> "Chat":
        """Add a shell command with its output."""
        call = f"run-{self.id[-4:]}-{len(self.records)}"
        return self.calls("Bash", call, command=command).returns(call, output)

    def write(self, folder: Path, *head: dict[str, Any], name: str = "") -> Path:
        """Write the session after the records `head`, and return its file."""
        path = folder / (name or f"{self.id}.jsonl")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(row) + "\n" for row in (*head, *self.records)), encoding="utf-8")
        return path


def talk(number: int, *texts: str, **options: Any) -> Chat:
    """Return a session in which the user and the model speak in turn."""
    chat = Chat(number, **options)
    for place, text in enumerate(texts):
        _ = chat.says(text) if place % 2 else chat.asks(text)
    return chat


def archive(folder: Path, *chats: Chat) -> Memory:
    """Write the sessions, and return a memory that reads them."""
    for chat in chats:
        chat.write(folder / "sessions")
    return open_memory(folder)


def open_memory(folder: Path) -> Memory:
    """Return a memory of the sessions in this folder."""
    return Memory(home=folder / "home", sources=[folder / "sessions"], discover=False)


def numbers(results: SearchResults) -> list[int]:
    """Return the numbers of the sessions that a search found, in order."""
    return [UUID(session.id).int for session in results.sessions]


def hit_texts(results: SearchResults) -> list[str]:
    """Return the texts of all hits, in order."""
    return [hit.text for session in results.sessions for hit in session.hits]
