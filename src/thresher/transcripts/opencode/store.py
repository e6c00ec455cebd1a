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

from msgspec.structs import replace

from thresher.errors import ReadError
from thresher.model import Session
from thresher.model.jsontext import dump_json, load_json
from thresher.transcripts.coerce import as_dict, as_text, dict_at, list_at, text_at, value_at
from thresher.transcripts.opencode.messages import INLINED_MIME_TYPES, build_opencode_session
from thresher.transcripts.source import SourceFile
from thresher.transcripts.sqlite_source import decode_json_column, open_read_only, read_table_columns

OpencodeRow = dict[str, Any]
SESSION_COLUMNS = {"parent_id": "parentID", "directory": "directory", "title": "title", "version": "version"}
MESSAGE_AND_PART_TABLES = {
    "message": "id session_id time_created time_updated data",
    "part": "id message_id session_id time_updated data",
}
SESSION_MESSAGE_TABLE = {"session_message": "id session_id type seq time_updated data"}
SAFE_ID = re.compile(r"[\w-]+")
"""An id that a folder can be called by, and that leads nowhere else."""

# --- folders ---------------------------------------------------------------------------------------------------------


def read_opencode_folders(source: SourceFile, facts: OpencodeRow) -> Session:
    """The session of a file of facts, with the messages and parts that lie beside it."""
    rows: list[OpencodeRow] = []
    files: list[Path] = []
    read: list[Path] = []
    if SAFE_ID.fullmatch(facts["id"]):
        messages, part_folders = _message_folders(source.path, facts["id"])
        files = _list_json_files(messages)
    else:
        source.report(f"{facts['id']!r} is no id of a session", "its messages are not looked for")
    for file in files:
        pieces = _list_json_files(part_folders / file.stem)
        parts = [_load_json_file(source, piece) for piece in pieces]
        rows.append({"info": _load_json_file(source, file), "parts": parts})
        read += pieces
    session = build_opencode_session(source, {"info": facts, "messages": rows}, [str(file) for file in files])
    return replace(session, files=tuple(map(str, [*files, *read])))


def _message_folders(path: Path, id_: str) -> tuple[Path, Path]:
    """The folder with the messages of a session, and the one with a folder of parts for each of them."""
    if path.parent.name == "info":  # the oldest: session/{info,message,part}
        storage = path.parent.parent
        return storage / "message" / id_, storage / "part" / id_
    storage = path.parent.parent.parent
    return storage / "message" / id_, storage / "part"


def _list_json_files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*.json") if path.is_file())  # a pipe would be waited for


def _load_json_file(source: SourceFile, path: Path) -> Any:
    try:
        if path.stat().st_size > source.limits.line:
            raise ValueError(f"over the limit of {source.limits.line:,} bytes")
        return load_json(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        source.report(f"`{path.name}` cannot be read ({error})", "left out")
        return None


# --- the database ----------------------------------------------------------------------------------------------------


def is_opencode_database(source: SourceFile) -> bool:
    """Whether a database has opencode's tables, of either generation."""
    is_known = source.has_tables(session="id directory time_created time_updated")
    return is_known and (source.has_tables(**MESSAGE_AND_PART_TABLES) or source.has_tables(**SESSION_MESSAGE_TABLE))


@contextmanager
def _open_database(source: SourceFile) -> Iterator[sqlite3.Connection]:
    with open_read_only(source.path) as connection:
        source.tables = read_table_columns(connection)  # as they are now: a look at them before may have failed
        if not is_opencode_database(source):
            raise ReadError(f"`{source.path}` has no tables of opencode's sessions and their messages")
        yield connection


def list_opencode_sessions(source: SourceFile) -> dict[str, str]:
    """Every session, with how many rows it has and when the last of them changed."""
    marks: dict[str, list[str]] = {}
    with _open_database(source) as connection:
        for id_, changed in connection.execute("SELECT id, time_updated FROM session"):
            if isinstance(id_, str):
                marks[id_] = [str(changed)]
        for table, names in (MESSAGE_AND_PART_TABLES | SESSION_MESSAGE_TABLE).items():
            if source.has_tables(**{table: names}):
                asked = f"SELECT session_id, count(*), max(time_updated) FROM {table} GROUP BY session_id"
                for id_, count, last in connection.execute(asked):
                    marks.get(id_, []).append(f"{count}-{last}")
    return {id_: " ".join(mark) for id_, mark in marks.items()}


def read_opencode_database(source: SourceFile) -> list[Session]:
    """Every session that is wanted, each with the problems of its own rows."""
    sessions: list[Session] = []
    with _open_database(source) as connection:
        calls = _SubagentCalls(source, connection)
        rows = connection.execute("SELECT rowid, id FROM session ORDER BY time_created, id").fetchall()
        for place, id_ in rows:
            if not isinstance(id_, str) or not source.is_wanted(id_):
                continue
            own = source.copy_for_session()
            row = dict(connection.execute("SELECT * FROM session WHERE rowid = ?", (place,)).fetchone())
            parent = text_at(row, "parent_id")
            try:
                messages = [*_iter_messages(own, connection, id_)]
                call_id = calls.find_call_id(parent, id_)
            except sqlite3.DatabaseError as error:
                own.report(f"the rows of session {id_} cannot be read ({error})", "left out")
                messages, call_id = [], ""
            document = {"info": _session_info(row), "messages": messages}
            sessions.append(build_opencode_session(own, document, call_id=call_id, is_subagent=bool(parent)))
    return sessions


def _session_info(row: OpencodeRow) -> OpencodeRow:
    info: OpencodeRow = {name: row.get(column) for column, name in SESSION_COLUMNS.items()}
    info["parentID"] = info["parentID"] or row.get("fork_session_id")
    return {"id": row["id"], **info, "revert": decode_json_column(row.get("revert"))}


class _SubagentCalls:
    """Which call of its parent started a sub-agent; each parent is looked through once."""

    def __init__(self, source: SourceFile, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._known: dict[str, dict[str, str]] = {}
        self._tables = [table for table in ("part", "session_message") if source.has_tables(**{table: "session_id"})]

    def find_call_id(self, parent: str, child: str) -> str:
        """The id of the call, if it is told."""
        if parent and parent not in self._known:
            known = self._known.setdefault(parent, {})
            for part in self._iter_parts(parent):
                told = dict_at(part, "state", "metadata")
                known.setdefault(as_text(told.get("sessionId", told.get("sessionID"))), text_at(part, "callID"))
        return self._known.get(parent, {}).get(child, "")

    def _iter_parts(self, session: str) -> Iterator[OpencodeRow]:
        for table in self._tables:
            asked = f"SELECT data FROM {table} WHERE session_id = ? AND data LIKE '%\"sessionid\"%' ORDER BY rowid"
            for row in self._connection.execute(asked, (session,)):
                data = as_dict(decode_json_column(row["data"]))
                yield from ([data] if table == "part" else map(as_dict, map(_to_export_part, list_at(data, "content"))))


def _iter_messages(source: SourceFile, connection: sqlite3.Connection, session: str) -> Iterator[OpencodeRow]:
    """The messages of a session as an export has them: of older rows, or else of newer ones."""
    found = False
    if source.has_tables(**MESSAGE_AND_PART_TABLES):
        parts: dict[str, list[Any]] = {}
        for row in connection.execute("SELECT * FROM part WHERE session_id = ? ORDER BY id", (session,)):
            part = _decode_row(source, row)
            parts.setdefault(row["message_id"], []).append(part and {"id": row["id"], **part})
        asked = "SELECT * FROM message WHERE session_id = ? ORDER BY time_created, id"
        for row in connection.execute(asked, (session,)):
            found = True
            info = _decode_row(source, row)
            yield {"info": info and {"id": row["id"], **info}, "parts": parts.get(row["id"], [])}
    if not found and source.has_tables(**SESSION_MESSAGE_TABLE):
        for row in connection.execute("SELECT * FROM session_message WHERE session_id = ? ORDER BY seq", (session,)):
            yield _to_export_message(row["id"], as_text(row["type"]), _decode_row(source, row) or {})


def _decode_row(source: SourceFile, row: sqlite3.Row) -> OpencodeRow | None:
    data = decode_json_column(row["data"])
    if isinstance(data, dict):
        return data
    source.report(f"row {row['id']} holds no JSON object", "left out")
    return None


# --- newer rows as older builds would have written them --------------------------------------------------------------


def _to_export_message(id_: str, kind: str, data: Mapping[str, Any]) -> OpencodeRow:
    info: OpencodeRow = {"id": id_, "role": kind, "time": data.get("time")}
    match kind:
        case "user":
            files = map(_to_file_part, list_at(data, "files"))
            parts: list[Any] = [{"type": "text", "text": data.get("text")}, *files]
        case "synthetic" | "system" | "skill":
            info["role"] = "user"
            parts = [{"type": "text", "text": data.get("text"), "synthetic": True}]
        case "shell":
            info["role"] = "assistant"
            parts = [_to_shell_part(data)]
        case "assistant":
            info |= {"modelID": value_at(data, "model", "id"), "tokens": data.get("tokens")}
            parts = [{"type": "step-start"}, *map(_to_export_part, list_at(data, "content"))]
        case "compaction" if data.get("status") in ("completed", None):
            info |= {"role": "assistant", "summary": True}
            parts = [{"type": "text", "text": data[key]} for key in ("summary", "recent") if text_at(data, key)]
        case "agent-switched" | "model-switched" | "location-switched" | "idle" | "compaction":
            parts = []
        case _:
            parts = [{**data, "type": kind}]
    return {"info": info, "parts": parts}


def _to_shell_part(data: Mapping[str, Any]) -> OpencodeRow:
    """A command that the user ran."""
    output = data.get("output")
    shown = output if isinstance(output, str) else as_text(value_at(output, "text") or value_at(output, "output"))
    status = "running" if data.get("status") == "running" else "completed"
    state = {"status": status, "input": {"command": data.get("command")}, "output": shown}
    return {"type": "tool", "tool": "bash", "callID": data.get("shellID"), "state": {**state, "metadata": {**data}}}


def _to_file_part(file: Any) -> Any:
    """A file of a prompt or a result: newer builds keep what is in it, or only where it is."""
    told = as_dict(file)
    mime, data = text_at(told, "mime"), text_at(told, "data")
    if mime not in INLINED_MIME_TYPES:
        return {**told, "type": "file", "url": f"data:{mime};base64,{data}" if data else told.get("uri")}
    try:
        words = b64decode(data).decode("utf-8", "replace")
    except ValueError:
        words = ""
    shown = f"Attached file: {text_at(told, 'name')}\n\n{words}"
    return {"type": "text", "text": shown, "synthetic": True} if words else {**told, "type": "file"}


def _to_export_part(content: Any) -> Any:
    part = as_dict(content)
    if part.get("type") == "reasoning":
        return {**part, "metadata": part.get("native") or part.get("state")}
    if part.get("type") != "tool":
        return content
    state, time = dict_at(part, "state"), dict_at(part, "time")
    given = [as_dict(piece) for piece in list_at(state, "content")]
    texts = [piece["text"] for piece in given if isinstance(piece.get("text"), str)]
    data = state.get("structured")
    told = {
        "output": "\n".join(texts) if given or not data else dump_json(data),
        "error": "\n".join(filter(None, [text_at(state, "error", "message"), *texts])),
        "attachments": [_to_file_part(piece) for piece in given if "text" not in piece],
        "metadata": state.get("metadata") or data,
        "time": {"start": time.get("ran"), "end": time.get("completed")},
    }
    return {"type": "tool", "tool": part.get("name"), "callID": part.get("id"), "state": {**state, **told}}
