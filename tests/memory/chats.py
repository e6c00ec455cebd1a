"""Small Claude Code sessions, and helpers to compare stored ones."""

import json
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from thresher.memory.ingest.sync import sync_sources
from thresher.memory.ingest.workers import INGEST_OPTIONS, IngestOptions
from thresher.memory.records import SyncReport
from thresher.memory.search.query import Query, SearchField
from thresher.memory.search.query_compiler import CompiledQuery
from thresher.memory.session_store import SessionStore


def name(number: int) -> str:
    """Return the id of a session."""
    return str(uuid.UUID(int=number))


def line(session: str, number: int, role: str, content: Any, **more: Any) -> bytes:
    """Return one record of a session's chain."""
    row = {
        "type": role,
        "uuid": str(uuid.uuid5(uuid.UUID(session), str(number))),
        "parentUuid": str(uuid.uuid5(uuid.UUID(session), str(number - 1))) if number else None,
        "sessionId": session,
        "timestamp": f"2026-03-{1 + number // 1440:02}T{number // 60 % 24:02}:{number % 60:02}:00.000Z",
        "cwd": "/home/sam/shop",
        "message": {"role": role, "content": content, **({"id": f"msg_{session}_{number}"} if role != "user" else {})},
        **more,
    }
    return json.dumps(row).encode() + b"\n"


def chat(session: str, said: Iterable[str], first: int = 0) -> bytes:
    """Write a session in which a human and a model alternate."""
    roles = ("user", "assistant")
    return b"".join(
        line(session, number, roles[number % 2], text if number % 2 == 0 else [{"type": "text", "text": text}])
        for number, text in enumerate(said, first)
    )


def talk(session: str, count: int, first: int = 0) -> bytes:
    """Return a number of messages, each with a unique word."""
    return chat(session, (f"we speak of topic{number} at length here" for number in range(first, first + count)), first)


def synced(store: SessionStore, folder: Path, options: IngestOptions = INGEST_OPTIONS) -> SyncReport:
    """Sync all files of a folder and return the report without its duration."""
    files = [(None, path) for path in sorted(folder.rglob("*")) if path.is_file()]
    return sync_sources(store, files, options=options)._replace(seconds=0)


def places(store: SessionStore, text: str, field: SearchField | None = None) -> list[tuple[str, int]]:
    """Return the session id and message index of each matching text."""
    index = store.open_index()
    assert index is not None
    fields: tuple[SearchField, ...] = (field,) if field else ("human", "agent")
    found = CompiledQuery(Query(words=text, fields=fields, everything=True), index).best_matches(1000)
    ids = {facts.key: facts.id for facts in store.find_sessions()}
    return sorted({(ids[one.session], one.at) for one in found})
