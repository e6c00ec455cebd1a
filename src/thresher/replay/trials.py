"""Configurations of `auto` that are tried: what one is, what it came to, and the log of all of them.

Every trial is a line in the log, with the key of all that its figures depend on: whoever starts again takes what is
there, and what was begun goes on unit by unit, as in a sweep. The log comes to be with its first line: a run that tries
nothing leaves none.
"""

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct, structs

from thresher.budget.fitting import default_budget
from thresher.errors import OptionError, ThresherError
from thresher.replay.bill import Rates
from thresher.replay.references import DEFINITION
from thresher.replay.run import Tally
from thresher.replay.scores import score_of, total
from thresher.replay.split import Half
from thresher.replay.sweep import CALLS, Done, Unit, Workers, parents
from thresher.window import Pace

POLICY = "auto"
BUDGET = "budget"
Choice = dict[str, int | float | None]
"""A budget and a pace, whole: every setting by its name; None: it depends on the others."""
Side = Literal["tune", "report"]


def first_choice(budget: int | None = None) -> Choice:
    """The defaults."""
    return {BUDGET: default_budget("") if budget is None else budget, **structs.asdict(Pace())}


def way_name(choice: Choice) -> str:
    """The name by which any process can make the way."""
    pace = {name: value for name, value in changed(choice).items() if name != BUDGET}
    return POLICY + msgspec.json.encode(pace).decode()


def changed(choice: Choice) -> Choice:
    """What differs from the defaults."""
    default = first_choice()
    return {name: value for name, value in choice.items() if value != default[name]}


def is_sound(choice: Choice) -> bool:
    """Whether a window takes it."""
    try:
        Pace(**{name: value for name, value in choice.items() if name != BUDGET})  # type: ignore[arg-type]
    except OptionError:
        return False
    return True


class Trial(Struct, frozen=True, kw_only=True):
    """One configuration on one side: a line of the log."""

    key: str
    split: Side
    settings: Choice
    served: float
    tokens: float
    """With a call, on average."""
    cost: float
    cost_with_refetch: float
    """Both against the full history of the same sessions."""
    lost: float
    sessions: int
    definition: str = DEFINITION


class Log:
    """Every configuration that was tried, one a line; other lines in it are left alone."""

    def __init__(self, path: Path, key: str) -> None:
        """Read what is there; a log that cannot be written is refused before any work."""
        self.path, self.key = path, key
        self._known: list[Trial] = []
        try:
            told = path.read_bytes() if path.exists() else b""
            above = next(one for one in (path, *path.parents) if one.exists())
        except OSError as error:
            raise self._refused(error.strerror or str(error)) from error
        if above != path and not above.is_dir():
            raise self._refused(f"`{above}` is no folder")
        if not os.access(above, os.W_OK):
            raise self._refused("there is no right to")
        self._behind = b"\n" if told and not told.endswith(b"\n") else b""  # a line that was torn
        for line in told.splitlines():
            with suppress(msgspec.DecodeError, UnicodeDecodeError):
                self._known.append(msgspec.json.decode(line, type=Trial))

    def find(self, split: Side, choice: Choice) -> Trial | None:
        """The line of a configuration."""
        same = (one for one in self._known if (one.key, one.split, one.settings) == (self.key, split, choice))
        return next(same, None)

    def add(self, trial: Trial) -> Trial:
        """One more, unless it is there."""
        if self.find(trial.split, trial.settings) is None:
            self._known.append(trial)
            self._append(msgspec.json.encode(trial) + b"\n")
        return trial

    def _append(self, line: bytes) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("ab") as file:
                file.write(self._behind + line)
        except OSError as error:
            raise self._refused(error.strerror or str(error)) from error
        self._behind = b""

    def _refused(self, why: str) -> ThresherError:
        return ThresherError(f"`{self.path}` cannot be written: {why}; name another log with --log")


class Bench:
    """Sends sessions again with any settings, and tells what came of it against their full history."""

    def __init__(self, first: Sequence[Done], workers: Workers, rates: Rates, log: Log) -> None:
        """What the full history of every file came to."""
        self._first = [done for done in parents(first) if done.sessions]
        self._workers, self._rates, self._log = workers, rates, log
        # A session in which nothing was used again would only praise whoever forgets most.
        told = {key: one for done in self._first for key, one in done.sessions.items() if one.tallies[""].bearing}
        self.facts = {key: one.facts for key, one in told.items()}
        self.full = {key: one.tallies[""] for key, one in told.items()}
        self.failures = [failure for done in first for failure in done.failures]
        self.reused = 0

    def files(self, half: Half) -> int:
        """How many files its sessions are in."""
        return len(self._files(half))

    def tried(self, row: Sequence[Choice], half: Half) -> list[Trial]:
        """Configurations where settings are chosen; those that the log knows are taken from it."""
        known = [self._log.find("tune", one) for one in row]
        self.reused += sum(one is not None for one in known)
        new = [choice for choice, one in zip(row, known, strict=True) if one is None]
        made = iter(self._sent(new, half) if new else ())
        return [
            self.told("tune", choice, next(made)) if one is None else one
            for choice, one in zip(row, known, strict=True)
        ]

    def both(self, start: Choice, best: Choice, half: Half) -> tuple[dict[str, Tally], dict[str, Tally]]:
        """Two configurations, with the sessions that both could take."""
        found = self._sent([start] if start == best else [start, best], half)
        shared = found[0].keys() & found[-1].keys()
        before, after = ({key: one[key] for key in half.sessions if key in shared} for one in (found[0], found[-1]))
        return before, after

    def told(self, split: Side, choice: Choice, tallies: Mapping[str, Tally]) -> Trial:
        """What it came to, written down."""
        whole = total(self.full[key] for key in tallies)
        score = score_of(None, total(tallies.values()), whole, len(tallies))
        return self._log.add(
            Trial(
                key=self._log.key,
                split=split,
                settings=choice,
                served=score.served,
                tokens=score.tokens_per_turn,
                cost=score.cost,
                cost_with_refetch=score.cost_with_refetch,
                lost=score.lost,
                sessions=score.sessions,
            )
        )

    def _files(self, half: Half) -> list[str]:
        return [done.file for done in self._first if not done.sessions.keys().isdisjoint(half.sessions)]

    def _sent(self, row: Sequence[Choice], half: Half) -> list[dict[str, Tally]]:
        """What each did with the sessions of a half; all are begun at once, so that no processor waits for one."""
        files = self._files(half)
        units = [
            Unit(file, way_name(one), (int(one[BUDGET] or 0),), CALLS, self._rates) for one in row for file in files
        ]
        found: list[dict[str, Tally]] = [{} for _ in row]
        for number, done in enumerate(self._workers.do(units)):
            # The same session may fail in every trial: it is told once.
            wrong = (structs.replace(failure, way=POLICY) for failure in done.failures)
            self.failures += [failure for failure in wrong if failure not in self.failures]
            for key in done.sessions.keys() & {*half.sessions}:
                [found[number // len(files)][key]] = done.sessions[key].tallies.values()
        return found
