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
from thresher.memory.current import current_session
from thresher.memory.values import Facts
from thresher.render.memory import short_ids, tilde
from thresher.render.words import shorten
from thresher.store import AmbiguousIdError, NotStoredError

AT_WORK = timedelta(minutes=10)
"""A conversation that went on this short a time ago is at work."""
LOOKED_AT, LAST = 24, 64
"""Sessions, the newest first, and messages at their ends, in which a call is looked for that was just made."""
_NEVER = datetime.min.replace(tzinfo=UTC)


class UnwrittenError(ThresherError):
    """A conversation is named that no file tells of yet."""


class Hints(NamedTuple):
    """What a client says of whoever calls."""

    call: str = ""
    """The id of the call, as it stands in the record of the conversation that made it."""
    thread: str = ""
    """The id of that conversation."""

    @property
    def named(self) -> str:
        """What to look for, in words."""
        return f"call {self.call}" if self.call else f"conversation {self.thread}"


class Caller(NamedTuple):
    """The conversation that asks, and how that is known."""

    facts: Facts
    why: str


def find_caller(
    memory: Memory,
    *,
    session: str = "",
    project: str = "",
    hints: Hints,
    environment: Mapping[str, str],
    now: datetime,
) -> Caller:
    """The conversation that a call comes from.

    `session` is an id, the start of one, or the path of a session's file; `project` a folder. Raises
    `UnwrittenError` where it is named and not there yet, `NotStoredError` where there is none, `AmbiguousIdError`
    where there are several.
    """
    if session:
        return Caller(_named(memory, session), "it was named")
    if asking := by_hints(memory, hints):
        return Caller(asking, "the client names it")
    known = "" if hints != Hints() else current_session(environment)
    if known and (found := [one for one in memory.store.facts(id=known) if one.id == known]):
        return Caller(_newest(found), "the agent's environment names it")
    if known or hints != Hints():
        what = hints.named if hints != Hints() else f"conversation {known}"
        raise UnwrittenError(f"the {shorten(what, 80)} is in no record yet; ask again, or pass `session`")
    here = [one for one in memory.store.facts() if not one.subagent and not one.gone and _is_in(project, one)]
    if not here:
        raise NotStoredError(
            f"no conversation of the folder {tilde(project)} is known; pass `session` (an id; search_sessions finds "
            "it) or `project` (the folder that the conversation is in)"
        )
    at_work = [one for one in here if one.ended and now - one.ended < AT_WORK]
    if len({(one.agent, one.root) for one in at_work}) > 1:
        raise AmbiguousIdError(
            f"several conversations are at work in {tilde(project)}; pass one of them as `session`: {_listed(at_work)}"
        )
    newest = _newest(at_work or here)
    others = "" if len(here) == 1 else f" of {len(here):,}"
    return Caller(
        newest, f"it is the newest{others} in {tilde(project)}{'' if at_work else ', and none is at work now'}"
    )


def by_hints(memory: Memory, hints: Hints) -> Facts | None:
    """The session that a client names: be it a sub-agent's, which holds the call itself."""
    if hints.thread:
        return next((one for one in memory.store.facts(id=hints.thread) if one.id == hints.thread), None)
    if not hints.call:
        return None
    newest = sorted(memory.store.facts(), key=lambda one: one.ended or _NEVER, reverse=True)[:LOOKED_AT]
    return next((one for one in newest if _holds(memory, one, hints.call)), None)


def _holds(memory: Memory, facts: Facts, call: str) -> bool:
    last = memory.store.messages(facts.key, max(0, facts.messages - LAST))
    return any(one.id == call for message in last for one in message.calls)


def _named(memory: Memory, session: str) -> Facts:
    if "/" in session or "\\" in session:
        found = [one for one in memory.store.facts() if one.file == session and not one.subagent]
        if not found:
            raise NotStoredError(f"`{shorten(session, 200)}` is no session's file that is known here; pass an id")
        return _newest(found)
    return memory.facts(session)


def _newest(some: Iterable[Facts]) -> Facts:
    return max(some, key=lambda one: (one.ended or _NEVER, one.messages))


def _is_in(project: str, facts: Facts) -> bool:
    """Whether a conversation's folder is this one, or one around it."""
    if not (project and facts.project):
        return False
    here, theirs = PurePath(project), PurePath(facts.project)
    return theirs == here or theirs in here.parents


def _listed(some: Iterable[Facts]) -> str:
    every = sorted(some, key=lambda one: one.ended or _NEVER, reverse=True)[:5]
    names = short_ids([one.id for one in every])
    return "; ".join(
        f"{name} ({one.agent}, last at {one.ended:%H:%M:%S}, {shorten(one.title, 60) or 'no title'})"
        for name, one in zip(names, every, strict=True)
        if one.ended
    )
