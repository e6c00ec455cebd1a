"""Find the sessions that started sub-agents, so that a search can present a sub-agent as a part of its session."""

from collections.abc import Iterable, Mapping

from thresher.memory.records import ArchivedSession
from thresher.memory.session_store import SessionStore


def find_owners(store: SessionStore, sessions: Iterable[ArchivedSession]) -> dict[int, ArchivedSession]:
    """Return the session that started each sub-agent, directly or through other sub-agents, by the sub-agent's key.

    A sub-agent whose session is not archived, or not visible, is missing.
    """
    owners: dict[int, ArchivedSession] = {}
    families: dict[tuple[str, str], Mapping[str, ArchivedSession]] = {}
    for session in sessions:
        family = (session.agent, session.root)
        if session.subagent and family not in families:
            members = store.find_sessions(agent=session.agent, root=session.root)
            families[family] = {one.id: one for one in sorted(members, key=lambda one: not one.gone)}
        owner = _climb(session, families.get(family, {}))
        if owner is not None:
            owners[session.key] = owner
    return owners


def _climb(session: ArchivedSession, family: Mapping[str, ArchivedSession]) -> ArchivedSession | None:
    """Return the first ancestor that is not a sub-agent; None without one. Wrong records may form a cycle."""
    seen: set[str] = set()
    current: ArchivedSession | None = session
    while current is not None and current.subagent and current.id not in seen:
        seen.add(current.id)
        current = family.get(current.parent)
    return None if current is None or current.subagent or current is session else current
