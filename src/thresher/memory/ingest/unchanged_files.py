"""Answer from the archive for the files that have not changed since the last sync."""

from collections.abc import Iterable
from typing import NamedTuple

from thresher.errors import ReadError
from thresher.memory.archive.protocol import SessionFilter
from thresher.memory.ingest.change_detection import DATABASES
from thresher.memory.ingest.sync import absolute_path, plan_sync
from thresher.memory.records import ArchivedSession
from thresher.memory.session_store import SessionStore
from thresher.transcripts import list_session_versions


class UnchangedFiles(NamedTuple):
    """Files that need not be read, because the archive knows what they contain."""

    paths: frozenset[str] = frozenset()
    """The files, including those in `unrecognized`."""
    unrecognized: frozenset[str] = frozenset()
    """Files of unknown format."""
    sessions: tuple[ArchivedSession, ...] = ()
    """Sessions in these files, with their sub-agents."""


def find_unchanged_files(store: SessionStore, files: Iterable[str]) -> UnchangedFiles:
    """Return which of the files are as at the last sync, and their sessions, without reading or changing any file."""
    if not store.exists():
        return UnchangedFiles()
    with store.archive.connected():
        sources = store.archive.sources()
        wanted = dict.fromkeys(map(absolute_path, files), "")
        changed = {str(job.path) for job in plan_sync(sources, wanted).jobs}
        known = {path: sources[path] for path in wanted if path in sources and path not in changed}
        mains = {path for path, source in known.items() if source.state == "here" and not source.whole}
        unrecognized = {path for path, source in known.items() if source.state == "foreign" and not source.whole}
        rows = [row for row in store.archive.find_sessions(SessionFilter(folder=store.project_root)) if row.is_present]
    ids: dict[str, set[str]] = {}
    for row in rows:
        ids.setdefault(row.source, set()).add(row.session.id)
    partial = {path for path in mains if path.endswith(DATABASES) and not _has_all(path, ids.get(path, set()))}
    mains -= partial
    parts = {path for path, source in known.items() if source.whole in mains}
    sessions = tuple(row.session for row in rows if row.source in mains)
    return UnchangedFiles(frozenset(mains | parts | unrecognized), frozenset(unrecognized), sessions)


def _has_all(path: str, ids: set[str]) -> bool:
    """Return whether these are all sessions of a database. Sessions that the user made the archive forget are not."""
    try:
        return ids >= (list_session_versions(path) or {}).keys()
    except ReadError:
        return False
