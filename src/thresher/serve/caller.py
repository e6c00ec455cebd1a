"""Find the conversation that a tool call comes from.

The first of these sources that names a conversation decides:

1. The `session` argument of the call.
2. The option `--session` of the server.
3. The ids that the client sends with the call: Claude Code sends the id of the call, Codex the id of the thread.
4. A variable that the agent sets when it starts the server. It comes last, because the user can start a new
   conversation while the server runs (`/clear`).

Agents write to disk with a delay, so a named conversation may not be on disk yet. Callers of this module wait for it
instead of guessing.

If nothing names a conversation, the newest one in the server's folder is chosen. If several are active there, the error
lists them, and the model has to pass one as `session`. This choice ignores sub-agents' sessions: a sub-agent needs the
context of its parent, and its own file would always be the newest.

A transcript can contain any folder and any date. So the home folder and the folders above it, such as `/`, are no
parents of a project, and a conversation is never newer than its file.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path, PurePath
from typing import NamedTuple

from thresher.errors import ThresherError
from thresher.memory import Memory
from thresher.memory.host_session import find_current_session
from thresher.memory.ingest.change_detection import read_file_stat
from thresher.memory.records import ArchivedSession
from thresher.render.session_names import abbreviate_home, shorten_session_ids
from thresher.render.text import shorten
from thresher.store import AmbiguousIdError, NotStoredError

ACTIVE_WITHIN = timedelta(minutes=10)
"""Maximum age of the last message of a conversation that counts as active."""
MAX_SESSIONS_SEARCHED, MAX_MESSAGES_SEARCHED = 24, 64
"""Number of newest sessions, and number of last messages of each, that are searched for a call id."""
_EARLIEST = datetime.min.replace(tzinfo=UTC)


class SessionNotWrittenError(ThresherError):
    """A named conversation is not on disk yet."""


class CallerHints(NamedTuple):
    """Ids that a client sends with a call."""

    call_id: str = ""
    """Id of the tool call, as the calling session records it."""
    thread_id: str = ""
    """Id of the calling session."""

    @property
    def description(self) -> str:
        """Description of the caller, for an error."""
        return f"call {self.call_id}" if self.call_id else f"conversation {self.thread_id}"


class Caller(NamedTuple):
    """The conversation that made a call, and the reason for this choice."""

    facts: ArchivedSession
    reason: str


def find_caller(
    memory: Memory,
    *,
    session: str = "",
    project: str = "",
    hints: CallerHints,
    environment: Mapping[str, str],
    now: datetime,
) -> Caller:
    """Return the conversation that a call comes from.

    `session` is an id, the start of one, or the path of a session file; `project` is a folder. Raises
    `SessionNotWrittenError` if a named conversation is not on disk yet, `NotStoredError` if there is none, and
    `AmbiguousIdError` if several are active.
    """
    if session:
        return Caller(_find_named(memory, session, now), "it was named")
    if (hinted := find_session_by_hints(memory, hints, now)) is not None:
        return Caller(hinted, "the client names it")
    if hints != CallerHints():
        raise _not_written(hints.description)
    if current := find_current_session(environment):
        if stored := _find_by_id(memory, current):
            return Caller(_latest_session(stored, now), "the agent's environment names it")
        raise _not_written(f"conversation {current}")
    return _find_by_folder(memory, project, now)


def _not_written(name: str) -> SessionNotWrittenError:
    return SessionNotWrittenError(f"no session file has the {shorten(name, 80)} yet; try again, or pass `session`")


def _find_by_folder(memory: Memory, project: str, now: datetime) -> Caller:
    folder = abbreviate_home(project)
    candidates = [
        facts
        for facts in memory.store.find_sessions()
        if not facts.subagent and not facts.gone and _is_in_project(project, facts)
    ]
    if not candidates:
        raise NotStoredError(
            f"no conversation found for the folder {folder}; pass `session` (an id, which search_sessions finds) or "
            "`project` (the folder of the conversation)"
        )
    active = [facts for facts in candidates if now - find_last_activity(facts, now) < ACTIVE_WITHIN]
    if len({(facts.agent, facts.root) for facts in active}) > 1:
        raise AmbiguousIdError(
            f"several conversations are active in {folder}; pass one of them as `session`: "
            f"{_format_choices(active, now)}"
        )
    others = "" if len(candidates) == 1 else f" of {len(candidates):,}"
    inactive = "" if active else ", and none is active now"
    return Caller(_latest_session(active or candidates, now), f"it is the newest{others} in {folder}{inactive}")


def find_session_by_hints(memory: Memory, hints: CallerHints, now: datetime) -> ArchivedSession | None:
    """Return the session that the ids of a client name; this may be the session of the sub-agent that made the call."""
    if hints.thread_id:
        return next(iter(_find_by_id(memory, hints.thread_id)), None)
    if not hints.call_id:
        return None
    newest = _sort_by_activity(memory.store.find_sessions(), now)
    return next((facts for facts in newest[:MAX_SESSIONS_SEARCHED] if _has_call(memory, facts, hints.call_id)), None)


def _find_by_id(memory: Memory, id: str) -> list[ArchivedSession]:
    return [facts for facts in memory.store.find_sessions(id=id) if facts.id == id]


def _has_call(memory: Memory, facts: ArchivedSession, call_id: str) -> bool:
    last_messages = memory.store.messages(facts.key, max(0, facts.messages - MAX_MESSAGES_SEARCHED))
    return any(call.id == call_id for message in last_messages for call in message.calls)


def _find_named(memory: Memory, session: str, now: datetime) -> ArchivedSession:
    if "/" not in session and "\\" not in session:
        return memory.facts(session)
    matches = [facts for facts in memory.store.find_sessions() if facts.file == session and not facts.subagent]
    if not matches:
        raise NotStoredError(f"`{shorten(session, 200)}` is not a known session file; pass an id")
    return _latest_session(matches, now)


def find_last_activity(facts: ArchivedSession, now: datetime) -> datetime:
    """Return the time of a conversation's last message, but no later than its file's last change."""
    stat = read_file_stat(facts.file)
    changed = now if stat is None else datetime.fromtimestamp(stat.mtime_ns // 1_000_000_000 + 1, UTC)
    return min(facts.ended or _EARLIEST, changed, now)


def _latest_session(sessions: Iterable[ArchivedSession], now: datetime) -> ArchivedSession:
    return max(sessions, key=lambda facts: (find_last_activity(facts, now), facts.messages))


def _sort_by_activity(sessions: Iterable[ArchivedSession], now: datetime) -> list[ArchivedSession]:
    return sorted(sessions, key=lambda facts: find_last_activity(facts, now), reverse=True)


def _is_in_project(project: str, facts: ArchivedSession) -> bool:
    """Return True if a conversation's folder is `project`, or a parent of it that does not contain the home folder."""
    if not (project and facts.project):
        return False
    folder = PurePath(facts.project)
    is_above = PurePath(project).is_relative_to(folder) and not Path.home().is_relative_to(folder)
    return is_above or folder == PurePath(project)


def _format_choices(sessions: Iterable[ArchivedSession], now: datetime) -> str:
    newest = _sort_by_activity(sessions, now)[:5]
    names = shorten_session_ids([facts.id for facts in newest])
    return "; ".join(
        f"{name} ({facts.agent}, last at {facts.ended:%H:%M:%S}, {shorten(facts.title, 60) or 'no title'})"
        for name, facts in zip(names, newest, strict=True)
        if facts.ended
    )
