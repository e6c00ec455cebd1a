"""Identify the session that made a commit, for queries that are a commit subject.

Users often search for a commit subject, and they often commit by hand, so no session contains those words. But git
prints them. A line of `git commit` output identifies the session that made the commit. A line of `git log` output
proves that the commit already existed, so a session that began later did not make it. Among the earlier sessions that
changed files of that repository, the latest ones are the most likely. The session that printed the log is a candidate
too, but usually it only read the log.

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
"""Folders of agents that keep the worktrees of all repositories together, each with the position of the repository name
in the path below `worktrees`."""


class AdjustedScores(NamedTuple):
    """Session scores, the sessions that made the commit, and notes for the user."""

    scores: dict[int, float]
    makers: frozenset[int] = frozenset()
    notes: tuple[str, ...] = ()


def adjust_for_commits(scores: Mapping[int, float], compiled: CompiledQuery, store: SessionStore) -> AdjustedScores:
    """Adjust the scores of matching sessions if the query is a commit subject."""
    # Quotes in a commit subject, as in `Revert "…"`, do not mark a phrase.
    query = structs.replace(compiled.query, phrases=(), prefixes=())
    if not normalize_subject(query.full_text) or has_message_conditions(query) or query.rank != "best":
        return AdjustedScores(dict(scores))
    all_makers = compiled.commits_made(barred=False)
    if all_makers:
        makers = frozenset(compiled.commits_made()) | _find_kin_of_makers(all_makers, scores, store)
        gained = {key: scores.get(key, 0.0) + compiled.weights.commit_maker for key in makers}
        ids = ", ".join(session.id for session in store.find_sessions(makers))
        return AdjustedScores({**scores, **gained}, makers, (f"{ids} made a commit with this subject",) if ids else ())
    first_listed = compiled.commits_seen()
    printers = store.find_sessions(sorted(first_listed, key=first_listed.__getitem__)[:1])
    if not printers:
        return AdjustedScores(dict(scores))
    return _adjust_by_date(scores, printers[0], first_listed[printers[0].key], compiled, store)


def _find_kin_of_makers(makers: Collection[int], scores: Mapping[int, float], store: SessionStore) -> frozenset[int]:
    """Return matching sessions whose sub-agents or other excluded relatives made the commit."""
    roots = {(session.agent, session.root) for session in store.find_sessions(set(makers) - scores.keys())}
    matching = store.find_sessions(scores) if roots else ()
    return frozenset(session.key for session in matching if (session.agent, session.root) in roots)


def _adjust_by_date(
    scores: Mapping[int, float], printer: ArchivedSession, time: int, compiled: CompiledQuery, store: SessionStore
) -> AdjustedScores:
    """Adjust the scores by the `time` at which the session `printer` first listed the commit."""
    adjusted, repository = dict(scores), find_repository_name(printer.project)
    listed_at = datetime.fromtimestamp(time + 1, UTC)  # the index stores whole seconds
    started = [one for one in store.find_sessions(adjusted) if one.started]
    nearby = [one for one in started if find_repository_name(one.project) == repository]
    for key, gain in _date_bonuses(nearby, printer, listed_at, compiled):
        adjusted[key] += gain
    later_keys = [one.key for one in nearby if one.started and one.started >= listed_at]
    adjusted |= {key: adjusted[key] * compiled.weights.later_session for key in later_keys}
    note = f"a commit with this subject was first listed on {listed_at:%Y-%m-%d} in {printer.id}"
    notes = (f"{note}; earlier sessions of that repository rank first",) if nearby else ()
    return AdjustedScores(adjusted, notes=notes)


def _date_bonuses(
    nearby: list[ArchivedSession], printer: ArchivedSession, listed_at: datetime, compiled: CompiledQuery
) -> Iterator[tuple[int, float]]:
    weights, edits = compiled.weights, compiled.edit_counts()
    earlier = [one for one in nearby if one.key != printer.key and one.started and one.started < listed_at]
    # Some agents write files by shell commands only, so their sessions have no edits to count.
    candidates = [one for one in earlier if edits.get(one.key, 0) >= weights.min_edits] or earlier
    candidates.sort(key=lambda one: (min(one.ended or listed_at, listed_at), one.key), reverse=True)
    yield from ((one.key, weights.earlier_session * weights.earlier_decay**rank) for rank, one in enumerate(candidates))
    if any(one.key == printer.key for one in nearby):
        yield printer.key, weights.earlier_session * weights.log_printer


def find_repository_name(project: str) -> str:
    """Return the folder name of a repository; all its worktrees have the same name."""
    names = [name for name in project.replace("\\", "/").split("/") if name]
    root_end = next((index for index, name in enumerate(names) if index and name in _WORKTREES), len(names))
    names_below = names[root_end + 1 :]
    if names_below and names[root_end - 1] in _SHARED:
        return names_below[_SHARED[names[root_end - 1]]]
    if names_below and names[root_end - 1].startswith(".") and root_end > 1:  # the agent's folder in the repository
        root_end -= 1
    return names[root_end - 1] if names else ""
