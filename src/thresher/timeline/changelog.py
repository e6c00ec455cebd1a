"""What changed in files over some sessions, and why: per file, in order of time.

Reads are no changes, and neither is what failed. A sub-agent's work is told with its parent's, so a sub-agent whose
parent is among the sessions is not told again.
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
    """The changes of some sessions; with `since` and `until`, those whose time is known to be between."""
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
    """The events that changed something."""
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
