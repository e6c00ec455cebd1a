"""Units of a sweep, and their results."""

from typing import Literal

from msgspec import Struct, field

from thresher.replay.cost import Rates
from thresher.replay.scores import StrategySetting
from thresher.replay.simulate import ReplayTotals
from thresher.replay.strategies.upper_bound import MinimumCost


class ReplayFailure(Struct, frozen=True):
    """What could not be done."""

    file: str
    way: str
    """Empty where the file could not be read."""
    error: str
    kind: Literal["read", "format", "way"] = "way"
    """A file in no known format may be anything that lies in a folder."""


class ReplayedSession(Struct, frozen=True):
    """A session: all its segments and sub-agents that are long enough."""

    file: str
    id: str
    agent: str
    project: str
    recordings: int = 0
    calls: int = 0


class SessionResult(Struct, frozen=True):
    """What one way did with one session, by budget."""

    facts: ReplayedSession
    tallies: dict[str, ReplayTotals]
    floors: list[MinimumCost] = []


class SweepUnit(Struct, frozen=True):
    """One piece of work: a file, and a way at its budgets."""

    file: str
    strategy: str
    budgets: tuple[int | None, ...]
    min_calls: int
    rates: Rates

    @property
    def name(self) -> str:
        """What tells it apart from all others of a sweep."""
        return f"{self.file}\n{self.strategy}\n{self.min_calls}\n{','.join(map(str, self.budgets))}"


class UnitResult(Struct, frozen=True):
    """A unit, done."""

    name: str
    file: str
    way: str
    sessions: dict[str, SessionResult] = {}
    failures: list[ReplayFailure] = []
    children: list[str] = []
    """Files of sub-agents that are told with their parents."""
    short: int = 0
    """Recordings with too few calls."""


class SweepResults(Struct, frozen=True, kw_only=True):
    """What a sweep found, session by session, so that it can be told in any grouping."""

    sessions: dict[str, ReplayedSession] = field(default_factory=dict)
    tallies: dict[StrategySetting, dict[str, ReplayTotals]] = field(default_factory=dict)
    floors: dict[str, list[MinimumCost]] = field(default_factory=dict)
    failures: list[ReplayFailure] = field(default_factory=list)
    files: int = 0
    short: int = 0
    """Recordings with too few calls."""
