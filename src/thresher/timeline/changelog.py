"""What changed in files over some sessions, and why: per file, in order of time.

Reads are no changes, and neither is what failed. A sub-agent's work is told with its parent's, so a sub-agent whose
parent is among the sessions is not told again.
"""

from collections.abc import Iterable, Iterator
from datetime import datetime

from thresher.model import Session
from thresher.timeline.names import within
from thresher.timeline.timeline import Timeline
from thresher.timeline.values import Changelog, Entry, Event, FileChanges


def changelog(
    sessions: Iterable[Session], *, since: datetime | None = None, until: datetime | None = None
) -> Changelog:
    """The changes of some sessions; with `since` and `until`, those whose time is known to be between."""
    every = sorted(sessions, key=lambda session: _moment(session.started))
    told = {_key(child) for session in every for child in session.children}
    files: dict[tuple[str, str], list[Entry]] = {}
    changed: dict[str, None] = {}
    for session in every:
        if _key(session) in told:
            continue
        for event in changes(Timeline(session)):
            if (since and _moment(event.time) < _moment(since)) or (until and _moment(event.time) > _moment(until)):
                continue
            changed[session.id] = None
            path = within(event.path, session.project)
            key = path, session.project if path != event.path else ""
            files.setdefault(key, []).append(_entry(event, session))
    made = (FileChanges(path, project, tuple(entries)) for (path, project), entries in sorted(files.items()))
    return Changelog(tuple(made), tuple(changed))


def changes(timeline: Timeline) -> Iterator[Event]:
    """The events that changed something."""
    return (event for event in timeline.events() if event.operation != "read" and not event.failed)


def _entry(event: Event, session: Session) -> Entry:
    return Entry(
        session.id,
        event.turn,
        event.time,
        event.operation,
        event.why,
        event.added,
        event.removed,
        within(event.to, session.project),
        event.agent,
    )


def _key(session: Session) -> tuple[str, str]:
    return session.agent, session.id


def _moment(time: datetime | None) -> float:
    try:
        return time.timestamp() if time is not None else 0.0
    except (OverflowError, ValueError, OSError):
        return 0.0
