"""Which conversation asks: exactly where something names it, else by the folder, and never by a guess between two.

What names a session is believed: the caller itself, the command line that started the server (a hook knows the id),
what the client says beside a call (Claude Code the call's id, Codex the thread), a variable that the agent set when it
started the server. In this order, since a conversation can change under a server (`/clear`). Agents write late: what is
named and not there yet is waited for by whoever asks, and never replaced by a guess. Where nothing names it, it is the
newest conversation in the folder that the server runs in, with that reason told. Where two are at work there at
once, both are named and the caller has to say which.

By folder, sessions of sub-agents are never the answer: a sub-agent asks for what its parent knew, and its own file is
the newest of all.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import PurePath
from typing import NamedTuple

from thresher.errors import ThresherError
from thresher.memory import Memory
from thresher.memory.host_session import find_current_session
from thresher.memory.records import ArchivedSession
from thresher.render.session_names import abbreviate_home, shorten_session_ids
from thresher.render.text import shorten
from thresher.store import AmbiguousIdError, NotStoredError

ACTIVE_WITHIN = timedelta(minutes=10)
"""A conversation that went on this short a time ago is at work."""
MAX_SESSIONS_SEARCHED, MAX_MESSAGES_SEARCHED = 24, 64
"""Sessions, the newest first, and messages at their ends, in which a call is looked for that was just made."""
_EARLIEST = datetime.min.replace(tzinfo=UTC)


class SessionNotWrittenError(ThresherError):
    """A conversation is named that no file tells of yet."""


class CallerHints(NamedTuple):
    """What a client says of whoever calls."""

    call_id: str = ""
    """The id of the call, as it stands in the record of the conversation that made it."""
    thread_id: str = ""
    """The id of that conversation."""

    @property
    def description(self) -> str:
        """What to look for, in words."""
        return f"call {self.call_id}" if self.call_id else f"conversation {self.thread_id}"


class Caller(NamedTuple):
    """The conversation that asks, and how that is known."""

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
    """The conversation that a call comes from.

    `session` is an id, the start of one, or the path of a session's file; `project` a folder. Raises
    `SessionNotWrittenError` where it is named and not there yet, `NotStoredError` where there is none,
    `AmbiguousIdError` where there are several.
    """
    if session:
        return Caller(_find_named(memory, session), "it was named")
    if asking := find_session_by_hints(memory, hints):
        return Caller(asking, "the client names it")
    known = "" if hints != CallerHints() else find_current_session(environment)
    if known and (found := [one for one in memory.store.find_sessions(id=known) if one.id == known]):
        return Caller(_latest_session(found), "the agent's environment names it")
    if known or hints != CallerHints():
        what = hints.description if hints != CallerHints() else f"conversation {known}"
        raise SessionNotWrittenError(f"the {shorten(what, 80)} is in no record yet; ask again, or pass `session`")
    here = [
        one
        for one in memory.store.find_sessions()
        if not one.subagent and not one.gone and _is_in_project(project, one)
    ]
    if not here:
        raise NotStoredError(
            f"no conversation of the folder {abbreviate_home(project)} is known; pass `session` (an id; "
            "search_sessions finds "
            "it) or `project` (the folder that the conversation is in)"
        )
    at_work = [one for one in here if one.ended and now - one.ended < ACTIVE_WITHIN]
    if len({(one.agent, one.root) for one in at_work}) > 1:
        raise AmbiguousIdError(
            f"several conversations are at work in {abbreviate_home(project)}; pass one of them as `session`: "
            f"{_format_choices(at_work)}"
        )
    newest = _latest_session(at_work or here)
    others = "" if len(here) == 1 else f" of {len(here):,}"
    return Caller(
        newest,
        f"it is the newest{others} in {abbreviate_home(project)}{'' if at_work else ', and none is at work now'}",
    )


def find_session_by_hints(memory: Memory, hints: CallerHints) -> ArchivedSession | None:
    """The session that a client names: be it a sub-agent's, which holds the call itself."""
    if hints.thread_id:
        return next((one for one in memory.store.find_sessions(id=hints.thread_id) if one.id == hints.thread_id), None)
    if not hints.call_id:
        return None
    newest = sorted(memory.store.find_sessions(), key=lambda one: one.ended or _EARLIEST, reverse=True)[
        :MAX_SESSIONS_SEARCHED
    ]
    return next((one for one in newest if _has_call(memory, one, hints.call_id)), None)


def _has_call(memory: Memory, facts: ArchivedSession, call: str) -> bool:
    last = memory.store.messages(facts.key, max(0, facts.messages - MAX_MESSAGES_SEARCHED))
    return any(one.id == call for message in last for one in message.calls)


def _find_named(memory: Memory, session: str) -> ArchivedSession:
    if "/" in session or "\\" in session:
        found = [one for one in memory.store.find_sessions() if one.file == session and not one.subagent]
        if not found:
            raise NotStoredError(f"`{shorten(session, 200)}` is no session's file that is known here; pass an id")
        return _latest_session(found)
    return memory.facts(session)


def _latest_session(some: Iterable[ArchivedSession]) -> ArchivedSession:
    return max(some, key=lambda one: (one.ended or _EARLIEST, one.messages))


def _is_in_project(project: str, facts: ArchivedSession) -> bool:
    """Whether a conversation's folder is this one, or one around it."""
    if not (project and facts.project):
        return False
    here, theirs = PurePath(project), PurePath(facts.project)
    return theirs == here or theirs in here.parents


def _format_choices(some: Iterable[ArchivedSession]) -> str:
    every = sorted(some, key=lambda one: one.ended or _EARLIEST, reverse=True)[:5]
    names = shorten_session_ids([one.id for one in every])
    return "; ".join(
        f"{name} ({one.agent}, last at {one.ended:%H:%M:%S}, {shorten(one.title, 60) or 'no title'})"
        for name, one in zip(names, every, strict=True)
        if one.ended
    )
