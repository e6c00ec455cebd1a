"""Record the units that a sweep runs, and interrupt it before one of them."""

from thresher.replay.sweep import run_unit
from thresher.replay.sweep_results import SweepUnit, UnitResult


class UnitRecorder:
    """Runs units as a sweep does. With `stop`, it interrupts the sweep after that many."""

    def __init__(self, stop: int | None = None) -> None:
        self.units: list[SweepUnit] = []
        self._stop = stop

    def __call__(self, unit: SweepUnit) -> UnitResult:
        if len(self.units) == self._stop:
            raise KeyboardInterrupt
        self.units.append(unit)
        return run_unit(unit)
