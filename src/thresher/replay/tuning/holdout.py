"""Sessions in two halves: on one settings are chosen, on the other they are measured.

All sessions of a project lie on one side, for they are alike, and what is chosen on some of them would look good on the
others. Where there is one project only, its sessions are dealt out. A digest says in which order, and each goes to the
side that has fewer calls: so the same sessions are split in the same way every time, about evenly.
"""

from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Literal

from msgspec import Struct

from thresher.replay.sweep_results import ReplayedSession


class HoldoutHalf(Struct, frozen=True):
    """One side of the split."""

    sessions: tuple[str, ...]
    projects: int
    calls: int


class HoldoutSplit(Struct, frozen=True):
    """Where settings are chosen, and where they are measured."""

    by: Literal["project", "session"]
    """All sessions of a project are on one side; where there is one project only, it had to be cut."""
    tune: HoldoutHalf
    report: HoldoutHalf


def split_sessions(sessions: Mapping[str, ReplayedSession]) -> HoldoutSplit:
    """The sessions in two halves; both have some where there are two."""
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
    """Where it is not recorded, the folder stands for it."""
    return facts.project or str(Path(facts.file).parent)
