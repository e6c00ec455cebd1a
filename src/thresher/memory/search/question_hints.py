"""Hints in a question: words for a time or a project raise the scores of the sessions that they fit.

A hint never excludes a session, because people misremember times and a project's name may be an ordinary word.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from thresher.memory.records import ArchivedSession
from thresher.memory.search.commit_attribution import find_repository_name
from thresher.memory.search.time_words import Period, find_periods

NEAR_SHARE = 0.5
"""Weight of a session shortly before or after the period that a question mentions."""
MAX_NEAR = timedelta(days=14)
UNMARKED_SHARE = 0.35
"""Weight of a project whose name occurs without a word such as "repo" or "in", so that it may be an ordinary word."""
MIN_NAME_LENGTH = 3
LONGEST_NAME = 4
"""Maximum number of words of a project's name."""
_MARKS_BEFORE = frozenset(["in", "on", "for", "from", "of", "within", "inside"])
_MARKS_AFTER = frozenset(["repo", "repository", "project", "codebase", "monorepo", "app"])
_WORD = re.compile(r"[^\W_]+")


class QuestionHints(NamedTuple):
    """Periods and projects that a question mentions."""

    periods: tuple[Period, ...]
    projects: Mapping[str, float]
    """Compact names of the projects, with their weights."""

    def score(self, session: ArchivedSession) -> tuple[float, float]:
        """Return how well a session fits the times and the projects, each from 0 to 1."""
        project = self.projects.get(_compact(find_repository_name(session.project)), 0.0) if self.projects else 0.0
        return max((_fit_period(session, period) for period in self.periods), default=0.0), project


def find_hints(question: str, now: datetime, sessions: Iterable[ArchivedSession]) -> QuestionHints:
    """Return the times in a question, and the projects of the sessions that it names."""
    names = {find_repository_name(session.project) for session in sessions}
    words = [word.lower() for word in _WORD.findall(question)]
    weights = {compact: _weigh_name(compact, words) for name in names if (compact := _compact(name))}
    return QuestionHints(
        tuple(find_periods(question, now)), {name: weight for name, weight in weights.items() if weight}
    )


def hint_notes(hints: QuestionHints, shifted: Collection[ArchivedSession]) -> list[str]:
    """Return a note for each hint that raised the score of a session."""
    notes = []
    for period in hints.periods:
        if any(_fit_period(session, period) for session in shifted):
            last = period.end - timedelta(seconds=1)
            dates = f"{period.start:%Y-%m-%d}" + (f" to {last:%Y-%m-%d}" if last.date() != period.start.date() else "")
            notes.append(f"sessions of {dates} rank higher, because of `{' '.join(period.words.split())}`")
    names = sorted({find_repository_name(session.project) for session in shifted})
    notes += [
        f"sessions of the project {name} rank higher, because the question names it"
        for name in names
        if _compact(name) in hints.projects
    ]
    return notes


def _compact(name: str) -> str:
    return "".join(_WORD.findall(name.lower()))


def _weigh_name(name: str, words: Sequence[str]) -> float:
    """Return 1 if the words name a project explicitly, less if they only contain its name, and 0 otherwise."""
    best = 0.0
    for start in range(len(words) if len(name) >= MIN_NAME_LENGTH else 0):
        for stop in range(start + 1, min(start + LONGEST_NAME, len(words)) + 1):
            if "".join(words[start:stop]) == name:
                before = [word for word in words[max(0, start - 2) : start] if word != "the"][-1:]
                is_marked = not _MARKS_BEFORE.isdisjoint(before) or not _MARKS_AFTER.isdisjoint(words[stop : stop + 1])
                best = max(best, 1.0 if is_marked else UNMARKED_SHARE)
    return best


def _fit_period(session: ArchivedSession, period: Period) -> float:
    start, end = session.started or session.ended, session.ended or session.started
    if start is None or end is None:
        return 0.0
    near = min(MAX_NEAR, (period.end - period.start) / 2)
    if start < period.end and end >= period.start:
        return 1.0
    return NEAR_SHARE if start < period.end + near and end >= period.start - near else 0.0
