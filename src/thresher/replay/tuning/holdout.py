"""Split sessions into two halves: one to choose settings, one to measure them.

All sessions of a project are in the same half, because they are similar and a setting chosen on some of them would look
good on the rest. If there is only one project, its sessions are split. A digest determines the order, and each group
goes to the half with fewer calls. The split is therefore deterministic and about even.
"""

from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Literal

from msgspec import Struct

from thresher.replay.sweep_results import ReplayedSession


class HoldoutHalf(Struct, frozen=True):
    """One half of the split."""

    sessions: tuple[str, ...]
    projects: int
    calls: int


class HoldoutSplit(Struct, frozen=True):
    """The half that chooses settings, and the half that measures them."""

    by: Literal["project", "session"]
    """Unit of the split. `session`: there is only one project, so its sessions are split."""
    tune: HoldoutHalf
    report: HoldoutHalf


def split_sessions(sessions: Mapping[str, ReplayedSession]) -> HoldoutSplit:
    """Split the sessions into two halves. With two sessions or more, neither half is empty."""
    projects: dict[str, list[str]] = {}
    for key, facts in sorted(sessions.items()):
        projects.setdefault(_project(facts), []).append(key)
    several = len(projects) > 1
    families = list(projects.items()) if several else [(facts.id, [key]) for key, facts in sorted(sessions.items())]
    sides: tuple[list[str], list[str]] = ([], [])
    calls = [0, 0]
    for _, keys in sorted(families, key=lambda family: sha256(family[0].encode("utf-8", "replace")).digest()):
        side = calls.index(min(calls))
        sides[side].extend(keys)
        calls[side] += sum(sessions[key].calls for key in keys)
    tune, report = (
        HoldoutHalf(tuple(sorted(side)), len({_project(sessions[key]) for key in side}), count)
        for side, count in zip(sides, calls, strict=True)
    )
    return HoldoutSplit("project" if several else "session", tune, report)


def _project(facts: ReplayedSession) -> str:
    """Return the project of a session, or the folder of its file if no project is recorded."""
    return facts.project or str(Path(facts.file).parent)
