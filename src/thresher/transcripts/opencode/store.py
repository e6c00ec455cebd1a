"""Read opencode's stores (JSON files in folders, later SQLite) and convert sessions to the schema of an export.

In folders, each session's info, each message and each part is a file. In the database, each is a row. Newer builds
write one `session_message` row per message, with its parts. The reader converts such a row to the message and parts of
an older build.
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
from thresher.transcripts.coerce import as_dict, as_text, dict_at, first_text, list_at, text_at, value_at
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
"""Pattern of session ids that are safe to use as folder names."""

# Folders


def read_opencode_folders(source: SourceFile, info: OpencodeRow) -> Session:
    """Read the session of an info file, with the files of its messages and parts."""
    rows: list[OpencodeRow] = []
    message_files: list[Path] = []
    part_files: list[Path] = []
    if SAFE_ID.fullmatch(info["id"]):
        message_folder, part_folders = _message_folders(source.path, info["id"])
        message_files = _list_json_files(message_folder)
    else:
        source.report(f"{info['id']!r} is not a session id", "its messages are not read")
    for file in message_files:
        files = _list_json_files(part_folders / file.stem)
        parts = [_load_json_file(source, part_file) for part_file in files]
        rows.append({"info": _load_json_file(source, file), "parts": parts})
        part_files += files
    session = build_opencode_session(source, {"info": info, "messages": rows}, [str(file) for file in message_files])
    return replace(session, files=tuple(map(str, [*message_files, *part_files])))


def _message_folders(path: Path, id_: str) -> tuple[Path, Path]:
    """Return the folder of a session's messages, and the folder that contains one folder of parts per message."""
    if path.parent.name == "info":  # the oldest layout: session/{info,message,part}
        storage = path.parent.parent
        return storage / "message" / id_, storage / "part" / id_
    storage = path.parent.parent.parent
    return storage / "message" / id_, storage / "part"


def _list_json_files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*.json") if path.is_file())  # reading a pipe would block


def _load_json_file(source: SourceFile, path: Path) -> Any:
    try:
        if path.stat().st_size > source.limits.line:
            raise ValueError(f"over the limit of {source.limits.line:,} bytes")
        return load_json(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        source.report(f"`{path.name}` cannot be read ({error})", "skipped")
        return None


# Database


def is_opencode_database(source: SourceFile) -> bool:
    """Return True if a database has opencode's tables, of either generation."""
    is_known = source.has_tables(session="id directory time_created time_updated")
    return is_known and (source.has_tables(**MESSAGE_AND_PART_TABLES) or source.has_tables(**SESSION_MESSAGE_TABLE))


@contextmanager
def _open_database(source: SourceFile) -> Iterator[sqlite3.Connection]:
    with open_read_only(source.path) as connection:
        source.tables = read_table_columns(connection)  # again: an earlier attempt may have failed
        if not is_opencode_database(source):
            raise ReadError(f"`{source.path}` has no opencode tables for sessions and messages")
        yield connection


def list_opencode_sessions(source: SourceFile) -> dict[str, str]:
    """Map each session id to a version mark: row counts, and the times of the last changes."""
    marks: dict[str, list[str]] = {}
    with _open_database(source) as connection:
        for id_, changed in connection.execute("SELECT id, time_updated FROM session"):
            if isinstance(id_, str):
                marks[id_] = [str(changed)]
        for table, names in (MESSAGE_AND_PART_TABLES | SESSION_MESSAGE_TABLE).items():
            if source.has_tables(**{table: names}):
                query = f"SELECT session_id, count(*), max(time_updated) FROM {table} GROUP BY session_id"
                for id_, count, last in connection.execute(query):
                    marks.get(id_, []).append(f"{count}-{last}")
    return {id_: " ".join(mark) for id_, mark in marks.items()}


def read_opencode_database(source: SourceFile) -> list[Session]:
    """Read every wanted session. Each session contains the problems of its own rows."""
    sessions: list[Session] = []
    with _open_database(source) as connection:
        calls = _SubagentCalls(source, connection)
        rows = connection.execute("SELECT rowid, id FROM session ORDER BY time_created, id").fetchall()
        for rowid, id_ in rows:
            if not isinstance(id_, str) or not source.is_wanted(id_):
                continue
            session_source = source.copy_for_session()
            row = dict(connection.execute("SELECT * FROM session WHERE rowid = ?", (rowid,)).fetchone())
            parent = text_at(row, "parent_id")
            try:
                messages = [*_iter_messages(session_source, connection, id_)]
                call_id = calls.find_call_id(parent, id_)
            except sqlite3.DatabaseError as error:
                session_source.report(f"the rows of session {id_} cannot be read ({error})", "skipped")
                messages, call_id = [], ""
            document = {"info": _session_info(row), "messages": messages}
            is_subagent = bool(parent)
            sessions.append(build_opencode_session(session_source, document, call_id=call_id, is_subagent=is_subagent))
    return sessions


def _session_info(row: OpencodeRow) -> OpencodeRow:
    info: OpencodeRow = {name: row.get(column) for column, name in SESSION_COLUMNS.items()}
    info["parentID"] = info["parentID"] or row.get("fork_session_id")
    return {"id": row["id"], **info, "revert": decode_json_column(row.get("revert"))}


class _SubagentCalls:
    """Index of the calls that started sub-agents. The index scans the rows of each parent session once."""

    def __init__(self, source: SourceFile, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._known: dict[str, dict[str, str]] = {}
        self._tables = [table for table in ("part", "session_message") if source.has_tables(**{table: "session_id"})]

    def find_call_id(self, parent: str, child: str) -> str:
        """Return the id of the call that started a sub-agent, or an empty string."""
        if parent and parent not in self._known:
            known = self._known.setdefault(parent, {})
            for part in self._iter_parts(parent):
                metadata = dict_at(part, "state", "metadata")
                child_id = as_text(metadata.get("sessionId", metadata.get("sessionID")))
                known.setdefault(child_id, text_at(part, "callID"))
        return self._known.get(parent, {}).get(child, "")

    def _iter_parts(self, session: str) -> Iterator[OpencodeRow]:
        for table in self._tables:
            query = f"SELECT data FROM {table} WHERE session_id = ? AND data LIKE '%\"sessionid\"%' ORDER BY rowid"
            for row in self._connection.execute(query, (session,)):
                data = as_dict(decode_json_column(row["data"]))
                yield from ([data] if table == "part" else map(as_dict, map(_to_export_part, list_at(data, "content"))))


def _iter_messages(source: SourceFile, connection: sqlite3.Connection, session: str) -> Iterator[OpencodeRow]:
    """Yield a session's messages in the schema of an export. Use newer rows only if there are no `message` rows."""
    has_rows = False
    if source.has_tables(**MESSAGE_AND_PART_TABLES):
        parts: dict[str, list[Any]] = {}
        for row in connection.execute("SELECT * FROM part WHERE session_id = ? ORDER BY id", (session,)):
            part = _decode_row(source, row)
            parts.setdefault(row["message_id"], []).append(part and {"id": row["id"], **part})
        query = "SELECT * FROM message WHERE session_id = ? ORDER BY time_created, id"
        for row in connection.execute(query, (session,)):
            has_rows = True
            info = _decode_row(source, row)
            yield {"info": info and {"id": row["id"], **info}, "parts": parts.get(row["id"], [])}
    if not has_rows and source.has_tables(**SESSION_MESSAGE_TABLE):
        for row in connection.execute("SELECT * FROM session_message WHERE session_id = ? ORDER BY seq", (session,)):
            yield _to_export_message(row["id"], as_text(row["type"]), _decode_row(source, row) or {})


def _decode_row(source: SourceFile, row: sqlite3.Row) -> OpencodeRow | None:
    data = decode_json_column(row["data"])
    if isinstance(data, dict):
        return data
    source.report(f"row {row['id']} is not a JSON object", "skipped")
    return None


# Conversion of newer rows


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
    """Convert a command that the user ran to a tool part."""
    output = data.get("output")
    shown = output if isinstance(output, str) else first_text(output, "text", "output")
    status = "running" if data.get("status") == "running" else "completed"
    state = {"status": status, "input": {"command": data.get("command")}, "output": shown}
    return {"type": "tool", "tool": "bash", "callID": data.get("shellID"), "state": {**state, "metadata": {**data}}}


def _to_file_part(file: Any) -> Any:
    """Convert a file of a prompt or a result. Newer builds store the file's content, or only its location."""
    fields = as_dict(file)
    mime, data = text_at(fields, "mime"), text_at(fields, "data")
    if mime not in INLINED_MIME_TYPES:
        return {**fields, "type": "file", "url": f"data:{mime};base64,{data}" if data else fields.get("uri")}
    try:
        content = b64decode(data).decode("utf-8", "replace")
    except ValueError:
        content = ""
    text = f"Attached file: {text_at(fields, 'name')}\n\n{content}"
    return {"type": "text", "text": text, "synthetic": True} if content else {**fields, "type": "file"}


def _to_export_part(content: Any) -> Any:
    part = as_dict(content)
    if part.get("type") == "reasoning":
        return {**part, "metadata": part.get("native") or part.get("state")}
    if part.get("type") != "tool":
        return content
    state, time = dict_at(part, "state"), dict_at(part, "time")
    content_items = [as_dict(item) for item in list_at(state, "content")]
    texts = [item["text"] for item in content_items if isinstance(item.get("text"), str)]
    data = state.get("structured")
    state = {
        **state,
        "output": "\n".join(texts) if content_items or not data else dump_json(data),
        "error": "\n".join(filter(None, [text_at(state, "error", "message"), *texts])),
        "attachments": [_to_file_part(item) for item in content_items if "text" not in item],
        "metadata": state.get("metadata") or data,
        "time": {"start": time.get("ran"), "end": time.get("completed")},
    }
    return {"type": "tool", "tool": part.get("name"), "callID": part.get("id"), "state": state}
