"""Identify the session that made a commit, for queries that are a commit subject.

Users often search for a commit subject, and they often commit by hand, so no session contains those words. But git
prints them. A line of `git commit` output identifies the session that made the commit. A line of `git log` output
proves that the commit existed: a session that began later did not make it, and among sessions that changed files of
that repository before, the latest ones are the most likely. The session that printed the log is a candidate too, but
usually it only read the log.

A query that matches no commit subject is not affected.
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
"""Agents with one folder for the worktrees of all repositories, and the position of the repository name in the path
below it."""


class AdjustedScores(NamedTuple):
    """Session scores, the sessions that made the commit, and notes for the user."""

    scores: dict[int, float]
    makers: frozenset[int] = frozenset()
    notes: tuple[str, ...] = ()


def adjust_for_commits(worth: Mapping[int, float], asked: CompiledQuery, store: SessionStore) -> AdjustedScores:
    """Adjust the scores of matching sessions if the query is a commit subject."""
    query = structs.replace(asked.query, phrases=(), prefixes=())  # git itself adds quotes: `Revert "…"`
    if not normalize_subject(query.full_text) or has_message_conditions(query) or query.rank != "best":
        return AdjustedScores(dict(worth))
    every = asked.commits_made(barred=False)
    if every:
        makers = frozenset(asked.commits_made()) | _find_kin_of_makers(every, worth, store)
        gained = {key: worth.get(key, 0.0) + asked.weights.commit_maker for key in makers}
        ids = ", ".join(one.id for one in store.find_sessions(makers))
        return AdjustedScores({**worth, **gained}, makers, (f"{ids} made a commit with this subject",) if ids else ())
    shown = asked.commits_seen()
    by = next(iter(store.find_sessions([min(shown, key=shown.__getitem__)])), None) if shown else None
    return AdjustedScores(dict(worth)) if by is None else _adjust_by_date(worth, by, shown[by.key], asked, store)


def _find_kin_of_makers(makers: Collection[int], worth: Mapping[int, float], store: SessionStore) -> frozenset[int]:
    """Return matching sessions whose sub-agents or other excluded relatives made the commit."""
    roots = {(one.agent, one.root) for one in store.find_sessions(set(makers) - worth.keys())}
    return (
        frozenset(one.key for one in store.find_sessions(worth) if (one.agent, one.root) in roots)
        if roots
        else frozenset()
    )


def _adjust_by_date(
    worth: Mapping[int, float], by: ArchivedSession, time: int, asked: CompiledQuery, store: SessionStore
) -> AdjustedScores:
    """Adjust the scores by the time at which session `by` listed the commit."""
    found, home = dict(worth), find_repository_name(by.project)
    seen = datetime.fromtimestamp(time + 1, UTC)  # the index stores whole seconds
    near = [one for one in store.find_sessions(found) if one.started and find_repository_name(one.project) == home]
    for key, gain in _date_bonuses(near, by, seen, asked):
        found[key] += gain
    later = [one.key for one in near if one.started and one.started >= seen]
    found |= {key: found[key] * asked.weights.later_session for key in later}
    told = f"a commit with this subject was first listed on {seen:%Y-%m-%d} in {by.id}"
    return AdjustedScores(found, notes=(f"{told}; earlier sessions of that repository rank first",) if near else ())


def _date_bonuses(
    near: list[ArchivedSession], by: ArchivedSession, seen: datetime, asked: CompiledQuery
) -> Iterator[tuple[int, float]]:
    weights, edits = asked.weights, asked.edit_counts()
    earlier = [one for one in near if one.key != by.key and one.started and one.started < seen]
    # Some agents write files by shell commands only, so their sessions have no edits to count.
    changed = [one for one in earlier if edits.get(one.key, 0) >= weights.min_edits] or earlier
    changed.sort(key=lambda one: (min(one.ended or seen, seen), one.key), reverse=True)
    yield from ((one.key, weights.earlier_session * weights.earlier_decay**place) for place, one in enumerate(changed))
    if any(one.key == by.key for one in near):
        yield by.key, weights.earlier_session * weights.log_printer


def find_repository_name(project: str) -> str:
    """Return the folder name of a repository; all its worktrees have the same name."""
    names = [name for name in project.replace("\\", "/").split("/") if name]
    trees = next((place for place, name in enumerate(names) if place and name in _WORKTREES), len(names))
    behind = names[trees + 1 :]
    if behind and names[trees - 1] in _SHARED:
        return behind[_SHARED[names[trees - 1]]]
    if behind and names[trees - 1].startswith(".") and trees > 1:  # the agent's folder in the repository
        trees -= 1
    return names[trees - 1] if names else ""
