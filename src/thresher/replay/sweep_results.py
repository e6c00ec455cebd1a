"""Work units of a sweep and their results."""

from typing import Literal

from msgspec import Struct, field

from thresher.replay.cost import Rates
from thresher.replay.scores import StrategySetting
from thresher.replay.simulate import ReplayTotals
from thresher.replay.strategies.upper_bound import MinimumCost


class ReplayFailure(Struct, frozen=True):
    """A file or session that failed to replay."""

    file: str
    strategy: str
    """Strategy that failed; empty if the file is unreadable."""
    error: str
    kind: Literal["read", "format", "strategy"] = "strategy"
    """`read`: the file is unreadable. `format`: no known format matches. `strategy`: the replay raised an error."""
    session: str = ""
    """Id of the session on which the strategy failed."""


class ReplayedSession(Struct, frozen=True):
    """A session, with the number of its recordings (segments and sub-agents) that are long enough."""

    file: str
    id: str
    agent: str
    project: str
    recordings: int = 0
    calls: int = 0


class SessionResult(Struct, frozen=True):
    """Totals of one strategy on one session, by budget."""

    facts: ReplayedSession
    totals_by_budget: dict[str, ReplayTotals]
    minimum_costs: list[MinimumCost] = []


class SweepUnit(Struct, frozen=True):
    """One piece of work: a file and a strategy at some budgets."""

    file: str
    strategy: str
    budgets: tuple[int | None, ...]
    min_calls: int
    rates: Rates

    @property
    def name(self) -> str:
        """A key that is unique within a sweep."""
        return f"{self.file}\n{self.strategy}\n{self.min_calls}\n{','.join(map(str, self.budgets))}"


class UnitResult(Struct, frozen=True):
    """The results of one unit."""

    name: str
    file: str
    strategy: str
    sessions: dict[str, SessionResult] = {}
    failures: list[ReplayFailure] = []
    children: list[str] = []
    """Files of sub-agents, which count with their parents."""
    short: int = 0
    """Number of recordings with too few calls."""


class SweepResults(Struct, frozen=True, kw_only=True):
    """All results of a sweep, by session, so that a report can group them in any way."""

    sessions: dict[str, ReplayedSession] = field(default_factory=dict)
    totals_by_setting: dict[StrategySetting, dict[str, ReplayTotals]] = field(default_factory=dict)
    minimum_costs: dict[str, list[MinimumCost]] = field(default_factory=dict)
    failures: list[ReplayFailure] = field(default_factory=list)
    files: int = 0
    short: int = 0
    """Number of recordings with too few calls."""
