"""opencode: what `opencode export` writes, and the two stores that it has kept its sessions in.

An export is one JSON document a session; its sub-agents are documents of their own. A document has no lines: a
message's place is its number in it.
"""

import glob
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from thresher.errors import ReadError
from thresher.model import Session
from thresher.transcripts.base import SessionFolder, TranscriptFormat
from thresher.transcripts.coerce import dict_at, text_at
from thresher.transcripts.opencode.messages import NAME, build_opencode_session
from thresher.transcripts.source import SourceFile


def _read(source: SourceFile) -> list[Session]:
    """The session in a file, or all of a database."""
    # The stores come with libraries of their own.
    from thresher.transcripts.opencode import store  # noqa: PLC0415

    if source.is_database:
        return store.read_opencode_database(source)
    document = source.read_document()
    if _is_session_info(document):
        return [store.read_opencode_folders(source, document)]
    if not isinstance(document, dict) or not isinstance(document.get("messages"), list):
        raise ReadError(f"`{source.path}` holds no list of `messages`; is it what `opencode export` wrote?")
    return [build_opencode_session(source, document)]


def _list_sessions(source: SourceFile) -> Mapping[str, str]:
    """The sessions of a database."""
    from thresher.transcripts.opencode import store  # noqa: PLC0415

    return store.list_opencode_sessions(source) if source.is_database else {}


def _sniff(source: SourceFile) -> int:
    """A document with facts about the session, and messages that each have facts and parts; or a store of them."""
    if source.is_database:
        from thresher.transcripts.opencode import store  # noqa: PLC0415

        return 3 if store.is_opencode_database(source) else 0
    document = source.document
    if _is_session_info(document):
        return 3
    if not isinstance(document, dict) or not isinstance(document.get("messages"), list):
        return 0
    if not isinstance(document.get("info"), dict):
        return 0
    named = text_at(document["info"], "id").startswith("ses_")
    rows = [row for row in document["messages"] if isinstance(row, dict)]
    shaped = any(isinstance(row.get("parts"), list) and "role" in dict_at(row, "info") for row in rows)
    return 3 if named and (shaped or not rows) else 2 if shaped else 0


def _is_session_info(document: Any) -> bool:
    """Whether these are the facts of a session whose messages lie in files of their own."""
    return (
        isinstance(document, dict)
        and text_at(document, "id").startswith("ses_")
        and isinstance(document.get("time"), dict)
        and "messages" not in document
    )


def _homes(environment: Mapping[str, str], home: Path) -> list[SessionFolder]:
    """`XDG_DATA_HOME`, else `~/.local/share`, on every system; `OPENCODE_DB` names another database."""
    own = Path(environment.get("XDG_DATA_HOME") or home / ".local" / "share") / "opencode"
    named = own / environment.get("OPENCODE_DB", "")
    return [
        *([SessionFolder(named.parent, glob.escape(named.name))] if environment.get("OPENCODE_DB") else []),
        SessionFolder(own, "opencode*.db"),
        # The first version with a database took all files over, and left them where they were.
        SessionFolder(own / "storage" / "session", "*/ses_*.json", newer="../../../opencode.db"),
        SessionFolder(own / "project", "*/storage/session/info/ses_*.json", newer="../../../../../opencode.db"),
    ]


FORMAT = TranscriptFormat(
    NAME,
    "opencode",
    _sniff,
    _read,
    _homes,
    resume="opencode --session {id}",
    layouts="`opencode export`; the store of JSON files; the SQLite store, of both generations",
    holds=("thinking", "sub-agents", "forks", "usage", "times", "edits", "rewinds", "compactions"),
    seen="1.2.20 to 1.2.26, 1.18.33",
    listed=_list_sessions,
)
