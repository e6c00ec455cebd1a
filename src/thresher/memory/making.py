"""Which session made the commit that is asked for.

A question is often the subject of a commit, and people commit by hand: then no session holds those words. But git
prints them. A line of `git commit` names the session that made it. A line of a log tells that the commit was there:
what began later did not make it, and of the sessions that changed files of that repository before, the last ones most
likely did. The session that printed the log may have, too, but mostly it only looked.

Where a question is no subject of a commit that git spoke of, nothing of this is at work. The numbers were chosen on
recorded sessions and the commits that they made; `BEFORE` and `EDITS` were judged like those of `ranking`.
"""

from collections.abc import Collection, Iterator, Mapping
from datetime import UTC, datetime
from typing import NamedTuple

from msgspec import structs

from thresher.memory.base import Question, Store
from thresher.memory.commits import subject
from thresher.memory.ranking import demands
from thresher.memory.values import Facts

MADE = 1.5
"""What the session gains that made the commit, beside a best message of 1 and a title: it goes first."""
BEFORE = 0.6
"""What the last session gains before the commit was seen."""
FADES = 0.7
"""The share of it that each session further back gains."""
SHOWED = 0.3
"""The share of it that the session gains which showed the commit first."""
AFTER = 0.5
"""The share of its worth that a session keeps which began after the commit was seen."""
EDITS = 2
"""Messages with edits that a session must have to count as one that may have made a commit."""
_WORKTREES = ("worktrees", ".worktrees")
_SHARED = {".codex": -1, ".cursor": 0}
"""Agents that keep worktrees of all repositories together, and where below them a path has the repository's name."""


class Weighed(NamedTuple):
    """What sessions are worth, which of them made the commit, and a word on it."""

    worth: dict[int, float]
    makers: frozenset[int] = frozenset()
    notes: tuple[str, ...] = ()


def weighed(worth: Mapping[int, float], asked: Question, store: Store) -> Weighed:
    """What the sessions that match are worth, where the question is a commit's subject."""
    query = structs.replace(asked.query, phrases=(), prefixes=())  # git itself writes quotes: `Revert "…"`
    if not subject(query.whole) or demands(query) or query.rank != "best":
        return Weighed(dict(worth))
    every = asked.made(barred=False)
    if every:
        makers = frozenset(asked.made()) | _families(every, worth, store)
        gained = {key: worth.get(key, 0.0) + MADE for key in makers}
        ids = ", ".join(one.id for one in store.facts(makers))
        return Weighed({**worth, **gained}, makers, (f"a commit of this name was made in {ids}",) if ids else ())
    shown = asked.logged()
    by = next(iter(store.facts([min(shown, key=shown.__getitem__)])), None) if shown else None
    return Weighed(dict(worth)) if by is None else _dated(worth, by, shown[by.key], asked, store)


def _families(makers: Collection[int], worth: Mapping[int, float], store: Store) -> frozenset[int]:
    """The sessions that match whose sub-agents, or other kin that may not answer, made it."""
    roots = {(one.agent, one.root) for one in store.facts(set(makers) - worth.keys())}
    return frozenset(one.key for one in store.facts(worth) if (one.agent, one.root) in roots) if roots else frozenset()


def _dated(worth: Mapping[int, float], by: Facts, time: int, asked: Question, store: Store) -> Weighed:
    """What they are worth, since the commit was there when a session printed it."""
    found, home = dict(worth), repository(by.project)
    seen = datetime.fromtimestamp(time + 1, UTC)  # the index has no parts of a second
    near = [one for one in store.facts(found) if one.started and repository(one.project) == home]
    for key, gain in _gains(near, by, seen, asked.edits()):
        found[key] += gain
    found |= {one.key: found[one.key] * AFTER for one in near if one.started and one.started >= seen}
    told = f"a commit of this name was seen first on {seen:%Y-%m-%d} in {by.id}"
    return Weighed(found, notes=(f"{told}; what was at work there before goes first",) if near else ())


def _gains(near: list[Facts], by: Facts, seen: datetime, edits: Mapping[int, int]) -> Iterator[tuple[int, float]]:
    earlier = [one for one in near if one.key != by.key and one.started and one.started < seen]
    # Some agents write files by commands alone: there it cannot be told who changed any.
    changed = [one for one in earlier if edits.get(one.key, 0) >= EDITS] or earlier
    changed.sort(key=lambda one: (min(one.ended or seen, seen), one.key), reverse=True)
    yield from ((one.key, BEFORE * FADES**place) for place, one in enumerate(changed))
    if any(one.key == by.key for one in near):
        yield by.key, BEFORE * SHOWED


def repository(project: str) -> str:
    """The name of the folder that a repository lies in, as far as a path tells; all its worktrees have the same."""
    names = [name for name in project.replace("\\", "/").split("/") if name]
    trees = next((place for place, name in enumerate(names) if place and name in _WORKTREES), len(names))
    behind = names[trees + 1 :]
    if behind and names[trees - 1] in _SHARED:
        return behind[_SHARED[names[trees - 1]]]
    if behind and names[trees - 1].startswith(".") and trees > 1:  # the agent's folder in the repository
        trees -= 1
    return names[trees - 1] if names else ""
