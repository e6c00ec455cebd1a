"""The stores of opencode: JSON files in folders, then a SQLite file; each session brought into the shape of an export.

In folders, a session is a file of facts, and each of its messages and their parts is one more. In the database these
are rows. Newer builds write another kind of row (`session_message`), which holds a whole message: each becomes the
message and the parts that an older build would have written.
"""

import re
import sqlite3
from base64 import b64decode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msgspec import structs

from thresher.errors import ReadError
from thresher.formats.database import decoded, opened, tables
from thresher.formats.loose import at, fields, items, text
from thresher.formats.opencode_messages import AS_TEXT, session_of
from thresher.formats.source import SourceFile
from thresher.model import Session
from thresher.model.jsontext import dump, load

Row = dict[str, Any]
FACTS = {"parent_id": "parentID", "directory": "directory", "title": "title", "version": "version"}
OLDER = {
    "message": "id session_id time_created time_updated data",
    "part": "id message_id session_id time_updated data",
}
NEWER = {"session_message": "id session_id type seq time_updated data"}
ID = re.compile(r"[\w-]+")
"""An id that a folder can be called by, and that leads nowhere else."""

# --- folders ---------------------------------------------------------------------------------------------------------


def read_folders(source: SourceFile, facts: Row) -> Session:
    """The session of a file of facts, with the messages and parts that lie beside it."""
    rows: list[Row] = []
    files: list[Path] = []
    read: list[Path] = []
    if ID.fullmatch(facts["id"]):
        messages, parts = _folders(source.path, facts["id"])
        files = _files(messages)
    else:
        source.problem(f"{facts['id']!r} is no id of a session", "its messages are not looked for")
    for file in files:
        pieces = _files(parts / file.stem)
        rows.append({"info": _file(source, file), "parts": [_file(source, piece) for piece in pieces]})
        read += pieces
    session = session_of(source, {"info": facts, "messages": rows}, [str(file) for file in files])
    return structs.replace(session, files=tuple(map(str, [*files, *read])))


def _folders(path: Path, id_: str) -> tuple[Path, Path]:
    """The folder with the messages of a session, and the one with a folder of parts for each of them."""
    if path.parent.name == "info":  # the oldest: session/{info,message,part}
        storage = path.parent.parent
        return storage / "message" / id_, storage / "part" / id_
    storage = path.parent.parent.parent
    return storage / "message" / id_, storage / "part"


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*.json") if path.is_file())  # a pipe would be waited for


def _file(source: SourceFile, path: Path) -> Any:
    try:
        if path.stat().st_size > source.limits.line:
            raise ValueError(f"over the limit of {source.limits.line:,} bytes")
        return load(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        source.problem(f"`{path.name}` cannot be read ({error})", "left out")
        return None


# --- the database ----------------------------------------------------------------------------------------------------


def is_store(source: SourceFile) -> bool:
    """Whether a database has opencode's tables, of either generation."""
    is_known = source.has_tables(session="id directory time_created time_updated")
    return is_known and (source.has_tables(**OLDER) or source.has_tables(**NEWER))


@contextmanager
def _opened(source: SourceFile) -> Iterator[sqlite3.Connection]:
    with opened(source.path) as connection:
        source.tables = tables(connection)  # as they are now: a look at them before may have failed
        if not is_store(source):
            raise ReadError(f"`{source.path}` has no tables of opencode's sessions and their messages")
        yield connection


def listed(source: SourceFile) -> dict[str, str]:
    """Every session, with how many rows it has and when the last of them changed."""
    marks: dict[str, list[str]] = {}
    with _opened(source) as connection:
        for id_, changed in connection.execute("SELECT id, time_updated FROM session"):
            if isinstance(id_, str):
                marks[id_] = [str(changed)]
        for table, names in (OLDER | NEWER).items():
            if source.has_tables(**{table: names}):
                asked = f"SELECT session_id, count(*), max(time_updated) FROM {table} GROUP BY session_id"
                for id_, count, last in connection.execute(asked):
                    marks.get(id_, []).append(f"{count}-{last}")
    return {id_: " ".join(mark) for id_, mark in marks.items()}


def read_database(source: SourceFile) -> list[Session]:
    """Every session that is wanted, each with the problems of its own rows."""
    sessions: list[Session] = []
    with _opened(source) as connection:
        calls = _Calls(source, connection)
        rows = connection.execute("SELECT rowid, id FROM session ORDER BY time_created, id").fetchall()
        for place, id_ in rows:
            if not isinstance(id_, str) or not source.is_wanted(id_):
                continue
            own = source.apart()
            row = dict(connection.execute("SELECT * FROM session WHERE rowid = ?", (place,)).fetchone())
            parent = text(row.get("parent_id"))
            try:
                messages = [*_messages(own, connection, id_)]
                call_id = calls.of(parent, id_)
            except sqlite3.DatabaseError as error:
                own.problem(f"the rows of session {id_} cannot be read ({error})", "left out")
                messages, call_id = [], ""
            document = {"info": _info(row), "messages": messages}
            sessions.append(session_of(own, document, call_id=call_id, is_subagent=bool(parent)))
    return sessions


def _info(row: Row) -> Row:
    info: Row = {name: row.get(column) for column, name in FACTS.items()}
    info["parentID"] = info["parentID"] or row.get("fork_session_id")
    return {"id": row["id"], **info, "revert": decoded(row.get("revert"))}


class _Calls:
    """Which call of its parent started a sub-agent; each parent is looked through once."""

    def __init__(self, source: SourceFile, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._known: dict[str, dict[str, str]] = {}
        self._tables = [table for table in ("part", "session_message") if source.has_tables(**{table: "session_id"})]

    def of(self, parent: str, child: str) -> str:
        """The id of the call, if it is told."""
        if parent and parent not in self._known:
            known = self._known.setdefault(parent, {})
            for part in self._parts(parent):
                told = fields(at(part, "state", "metadata"))
                known.setdefault(text(told.get("sessionId", told.get("sessionID"))), text(part.get("callID")))
        return self._known.get(parent, {}).get(child, "")

    def _parts(self, session: str) -> Iterator[Row]:
        for table in self._tables:
            asked = f"SELECT data FROM {table} WHERE session_id = ? AND data LIKE '%\"sessionid\"%' ORDER BY rowid"
            for row in self._connection.execute(asked, (session,)):
                data = fields(decoded(row["data"]))
                yield from [data] if table == "part" else map(fields, map(_part, items(data.get("content"))))


def _messages(source: SourceFile, connection: sqlite3.Connection, session: str) -> Iterator[Row]:
    """The messages of a session as an export has them: of older rows, or else of newer ones."""
    found = False
    if source.has_tables(**OLDER):
        parts: dict[str, list[Any]] = {}
        for row in connection.execute("SELECT * FROM part WHERE session_id = ? ORDER BY id", (session,)):
            part = _row(source, row)
            parts.setdefault(row["message_id"], []).append(part and {"id": row["id"], **part})
        asked = "SELECT * FROM message WHERE session_id = ? ORDER BY time_created, id"
        for row in connection.execute(asked, (session,)):
            found = True
            info = _row(source, row)
            yield {"info": info and {"id": row["id"], **info}, "parts": parts.get(row["id"], [])}
    if not found and source.has_tables(**NEWER):
        for row in connection.execute("SELECT * FROM session_message WHERE session_id = ? ORDER BY seq", (session,)):
            yield _older(row["id"], text(row["type"]), _row(source, row) or {})


def _row(source: SourceFile, row: sqlite3.Row) -> Row | None:
    data = decoded(row["data"])
    if isinstance(data, dict):
        return data
    source.problem(f"row {row['id']} holds no JSON object", "left out")
    return None


# --- newer rows as older builds would have written them --------------------------------------------------------------


def _older(id_: str, kind: str, data: Mapping[str, Any]) -> Row:
    info: Row = {"id": id_, "role": kind, "time": data.get("time")}
    match kind:
        case "user":
            files = map(_attached, items(data.get("files")))
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
    status = "running" if data.get("status") == "running" else "completed"
    state = {"status": status, "input": {"command": data.get("command")}, "output": shown}
    return {"type": "tool", "tool": "bash", "callID": data.get("shellID"), "state": {**state, "metadata": {**data}}}


def _attached(file: Any) -> Any:
    """A file of a prompt or a result: newer builds keep what is in it, or only where it is."""
    told = fields(file)
    mime, data = text(told.get("mime")), text(told.get("data"))
    if mime not in AS_TEXT:
        return {**told, "type": "file", "url": f"data:{mime};base64,{data}" if data else told.get("uri")}
    try:
        words = b64decode(data).decode("utf-8", "replace")
    except ValueError:
        words = ""
    shown = f"Attached file: {text(told.get('name'))}\n\n{words}"
    return {"type": "text", "text": shown, "synthetic": True} if words else {**told, "type": "file"}


def _part(content: Any) -> Any:
    part = fields(content)
    if part.get("type") == "reasoning":
        return {**part, "metadata": part.get("native") or part.get("state")}
    if part.get("type") != "tool":
        return content
    state, time = fields(part.get("state")), fields(part.get("time"))
    given = [fields(piece) for piece in items(state.get("content"))]
    texts = [piece["text"] for piece in given if isinstance(piece.get("text"), str)]
    data = state.get("structured")
    told = {
        "output": "\n".join(texts) if given or not data else dump(data),
        "error": "\n".join(filter(None, [text(at(state, "error", "message")), *texts])),
        "attachments": [_attached(piece) for piece in given if "text" not in piece],
        "metadata": state.get("metadata") or data,
        "time": {"start": time.get("ran"), "end": time.get("completed")},
    }
    return {"type": "tool", "tool": part.get("name"), "callID": part.get("id"), "state": {**state, **told}}
