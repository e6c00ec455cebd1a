"""The stores of opencode: JSON files in folders, then a SQLite file; each session brought into the shape of an export.

In folders, a session is a file of facts, and each of its messages and their parts is one more. In the database these
are rows. Newer builds write another kind of row (`session_message`), which holds a whole message: each becomes the
message and the parts that an older build would have written.
"""

import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import structs

from thresher.formats.database import opened
from thresher.formats.loose import at, fields, items, text
from thresher.formats.opencode_messages import session_of
from thresher.formats.source import SourceFile
from thresher.model import Session
from thresher.model.jsontext import load

Row = dict[str, Any]
FACTS = {"parent_id": "parentID", "directory": "directory", "title": "title", "version": "version"}

# --- folders ---------------------------------------------------------------------------------------------------------


def read_folders(source: SourceFile, facts: Row) -> Session:
    """The session of a file of facts, with the messages and parts that lie beside it."""
    id_ = facts["id"]
    storage, parts = _folders(source.path, id_)
    files = sorted((storage / "message" / id_).glob("*.json"))
    rows: list[Row] = []
    read: list[str] = []
    for file in files:
        pieces = sorted((parts / file.stem).glob("*.json"))
        rows.append({"info": _file(source, file), "parts": [_file(source, piece) for piece in pieces]})
        read += map(str, pieces)
    session = session_of(source, {"info": facts, "messages": rows}, [str(file) for file in files])
    return structs.replace(session, files=(*map(str, files), *read))


def _folders(path: Path, id_: str) -> tuple[Path, Path]:
    """The folder of a store, and the one with the parts of a session's messages."""
    if path.parent.name == "info":  # the oldest: session/{info,message,part}
        storage = path.parent.parent
        return storage, storage / "part" / id_
    storage = path.parent.parent.parent
    return storage, storage / "part"


def _file(source: SourceFile, path: Path) -> Any:
    try:
        return load(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        source.problem(f"`{path.name}` cannot be read ({error})", "left out")
        return None


# --- the database ----------------------------------------------------------------------------------------------------


def listed(source: SourceFile) -> dict[str, str]:
    """Every session, with how many rows it has and when the last of them changed."""
    with opened(source.path) as connection:
        marks = {row["id"]: [str(row["time_updated"])] for row in connection.execute("SELECT * FROM session")}
        for table in ("message", "part", "session_message"):
            if source.has_tables(**{table: "session_id time_updated"}):
                asked = f"SELECT session_id, count(*), max(time_updated) FROM {table} GROUP BY session_id"
                for id_, count, last in connection.execute(asked):
                    marks.get(id_, []).append(f"{count}-{last}")
    return {id_: " ".join(mark) for id_, mark in marks.items()}


def read_database(source: SourceFile) -> list[Session]:
    """Every session that is wanted, each with the problems of its own rows."""
    sessions: list[Session] = []
    with opened(source.path) as connection:
        calls = _Calls(source, connection)
        rows = connection.execute("SELECT * FROM session ORDER BY time_created, id").fetchall()
        for row in rows:
            if not source.is_wanted(row["id"]):
                continue
            own = source.apart()
            info = _info(row)
            try:
                messages = [*_messages(own, connection, row["id"])]
                call_id = calls.of(text(info.get("parentID")), row["id"])
            except sqlite3.DatabaseError as error:
                own.problem(f"the rows of session {row['id']} cannot be read ({error})", "left out")
                messages, call_id = [], ""
            sessions.append(session_of(own, {"info": info, "messages": messages}, call_id=call_id))
    return sessions


def _info(row: sqlite3.Row) -> Row:
    there = dict(row)
    info: Row = {name: there.get(column) for column, name in FACTS.items()}
    info["parentID"] = info["parentID"] or there.get("fork_session_id")
    info["revert"] = _decoded(there.get("revert"))
    return {"id": there["id"], **info}


def _decoded(data: Any) -> Any:
    try:
        return load(data) if isinstance(data, str) else None
    except (ValueError, RecursionError):
        return None


class _Calls:
    """Which call of its parent started a sub-agent; each parent is looked through once."""

    def __init__(self, source: SourceFile, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._known: dict[str, dict[str, str]] = {}
        self._can_ask = source.has_tables(part="session_id data")

    def of(self, parent: str, child: str) -> str:
        """The id of the call, if it is told."""
        if not parent or not self._can_ask:
            return ""
        if parent not in self._known:
            asked = "SELECT data FROM part WHERE session_id = ? AND data LIKE '%\"task\"%'"
            parts = (fields(_decoded(row["data"])) for row in self._connection.execute(asked, (parent,)))
            self._known[parent] = {
                text(at(part, "state", "metadata", "sessionId")): text(part.get("callID")) for part in parts
            }
        return self._known[parent].get(child, "")


def _messages(source: SourceFile, connection: sqlite3.Connection, session: str) -> Iterator[Row]:
    """The messages of a session as an export has them: of older rows, or else of newer ones."""
    found = False
    if source.has_tables(message="session_id data", part="message_id data"):
        parts: dict[str, list[Any]] = {}
        for row in connection.execute("SELECT * FROM part WHERE session_id = ? ORDER BY id", (session,)):
            part = _row(source, row)
            parts.setdefault(row["message_id"], []).append(part and {"id": row["id"], **part})
        asked = "SELECT * FROM message WHERE session_id = ? ORDER BY time_created, id"
        for row in connection.execute(asked, (session,)):
            found = True
            info = _row(source, row)
            yield {"info": info and {"id": row["id"], **info}, "parts": parts.get(row["id"], [])}
    if not found and source.has_tables(session_message="session_id seq data"):
        for row in connection.execute("SELECT * FROM session_message WHERE session_id = ? ORDER BY seq", (session,)):
            yield _older(row["id"], text(row["type"]), _row(source, row) or {})


def _row(source: SourceFile, row: sqlite3.Row) -> Row | None:
    data = _decoded(row["data"])
    if isinstance(data, dict):
        return data
    source.problem(f"row {row['id']} holds no JSON object", "left out")
    return None


# --- newer rows as older builds would have written them --------------------------------------------------------------


def _older(id_: str, kind: str, data: Mapping[str, Any]) -> Row:
    info: Row = {"id": id_, "role": kind, "time": data.get("time")}
    match kind:
        case "user":
            files = [{"type": "file", **fields(file)} for file in items(data.get("files"))]
            parts: list[Any] = [{"type": "text", "text": data.get("text")}, *files]
        case "synthetic" | "system" | "skill":
            info["role"] = "user"
            parts = [{"type": "text", "text": data.get("text"), "synthetic": True}]
        case "shell":
            info["role"] = "assistant"
            parts = [_shell(data)]
        case "assistant":
            info |= {"modelID": at(data, "model", "id"), "tokens": data.get("tokens")}
            parts = [{"type": "step-start"}, *map(_part, items(data.get("content")))]
        case "compaction" if data.get("status") in ("completed", None):
            info |= {"role": "assistant", "summary": True}
            parts = [{"type": "text", "text": data[key]} for key in ("summary", "recent") if text(data.get(key))]
        case "agent-switched" | "model-switched" | "location-switched" | "idle" | "compaction":
            parts = []
        case _:
            parts = [{**data, "type": kind}]
    return {"info": info, "parts": parts}


def _shell(data: Mapping[str, Any]) -> Row:
    """A command that the user ran."""
    output = data.get("output")
    shown = output if isinstance(output, str) else text(fields(output).get("text") or fields(output).get("output"))
    state = {"status": "completed", "input": {"command": data.get("command")}, "output": shown}
    return {"type": "tool", "tool": "bash", "callID": data.get("shellID"), "state": {**state, "metadata": {**data}}}


def _part(content: Any) -> Any:
    part = fields(content)
    if part.get("type") == "reasoning":
        return {**part, "metadata": part.get("native") or part.get("state")}
    if part.get("type") != "tool":
        return content
    state, time = fields(part.get("state")), fields(part.get("time"))
    given = items(state.get("content"))
    texts = [piece["text"] for piece in map(fields, given) if isinstance(piece.get("text"), str)]
    pictures = [piece for piece in map(fields, given) if "text" not in piece]
    told = {
        "output": "\n".join(texts),
        "error": "\n".join(filter(None, [text(at(state, "error", "message")), *texts])),
        "attachments": pictures,
        "time": {"start": time.get("ran"), "end": time.get("completed")},
    }
    return {"type": "tool", "tool": part.get("name"), "callID": part.get("id"), "state": {**state, **told}}
