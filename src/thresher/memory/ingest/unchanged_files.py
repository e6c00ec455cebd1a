"""Answer from the archive for the files that have not changed since the last sync."""

from collections.abc import Iterable
from typing import NamedTuple

from thresher.memory.archive.protocol import SessionFilter
from thresher.memory.ingest.sync import absolute_path, plan_sync
from thresher.memory.records import ArchivedSession
from thresher.memory.session_store import SessionStore


class UnchangedFiles(NamedTuple):
    """Files that need not be read, because the archive knows what they contain."""

    paths: frozenset[str] = frozenset()
    """All of these files, including those in `unrecognized`."""
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
        parts = {path for path, source in known.items() if source.whole in mains}
        unrecognized = {path for path, source in known.items() if source.state == "foreign" and not source.whole}
        rows = store.archive.find_sessions(SessionFilter(folder=store.project_root))
        sessions = tuple(row.session for row in rows if row.is_present and row.source in mains)
    return UnchangedFiles(frozenset(mains | parts | unrecognized), frozenset(unrecognized), sessions)
