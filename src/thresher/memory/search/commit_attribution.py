"""Which session made the commit that is asked for.

A question is often the subject of a commit, and people commit by hand: then no session holds those words. But git
prints them. A line of `git commit` names the session that made it. A line of a log tells that the commit was there:
what began later did not make it, and of the sessions that changed files of that repository before, the last ones most
likely did. The session that printed the log may have, too, but mostly it only looked.

Where a question is no subject of a commit that git spoke of, nothing of this is at work.
"""

from collections.abc import Collection, Iterator, Mapping
from datetime import UTC, datetime
from typing import NamedTuple

from msgspec import structs

from thresher.memory.ingest.git_commits import normalize_subject
from thresher.memory.records import ArchivedSession
from thresher.memory.search.query_compiler import CompiledQuery
from thresher.memory.search.rank import has_message_conditions
from thresher.memory.session_store import SessionStore

_WORKTREES = ("worktrees", ".worktrees")
_SHARED = {".codex": -1, ".cursor": 0}
"""Agents that keep worktrees of all repositories together, and where below them a path has the repository's name."""


class AdjustedScores(NamedTuple):
    """What sessions are worth, which of them made the commit, and a word on it."""

    scores: dict[int, float]
    makers: frozenset[int] = frozenset()
    notes: tuple[str, ...] = ()


def adjust_for_commits(worth: Mapping[int, float], asked: CompiledQuery, store: SessionStore) -> AdjustedScores:
    """What the sessions that match are worth, where the question is a commit's subject."""
    query = structs.replace(asked.query, phrases=(), prefixes=())  # git itself writes quotes: `Revert "…"`
    if not normalize_subject(query.full_text) or has_message_conditions(query) or query.rank != "best":
        return AdjustedScores(dict(worth))
    every = asked.commits_made(barred=False)
    if every:
        makers = frozenset(asked.commits_made()) | _find_kin_of_makers(every, worth, store)
        gained = {key: worth.get(key, 0.0) + asked.weights.commit_maker for key in makers}
        ids = ", ".join(one.id for one in store.find_sessions(makers))
        return AdjustedScores({**worth, **gained}, makers, (f"a commit of this name was made in {ids}",) if ids else ())
    shown = asked.commits_seen()
    by = next(iter(store.find_sessions([min(shown, key=shown.__getitem__)])), None) if shown else None
    return AdjustedScores(dict(worth)) if by is None else _adjust_by_date(worth, by, shown[by.key], asked, store)


def _find_kin_of_makers(makers: Collection[int], worth: Mapping[int, float], store: SessionStore) -> frozenset[int]:
    """The sessions that match whose sub-agents, or other kin that may not answer, made it."""
    roots = {(one.agent, one.root) for one in store.find_sessions(set(makers) - worth.keys())}
    return (
        frozenset(one.key for one in store.find_sessions(worth) if (one.agent, one.root) in roots)
        if roots
        else frozenset()
    )


def _adjust_by_date(
    worth: Mapping[int, float], by: ArchivedSession, time: int, asked: CompiledQuery, store: SessionStore
) -> AdjustedScores:
    """What they are worth, since the commit was there when a session printed it."""
    found, home = dict(worth), find_repository_name(by.project)
    seen = datetime.fromtimestamp(time + 1, UTC)  # the index has no parts of a second
    near = [one for one in store.find_sessions(found) if one.started and find_repository_name(one.project) == home]
    for key, gain in _date_bonuses(near, by, seen, asked):
        found[key] += gain
    later = [one.key for one in near if one.started and one.started >= seen]
    found |= {key: found[key] * asked.weights.later_session for key in later}
    told = f"a commit of this name was seen first on {seen:%Y-%m-%d} in {by.id}"
    return AdjustedScores(found, notes=(f"{told}; what was at work there before goes first",) if near else ())


def _date_bonuses(
    near: list[ArchivedSession], by: ArchivedSession, seen: datetime, asked: CompiledQuery
) -> Iterator[tuple[int, float]]:
    weights, edits = asked.weights, asked.edit_counts()
    earlier = [one for one in near if one.key != by.key and one.started and one.started < seen]
    # Some agents write files by commands alone: there it cannot be told who changed any.
    changed = [one for one in earlier if edits.get(one.key, 0) >= weights.min_edits] or earlier
    changed.sort(key=lambda one: (min(one.ended or seen, seen), one.key), reverse=True)
    yield from ((one.key, weights.earlier_session * weights.earlier_decay**place) for place, one in enumerate(changed))
    if any(one.key == by.key for one in near):
        yield by.key, weights.earlier_session * weights.log_printer


def find_repository_name(project: str) -> str:
    """The name of the folder that a repository lies in, as far as a path tells; all its worktrees have the same."""
    names = [name for name in project.replace("\\", "/").split("/") if name]
    trees = next((place for place, name in enumerate(names) if place and name in _WORKTREES), len(names))
    behind = names[trees + 1 :]
    if behind and names[trees - 1] in _SHARED:
        return behind[_SHARED[names[trees - 1]]]
    if behind and names[trees - 1].startswith(".") and trees > 1:  # the agent's folder in the repository
        trees -= 1
    return names[trees - 1] if names else ""
