"""Search results and archive reports as JSON values."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from msgspec import to_builtins

from thresher.memory.ingest.redaction import redact
from thresher.memory.records import ArchivedSession, MemorySizes, SyncReport
from thresher.memory.results import RecallResult, SearchHit, SearchResults, SessionHit
from thresher.render.memory import nonzero_reasons

_SYNC_KEYS = {
    "gone": "missing",
    "foreign": "unrecognized",
    "forgotten": "expired",
    "forgotten_again": "skipped_forgotten",
    "indexed": "indexed_share",
}


_ARCHIVE_KEYS = {"call": "call_id", "root": "family_root", "made_by": "memory_tool", "gone": "file_deleted"}
"""JSON keys of fields whose names come from archive columns."""


def search_result_value(results: SearchResults) -> dict[str, Any]:
    """Return search results as a JSON value. The keys are stable."""
    return {
        "query": results.query,
        "sessions": [_session_value(session) for session in results.sessions],
        "total": results.found,
        "page": results.page,
        "has_more": results.more,
        "indexed_share": results.indexed,
        "excluded": dict(results.excluded),
        "confidence": None if results.confidence is None else round(results.confidence, 3),
    }


def _session_value(session: SessionHit) -> dict[str, Any]:
    fields = ("id", "agent", "project", "branch", "title", "file", "line", "score", "matches")
    value = {field: getattr(session, field) for field in fields}
    value |= {
        "time": _iso(session.time),
        "family": list(session.family),
        "parent": session.parent,
        "subagent": session.subagent,
    }
    value |= {"file_deleted": session.gone, "resume_command": session.resume}
    return value | {"hits": [_hit_value(hit) for hit in session.hits]}


def _hit_value(hit: SearchHit) -> dict[str, Any]:
    return {
        "role": hit.role,
        "author": hit.author,
        "kind": hit.kind,
        "text": hit.text,
        "message_index": hit.at,
        "line": hit.line,
        "time": _iso(hit.time),
    }


def recall_value(recalled: RecallResult) -> dict[str, Any]:
    """Return a recall result as a JSON value."""
    session = _session_value(recalled.session)
    shown = ("id", "agent", "project", "branch", "title", "file", "file_deleted", "resume_command")
    file = recalled.session.file
    return {
        "question": recalled.question,
        "is_answered": recalled.found,
        "answer": recalled.answer,
        "session": {field: session[field] for field in shown},
        "excerpts": [_hit_value(one) | {"file": file, "tokens": one.tokens} for one in recalled.excerpts],
        "tokens": recalled.tokens,
    }


def sync_report_value(report: SyncReport, sizes: MemorySizes, excluded: Mapping[str, int]) -> dict[str, Any]:
    """Return the result of a sync as a JSON value."""
    formatted = {"failed": list(report.failed), "seconds": round(report.seconds, 3)}
    value = {_SYNC_KEYS.get(name, name): count for name, count in (report._asdict() | formatted).items()}
    return value | {"sizes": to_builtins(sizes), "excluded_texts": exclusion_value(excluded)}


def exclusion_value(excluded: Mapping[str, int]) -> dict[str, Any]:
    """Return the number of excluded texts by reason and their share of all texts."""
    total = sum(excluded.values())
    reasons = nonzero_reasons(excluded)
    return {"by_reason": reasons, "total": total, "share": sum(reasons.values()) / total if total else 0.0}


def archived_session_value(session: ArchivedSession) -> dict[str, Any]:
    """Return an archived session as a JSON value, without its internal key."""
    value: dict[str, Any] = to_builtins(session)
    fields = {_ARCHIVE_KEYS.get(name, name): value[name] for name in value if name != "key"}
    return {name: redact(field) if isinstance(field, str) else field for name, field in fields.items()}


def _iso(time: datetime | None) -> str | None:
    return time.isoformat() if time else None
