"""Which session made the commit that is asked for.

A question is often the subject of a commit, and people commit by hand: then no session holds those words. But git
prints them. A line of `git commit` names the session that made it. A line of a log tells that the commit was there:
what began later did not make it, and of the sessions that changed files of that repository before, the last ones most
likely did. The session that printed the log may have, too, but mostly it only looked.

Where a question is no subject of a commit that git spoke of, nothing of this is at work. The numbers were chosen like
those of `ranking`.
"""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import NamedTuple

from thresher.memory.base import Question, Store
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


class Weighed(NamedTuple):
    """What sessions are worth, and a word on why."""

    worth: dict[int, float]
    notes: tuple[str, ...] = ()


def weighed(worth: Mapping[int, float], asked: Question, store: Store) -> Weighed:
    """What the sessions that match are worth, where the question is a commit's subject."""
    found = dict(worth)
    if demands(asked.query) or asked.query.rank != "best":
        return Weighed(found)
    makers = asked.made()
    found |= {key: found.get(key, 0.0) + MADE for key in makers}
    shown = {} if makers else asked.logged()
    first = min(shown, key=shown.__getitem__, default=0)
    by = next(iter(store.facts([first])), None) if first else None
    if by is None:
        return Weighed(found)
    seen, home = datetime.fromtimestamp(shown[first], UTC), repository(by.project)
    near = [one for one in store.facts(found) if one.started and repository(one.project) == home]
    for key, gain in _gains(near, by, seen, asked.edits()):
        found[key] += gain
    found |= {one.key: found[one.key] * AFTER for one in near if one.started and one.started >= seen}
    told = f"a commit of this name was seen first on {seen:%Y-%m-%d} in {by.id}"
    return Weighed(found, (f"{told}; what was at work there before goes first",))


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
    return names[trees - 1] if names else ""
