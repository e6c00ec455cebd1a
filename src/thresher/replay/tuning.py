"""The settings of `auto` that do best on some sessions, and whether they do on others, too.

The sessions are split in two. On one half settings are chosen by coordinate descent from the defaults: each setting in
turn is given all its values, the best one stays, until none helps or the trials are spent. Best is what costs least,
fetching included, of all that serves enough; where nothing does, what serves most. A gain that is too small to mean
anything is none.

What was chosen is then measured beside the defaults on the other half, which had no part in the choice. How much chance
is in the difference is told by drawing those sessions anew, as `scores` does. Draws of a handful of sessions all look
alike and would call anything certain: below a few sessions nothing is recommended. Nor is what saves by serving less.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from textwrap import wrap
from typing import Any, Literal

from msgspec import Struct

from thresher.budget import settings
from thresher.errors import OptionError, ReadError
from thresher.replay.bill import Rates
from thresher.replay.run import Tally
from thresher.replay.scores import DRAWS, FULL, SEED, SERVED, middle
from thresher.replay.split import Split, split_of
from thresher.replay.sweep import CALLS, Failure, Progress, Saved, Unit, Workers, key_of, sized_files
from thresher.replay.trials import BUDGET, Bench, Choice, Log, Trial, changed, first_choice, is_sound
from thresher.window import Pace

SPACE: dict[str, tuple[float, ...]] = {
    "age": (8, 14, 22, 32, 45, 70),
    "patience": (0.15, 0.3, 0.6, 1.2, 2.5, 5.0),
    "low": (0.3, 0.4, 0.5, 0.6, 0.7),
    "high": (0.7, 0.8, 0.9, 0.95),
    "boundary": (0.1, 0.25, 0.5, 1.0),
    "worth": (500, 1_000, 2_000, 4_000),
    "calls": (10, 20, 40, 80),
}
"""What is tried, by the names of a window's pace; those that matter most come first."""
BUDGETS = (40_000, 60_000, 90_000, 140_000, 200_000)
TRIALS = 60
GAIN = 0.005
"""The share by which a change must cost less; or miss less, where nothing serves enough."""
SESSIONS = 8
"""The fewest on the report half from which a difference is told from chance."""
SLACK = 0.01
"""How much less than the defaults may be served where the target is missed: at the lower end, not in the middle."""
WIDTH = 79

Verdict = Literal["same", "few", "chance", "unserved", "better"]
"""Nothing beats the defaults; too few sessions to tell; no gain beyond chance; one that serves too little; better."""


class Difference(Struct, frozen=True):
    """How much more it is than before, and where that lies in 95 of 100 draws; no ends: too few sessions."""

    value: float
    low: float | None = None
    high: float | None = None


class Tuned(Struct, frozen=True, kw_only=True):
    """What was chosen, and what it is worth."""

    target: float
    """The share of calls that shall be served."""
    split: Split
    defaults: Trial
    chosen: Trial
    """Both on the side where it was chosen."""
    before: Trial
    after: Trial
    """The same on the other side."""
    cost: Difference
    """Of what it costs there, fetching included; the full history is 1."""
    served: Difference
    trials: int
    reused: int
    """Of these, the ones that were in the log."""
    log: str
    failures: list[Failure]

    @property
    def is_changed(self) -> bool:
        """Whether anything did better than the defaults where it was chosen."""
        return self.chosen.settings != self.defaults.settings

    @property
    def verdict(self) -> Verdict:
        """What is to be said of it where it was not chosen."""
        if not self.is_changed:
            return "same"
        if self.after.sessions < SESSIONS or self.cost.high is None or self.served.low is None:
            return "few"
        serves_more = self.before.served < self.target and self.served.low > 0
        if self.cost.high >= 0 and not serves_more:
            return "chance"
        return "better" if self.after.served >= self.target or self.served.low >= -SLACK else "unserved"

    @property
    def is_better(self) -> bool:
        """Whether it also does better where it was not chosen, by more than chance, and serves enough."""
        return self.verdict == "better"


def tune(  # noqa: PLR0913 - a search has many keys
    files: Iterable[Path],
    rates: Rates,
    *,
    folder: Path,
    budget: int | None = None,
    served: float = SERVED,
    trials: int = TRIALS,
    jobs: int = 1,
    log: Path | None = None,
    progress: Progress | None = None,
) -> Tuned:
    """Choose settings on half of the sessions, and measure them on the others; a budget that is given stays.

    The log lies in the folder unless it is named, and so does what was begun.
    """
    sized = sized_files(files)
    key = key_of(sized, (), rates, replace(settings(), pace={}, budget=None))  # these are what is looked for
    book = Log(log or folder / f"{key}.jsonl", key)
    saved = Saved(folder / "begun", key)
    units = len(sized)

    def tell(done: int) -> None:
        if progress is not None:
            progress(done, max(done, units))

    with Workers(min(jobs, units), saved, tell) as workers:
        first = workers.do([Unit(str(path), FULL, (None,), CALLS, rates) for path in sized])
        bench = Bench(first, workers, rates, book)
        _check_enough(bench)
        split = split_of(bench.facts)
        units += trials * bench.files(split.tune) + 2 * bench.files(split.report)
        start = first_choice(budget)
        space = SPACE if budget is not None else {BUDGET: BUDGETS, **SPACE}
        found = search(start, space, lambda row: bench.tried(row, split.tune), served=served, trials=trials)
        best = found.best.settings
        before, after = bench.both(start, best, split.report)
    saved.forget()
    cost, more = difference(before, after, bench.full)
    return Tuned(
        target=served,
        split=split,
        defaults=found.first,
        chosen=found.best,
        before=bench.told("report", start, before),
        after=bench.told("report", best, after),
        cost=cost,
        served=more,
        trials=found.count,
        reused=bench.reused,
        log=str(book.path),
        failures=bench.failures,
    )


def _check_enough(bench: Bench) -> None:
    """Refuse where nothing could be told."""
    if len(bench.facts) < 2:
        raise ReadError(
            f"it takes two sessions to choose settings on one and measure them on the other; there are "
            f"{len(bench.facts)} with {CALLS} model calls or more that used earlier text: name others, "
            "`thresher tune PATH…`"
        )


class Found(Struct, frozen=True):
    """What a search ended with."""

    first: Trial
    best: Trial
    count: int


def search(
    start: Choice,
    space: Mapping[str, Sequence[int | float]],
    tried: Callable[[Sequence[Choice]], Sequence[Trial]],
    *,
    served: float = SERVED,
    trials: int = TRIALS,
) -> Found:
    """The best settings that coordinate descent comes to; a setting's values are tried all at once."""
    [first] = tried([start])
    best, known = first, [start]
    improved = True
    while improved:
        improved = False
        for name, values in space.items():
            row: list[Choice] = [{**best.settings, name: value} for value in values]
            row = [one for one in row if one not in known and is_sound(one)][: trials - len(known)]
            known += row
            # Who could not take a session that the defaults took is not compared with those that could.
            fit = [one for one in tried(row) if one.sessions >= first.sessions] if row else []
            top = min(fit, key=lambda one: _rank(one, served), default=best)
            if _wins(top, best, served):
                best, improved = top, True
    return Found(first, best, len(known))


def _rank(trial: Trial, served: float) -> tuple[bool, float]:
    """Less is better."""
    enough = trial.served >= served
    return not enough, trial.cost_with_refetch if enough else 1 - trial.served


def _wins(new: Trial, old: Trial, served: float) -> bool:
    (misses, less), (missed, more) = _rank(new, served), _rank(old, served)
    return less < more * (1 - GAIN) if misses == missed else missed


def difference(
    before: Mapping[str, Tally], after: Mapping[str, Tally], full: Mapping[str, Tally]
) -> tuple[Difference, Difference]:
    """How much more the same sessions cost, fetching included, and how much more of their calls was served."""
    rows = [
        (new.cost + new.refetch - old.cost - old.refetch, full[key].cost, new.served - old.served, old.bearing)
        for key, old in before.items()
        for new in (after[key],)
    ]

    def read(drawn: Sequence[tuple[float, ...]]) -> tuple[float, float]:
        costs, whole, served, bearing = (sum(column) for column in zip(*drawn, strict=True))
        return costs / whole if whole else 0.0, served / bearing if bearing else 0.0

    paid, more = read(rows or [(0.0,) * 4])
    if len(rows) < 2:
        return Difference(paid), Difference(more)
    random = Random(SEED)
    drawn = [read(random.choices(rows, k=len(rows))) for _ in range(DRAWS)]
    paid_ends, more_ends = (middle(values) or (None, None) for values in zip(*drawn, strict=True))
    return Difference(paid, *paid_ends), Difference(more, *more_ends)


def toml_of(choice: Choice, notes: Iterable[str] = ()) -> str:
    """The settings as a `thresher.toml`: what differs from the defaults, and nothing else."""
    budget, pace = _told(choice)
    lines = (line for note in notes for line in wrap(note, WIDTH - 2, break_on_hyphens=False))
    head = [*(f"# {line}" for line in lines), *(() if budget is None else (f"{BUDGET} = {budget}",))]
    table = ["[pace]", *(f"{name} = {value}" for name, value in pace.items())] if pace else []
    return "\n\n".join("\n".join(part) for part in (head, table) if part) + "\n"


def has_settings(file: Path, choice: Choice) -> bool:
    """Whether a `thresher.toml` already says them, whatever else it says."""
    budget, pace = _told(choice)
    try:
        found = settings(environment={}, file=file)
        return (found.budget, Pace(**found.pace)) == (budget, Pace(**pace))
    except OptionError:
        return False


def _told(choice: Choice) -> tuple[int | float | None, dict[str, Any]]:
    """The budget and the pace, as far as they differ from the defaults."""
    pace = changed(choice)
    return pace.pop(BUDGET, None), pace
