"""The sessions in some files, answered from the archive for the files that did not change since the last sync."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from thresher.cli.sources import find_in_archive, read_sessions
from thresher.memory.ingest.extract import describe_session
from thresher.memory.ingest.sync import absolute_path
from thresher.memory.records import ArchivedSession
from thresher.memory.session_store import SessionStore
from thresher.model import Problem, Session


class ListedSession(NamedTuple):
    """A session in the list."""

    facts: ArchivedSession
    session: Session | None
    """The complete session, if its file was read."""
    store: SessionStore | None = None
    """The store that has the session, if its file was not read."""

    @property
    def last_message(self) -> datetime | None:
        """Time of the last message."""
        return self.facts.ended or self.facts.started

    def load(self) -> Session:
        """Return the complete session."""
        if self.session is not None:
            return self.session
        assert self.store is not None
        return self.store.session(self.facts.key)

    def problems(self) -> Sequence[Problem]:
        """Return the problems that were found when the file was read."""
        if self.session is not None:
            return self.session.problems
        assert self.store is not None
        return self.store.problems(self.facts.key)


class SessionList(NamedTuple):
    """The sessions in some files, the newest first."""

    sessions: list[ListedSession]
    failures: list[str]
    """A message for each unreadable file."""
    unrecognized: list[str]
    """Files of unknown format."""
    read: int
    """Number of files that were read, because the archive does not have their current content."""
    store: SessionStore | None = None

    def connected(self) -> AbstractContextManager[object]:
        """Use one connection to the archive for everything that the sessions load in the context."""
        return nullcontext() if self.store is None else self.store.archive.connected()


def list_sessions(files: Sequence[Path], *, named: Collection[Path] = ()) -> SessionList:
    """List the sessions in the files. A file of unknown format is a failure if it is in `named`."""
    store, known = find_in_archive(files)
    rest = [path for path in files if absolute_path(str(path)) not in known.paths]
    unrecognized = [str(path) for path in files if absolute_path(str(path)) in known.unrecognized and path not in named]
    rest += [path for path in files if absolute_path(str(path)) in known.unrecognized and path in named]
    sessions, failures = read_sessions(rest, named=named, unrecognized=unrecognized)
    listed = [ListedSession(facts, None, store) for facts in known.sessions]
    listed += _describe_read_sessions(sessions)
    listed.sort(key=_age, reverse=True)
    return SessionList(listed, failures, unrecognized, len(rest), store)


def _describe_read_sessions(sessions: Iterable[Session]) -> Iterator[ListedSession]:
    seen: set[tuple[str, str, str]] = set()
    queue = [(session, False) for session in sessions]
    for session, is_child in queue:
        queue += [(child, True) for child in session.children]
        name = (session.agent, session.id, session.file)
        if name not in seen or not is_child:
            yield ListedSession(describe_session(session, is_child=is_child), session)
        seen.add(name)


def _age(listed: ListedSession) -> tuple[float, str, str]:
    time = listed.last_message
    return time.timestamp() if time is not None else float("-inf"), listed.facts.file, listed.facts.id


def select_sessions(
    sessions: Iterable[ListedSession],
    *,
    subagents: bool = False,
    project: str = "",
    agent: str = "",
    since: datetime | None = None,
) -> list[ListedSession]:
    """Return the sessions that meet all conditions. A sub-agent is listed without its parent, or if `subagents`."""
    listed = [*sessions]
    ids = {(one.facts.agent, one.facts.id) for one in listed}
    selected = []
    for one in listed:
        facts, time = one.facts, one.last_message
        is_hidden = not subagents and facts.subagent and (facts.agent, facts.parent) in ids
        is_late = since is None or (time is not None and time >= since)
        is_wanted = agent in ("", facts.agent) and project.lower() in facts.project.lower()
        if is_wanted and is_late and not is_hidden:
            selected.append(one)
    return selected
