"""Build a changelog of files over several sessions, with the reason for each change, in order of time.

Reads and failed calls are not changes. A sub-agent's changes are listed with its parent, so a sub-agent whose parent is
among the sessions is skipped.
"""

from collections.abc import Iterable, Iterator
from datetime import datetime

from thresher.model import Session
from thresher.timeline.path_index import relative_to_folder
from thresher.timeline.records import Changelog, ChangelogEntry, FileChangelog, FileEvent
from thresher.timeline.timeline import Timeline


def build_changelog(
    sessions: Iterable[Session], *, since: datetime | None = None, until: datetime | None = None
) -> Changelog:
    """Return the changes of the sessions. With `since` and `until`, keep those with a known time in between."""
    every = sorted(sessions, key=lambda session: _to_seconds(session.started))
    told = {_key(child) for session in every for child in session.children}
    files: dict[tuple[str, str], list[ChangelogEntry]] = {}
    changed: dict[str, None] = {}
    for session in every:
        if _key(session) in told:
            continue
        for event in find_change_events(Timeline(session)):
            if (since and _to_seconds(event.time) < _to_seconds(since)) or (
                until and _to_seconds(event.time) > _to_seconds(until)
            ):
                continue
            changed[session.id] = None
            path = relative_to_folder(event.path, session.project)
            key = path, session.project if path != event.path else ""
            files.setdefault(key, []).append(_entry(event, session))
    made = (FileChangelog(path, project, tuple(entries)) for (path, project), entries in sorted(files.items()))
    return Changelog(tuple(made), tuple(changed))


def find_change_events(timeline: Timeline) -> Iterator[FileEvent]:
    """Yield the events that changed a file."""
    return (event for event in timeline.events() if event.operation != "read" and not event.failed)


def _entry(event: FileEvent, session: Session) -> ChangelogEntry:
    return ChangelogEntry(
        session.id,
        event.turn,
        event.time,
        event.operation,
        event.why,
        event.added,
        event.removed,
        relative_to_folder(event.to, session.project),
        event.agent,
    )


def _key(session: Session) -> tuple[str, str]:
    return session.agent, session.id


def _to_seconds(time: datetime | None) -> float:
    try:
        return time.timestamp() if time is not None else 0.0
    except (OverflowError, ValueError, OSError):
        return 0.0
