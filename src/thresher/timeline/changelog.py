"""Build a changelog of files over several sessions, with the reason for each change, in order of time.

Reads and failed calls are not changes. The changes of a parent session include those of its sub-agents, so a sub-agent
whose parent is among the sessions is skipped.
"""

from collections.abc import Iterable, Iterator
from datetime import datetime
from math import inf

from thresher.model import History, Session
from thresher.timeline.path_index import relative_to_folder
from thresher.timeline.records import Changelog, ChangelogEntry, FileChangelog, FileEvent
from thresher.timeline.timeline import Timeline
from thresher.timeline.tool_steps import seconds_of, to_session


def build_changelog(
    sessions: Session | History | Iterable[Session | History],
    *,
    since: datetime | None = None,
    until: datetime | None = None,
) -> Changelog:
    """Return the changes of sessions or histories from `since` to `until`.

    Either limit excludes changes without a time.
    """
    sessions = [sessions] if isinstance(sessions, Session | History) else sessions
    start, stop = seconds_of(since) if since else -inf, seconds_of(until) if until else inf
    ordered = sorted(map(to_session, sessions), key=lambda session: seconds_of(session.started))
    children = {_key(child) for session in ordered for child in session.children}
    files: dict[tuple[str, str], list[ChangelogEntry]] = {}
    changed: dict[str, None] = {}
    for session in (session for session in ordered if _key(session) not in children):
        for event in find_change_events(Timeline(session)):
            is_included = event.time is not None or not (since or until)
            if is_included and start <= seconds_of(event.time) <= stop:
                changed |= {session.id: None} if session.id else {}
                path = relative_to_folder(event.path, session.project)
                key = path, session.project if path != event.path else ""
                files.setdefault(key, []).append(_entry(event, session))
    changelogs = (FileChangelog(path, project, tuple(entries)) for (path, project), entries in sorted(files.items()))
    return Changelog(tuple(changelogs), tuple(changed))


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
