"""goose: JSONL files up to 1.9, then a database of all sessions; exports of one; and recordings of a provider.

The first line of a JSONL file has the facts of the session, the others a message each. An export is one document with
both, and so has no lines: a message's place is its number in it, in the database the number of its row.
"""

import sys
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from thresher.formats.goose_messages import NAME, Entry, Facts, session_of
from thresher.formats.goose_recordings import is_recording, read_recording
from thresher.formats.loose import at, fields, items, text
from thresher.formats.source import SourceFile
from thresher.formats.transcript import Home, TranscriptFormat
from thresher.model import Session

DATABASE = "sessions.db"
_ROW: msgspec.json.Decoder[Any] = msgspec.json.Decoder()


def read(source: SourceFile) -> list[Session]:
    """The session in a file, or all of a database."""
    if source.is_database:
        # The database comes with a library of its own.
        from thresher.formats import goose_store  # noqa: PLC0415

        return goose_store.read_database(source)
    document = source.take_document()
    if _messages_in(document) is not None:
        return [_exported(source, document)]
    if isinstance(document, dict) and "working_dir" not in document and not _is_line(document):
        return read_recording(source, document)
    return [_lines(source)]


def _messages_in(document: Any) -> list[Any] | None:
    """The messages of an export, if a document is one."""
    if not isinstance(document, dict) or "working_dir" not in document:
        return None
    said = document.get("conversation", document.get("messages"))
    said = at(said, "messages") if isinstance(said, dict) else said
    return said if isinstance(said, list) else None


def _exported(source: SourceFile, document: dict[str, Any]) -> Session:
    entries = []
    for number, wire in enumerate(_messages_in(document) or [], 1):
        if isinstance(wire, dict):
            entries.append(Entry(number, wire))
        else:
            source.problem("a message is no object", "skipped", number)
    return session_of(source, _facts(source, document), entries)


def _facts(source: SourceFile, told: dict[str, Any]) -> Facts:
    return Facts(
        text(told.get("id")) or source.path.name.split(".")[0],
        title=text(told.get("name")) or text(told.get("description")),
        project=text(told.get("working_dir")),
        model=text(at(told, "model_config", "model_name")),
        is_subagent=told.get("session_type") == "sub_agent",
        parent=text(told.get("parent_session_id")),
        started=told.get("created_at"),
        ended=told.get("updated_at"),
    )


def _lines(source: SourceFile) -> Session:
    facts: dict[str, Any] = {}
    entries: list[Entry] = []
    for line, _, row in source.rows(_ROW):
        if isinstance(row, dict) and "role" not in row and not entries and not facts:
            facts = row
        elif isinstance(row, dict):
            entries.append(Entry(line, row))
        else:
            source.problem("a line is no message", "skipped", line)
    return session_of(source, _facts(source, facts), entries)


def listed(source: SourceFile) -> Mapping[str, str]:
    """The sessions of a database."""
    from thresher.formats import goose_store  # noqa: PLC0415

    return goose_store.listed(source) if source.is_database else {}


def sniff(source: SourceFile) -> int:
    """Facts before the messages of a file, an export, a recording; or a database with goose's tables."""
    if source.is_database:
        return _sniff_database(source)
    first, second, *_ = [*islice(source.head, 2), None, None]
    if isinstance(first, dict) and "working_dir" in first and _is_line(second):
        return 3 if {"description", "message_count", "name"} & first.keys() else 2
    if second is None and isinstance(first, dict) and first.keys() >= {"working_dir", "description", "message_count"}:
        return 3 if _messages_in(first) is not None else 2
    if _is_line(first) and {at(part, "type") for part in items(first["content"])} & {"toolRequest", "toolResponse"}:
        return 2
    document = source.document
    if is_recording(document):
        return 3
    said = _messages_in(document)
    is_ours = said is not None and {"extension_data", "message_count", "description"} & document.keys()
    return 3 if is_ours and all(map(_is_line, said or [])) else 0


def _is_line(value: Any) -> bool:
    """Whether a value is a message as goose writes it: its time is a number, its content a list of typed parts."""
    content = fields(value).get("content")
    typed = isinstance(content, list) and all(isinstance(at(part, "type"), str) for part in content)
    return typed and at(value, "role") in ("user", "assistant") and type(at(value, "created")) is int


def _sniff_database(source: SourceFile) -> int:
    from thresher.formats import goose_store  # noqa: PLC0415

    if goose_store.is_store(source):
        return 3
    # By its name it is goose's: reading it will say what is wrong with it.
    return 1 if source.path.name == DATABASE and not source.tables else 0


def homes(environment: Mapping[str, str], home: Path) -> list[Home]:
    """`GOOSE_PATH_ROOT`, else the user's data folder; on a Mac also where the desktop had it."""
    root = Path(environment.get("GOOSE_PATH_ROOT") or "")
    if root.is_absolute():
        folders = [root / "data"]
    elif sys.platform == "win32":
        roaming = Path(environment.get("APPDATA") or home / "AppData" / "Roaming")
        folders = [roaming / "Block" / "goose" / "data"]
    else:
        folders = [Path(environment.get("XDG_DATA_HOME") or home / ".local" / "share") / "goose"]
        if sys.platform == "darwin":
            own = home / "Library" / "Application Support" / "Block" / "goose"
            folders += [own / "data", own]
    # The first version with a database took all files over, and left them where they were.
    ways = ((DATABASE, ""), ("*.jsonl", DATABASE))
    return [Home(folder / "sessions", name, newer=newer) for folder in folders for name, newer in ways]


FORMAT = TranscriptFormat(
    NAME,
    "goose",
    sniff,
    read,
    homes,
    resume="goose session --resume --session-id {id}",
    layouts="the SQLite store; session files (JSONL); `goose session export --format json`; provider recordings",
    holds=("thinking", "sub-agents", "usage", "times", "edits", "compactions"),
    seen="recordings of October 2025 to February 2026; the store by its tables, versions 1 to 17",
    listed=listed,
)
